//! Watches with and without faults: what arrives, in which order, and how a watch ends. Unsupported selectors are rejected.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use kube::{ResourceExt, api::WatchEvent};

use super::*;

/// A watch on pods of `default`, as raw events.
pub struct Events {
    stream: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>> + Send>>,
}

impl Events {
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

async fn watched() -> (ApiServer, Events) {
    let server = server_without_nodes();
    let params = WatchParams::default().timeout(50);
    let events = Events::open(&server, &params, &version(&server).to_string()).await;
    (server, events)
}

#[tokio::test(start_paused = true)]
async fn held_events_come_in_order_when_released_and_can_be_repeated() {
    let (server, mut events) = watched().await;
    server.watches().of("test").on("pods").hold();
    server.create_pod("default", "a", json!({}));
    server.create_pod("default", "b", json!({}));
    assert_eq!(events.soon().await, "silence");
    // A watch that opens while events are held lags as well.
    let mut late = Events::open(&server, &WatchParams::default(), "0").await;
    assert_eq!(late.soon().await, "silence");
    server.watches().of("test").on("pods").release();
    let now = version(&server);
    assert_eq!(events.soon().await, format!("ADDED a {}", now - 1));
    assert_eq!(events.soon().await, format!("ADDED b {now}"));
    assert_eq!(late.soon().await, format!("ADDED a {}", now - 1));
    server.create_pod("default", "c", json!({}));
    assert_eq!(events.soon().await, format!("ADDED c {}", now + 1));
    server.watches().replay(2);
    assert_eq!(events.soon().await, format!("ADDED b {now}"));
    assert_eq!(events.soon().await, format!("ADDED c {}", now + 1));
}

#[tokio::test(start_paused = true)]
async fn delayed_events_come_later() {
    let (server, mut events) = watched().await;
    server.watches().on("pods").delay(seconds(10));
    server.create_pod("default", "a", json!({}));
    assert_eq!(events.next(seconds(9)).await, "silence");
    assert_eq!(events.next(seconds(2)).await, format!("ADDED a {}", version(&server)));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_watch_is_silent_for_ever() {
    let (server, mut events) = watched().await;
    server.watches().on("pods").stall();
    server.create_pod("default", "a", json!({}));
    server.watches().on("pods").release();
    server.create_pod("default", "b", json!({}));
    assert_eq!(events.next(seconds(86_400)).await, "silence", "the watch does not even time out");
    let mut fresh = Events::open(&server, &WatchParams::default(), "0").await;
    assert_eq!(fresh.soon().await, format!("ADDED a {}", version(&server) - 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_end_break_be_gone_or_be_dropped() {
    let (server, mut events) = watched().await;
    server.watches().end();
    assert_eq!(events.soon().await, "end");
    let (server, mut events) = watched().await;
    server.watches().cut();
    assert!(events.soon().await.starts_with("broken"));
    let (server, mut events) = watched().await;
    server.watches().gone();
    assert_eq!(events.soon().await, "ERROR 410 Expired");
    assert_eq!(events.soon().await, "end");
    let (server, events) = watched().await;
    assert_eq!(server.watches().of("test").on("pods").count(), 1);
    drop(events);
    server.wait_until(|s| s.watches().count() == 0, seconds(1)).await;
}

#[tokio::test(start_paused = true)]
async fn unsupported_selectors_are_rejected() {
    let server = ApiServer::new(1);
    for selector in ["app in (web)", "app", "!app", "app!=web", "app==web", "app=web,tier=x"] {
        assert_eq!(failure(pods(&server).list(&ListParams::default().labels(selector)).await).code, 400, "{selector}");
    }
}
