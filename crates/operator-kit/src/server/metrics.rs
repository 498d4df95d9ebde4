//! `/metrics`, for users with permission to `get` it.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};

use super::auth::{Access, Authorizer, admit};
use crate::telemetry::metrics::{Format, Metrics};

pub const ACCESS: Access = Access { verb: "get", path: "/metrics" };

/// Without an authorizer, anyone can read the metrics.
pub fn router(metrics: Metrics, authorizer: Option<Authorizer>) -> Router {
    // Only with an authorizer can the log level be changed (`super::log_level`).
    let paths =
        if authorizer.is_some() { "the paths are /metrics and /log-level" } else { "the only path is /metrics" };
    let not_found = move || async move { (StatusCode::NOT_FOUND, format!("not found; {paths}\n")) };
    let mut route = get(answer);
    if let Some(authorizer) = authorizer {
        route = route.route_layer(from_fn_with_state(authorizer.into(), admit));
    }
    Router::new().route(ACCESS.path, route).fallback(not_found).with_state(metrics)
}

async fn answer(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    match metrics.text(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}\n")).into_response()
        }
    }
}
