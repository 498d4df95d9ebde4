//! The metrics, for whoever may see them.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::auth::{Access, Gate, Refusal};
use crate::telemetry::metrics::{Format, Metrics};

/// What whoever reads the metrics does.
pub const ACCESS: Access = Access { verb: "get", path: "/metrics" };

#[derive(Clone)]
struct Served {
    metrics: Metrics,
    gate: Option<Arc<Gate>>,
}

/// Answers `/metrics` to whom the gate lets through; without a gate, to everybody.
pub fn router(metrics: Metrics, gate: Option<Gate>) -> Router {
    let elsewhere = || async { (StatusCode::NOT_FOUND, "there is /metrics\n") };
    let served = Served { metrics, gate: gate.map(Arc::new) };
    Router::new().route(ACCESS.path, get(answer)).fallback(elsewhere).with_state(served)
}

async fn answer(State(served): State<Served>, headers: HeaderMap) -> Response {
    if let Some(gate) = &served.gate
        && let Err(refusal) = gate.admit(&headers).await
    {
        return refused(&refusal);
    }
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    match served.metrics.text(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}\n")).into_response()
        }
    }
}

/// What is answered to whom the gate does not let through.
pub fn refused(refusal: &Refusal) -> Response {
    let text = format!("{refusal}\n");
    match refusal {
        Refusal::NoToken | Refusal::Unknown => {
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
        }
        Refusal::Forbidden { .. } => (StatusCode::FORBIDDEN, text).into_response(),
        Refusal::Busy => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], text).into_response(),
        Refusal::NotAsked => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
        Refusal::NotAnswered => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
    }
}
