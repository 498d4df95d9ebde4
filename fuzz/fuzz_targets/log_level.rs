//! Sends any bytes as the log level. The server applies each level that EnvFilter accepts. Other bytes change nothing.
#![no_main]

use axum::body::Body;
use leadership::env::testing::virtual_env;
use libfuzzer_sys::fuzz_target;
use operator_kit::{
    server::log_level,
    telemetry::logs::{Directives, Level},
};
use podset_operator_fuzz::{client, run};
use serde_json::json;
use tower::ServiceExt;
use tracing_subscriber::{EnvFilter, Layer};

fuzz_target!(|body: &[u8]| {
    let (level, filter) = Level::new(&Directives("info".to_owned()));
    let mut answers = [
        json!({ "spec": {}, "status": { "authenticated": true, "user": { "username": "admin" } } }),
        json!({ "spec": {}, "status": { "allowed": true } }),
    ]
    .into_iter();
    let api_server = move |_: http::Request<_>| answers.next().map(|json| (201, vec![Ok(json.to_string().into())]));
    let status = run(async {
        let request = http::Request::put("/log-level").header("authorization", "Bearer token");
        let request = request.body(Body::from(body.to_vec())).expect("it is a request");
        let router = log_level::router(level.clone(), client(api_server), virtual_env());
        router.oneshot(request).await.expect("it always responds").status()
    });
    let hint = filter.max_level_hint();
    if status == 200 {
        let text = std::str::from_utf8(body).expect("it was accepted").trim();
        assert_eq!(level.current().0, text);
        let expected = EnvFilter::try_new(text).expect("it was accepted");
        assert_eq!(hint, expected.max_level_hint(), "another level than {text} applies");
    } else {
        assert!(matches!(status.as_u16(), 400 | 413), "{status}");
        assert_eq!((&*level.current().0, hint), ("info", EnvFilter::new("info").max_level_hint()));
    }
});
