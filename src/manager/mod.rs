//! The life of the process: what starts after what, what stops before what, and with which exit code it ends.
//!
//! Start: flags, logs, kubeconfig, clients, servers, caches, candidacy, and, as the leader, the controllers' work. Stop: no
//! new work and not ready any more, what is under way ends, the lease is given back, the servers end, exit. Whatever ends
//! otherwise, by a panic or a lost lease, ends the process at once: half a manager must not go on.

mod config;
mod signals;
pub mod tasks;

use std::{process::ExitCode, sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::Config;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{error, info, warn};

use crate::{
    api,
    cli::{Cli, Command, RunArgs},
    client::{self, Clients, ConnectError, Purpose, in_full},
    controllers::{
        self, Controller, Surroundings,
        mycustomresource::MyCustomResourceController,
        podset::{Parts, PodSetController, locks::Locks},
    },
    env::Env,
    health::{Health, Pulse},
    leader::{self, Election, Leadership, Lost, Office, Timing, TimingError},
    listwatch::Scope,
    server::{ServeError, Servers},
    telemetry::{self, metrics::Metrics},
};
use signals::Signals;
use tasks::Tasks;

/// Exit code for a fatal error or a lost lease.
const FATAL: u8 = 1;
/// Exit code for wrong flags or an unreadable kubeconfig.
const USAGE: u8 = 2;

/// How long the loop of the election may take to turn: several times what it takes at most.
const ELECTION_TURNS: SignedDuration = SignedDuration::from_secs(30);

/// How long a replica whose caches are not synced leaves leading to others.
const UNSYNCED: Duration = Duration::from_secs(15);

/// Why the operator cannot begin.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Timing(#[from] TimingError),
    #[error("--kubeconfig {file}: {source}")]
    Kubeconfig { file: String, source: kube::config::KubeconfigError },
    #[error("no cluster to work on: give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    NoCluster(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl StartError {
    fn exit_code(&self) -> u8 {
        match self {
            // The flags are right, and the machine is not.
            StartError::Serve(ServeError::Bind(_)) => FATAL,
            _ => USAGE,
        }
    }
}

/// Does what the command line asks for, and says with which code to exit.
pub fn main(cli: Cli) -> ExitCode {
    match cli.into_command() {
        Command::Crd => print_crds(),
        Command::Run(arguments) => {
            if let Err(error) = telemetry::start(&arguments.logging) {
                eprintln!("podset-operator: {error}");
                return ExitCode::from(FATAL);
            }
            match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
                Ok(runtime) => {
                    let code = runtime.block_on(run(&arguments));
                    runtime.shutdown_background();
                    ExitCode::from(code)
                }
                Err(error) => {
                    error!(%error, "cannot start the runtime");
                    ExitCode::from(FATAL)
                }
            }
        }
    }
}

/// Prints the CRDs as YAML documents.
fn print_crds() -> ExitCode {
    use std::io::Write;

    let mut out = std::io::stdout().lock();
    for (_, crd) in api::crds() {
        let written = api::yaml(&crd).map_err(std::io::Error::other).and_then(|yaml| write!(out, "---\n{yaml}"));
        match written {
            Ok(()) => {}
            // Whoever reads, as `head` does, has read enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("podset-operator: cannot print the CRDs: {error}");
                return ExitCode::from(FATAL);
            }
        }
    }
    ExitCode::SUCCESS
}

async fn run(arguments: &RunArgs) -> u8 {
    // Before anything else: whoever asks this process to end must not be missed.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return FATAL;
        }
    };
    info!(version = env!("CARGO_PKG_VERSION"), "podset-operator begins");
    let env = Env::system();
    let (health, stop) = (Health::new(env.clone()), CancellationToken::new());
    let manager = match Manager::start(arguments, env, &health, &stop).await {
        Ok(manager) => manager,
        Err(error) => {
            error!("{}", in_full(&error));
            return error.exit_code();
        }
    };
    tokio::select! {
        code = manager.ended() => code,
        code = signals.obeyed(&health, &stop) => code,
    }
}

/// Everything that runs.
struct Manager {
    tasks: Tasks,
    servers: Servers,
    _who_leads: AbortOnDropHandle<()>,
}

impl Manager {
    async fn start(
        arguments: &RunArgs,
        env: Env,
        health: &Health,
        stop: &CancellationToken,
    ) -> Result<Self, StartError> {
        let timing = arguments.timing()?;
        let config = config::config(arguments).await?;
        let metrics = Metrics::new(env.clone());
        let office = arguments.leader_elect.then(|| Office::vacant(env.clone()));
        let leadership = office.as_ref().map_or_else(|| Leadership::always(env.clone()), Office::leadership);
        let user_timeout = Duration::try_from(timing.user_timeout()).unwrap_or_default();
        let clients = Clients::connect(&config, leadership.clone(), user_timeout, &metrics.requests())?;
        let reviews = client::connect(&config, Purpose::WithoutLeadership { user_timeout }, &metrics.requests())?;
        let servers = Servers::start(arguments, &env, reviews, health, &metrics).await?;
        let around = Surroundings {
            env: env.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            at_once: arguments.max_concurrent_reconciles.into(),
            stop: stop.clone(),
        };
        let mut tasks = Tasks::new();
        let synced = start_controllers(arguments, &around, clients, &mut tasks);
        if let Some(office) = office {
            let client = client::connect(&config, Purpose::WithoutLeadership { user_timeout }, &metrics.requests())?;
            let parts = parts(arguments, &config, client, timing, &env);
            let candidacy = candidacy(parts, office, synced, around, tasks.drained());
            tasks.start_election(candidacy);
        }
        health.started();
        let shown = metrics.leader(&arguments.leader_elect_resource_name);
        let who_leads =
            AbortOnDropHandle::new(tokio::spawn(show_leadership(leadership, move |leads| shown.set(leads))));
        Ok(Manager { tasks, servers, _who_leads: who_leads })
    }

    async fn ended(self) -> u8 {
        if let Err(failure) = self.tasks.ended().await {
            error!("{failure}; ending the process");
            return FATAL;
        }
        self.servers.end().await;
        info!("podset-operator ends");
        0
    }
}

/// Starts the controllers; a further one is one line here. Answers what tells whether their caches are synced.
fn start_controllers(
    arguments: &RunArgs,
    around: &Surroundings,
    clients: Clients,
    tasks: &mut Tasks,
) -> Vec<watch::Receiver<bool>> {
    let namespaces = arguments.namespaces();
    let scopes: Vec<Scope> =
        if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(|name| Some(name.into())).collect() };
    let parts = Parts {
        env: around.env.clone(),
        clients: clients.clone(),
        locks: Locks::default(),
        scopes: scopes.clone(),
        default_image: arguments.default_image.clone(),
        instance: config::instance(),
        metrics: around.metrics.clone(),
    };
    let friends = MyCustomResourceController::new(around.env.clone(), clients, scopes, &around.metrics);
    vec![start(PodSetController::new(parts), around, tasks), start(friends, around, tasks)]
}

fn start<C: Controller>(controller: C, around: &Surroundings, tasks: &mut Tasks) -> watch::Receiver<bool> {
    let (name, synced) = (controller.name(), controller.synced().subscribe());
    tasks.start(name, controllers::run(Arc::new(controller), around.clone()));
    synced
}

fn parts(arguments: &RunArgs, config: &Config, client: kube::Client, timing: Timing, env: &Env) -> leader::Parts {
    let namespace = arguments.leader_elect_resource_namespace.as_ref();
    leader::Parts {
        client,
        namespace: namespace.unwrap_or(&config.default_namespace).clone(),
        name: arguments.leader_elect_resource_name.clone(),
        identity: config::identity(&config::instance(), env),
        timing,
        env: env.clone(),
        locks: leader::locks::Locks::default(),
        turned: Arc::new(|| {}),
    }
}

/// Stands for election once the caches are synced: whoever leads shall have work to do at once.
async fn candidacy(
    parts: leader::Parts,
    office: Office,
    synced: Vec<watch::Receiver<bool>>,
    around: Surroundings,
    drained: CancellationToken,
) -> Result<(), Lost> {
    let pulse = Pulse::new(&around.health, tasks::ELECTION, ELECTION_TURNS);
    let ready = async {
        let all = futures::future::join_all(synced.into_iter().map(|mut cache| async move {
            // Its sender lives as long as the controller, and without controllers there is no election.
            let _ = cache.wait_for(|synced| *synced).await;
        }));
        // A controller that can never begin, for want of a CRD or of a right, must not keep the others from work.
        if tokio::time::timeout(UNSYNCED, all).await.is_err() {
            warn!("standing for election although not all caches are synced: /readyz?verbose says which");
        }
    };
    let parts = leader::Parts { turned: Arc::new(move || pulse.beat()), ..parts };
    Election::new(parts, office).run(ready, around.stop, drained).await
}

/// Calls `show` whenever this process begins or ceases to lead.
async fn show_leadership(mut leadership: Leadership, show: impl Fn(bool)) {
    loop {
        let term = leadership.begun().await;
        show(true);
        leadership.ended(term.number).await;
        show(false);
    }
}
