//! What OpenTelemetry's own variables ask for, read as its specification says. Pure: variables in; settings, and a sentence
//! for each value that cannot be used, out.
//!
//! A wrong value is no reason to end: its default is taken, not the value for all signals. One thing differs from the specification: while
//! nothing is set, nothing is exported.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use http::Uri;

use crate::client::shown;

/// The most spans that may wait: room for them is made at the start.
const MOST: u32 = 100_000;

/// The longest time that may be given, in milliseconds: a day.
const LONGEST: u32 = 86_400_000;

/// Where spans go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// By which protocol.
    pub protocol: Protocol,
    /// The collector. For HTTP the whole address, path included.
    pub endpoint: String,
    /// How long one export may take.
    pub timeout: Duration,
    /// A file with the certificates of those who may vouch for the collector; without it, the system's.
    pub certificate: Option<String>,
    /// Which traces are recorded.
    pub sampler: Sampler,
    /// How spans are gathered.
    pub batch: Batch,
}

/// A protocol to a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf in HTTP/1.1.
    Http,
}

/// Which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampler {
    /// All.
    All,
    /// None: ids are still made, and go out with requests.
    None,
    /// This part of them.
    Ratio(f64),
}

/// How spans are gathered before they are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Batch {
    /// How many wait at most; what comes then is lost.
    pub queue: usize,
    /// How many are sent at once.
    pub size: usize,
    /// The time between two exports.
    pub delay: Duration,
}

impl Settings {
    /// Whether the collector is reached by TLS.
    pub fn is_by_tls(&self) -> bool {
        self.endpoint.parse::<Uri>().is_ok_and(|endpoint| endpoint.scheme_str() == Some("https"))
    }

    /// The endpoint as the log may show it: without a user and a password.
    pub fn shown_endpoint(&self) -> String {
        self.endpoint.parse().map(|endpoint| shown(&endpoint)).unwrap_or_default()
    }
}

/// What the variables ask for, and what is wrong with them.
#[derive(Debug, PartialEq)]
pub struct Wishes {
    /// Where spans go; `None`: nowhere.
    pub settings: Option<Settings>,
    /// What describes this process, besides what it knows itself.
    pub resource: BTreeMap<String, String>,
    /// Sentences about values that cannot be used.
    pub warnings: Vec<String>,
}

/// Reads the variables. Empty ones count as not set.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Wishes {
    let mut reader = Reader { variable: &variable, warnings: Vec::new() };
    let settings = reader.settings();
    let resource = reader.resource();
    Wishes { settings, resource, warnings: reader.warnings }
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// One of several words: their case does not matter.
    fn word(&self, name: &str) -> Option<String> {
        self.text(name).map(|value| value.to_ascii_lowercase())
    }

    /// The variable of this name for traces, else that for all signals.
    fn of_traces(&self, name: &str) -> Option<(String, String)> {
        [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")]
            .into_iter()
            .find_map(|name| self.text(&name).map(|value| (name, value)))
    }

    fn warn(&mut self, name: &str, remedy: impl Display) {
        self.warnings.push(format!("{name} is not used: {remedy}"));
    }

    fn settings(&mut self) -> Option<Settings> {
        if self.is_true("OTEL_SDK_DISABLED") {
            return None;
        }
        let is_asked_for = match self.word("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return None,
            Some("otlp") => true,
            Some(_) => {
                self.warn("OTEL_TRACES_EXPORTER", "give otlp or none");
                false
            }
            None => false,
        };
        let protocol = self.protocol();
        let endpoint = self.endpoint(protocol);
        let default = match protocol {
            Protocol::Grpc => "http://localhost:4317",
            Protocol::Http => "http://localhost:4318/v1/traces",
        };
        let endpoint = endpoint.or_else(|| is_asked_for.then(|| default.to_owned()))?;
        self.check_headers();
        if self.of_traces("COMPRESSION").is_some_and(|(_, value)| !value.eq_ignore_ascii_case("none")) {
            self.warn("OTEL_EXPORTER_OTLP_COMPRESSION", "spans are sent as they are; give none");
        }
        for name in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = self.of_traces(name) {
                self.warn(&name, "the operator shows collectors no certificate; leave it out");
            }
        }
        let is_propagated = |list: &str| list.split(',').any(|name| name.trim().eq_ignore_ascii_case("tracecontext"));
        if self.text("OTEL_PROPAGATORS").is_some_and(|list| !is_propagated(&list)) {
            self.warn("OTEL_PROPAGATORS", "requests carry the W3C trace context; give tracecontext, or leave it out");
        }
        let (timeout, certificate) = (self.timeout(), self.of_traces("CERTIFICATE").map(|(_, file)| file));
        Some(Settings { protocol, endpoint, timeout, certificate, sampler: self.sampler(), batch: self.batch() })
    }

    fn is_true(&mut self, name: &str) -> bool {
        match self.word(name).as_deref() {
            Some("true") => true,
            Some("false") | None => false,
            Some(_) => {
                self.warn(name, "give true or false");
                false
            }
        }
    }

    fn protocol(&mut self) -> Protocol {
        let Some((name, value)) = self.of_traces("PROTOCOL") else {
            return Protocol::Http;
        };
        match &*value.to_ascii_lowercase() {
            "grpc" => Protocol::Grpc,
            "http/protobuf" => Protocol::Http,
            _ => {
                self.warn(&name, "give grpc or http/protobuf; spans are sent by http/protobuf");
                Protocol::Http
            }
        }
    }

    fn endpoint(&mut self, protocol: Protocol) -> Option<String> {
        let (name, value) = self.of_traces("ENDPOINT")?;
        let is_insecure = protocol == Protocol::Grpc && self.is_insecure();
        let value = match value.contains("://") {
            true => value,
            // For gRPC an address without a scheme is usual.
            false if protocol == Protocol::Grpc && is_insecure => format!("http://{value}"),
            false if protocol == Protocol::Grpc => format!("https://{value}"),
            false => value,
        };
        let uri = value.parse::<Uri>().ok();
        let is_usable =
            uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if !is_usable {
            self.warn(&name, "give it as http://HOST:PORT or https://HOST:PORT");
            return None;
        }
        let is_for_all = name == "OTEL_EXPORTER_OTLP_ENDPOINT";
        let goes_on = if protocol == Protocol::Http && is_for_all { "/v1/traces" } else { "" };
        Some(format!("{}{goes_on}", if goes_on.is_empty() { &value } else { value.trim_end_matches('/') }))
    }

    fn is_insecure(&mut self) -> bool {
        let Some((name, _)) = self.of_traces("INSECURE") else {
            return false;
        };
        self.is_true(&name)
    }

    /// They are secrets: a warning must not show them.
    fn check_headers(&mut self) {
        let Some((name, value)) = self.of_traces("HEADERS") else {
            return;
        };
        let is_entry = |entry: &str| entry.split_once('=').is_some_and(|(key, _)| !key.trim().is_empty());
        if !value.split(',').all(|entry| entry.trim().is_empty() || is_entry(entry)) {
            let remedy = "but for what is right in it: give KEY=VALUE,KEY=VALUE, values percent-encoded";
            self.warnings.push(format!("{name} is not used, {remedy}"));
        }
    }

    fn timeout(&mut self) -> Duration {
        let name = self.of_traces("TIMEOUT").map(|(name, _)| name);
        let timeout = name.map_or(10_000, |name| self.number(&name, 10_000, LONGEST, "milliseconds"));
        // The exporter bounds an export by the one; the specification's processor would by the other.
        let bound = self.number("OTEL_BSP_EXPORT_TIMEOUT", 30_000, LONGEST, "milliseconds");
        Duration::from_millis(timeout.min(bound).into())
    }

    fn number(&mut self, name: &str, default: u32, most: u32, of: &str) -> u32 {
        match self.text(name).map(|value| value.parse::<u32>()) {
            None => default,
            Some(Ok(number)) if (1..=most).contains(&number) => number,
            Some(_) => {
                self.warn(name, format!("give a number of {of} from 1 to {most}; it is taken as {default}"));
                default
            }
        }
    }

    fn sampler(&mut self) -> Sampler {
        // Reconciles have no parents elsewhere, so that of a parent makes no difference.
        match self.word("OTEL_TRACES_SAMPLER").as_deref() {
            None | Some("always_on" | "parentbased_always_on") => Sampler::All,
            Some("always_off" | "parentbased_always_off") => Sampler::None,
            Some("traceidratio" | "parentbased_traceidratio") => self.ratio(),
            Some(_) => {
                let known = "give always_on, always_off or traceidratio, with or without parentbased_ before it";
                self.warn("OTEL_TRACES_SAMPLER", format!("{known}; all traces are recorded"));
                Sampler::All
            }
        }
    }

    fn ratio(&mut self) -> Sampler {
        let name = "OTEL_TRACES_SAMPLER_ARG";
        match self.text(name).map(|value| value.parse::<f64>()) {
            None => Sampler::Ratio(1.0),
            Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => Sampler::Ratio(ratio),
            Some(_) => {
                self.warn(name, "give a number from 0.0 to 1.0; all traces are recorded");
                Sampler::Ratio(1.0)
            }
        }
    }

    fn batch(&mut self) -> Batch {
        let queue = self.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, MOST, "spans");
        let size = self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, MOST, "spans");
        if size > queue && self.text("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").is_some() {
            let remedy = format!("it must not be larger than OTEL_BSP_MAX_QUEUE_SIZE ({queue})");
            self.warn("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", remedy);
        }
        let delay = self.number("OTEL_BSP_SCHEDULE_DELAY", 5_000, LONGEST, "milliseconds");
        let spans = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Batch { queue: spans(queue), size: spans(size.min(queue)), delay: Duration::from_millis(delay.into()) }
    }

    fn resource(&mut self) -> BTreeMap<String, String> {
        let mut resource = BTreeMap::new();
        if let Some(text) = self.text("OTEL_RESOURCE_ATTRIBUTES") {
            match attributes(&text) {
                Some(attributes) => resource = attributes,
                None => self.warn("OTEL_RESOURCE_ATTRIBUTES", "give KEY=VALUE,KEY=VALUE, percent-encoded"),
            }
        }
        if let Some(name) = self.text("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name);
        }
        resource
    }
}

/// All of them, or none if one is wrong.
fn attributes(text: &str) -> Option<BTreeMap<String, String>> {
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    entries
        .map(|entry| {
            let (key, value) = entry.split_once('=')?;
            let key = key.trim();
            (!key.is_empty()).then_some(())?;
            Some((key.to_owned(), decoded(value.trim())?))
        })
        .collect()
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
