//! Watches through the proxy. The API server's stream is read at once, so that it never sees a slow client, and passed on event by event.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;

use super::{Answer, Fault, State, answer, send};

/// Events of each watch that are kept for replays.
const KEPT: usize = 200;

/// The events of each watch, by path and selector.
#[derive(Default)]
pub struct Histories(Mutex<HashMap<String, VecDeque<Bytes>>>);

impl Histories {
    fn keep(&self, kind: &str, event: &Bytes) {
        let mut histories = self.0.lock();
        let history = histories.entry(kind.to_owned()).or_default();
        history.push_back(event.clone());
        if history.len() > KEPT {
            history.pop_front();
        }
    }

    fn any(&self, kind: &str, choose: impl FnOnce(usize) -> usize) -> Option<Bytes> {
        let histories = self.0.lock();
        let history = histories.get(kind).filter(|history| !history.is_empty())?;
        history.get(choose(history.len())).cloned()
    }
}

/// Passes a watch on.
pub async fn pass(request: Request<Bytes>, state: &Arc<State>) -> io::Result<Answer> {
    let kind = kind(&request);
    let (parts, body) = send(request, &state.upstream).await?.into_parts();
    let (events, read) = unbounded();
    let (sender, sent) = unbounded();
    tokio::spawn(read_events(body, events));
    tokio::spawn(relay(kind, read, sender, state.clone()));
    Ok(answer(parts.status, parts.headers, StreamBody::new(sent.map(|event| Ok(Frame::data(event))))))
}

/// Path and selectors of a watch.
fn kind(request: &Request<Bytes>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let selectors: Vec<_> = query.split('&').filter(|parameter| parameter.contains("Selector=")).collect();
    format!("{} {selectors:?}", request.uri().path())
}

/// Reads whole events, each a line, until the stream ends or nobody receives them.
async fn read_events(mut body: Body, events: UnboundedSender<Bytes>) {
    let mut rest = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        rest.extend(frame.into_data());
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            if events.unbounded_send(rest.split_to(end + 1).freeze()).is_err() {
                return;
            }
        }
        if events.is_closed() {
            return;
        }
    }
}

/// Passes the events on until the watch ends on either side or a fault ends it.
async fn relay(kind: String, mut events: UnboundedReceiver<Bytes>, sender: UnboundedSender<Bytes>, state: Arc<State>) {
    let faults = &state.faults;
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = faults.until(|now| now == Some(Fault::Away)) => return faults.struck(),
            () = faults.until(|now| now.is_some_and(Fault::is_mute)) => {
                faults.struck();
                faults.until(|now| !now.is_some_and(Fault::is_mute)).await;
                return;
            }
        };
        let Some(event) = next else { return };
        match faults.now() {
            Some(Fault::WatchesHeld) => {
                faults.struck();
                faults.until(|now| now != Some(Fault::WatchesHeld)).await;
            }
            Some(Fault::WatchesReplayed) if faults.chance(40) => {
                if let Some(old) = state.histories.any(&kind, |kept| faults.below(kept)) {
                    faults.struck();
                    let _ = sender.unbounded_send(old);
                }
            }
            _ => {}
        }
        state.histories.keep(&kind, &event);
        if sender.unbounded_send(event).is_err() {
            return; // the operator hung up
        }
    }
}
