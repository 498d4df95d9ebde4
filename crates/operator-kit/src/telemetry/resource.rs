//! The attributes of this process in every trace and log line, named by OpenTelemetry's semantic conventions.

use std::collections::BTreeMap;

/// The names of this process.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// The program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The unique name of this process.
    pub instance: &'a str,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource(BTreeMap<String, String>);

impl Resource {
    /// Reads the attributes of the pod from environment variables. `wanted` adds or replaces attributes.
    pub fn new(
        service: &Service<'_>,
        variable: impl Fn(&str) -> Option<String>,
        wanted: BTreeMap<String, String>,
    ) -> Self {
        let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut all = BTreeMap::from([
            own("service.name", service.name),
            own("service.version", service.version),
            own("service.instance.id", service.instance),
        ]);
        for (key, name) in
            [("k8s.pod.name", "POD_NAME"), ("k8s.pod.uid", "POD_UID"), ("k8s.namespace.name", "POD_NAMESPACE")]
        {
            all.extend(variable(name).filter(|value| !value.is_empty()).map(|value| (key.to_owned(), value)));
        }
        all.extend(wanted);
        Resource(all)
    }

    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_attributes_win_and_unknown_ones_are_omitted() {
        let variable = |name: &str| match name {
            "POD_NAME" => Some("web-1".to_owned()),
            "POD_UID" => Some(String::new()),
            _ => None,
        };
        let wanted = BTreeMap::from([("service.name".to_owned(), "mine".to_owned())]);
        let Resource(all) =
            Resource::new(&Service { name: "operator", version: "1.2", instance: "web-1_0a" }, variable, wanted);
        let expected = [
            ("k8s.pod.name", "web-1"),
            ("service.instance.id", "web-1_0a"),
            ("service.name", "mine"),
            ("service.version", "1.2"),
        ];
        assert_eq!(all.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(), expected);
    }
}
