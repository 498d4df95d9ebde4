//! Watches the Lease, so that a standby learns at once that it is free. Safety does not depend on the watch, because each write of the
//! Lease reads it first.

use std::time::Duration;

use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1;
use kube::{
    Resource,
    core::{
        Request, WatchEvent,
        params::{ListParams, WatchParams},
    },
};
use serde::Deserialize;

use super::{
    lease::{Lease, Metadata, version},
    log_once::{LogOnce, warn_once},
    operation::Setting,
    text::in_full,
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

/// A list of Leases.
#[derive(Deserialize)]
struct Leases {
    metadata: Metadata,
    items: Vec<Lease>,
}

/// A state of the Lease.
pub enum Seen {
    /// It exists.
    Present(Lease),
    /// It does not exist as of this version.
    Absent(u64),
}

/// Calls `seen` for each state of the Lease that the API server sends. It never ends.
pub async fn watch(setting: &Setting, seen: impl Fn(Seen, Timestamp)) {
    let env = &setting.env;
    let (mut logged, mut from, mut pause) = (LogOnce::default(), None, SHORTEST_PAUSE);
    loop {
        let began = env.now();
        let patience = Duration::from_secs(SERVED.into()) + GRACE;
        match tokio::time::timeout(patience, watch_once(setting, &mut from, &seen)).await {
            Ok(Ok(())) => {
                logged.forget();
            }
            // The connection may be dead: list again to see what the watch missed.
            Err(_) => from = None,
            Ok(Err(error)) => {
                from = None;
                let error = in_full(&error);
                warn_once!(logged.note(&error), error, "cannot watch the Lease; trying again");
            }
        }
        // A leader must soon see a change of the Lease, so the first pause after a steady watch is short.
        if env.now().duration_since(began) >= STEADY {
            pause = SHORTEST_PAUSE;
        }
        env.sleep_until(env.now() + env.jittered(pause, 0.2)).await;
        pause = (pause * 2).min(setting.timing.retry_period.max(SHORTEST_PAUSE));
    }
}

/// Watches the Lease from the version `from` until the API server ends the watch, and updates `from` with each event. If it is `None`,
/// lists the Lease first.
async fn watch_once(setting: &Setting, from: &mut Option<String>, seen: impl Fn(Seen, Timestamp)) -> kube::Result<()> {
    let Setting { client, namespace, name, env, .. } = setting;
    let request = Request::new(v1::Lease::url_path(&(), Some(namespace)));
    let field = format!("metadata.name={name}");
    if from.is_none() {
        let list = request.list(&ListParams::default().fields(&field)).map_err(kube::Error::BuildRequest)?;
        let Leases { metadata, mut items } = client.request(list).await?;
        seen(items.pop().map_or(Seen::Absent(version(&metadata.resource_version)), Seen::Present), env.now());
        *from = Some(metadata.resource_version);
    }
    let parameters = WatchParams::default().fields(&field).timeout(SERVED);
    let version = from.get_or_insert_default();
    let watch = request.watch(&parameters, version).map_err(kube::Error::BuildRequest)?;
    let mut events = std::pin::pin!(client.request_events::<Lease>(watch).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                version.clone_from(&lease.metadata.resource_version);
                seen(Seen::Present(lease), env.now());
            }
            WatchEvent::Deleted(lease) => {
                version.clone_from(&lease.metadata.resource_version);
                seen(Seen::Absent(lease.version()), env.now());
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}
