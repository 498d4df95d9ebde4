//! A replica that creates ten pods per second while it leads.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use leadership::{
    Candidate, Election, LeaderState, Leadership, Lost, Store, Timing,
    connect::{gate, pool},
    env::{Clock, Env, testing::virtual_env},
    fenced,
    promise::Rules,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::server::Server;

/// The settings of a replica.
#[derive(Clone)]
pub struct Model {
    pub rules: Rules,
    /// Lease duration, renew deadline and retry period in seconds.
    pub timing: [u64; 3],
    pub store: Store,
}

pub struct Replica {
    pub leadership: Leadership,
    ice: Ice,
    stop: CancellationToken,
    life: JoinHandle<Result<(), Lost>>,
}

impl Replica {
    pub fn start(server: &Server, name: &str, model: Model) -> Self {
        let ice = Ice::default();
        let env = virtual_env();
        let clock = FreezingClock { clock: env.clock.clone(), origin: (env.now(), Instant::now()), ice: ice.clone() };
        let [lease, deadline, period] = model.timing.map(Duration::from_secs);
        let candidate = Candidate {
            identity: format!("{name}_1"),
            timing: Timing::new(lease, deadline, period).unwrap(),
            store: model.store,
            env: Env { clock: Arc::new(clock), random: env.random },
            rules: model.rules,
            ..Candidate::new("default", "lease", name)
        };
        let leader_state = LeaderState::vacant(candidate.env.clone());
        let leadership = leader_state.leadership();
        let writes = writes(server, name, &ice, model.rules);
        let client = fenced(server.client(name), writes, leadership.clone());
        let election = Election::new(candidate, server.client(name), leader_state);
        let stop = CancellationToken::new();
        let work = work(client, leadership.clone(), stop.clone());
        Replica { leadership, ice, stop, life: tokio::spawn(election.run(work)) }
    }

    pub fn leads(&self) -> bool {
        self.leadership.term().is_some()
    }

    pub async fn leads_within(&self, limit: Duration) {
        let elected = tokio::time::timeout(limit, self.leadership.elected()).await;
        elected.unwrap_or_else(|_| panic!("it does not lead after {limit:?}"));
    }

    /// Freezes the process before the gate: its writes leave only when the time is over.
    pub fn freeze(&self, time: Duration) {
        *self.ice.0.lock().unwrap() = Some((Instant::now(), Instant::now() + time));
    }

    pub fn kill(self) {
        self.life.abort();
    }

    /// Shuts it down cleanly.
    pub async fn end(self) -> Result<(), Lost> {
        self.stop.cancel();
        self.life.await.unwrap()
    }

    pub async fn ended(self) -> Result<(), Lost> {
        self.life.await.unwrap()
    }
}

/// Writes until `stop`. Then drops the writes in flight.
async fn work(client: Client, leadership: Leadership, stop: CancellationToken) {
    let work = async {
        let mut writes = JoinSet::new();
        loop {
            let term = leadership.elected().await;
            while leadership.term().is_some_and(|now| now.number == term.number) {
                let (client, request) = (client.clone(), Request::post("/api/v1/namespaces/default/pods"));
                writes.spawn(async move { client.send(request.body(Body::from(b"{}".to_vec())).unwrap()).await });
                sleep(Duration::from_millis(100)).await;
                while writes.try_join_next().is_some() {}
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// The gated connections of a replica. The ice lies between its requests and the gate.
fn writes(server: &Server, name: &str, ice: &Ice, rules: Rules) -> Client {
    let (server, name, ice) = (server.clone(), name.to_owned(), ice.clone());
    let dial = tower::service_fn(move |_: Uri| {
        let stream =
            Line { stream: TokioIo::new(server.dial(&name)), connected: |_| Connected::new(), ice: None, thaw: None };
        std::future::ready(Ok::<_, io::Error>(stream))
    });
    let gated = gate(dial, rules.may_leave).map_response(move |stream| Line {
        stream,
        connected: Connection::connected,
        ice: Some(ice.clone()),
        thaw: None,
    });
    Client::new(pool(gated), "default")
}

/// The beginning and end of a freeze.
#[derive(Clone, Debug, Default)]
struct Ice(Arc<Mutex<Option<(Instant, Instant)>>>);

impl Ice {
    fn frozen(&self) -> Option<(Instant, Instant)> {
        self.0.lock().unwrap().filter(|(_, until)| Instant::now() < *until)
    }
}

/// A clock that stands still while its process is frozen.
#[derive(Debug)]
struct FreezingClock {
    clock: Arc<dyn Clock>,
    origin: (Timestamp, Instant),
    ice: Ice,
}

impl Clock for FreezingClock {
    fn now(&self) -> Timestamp {
        match self.ice.frozen() {
            Some((since, _)) => self.origin.0 + SignedDuration::try_from(since - self.origin.1).unwrap(),
            None => self.clock.now(),
        }
    }

    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
}

/// A stream whose writes a freeze may hold up.
struct Line<S> {
    stream: S,
    connected: fn(&S) -> Connected,
    ice: Option<Ice>,
    thaw: Option<Pin<Box<Sleep>>>,
}

impl<S> Connection for Line<S> {
    fn connected(&self) -> Connected {
        (self.connected)(&self.stream)
    }
}

impl<S: Read + Unpin> Read for Line<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: Write + Unpin> Write for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some((_, until)) = self.ice.as_ref().and_then(Ice::frozen) {
            ready!(self.thaw.get_or_insert_with(|| Box::pin(sleep_until(until))).as_mut().poll(cx));
            self.thaw = None;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
