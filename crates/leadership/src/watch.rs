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

use crate::{
    Candidate,
    failures::FailureLog,
    lease::{self, number},
    lock,
    operation::Operations,
};

/// How long the API server serves a watch, in seconds. A server or proxy that hangs is noticed after this time plus [`GRACE`]; TCP
/// keepalive notices a dead peer earlier. kube requires less than 295 s.
const SERVED: u32 = 145;

/// How much longer than [`SERVED`] a watch may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// The shortest pause between two watches. It doubles up to the retry period.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(100);

/// A watch that lasted this long resets the pause.
const STEADY: SignedDuration = SignedDuration::from_secs(1);

/// Adds each state of the Lease that the API server sends to the observation, and notifies the election of `news`. It never ends.
pub async fn watch_for_ever(operations: &Operations) {
    let Candidate { env, timing, .. } = &operations.candidate;
    let (mut failures, mut from, mut pause) = (FailureLog::default(), None, SHORTEST_PAUSE);
    loop {
        let began = env.now();
        let patience = Duration::from_secs(SERVED.into()) + GRACE;
        match tokio::time::timeout(patience, watch_once(operations, &mut from)).await {
            Ok(Ok(())) => {
                failures.recovered();
            }
            // The connection may be dead: list again to see what the watch missed.
            Err(_) => from = None,
            Ok(Err(error)) => {
                from = None;
                failures.log("cannot watch the Lease", &error);
            }
        }
        // A leader must soon see a change of the Lease, so the first pause after a steady watch is short.
        if env.now().duration_since(began) >= STEADY {
            pause = SHORTEST_PAUSE;
        }
        env.sleep_until(env.now() + env.jittered(pause, 0.2)).await;
        pause = (pause * 2).min(timing.retry_period.max(SHORTEST_PAUSE));
    }
}

/// Watches the Lease from the version `from` until the API server ends the watch, and updates `from` with each event. If it is `None`,
/// lists the Lease first.
async fn watch_once(operations: &Operations, from: &mut Option<String>) -> kube::Result<()> {
    let Operations { candidate: Candidate { namespace, name, env, .. }, client, observation, news } = operations;
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let field = format!("metadata.name={name}");
    if from.is_none() {
        let mut list = leases.list(&ListParams::default().fields(&field)).await?;
        match list.items.pop() {
            Some(lease) => lock(observation).watched(lease, env.now()),
            None => lock(observation).watched_absent(number(list.metadata.resource_version.as_deref()), env.now()),
        }
        news.notify_one();
        *from = list.metadata.resource_version;
    }
    let parameters = WatchParams::default().fields(&field).timeout(SERVED);
    let version = from.get_or_insert_default();
    let mut events = std::pin::pin!(leases.watch(&parameters, version).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                *version = lease.metadata.resource_version.clone().unwrap_or_default();
                lock(observation).watched(lease, env.now());
            }
            WatchEvent::Deleted(lease) => {
                *version = lease.metadata.resource_version.clone().unwrap_or_default();
                lock(observation).watched_absent(lease::version(&lease), env.now());
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
        news.notify_one();
    }
    Ok(())
}
