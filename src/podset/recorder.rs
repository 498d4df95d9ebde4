//! Part of *report*: sends events in the background, a few at once, so that no pod or status waits for them.
//!
//! [`Recorder::record`] takes events, and [`Recorder::run`] sends one create for each. An event that is rejected or gets no answer is lost.

use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as EventResource;
use tokio::sync::{Mutex, mpsc};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::{debug, warn};

use super::{
    events::{self, Event},
    observe::Set,
};
use leadership::env::Env;
use operator_kit::{
    ObjectKey,
    client::{Answer, Writer},
    fair::{FairSemaphore, Permit},
    meta::Uid,
    requests,
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
    writer: Writer,
    instance: String,
    sender: mpsc::UnboundedSender<QueuedEvent>,
    receiver: Mutex<mpsc::UnboundedReceiver<QueuedEvent>>,
    /// Each event that waits or is in flight holds one of these places.
    places: FairSemaphore,
    /// Counts the events that wait or are in flight.
    unsent: TaskTracker,
    /// Each event in flight holds one of these places, too.
    slots: FairSemaphore,
    /// Stops the sending of further events.
    stop_sending: CancellationToken,
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
    _unsent: TaskTrackerToken,
}

impl Recorder {
    /// A recorder that sends through `writer`. Events name `instance` as the process.
    pub fn new(env: Env, writer: Writer, instance: String) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Recorder {
            receiver: Mutex::new(receiver),
            places: FairSemaphore::new(WAITING),
            unsent: TaskTracker::new(),
            slots: FairSemaphore::new(AT_ONCE),
            stop_sending: CancellationToken::new(),
            env,
            writer,
            instance,
            sender,
        }
    }

    /// Queues events of this set.
    pub fn record(&self, set: &Set, events: Vec<Event>) {
        let wall = self.env.clock.wall();
        for (event, unique) in events.into_iter().zip(wall.as_nanosecond()..) {
            let Some(place) = self.places.try_acquire(&set.key.namespace, 1) else {
                warn!(set = %set.key, reason = event.reason, "too many events are queued; dropping one");
                continue;
            };
            let (key, uid, parent) = (set.key.clone(), set.uid.clone(), SpanRef::current());
            let _unsent = self.unsent.token();
            let queued = QueuedEvent { event, key, uid, wall, unique, parent, _place: place, _unsent };
            // This cannot fail: the receiver lives in this recorder.
            let _ = self.sender.send(queued);
        }
    }

    /// Sends events until it is stopped.
    pub async fn run(&self) {
        let mut receiver = self.receiver.lock().await;
        let events = stream::poll_fn(|context| receiver.poll_recv(context)).take_until(self.stop_sending.cancelled());
        events.for_each_concurrent(None, |queued| self.send(queued)).await;
    }

    /// Waits until all events are sent, but not longer than [`FLUSH_TIMEOUT`], because the next leader waits too.
    pub async fn flush(&self) {
        self.unsent.close();
        if tokio::time::timeout(FLUSH_TIMEOUT, self.unsent.wait()).await.is_ok() {
            return;
        }
        self.stop_sending.cancel();
        // Wait for events in flight: the Lease is not released while a write may still take effect.
        let _ended = self.receiver.lock().await;
        warn!("the API server takes events too slowly; dropping those that were not sent before the shutdown");
    }

    async fn send(&self, queued: QueuedEvent) {
        let _slot = self.slots.acquire(&queued.key.namespace).await;
        if !self.stop_sending.is_cancelled() {
            // On the heap, so that a waiting event holds no room for its request.
            Box::pin(self.send_now(queued)).await;
        }
    }

    async fn send_now(&self, queued: QueuedEvent) {
        let QueuedEvent { event, key, uid, wall, unique, parent, _place, _unsent } = queued;
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
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response, Uri};
    use kube::client::Body;
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
    fn recorder() -> (Arc<Recorder>, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, BoxError>(Response::new(Body::empty())) }
        });
        let env = virtual_env();
        let writer =
            Writer::new(kube::Client::new(service, "default"), &Uri::default(), Leadership::always(env.clone()));
        (Arc::new(new_recorder(env, writer)), sent)
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_limit_are_dropped_and_the_rest_is_sent() {
        let ((recorder, sent), set) = (recorder(), testing::set(1));
        let of_one_namespace = WAITING * 3 / 4;
        recorder.record(&set, vec![event(); of_one_namespace - 1]);
        recorder.record(&set, vec![event(); 2]);
        recorder.record(&set_elsewhere(), vec![event()]);
        let many = of_one_namespace + 1;
        let running = recorder.clone();
        let running = tokio::spawn(async move { running.run().await });
        recorder.flush().await;
        assert_eq!(sent.load(Ordering::Relaxed), many);
        recorder.record(&set, vec![event()]);
        recorder.flush().await;
        assert_eq!(sent.load(Ordering::Relaxed), many + 1, "there is room again");
        running.abort();
    }

    #[tokio::test]
    async fn a_queued_event_takes_less_than_a_kilobyte() {
        let ((recorder, _), set) = (recorder(), testing::set(1));
        recorder.record(&set, vec![event()]);
        let queued = recorder.receiver.try_lock().unwrap().try_recv().unwrap();
        let bytes = size_of_val(&recorder.send(queued));
        assert!(bytes < 1_000, "{bytes}");
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
        let _ = tokio::time::timeout(Duration::from_secs(1), recorder.run()).await;
        assert_eq!(sent.load(Ordering::Relaxed), 20);
    }
}
