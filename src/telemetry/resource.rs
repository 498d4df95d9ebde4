//! What this process says of itself in every trace and every line of the log, by OpenTelemetry's semantic conventions.

use std::collections::BTreeMap;

use crate::api;

/// The process, in words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource(BTreeMap<String, String>);

impl Resource {
    /// The process of this name, with what Kubernetes tells it by variables, and what its user wants to have said
    /// instead or besides.
    pub fn new(instance: &str, variable: impl Fn(&str) -> Option<String>, wanted: BTreeMap<String, String>) -> Self {
        let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut all = BTreeMap::from([
            own("service.name", api::MANAGER),
            own("service.version", env!("CARGO_PKG_VERSION")),
            own("service.instance.id", instance),
        ]);
        for (key, name) in
            [("k8s.pod.name", "POD_NAME"), ("k8s.pod.uid", "POD_UID"), ("k8s.namespace.name", "POD_NAMESPACE")]
        {
            all.extend(variable(name).filter(|value| !value.is_empty()).map(|value| (key.to_owned(), value)));
        }
        all.extend(wanted);
        Resource(all)
    }

    /// The attributes, by name.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_says_wins_and_what_is_not_known_is_left_out() {
        let variable = |name: &str| match name {
            "POD_NAME" => Some("web-1".to_owned()),
            "POD_UID" => Some(String::new()),
            _ => None,
        };
        let wanted = BTreeMap::from([("service.name".to_owned(), "mine".to_owned())]);
        let Resource(all) = Resource::new("web-1_0a", variable, wanted);
        let version = env!("CARGO_PKG_VERSION");
        let expected = [
            ("k8s.pod.name", "web-1"),
            ("service.instance.id", "web-1_0a"),
            ("service.name", "mine"),
            ("service.version", version),
        ];
        assert_eq!(all.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(), expected);
    }
}
