//! Authentication and authorization of requests: the API server checks the caller's token, and whether the caller may `get` the path
//! `/metrics` or `put` the path `/log-level`.
//!
//! A lookup is a TokenReview and a SubjectAccessReview. Callers cannot overload the API server: for each path, requests with the same token
//! share one lookup, at most one known and one unknown token are looked up at a time, and the lookups of unknown tokens are rate-limited.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use quick_cache::sync::Cache;
use ring::digest;
use tokio::{sync::Semaphore, time::timeout};
use tracing::{info, warn};

use crate::{lock, log_once::LogOnce, text::in_full, token_bucket::TokenBucket};
use leadership::env::Env;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    pub verb: &'static str,
    pub path: &'static str,
}

/// How long a request may wait for its lookup to begin, and then for its end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a positive answer is cached: a revoked token may still be used for this time.
const ALLOWED: SignedDuration = SignedDuration::from_secs(60);

/// How long a negative answer is cached: a new right takes effect after this time at the latest.
const REFUSED: SignedDuration = SignedDuration::from_secs(10);

/// How many answers, and how many known tokens, are cached.
const CACHED_TOKENS: usize = 512;

/// How many unknown tokens are looked up in a burst.
const BURST: i32 = 20;

/// The time between two lookups of unknown tokens after a burst.
const INTERVAL: SignedDuration = SignedDuration::from_millis(500);

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rejection {
    #[error("send the token of a ServiceAccount: `Authorization: Bearer TOKEN`")]
    NoToken,
    #[error("the API server does not accept this token: it may have expired")]
    Unknown,
    #[error(
        "{user} may not {verb} {path}: bind it to a ClusterRole with `nonResourceURLs: [{path}]` and `verbs: [{verb}]`",
        verb = access.verb,
        path = access.path
    )]
    Forbidden { user: String, access: Access },
    #[error("too many requests with unknown tokens: try again in a second")]
    Busy,
    #[error(
        "the operator may not create TokenReviews and SubjectAccessReviews: bind its ServiceAccount to the ClusterRole \
         system:auth-delegator"
    )]
    ReviewsForbidden,
    #[error("the API server could not check the token: try again")]
    Unavailable,
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let text = format!("{self}\n");
        match self {
            Rejection::NoToken | Rejection::Unknown => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
            Rejection::Forbidden { .. } => (StatusCode::FORBIDDEN, text).into_response(),
            Rejection::Busy => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], text).into_response(),
            Rejection::ReviewsForbidden => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
            Rejection::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
        }
    }
}

/// The name of the user who sent an admitted request.
#[derive(Clone, Debug)]
pub struct User(pub String);

/// Middleware that passes on only the requests that the authorizer admits, with their [`User`].
pub async fn admit(
    State(auth): State<Arc<Authorizer>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Rejection> {
    let user = auth.admit(request.headers()).await?;
    request.extensions_mut().insert(User(user));
    Ok(next.run(request).await)
}

/// The name of a user who has the right, or a rejection.
type Answer = Result<String, Rejection>;

/// Admits users who may do one thing. The caches hold hashes, so that no token stays in memory.
pub struct Authorizer {
    access: Access,
    client: Client,
    env: Env,
    /// Answers, and when each expires.
    answers: Cache<Vec<u8>, (Timestamp, Answer)>,
    /// Tokens that were good at their last lookup.
    known: Cache<Vec<u8>, ()>,
    /// One lookup of a known token at a time, and one of an unknown token, so that unknown tokens do not delay known callers.
    turns: [Semaphore; 2],
    /// Limits the lookups of unknown tokens.
    rate: Mutex<TokenBucket>,
    /// The last failure that was logged.
    logged: Mutex<LogOnce>,
}

impl Authorizer {
    pub fn new(access: Access, client: Client, env: Env) -> Self {
        Authorizer {
            access,
            client,
            answers: Cache::new(CACHED_TOKENS),
            known: Cache::new(CACHED_TOKENS),
            turns: [Semaphore::new(1), Semaphore::new(1)],
            rate: Mutex::new(TokenBucket::new(BURST, INTERVAL)),
            logged: Mutex::default(),
            env,
        }
    }

    pub async fn admit(&self, headers: &HeaderMap) -> Answer {
        let token = bearer(headers).ok_or(Rejection::NoToken)?;
        let hash = digest::digest(&digest::SHA256, token.as_bytes()).as_ref().to_vec();
        let now = self.env.now();
        self.answers.remove_if(&hash, |(until, _)| *until <= now);
        let lookup = async { Ok::<_, Infallible>(self.look_up(token, &hash).await) };
        let Ok((_, answer)) = self.answers.get_or_insert_async(&hash, lookup).await;
        answer
    }

    /// The answer for a token, and when it expires. A failure is not cached: only requests that wait for this lookup get it.
    async fn look_up(&self, token: &str, hash: &[u8]) -> (Timestamp, Answer) {
        let answer = self.ask_in_turn(token, self.known.contains_key(hash)).await;
        let applies = match &answer {
            Ok(_) => {
                self.known.insert(hash.to_vec(), ());
                ALLOWED
            }
            Err(Rejection::Unknown | Rejection::Forbidden { .. }) => {
                self.known.remove(hash);
                REFUSED
            }
            Err(_) => SignedDuration::ZERO,
        };
        (self.env.now() + applies, answer)
    }

    async fn ask_in_turn(&self, token: &str, is_known: bool) -> Answer {
        if !is_known && !lock(&self.rate).try_take(self.env.now()) {
            return Err(Rejection::Busy);
        }
        let turn = self.turns[usize::from(is_known)].acquire();
        let _turn = timeout(TIMEOUT, turn).await.map_err(|_| Rejection::Unavailable)?;
        let path = self.access.path;
        let (rejection, cause) = match timeout(TIMEOUT, self.ask(token)).await {
            Ok(Ok(answer)) => {
                if lock(&self.logged).forget() {
                    info!("requests for {path} can be authenticated again");
                }
                return answer;
            }
            Ok(Err(error)) => match &error {
                kube::Error::Api(status) if status.code == 403 => (Rejection::ReviewsForbidden, in_full(&error)),
                _ => (Rejection::Unavailable, in_full(&error)),
            },
            Err(_) => (Rejection::Unavailable, format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        // The cause goes to the log only: an unauthenticated caller must not see it.
        let failure = format!("cannot authenticate requests for {path}: {rejection}: {cause}");
        if lock(&self.logged).note(&failure) {
            warn!("{failure}");
        }
        Err(rejection)
    }

    /// The API server's answer: the user of a token, and whether this user has the right.
    async fn ask(&self, token: &str) -> Result<Answer, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let user = reviewed.status.filter(|status| status.authenticated == Some(true)).and_then(|status| status.user);
        let Some(UserInfo { extra, groups, uid, username }) = user else {
            return Ok(Err(Rejection::Unknown));
        };
        let Access { verb, path } = self.access;
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            non_resource_attributes: Some(attributes),
            resource_attributes: None,
            uid,
            user: username.clone(),
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let is_allowed = reviewed.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let user = username.unwrap_or_default();
        Ok(if is_allowed { Ok(user) } else { Err(Rejection::Forbidden { user, access: self.access }) })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ');
    is_token.then_some(token)
}

#[cfg(test)]
mod tests;
