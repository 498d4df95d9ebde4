//! Part of *report*: sends events in the background, a few at once, so that no pod or status waits for them.
//!
//! [`Recorder::record`] queues events, and starts tasks that send them. An event that is rejected or gets no answer is lost.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as EventResource;
use tokio::{task::JoinSet, time::timeout};
use tracing::{debug, warn};

use super::{
    events::{self, Event},
    observe::Set,
};
use leadership::env::Env;
use operator_kit::{
    ObjectKey,
    client::{Answer, Writer},
    fair::{FairQueue, FairSemaphore, Lane, Permit},
    lock,
    meta::Uid,
    requests, runner,
    telemetry::spans::SpanRef,
};

/// The most events that wait; further ones are lost. Namespaces share the places fairly; one alone gets 7,500.
const WAITING: usize = 10_000;

/// The most requests in flight: enough to keep up, and few compared with the other writes. Namespaces share them fairly; one alone gets 4.
const AT_ONCE: usize = 6;

/// How long the process continues to send waiting events at its end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends the events of this process.
pub struct Recorder {
    env: Env,
    sender: Arc<Sender>,
    /// Each event that waits or is in flight holds one of these places.
    places: FairSemaphore,
    /// The tasks that send events.
    tasks: Mutex<JoinSet<()>>,
}

struct Sender {
    writer: Writer,
    instance: String,
    /// The events that wait. Each event in flight holds one of its places.
    waiting: Mutex<FairQueue<QueuedEvent>>,
}

/// An event that waits to be sent.
struct QueuedEvent {
    event: Event,
    key: ObjectKey,
    uid: Uid,
    /// When it was recorded.
    wall: Timestamp,
    unique: i128,
    /// The span in which it was recorded.
    parent: Option<SpanRef>,
    _place: Permit,
}

impl Recorder {
    /// A recorder that sends through `writer`. Events name `instance` as the process.
    pub fn new(env: Env, writer: Writer, instance: String) -> Self {
        let sender = Arc::new(Sender { writer, instance, waiting: Mutex::new(FairQueue::new(AT_ONCE)) });
        Recorder { env, sender, places: FairSemaphore::new(WAITING), tasks: Mutex::default() }
    }

    /// Sends events of this set in the background.
    pub fn record(&self, set: &Set, events: Vec<Event>) {
        // Most reports have no event.
        if events.is_empty() {
            return;
        }
        let wall = self.env.clock.wall();
        let (mut waiting, mut tasks) = (lock(&self.sender.waiting), lock(&self.tasks));
        for (event, unique) in events.into_iter().zip(wall.as_nanosecond()..) {
            let Some(_place) = self.places.try_acquire(&set.key.namespace, 1) else {
                warn!(set = %set.key, reason = event.reason, "too many events are queued; dropping one");
                continue;
            };
            let (key, uid, parent) = (set.key.clone(), set.uid.clone(), SpanRef::current());
            let queued = QueuedEvent { event, key, uid, wall, unique, parent, _place };
            waiting.push(&set.key.namespace, queued, Lane::Ordinary);
        }
        while let Some(end) = tasks.try_join_next() {
            runner::pass_on_panic(end);
        }
        while let Some((_, first)) = waiting.pop() {
            tasks.spawn(self.sender.clone().run(first));
        }
    }

    /// Waits until all events are sent, but not longer than [`FLUSH_TIMEOUT`], because the next leader waits too.
    pub async fn flush(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        if timeout(FLUSH_TIMEOUT, runner::drain(&mut tasks)).await.is_ok() {
            return;
        }
        // Without places, no further event is sent.
        lock(&self.sender.waiting).places = 0;
        // Wait for events in flight: the Lease is not released while a write may still take effect.
        runner::drain(&mut tasks).await;
        warn!("the API server takes events too slowly; dropping those that were not sent before the shutdown");
    }
}

impl Sender {
    /// Sends an event, and then others that wait.
    async fn run(self: Arc<Self>, first: QueuedEvent) {
        let mut in_flight = FuturesUnordered::from_iter([self.send(first)]);
        while let Some(namespace) = in_flight.next().await {
            let mut waiting = lock(&self.waiting);
            waiting.give_back(&namespace, 1);
            // One place that is given back can allow two events, if its namespace held many.
            while let Some((_, queued)) = waiting.pop() {
                in_flight.push(self.send(queued));
            }
        }
    }

    /// Sends an event. Returns its namespace.
    async fn send(&self, queued: QueuedEvent) -> Arc<str> {
        let QueuedEvent { event, key, uid, wall, unique, parent, _place } = queued;
        let manifest = events::manifest(&event, (&key, &uid), wall, unique, &self.instance);
        let build = || {
            let mut request = requests::create::<EventResource>(&key.namespace, &manifest)?;
            if let Some(parent) = parent {
                request.extensions_mut().insert(parent);
            }
            Ok(request)
        };
        match self.writer.send(&key.namespace, build).await {
            Answer::Done(..) | Answer::NotLeading => {}
            answer => debug!(set = %key, reason = event.reason, error = answer.error(), "an event was not written"),
        }
        key.namespace
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response, Uri};
    use kube::client::Body;
    use tokio::sync::Semaphore;
    use tower::BoxError;

    use super::*;
    use crate::podset::{set_state::Burst, testing};
    use leadership::{Leadership, env::testing::virtual_env};

    /// An event about finished work.
    fn event() -> Event {
        let burst = Burst { wanted: 1, from: 0, created: 1, is_deleting: false, is_scaling: true };
        events::work_done(&burst, 1).unwrap()
    }

    /// A set in another namespace than [`testing::set`].
    fn set_elsewhere() -> Set {
        Set { key: ObjectKey::new("other", "web"), ..testing::set(1) }
    }

    fn new_recorder(env: Env, writer: Writer) -> Recorder {
        Recorder::new(env, writer, "operator-1".to_owned())
    }

    /// A recorder, and how many events it has sent.
    fn recorder() -> (Recorder, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, BoxError>(Response::new(Body::empty())) }
        });
        let env = virtual_env();
        let writer =
            Writer::new(kube::Client::new(service, "default"), &Uri::default(), Leadership::always(env.clone()));
        (new_recorder(env, writer), sent)
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_limit_are_dropped_and_the_rest_is_sent() {
        let ((recorder, sent), set) = (recorder(), testing::set(1));
        let of_one_namespace = WAITING * 3 / 4;
        recorder.record(&set, vec![event(); of_one_namespace - 1]);
        recorder.record(&set, vec![event(); 2]);
        recorder.record(&set_elsewhere(), vec![event()]);
        let many = of_one_namespace + 1;
        recorder.flush().await;
        assert_eq!(sent.load(Ordering::Relaxed), many);
        recorder.record(&set, vec![event()]);
        recorder.flush().await;
        assert_eq!(sent.load(Ordering::Relaxed), many + 1, "there is room again");
    }

    #[test]
    fn an_event_that_waits_takes_less_than_300_bytes_besides_its_texts() {
        assert!(size_of::<QueuedEvent>() < 300, "{}", size_of::<QueuedEvent>());
    }

    /// The API server never responds for the namespace `default`.
    #[tokio::test(start_paused = true)]
    async fn events_of_one_namespace_do_not_delay_those_of_another() {
        let (env, sent) = (virtual_env(), Arc::new(AtomicUsize::new(0)));
        let count = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let count = count.clone();
            async move {
                if request.uri().path().contains("/default/") {
                    std::future::pending::<()>().await;
                }
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(Response::new(Body::empty()))
            }
        });
        let client = kube::Client::new(service, "default");
        let writer = Writer::new(client, &Uri::default(), Leadership::always(env.clone()));
        let recorder = new_recorder(env, writer);
        recorder.record(&testing::set(1), vec![event(); 20]);
        recorder.record(&set_elsewhere(), vec![event(); 20]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(sent.load(Ordering::Relaxed), 20);
    }

    /// A namespace that holds no place gets the next free one, also if another event takes the place that is given back.
    #[tokio::test(start_paused = true)]
    async fn no_place_stays_free_while_an_event_may_take_it() {
        let (env, namespaces) = (virtual_env(), ["a", "b", "c"]);
        let gates = namespaces.map(|_| Arc::new((AtomicUsize::new(0), Semaphore::new(0))));
        let all = gates.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let namespace = request.uri().path().split('/').nth(5).unwrap();
            let gate = all[namespaces.iter().position(|other| *other == namespace).unwrap()].clone();
            async move {
                gate.0.fetch_add(1, Ordering::Relaxed);
                gate.1.acquire().await.unwrap().forget();
                Ok::<_, BoxError>(Response::new(Body::empty()))
            }
        });
        let client = kube::Client::new(service, "default");
        let writer = Writer::new(client, &Uri::default(), Leadership::always(env.clone()));
        let recorder = new_recorder(env, writer);
        for namespace in namespaces {
            let set = Set { key: ObjectKey::new(namespace, "web"), ..testing::set(1) };
            recorder.record(&set, vec![event(); 10]);
        }
        let settled = async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            gates.each_ref().map(|gate| gate.0.load(Ordering::Relaxed))
        };
        assert_eq!(settled().await, [4, 1, 1]);
        for (answered, expected) in [(0, [4, 1, 1]), (0, [5, 1, 1]), (2, [5, 2, 2])] {
            gates[answered].1.add_permits(1);
            assert_eq!(settled().await, expected);
        }
    }
}
