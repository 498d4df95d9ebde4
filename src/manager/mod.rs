//! The life of the process: the order of its start and stop, and its exit code.
//!
//! Start: flags, logs, kubeconfig, clients, servers, caches, election, and as the leader the controllers' work. Stop: the process takes no
//! new work and is no longer ready, running reconciles end, the lease is released, the servers stop, the last traces are sent. If a task
//! panics or the lease is lost, all work ends at once: half a manager must not go on.

mod config;
mod elsewhere;
pub mod replica;
mod tasks;

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use futures::future::OptionFuture;
use jiff::SignedDuration;
use tokio::{
    runtime::{Builder, Handle},
    signal::unix::{SignalKind, signal},
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    api,
    cli::{Cli, Command, RunArgs},
    podset,
};
use leadership::{Candidate, LeaderState, Leadership, Store, env::Env};
use operator_kit::{
    client::{self, Clients},
    health::Health,
    runner::Context,
    server::Servers,
    telemetry::{self, logs::Level, metrics::Metrics, traces::Traces},
    text::in_full,
};
use replica::Parts;
use tasks::FATAL;
pub use tasks::{Failure, Tasks};

/// How long the main runtime may take to run a task that is ready before it counts as stuck.
const MAIN_RUNTIME: SignedDuration = SignedDuration::from_secs(20);

/// How long the servers may take to end: a little longer than the time that they give to open connections.
const SERVERS_END: Duration = Duration::from_secs(3);

/// Runs the command, and returns the exit code.
pub fn main(cli: Cli) -> ExitCode {
    let code = match cli.into_command() {
        Command::Crd => print_crds(),
        Command::Run(arguments) => run_on_threads(&arguments),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        // `eprintln!` panics if nothing can be written.
        let _ = writeln!(io::stderr(), "podset-operator: {error}");
        FATAL
    }))
}

fn print_crds() -> Result<u8, String> {
    let mut out = io::stdout().lock();
    match api::CRD_FILES.iter().try_for_each(|crd| write!(out, "---\n{crd}")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot print the CRDs: {error}")),
        // If the pipe is broken, the reader, for example `head`, has read enough.
        _ => Ok(0),
    }
}

/// One thread does all the work, which is too little for a second one to pay off. The servers and the connections for traces share another
/// thread, so that a flood of requests does not delay the work.
fn run_on_threads(arguments: &RunArgs) -> Result<u8, String> {
    let failed = |error: io::Error| format!("cannot start the runtime: {error}");
    let main = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let servers = Builder::new_multi_thread().worker_threads(1).thread_name("servers").enable_all().build();
    let servers = servers.map_err(failed)?;
    let code = main.block_on(run(arguments, servers.handle()));
    main.shutdown_background();
    servers.shutdown_background();
    code
}

async fn run(arguments: &RunArgs, servers_runtime: &Handle) -> Result<u8, String> {
    let env = Env::system();
    let (health, stop) = (Health::new(env.clone()), CancellationToken::new());
    // Before anything that takes time, so that no signal is missed.
    let signals = obey_signals(&health, &stop).map_err(|error| format!("cannot listen for signals: {error}"))?;
    let identity = leadership::identity(&config::instance(), &env);
    let version = env!("CARGO_PKG_VERSION");
    let (level, traces) = telemetry::start(&arguments.logging, api::MANAGER, version, &identity, servers_runtime)
        .map_err(|error| format!("cannot start logging: {error}"))?;
    let scopes = arguments.scopes();
    let named: Vec<&str> = scopes.iter().flatten().map(AsRef::as_ref).collect();
    let namespaces = if named.is_empty() { "all".to_owned() } else { named.join(",") };
    info!(version, namespaces, "starting podset-operator");
    let _runtime_check = health.watch_runtime(MAIN_RUNTIME);
    let manager = match Manager::start(arguments, servers_runtime, env, identity, level, &health, &stop).await {
        Ok(manager) => manager,
        Err(error) => {
            error!("{}", in_full(&error));
            return Ok(error.exit_code());
        }
    };
    tokio::select! {
        biased;
        code = manager.ended(&health, traces) => Ok(code),
        code = signals => Ok(code),
    }
}

/// Listens for the signals that end the process. At the first one, the future ends everything in order. At the second one, it returns the
/// exit code, with which the process ends at once.
fn obey_signals(health: &Health, stop: &CancellationToken) -> io::Result<impl Future<Output = u8>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => (15, "SIGTERM"),
                _ = interrupt.recv() => (2, "SIGINT"),
            }
        };
        let (_, signal) = next().await;
        info!(signal, "shutting down: no new work starts");
        health.ending();
        stop.cancel();
        let (number, signal) = next().await;
        warn!(signal, "second signal: exiting at once");
        128 + number
    })
}

/// The running replica and servers.
struct Manager {
    tasks: Tasks,
    servers: JoinHandle<()>,
    stop_servers: CancellationToken,
}

impl Manager {
    async fn start(
        arguments: &RunArgs,
        servers_runtime: &Handle,
        env: Env,
        identity: String,
        level: Level,
        health: &Health,
        stop: &CancellationToken,
    ) -> Result<Self, Failure> {
        let timing = arguments.timing().map_err(Failure::Config)?;
        let (config, is_outside) = config::config(arguments).await.map_err(Failure::Config)?;
        let metrics = Metrics::new(env.clone());
        let leader_state = arguments.leader_elect.then(|| LeaderState::vacant(env.clone()));
        let leadership = leader_state.as_ref().map_or_else(|| Leadership::always(env.clone()), LeaderState::leadership);
        let user_timeout = timing.user_timeout();
        let requests = metrics.requests();
        let without_leadership = || client::connect(&config, Some(user_timeout), &requests);
        let clients = Clients::connect(&config, leadership.clone(), user_timeout, &requests)?;
        let stop_servers = CancellationToken::new();
        let starting = {
            // The runtime on which a client is made drives its connections.
            let _runtime = servers_runtime.enter();
            let reviews = without_leadership()?;
            servers_runtime.spawn(Servers::start(
                arguments.serving.clone(),
                env.clone(),
                reviews,
                health.clone(),
                metrics.clone(),
                level,
                stop_servers.clone(),
            ))
        };
        let servers = servers_runtime.spawn(starting.await.map_err(servers_panicked)??.run());
        let candidacy = match leader_state {
            None => None,
            Some(leader_state) => {
                let namespace = arguments.leader_elect_resource_namespace.clone();
                let candidate = Candidate {
                    namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
                    name: arguments.leader_elect_resource_name.clone(),
                    identity: identity.clone(),
                    timing,
                    store: Store::KubeLeaderElection,
                    heartbeat: Arc::new(|| {}),
                    env: env.clone(),
                    rules: leadership::promise::Rules::default(),
                };
                Some((candidate, without_leadership()?, leader_state))
            }
        };
        let tasks = replica::start(Parts {
            arguments,
            instance: config::instance(),
            identity,
            context: Context {
                env,
                leadership,
                metrics,
                health: health.clone(),
                max_concurrent: arguments.max_concurrent_reconciles.into(),
                stop: stop.clone(),
            },
            clients,
            timing,
            candidacy,
            rules: podset::promise::Rules::default(),
            is_outside,
        });
        Ok(Manager { tasks, servers, stop_servers })
    }

    async fn ended(mut self, health: &Health, traces: Option<Traces>) -> u8 {
        let last_traces = OptionFuture::from(traces.map(telemetry::traces::end));
        let ended = tokio::select! {
            biased;
            ended = self.tasks.ended() => ended,
            Err(error) = &mut self.servers => Err(servers_panicked(error)),
        };
        if let Err(failure) = ended {
            health.ending();
            error!("{failure}; exiting");
            // Send the traces of the failure.
            last_traces.await;
            return failure.exit_code();
        }
        // Concurrently: they are independent, and both take time when nobody answers.
        self.stop_servers.cancel();
        let _ = futures::join!(timeout(SERVERS_END, self.servers), last_traces);
        info!("exiting");
        0
    }
}

fn servers_panicked(error: JoinError) -> Failure {
    Failure::Panicked { task: "servers", error: error.to_string() }
}
