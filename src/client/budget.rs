//! Budgets for bytes: however many requests carry a large body, or need a large template, only a few are in memory at a time.
//!
//! Small bodies need no room, so they never wait for large ones.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fair::is_fair;

/// How many bytes one budget has.
const TOTAL: u32 = 8 << 20;

/// A body of up to so many bytes needs no room.
const SMALL: usize = 64 << 10;

/// The room that a large body takes, in bytes: its size is not known yet. A page of a list with more than one object may weigh no more.
pub const LARGE: usize = 4 << 20;

/// A budget for bodies.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Budget(Arc::new(Semaphore::new(usize::try_from(TOTAL).unwrap_or(Semaphore::MAX_PERMITS))))
    }
}

impl Budget {
    /// Reads a body to its end, or until more than `most` bytes have come. A large body waits for room before it is read on.
    /// The room is to be kept until the bytes are dropped.
    ///
    /// # Errors
    ///
    /// When the body breaks off.
    pub async fn collect<B>(&self, mut body: B, most: usize) -> Result<(Bytes, Option<OwnedSemaphorePermit>), B::Error>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (mut bytes, mut room) = (BytesMut::new(), None);
        while bytes.len() <= most
            && let Some(frame) = body.frame().await
        {
            let Ok(data) = frame?.into_data() else { continue };
            if room.is_none() && bytes.len() + data.len() > SMALL {
                // Never an error: the semaphore is never closed.
                room = self.0.clone().acquire_many_owned(u32::try_from(LARGE).unwrap_or(TOTAL)).await.ok();
                // A buffer that grows would be copied, with both copies in memory.
                bytes.reserve(LARGE);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), room))
    }
}

/// A budget that namespaces share fairly ([`is_fair`]). Clones share the same bytes.
#[derive(Clone, Debug, Default)]
pub struct FairBudget(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Room in a [`FairBudget`], until it is dropped.
#[derive(Debug)]
pub struct Room {
    budget: FairBudget,
    namespace: Arc<str>,
    bytes: usize,
}

impl FairBudget {
    /// Takes room for so many bytes, if they are free and this namespace may have them. What is larger than the whole budget takes all
    /// of it.
    pub fn try_take(&self, namespace: &Arc<str>, bytes: usize) -> Option<Room> {
        let (mut held, all) = (self.lock(), TOTAL as usize);
        let bytes = bytes.min(all);
        let stays_free = all.checked_sub(held.values().sum::<usize>() + bytes)?;
        let own = held.get(namespace).copied().unwrap_or_default();
        if !is_fair(own, bytes, stays_free) {
            return None;
        }
        held.insert(namespace.clone(), own + bytes);
        Some(Room { budget: self.clone(), namespace: namespace.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut held = self.budget.lock();
        let own = held.get(&self.namespace).map_or(0, |own| own.saturating_sub(self.bytes));
        if own > 0 {
            held.insert(self.namespace.clone(), own);
        } else {
            held.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A body of so many pieces of 1 KiB.
    fn body(pieces: usize) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = || Ok(Frame::data(Bytes::from_static(&[0; 1024])));
        StreamBody::new(stream::iter(std::iter::repeat_with(piece).take(pieces)))
    }

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_none() {
        let budget = Budget::default();
        let (first, room) = budget.collect(body(100), usize::MAX).await.unwrap();
        let second = budget.collect(body(100), usize::MAX).await.unwrap();
        assert_eq!((first.len(), room.is_some()), (100 << 10, true));
        let mut third = Box::pin(budget.collect(body(100), usize::MAX));
        assert!(third.as_mut().now_or_never().is_none(), "two are in memory");
        assert_eq!(budget.collect(body(64), usize::MAX).await.unwrap().0.len(), SMALL);
        drop(second);
        assert_eq!(third.await.unwrap().0, first);
    }

    #[tokio::test]
    async fn a_body_is_read_until_it_is_too_large() {
        let budget = Budget::default();
        for (pieces, read) in [(9, 9), (10, 10), (11, 11), (100, 11)] {
            assert_eq!(budget.collect(body(pieces), 10 << 10).await.unwrap().0.len(), read << 10, "{pieces}");
        }
    }

    #[test]
    fn what_is_larger_than_the_budget_takes_all_of_it() {
        let (budget, a) = (FairBudget::default(), "a".into());
        let all = budget.try_take(&a, usize::MAX).unwrap();
        assert!(budget.try_take(&a, 1).is_none());
        drop(all);
        assert!(budget.lock().is_empty());
    }

    #[test]
    fn a_namespace_leaves_room_for_others() {
        let (budget, [a, b]) = (FairBudget::default(), ["a", "b"].map(Arc::from));
        let mut held: Vec<Room> = std::iter::from_fn(|| budget.try_take(&a, 2 << 20)).collect();
        assert_eq!(held.len(), 3, "of 8 MiB");
        let last = budget.try_take(&b, 2 << 20).unwrap();
        held.pop();
        assert!(budget.try_take(&a, 2 << 20).is_none(), "it would leave nothing free again");
        drop(last);
        assert!(budget.try_take(&a, 2 << 20).is_some());
    }
}
