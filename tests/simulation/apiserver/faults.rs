//! Faults: rules that a test adds and takes away, for requests and for watches. Which rule meets
//! which request is decided here; what it does to the request is done in `service.rs` and
//! `watch.rs`.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{
    request::{ApiRequest, Verb},
    status::Status,
};

/// What a rule does to a request that it meets.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not executed; answered with this Status.
    Refuse(Status),
    /// Executed; answered with an error of this code all the same.
    ExecuteThenError(u16),
    /// Executed; the connection breaks before the answer.
    ExecuteThenCut,
    /// Executed; half of the answer arrives.
    ExecuteThenGarble,
    /// Not executed; the connection breaks.
    CutBefore,
    /// Executed this much later, unless its `?timeout=` is over by then.
    Delay(Duration),
    /// The connection breaks at once; executed this much later all the same.
    ExecuteLate(Duration),
    /// Never answered; executed after this long.
    ExecuteUnanswered(Duration),
    /// Executed; answered when the test releases it.
    HoldAnswer,
    /// Executed when the test releases it, unless its `?timeout=` is over by then.
    HoldExecution,
}

impl Fault {
    /// Its name in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refuse(_) => "refuse",
            Self::ExecuteThenError(_) => "execute-then-error",
            Self::ExecuteThenCut => "execute-then-cut",
            Self::ExecuteThenGarble => "execute-then-garble",
            Self::CutBefore => "cut-before",
            Self::Delay(_) => "delay",
            Self::ExecuteLate(_) => "execute-late",
            Self::ExecuteUnanswered(_) => "execute-unanswered",
            Self::HoldAnswer => "hold-answer",
            Self::HoldExecution => "hold-execution",
        }
    }
}

type Predicate = Arc<dyn Fn(&ApiRequest) -> bool + Send + Sync>;

/// Which requests: all, narrowed by each method. Chooses for faults and filters the log.
#[derive(Clone, Default)]
pub struct Requests {
    verb: Option<Verb>,
    mutating: bool,
    plural: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name_prefix: Option<String>,
    instance: Option<String>,
    user_agent_prefix: Option<String>,
    predicate: Option<Predicate>,
    skip: usize,
    limit: Option<usize>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("verb", &self.verb)
            .field("plural", &self.plural)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl Requests {
    /// All requests.
    pub fn all() -> Self {
        Self::default()
    }

    /// Creates of a resource, by its plural name.
    pub fn creates(plural: &str) -> Self {
        Self::all().verb(Verb::Create).of(plural)
    }

    /// Deletes of a resource.
    pub fn deletes(plural: &str) -> Self {
        Self::all().verb(Verb::Delete).of(plural)
    }

    /// Patches of the status of a resource.
    pub fn status_patches(plural: &str) -> Self {
        Self {
            subresource: Some("status".to_owned()),
            ..Self::all().verb(Verb::Patch).of(plural)
        }
    }

    /// Requests that can change the store.
    pub fn mutating() -> Self {
        Self {
            mutating: true,
            ..Self::default()
        }
    }

    /// Only this verb.
    pub fn verb(self, verb: Verb) -> Self {
        Self {
            verb: Some(verb),
            ..self
        }
    }

    /// Only this resource, by its plural name.
    pub fn of(self, plural: &str) -> Self {
        Self {
            plural: Some(plural.to_owned()),
            ..self
        }
    }

    /// Only in this namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Only objects whose name begins like this.
    pub fn named(self, prefix: &str) -> Self {
        Self {
            name_prefix: Some(prefix.to_owned()),
            ..self
        }
    }

    /// Only from the client of this name.
    pub fn from(self, instance: &str) -> Self {
        Self {
            instance: Some(instance.to_owned()),
            ..self
        }
    }

    /// Only from a user agent that begins like this.
    pub fn user_agent(self, prefix: &str) -> Self {
        Self {
            user_agent_prefix: Some(prefix.to_owned()),
            ..self
        }
    }

    /// Only where this holds.
    pub fn when(self, predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self {
            predicate: Some(Arc::new(predicate)),
            ..self
        }
    }

    /// Only the first `count` that match all else.
    pub fn first(self, count: usize) -> Self {
        Self {
            limit: Some(count),
            ..self
        }
    }

    /// Only the `n`-th (from 1) that matches all else.
    pub fn nth(self, n: usize) -> Self {
        Self {
            skip: n.saturating_sub(1),
            limit: Some(1),
            ..self
        }
    }

    /// Whether a request is one of these, without counting.
    pub fn matches(&self, request: &ApiRequest) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, actual: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == actual)
        }
        fn begins(prefix: &Option<String>, actual: &str) -> bool {
            prefix.as_ref().is_none_or(|prefix| actual.starts_with(prefix))
        }
        is(&self.verb, &request.verb)
            && (!self.mutating || request.verb.mutates())
            && self.plural.as_ref().is_none_or(|plural| plural == request.kind.plural)
            && is(&self.subresource, &request.subresource)
            && is(&self.namespace, &request.namespace)
            && is(&self.instance, &request.instance)
            && begins(&self.name_prefix, &request.name)
            && begins(&self.user_agent_prefix, request.header("user-agent"))
            && self.predicate.as_ref().is_none_or(|holds| holds(request))
    }
}

/// A rule in force.
pub struct Rule {
    id: u64,
    requests: Requests,
    fault: Fault,
    matched: usize,
    hits: usize,
    gate: Arc<Semaphore>,
}

/// What a rule does to one request: the fault, and the gate that a held request waits at.
#[derive(Clone)]
pub struct Hit {
    pub fault: Fault,
    pub gate: Arc<Semaphore>,
}

/// The rules for requests, in the order in which they were added.
#[derive(Default)]
pub struct Faults {
    rules: Vec<Rule>,
    added: u64,
}

impl Faults {
    /// Adds a rule; its id and the gate of what it will hold.
    pub fn add(&mut self, requests: Requests, fault: Fault) -> (u64, Arc<Semaphore>) {
        self.added += 1;
        let gate = Arc::new(Semaphore::new(0));
        self.rules.push(Rule {
            id: self.added,
            requests,
            fault,
            matched: 0,
            hits: 0,
            gate: Arc::clone(&gate),
        });
        (self.added, gate)
    }

    /// Takes a rule away.
    pub fn remove(&mut self, id: u64) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Takes all rules away and lets go whatever they held.
    pub fn clear(&mut self) {
        for rule in self.rules.drain(..) {
            rule.gate.add_permits(Semaphore::MAX_PERMITS / 2);
        }
    }

    /// How many requests a rule has met; none once it is removed.
    pub fn hits(&self, id: u64) -> Option<usize> {
        self.rules.iter().find(|rule| rule.id == id).map(|rule| rule.hits)
    }

    /// The first rule that meets this request. Counts.
    pub fn meet(&mut self, request: &ApiRequest) -> Option<Hit> {
        for rule in &mut self.rules {
            if !rule.requests.matches(request) {
                continue;
            }
            rule.matched += 1;
            let nth = rule.matched - 1;
            let within = rule.requests.limit.is_none_or(|limit| nth < rule.requests.skip + limit);
            if nth >= rule.requests.skip && within {
                rule.hits += 1;
                return Some(Hit {
                    fault: rule.fault.clone(),
                    gate: Arc::clone(&rule.gate),
                });
            }
        }
        None
    }
}

/// A lasting fault of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Events are kept back until released.
    Hold,
    /// Events arrive this much later.
    Delay(Duration),
    /// Half-open: nothing arrives any more, not even an end.
    Stall,
}

/// Which watches: all, narrowed by instance and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// Client; none for every one.
    pub instance: Option<String>,
    /// Plural name of the resource; none for every one.
    pub plural: Option<String>,
}

impl WatchScope {
    /// Whether a watch of `plural` by `instance` is meant.
    pub fn covers(&self, instance: &str, plural: &str) -> bool {
        self.instance.as_deref().is_none_or(|i| i == instance) && self.plural.as_deref().is_none_or(|p| p == plural)
    }
}
