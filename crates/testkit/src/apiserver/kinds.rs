//! The kinds that this API server serves.

use serde_json::Value;

#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Resource name in paths, and a part of the key in the store.
    pub plural: &'static str,
    /// Whether `/status` is a subresource that the main resource cannot write.
    pub has_status_subresource: bool,
    /// Whether a CustomResourceDefinition defines it. Its objects then have a generation and the defaults of the schema,
    /// items of a list keep kind and apiVersion, and `/status` ignores metadata except for the resourceVersion.
    pub custom: bool,
}

pub static PODS: Kind = built_in("", "Pod", "pods", true);
pub static NAMESPACES: Kind = built_in("", "Namespace", "namespaces", true);
pub static EVENTS: Kind = built_in("events.k8s.io", "Event", "events", false);
pub static LEASES: Kind = built_in("coordination.k8s.io", "Lease", "leases", false);
/// Stored templates.
pub static REVISIONS: Kind = built_in("apps", "ControllerRevision", "controllerrevisions", false);
/// Requests to authenticate a token. They are answered, not stored.
pub static TOKEN_REVIEWS: Kind = built_in("authentication.k8s.io", "TokenReview", "tokenreviews", true);
/// Requests to authorize a user. They are answered, not stored.
pub static ACCESS_REVIEWS: Kind = built_in("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", true);
pub static PODSETS: Kind = custom("app.example.com", "v1alpha1", "PodSet", "podsets");
pub static MYCUSTOMRESOURCES: Kind = custom("poc.test.domain", "v1", "MyCustomResource", "mycustomresources");

static SERVED: &[&Kind] =
    &[&PODS, &NAMESPACES, &EVENTS, &LEASES, &REVISIONS, &TOKEN_REVIEWS, &ACCESS_REVIEWS, &PODSETS, &MYCUSTOMRESOURCES];

const fn built_in(group: &'static str, kind: &'static str, plural: &'static str, has_status_subresource: bool) -> Kind {
    Kind { group, version: "v1", kind, plural, has_status_subresource, custom: false }
}

const fn custom(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version, kind, plural, has_status_subresource: true, custom: true }
}

impl Kind {
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        SERVED.iter().copied().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    pub fn of(object: &Value) -> &'static Self {
        SERVED.iter().copied().find(|k| object["kind"] == k.kind).expect("only served kinds are stored")
    }

    pub fn group_served(group: &str, version: &str) -> bool {
        SERVED.iter().any(|k| k.group == group && k.version == version)
    }

    /// `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// This name with the group, as in error messages: `plural.group`, and `Kind.group` in validation errors.
    pub fn qualified(&self, name: &str) -> String {
        if self.group.is_empty() { name.to_owned() } else { format!("{name}.{}", self.group) }
    }
}
