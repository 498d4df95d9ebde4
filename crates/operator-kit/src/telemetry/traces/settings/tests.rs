//! The meaning of the variables, as tables.

use super::*;

/// The settings, and the warnings that are logged.
fn read_from(variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = std::sync::Arc::new(file.reopen().unwrap());
    let format = tracing_subscriber::fmt().with_ansi(false).with_target(false).with_level(false).without_time();
    let settings = tracing::subscriber::with_default(format.with_writer(writer).finish(), || {
        read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    });
    let text = std::fs::read_to_string(file.path()).unwrap();
    (settings, text.lines().map(|line| line.trim().to_owned()).collect())
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    let (settings, warnings) = read_from(variables);
    assert_eq!(warnings, Vec::<String>::new());
    settings.expect("spans are exported")
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
        assert_eq!(read_from(variables), (None, Vec::new()), "{variables:?}");
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
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
    ]);
    assert_eq!((read.protocol, read.timeout), (Protocol::Grpc, Duration::from_millis(700)));
    assert_eq!(read.certificate.as_deref(), Some("/ca.crt"));
    assert_eq!((read.queue, read.delay), (10, Duration::from_millis(100)));
}

#[test]
fn values_are_case_insensitive() {
    for (protocol, expected) in [("GRPC", Protocol::Grpc), ("HTTP/Protobuf", Protocol::HttpBinary)] {
        let read = settings(&[("OTEL_TRACES_EXPORTER", "OTLP"), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        assert_eq!(read.protocol, expected, "{protocol}");
    }
}

#[test]
fn a_wrong_value_is_reported_with_its_remedy_and_ignored() {
    let good = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces");
    let expected = settings(&[good]);
    for (name, value, remedy) in [
        ("OTEL_SDK_DISABLED", "1", "give true or false"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "give otlp or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "give grpc or http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp", "give grpc or http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "give a whole number above 0; using 10000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "18446744073709551615", "give a whole number above 0; using 10000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "secret", "give a whole number above 0; using 10000"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "0", "give a whole number above 0; using 30000"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "give a whole number above 0; using 5000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "give a whole number above 0; using 2048"),
    ] {
        let (settings, warnings) = read_from(&[(name, value), good]);
        assert_eq!(settings.as_ref(), Some(&expected), "{name}");
        assert_eq!(warnings, [format!("{name} is invalid: {remedy}")]);
    }
}

#[test]
fn a_queue_does_not_exceed_the_memory() {
    for queue in ["100001", "18446744073709551615"] {
        let read = settings(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_BSP_MAX_QUEUE_SIZE", queue)]);
        assert_eq!(read.queue, 100_000, "{queue}");
    }
}

#[test]
fn an_invalid_endpoint_disables_the_export() {
    for value in ["collector:4318", "ftp://collector", "http://", "http:///v1", "http://a b"] {
        let (settings, warnings) = read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", value)]);
        assert_eq!(settings, None, "{value}");
        let remedy = "give it as http://HOST:PORT or https://HOST:PORT";
        assert_eq!(warnings, [format!("OTEL_EXPORTER_OTLP_ENDPOINT is invalid: {remedy}")]);
    }
}
