//! Watches: what arrives, in which order, and how a watch begins and ends.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use kube::{ResourceExt, api::WatchEvent};

use super::*;

/// A watch on pods of `default`, as raw events.
pub struct Events {
    stream: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>,
}

impl Events {
    /// Opens a watch at a resourceVersion.
    pub async fn open(server: &ApiServer, params: &WatchParams, version: &str) -> Self {
        let stream = pods(server).watch(params, version).await.expect("a watch").boxed();
        Self { stream }
    }

    /// The next event as text: `silence` if none arrives within `patience`, and `end` if the watch ends.
    pub async fn next(&mut self, patience: Duration) -> String {
        let name = |pod: &Pod| format!("{} {}", pod.name_any(), pod.resource_version().unwrap_or_default());
        match tokio::time::timeout(patience, self.stream.next()).await {
            Err(_) => "silence".to_owned(),
            Ok(None) => "end".to_owned(),
            Ok(Some(Err(error))) => format!("broken: {error}"),
            Ok(Some(Ok(event))) => match event {
                WatchEvent::Added(pod) => format!("ADDED {}", name(&pod)),
                WatchEvent::Modified(pod) => format!("MODIFIED {}", name(&pod)),
                WatchEvent::Deleted(pod) => format!("DELETED {}", name(&pod)),
                WatchEvent::Bookmark(mark) => format!("BOOKMARK {}", mark.metadata.resource_version),
                WatchEvent::Error(status) => format!("ERROR {} {}", status.code, status.reason),
            },
        }
    }

    /// The next event as text, within a second.
    pub async fn soon(&mut self) -> String {
        self.next(seconds(1)).await
    }
}

/// The current resourceVersion of the cluster.
pub fn version(server: &ApiServer) -> u64 {
    server.with(|state| state.resource_version)
}

/// A cluster without nodes: its pods do not change after they are created.
pub fn server_without_nodes() -> ApiServer {
    let server = ApiServer::new(1);
    server.set_pod_script(PodScript::unschedulable());
    server
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_at_its_resource_version() {
    let server = server_without_nodes();
    server.create_pod("default", "a", json!({}));
    let from = version(&server);
    server.create_pod("default", "b", json!({}));
    let mut since = Events::open(&server, &WatchParams::default(), &from.to_string()).await;
    assert_eq!(since.soon().await, format!("ADDED b {}", from + 1));
    let mut any = Events::open(&server, &WatchParams::default(), "0").await;
    assert_eq!(any.soon().await, format!("ADDED a {from}"), "existing pods come first");
    assert_eq!(any.soon().await, format!("ADDED b {}", from + 1));
    assert_eq!(any.soon().await, "silence");
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_a_bookmark_each_minute_and_ends_at_its_timeout() {
    let server = server_without_nodes();
    server.create_pod("default", "a", json!({}));
    let from = version(&server).to_string();
    let mut events = Events::open(&server, &WatchParams::default().timeout(100), &from).await;
    server.create_podset("default", "web", 1);
    assert_eq!(events.next(seconds(59)).await, "silence");
    let mark = format!("BOOKMARK {}", version(&server));
    assert_eq!(events.next(seconds(2)).await, mark, "the bookmark is newer than its last event");
    assert_eq!(events.next(seconds(60)).await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_closes_when_its_client_drops_it() {
    let server = server_without_nodes();
    let events = Events::open(&server, &WatchParams::default(), "1").await;
    assert_eq!(server.watches().of("test").on("pods").count(), 1);
    drop(events);
    let closed = |s: &ApiServer| s.watches().count() == 0;
    server.wait_until(closed, seconds(1)).await;
}
