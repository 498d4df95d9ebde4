//! Follows the Lease by a watch, so that a standby learns at once that it is free.
//!
//! The promise does not need the watch: each write of the Lease reads it first.

use std::time::Duration;

use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1;
use kube::{
    Resource,
    core::{
        Request, WatchEvent,
        params::{ListParams, WatchParams},
    },
};
use serde::Deserialize;
use tracing::{debug, warn};

use super::{
    lease::{Lease, Metadata, version},
    log_once::LogOnce,
    operation::Setting,
    text::in_full,
};

/// How long the API server serves a watch, in seconds. A connection that died is noticed after this time and [`GRACE`].
const SERVED: u32 = 145;

/// How much longer a watch may take to end.
const GRACE: Duration = Duration::from_secs(5);

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
    let mut logged = LogOnce::default();
    loop {
        let watching = tokio::time::timeout(Duration::from_secs(SERVED.into()) + GRACE, watch_once(setting, &seen));
        match watching.await {
            Ok(Ok(())) | Err(_) => {
                logged.forget();
            }
            Ok(Err(error)) => {
                let error = in_full(&error);
                if logged.note(&error) {
                    warn!(error, "cannot watch the Lease; trying again");
                } else {
                    debug!(error, "cannot watch the Lease; trying again");
                }
            }
        }
        let env = &setting.env;
        env.sleep_until(env.now() + env.jittered(setting.timing.retry_period, 0.2)).await;
    }
}

/// Lists the Lease, then watches it until the API server ends the watch.
async fn watch_once(setting: &Setting, seen: impl Fn(Seen, Timestamp)) -> kube::Result<()> {
    let Setting { client, namespace, name, env, .. } = setting;
    let request = Request::new(v1::Lease::url_path(&(), Some(namespace)));
    let field = format!("metadata.name={name}");
    let list = request.list(&ListParams::default().fields(&field)).map_err(kube::Error::BuildRequest)?;
    let Leases { metadata, mut items } = client.request(list).await?;
    seen(items.pop().map_or(Seen::Absent(version(&metadata.resource_version)), Seen::Present), env.now());
    let parameters = WatchParams::default().fields(&field).timeout(SERVED);
    let watch = request.watch(&parameters, &metadata.resource_version).map_err(kube::Error::BuildRequest)?;
    let mut events = std::pin::pin!(client.request_events::<Lease>(watch).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => seen(Seen::Present(lease), env.now()),
            WatchEvent::Deleted(lease) => seen(Seen::Absent(lease.version()), env.now()),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}
