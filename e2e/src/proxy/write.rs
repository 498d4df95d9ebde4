//! Writes through the proxy: refused, done and not answered, or done late.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use hyper::body::Bytes;
use tokio::time::sleep;

use super::{Answer, Fault, State, pass as pass_on, refusal};

/// How many writes of a hundred a fault strikes.
const CHANCE: u32 = 50;

const REFUSALS: [(u16, &str); 4] =
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")];

/// Passes a write on.
pub async fn pass(request: Request<Bytes>, state: &Arc<State>) -> io::Result<Answer> {
    let faults = &state.faults;
    let create = request.method() == Method::POST && request.uri().path().ends_with("/pods");
    let fault = faults.now().filter(|fault| match fault {
        Fault::FirstCreatesLate => create && faults.is_first(pod_name(request.body())),
        Fault::WritesUnanswered => true,
        Fault::CreatesUnanswered => create,
        Fault::CreatesCut | Fault::CreatesLate => create && faults.chance(CHANCE),
        Fault::WritesRefused | Fault::WritesDoneButFailed | Fault::WritesDoneButRefused => faults.chance(CHANCE),
        _ => false,
    });
    if fault.is_some() {
        faults.struck();
    }
    match fault {
        Some(Fault::WritesRefused) => {
            let (code, reason) = faults.one_of(&REFUSALS);
            Ok(refusal(code, reason))
        }
        Some(Fault::WritesDoneButFailed) => done_but(request, state, &REFUSALS[2..]).await,
        Some(Fault::WritesDoneButRefused) => done_but(request, state, &REFUSALS[..2]).await,
        Some(Fault::CreatesCut) => {
            pass_on(request, &state.upstream).await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Some(fault @ (Fault::CreatesUnanswered | Fault::WritesUnanswered)) => {
            pass_on(request, &state.upstream).await?;
            faults.until_none_of(&[fault]).await;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Some(Fault::CreatesLate) => {
            let delay = Duration::from_secs(1) + faults.up_to_ms(19_000);
            late(request, delay, state).await
        }
        Some(Fault::FirstCreatesLate) => {
            let delay = Duration::from_secs(14) + faults.up_to_ms(6_000);
            late(request, delay, state).await
        }
        _ => pass_on(request, &state.upstream).await,
    }
}

fn pod_name(body: &Bytes) -> String {
    let pod: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

async fn done_but(request: Request<Bytes>, state: &State, refusals: &[(u16, &str)]) -> io::Result<Answer> {
    pass_on(request, &state.upstream).await?;
    let (code, reason) = state.faults.one_of(refusals);
    Ok(refusal(code, reason))
}

/// In a task of its own: the operator may hang up, and the request is on its way all the same.
async fn late(request: Request<Bytes>, delay: Duration, state: &State) -> io::Result<Answer> {
    let upstream = state.upstream.clone();
    let task = tokio::spawn(async move {
        sleep(delay).await;
        pass_on(request, &upstream).await
    });
    task.await.map_err(io::Error::other)?
}
