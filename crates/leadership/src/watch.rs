//! Watches the Lease, so that a standby learns at once that it is free. Safety does not depend on the watch, because each write of the
//! Lease reads it first.

use std::time::Duration;

use futures::TryStreamExt;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::sync::watch::Sender;

use crate::{
    Candidate,
    failures::Failures,
    lease::{self, number},
    lock,
    operation::Operations,
};

/// How long the API server serves a watch, in seconds. A dead connection is noticed after this time plus [`GRACE`]. No
/// shorter timeout cuts a silent watch, so this is well below the 295 s that kube allows.
const SERVED: u32 = 145;

/// How much longer than [`SERVED`] a watch may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// The shortest pause between two watches. It doubles up to the retry period.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(100);

/// A watch that lasted this long resets the pause.
const STEADY: SignedDuration = SignedDuration::from_secs(1);

/// Adds each state of the Lease that the API server sends to the observation, and sends `news` of it. It never ends.
pub async fn watch_for_ever(operations: &Operations, news: &Sender<()>) {
    let Candidate { env, timing, .. } = &operations.candidate;
    let (mut failures, mut pause) = (Failures::default(), SHORTEST_PAUSE);
    loop {
        let began = env.now();
        let patience = Duration::from_secs(SERVED.into()) + GRACE;
        match tokio::time::timeout(patience, watch_once(operations, news)).await {
            Ok(Ok(())) => {
                failures.recovered();
            }
            Ok(Err(error)) => failures.log("cannot watch the Lease", &error),
            // The connection may be dead. The next list shows what the watch missed.
            Err(_) => {}
        }
        // A leader must soon see a change of the Lease, so the first pause after a steady watch is short.
        if env.now().duration_since(began) >= STEADY {
            pause = SHORTEST_PAUSE;
        }
        env.sleep_until(env.now() + env.jittered(pause, 0.2)).await;
        pause = (pause * 2).min(timing.retry_period.max(SHORTEST_PAUSE));
    }
}

/// Lists the Lease, and watches it from then on until the API server ends the watch.
async fn watch_once(operations: &Operations, news: &Sender<()>) -> kube::Result<()> {
    let Operations { candidate: Candidate { namespace, name, env, .. }, observation, .. } = operations;
    let leases = Api::<Lease>::namespaced(operations.client.clone(), namespace);
    let field = format!("metadata.name={name}");
    let mut list = leases.list(&ListParams::default().fields(&field)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    match list.items.pop() {
        Some(lease) => lock(observation).watched(lease, env.now()),
        None => lock(observation).watched_absent(number(Some(&version)), env.now()),
    }
    news.send_replace(());
    let parameters = WatchParams::default().fields(&field).timeout(SERVED);
    let mut events = std::pin::pin!(leases.watch(&parameters, &version).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => lock(observation).watched(lease, env.now()),
            WatchEvent::Deleted(lease) => lock(observation).watched_absent(lease::version(&lease), env.now()),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
        news.send_replace(());
    }
    Ok(())
}
