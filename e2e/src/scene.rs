//! The environment of one scenario: a namespace, a watcher of it, the operators that were started for it; and a report if the scenario fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use testkit::lease::History;

use crate::account::Account;
use crate::audit::Requests;
use crate::audit::writers;
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::observe::Observer;
use crate::observe::view::{Seen, View};
use crate::operator::{Deployment, Operator, Settings};
use crate::process::tail;
use crate::proxy::Proxy;
use crate::rights::{self, LEASE};

/// How long a scenario waits for something that takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Scene {
    pub namespace: String,
    pub cluster: Arc<Cluster>,
    binary: PathBuf,
    image: Option<String>,
    folder: PathBuf,
    observer: Observer,
    excuses_forbidden: AtomicBool,
    logs: Mutex<Vec<PathBuf>>,
    operators: Mutex<Vec<Operator>>,
    story: Mutex<String>,
}

impl Scene {
    /// Creates the namespace and starts the watcher. Operators run from the image if there is one, else from the binary.
    pub async fn start(
        namespace: &str,
        cluster: Arc<Cluster>,
        binary: &Path,
        image: Option<String>,
        folder: PathBuf,
    ) -> Result<Self> {
        make_namespace(&cluster, namespace).await.with_context(|| format!("creating namespace {namespace}"))?;
        rights::grant(&cluster, namespace).await.with_context(|| format!("granting rights in {namespace}"))?;
        let observer = Observer::start(&cluster.client, namespace);
        Ok(Self {
            namespace: namespace.to_owned(),
            cluster,
            binary: binary.to_owned(),
            image,
            folder,
            observer,
            excuses_forbidden: AtomicBool::new(false),
            logs: Mutex::default(),
            operators: Mutex::default(),
            story: Mutex::default(),
        })
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.cluster, &self.namespace)
    }

    /// One more namespace, which is not watched. The scenario's operators have their rights in it.
    pub async fn other_namespace(&self, suffix: &str) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace);
        make_namespace(&self.cluster, &name).await?;
        rights::grant_also(&self.cluster, &self.namespace, &name).await?;
        Ok(name)
    }

    /// A proxy in front of the API server, without a fault.
    pub async fn proxy(&self, seed: u64) -> Result<Proxy> {
        Proxy::start(self.cluster.anonymous().await?, seed).await
    }

    pub fn settings(&self) -> Settings {
        Settings::of(&[&self.namespace])
    }

    /// Starts an operator that runs until the scenario ends.
    pub async fn operator(&self) -> Result<()> {
        self.operator_for(&[&self.namespace]).await
    }

    /// The same for these namespaces; all if there are none.
    pub async fn operator_for(&self, namespaces: &[&str]) -> Result<()> {
        let operator = self.run(Settings::of(namespaces)).await?;
        self.operators.lock().push(operator);
        Ok(())
    }

    /// Names the next process of this kind, which starts now. Returns the name and the path of its log, which is kept if the scenario fails.
    pub fn next_process(&self, kind: &str) -> (String, PathBuf) {
        let mut logs = self.logs.lock();
        let name = format!("{kind}-{}", logs.len() + 1);
        self.log(&format!("{name} starts"));
        logs.push(self.folder.join(format!("{name}.log")));
        (name, logs[logs.len() - 1].clone())
    }

    /// Starts an operator that the scenario can signal and end.
    pub async fn run(&self, settings: Settings) -> Result<Operator> {
        let (name, log) = self.next_process("operator");
        if let Some(image) = &self.image {
            // In its own namespace, because scenarios count all pods of theirs.
            let home = format!("{}-{name}", self.namespace);
            make_namespace(&self.cluster, &home).await?;
            rights::grant(&self.cluster, &home).await?;
            for namespace in &settings.namespaces {
                rights::grant_also(&self.cluster, &home, namespace).await?;
            }
            let deployment = Deployment { kubectl: Kubectl::new(&self.cluster, &home), home: &home, image, log };
            return deployment.start(name, &settings, &self.folder).await;
        }
        let account = if settings.namespaces.is_empty() {
            Account::existing(&self.cluster, rights::HOME, rights::ACCOUNT).await?
        } else {
            Account::create(&self.cluster, &self.namespace, &name).await?
        };
        let account = match settings.traces {
            Some(_) => account.impersonated_by(self.cluster.administrator()?),
            None => account,
        };
        Operator::join(&self.cluster, &self.binary, name, &account, &settings, &self.folder)
    }

    /// Waits until the namespace looks as it should.
    pub async fn until<T>(&self, what: &str, look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        self.within(PATIENCE, what, look).await
    }

    /// Waits with another limit.
    pub async fn within<T>(&self, limit: Duration, what: &str, look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        let began = Instant::now();
        let found = self.observer.until(what, limit, look).await?;
        self.log(&format!("{:.1} s until {what}", began.elapsed().as_secs_f32()));
        Ok(found)
    }

    /// Adds a line to the scenario's story, which is printed if it fails.
    pub fn log(&self, line: &str) {
        self.story.lock().push_str(&format!("{:.6} {line}\n", Timestamp::now()));
    }

    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        self.observer.look(look)
    }

    /// Fails if a set ever had more pods than allowed. Returns the number of checked events.
    pub async fn bound_held(&self) -> Result<usize> {
        self.observer.bound_held().await
    }

    /// Accepts forbidden requests: an API server that has just started forbids everything until it has read the roles.
    pub fn excuse_forbidden_requests(&self) {
        self.excuses_forbidden.store(true, Relaxed);
    }

    /// Checks in every scenario that no set ever had more pods than allowed, and no request was forbidden.
    pub async fn ended_well(&self) -> Result<()> {
        self.bound_held().await?;
        if self.excuses_forbidden.load(Relaxed) {
            return Ok(());
        }
        let forbidden = Requests::naming(&self.cluster.audit_log, &self.namespace)?.forbidden();
        ensure!(forbidden.is_empty(), "config/rbac does not allow {} requests: {forbidden:#?}", forbidden.len());
        Ok(())
    }

    /// Fails if an operator wrote in this namespace without holding the Lease, or if none wrote.
    pub fn one_writer(&self) -> Result<()> {
        let (judged, exempt) = writers::one_writer(&self.cluster.audit_log, &self.namespace, LEASE)?;
        self.log(&format!("{judged} writes were judged, {exempt} of them exempt"));
        Ok(())
    }

    /// The holders of the Lease of this namespace over time.
    pub fn history(&self) -> Result<History> {
        writers::history(&self.cluster.audit_log, &self.namespace, LEASE)
    }

    /// The requests of operators in this namespace.
    pub fn requests(&self) -> Result<Requests> {
        Requests::read(&self.cluster.audit_log, &self.namespace)
    }

    /// Deletes its namespaces if the nodes are real, because those take few pods.
    pub async fn clean_up(&self) -> Result<()> {
        if !self.cluster.has_real_nodes {
            return Ok(());
        }
        let names = self.kubectl().run(&["get", "namespaces", "--output=jsonpath={.items[*].metadata.name}"]).await?;
        let others = format!("{}-", self.namespace);
        for name in names.split_whitespace().filter(|name| *name == self.namespace || name.starts_with(&others)) {
            self.kubectl().run(&["delete", "namespace", name, "--wait=false"]).await?;
        }
        Ok(())
    }

    /// Writes the details of a failed scenario to files. Returns the end of each file, the story last.
    pub async fn report(&self) -> String {
        let kinds = "podsets,mycustomresources,pods,resourcequotas";
        let kubectl = self.kubectl();
        let get = async |arguments: &[&str]| kubectl.run(arguments).await.unwrap_or_else(|error| error.to_string());
        let requests = self.requests().map_or_else(|error| error.to_string(), |all| all.but_watches().join("\n"));
        let lease = self.history().map_or_else(|error| error.to_string(), |history| history.to_string());
        let events = get(&["get", "events", "--sort-by=.metadata.creationTimestamp"]).await;
        self.keep("objects.yaml", &get(&["get", kinds, "--output=yaml"]).await);
        let mut parts = vec![
            ("the last requests of the operators, without watches", self.keep("requests.txt", &requests), 40),
            ("the last writes of the Lease", self.keep("lease.txt", &lease), 20),
            ("the objects", self.keep("objects.txt", &get(&["get", kinds, "--output=wide"]).await), 60),
            ("the events", self.keep("events.txt", &events), 40),
        ];
        let logs = self.logs.lock().clone();
        for log in logs {
            if self.image.is_some() {
                Deployment::keep_log(&self.cluster, &self.namespace, &log).await;
            }
            parts.push(("the end of a log", log, 60));
        }
        parts.push(("the story", self.write_story(), 40));
        let parts =
            parts.iter().map(|(of, file, lines)| format!("--- {of}: {}\n{}\n", file.display(), tail(file, *lines)));
        parts.collect()
    }

    /// Writes the story to a file.
    pub fn write_story(&self) -> PathBuf {
        self.keep("story.txt", &self.story.lock())
    }

    fn keep(&self, file: &str, text: &str) -> PathBuf {
        let file = self.folder.join(file);
        // The report shows that a file is missing.
        let _ = std::fs::write(&file, text);
        file
    }
}

/// Creates a namespace and waits for its ServiceAccount, without which pods are rejected.
pub async fn make_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let kubectl = Kubectl::new(cluster, name);
    kubectl.run(&["create", "namespace", name]).await?;
    kubectl.run(&["wait", "--for=create", "serviceaccount/default", "--timeout=90s"]).await.map(drop)
}
