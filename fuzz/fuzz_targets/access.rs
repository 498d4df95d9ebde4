//! Changes the log level while the API server gives any answer about the user, who must be authenticated and allowed.
#![no_main]

use axum::body::Body;
use leadership::env::testing::virtual_env;
use libfuzzer_sys::fuzz_target;
use operator_kit::{
    server::log_level,
    telemetry::logs::{Directives, Level},
};
use podset_operator_fuzz::{Edit, client, edited, run};
use serde_json::json;
use tower::ServiceExt;

/// The code of a response, and the edits of its body.
type Answer = (u16, Vec<Edit>);

fuzz_target!(|input: ([Answer; 2], Option<Vec<u8>>)| {
    let ([(first, who), (second, may)], header) = input;
    let is_plain = [&who, &may].iter().all(|edits| edits.is_empty()) && first >= 1000 && second >= 1000;
    let user = json!({ "username": "admin", "uid": "u", "groups": ["g"], "extra": { "scopes": ["s"] } });
    let who =
        edited(&json!({ "kind": "TokenReview", "spec": {}, "status": { "authenticated": true, "user": user } }), &who);
    let may = edited(
        &json!({ "kind": "SubjectAccessReview", "spec": {}, "status": { "allowed": true, "denied": false } }),
        &may,
    );
    // Most codes are 201.
    let code = |number: u16| if number < 1000 { 200 + number % 400 } else { 201 };
    let (first, second) = (code(first), code(second));
    // kube treats a redirection as a success.
    let is_authenticated = first < 400 && who["status"]["authenticated"] == true && who["status"]["user"].is_object();
    let is_allowed = second < 400 && may["status"]["allowed"] == true && may["status"]["denied"] != true;
    let mut answers = [(first, who), (second, may)].into_iter();
    let status = run(async {
        let client = client(move |_| answers.next().map(|(code, json)| (code, vec![Ok(json.to_string().into())])));
        let (level, _filter) = Level::new(&Directives("info".to_owned()));
        let request = http::Request::put("/log-level");
        let request = match &header {
            Some(header) => match http::HeaderValue::from_bytes(header) {
                Ok(value) => request.header("authorization", value),
                Err(_) => request,
            },
            None => request.header("authorization", "Bearer token"),
        };
        let request = request.body(Body::from("debug")).expect("it is a request");
        let answer =
            log_level::router(level.clone(), client, virtual_env()).oneshot(request).await.expect("it always responds");
        assert_eq!(level.current().0, if answer.status() == 200 { "debug" } else { "info" });
        answer.status()
    });
    assert!(status != 200 || is_authenticated && is_allowed, "a user without the right changed the level");
    assert!(status == 200 || header.is_some() || !is_plain, "{status}");
});
