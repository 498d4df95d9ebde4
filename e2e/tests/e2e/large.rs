//! The bounds of `spec.replicas` live in the CRD alone: with a higher one the same operator keeps 5,000 pods of one set.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::install::raise_bound;
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;

const LARGE: usize = 5_000;

pub async fn set_of_5000(t: Arc<Scene>) -> Result<()> {
    raise_bound(t.cluster(), LARGE).await?;
    let _operator = t.operator().await?;
    t.create_set("web", 1).await?;
    t.until("1 pod", |seen| seen.at_rest("web", 1)).await?;
    t.scale("web", LARGE as i64).await?;
    t.within(Duration::from_secs(360), "5,000 pods", |seen| at_rest(seen, LARGE)).await?;
    // A create that the API server fails to answer is sent again, with the same name: of names there are no more than pods.
    let requests = t.requests()?;
    let creates = requests.of("create pods");
    // Of one that was turned away unread there is no name.
    let names: BTreeSet<_> = creates.iter().map(|create| create.name()).filter(|name| !name.is_empty()).collect();
    let failed: Vec<_> = creates.iter().filter(|create| create.code() != 201).map(ToString::to_string).collect();
    ensure!(
        names.len() == LARGE && creates.len() - failed.len() <= LARGE,
        "{} creates of {} names for a set of {LARGE}; of them failed: {failed:#?}",
        creates.len(),
        names.len()
    );
    t.scale("web", 10).await?;
    t.within(Duration::from_secs(240), "10 of the 5,000 pods", |seen| at_rest(seen, 10)).await
}

/// The same as for every set, asked in full only when the numbers are right: of 5,000 pods that takes a while.
fn at_rest(seen: &View, pods: usize) -> Seen {
    let status = seen.set("web")?.state();
    let (available, ready) = (status.available_replicas, status.ready_replicas);
    if (available, ready) != (pods as i64, pods as i64) {
        return Err(format!("{available} pods are available and {ready} ready"));
    }
    seen.at_rest("web", pods).map(drop)
}
