//! Replicas that stand for election on the API server of the simulation: the real election, the real controllers, the real
//! write gate, put together as the manager does it.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, ready};
use http::{Request, Response};
use jiff::SignedDuration;
use kube::client::Body;
use podset_operator::{
    client::{Clients, Writer},
    controllers::{
        self, Surroundings,
        mycustomresource::MyCustomResourceController,
        podset::{Parts, PodSetController, locks::Locks},
    },
    health::Health,
    leader::{self, Election, Leadership, Lost, Office, Pass, Timing},
    manager::tasks::{Failure, Tasks},
    telemetry::metrics::Metrics,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    apiserver::{ApiServer, Connection, Cut},
    operator,
};

/// The namespace and the name of the Lease.
pub const LEASE: (&str, &str) = ("default", "podset-operator");

/// What a replica is made of.
#[derive(Clone, Copy)]
pub struct Model {
    /// The durations: lease, renew deadline, retry period, in seconds.
    pub timing: (i64, i64, i64),
    /// The rules of the election.
    pub locks: leader::locks::Locks,
    /// Whether leadership is asked where the bytes leave.
    pub is_gated: bool,
}

impl Default for Model {
    fn default() -> Self {
        Model { timing: (15, 10, 2), locks: leader::locks::Locks::default(), is_gated: true }
    }
}

/// A replica that runs.
pub struct Candidate {
    name: String,
    leadership: Leadership,
    stop: CancellationToken,
    wire: Wire,
    life: JoinHandle<Result<(), Lost>>,
}

impl Candidate {
    /// Starts a replica.
    pub fn start(server: &ApiServer, name: &str, model: Model) -> Self {
        server.stands_for_election(name);
        let env = operator::env(server);
        let office = Office::vacant(env.clone());
        let (leadership, stop) = (office.leadership(), CancellationToken::new());
        let wire = Wire { connection: server.connection(name), is_gated: model.is_gated, frozen_until: Arc::default() };
        let writer = Writer::new(kube::Client::new(wire.clone(), "default"), leadership.clone());
        let clients = Clients { read: server.client(name), write: writer };
        let metrics = Metrics::new(env.clone());
        let parts = Parts {
            env: env.clone(),
            clients: clients.clone(),
            locks: Locks::default(),
            scopes: vec![None],
            default_image: "example.com/default".to_owned(),
            instance: name.to_owned(),
            metrics: metrics.clone(),
        };
        let friends = MyCustomResourceController::new(env.clone(), clients, vec![None], &metrics);
        let health = Health::new(env.clone());
        let around = Surroundings {
            env: env.clone(),
            leadership: leadership.clone(),
            metrics,
            health,
            at_once: 64,
            stop: stop.clone(),
        };
        let mut tasks = Tasks::new();
        tasks.start("podset", controllers::run(Arc::new(PodSetController::new(parts)), around.clone()));
        tasks.start("mycustomresource", controllers::run(Arc::new(friends), around));
        let [lease, deadline, period] = <[i64; 3]>::from(model.timing).map(SignedDuration::from_secs);
        let parts = leader::Parts {
            client: server.client(name),
            namespace: LEASE.0.to_owned(),
            name: LEASE.1.to_owned(),
            identity: name.to_owned(),
            timing: Timing::new(lease, deadline, period).expect("a test gives times that hold together"),
            env,
            locks: model.locks,
            turned: Arc::new(|| {}),
        };
        tasks.start_election(Election::new(parts, office).run(ready(()), stop.clone(), tasks.drained()));
        let life = tokio::spawn(live(tasks));
        Candidate { name: name.to_owned(), leadership, stop, wire, life }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it leads, as it believes.
    pub fn leads(&self) -> bool {
        self.leadership.term().is_some()
    }

    /// Whether its process has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.life.is_finished()
    }

    /// Asks it to end, and waits until it has.
    pub async fn end(self) -> Result<(), Lost> {
        self.stop.cancel();
        self.life.await.expect("no part of a replica panics")
    }

    /// Waits until it has ended by itself.
    pub async fn ended(self) -> Result<(), Lost> {
        self.life.await.expect("no part of a replica panics")
    }

    /// Ends it as a process that is killed.
    pub fn kill(self) {
        self.life.abort();
    }

    /// Freezes it between the check and the socket: what it writes from now on leaves when the time is over.
    pub fn freeze_writes(&self, time: Duration) {
        *self.wire.frozen_until.lock().expect("no test panics here") = Some(Instant::now() + time);
    }
}

/// The life of a replica, as the manager lets it run.
async fn live(tasks: Tasks) -> Result<(), Lost> {
    match tasks.ended().await {
        Ok(()) => Ok(()),
        Err(Failure::Lost(lost)) => Err(lost),
        Err(failure) => panic!("{failure}"),
    }
}

/// The wire of the writing client: where bytes leave. What is on it goes on whatever becomes of the replica.
#[derive(Clone)]
struct Wire {
    connection: Connection,
    is_gated: bool,
    frozen_until: Arc<Mutex<Option<Instant>>>,
}

impl Wire {
    async fn carry(
        mut self,
        mut request: Request<Body>,
    ) -> Result<<Self as tower::Service<Request<Body>>>::Response, Cut> {
        let pass = request.extensions_mut().remove::<Pass>().expect("every write has asked for leadership");
        let frozen_until = *self.frozen_until.lock().expect("no test panics here");
        if let Some(until) = frozen_until {
            sleep_until(until).await;
        }
        if self.is_gated && !pass.is_valid() {
            return Err(Cut);
        }
        tower::Service::call(&mut self.connection, request).await
    }
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<crate::apiserver::AnswerBody>;
    type Error = Cut;
    type Future = BoxFuture<'static, Result<Self::Response, Cut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let carried = tokio::spawn(self.clone().carry(request));
        Box::pin(async move { carried.await.unwrap_or(Err(Cut)) })
    }
}
