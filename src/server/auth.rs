//! Who may see the metrics, and who may change what is logged: whoever the API server knows by his token, and lets `get` the
//! path `/metrics`, or `put` the path `/log-level`.
//!
//! In: the head of a request. Out: nothing, or why not. It asks by TokenReview and SubjectAccessReview, which changes
//! nothing and needs no leadership, and keeps the answers for a while. Tokens are kept as hashes only.
//!
//! Nobody may use it to press the API server: one question is asked at a time, a token that waits is not asked about again
//! when the answer has come meanwhile, and tokens that were never good are asked about a few times a second only.
//! Whoever was let through lately has a lane of his own, so that a flood of junk does not shut him out.

mod answers;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::{Mutex as Turn, Semaphore},
    time::timeout,
};
use tracing::{info, warn};

use crate::{client::in_full, env::Env, telemetry::log_once::LogOnce};
use answers::{Answers, TokenHash};

/// What someone wants to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// A verb of the API, in lower case.
    pub verb: &'static str,
    /// A path of this process.
    pub path: &'static str,
}

/// How long one question may take.
const QUESTION: Duration = Duration::from_secs(5);

/// How long a request may wait for its turn to ask.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests may wait in a lane.
const WAITING: usize = 32;

/// Why someone is not let through.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// He does not say who he is.
    #[error("send the token of a ServiceAccount: `Authorization: Bearer TOKEN`")]
    NoToken,
    /// The API server does not know the token.
    #[error("the API server does not accept this token: it may have expired")]
    Unknown,
    /// The API server knows him, and he has no right.
    #[error(
        "{user} may not {verb} {path}: bind it to a ClusterRole with `nonResourceURLs: [{path}]` and `verbs: [{verb}]`",
        verb = access.verb,
        path = access.path
    )]
    Forbidden {
        /// Who he is.
        user: String,
        /// What he wants.
        access: Access,
    },
    /// Too many tokens are asked about.
    #[error("too many unknown tokens are sent: try again in a second")]
    Busy,
    /// The API server does not let the operator ask.
    #[error(
        "the operator may not ask the API server about tokens: bind its ServiceAccount to the ClusterRole \
         system:auth-delegator"
    )]
    NotAsked,
    /// The API server does not answer.
    #[error("the API server does not say whose token this is: try again")]
    NotAnswered,
}

/// What the API server says of a token.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Verdict {
    /// The name of the user who has the right.
    Allowed(String),
    Unknown,
    Forbidden(String),
}

impl Verdict {
    fn admits(self, access: Access) -> Result<String, Refusal> {
        match self {
            Verdict::Allowed(user) => Ok(user),
            Verdict::Unknown => Err(Refusal::Unknown),
            Verdict::Forbidden(user) => Err(Refusal::Forbidden { user, access }),
        }
    }
}

/// Lets through who may do one thing.
pub struct Gate {
    access: Access,
    client: Client,
    env: Env,
    answers: Mutex<Answers>,
    known: Lane,
    strangers: Lane,
    /// What was said last of questions that failed, so that it is said once.
    trouble: Mutex<LogOnce>,
}

/// Where requests wait for their turn to ask.
struct Lane {
    turn: Turn<()>,
    places: Semaphore,
}

impl Default for Lane {
    fn default() -> Self {
        Lane { turn: Turn::default(), places: Semaphore::new(WAITING) }
    }
}

impl Gate {
    /// A gate that knows nobody yet.
    pub fn new(access: Access, client: Client, env: Env) -> Self {
        let answers = Mutex::new(Answers::new(env.now()));
        let trouble = Mutex::default();
        Gate { access, client, env, answers, known: Lane::default(), strangers: Lane::default(), trouble }
    }

    /// Lets a request through and returns the name of its user, or says why not.
    ///
    /// # Errors
    ///
    /// When the token is missing, or the API server does not know it, gives it no right, or does not answer.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<String, Refusal> {
        let token = bearer(headers).ok_or(Refusal::NoToken)?;
        let hash = answers::hash(token);
        let (answer, is_known) = {
            let answers = self.answers();
            (answers.get(&hash, self.env.now()), answers.was_allowed(&hash))
        };
        if let Some(verdict) = answer {
            return verdict.admits(self.access);
        }
        let lane = if is_known { &self.known } else { &self.strangers };
        self.ask_in_turn(lane, is_known, token, hash).await?.admits(self.access)
    }

    async fn ask_in_turn(&self, lane: &Lane, is_known: bool, token: &str, hash: TokenHash) -> Result<Verdict, Refusal> {
        let _place = lane.places.try_acquire().map_err(|_| Refusal::Busy)?;
        let _turn = timeout(PATIENCE, lane.turn.lock()).await.map_err(|_| Refusal::NotAnswered)?;
        {
            let (mut answers, now) = (self.answers(), self.env.now());
            if let Some(verdict) = answers.get(&hash, now) {
                return Ok(verdict);
            }
            if !is_known && !answers.may_ask(now) {
                return Err(Refusal::Busy);
            }
        }
        let verdict = match timeout(QUESTION, self.ask(token)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => return Err(self.failed(&error)),
            Err(_) => {
                self.warn_once("the API server did not say in time whose token it is".to_owned());
                return Err(Refusal::NotAnswered);
            }
        };
        if self.trouble().forget() {
            info!("the API server answers for the tokens of those who ask for {} again", self.access.path);
        }
        self.answers().insert(hash, verdict.clone(), self.env.now());
        Ok(verdict)
    }

    /// Asks who it is, and what he may do.
    async fn ask(&self, token: &str) -> Result<Verdict, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let Some(user) = reviewed.status.filter(|status| status.authenticated == Some(true)).and_then(|it| it.user)
        else {
            return Ok(Verdict::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        let review =
            SubjectAccessReview { metadata: ObjectMeta::default(), spec: question(self.access, user), status: None };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let is_allowed = reviewed.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if is_allowed { Verdict::Allowed(name) } else { Verdict::Forbidden(name) })
    }

    /// Says in the log what is wrong in full, and to whoever asked no more than what he can use.
    fn failed(&self, error: &kube::Error) -> Refusal {
        let refusal = match error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => Refusal::NotAsked,
            _ => Refusal::NotAnswered,
        };
        self.warn_once(format!("cannot tell who asks for {}: {refusal}: {}", self.access.path, in_full(error)));
        refusal
    }

    fn warn_once(&self, sentence: String) {
        if self.trouble().note(&sentence) {
            warn!("{sentence}");
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, LogOnce> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// May he, with all that the API server says he is?
fn question(access: Access, user: UserInfo) -> SubjectAccessReviewSpec {
    let UserInfo { extra, groups, uid, username } = user;
    let attributes = NonResourceAttributes { path: Some(access.path.to_owned()), verb: Some(access.verb.to_owned()) };
    SubjectAccessReviewSpec {
        extra,
        groups,
        non_resource_attributes: Some(attributes),
        resource_attributes: None,
        uid,
        user: username,
    }
}

/// The bearer token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ');
    is_token.then_some(token)
}

#[cfg(test)]
mod tests;
