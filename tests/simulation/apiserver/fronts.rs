//! Two API servers over one store: which client uses which, and what is wrong with them or with the store.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::{sync::oneshot, time::Instant};

use super::{
    ApiServer,
    carry::{Answer, execute},
    request::{ApiRequest, Verb},
};

/// One of the two API servers.
#[derive(Default)]
struct Front {
    /// How far its watch cache lags behind the store, and the deed that made it lag.
    lag: (Duration, &'static str),
    /// Until when it processes nothing, and the deed that stopped it.
    paused: Option<(Instant, &'static str)>,
}

/// A request that waits for the quorum of the store.
struct Pending {
    id: usize,
    request: Arc<ApiRequest>,
    answer: oneshot::Sender<Answer>,
}

/// The two API servers and the quorum of their store.
#[derive(Default)]
pub struct Fronts {
    fronts: [Front; 2],
    /// The clients that use the second one.
    on_second: BTreeSet<String>,
    /// Without a quorum: the deed, and the requests that wait, in the order of the store's log.
    pending: Option<(&'static str, Vec<Pending>)>,
}

impl Fronts {
    fn of(&self, client: &str) -> &Front {
        &self.fronts[usize::from(self.on_second.contains(client))]
    }

    /// How much later this client hears of changes, and the deed behind it.
    pub fn lag(&self, client: &str) -> (Duration, &'static str) {
        self.of(client).lag
    }

    /// Until when the API server of this client processes nothing, and the deed behind it.
    pub fn paused(&self, client: &str) -> Option<(Instant, &'static str)> {
        self.of(client).paused.filter(|(until, _)| *until > Instant::now())
    }

    /// Whether nothing can change: users, nodes and controllers have to wait.
    pub fn stand_still(&self) -> bool {
        self.pending.is_some()
    }

    /// Without a quorum, reads and writes wait for it: where the answer arrives, and the deed behind it. A watch is served from
    /// the cache.
    pub fn wait(&mut self, id: usize, request: &Arc<ApiRequest>) -> Option<(oneshot::Receiver<Answer>, &'static str)> {
        let (deed, pending) = self.pending.as_mut().filter(|_| request.verb != Verb::Watch)?;
        let (answer, receiver) = oneshot::channel();
        pending.push(Pending { id, request: Arc::clone(request), answer });
        Some((receiver, deed))
    }

    /// Ends lag and pauses.
    pub fn heal(&mut self) {
        self.fronts = <[Front; 2]>::default();
    }
}

impl ApiServer {
    /// Connects a client to the first or to the second API server. Its open watches stay.
    pub fn connect(&self, client: &str, to_second: bool) {
        self.with(|state| {
            let on_second = &mut state.fronts.on_second;
            if to_second {
                on_second.insert(client.to_owned())
            } else {
                on_second.remove(client)
            };
        });
    }

    /// Whether a client uses the second API server.
    pub fn is_on_second(&self, client: &str) -> bool {
        self.with(|state| state.fronts.on_second.contains(client))
    }

    /// Makes the watch cache of one API server lag.
    pub fn lag(&self, second: bool, by: Duration) {
        self.with(|state| state.fronts.fronts[usize::from(second)].lag = (by, state.met.place()));
    }

    /// Stops one API server. It begins the requests that it receives when the time is over; only then do their time-outs begin.
    pub fn pause(&self, second: bool, time: Duration) {
        self.with(|state| {
            let paused = (Instant::now() + time, state.met.place());
            state.fronts.fronts[usize::from(second)].paused = Some(paused);
        });
    }

    /// Takes the quorum from the store: requests wait, and watches are silent.
    pub fn lose_quorum(&self) {
        self.with(|state| state.fronts.pending = Some((state.met.place(), Vec::new())));
    }

    /// Gives the store its quorum again. Of the writes in its log, those before some point take effect, in their order, also
    /// those whose senders gave up; the others are lost. After them, the reads that still wait are answered.
    pub fn regain_quorum(&self) {
        let Some((_, pending)) = self.with(|state| state.fronts.pending.take()) else { return };
        let (writes, reads): (Vec<_>, Vec<_>) = pending.into_iter().partition(|waits| waits.request.verb.mutates());
        let kept = self.with(|state| state.random.random_range(0..=writes.len()));
        let mut lost = Vec::new();
        for (place, Pending { id, request, answer }) in writes.into_iter().enumerate() {
            match place < kept {
                true => drop(answer.send(execute(&self.shared, id, &request))),
                false => lost.push(answer),
            }
        }
        for Pending { id, request, answer } in reads.into_iter().filter(|waits| !waits.answer.is_closed()) {
            drop(answer.send(execute(&self.shared, id, &request)));
        }
        self.with(|state| state.jobs.wake().notify_one());
    }
}
