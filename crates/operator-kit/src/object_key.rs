//! The key of an object, and the scope of a watch.

use std::{fmt, sync::Arc};

/// A namespace to watch; `None` is all of them.
pub type Scope = Option<Arc<str>>;

/// Namespace and name of an object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// The key of another object in the same namespace.
    pub fn sibling(&self, name: &str) -> Self {
        ObjectKey::new(self.namespace.clone(), name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether an object of this name lies in the scope.
pub fn in_scope(scope: &Scope, key: &ObjectKey) -> bool {
    scope.as_ref().is_none_or(|namespace| *namespace == key.namespace)
}
