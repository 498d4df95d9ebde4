//! Replicas of the operator that stand for election on the API server of the simulation. They run everything that the process
//! runs, with its flags, except for the machine's clock, randomness, sockets and signals.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, Uri};
use kube::client::Body;
use leadership::{
    self, Candidate, LeaderState, Leadership, Store,
    env::{Env, Random},
};
use operator_kit::{
    client::{Clients, Reader, Writer},
    health::Health,
    runner::Context,
    telemetry::metrics::{Format, Metrics},
};
use podset_operator::{
    cli::{Cli, Command, RunArgs},
    manager::{Failure, replica::Parts},
    podset,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    apiserver::{AnswerBody, ApiServer, Connection, Cut, Ice},
    line,
    operator::VirtualClock,
};

pub const LEASE: (&str, &str) = ("default", "podset-operator");

#[derive(Clone, Copy)]
pub struct Model {
    /// The durations: lease, renew deadline, retry period, in seconds.
    pub timing: (u64, u64, u64),
    pub rules: leadership::promise::Rules,
    pub podset: podset::promise::Rules,
    /// Whether a write ends with the term in which it began.
    pub is_bounded: bool,
    /// By how many seconds its wall clock is off.
    pub wall_offset: i64,
    pub seed: u64,
    pub flags: &'static [&'static str],
    pub is_outside: bool,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            timing: (15, 10, 2),
            rules: leadership::promise::Rules::default(),
            podset: podset::promise::Rules::default(),
            is_bounded: true,
            wall_offset: 0,
            seed: 0,
            flags: &["--default-image=example.com/default"],
            is_outside: false,
        }
    }
}

impl Model {
    pub fn flags(&self) -> RunArgs {
        let (lease, deadline, period) = self.timing;
        let timing = [
            "podset-operator".to_owned(),
            format!("--leader-elect-lease-duration={lease}s"),
            format!("--leader-elect-renew-deadline={deadline}s"),
            format!("--leader-elect-retry-period={period}s"),
        ];
        let flags = timing.into_iter().chain(self.flags.iter().map(|&flag| flag.to_owned()));
        match Cli::read(flags.collect::<Vec<_>>()).map(Cli::into_command) {
            Ok(Command::Run(arguments)) => *arguments,
            other => panic!("the flags of a test are right: {other:?}"),
        }
    }
}

pub struct Replica {
    pub name: String,
    pub model: Model,
    pub context: Context,
    ice: Ice,
    life: JoinHandle<Result<(), Failure>>,
}

impl Replica {
    pub fn start(server: &ApiServer, name: &str, model: Model) -> Self {
        let ice = Ice::default();
        server.with(|state| {
            state.observers.one_writer.stands(name);
            state.watches.ice.insert(name.to_owned(), ice.clone());
        });
        let env = Env {
            clock: Arc::new(VirtualClock::new(server, model.wall_offset, ice.clone())),
            random: Arc::new(Seeded(Mutex::new(StdRng::seed_from_u64(model.seed)))),
        };
        let leader_state = LeaderState::vacant(env.clone());
        let (context, clients) = wired(server, name, &model, &env, leader_state.leadership(), &ice);
        let arguments = model.flags();
        let candidate = Candidate {
            namespace: arguments.leader_elect_resource_namespace.clone().unwrap_or_else(|| LEASE.0.to_owned()),
            name: arguments.leader_elect_resource_name.clone(),
            identity: format!("{name}_{}", env.token()),
            timing: arguments.timing().expect("a test gives times that fit together"),
            store: store(name),
            heartbeat: Arc::new(|| {}),
            env,
            rules: model.rules,
        };
        let parts = Parts {
            arguments: &arguments,
            instance: name.to_owned(),
            identity: candidate.identity.clone(),
            context: context.clone(),
            clients,
            timing: candidate.timing,
            candidacy: Some((candidate, client(&server.connection(name), &ice), leader_state)),
            rules: model.podset,
            is_outside: model.is_outside,
        };
        let tasks = podset_operator::manager::replica::start(parts);
        let life = tokio::spawn(tasks.ended());
        Replica { name: name.to_owned(), model, context, ice, life }
    }

    /// The value of a series in its metrics, if it exports the series.
    pub fn shows(&self, series: &str) -> Option<f64> {
        let text = self.context.metrics.text(Format::OpenMetrics).expect("the metrics can be written");
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map(|value| value.parse().expect("a value is a number"))
    }

    pub fn leads(&self) -> bool {
        self.context.leadership.term().is_some()
    }

    pub fn has_ended(&self) -> bool {
        self.life.is_finished()
    }

    pub async fn end(self) -> Result<(), Failure> {
        self.context.stop.cancel();
        self.ended().await
    }

    pub async fn ended(self) -> Result<(), Failure> {
        self.life.await.expect("only a test aborts it")
    }

    pub fn kill(self) {
        self.life.abort();
    }

    /// Whether it is frozen, wholly or before the gate.
    pub fn is_frozen(&self) -> bool {
        self.ice.frozen().is_some()
    }

    /// Freezes it before the gate: its writes leave only when the time is over.
    ///
    /// A standby sends no writes. It still watches the Lease, so its clock must not stand still.
    pub fn freeze_writes(&self, time: Duration) {
        if self.leads() {
            self.ice.freeze(time, false);
        }
    }

    /// Freezes it wholly: it sends and receives nothing until the time is over.
    pub fn freeze(&self, time: Duration) {
        self.ice.freeze(time, true);
    }
}

/// What the controllers of an instance get, and its clients.
pub fn wired(
    server: &ApiServer,
    name: &str,
    model: &Model,
    env: &Env,
    leadership: Leadership,
    ice: &Ice,
) -> (Context, Clients) {
    let (connection, url) = (server.connection(name), Uri::default());
    let writes = if model.is_bounded { leadership.clone() } else { Leadership::always(env.clone()) };
    let writer = line::gated(&connection, ice, model.rules.may_leave);
    let read = Reader::new(client(&connection, ice), &url);
    let context = Context {
        env: env.clone(),
        leadership,
        metrics: Metrics::new(env.clone()),
        health: Health::new(env.clone()),
        max_concurrent: 64,
        stop: CancellationToken::new(),
    };
    (context, Clients { read, write: Writer::new(writer, &url, writes) })
}

/// The store of the Lease depends on the replica's name, so that both stores are used.
fn store(name: &str) -> Store {
    match name.bytes().last().is_some_and(|last| last % 2 == 0) {
        true => Store::KubeLeaderElection,
        false => Store::Api,
    }
}

/// A client for all requests except the writes of a leader. A request that was sent continues even if the replica is killed.
fn client(connection: &Connection, ice: &Ice) -> kube::Client {
    let (connection, ice) = (connection.clone(), ice.clone());
    let wire = tower::service_fn(move |request| {
        let carried = tokio::spawn(carry(connection.clone(), ice.clone(), request));
        async move { carried.await.unwrap_or(Err(Cut)) }
    });
    kube::Client::new(wire, LEASE.0)
}

async fn carry(to: Connection, ice: Ice, request: Request<Body>) -> Result<Response<AnswerBody>, Cut> {
    melted(&to, &ice).await;
    let answer = to.clone().send(request).await;
    melted(&to, &ice).await;
    answer
}

/// Waits until the replica is no longer frozen wholly.
async fn melted(connection: &Connection, ice: &Ice) {
    if ice.is_whole() {
        connection.note_held_up();
        ice.melted().await;
    }
}

#[derive(Debug)]
struct Seeded(Mutex<StdRng>);

impl Random for Seeded {
    fn unit(&self) -> f64 {
        self.0.lock().expect("no test panics here").random()
    }
}
