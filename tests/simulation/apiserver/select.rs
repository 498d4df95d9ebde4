//! A choice of requests, in words that chain: for faults to meet and for questions to the log.

use std::{fmt, sync::Arc};

use super::request::{ApiRequest, Verb};

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

    /// Creates of a resource, by its plural name, except those that only ask.
    pub fn creates(plural: &str) -> Self {
        Self::all().verb(Verb::Create).of(plural).when(|request| request.query("dryRun").is_empty())
    }

    /// Deletes of a resource.
    pub fn deletes(plural: &str) -> Self {
        Self::all().verb(Verb::Delete).of(plural)
    }

    /// Patches of the status of a resource.
    pub fn status_patches(plural: &str) -> Self {
        Self { subresource: Some("status".to_owned()), ..Self::all().verb(Verb::Patch).of(plural) }
    }

    /// Requests that can change the store.
    pub fn mutating() -> Self {
        Self { mutating: true, ..Self::default() }
    }

    /// Only this verb.
    pub fn verb(self, verb: Verb) -> Self {
        Self { verb: Some(verb), ..self }
    }

    /// Only this resource, by its plural name.
    pub fn of(self, plural: &str) -> Self {
        Self { plural: Some(plural.to_owned()), ..self }
    }

    /// Only in this namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Only objects whose name begins like this.
    pub fn named(self, prefix: &str) -> Self {
        Self { name_prefix: Some(prefix.to_owned()), ..self }
    }

    /// Only from the client of this name.
    pub fn from(self, instance: &str) -> Self {
        Self { instance: Some(instance.to_owned()), ..self }
    }

    /// Only from a user agent that begins like this.
    pub fn user_agent(self, prefix: &str) -> Self {
        Self { user_agent_prefix: Some(prefix.to_owned()), ..self }
    }

    /// Only where this holds.
    pub fn when(self, predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self { predicate: Some(Arc::new(predicate)), ..self }
    }

    /// Only the first `count` that match all else.
    pub fn first(self, count: usize) -> Self {
        Self { limit: Some(count), ..self }
    }

    /// All that match all else but the first `count`.
    pub fn after(self, count: usize) -> Self {
        Self { skip: count, limit: None, ..self }
    }

    /// Only the `n`-th (from 1) that matches all else.
    pub fn nth(self, n: usize) -> Self {
        Self { skip: n.saturating_sub(1), limit: Some(1), ..self }
    }

    /// Whether the request that is `nth` (from 0) to match is meant.
    pub fn chooses(&self, nth: usize) -> bool {
        nth >= self.skip && self.limit.is_none_or(|limit| nth < self.skip + limit)
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
