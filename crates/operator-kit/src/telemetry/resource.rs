//! The attributes of this process in every trace and log line, named by OpenTelemetry's semantic conventions.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

pub type Resource = BTreeMap<String, String>;

/// Reads the attributes of the pod from environment variables, and those that OpenTelemetry's variables add or replace.
pub fn attributes(name: &str, version: &str, instance: &str, variable: impl Fn(&str) -> Option<String>) -> Resource {
    let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let read = |key, name| variable(name).filter(|value| !value.is_empty()).map(|value| own(key, &value));
    let mut all = BTreeMap::from([
        own("service.name", name),
        own("service.version", version),
        own("service.instance.id", instance),
    ]);
    all.extend(read("k8s.pod.name", "POD_NAME"));
    all.extend(read("k8s.pod.uid", "POD_UID"));
    all.extend(read("k8s.namespace.name", "POD_NAMESPACE"));
    // The SDK's own detector skips wrong entries too, but leaves percent-encoding in place.
    let text = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let entries = text.split(',').filter_map(|entry| entry.split_once('='));
    let entries = entries.filter(|(key, _)| !key.trim().is_empty());
    let decoded = |value: &str| percent_decode_str(value).decode_utf8_lossy().into_owned();
    all.extend(entries.map(|(key, value)| (key.trim().to_owned(), decoded(value.trim()))));
    all.extend(read("service.name", "OTEL_SERVICE_NAME"));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        attributes("operator", "1.2", "web-1_0a", variable).into_iter().collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn user_attributes_win_and_unknown_ones_are_omitted() {
        let read = read(&[
            ("POD_NAME", "web-1"),
            ("POD_UID", ""),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, team=b%2Cc ,k8s.pod.name=web"),
            ("OTEL_SERVICE_NAME", "mine"),
        ]);
        let expected = expected(&[
            ("k8s.pod.name", "web"),
            ("service.instance.id", "web-1_0a"),
            ("service.name", "mine"),
            ("service.version", "1.2"),
            ("team", "b,c"),
        ]);
        assert_eq!(read, expected);
    }

    #[test]
    fn attributes_that_cannot_be_read_are_left_out_and_the_others_are_kept() {
        let own = read(&[]);
        for (text, more) in [("", None), (",,", None), ("team", None), ("team,tier=%zz%2c", Some(("tier", "%zz,")))] {
            let mut read = read(&[("OTEL_RESOURCE_ATTRIBUTES", text), ("OTEL_SERVICE_NAME", "")]);
            read.retain(|pair| !own.contains(pair));
            assert_eq!(read, expected(more.as_slice()), "{text}");
        }
    }
}
