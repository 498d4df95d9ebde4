use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::http::{HeaderValue, Request, Response};
use futures::future::join_all;
use http_body_util::BodyExt;
use kube::{client::Body, core::Status};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};
use tower::BoxError;

use super::*;

const METRICS: Access = Access { verb: "get", path: "/metrics" };
const CACHED_TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server that reviews tokens. The token determines its response.
#[derive(Default)]
struct Reviewer {
    reviews: AtomicUsize,
    is_away: AtomicBool,
    is_silent: AtomicBool,
    knows_nobody: AtomicBool,
    last: Mutex<Value>,
}

impl Reviewer {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        self.reviews.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_away.load(Ordering::SeqCst) {
            return Err("connection refused".into());
        }
        let (head, body) = request.into_parts();
        let mut review: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        *self.last.lock().unwrap() = review["spec"].clone();
        review["status"] = match (head.uri.path(), review["spec"]["token"].as_str()) {
            (CACHED_TOKENS, Some("forbidden-to-ask")) => return Ok(rejected(403)),
            (CACHED_TOKENS, Some("overloaded")) => return Ok(rejected(500)),
            (CACHED_TOKENS, Some(name @ ("alice" | "bob"))) if !self.knows_nobody.load(Ordering::SeqCst) => {
                let user = json!({ "username": name, "uid": "1", "groups": ["g"], "extra": { "pod": ["p"] } });
                json!({ "authenticated": true, "user": user })
            }
            (CACHED_TOKENS, _) => json!({ "error": "invalid bearer token" }),
            (ACCESS, _) => json!({ "allowed": review["spec"]["user"] == "alice" }),
            (path, _) => panic!("{path}"),
        };
        Ok(Response::builder().status(201).body(Body::from(review.to_string().into_bytes()))?)
    }

    fn reviews(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }
}

fn rejected(code: u16) -> Response<Body> {
    let status = Status::failure("no", "").with_code(code);
    Response::builder().status(code).body(Body::from(serde_json::to_vec(&status).unwrap())).unwrap()
}

fn authorizer() -> (Arc<Reviewer>, Authorizer) {
    let reviewer = Arc::new(Reviewer::default());
    let answers = reviewer.clone();
    let service = tower::service_fn(move |request| {
        let answers = answers.clone();
        async move { answers.answer(request).await }
    });
    (reviewer, Authorizer::new(METRICS, Client::new(service, "default"), leadership::env::testing::virtual_env()))
}

fn bob_may_not() -> Rejection {
    Rejection::Forbidden { user: "bob".to_owned(), access: METRICS }
}

fn alice() -> Result<String, Rejection> {
    Ok("alice".to_owned())
}

fn with(authorization: &str) -> HeaderMap {
    [(header::AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())].into_iter().collect()
}

async fn admit(authorizer: &Authorizer, token: &str) -> Result<String, Rejection> {
    authorizer.admit(&with(&format!("Bearer {token}"))).await
}

#[tokio::test(start_paused = true)]
async fn a_user_that_may_get_metrics_is_let_through() {
    let (reviewer, authorizer) = authorizer();
    assert_eq!(authorizer.admit(&with("Bearer alice")).await, alice());
    let expected = json!({
        "user": "alice", "uid": "1", "groups": ["g"], "extra": { "pod": ["p"] },
        "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
    });
    assert_eq!(*reviewer.last.lock().unwrap(), expected, "all attributes of the user are passed on");
    assert_eq!(authorizer.admit(&with("bearer  alice")).await, alice(), "the scheme is case-insensitive");
    assert_eq!(authorizer.admit(&with("Bearer bob")).await, Err(bob_may_not()));
    assert_eq!(authorizer.admit(&with("Bearer junk")).await, Err(Rejection::Unknown));
}

#[tokio::test]
async fn a_request_without_a_token_is_not_reviewed() {
    let (reviewer, authorizer) = authorizer();
    for authorization in ["alice", "Basic alice", "Bearer", "Bearer ", "Bearer a b", ""] {
        assert_eq!(authorizer.admit(&with(authorization)).await, Err(Rejection::NoToken), "{authorization}");
    }
    assert_eq!(authorizer.admit(&HeaderMap::new()).await, Err(Rejection::NoToken));
    assert_eq!(reviewer.reviews(), 0);
}

#[tokio::test(start_paused = true)]
async fn reviews_are_cached_for_a_while() {
    let (reviewer, authorizer) = authorizer();
    for _ in 0..10 {
        admit(&authorizer, "alice").await.unwrap();
        admit(&authorizer, "junk").await.unwrap_err();
    }
    assert_eq!(reviewer.reviews(), 2 + 1);
    advance(Duration::from_secs(11)).await;
    admit(&authorizer, "alice").await.unwrap();
    admit(&authorizer, "junk").await.unwrap_err();
    assert_eq!(reviewer.reviews(), 2 + 2);
    advance(Duration::from_secs(48)).await;
    admit(&authorizer, "alice").await.unwrap();
    assert_eq!(reviewer.reviews(), 2 + 2, "59 seconds");
    advance(Duration::from_secs(2)).await;
    admit(&authorizer, "alice").await.unwrap();
    assert_eq!(reviewer.reviews(), 4 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_is_no_longer_known() {
    let (reviewer, authorizer) = authorizer();
    admit(&authorizer, "alice").await.unwrap();
    advance(Duration::from_secs(61)).await;
    reviewer.knows_nobody.store(true, Ordering::SeqCst);
    assert_eq!(admit(&authorizer, "alice").await, Err(Rejection::Unknown));
    for junk in 0..BURST {
        assert_eq!(admit(&authorizer, &format!("junk-{junk}")).await, Err(Rejection::Unknown));
    }
    advance(Duration::from_millis(10_001)).await;
    for junk in 0..BURST {
        assert_eq!(admit(&authorizer, &format!("more-{junk}")).await, Err(Rejection::Unknown));
    }
    assert_eq!(admit(&authorizer, "alice").await, Err(Rejection::Busy), "she waits like an unknown user");
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_review() {
    let (reviewer, authorizer) = authorizer();
    let all = join_all((0..30).map(|_| admit(&authorizer, "alice"))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(reviewer.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn invalid_tokens_neither_load_the_api_server_nor_block_known_ones() {
    let (reviewer, authorizer) = authorizer();
    admit(&authorizer, "alice").await.unwrap();
    advance(Duration::from_secs(61)).await;
    let mut busy = 0;
    for junk in 0..5000 {
        busy += usize::from(admit(&authorizer, &format!("junk-{junk}")).await == Err(Rejection::Busy));
    }
    assert_eq!((reviewer.reviews() - 2, busy), (20, 4980));
    assert!(authorizer.answers.len() <= super::CACHED_TOKENS, "{}", authorizer.answers.len());
    assert_eq!(admit(&authorizer, "alice").await, alice(), "she was admitted recently");
    assert_eq!(admit(&authorizer, "bob").await, Err(Rejection::Busy), "an unknown user must wait");
    advance(Duration::from_secs(1)).await;
    assert_eq!(admit(&authorizer, "bob").await, Err(bob_may_not()));
    advance(Duration::from_secs(3)).await;
    let mut reviews = reviewer.reviews();
    for junk in 0..1000 {
        let _ = admit(&authorizer, &format!("late-{junk}")).await;
    }
    reviews = reviewer.reviews() - reviews;
    assert_eq!(reviews, 7, "two per second, and bob took one");
}

#[tokio::test(start_paused = true)]
async fn a_known_token_stays_known_while_the_api_server_is_away() {
    let (reviewer, authorizer) = authorizer();
    admit(&authorizer, "alice").await.unwrap();
    advance(Duration::from_secs(61)).await;
    reviewer.is_away.store(true, Ordering::SeqCst);
    assert_eq!(admit(&authorizer, "alice").await, Err(Rejection::Unavailable));
    for junk in 0..5000 {
        let _ = admit(&authorizer, &format!("junk-{junk}")).await;
    }
    reviewer.is_away.store(false, Ordering::SeqCst);
    assert_eq!(admit(&authorizer, "alice").await, alice());
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_failed_review() {
    let (reviewer, authorizer) = authorizer();
    reviewer.is_silent.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let all = join_all((0..30).map(|_| admit(&authorizer, "alice"))).await;
    assert!(all.iter().all(|answer| *answer == Err(Rejection::Unavailable)), "{all:?}");
    assert_eq!((reviewer.reviews(), start.elapsed()), (1, TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_is_reported_and_not_cached() {
    let (reviewer, authorizer) = authorizer();
    reviewer.is_away.store(true, Ordering::SeqCst);
    assert_eq!(admit(&authorizer, "alice").await, Err(Rejection::Unavailable));
    reviewer.is_away.store(false, Ordering::SeqCst);
    assert_eq!(admit(&authorizer, "overloaded").await, Err(Rejection::Unavailable));
    assert_eq!(admit(&authorizer, "alice").await, alice());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_api_server_delays_requests_only_briefly() {
    let (reviewer, authorizer) = authorizer();
    reviewer.is_silent.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let names: Vec<String> = (0..100).map(|number| format!("user-{number}")).collect();
    let all = join_all(names.iter().map(|name| admit(&authorizer, name))).await;
    assert!(start.elapsed() <= TIMEOUT * 2 + Duration::from_millis(10), "{:?}", start.elapsed());
    let failed = |with: Rejection| all.iter().filter(|result| **result == Err(with.clone())).count();
    assert_eq!((failed(Rejection::Unavailable), failed(Rejection::Busy)), (20, 80));
    assert!(reviewer.reviews() <= 2, "one review at a time: {}", reviewer.reviews());
}

#[tokio::test]
async fn an_operator_that_may_not_review_names_the_missing_role() {
    let (_, authorizer) = authorizer();
    let rejection = admit(&authorizer, "forbidden-to-ask").await.unwrap_err();
    assert_eq!(rejection, Rejection::ReviewsForbidden);
    assert!(rejection.to_string().contains("system:auth-delegator"));
}
