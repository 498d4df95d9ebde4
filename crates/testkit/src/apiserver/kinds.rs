//! The kinds that this API server serves.

/// One served resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version within the group.
    pub version: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Resource name in paths.
    pub plural: &'static str,
    /// `plural.group`: the name in error messages, and a part of the key in the store.
    pub qualified: &'static str,
    /// False for namespaces.
    pub namespaced: bool,
    /// Whether `/status` is a subresource that the main resource cannot write.
    pub status: bool,
    /// Served from a CustomResourceDefinition: it has no graceful deletion, and its `/status`
    /// takes no metadata at all (not even a UID to compare with).
    pub custom: bool,
}

pub static PODS: Kind = core("Pod", "pods", true, true);
pub static NAMESPACES: Kind = core("Namespace", "namespaces", false, true);
pub static EVENTS: Kind =
    Kind { group: "events.k8s.io", qualified: "events.events.k8s.io", ..core("Event", "events", true, false) };
pub static LEASES: Kind = Kind {
    group: "coordination.k8s.io",
    qualified: "leases.coordination.k8s.io",
    ..core("Lease", "leases", true, false)
};
/// Stored templates.
pub static REVISIONS: Kind = Kind {
    group: "apps",
    qualified: "controllerrevisions.apps",
    ..core("ControllerRevision", "controllerrevisions", true, false)
};
/// Requests to authenticate a token. They are answered, not stored.
pub static TOKEN_REVIEWS: Kind = Kind {
    group: "authentication.k8s.io",
    qualified: "tokenreviews.authentication.k8s.io",
    ..core("TokenReview", "tokenreviews", false, true)
};
/// Requests to authorize a user. They are answered, not stored.
pub static ACCESS_REVIEWS: Kind = Kind {
    group: "authorization.k8s.io",
    qualified: "subjectaccessreviews.authorization.k8s.io",
    ..core("SubjectAccessReview", "subjectaccessreviews", false, true)
};
/// The operator's first custom resource.
pub static PODSETS: Kind = Kind {
    group: "app.example.com",
    version: "v1alpha1",
    qualified: "podsets.app.example.com",
    custom: true,
    ..core("PodSet", "podsets", true, true)
};
/// The operator's second custom resource.
pub static MYCUSTOMRESOURCES: Kind = Kind {
    group: "poc.test.domain",
    qualified: "mycustomresources.poc.test.domain",
    custom: true,
    ..core("MyCustomResource", "mycustomresources", true, true)
};

static SERVED: [&Kind; 9] =
    [&PODS, &NAMESPACES, &EVENTS, &LEASES, &REVISIONS, &TOKEN_REVIEWS, &ACCESS_REVIEWS, &PODSETS, &MYCUSTOMRESOURCES];

const fn core(kind: &'static str, plural: &'static str, namespaced: bool, status: bool) -> Kind {
    Kind { group: "", version: "v1", kind, plural, qualified: plural, namespaced, status, custom: false }
}

impl Kind {
    /// The kind that a path names, if it is served.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        SERVED.iter().copied().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind of a stored object, by its `apiVersion` and `kind`.
    pub fn of_object(group: &str, version: &str, kind: &str) -> &'static Self {
        SERVED
            .iter()
            .copied()
            .find(|k| k.group == group && k.version == version && k.kind == kind)
            .expect("only served kinds are stored")
    }

    /// Whether any kind of this group and version is served.
    pub fn group_served(group: &str, version: &str) -> bool {
        SERVED.iter().any(|k| k.group == group && k.version == version)
    }

    /// `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `Kind.group`, as in validation errors.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }
}
