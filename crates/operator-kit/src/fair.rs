//! Fair shares of a limited number of places by namespace: no namespace can take all places and delay the others.
//!
//! A place is, for example, a worker of a controller, a write under way, or a byte of memory. The rules:
//! 1. Namespaces with waiting items take turns.
//! 2. A namespace that holds none may take any number of free places. Otherwise it may hold up to three times as many places as stay free.
//!    If each item takes one place, a single busy namespace gets three quarters of the places, and two get three sevenths each. So, if there
//!    are enough places, some stay free for the next namespace.
//! 3. Within a namespace, the items of [`Lane::First`] come first. For them, a namespace may exceed rule 2 while an eighth of the places
//!    stays free. Retries wait until the other items are served, but every fourth of the remaining turns is theirs.
//!
//! [`FairQueue`] decides and does no I/O; [`FairSemaphore`] lets tasks wait for a place, or take several if they are free.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;

use crate::lock;

/// How many places a namespace may hold for each free place. In a simulation, 500 sets of 4 pods in one namespace, with 100 ms per request,
/// take 4.3 s with the value 3, 6.3 s with 1, and 3.1 s without a limit.
pub const HELD_PER_FREE: usize = 3;

/// Rule 2: whether a namespace that holds `held` may take `more` and leave `stays_free`.
fn is_fair(held: usize, more: usize, stays_free: usize) -> bool {
    held == 0 || held + more <= HELD_PER_FREE * stays_free
}

/// How many ordinary items of a namespace are served before a waiting retry.
const AHEAD_OF_RETRY: usize = 3;

/// Where an item waits within its namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// Before all others of the namespace.
    First,
    /// In the order in which they came.
    Ordinary,
    /// After the others, but with every fourth turn that [`Self::First`] leaves.
    Retry,
}

/// Items that wait for a place.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// The number of places. Nothing is served while it is 0.
    pub places: usize,
    /// How many of them are held.
    held: usize,
    /// The namespaces that hold a place or wait for one.
    shares: HashMap<Arc<str>, Share<T>>,
    /// The namespaces with waiting items, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

/// The places and the waiting items of one namespace.
#[derive(Debug)]
struct Share<T> {
    held: usize,
    /// By [`Lane`].
    lanes: [VecDeque<T>; 3],
    /// How many ordinary items were served since the last retry, or since one began to wait.
    ahead: usize,
}

impl<T> Share<T> {
    fn new() -> Self {
        Share { held: 0, lanes: Default::default(), ahead: 0 }
    }

    fn waits(&self) -> bool {
        self.lanes.iter().any(|items| !items.is_empty())
    }

    fn pop(&mut self) -> Option<T> {
        let [first, ordinary, retries] = &mut self.lanes;
        if let Some(item) = first.pop_front() {
            return Some(item);
        }
        let retry_waits = !retries.is_empty();
        if ordinary.is_empty() || (retry_waits && self.ahead >= AHEAD_OF_RETRY) {
            self.ahead = 0;
            return retries.pop_front();
        }
        self.ahead += usize::from(retry_waits);
        ordinary.pop_front()
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue::new(0)
    }
}

impl<T> FairQueue<T> {
    /// An empty queue with so many places.
    pub fn new(places: usize) -> Self {
        FairQueue { places, held: 0, shares: HashMap::new(), turns: VecDeque::new() }
    }

    /// Adds an item of this namespace.
    pub fn push(&mut self, namespace: &Arc<str>, item: T, lane: Lane) {
        let share = self.shares.entry(namespace.clone()).or_insert_with(Share::new);
        if !share.waits() {
            self.turns.push_back(namespace.clone());
        }
        share.lanes[lane as usize].push_back(item);
    }

    /// Makes a waiting retry an ordinary item of its namespace.
    pub fn promote(&mut self, namespace: &Arc<str>, item: &T)
    where
        T: PartialEq,
    {
        let Some(share) = self.shares.get_mut(namespace) else { return };
        let [_, ordinary, retries] = &mut share.lanes;
        if let Some(index) = retries.iter().position(|retry| retry == item) {
            ordinary.extend(retries.remove(index));
        }
        if retries.is_empty() {
            share.ahead = 0;
        }
    }

    /// Takes the next item that may have a place, and its namespace, which holds that place until [`FairQueue::give_back`].
    pub fn pop(&mut self) -> Option<(Arc<str>, T)> {
        let stays_free = self.places.checked_sub(self.held + 1)?;
        // Items of the first lane take little time, so a namespace may take more places for them.
        let may_have = |share: &Share<T>| {
            is_fair(share.held, 1, stays_free)
                || (!share.lanes[Lane::First as usize].is_empty() && stays_free >= self.places.div_ceil(8))
        };
        let has_room = |namespace: &Arc<str>| self.shares.get(namespace).is_some_and(may_have);
        let turn = self.turns.iter().position(has_room)?;
        let namespace = self.turns.remove(turn)?;
        let share = self.shares.get_mut(&namespace)?;
        let item = share.pop()?;
        share.held += 1;
        self.held += 1;
        if share.waits() {
            self.turns.push_back(namespace.clone());
        }
        Some((namespace, item))
    }

    /// Gives so many places of this namespace back.
    pub fn give_back(&mut self, namespace: &Arc<str>, places: usize) {
        let Some(share) = self.shares.get_mut(namespace).filter(|share| share.held >= places) else { return };
        share.held -= places;
        self.held -= places;
        if share.held == 0 && !share.waits() {
            self.shares.remove(namespace);
        }
    }
}

/// A semaphore with fair shares for namespaces. Clones share the places.
#[derive(Clone, Debug)]
pub struct FairSemaphore(Arc<Mutex<FairQueue<oneshot::Sender<Permit>>>>);

/// Places of a namespace, held until this is dropped.
#[derive(Debug)]
pub struct Permit {
    semaphore: FairSemaphore,
    namespace: Arc<str>,
    places: usize,
}

impl FairSemaphore {
    /// A semaphore with so many places.
    pub fn new(places: usize) -> Self {
        FairSemaphore(Arc::new(Mutex::new(FairQueue::new(places))))
    }

    /// Waits for a permit for this namespace.
    pub async fn acquire(&self, namespace: &Arc<str>) -> Permit {
        let (sender, permit) = oneshot::channel();
        lock(&self.0).push(namespace, sender, Lane::Ordinary);
        self.hand_out();
        match permit.await {
            Ok(permit) => permit,
            // The sender waits in this semaphore, so it outlives the call.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes so many places for this namespace, if they are free and it may have them. A request for more than there are takes all of them.
    pub fn try_acquire(&self, namespace: &Arc<str>, places: usize) -> Option<Permit> {
        let mut queue = lock(&self.0);
        let places = places.min(queue.places);
        let stays_free = queue.places.checked_sub(queue.held + places)?;
        let share = queue.shares.entry(namespace.clone()).or_insert_with(Share::new);
        if !is_fair(share.held, places, stays_free) {
            return None;
        }
        share.held += places;
        queue.held += places;
        Some(Permit { semaphore: self.clone(), namespace: namespace.clone(), places })
    }

    /// Hands out permits while there are any for those that wait.
    fn hand_out(&self) {
        // A closure, so that the lock is not held in the loop.
        let next = || lock(&self.0).pop();
        while let Some((namespace, waiter)) = next() {
            if waiter.is_closed() {
                lock(&self.0).give_back(&namespace, 1);
                continue;
            }
            // If the waiter has gone since the check, `send` returns the permit, and its drop hands it out again.
            drop(waiter.send(Permit { semaphore: self.clone(), namespace, places: 1 }));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.semaphore.0).give_back(&self.namespace, self.places);
        self.semaphore.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::{assert_pending, assert_ready, task};

    /// A queue with so many places; `waiting` are namespaces, each with so many items.
    fn queue(places: usize, waiting: &[(&str, usize)]) -> FairQueue<usize> {
        let mut queue = FairQueue::new(places);
        for (namespace, items) in waiting {
            (0..*items).for_each(|item| queue.push(&Arc::from(*namespace), item, Lane::Ordinary));
        }
        queue
    }

    /// The namespaces that get a place, in this order, until no more places are given out.
    fn served(queue: &mut FairQueue<usize>) -> String {
        std::iter::from_fn(|| queue.pop()).map(|(namespace, _)| namespace.to_string()).collect()
    }

    #[test]
    fn a_namespace_leaves_a_place_for_every_three_that_it_holds() {
        for (places, waiting, expected) in [
            (0, &[("a", 9)][..], ""),
            (1, &[("a", 9)], "a"),
            (2, &[("a", 9)], "a"),
            (2, &[("a", 9), ("b", 9)], "ab"),
            (3, &[("a", 9)], "aa"),
            (4, &[("a", 9)], "aaa"),
            (8, &[("a", 9)], "aaaaaa"),
            (8, &[("a", 2)], "aa"),
            (7, &[("a", 9), ("b", 9)], "ababab"),
            (8, &[("a", 9), ("b", 9), ("c", 9)], "abcabca"),
            (8, &[("a", 9), ("b", 1), ("c", 9)], "abcacac"),
            (3, &[("a", 9), ("b", 9), ("c", 9), ("d", 9)], "abc"),
        ] {
            assert_eq!(served(&mut queue(places, waiting)), expected, "{places} places, {waiting:?}");
        }
    }

    #[test]
    fn a_new_namespace_finds_room_beside_a_busy_one() {
        let mut queue = queue(64, &[("busy", 2000)]);
        assert_eq!(served(&mut queue).len(), 48 * "busy".len());
        for newcomer in ["a", "b", "c", "d", "e", "f"] {
            queue.push(&newcomer.into(), 0, Lane::Ordinary);
            assert_eq!(served(&mut queue), newcomer);
        }
    }

    #[test]
    fn items_of_the_first_lane_leave_room_for_another_namespace() {
        for places in 2..70 {
            let mut queue = queue(places, &[]);
            (0..100).for_each(|item| queue.push(&"busy".into(), item, Lane::First));
            served(&mut queue);
            queue.push(&"other".into(), 0, Lane::Ordinary);
            assert_eq!(served(&mut queue), "other", "{places} places");
        }
    }

    #[test]
    fn a_freed_place_goes_to_the_namespace_whose_turn_it_is() {
        let mut queue = queue(3, &[("a", 2), ("b", 2), ("c", 2)]);
        assert_eq!(served(&mut queue), "abc");
        for namespace in ["b", "b", "a", "c", "d"] {
            queue.give_back(&namespace.into(), 1);
        }
        assert_eq!(served(&mut queue), "abc");
        for namespace in ["a", "b", "c"] {
            queue.give_back(&namespace.into(), 1);
        }
        assert!(queue.shares.is_empty() && queue.turns.is_empty() && queue.held == 0, "no entry is left: {queue:?}");
    }

    #[test]
    fn first_items_come_first_and_retries_do_not_starve() {
        let mut queue = queue(100, &[]);
        let namespace = "a".into();
        for item in [100, 101, 102] {
            queue.push(&namespace, item, Lane::Retry);
        }
        for item in 0..7 {
            queue.push(&namespace, item, Lane::Ordinary);
        }
        queue.push(&namespace, 200, Lane::First);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|(_, item)| item).collect();
        assert_eq!(order, [200, 0, 1, 2, 100, 3, 4, 5, 101, 6, 102]);
    }

    #[test]
    fn a_semaphore_serves_another_namespace_first() {
        let semaphore = FairSemaphore::new(4);
        let acquire = |namespace: &str| {
            let (semaphore, namespace) = (semaphore.clone(), Arc::from(namespace));
            task::spawn(async move { semaphore.acquire(&namespace).await })
        };
        let mut held: Vec<Permit> = (0..3).map(|_| assert_ready!(acquire("busy").poll())).collect();
        let mut waiting: Vec<_> = (0..3).map(|_| acquire("busy")).collect();
        for waiter in &mut waiting {
            assert_pending!(waiter.poll());
        }
        let other = assert_ready!(acquire("other").poll());
        drop(waiting.remove(0));
        held.pop();
        assert_pending!(waiting[0].poll(), "it would leave no permit free");
        drop(other);
        held.push(assert_ready!(waiting[0].poll()));
        assert_pending!(waiting[1].poll());
    }

    #[test]
    fn a_permit_of_a_dropped_waiter_is_passed_on() {
        let semaphore = FairSemaphore::new(1);
        let acquire = || task::spawn(async { semaphore.acquire(&"a".into()).await });
        let held = assert_ready!(acquire().poll());
        let (mut gone, mut goes, mut stays) = (acquire(), acquire(), acquire());
        for waiter in [&mut gone, &mut goes, &mut stays] {
            assert_pending!(waiter.poll());
        }
        drop(gone);
        drop(held);
        // The permit was given to this waiter, which never polled again.
        drop(goes);
        assert_ready!(stays.poll());
        assert!(lock(&semaphore.0).shares.is_empty());
    }

    #[test]
    fn a_request_for_more_places_than_there_are_takes_all() {
        let (semaphore, a) = (FairSemaphore::new(8), "a".into());
        let all = semaphore.try_acquire(&a, usize::MAX).unwrap();
        assert!(semaphore.try_acquire(&a, 1).is_none());
        drop(all);
        assert!(lock(&semaphore.0).shares.is_empty());
    }

    #[test]
    fn a_namespace_that_takes_several_places_leaves_room_for_others() {
        let (semaphore, [a, b]) = (FairSemaphore::new(8), ["a", "b"].map(Arc::from));
        let mut held: Vec<Permit> = std::iter::from_fn(|| semaphore.try_acquire(&a, 2)).collect();
        assert_eq!(held.len(), 3, "of 8 places");
        let last = semaphore.try_acquire(&b, 2).unwrap();
        held.pop();
        assert!(semaphore.try_acquire(&a, 2).is_none(), "it would leave nothing free again");
        drop(last);
        assert!(semaphore.try_acquire(&a, 2).is_some());
    }
}
