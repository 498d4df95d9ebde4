//! Faults of watches: events that lag or repeat, and watches that end, break or stall.

use super::{
    watches::{Events, server_without_nodes, version},
    *,
};

async fn watched() -> (ApiServer, Events) {
    let server = server_without_nodes();
    let params = WatchParams::default().timeout(50);
    let events = Events::open(&server, &params, &version(&server).to_string()).await;
    (server, events)
}

#[tokio::test(start_paused = true)]
async fn held_events_come_in_order_when_released() {
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
async fn events_can_be_repeated() {
    let (server, mut events) = watched().await;
    server.create_pod("default", "a", json!({}));
    server.create_pod("default", "b", json!({}));
    let now = version(&server);
    assert_eq!(events.soon().await, format!("ADDED a {}", now - 1));
    assert_eq!(events.soon().await, format!("ADDED b {now}"));
    server.watches().replay(2);
    assert_eq!(events.soon().await, format!("ADDED a {}", now - 1));
    assert_eq!(events.soon().await, format!("ADDED b {now}"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_end_break_or_be_gone() {
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
}
