//! `/log-level`: shows and changes the log level at run time. Both need permission to `put` this path. A change lasts until the process
//! ends; `--log-level` sets the initial level.

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    middleware::from_fn_with_state,
    routing::put,
};
use kube::Client;
use tracing::info;

use super::auth::{Access, Authorizer, User, admit};
use crate::telemetry::logs::{AUDIT, Directives, Level};
use leadership::env::Env;

const ACCESS: Access = Access { verb: "put", path: "/log-level" };

/// The most bytes of the directives: more than enough, and little memory for each connection.
const LONGEST: usize = 4 * 1024;

/// Serves `/log-level`. `reviews` asks the API server whether a caller may `put` this path.
pub fn router(level: Level, reviews: Client, env: Env) -> Router {
    let authorizer = Authorizer::new(ACCESS, reviews, env);
    let route = put(set).get(show).layer(DefaultBodyLimit::max(LONGEST));
    Router::new().route(ACCESS.path, route.route_layer(from_fn_with_state(authorizer.into(), admit))).with_state(level)
}

async fn show(State(level): State<Level>) -> String {
    format!("{}\n", level.current().0)
}

async fn set(
    State(level): State<Level>,
    Extension(User(user)): Extension<User>,
    body: String,
) -> Result<String, (StatusCode, String)> {
    let directives =
        Directives::read(body.trim()).map_err(|remedy| (StatusCode::BAD_REQUEST, format!("{remedy}\n")))?;
    let old = level.set(&directives).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))?;
    info!(target: AUDIT, old = old.0, new = directives.0, user, "log level changed");
    Ok(format!("{}\n", directives.0))
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use axum::body::{Body, Bytes};
    use futures::stream;
    use http_body_util::BodyExt;
    use kube::client::Body as KubeBody;
    use serde_json::{Value, json};
    use tower::{BoxError, ServiceExt};

    use super::*;
    use crate::testing::CapturedLogs;

    /// An API server that accepts every token as a user name, and authorises only `admin`.
    async fn review(request: http::Request<KubeBody>) -> Result<http::Response<KubeBody>, BoxError> {
        let mut review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        review["status"] = match &review["spec"]["token"] {
            Value::Null => {
                let asked = &review["spec"]["nonResourceAttributes"];
                let is_right = *asked == json!({ "path": "/log-level", "verb": "put" });
                json!({ "allowed": is_right && review["spec"]["user"] == "admin" })
            }
            token => json!({ "authenticated": true, "user": { "username": token } }),
        };
        Ok(http::Response::builder().status(201).body(KubeBody::from(review.to_string().into_bytes()))?)
    }

    fn served(level: &Level) -> Router {
        let client = Client::new(tower::service_fn(review), "default");
        router(level.clone(), client, leadership::env::testing::virtual_env())
    }

    fn put_by(user: &str) -> http::request::Builder {
        http::Request::put(ACCESS.path).header("authorization", format!("Bearer {user}"))
    }

    #[tokio::test]
    async fn only_authorised_users_set_the_level() {
        let (level, _filter) = Level::new(&Directives("info".to_owned()));
        let router = served(&level);
        for (user, text, code, expected) in [
            ("bob", "debug", 403, "bob may not put /log-level: bind it to a ClusterRole"),
            ("admin", "loud", 400, "give error, warn, info, debug or trace"),
            ("admin", "info,podset_operator=debug\n", 200, "info,podset_operator=debug\n"),
        ] {
            let answer = router.clone().oneshot(put_by(user).body(text.to_owned()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), code, "{user} {text}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(body.starts_with(expected.as_bytes()), "{body:?}");
        }
        let old = level.set(&Directives("info".to_owned())).unwrap();
        assert_eq!(old, Directives("info,podset_operator=debug".to_owned()));
    }

    #[tokio::test]
    async fn only_authorised_users_see_the_level() {
        let (level, _filter) = Level::new(&Directives("info".to_owned()));
        let router = served(&level);
        for (change, expected) in
            [(None, "info\n"), (Some("info,podset_operator=debug"), "info,podset_operator=debug\n")]
        {
            if let Some(change) = change {
                router.clone().oneshot(put_by("admin").body(change.to_owned()).unwrap()).await.unwrap();
            }
            for (user, code) in [("bob", 403), ("admin", 200)] {
                let get = put_by(user).method("GET").body(Body::empty()).unwrap();
                let answer = router.clone().oneshot(get).await.unwrap();
                assert_eq!(answer.status(), code, "{user}");
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body == expected, user == "admin", "{user}: {body:?}");
            }
        }
        let anonymous = http::Request::get(ACCESS.path).body(Body::empty()).unwrap();
        assert_eq!(router.oneshot(anonymous).await.unwrap().status(), 401);
    }

    #[tokio::test]
    async fn a_change_is_logged_with_its_user() {
        let logs = CapturedLogs::start();
        let (level, _filter) = Level::new(&Directives("error".to_owned()));
        let router = served(&level);
        for (user, level) in [("bob", "trace"), ("admin", "debug"), ("admin", "info")] {
            router.clone().oneshot(put_by(user).body(level.to_owned()).unwrap()).await.unwrap();
        }
        let log = logs.text();
        let lines: Vec<&str> = log.lines().filter_map(|line| line.split_once(AUDIT)).map(|(_, line)| line).collect();
        let changed = |old, new| format!(": log level changed old=\"{old}\" new=\"{new}\" user=\"admin\"");
        assert_eq!(lines, [changed("error", "debug"), changed("debug", "info")]);
    }

    #[tokio::test]
    async fn a_body_is_limited_and_read_only_for_authorised_users() {
        let (level, _filter) = Level::new(&Directives("info".to_owned()));
        let router = served(&level);
        let long = Body::from(format!("info{}", " ".repeat(LONGEST)));
        let unread = Body::from_stream(stream::poll_fn(|_| -> Poll<Option<Result<Bytes, BoxError>>> {
            panic!("the body is read before its sender is authorised")
        }));
        for (user, body, code) in [("admin", long, 413), ("bob", unread, 403)] {
            let answer = router.clone().oneshot(put_by(user).body(body).unwrap()).await.unwrap();
            assert_eq!(answer.status(), code, "{user}");
        }
    }
}
