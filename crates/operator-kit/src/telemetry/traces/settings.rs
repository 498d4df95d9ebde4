//! OpenTelemetry's environment variables. Pure: variables in; settings and warnings out.
//!
//! `opentelemetry-otlp` and `opentelemetry_sdk` read headers, sampler and span limits themselves. They ignore wrong values silently, so
//! this module checks them. It reads the variables that the libraries ignore (certificate, percent-encoding), those that are needed earlier
//! (endpoint, timeout), and the batch settings: the SDK would accept a queue larger than the memory, or a delay of 0, a busy loop.
//!
//! If a value is wrong, the operator warns and uses the default, not the value for all signals. Unlike in the specification, nothing is
//! exported while nothing is set.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use http::Uri;
use opentelemetry_otlp::Protocol;

/// The largest queue, in spans: the SDK allocates it at the start.
const MAX_SPANS: u32 = 100_000;

/// The longest time, in milliseconds: a day.
const MAX_MILLISECONDS: u32 = 86_400_000;

#[derive(Debug, PartialEq)]
pub struct Settings {
    pub protocol: Protocol,
    /// The collector. For HTTP with the path.
    pub endpoint: Uri,
    pub timeout: Duration,
    /// A file with CA certificates for the collector; the system's if not set.
    pub certificate: Option<String>,
    /// How many spans may wait; further ones are lost.
    pub queue: usize,
    pub batch: usize,
    pub delay: Duration,
}

impl Settings {
    pub fn is_by_tls(&self) -> bool {
        self.endpoint.scheme_str() == Some("https")
    }
}

#[derive(Debug, PartialEq)]
pub struct TraceConfig {
    /// `None`: no traces.
    pub settings: Option<Settings>,
    /// Attributes of this process that the user adds or replaces.
    pub resource: BTreeMap<String, String>,
    /// Sentences about values that cannot be used.
    pub warnings: Vec<String>,
}

/// Reads the variables. Empty ones count as not set.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> TraceConfig {
    let mut reader = Reader { variable: &variable, warnings: Vec::new() };
    let settings = reader.settings();
    let resource = reader.resource();
    TraceConfig { settings, resource, warnings: reader.warnings }
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// The variable that applies, with its value: the one for traces comes before the one for all signals.
    fn find(&self, name: &str) -> Option<(String, String)> {
        let names = [name.replace("_OTLP_", "_OTLP_TRACES_"), name.to_owned()];
        let mut found = names.into_iter().filter_map(|name| (self.variable)(&name).map(|value| (name, value)));
        found.find(|(_, value)| !value.trim().is_empty())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.find(name).map(|(_, value)| value.trim().to_owned())
    }

    /// A keyword, in lower case.
    fn word(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_ascii_lowercase()
    }

    fn warn(&mut self, name: &str, remedy: impl Display) {
        self.warnings.push(format!("{name} cannot be used as it is: {remedy}"));
    }

    fn check(&mut self, name: &str, is_good: impl Fn(&str) -> bool, remedy: impl Display) {
        if let Some((name, _)) = self.find(name).filter(|(_, value)| !is_good(value)) {
            self.warn(&name, remedy);
        }
    }

    fn settings(&mut self) -> Option<Settings> {
        let exporter = self.word("OTEL_TRACES_EXPORTER");
        if self.is_true("OTEL_SDK_DISABLED") || exporter == "none" {
            return None;
        }
        self.check("OTEL_TRACES_EXPORTER", |_| exporter == "otlp", "give otlp or none");
        let protocol = self.protocol();
        let default = Uri::from_static(match protocol {
            Protocol::Grpc => "http://localhost:4317",
            _ => "http://localhost:4318/v1/traces",
        });
        let endpoint = self.endpoint(protocol).or_else(|| (exporter == "otlp").then_some(default))?;
        self.check_library_variables();
        // By the specification, one bounds a request and the other the whole export. Here an export is one request.
        let export_timeout = self.time("OTEL_BSP_EXPORT_TIMEOUT", 30_000);
        let timeout = self.time("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000).min(export_timeout);
        let certificate = self.text("OTEL_EXPORTER_OTLP_CERTIFICATE");
        let queue = self.spans("OTEL_BSP_MAX_QUEUE_SIZE", 2048);
        let batch = self.spans("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512);
        let remedy = format!("it must not be larger than OTEL_BSP_MAX_QUEUE_SIZE ({queue})");
        self.check("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", |_| batch <= queue, remedy);
        let delay = self.time("OTEL_BSP_SCHEDULE_DELAY", 5_000);
        Some(Settings { protocol, endpoint, timeout, certificate, queue, batch: batch.min(queue), delay })
    }

    fn check_library_variables(&mut self) {
        let remedy = "give KEY=VALUE,KEY=VALUE, values percent-encoded; other entries are not sent";
        let is_entry = |entry: &str| entry.split_once('=').is_some_and(|(key, _)| !key.trim().is_empty());
        let is_list = |list: &str| list.split(',').all(|entry| entry.trim().is_empty() || is_entry(entry));
        self.check("OTEL_EXPORTER_OTLP_HEADERS", is_list, remedy);
        let remedy = "spans are sent as they are; give none";
        self.check("OTEL_EXPORTER_OTLP_COMPRESSION", |word| word.eq_ignore_ascii_case("none"), remedy);
        for name in ["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"] {
            self.check(name, |_| false, "client certificates are not supported; leave it out");
        }
        let remedy = "requests carry the W3C trace context; give tracecontext, or leave it out";
        let is_propagated = |name: &str| name.trim().eq_ignore_ascii_case("tracecontext");
        self.check("OTEL_PROPAGATORS", |list| list.split(',').any(is_propagated), remedy);
        let known = ["always_on", "always_off", "traceidratio"];
        let remedy = "give always_on, always_off or traceidratio, with or without parentbased_ before it, in lower case; \
                      all traces are recorded";
        // The SDK matches the names exactly.
        let is_sampler = |name: &str| known.contains(&name.strip_prefix("parentbased_").unwrap_or(name));
        self.check("OTEL_TRACES_SAMPLER", is_sampler, remedy);
        let remedy = "give a number from 0.0 to 1.0; less than 0 counts as 0, anything else as 1";
        let is_ratio = |text: &str| text.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio));
        self.check("OTEL_TRACES_SAMPLER_ARG", is_ratio, remedy);
    }

    fn is_true(&mut self, name: &str) -> bool {
        let word = self.word(name);
        self.check(name, |_| ["true", "false"].contains(&&*word), "give true or false");
        word == "true"
    }

    fn protocol(&mut self) -> Protocol {
        let name = "OTEL_EXPORTER_OTLP_PROTOCOL";
        let word = self.word(name);
        let remedy = "give grpc or http/protobuf; spans are sent by http/protobuf";
        self.check(name, |_| ["grpc", "http/protobuf"].contains(&&*word), remedy);
        if word == "grpc" { Protocol::Grpc } else { Protocol::HttpBinary }
    }

    fn endpoint(&mut self, protocol: Protocol) -> Option<Uri> {
        let (name, value) = self.find("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        let mut url = value.trim().to_owned();
        if protocol == Protocol::Grpc && !url.contains("://") {
            // For gRPC, addresses without a scheme are common.
            let scheme = if self.is_true("OTEL_EXPORTER_OTLP_INSECURE") { "http" } else { "https" };
            url = format!("{scheme}://{url}");
        } else if protocol != Protocol::Grpc && name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
            url = format!("{}/v1/traces", url.trim_end_matches('/'));
        }
        let is_usable = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
        let endpoint = url.parse().ok().filter(is_usable);
        if endpoint.is_none() {
            self.warn(&name, "give it as http://HOST:PORT or https://HOST:PORT");
        }
        endpoint
    }

    fn number(&mut self, name: &str, default: u32, max: u32, unit: &str) -> u32 {
        let Some((name, value)) = self.find(name) else { return default };
        match value.trim().parse() {
            Ok(number) if (1..=max).contains(&number) => number,
            _ => {
                self.warn(&name, format!("give a number of {unit} from 1 to {max}; using {default}"));
                default
            }
        }
    }

    fn time(&mut self, name: &str, default: u32) -> Duration {
        Duration::from_millis(self.number(name, default, MAX_MILLISECONDS, "milliseconds").into())
    }

    fn spans(&mut self, name: &str, default: u32) -> usize {
        usize::try_from(self.number(name, default, MAX_SPANS, "spans")).unwrap_or(usize::MAX)
    }

    fn resource(&mut self) -> BTreeMap<String, String> {
        let (name, remedy) = ("OTEL_RESOURCE_ATTRIBUTES", "give KEY=VALUE,KEY=VALUE, percent-encoded");
        self.check(name, |text| attributes(text).is_some(), remedy);
        let mut resource = self.text(name).and_then(|text| attributes(&text)).unwrap_or_default();
        resource.extend(self.text("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name)));
        resource
    }
}

/// All attributes; `None` if one is wrong.
fn attributes(text: &str) -> Option<BTreeMap<String, String>> {
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    let attribute = |entry: &str| {
        let (key, value) = entry.split_once('=').filter(|(key, _)| !key.trim().is_empty())?;
        Some((key.trim().to_owned(), percent_decoded(value.trim())?))
    };
    entries.map(attribute).collect()
}

/// Undoes percent-encoding, which the SDK leaves in place.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.extend(hex::decode(part.get(..2)?).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
