//! The health probes, in the format of the Kubernetes API server: `ok`, or one line per check.

use std::fmt::Write;

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    routing::get,
};

use crate::health::{Health, Report};

/// Answers `/healthz`, `/livez` and `/readyz`, with `?verbose`, and each check by its name.
pub fn router(health: Health) -> Router {
    let mut router = Router::new();
    let liveness: fn(&Health) -> Report = Health::liveness;
    for (endpoint, checks) in [("healthz", liveness), ("livez", liveness), ("readyz", Health::readiness)] {
        let all = get(move |State(health): State<Health>, RawQuery(query): RawQuery| async move {
            all(endpoint, &checks(&health), &query.unwrap_or_default())
        });
        let one = get(move |State(health): State<Health>, Path(name): Path<String>| async move {
            one(&checks(&health), &name)
        });
        router = router
            .route(&format!("/{endpoint}"), all.clone())
            .route(&format!("/{endpoint}/"), all)
            .route(&format!("/{endpoint}/{{name}}"), one);
    }
    let not_found = || async { (StatusCode::NOT_FOUND, "not found; the paths are /healthz, /livez and /readyz\n") };
    router.fallback(not_found).with_state(health)
}

fn all(endpoint: &str, report: &Report, query: &str) -> (StatusCode, String) {
    let is_verbose = query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"));
    let has_failed = report.values().any(Result::is_err);
    let mut lines = String::new();
    for (name, verdict) in report {
        let _ = match verdict {
            Ok(()) => writeln!(lines, "[+]{name} ok"),
            Err(sentence) => writeln!(lines, "[-]{name} failed: {sentence}"),
        };
    }
    match (has_failed, is_verbose) {
        (true, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
        (false, true) => (StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        (false, false) => (StatusCode::OK, "ok".to_owned()),
    }
}

fn one(report: &Report, name: &str) -> (StatusCode, String) {
    match report.get(name) {
        Some(Ok(())) => (StatusCode::OK, "ok".to_owned()),
        Some(Err(sentence)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {name}: {sentence}\n"))
        }
        None => {
            let names: Vec<&str> = report.keys().map(String::as_str).collect();
            (StatusCode::NOT_FOUND, format!("there is no check {name:?}; there are: {}\n", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use leadership::env::Env;

    async fn get(health: &Health, path: &str) -> (u16, String) {
        let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
        let answer = router(health.clone()).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn health() -> Health {
        let health = Health::new(Env::system());
        health.started();
        health.ready_when("podset-caches", || Err("the CRD is missing: install it".to_owned()));
        health.ready_when("other-caches", || Ok(()));
        health
    }

    #[tokio::test]
    async fn responses_match_those_of_kubernetes_components() {
        let health = health();
        let failing = "[+]other-caches ok\n[-]podset-caches failed: the CRD is missing: install it\n[+]process ok\n\
                       readyz check failed\n";
        let unknown = "there is no check \"pods\"; there are: other-caches, podset-caches, process\n";
        let reason = "internal server error: podset-caches: the CRD is missing: install it\n";
        for (path, status, expected) in [
            ("/readyz", 500, failing),
            ("/readyz/", 500, failing),
            ("/readyz?verbose", 500, failing),
            ("/readyz?verbose=1", 500, failing),
            ("/readyz/podset-caches", 500, reason),
            ("/readyz/other-caches", 200, "ok"),
            ("/readyz/pods", 404, unknown),
            ("/livez", 200, "ok"),
            ("/livez?verbose", 200, "[+]process ok\nlivez check passed\n"),
            ("/healthz?verbose", 200, "[+]process ok\nhealthz check passed\n"),
            ("/healthz/process", 200, "ok"),
            ("/livez/podset-caches", 404, "there is no check \"podset-caches\"; there are: process\n"),
            ("/", 404, "not found; the paths are /healthz, /livez and /readyz\n"),
        ] {
            assert_eq!(get(&health, path).await, (status, expected.to_owned()), "{path}");
        }
    }
}
