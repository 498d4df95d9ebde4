//! Watches through the proxy: the API server's stream is read at once, so that it never sees a slow client, and told to
//! the operator event by event as the fault in force has it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Answer, Fault, NOTHING_HEARD, State, answer, send, streamed};

/// Events kept of each resource, to be told again.
const KEPT: usize = 200;

/// What watches of a resource have told, whichever connection it was. Watches that select other objects have a history of their own: they
/// may be ahead, and no API server tells one what only the other has heard.
#[derive(Default)]
pub struct Histories(Mutex<HashMap<String, VecDeque<Bytes>>>);

impl Histories {
    fn keep(&self, kind: &str, line: &Bytes) {
        let mut histories = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let history = histories.entry(kind.to_owned()).or_default();
        history.push_back(line.clone());
        if history.len() > KEPT {
            history.pop_front();
        }
    }

    fn any(&self, kind: &str, choose: impl FnOnce(usize) -> usize) -> Option<Bytes> {
        let histories = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let history = histories.get(kind).filter(|history| !history.is_empty())?;
        history.get(choose(history.len())).cloned()
    }
}

/// Passes a watch on.
pub async fn pass(request: Request<Bytes>, state: &Arc<State>) -> io::Result<Answer> {
    let kind = kind(&request);
    let (parts, body) = send(request, &state.upstream).await?.into_parts();
    let (lines, read) = unbounded();
    let (told, tell) = unbounded();
    tokio::spawn(read_lines(body, lines));
    tokio::spawn(relay(kind, read, told, state.clone()));
    Ok(answer(parts.status, parts.headers, streamed(tell)))
}

/// What is watched: where, and which of it.
fn kind(request: &Request<Bytes>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let selectors: Vec<_> = query.split('&').filter(|parameter| parameter.contains("Selector=")).collect();
    format!("{} {selectors:?}", request.uri().path())
}

/// Reads whole lines with the time of their arrival until the stream ends or nobody wants them.
async fn read_lines(mut body: Body, lines: UnboundedSender<(Instant, Bytes)>) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = Bytes::from(rest.drain(..=end).collect::<Vec<_>>());
            if lines.unbounded_send((Instant::now(), line)).is_err() {
                return;
            }
        }
        if lines.is_closed() {
            return;
        }
    }
}

/// Tells the operator the lines, until the watch ends on either side or a fault ends it.
async fn relay(
    kind: String,
    mut lines: UnboundedReceiver<(Instant, Bytes)>,
    tell: UnboundedSender<Bytes>,
    state: Arc<State>,
) {
    let faults = &state.faults;
    let late = faults.up_to_ms(3_000);
    loop {
        let next = tokio::select! {
            next = lines.next() => next,
            () = ended(&state) => {
                if faults.chance(30) {
                    let _ = tell.unbounded_send(gone());
                }
                return;
            }
            () = faults.until(&[Fault::Away]) => return faults.struck(),
            () = faults.until(&NOTHING_HEARD) => {
                faults.struck();
                faults.until_none_of(&NOTHING_HEARD).await;
                return;
            }
        };
        let Some((arrived, line)) = next else { return };
        match faults.now() {
            Some(Fault::WatchesHeld) => {
                faults.struck();
                faults.until_none_of(&[Fault::WatchesHeld]).await;
            }
            Some(Fault::WatchesLate) => {
                faults.struck();
                sleep_until(arrived + late).await;
            }
            Some(Fault::WatchesReplayed) if faults.chance(40) => {
                if let Some(old) = state.histories.any(&kind, |kept| faults.below(kept)) {
                    faults.struck();
                    let _ = tell.unbounded_send(old);
                }
            }
            _ => {}
        }
        state.histories.keep(&kind, &line);
        if tell.unbounded_send(line).is_err() {
            return; // the operator hung up
        }
    }
}

/// Returns some moments after the fault began that ends watches.
async fn ended(state: &State) {
    state.faults.until(&[Fault::WatchesEnded]).await;
    sleep(Duration::from_millis(50) + state.faults.up_to_ms(1_500)).await;
    state.faults.struck();
}

fn gone() -> Bytes {
    let status = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version"
    }});
    Bytes::from(format!("{status}\n"))
}
