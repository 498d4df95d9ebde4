//! The life of the process: what starts after what, what stops before what, and with which exit code it ends.
//!
//! Start: flags, logs, kubeconfig, clients, caches, candidacy, and, as the leader, the controllers' work. Stop: no new work,
//! what is under way ends, the lease is given back, exit.

use std::{collections::HashMap, process::ExitCode, sync::Arc, time::Duration};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{self, JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    api,
    cli::{Cli, Command, RunArgs},
    client::{self, Clients, ConnectError, Purpose, in_full},
    controllers::{
        self, Controller,
        mycustomresource::MyCustomResourceController,
        podset::{Parts, PodSetController, locks::Locks},
    },
    env::Env,
    leader::{self, Election, Leadership, Lost, Office, TimingError},
    listwatch::Scope,
    telemetry,
};

/// Exit code for a fatal error.
const FATAL: u8 = 1;
/// Exit code for wrong flags or an unreadable kubeconfig.
const USAGE: u8 = 2;

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
    let stop = CancellationToken::new();
    let manager = match Manager::start(arguments, &stop).await {
        Ok(manager) => manager,
        Err(error) => {
            error!("{}", in_full(&error));
            return ExitCode::from(USAGE);
        }
    };
    tokio::select! {
        code = manager.ended() => code,
        code = signals.obeyed(&stop) => code,
    }
}

/// Everything that runs.
struct Manager {
    election: JoinHandle<Result<(), Lost>>,
    controllers: Controllers,
    /// Cancelled when no controller writes any more.
    drained: CancellationToken,
}

impl Manager {
    async fn start(arguments: &RunArgs, stop: &CancellationToken) -> Result<Self, StartError> {
        let (env, timing) = (Env::system(), arguments.timing()?);
        let config = config(arguments).await?;
        let user_timeout = Duration::try_from(timing.user_timeout()).unwrap_or_default();
        let drained = CancellationToken::new();
        let (leadership, election) = if arguments.leader_elect {
            let office = Office::vacant(env.clone());
            let parts = leader::Parts {
                client: client::connect(&config, Purpose::WithoutLeadership { user_timeout })?,
                namespace: arguments
                    .leader_elect_resource_namespace
                    .clone()
                    .unwrap_or_else(|| config.default_namespace.clone()),
                name: arguments.leader_elect_resource_name.clone(),
                identity: identity(&instance(), &env),
                timing,
                env: env.clone(),
                locks: leader::locks::Locks::default(),
                turned: Arc::new(|| {}),
            };
            let leadership = office.leadership();
            (leadership, tokio::spawn(Election::new(parts, office).run(stop.clone(), drained.clone())))
        } else {
            let end = drained.clone();
            let without = async move {
                end.cancelled().await;
                Ok(())
            };
            (Leadership::always(env.clone()), tokio::spawn(without))
        };
        let clients = Clients::connect(&config, leadership.clone(), user_timeout)?;
        let controllers = controllers(arguments, &env, clients, leadership, stop);
        Ok(Manager { election, controllers, drained })
    }

    /// Waits until everything has ended. Whatever ends badly ends the process at once: half a manager must not go on.
    async fn ended(self) -> ExitCode {
        let Manager { mut election, controllers, drained } = self;
        let mut controllers = std::pin::pin!(controllers.ended());
        let first = tokio::select! {
            end = &mut election => Some(end),
            end = &mut controllers => {
                if let Err(code) = end {
                    return code;
                }
                None
            }
        };
        let end = match first {
            // A lease that is lost or a panic ends here; a candidate that was asked to end leaves the controllers to end.
            Some(end) => {
                let code = end_of_election(end);
                if code.is_ok()
                    && let Err(code) = controllers.await
                {
                    return code;
                }
                code
            }
            None => {
                drained.cancel();
                end_of_election(election.await)
            }
        };
        match end {
            Ok(()) => {
                info!("podset-operator ends");
                ExitCode::SUCCESS
            }
            Err(code) => code,
        }
    }
}

/// Says how the election ended, and with which code the process has to end if that was no good end.
fn end_of_election(end: Result<Result<(), Lost>, task::JoinError>) -> Result<(), ExitCode> {
    match end {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(lost)) => error!("{lost}; ending the process, what it had in hand is the next leader's"),
        Err(error) => error!(%error, "the leader election panicked: ending the process"),
    }
    Err(ExitCode::from(FATAL))
}

/// The controllers, ready to run. A further one is one line here.
fn controllers(
    arguments: &RunArgs,
    env: &Env,
    clients: Clients,
    leadership: Leadership,
    stop: &CancellationToken,
) -> Controllers {
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
    };
    let mut controllers = Controllers {
        running: JoinSet::new(),
        names: HashMap::new(),
        env: env.clone(),
        leadership,
        at_once: arguments.max_concurrent_reconciles,
        stop: stop.clone(),
    };
    controllers.start(PodSetController::new(parts));
    controllers.start(MyCustomResourceController::new(env.clone(), clients, scopes));
    controllers
}

/// The controllers that run.
struct Controllers {
    running: JoinSet<()>,
    names: HashMap<task::Id, &'static str>,
    env: Env,
    leadership: Leadership,
    at_once: u16,
    stop: CancellationToken,
}

impl Controllers {
    fn start<C: Controller>(&mut self, controller: C) {
        let Controllers { env, leadership, at_once, stop, .. } = self;
        let (name, at_once) = (controller.name(), usize::from(*at_once));
        let work = controllers::run(Arc::new(controller), env.clone(), leadership.clone(), at_once, stop.clone());
        self.names.insert(self.running.spawn(work).id(), name);
    }

    /// Waits until every controller has ended; one that panics ends them all.
    async fn ended(mut self) -> Result<(), ExitCode> {
        while let Some(end) = self.running.join_next_with_id().await {
            if let Err(error) = end {
                let controller = self.names.get(&error.id()).copied().unwrap_or("unknown");
                error!(controller, %error, "a controller panicked: ending the process");
                return Err(ExitCode::from(FATAL));
            }
        }
        Ok(())
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
    async fn obeyed(&mut self, stop: &CancellationToken) -> ExitCode {
        let (_, signal) = self.next().await;
        info!(signal, "ending: no new work is begun");
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

/// Who this process is for the Lease. A part of it is chance: a container that is started again has the same name, and must
/// not take its predecessor's lease for its own.
fn identity(instance: &str, env: &Env) -> String {
    /// The longest that the API server accepts, since it is also the field manager of the lease.
    const LONGEST: usize = 128;
    let token = env.token();
    let name = instance.chars().filter(char::is_ascii_graphic).take(LONGEST - 1 - token.len());
    name.chain(['_']).chain(token.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_short_enough_and_never_the_same_twice() {
        let env = Env::system();
        let long = identity(&"x".repeat(300), &env);
        assert_eq!(long.len(), 128);
        let (first, second) = (identity("web-1", &env), identity("web-1", &env));
        assert!(first.starts_with("web-1_") && first != second, "{first} {second}");
    }
}
