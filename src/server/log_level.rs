//! What is logged, changed while the process runs by whoever may `put` the path `/log-level`. It holds until the process
//! ends: what is logged from the start is a flag.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::put,
};
use tracing::info;

use super::{
    auth::{Access, Gate},
    metrics::refused,
};
use crate::{cli::Directives, telemetry::logs::Level};

/// What whoever changes it does.
pub const ACCESS: Access = Access { verb: "put", path: "/log-level" };

#[derive(Clone)]
struct Served {
    level: Level,
    gate: Arc<Gate>,
}

/// Takes `/log-level` from whom the gate lets through. There is no way to it without a gate.
pub fn router(level: Level, gate: Gate) -> Router {
    let served = Served { level, gate: Arc::new(gate) };
    Router::new().route(ACCESS.path, put(set)).with_state(served)
}

async fn set(State(served): State<Served>, headers: HeaderMap, body: String) -> Response {
    if let Err(refusal) = served.gate.admit(&headers).await {
        return refused(&refusal);
    }
    let directives = match Directives::read(body.trim()) {
        Ok(directives) => directives,
        Err(remedy) => return (StatusCode::BAD_REQUEST, format!("{remedy}\n")).into_response(),
    };
    info!(level = directives.0, "what is logged is changed");
    match served.level.set(&directives) {
        Ok(()) => format!("{}\n", directives.0).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
