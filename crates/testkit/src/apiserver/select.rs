//! Selects requests, for faults and for queries of the log.

use super::*;

type Predicate = Arc<dyn Fn(&ApiRequest) -> bool + Send + Sync>;

/// Selects requests: all, narrowed by each method.
#[derive(Clone, Default)]
pub struct Requests {
    predicates: Vec<Predicate>,
    limit: Option<usize>,
}

impl Requests {
    pub fn all() -> Self {
        Self::default()
    }

    /// Creates of a resource, by its plural name, without dry runs.
    pub fn creates(plural: &str) -> Self {
        Self::all().verb(Verb::Create).of(plural).when(|request| request.query("dryRun").is_empty())
    }

    pub fn deletes(plural: &str) -> Self {
        Self::all().verb(Verb::Delete).of(plural)
    }

    /// Patches of the status of a resource.
    pub fn status_patches(plural: &str) -> Self {
        Self::all().verb(Verb::Patch).of(plural).when(|request| request.subresource == "status")
    }

    /// Requests that can change the store.
    pub fn mutating() -> Self {
        Self::all().when(|request| request.verb.mutates())
    }

    pub fn verb(self, verb: Verb) -> Self {
        self.when(move |request| request.verb == verb)
    }

    /// Only this resource, by its plural name.
    pub fn of(self, plural: &str) -> Self {
        let plural = plural.to_owned();
        self.when(move |request| request.kind.plural == plural)
    }

    pub fn in_namespace(self, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        self.when(move |request| request.namespace == namespace)
    }

    /// Only objects whose name has this prefix.
    pub fn named(self, prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        self.when(move |request| request.name.starts_with(&prefix))
    }

    pub fn from(self, instance: &str) -> Self {
        let instance = instance.to_owned();
        self.when(move |request| request.instance == instance)
    }

    pub fn when(mut self, holds: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(holds));
        self
    }

    /// Only the first `count` of the matching requests.
    pub fn first(self, count: usize) -> Self {
        Self { limit: Some(count), ..self }
    }

    /// Whether the request matches, and fewer than the limit of [`Requests::first`] have matched before.
    pub fn chooses(&self, request: &ApiRequest, matched: usize) -> bool {
        self.limit.is_none_or(|limit| matched < limit) && self.matches(request)
    }

    /// Whether the request matches, apart from [`Requests::first`].
    pub fn matches(&self, request: &ApiRequest) -> bool {
        self.predicates.iter().all(|holds| holds(request))
    }
}
