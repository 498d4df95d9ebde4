//! The place of one scenario: a namespace, eyes on it, the operators that were started for it; and, when it fails, all
//! that helps to see why.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::account::Account;
use crate::audit::Requests;
use crate::audit::lease::History;
use crate::audit::writers::Verdict;
use crate::cluster::needs::Need;
use crate::cluster::{Cluster, LABEL};
use crate::kubectl::Kubectl;
use crate::observe::Observer;
use crate::observe::view::{Seen, View};
use crate::operator::{Deployment, Operator, Plan, Settings, tail};
use crate::proxy::Proxy;
use crate::rights;

/// How long a scenario waits for something that should be there in seconds: machines may be slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// The name of the Lease of every election: each namespace has its own.
pub const LEASE: &str = "podset-operator";

/// The place of one scenario.
pub struct Scene {
    namespace: String,
    cluster: Arc<Cluster>,
    binary: PathBuf,
    image: Option<String>,
    folder: PathBuf,
    observer: Observer,
    excused: AtomicBool,
    logs: Mutex<Vec<PathBuf>>,
    story: Mutex<String>,
}

impl Scene {
    /// Makes the namespace and begins to watch it. Operators run from the image, or else the binary.
    pub async fn start(
        namespace: &str,
        cluster: Arc<Cluster>,
        binary: &Path,
        image: Option<String>,
        folder: PathBuf,
    ) -> Result<Self> {
        make_namespace(&cluster, namespace).await.with_context(|| format!("making namespace {namespace}"))?;
        rights::grant(&cluster, namespace).await.with_context(|| format!("granting rights in {namespace}"))?;
        let observer = Observer::start(cluster.client(), namespace);
        let binary = binary.to_owned();
        Ok(Self {
            namespace: namespace.to_owned(),
            cluster,
            binary,
            image,
            folder,
            observer,
            excused: AtomicBool::new(false),
            logs: Mutex::default(),
            story: Mutex::default(),
        })
    }

    /// The scenario's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The administrator's client, straight to the API server.
    pub fn client(&self) -> Client {
        self.cluster.client().clone()
    }

    /// The cluster it plays in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// kubectl in the scenario's namespace.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.cluster, &self.namespace)
    }

    /// One more namespace, of which no eyes are kept; the scenario's operators may work in it too.
    pub async fn other_namespace(&self, suffix: &str) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace);
        make_namespace(&self.cluster, &name).await?;
        rights::grant_also(self.cluster.client(), &self.namespace, &name).await?;
        Ok(name)
    }

    /// The same, but the operators have there no right to this resource.
    pub async fn namespace_without(&self, suffix: &str, resource: &str) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace);
        make_namespace(&self.cluster, &name).await?;
        rights::grant_but(self.cluster.client(), &self.namespace, &name, resource).await?;
        Ok(name)
    }

    /// A proxy before the API server, with no fault yet.
    pub async fn proxy(&self, seed: u64) -> Result<Proxy> {
        Proxy::start(self.cluster.anonymous().await?, seed).await
    }

    /// The settings of an operator for the scenario's namespace.
    pub fn settings(&self) -> Settings {
        Settings::of(&self.namespace)
    }

    /// Starts an operator for the scenario's namespace.
    pub async fn operator(&self) -> Result<Operator> {
        self.run(self.settings()).await
    }

    /// Starts an operator for these namespaces; none are all.
    pub async fn operator_for(&self, namespaces: &[&str]) -> Result<Operator> {
        let namespaces = namespaces.iter().map(|namespace| namespace.to_string()).collect();
        self.run(Settings { namespaces, ..Settings::default() }).await
    }

    /// Starts an operator for the scenario's namespace that finds this proxy in place of the API server.
    pub async fn operator_behind(&self, proxy: &Proxy) -> Result<Operator> {
        self.run(self.settings().behind(proxy)).await
    }

    /// Starts an operator.
    pub async fn run(&self, settings: Settings) -> Result<Operator> {
        let (name, log) = self.next_name();
        if let Some(image) = &self.image {
            return self.deploy(name, log, image, &settings).await;
        }
        let client = self.cluster.client();
        let account = if settings.namespaces.is_empty() {
            Account::existing(client, rights::HOME, rights::ACCOUNT).await?
        } else {
            Account::create(client, &self.namespace, &name).await?
        };
        let account = match settings.traces {
            Some(_) => account.played_by(self.cluster.administrator()?),
            None => account,
        };
        self.tell(&format!("{name} starts"));
        Operator::join(&self.cluster, &self.binary, name, &account, &settings, &self.folder)
    }

    /// Starts the binary as somebody does by hand: with the kubeconfig of this account, and these flags.
    pub fn run_by_hand(&self, account: &Account, flags: &[&str]) -> Result<Operator> {
        let (name, _) = self.next_name();
        let kubeconfig = self.file(&format!("{name}.kubeconfig"));
        account.write_kubeconfig(self.cluster.server(), &kubeconfig)?;
        // Ports of its own, as `make run` has them.
        let ports = ["--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"];
        let always = ["run", "--log-format=text", "--metrics-secure=false"].into_iter().chain(ports);
        let arguments = always.chain(flags.iter().copied()).map(str::to_owned).collect();
        self.tell(&format!("{name} is started by hand: {}", flags.join(" ")));
        Operator::start(Plan {
            binary: &self.binary,
            name,
            user: account.user(),
            kubeconfig,
            arguments,
            environment: Vec::new(),
            cluster: &self.cluster,
            folder: &self.folder,
        })
    }

    /// Starts an operator in the cluster: in a namespace of its own, since scenarios look at all pods of theirs.
    async fn deploy(&self, name: String, log: PathBuf, image: &str, settings: &Settings) -> Result<Operator> {
        let home = format!("{}-{name}", self.namespace);
        make_namespace(&self.cluster, &home).await?;
        rights::grant(&self.cluster, &home).await?;
        for namespace in &settings.namespaces {
            rights::grant_also(self.cluster.client(), &home, namespace).await?;
        }
        self.tell(&format!("{name} starts in namespace {home}"));
        let deployment = Deployment { kubectl: Kubectl::new(&self.cluster, &home), home: &home, image, log };
        deployment.start(name, settings, &self.folder).await
    }

    /// The name and the log of the next operator.
    fn next_name(&self) -> (String, PathBuf) {
        let mut logs = self.logs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let name = format!("operator-{}", logs.len() + 1);
        let log = self.file(&format!("{name}.log"));
        logs.push(log.clone());
        (name, log)
    }

    /// A file of the scenario's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Waits, generously, until the namespace looks as it should.
    pub async fn until<T>(&self, what: &str, look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        self.within(PATIENCE, what, look).await
    }

    /// Waits so long at most.
    pub async fn within<T>(&self, limit: Duration, what: &str, look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        let began = Instant::now();
        let found = self.observer.until(what, limit, look).await?;
        self.tell(&format!("{:.1} s until {what}", began.elapsed().as_secs_f32()));
        Ok(found)
    }

    /// Adds a line to the scenario's story, which is printed when it fails; with the time, as the operator's log has it.
    pub fn tell(&self, line: &str) {
        let now = k8s_openapi::jiff::Timestamp::now();
        let mut story = self.story.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        story.push_str(&format!("{now:.6} {line}\n"));
    }

    /// Looks once, now.
    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        self.observer.look(look)
    }

    /// Fails if a set ever had more pods than it may; answers after how many events that was checked.
    pub async fn bound_held(&self) -> Result<usize> {
        self.observer.bound_held().await
    }

    /// A right may seem to be missing: an API server that has just started refuses everything until it has read the roles.
    pub fn excuses_refusals(&self) {
        self.excused.store(true, Relaxed);
    }

    /// What holds at the end of every scenario: no set ever had more pods than it may, and no right was missing.
    pub async fn ended_well(&self) -> Result<()> {
        self.bound_held().await?;
        if !self.cluster.has().this(Need::AuditLog) {
            return Ok(()); // the run has said that this is not checked
        }
        if self.excused.load(Relaxed) {
            return Ok(());
        }
        let forbidden = self.requests()?.forbidden();
        ensure!(forbidden.is_empty(), "config/rbac does not allow {} requests: {forbidden:#?}", forbidden.len());
        Ok(())
    }

    /// Fails if anybody wrote in this namespace who did not hold the Lease there, and if nobody wrote at all.
    pub fn one_writer(&self) -> Result<()> {
        self.keep_history();
        let verdict = Verdict::read(self.cluster.audit_log()?, &self.namespace, LEASE)?;
        self.tell(&format!("{} writes were judged, {} of them exempt", verdict.judged, verdict.exempt));
        ensure!(verdict.held()? > 0, "nobody wrote: nothing was judged");
        Ok(())
    }

    /// Who held the Lease of this namespace, and when.
    pub fn history(&self) -> Result<History> {
        History::read(self.cluster.audit_log()?, &self.namespace, LEASE)
    }

    /// What operators have asked of the API server in this namespace.
    pub fn requests(&self) -> Result<Requests> {
        Requests::read(self.cluster.audit_log()?, &self.namespace)
    }

    /// Leaves its namespaces to whoever comes next where pods are real: a node takes few of them.
    pub async fn leave(&self) -> Result<()> {
        if self.cluster.has().this(Need::SimulatedPods) {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.client());
        for namespace in namespaces.list_metadata(&ListParams::default()).await? {
            let name = namespace.name_any();
            if name == self.namespace || name.starts_with(&format!("{}-", self.namespace)) {
                namespaces.delete(&name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// What helps to see why it failed, whole in files and the end of each as text: what happened comes last, for that is read first.
    pub async fn report(&self) -> String {
        let part = |of: &str, file: &Path, lines| format!("--- {of}\n{}\n", tail(file, lines));
        let mut report = format!("--- all of it is in {}\n", self.folder.display());
        report.push_str(&part("the operators' last requests but watches", &self.keep_requests(), 40));
        report.push_str(&part("the last writes of the Lease, if there is one", &self.keep_history(), 20));
        let kinds = "podsets,mycustomresources,pods,resourcequotas";
        self.keep("objects.yaml", &["get", kinds, "--output=yaml"]).await;
        let objects = self.keep("objects.txt", &["get", kinds, "--output=wide"]).await;
        report.push_str(&part(&format!("the objects of namespace {}", self.namespace), &objects, 60));
        let events = self.keep("events.txt", &["get", "events", "--sort-by=.metadata.creationTimestamp"]).await;
        report.push_str(&part("its events", &events, 40));
        let logs = self.logs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        for log in logs {
            if self.image.is_some() {
                Deployment::keep_log(&self.cluster, &self.namespace, &log).await;
            }
            report.push_str(&part(&format!("the end of {}", log.display()), &log, 60));
        }
        report.push_str(&part("the story", &self.write_story(), 40));
        report
    }

    /// Writes the story into a file of its own.
    pub fn write_story(&self) -> PathBuf {
        let file = self.file("story.txt");
        let story = self.story.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // What cannot be written is missing from the report, where it shows.
        let _ = std::fs::write(&file, story.as_str());
        file
    }

    fn keep_history(&self) -> PathBuf {
        let lines = |history: History| history.0.iter().skip(1).map(|change| format!("{change}\n")).collect();
        let lines = self.history().map_or_else(|error| error.to_string(), lines);
        let file = self.file("lease.txt");
        let _ = std::fs::write(&file, lines);
        file
    }

    fn keep_requests(&self) -> PathBuf {
        let lines = self.requests().map_or_else(|error| error.to_string(), |all| all.but_watches().join("\n"));
        let file = self.file("requests.txt");
        let _ = std::fs::write(&file, lines);
        file
    }

    async fn keep(&self, file: &str, arguments: &[&str]) -> PathBuf {
        let output = self.kubectl().run(arguments).await.unwrap_or_else(|error| error.to_string());
        let file = self.file(file);
        // What cannot be written is missing from the report, where it shows.
        let _ = std::fs::write(&file, output);
        file
    }
}

/// A namespace in which pods can be made: before it has its ServiceAccount they are refused.
pub async fn make_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let client = cluster.client();
    let labels = json!({LABEL: cluster.name()});
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    let there = async {
        let mut events = Box::pin(accounts.watch(&WatchParams::default().fields("metadata.name=default"), "0").await?);
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Added(_)) {
                break;
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, there).await.context("it got no ServiceAccount")?
}
