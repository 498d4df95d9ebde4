//! The meaning of the variables, as tables.

use super::*;

fn read_from(variables: &[(&str, &str)]) -> TraceConfig {
    read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    let config = read_from(variables);
    assert_eq!(config.warnings, Vec::<String>::new());
    config.settings.expect("spans are exported")
}

#[test]
fn nothing_is_exported_unless_it_is_configured() {
    for variables in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
        &[("OTEL_SERVICE_NAME", "mine"), ("OTEL_TRACES_SAMPLER", "always_on")],
        &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")],
        &[("OTEL_TRACES_EXPORTER", "NONE"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")],
        &[("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "otlp")],
    ] {
        let config = read_from(variables);
        assert_eq!((config.settings, config.warnings), (None, Vec::new()), "{variables:?}");
    }
}

#[test]
fn the_defaults_are_those_of_the_specification() {
    let expected = Settings {
        protocol: Protocol::HttpBinary,
        endpoint: Uri::from_static("http://localhost:4318/v1/traces"),
        timeout: Duration::from_secs(10),
        certificate: None,
        queue: 2048,
        batch: 512,
        delay: Duration::from_secs(5),
    };
    assert_eq!(settings(&[("OTEL_TRACES_EXPORTER", "otlp")]), expected);
    let grpc = settings(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!((grpc.protocol, grpc.endpoint), (Protocol::Grpc, Uri::from_static("http://localhost:4317")));
}

#[test]
fn only_the_endpoint_for_all_signals_gets_the_path_of_traces() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let (all, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    for (variables, expected) in [
        (&[(all, "http://collector:4318")][..], "http://collector:4318/v1/traces"),
        (&[(all, "http://collector:4318/")], "http://collector:4318/v1/traces"),
        (&[(all, "https://collector/otlp")], "https://collector/otlp/v1/traces"),
        (&[(all, "http://collector:4318"), (traces, "http://other:1/in")], "http://other:1/in"),
        (&[(all, "http://collector:4317"), grpc], "http://collector:4317"),
        (&[(all, "collector:4317"), grpc], "https://collector:4317"),
        (&[(all, "collector:4317"), grpc, ("OTEL_EXPORTER_OTLP_INSECURE", "true")], "http://collector:4317"),
    ] {
        assert_eq!(settings(variables).endpoint, Uri::from_static(expected), "{variables:?}");
    }
}

#[test]
fn variables_for_traces_win_over_general_ones() {
    let read = settings(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.crt"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret,x=y"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
    ]);
    assert_eq!((read.protocol, read.timeout), (Protocol::Grpc, Duration::from_millis(700)));
    assert_eq!(read.certificate.as_deref(), Some("/ca.crt"));
    assert_eq!((read.queue, read.batch, read.delay), (10, 10, Duration::from_millis(100)));
}

#[test]
fn values_are_case_insensitive() {
    for (protocol, expected) in [("GRPC", Protocol::Grpc), ("HTTP/Protobuf", Protocol::HttpBinary)] {
        let read = settings(&[
            ("OTEL_TRACES_EXPORTER", "OTLP"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "None"),
        ]);
        assert_eq!(read.protocol, expected, "{protocol}");
    }
}

#[test]
fn a_wrong_value_is_reported_with_its_remedy_and_ignored() {
    for (name, value, remedy) in [
        ("OTEL_SDK_DISABLED", "perhaps", "give true or false"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "give otlp or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "give grpc or http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp", "give grpc or http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "give KEY=VALUE"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "give none"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "give always_on"),
        ("OTEL_TRACES_SAMPLER", "ALWAYS_OFF", "in lower case; all traces are recorded"),
        ("OTEL_TRACES_SAMPLER", " always_off", "give always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "a number from 0.0 to 1.0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "number of milliseconds"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "number of spans from 1 to 100000"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "must not be larger than OTEL_BSP_MAX_QUEUE_SIZE (2048)"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "", ""),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=%zz", "give KEY=VALUE"),
    ] {
        let good = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces");
        let TraceConfig { settings, resource, warnings } = read_from(&[(name, value), good]);
        assert!(settings.is_some(), "{name}");
        assert!(resource.is_empty(), "{name}");
        if value.is_empty() {
            assert_eq!(warnings, Vec::<String>::new(), "{name}");
            continue;
        }
        let [warning] = &warnings[..] else { panic!("{name}: {warnings:?}") };
        assert!(warning.starts_with(name) && warning.contains(remedy), "{warning}");
        assert!(!warning.contains("secret"), "{warning}");
    }
}

#[test]
fn an_invalid_endpoint_disables_the_export() {
    for value in ["collector:4318", "ftp://collector", "http://", "http://a b"] {
        let TraceConfig { settings, warnings, .. } = read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", value)]);
        assert_eq!(settings, None, "{value}");
        assert!(
            warnings[0].starts_with("OTEL_EXPORTER_OTLP_ENDPOINT cannot be used as it is: give it as http://HOST"),
            "{warnings:?}"
        );
    }
}

#[test]
fn the_resource_is_read_whole_or_not_at_all() {
    let read = read_from(&[
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, team=b%2Cc ,deployment.environment.name=prod"),
        ("OTEL_SERVICE_NAME", "mine"),
    ]);
    let expected = [("deployment.environment.name", "prod"), ("service.name", "mine"), ("team", "b,c")];
    assert_eq!(read.resource, expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    assert_eq!(read_from(&[("OTEL_RESOURCE_ATTRIBUTES", "team=b,=c")]).resource, BTreeMap::new());
}
