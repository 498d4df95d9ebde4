//! The task that sends a watch to its client: queued events when they are due, and bookmarks, until either side ends it.

use hyper::body::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::*;

/// How often a watch gets a bookmark.
const BOOKMARKS: Duration = Duration::from_secs(60);

pub async fn feed(server: ApiServer, mut opened: Opened, stream: mpsc::UnboundedSender<Result<Bytes, Cut>>) {
    let end = Instant::now() + opened.timeout;
    let mut bookmarks = interval(BOOKMARKS);
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    bookmarks.tick().await;
    let mut timed_out = false;
    loop {
        let delivery = tokio::select! {
            biased;
            () = stream.closed() => break,
            delivery = opened.deliveries.recv() => delivery,
            _ = bookmarks.tick() => {
                server.with(|state| state.send_bookmark(opened.id));
                continue;
            }
            () = sleep_until(end), if !timed_out => {
                // A half-open connection does not deliver the end of the stream.
                timed_out = true;
                if server.with(|state| state.is_stalled(opened.id)) { continue; }
                break;
            }
        };
        if let Some(Delivery::Event(at, _)) = &delivery {
            sleep_until(*at).await;
        }
        if opened.ice.is_whole() {
            server.with(|state| state.coverage.held_up(&opened.client));
            opened.ice.melted().await;
        }
        // Sending fails only if the client is already gone.
        match delivery {
            None | Some(Delivery::End) => break,
            Some(Delivery::Cut) => {
                let _ = stream.send(Err(Cut));
                break;
            }
            Some(Delivery::Event(_, event)) => {
                if !event.metadata_only && event.what != "BOOKMARK" {
                    server.with(|state| {
                        let (at, is_gone) = (state.clock.elapsed(), event.what == "DELETED");
                        state.observers.deletes.received(&opened.client, &event.object, is_gone, at);
                    });
                }
                let _ = stream.send(Ok(event.line().into()));
            }
        }
    }
    server.with(|state| state.watches.open.remove(&opened.id));
}
