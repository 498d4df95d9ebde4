//! A budget for large answers: at most two callers hold a permit for a large body at a time. Small bodies never wait.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body of at most this many bytes takes nothing from the budget.
pub const SMALL: usize = 64 << 10;

/// The bytes that a large body reserves, because its size is not known in advance. Lists keep their pages below this size.
pub const LARGE: usize = 4 << 20;

/// The bytes of one budget.
pub const TOTAL: usize = 2 * LARGE;

/// A budget for bodies.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Budget(Arc::new(Semaphore::new(TOTAL / LARGE)))
    }
}

impl Budget {
    /// Reads a body to its end, or until it exceeds `limit` bytes. If more than `limit` bytes are returned, the body may be incomplete. A
    /// large body waits for the budget. Keep the permit as long as the bytes: it stands for their memory.
    ///
    /// # Errors
    ///
    /// If the body breaks off.
    pub async fn collect<B>(&self, mut body: B, limit: usize) -> Result<(Bytes, Option<OwnedSemaphorePermit>), B::Error>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (mut bytes, mut permit) = (BytesMut::new(), None);
        while bytes.len() <= limit
            && let Some(frame) = body.frame().await
        {
            let Ok(data) = frame?.into_data() else { continue };
            if permit.is_none() && bytes.len() + data.len() > SMALL {
                // The semaphore is never closed.
                permit = self.0.clone().acquire_owned().await.ok();
                // Reserve the permit's share at once: a growing buffer would be copied, with both copies in memory.
                bytes.reserve(LARGE);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), permit))
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
    async fn large_bodies_wait_for_each_other_and_small_ones_do_not_wait() {
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
}
