//! Waits for what no watch of a scene tells.

use std::time::Duration;

use anyhow::{Result, bail};
use e2e::observe::view::Seen;
use tokio::time::{Instant, sleep};

/// Asks again and again until the answer is there; fails with the last one instead.
pub async fn until<T, F>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Seen<T>>>,
{
    let end = Instant::now() + limit;
    loop {
        let last = match ask().await? {
            Ok(found) => return Ok(found),
            Err(last) => last,
        };
        if Instant::now() > end {
            bail!("waited {} s for {what}; last seen: {last}", limit.as_secs());
        }
        sleep(Duration::from_millis(300)).await;
    }
}
