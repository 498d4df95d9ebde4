//! The life of the process: what starts after what, what stops before what, and with which exit code it ends.
//!
//! Start: flags, logs, kubeconfig, clients, servers, caches, then the controllers. Stop: no new work and not ready any more,
//! what is under way ends, the servers end, exit.

use std::{collections::HashMap, process::ExitCode, sync::Arc};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{self, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    api,
    cli::{Cli, Command, RunArgs},
    client::{Clients, ConnectError, in_full},
    controllers::{
        self, Controller, Surroundings,
        listwatch::Scope,
        mycustomresource::MyCustomResourceController,
        podset::{Parts, PodSetController, locks::Locks},
    },
    env::Env,
    health::Health,
    leader::Leadership,
    server::{ServeError, Servers},
    telemetry::{self, metrics::Metrics},
};

/// Exit code for a fatal error.
const FATAL: u8 = 1;
/// Exit code for wrong flags or an unreadable kubeconfig.
const USAGE: u8 = 2;

/// Why the operator cannot begin.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("--leader-elect=true is not available yet: run one replica with --leader-elect=false")]
    LeaderElection,
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
                    code
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

async fn run(arguments: &RunArgs) -> ExitCode {
    // Before anything else: whoever asks this process to end must not be missed.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return ExitCode::from(FATAL);
        }
    };
    info!(version = env!("CARGO_PKG_VERSION"), "podset-operator begins");
    let env = Env::system();
    let (health, stop) = (Health::new(env.clone()), CancellationToken::new());
    let controllers = match controllers(arguments, env, &health, &stop).await {
        Ok(controllers) => controllers,
        Err(error) => {
            error!("{}", in_full(&error));
            return ExitCode::from(error.exit_code());
        }
    };
    tokio::select! {
        code = controllers.ended() => code,
        code = signals.obeyed(&health, &stop) => code,
    }
}

/// The servers, and the controllers, ready to run. A further one is one line here.
async fn controllers(
    arguments: &RunArgs,
    env: Env,
    health: &Health,
    stop: &CancellationToken,
) -> Result<Controllers, StartError> {
    if arguments.leader_elect {
        return Err(StartError::LeaderElection);
    }
    let leadership = Leadership::always();
    let config = config(arguments).await?;
    let clients = Clients::connect(&config, leadership.clone())?;
    let metrics = Metrics::new(env.clone());
    let servers = Servers::start(arguments, &env, clients.read.clone(), health, &metrics).await?;
    let namespaces = arguments.namespaces();
    let scopes: Vec<Scope> =
        if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(|name| Some(name.into())).collect() };
    let parts = Parts {
        env: env.clone(),
        clients: clients.clone(),
        locks: Locks::default(),
        scopes: scopes.clone(),
        default_image: arguments.default_image.clone(),
        instance: instance(),
        metrics: metrics.clone(),
    };
    let around = Surroundings {
        env: env.clone(),
        leadership,
        metrics: metrics.clone(),
        health: health.clone(),
        at_once: arguments.max_concurrent_reconciles.into(),
        stop: stop.clone(),
    };
    let mut controllers = Controllers { running: JoinSet::new(), names: HashMap::new(), around, servers };
    controllers.start(PodSetController::new(parts));
    controllers.start(MyCustomResourceController::new(env, clients, scopes, &metrics));
    health.started();
    Ok(controllers)
}

/// The controllers that run.
struct Controllers {
    running: JoinSet<()>,
    names: HashMap<task::Id, &'static str>,
    around: Surroundings,
    servers: Servers,
}

impl Controllers {
    fn start<C: Controller>(&mut self, controller: C) {
        let name = controller.name();
        let work = controllers::run(Arc::new(controller), self.around.clone());
        self.names.insert(self.running.spawn(work).id(), name);
    }

    /// Waits until every controller has ended; one that panics ends them all.
    async fn ended(mut self) -> ExitCode {
        while let Some(end) = self.running.join_next_with_id().await {
            if let Err(error) = end {
                let controller = self.names.get(&error.id()).copied().unwrap_or("unknown");
                error!(controller, %error, "a controller panicked: ending the process");
                return ExitCode::from(FATAL);
            }
        }
        self.servers.end().await;
        info!("podset-operator ends");
        ExitCode::SUCCESS
    }
}

/// The signals that ask the process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal: its number and its name.
    async fn next(&mut self) -> (u8, &'static str) {
        tokio::select! {
            _ = self.terminate.recv() => (15, "SIGTERM"),
            _ = self.interrupt.recv() => (2, "SIGINT"),
        }
    }

    /// The first signal asks everything to end; a second one ends it at once.
    async fn obeyed(&mut self, health: &Health, stop: &CancellationToken) -> ExitCode {
        let (_, signal) = self.next().await;
        info!(signal, "ending: no new work is begun");
        health.ending();
        stop.cancel();
        let (number, signal) = self.next().await;
        warn!(signal, "a second signal: ending at once");
        ExitCode::from(128 + number)
    }
}

async fn config(arguments: &RunArgs) -> Result<Config, StartError> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    match &arguments.kubeconfig {
        Some(file) => {
            let named = |source| StartError::Kubeconfig { file: file.display().to_string(), source };
            let kubeconfig = Kubeconfig::read_from(file).map_err(named)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(named)
        }
        None if arguments.context.is_some() => {
            Config::from_kubeconfig(&options).await.map_err(|error| StartError::NoCluster(in_full(&error)))
        }
        None => Config::infer().await.map_err(no_cluster),
    }
}

/// Outside a cluster only what is wrong with the kubeconfig is of interest.
fn no_cluster(error: kube::config::InferConfigError) -> StartError {
    let kubeconfig = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    StartError::NoCluster(kubeconfig)
}

/// The name of this process among its replicas.
fn instance() -> String {
    let from_env = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    from_env
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| api::MANAGER.to_owned())
}
