//! Runs the scenarios: starts the clusters, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, Semaphore};

use crate::cluster::{Cluster, Wanted, Way, guard, operator_image};
use crate::install::install;
use crate::operator;
use crate::scene::Scene;
use crate::signals;

/// Scenarios at a time. They wait more than they compute.
const AT_A_TIME: usize = 6;

/// Scenarios about times at a time. Their Leases expire if the machine is too busy.
const BY_THE_CLOCK: u32 = 3;

/// Limit of a scenario, so that one that hangs does not hide the results of the others.
const LIMIT: Duration = Duration::from_secs(480);

type Run = Box<dyn FnOnce(Arc<Scene>) -> BoxFuture<'static, Result<()>> + Send>;

pub struct Scenario {
    name: &'static str,
    /// Why it runs on a local cluster only, if it does.
    local_only: Option<&'static str>,
    processes: bool,
    own_cluster: Option<Wanted>,
    /// Permits of [`Suite::calm`].
    calm: u32,
    run: Run,
}

impl Scenario {
    /// A scenario in its own namespace.
    pub fn new<F>(name: &'static str, run: impl FnOnce(Arc<Scene>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let run: Run = Box::new(|scene| Box::pin(run(scene)));
        Self { name, local_only: None, processes: false, own_cluster: None, calm: 0, run }
    }

    /// It needs what k3s does not have: nodes simulated by KWOK, or a control plane of processes. Elsewhere it is ignored, with this reason.
    pub fn local_only(mut self, reason: &'static str) -> Self {
        self.local_only = Some(reason);
        self
    }

    /// Its operators are processes of this machine, to be killed, frozen or put behind a proxy.
    pub fn with_processes(mut self) -> Self {
        self.processes = true;
        self
    }

    pub fn in_own_cluster(mut self, wanted: Wanted) -> Self {
        self.own_cluster = Some(wanted);
        self
    }

    /// It checks times: few of these run at a time, and none next to heavy ones.
    pub fn by_the_clock(mut self) -> Self {
        self.calm = 1;
        self
    }

    /// It uses so much of the machine that no times can be checked next to it.
    pub fn heavy(mut self) -> Self {
        self.calm = BY_THE_CLOCK;
        self
    }
}

/// Runs the scenarios that the command line names, as `cargo test` does. Logs and reports are in `folder`.
pub fn run(folder: PathBuf, scenarios: Vec<Scenario>) -> ExitCode {
    if let Some(code) = guard::serve() {
        return code;
    }
    run_all(folder, scenarios).unwrap_or_else(|error| {
        eprintln!("e2e: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_all(folder: PathBuf, scenarios: Vec<Scenario>) -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let runtime = Arc::new(Runtime::new()?);
    let way = if arguments.list { Way::Local } else { runtime.block_on(Way::choose())? };
    let image = operator_image()?;
    ensure!(
        image.is_none() || arguments.list || !matches!(way, Way::Local),
        "E2E_OPERATOR=image needs nodes that run containers; those of a local cluster are simulated"
    );
    let suite = Arc::new(Suite {
        folder,
        way,
        image,
        binary: OnceCell::new(),
        shared: OnceCell::new(),
        started: Mutex::default(),
        calm: Semaphore::new(BY_THE_CLOCK as usize),
        failed: Mutex::default(),
    });
    let ended = suite.clone();
    runtime.spawn(signals::end_on_signals(move || ended.end()));
    let trial = |scenario: Scenario| {
        let (suite, runtime) = (suite.clone(), runtime.clone());
        Trial::ignorable_test(scenario.name, move || {
            let reason = runtime.block_on(suite.run(scenario)).map_err(|error| Failed::from(format!("{error:#}")))?;
            Ok(reason.map_or(Completion::Completed, Completion::ignored_with))
        })
    };
    let conclusion = libtest_mimic::run(&arguments, scenarios.into_iter().map(trial).collect());
    suite.end();
    let mut failed = suite.failed.lock();
    failed.sort();
    if !failed.is_empty() {
        println!("e2e: failed:\n  {}\n", failed.join("\n  "));
    }
    Ok(conclusion.exit_code())
}

/// What the scenarios of a run share.
struct Suite {
    folder: PathBuf,
    way: Way,
    image: Option<String>,
    binary: OnceCell<Result<PathBuf, String>>,
    shared: OnceCell<Result<Arc<Cluster>, String>>,
    started: Mutex<Vec<Weak<Cluster>>>,
    /// Keeps scenarios about times apart from heavy ones.
    calm: Semaphore,
    failed: Mutex<Vec<String>>,
}

impl Suite {
    /// The operator's binary, which is built once.
    async fn binary(&self) -> Result<&Path> {
        let build = async || operator::build(&[]).await.map_err(|error| format!("{error:#}"));
        self.binary.get_or_init(build).await.as_deref().map_err(|error| anyhow!("{error}"))
    }

    /// Runs a scenario. Returns why it is not run here, if it is not.
    async fn run(&self, scenario: Scenario) -> Result<Option<String>> {
        let name = scenario.name;
        if let Some(reason) = scenario.local_only.filter(|_| !matches!(self.way, Way::Local)) {
            return Ok(Some(format!("runs on a local cluster only: {reason}")));
        }
        if scenario.processes && self.image.is_some() {
            return Ok(Some("needs operators that are processes of this machine".to_owned()));
        }
        let _calm = self.calm.acquire_many(scenario.calm).await?;
        let cluster = match &scenario.own_cluster {
            None => self.shared_cluster().await?,
            Some(wanted) => self.cluster(&dashed(name), wanted).await?,
        };
        let folder = self.folder.join(name);
        let _ = std::fs::remove_dir_all(&folder); // of an earlier run
        std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let namespace = format!("e2e-{}", dashed(name));
        let image = self.image.clone();
        let scene = Arc::new(Scene::start(&namespace, cluster, self.binary().await?, image, folder).await?);
        let run = tokio::spawn(tokio::time::timeout(LIMIT, (scenario.run)(scene.clone())));
        let end = match run.await {
            Ok(Ok(Ok(()))) => scene.ended_well().await,
            Ok(Ok(failed)) => failed,
            Ok(Err(_)) => Err(anyhow!("it took longer than {} s", LIMIT.as_secs())),
            Err(panic) => Err(anyhow!("it panicked: {panic}")),
        };
        scene.write_story();
        match end {
            Ok(()) => scene.clean_up().await.map(|()| None),
            Err(failure) => {
                self.failed.lock().push(format!("{name}: {failure:#}"));
                Err(anyhow!("{}--- why it failed\n{failure:#}", scene.report().await))
            }
        }
    }

    async fn shared_cluster(&self) -> Result<Arc<Cluster>> {
        let start = async || self.cluster("", &Wanted::default()).await.map_err(|error| format!("{error:#}"));
        self.shared.get_or_init(start).await.clone().map_err(|error| anyhow!("{error}"))
    }

    /// A new cluster with the CRDs and the operator's rights.
    async fn cluster(&self, of: &str, wanted: &Wanted) -> Result<Arc<Cluster>> {
        // A name that no other run has, short enough for `hack/cluster`.
        let mut name = format!("e2e-{}-{of}", std::process::id());
        name.truncate(40);
        let name = name.trim_end_matches('-');
        let binary = self.binary().await?;
        std::fs::create_dir_all(&self.folder).with_context(|| format!("creating {}", self.folder.display()))?;
        let cluster = Cluster::start(name, &self.way, wanted, &self.folder).await;
        let cluster = Arc::new(cluster.with_context(|| format!("no cluster {name}"))?);
        self.started.lock().push(Arc::downgrade(&cluster));
        install(&cluster, binary).await?;
        Ok(cluster)
    }

    fn end(&self) {
        let started = std::mem::take(&mut *self.started.lock());
        started.iter().filter_map(Weak::upgrade).for_each(|cluster| cluster.end());
    }
}

fn dashed(name: &str) -> String {
    name.replace('_', "-")
}
