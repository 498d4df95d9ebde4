//! The environment variables of OpenTelemetry that the operator reads itself. `opentelemetry-otlp` and `opentelemetry_sdk` do not read
//! whether to export, nor the certificate. They read the protocol, the endpoint and the timeouts too late, and accept sizes of queues and
//! delays that harm the process. They read the rest: headers, compression, sampler, size of batches and span limits.
//!
//! If a value is wrong, the operator warns and uses the default, not the value for all signals. Unlike in the specification, nothing is
//! exported while nothing is set.

use std::{fmt::Display, str::FromStr, time::Duration};

use http::Uri;
use opentelemetry_otlp::Protocol;
use tracing::warn;

/// The largest queue, in spans. The SDK allocates it at the start, and panics if it is too large.
const MAX_SPANS: usize = 100_000;

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
    pub delay: Duration,
}

impl Settings {
    pub fn is_by_tls(&self) -> bool {
        self.endpoint.scheme_str() == Some("https")
    }
}

/// Reads the variables. Empty ones count as not set. `None`: no traces.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Settings> {
    let variables = Variables(&variable);
    let exporter = variables.word("OTEL_TRACES_EXPORTER", ["otlp", "none"]);
    if variables.is_true("OTEL_SDK_DISABLED") || exporter == Some("none") {
        return None;
    }
    let is_grpc = variables.word("OTEL_EXPORTER_OTLP_PROTOCOL", ["grpc", "http/protobuf"]) == Some("grpc");
    let (protocol, default) = if is_grpc {
        (Protocol::Grpc, "http://localhost:4317")
    } else {
        (Protocol::HttpBinary, "http://localhost:4318/v1/traces")
    };
    let default = exporter.map(|_| Uri::from_static(default));
    let endpoint = variables.endpoint(is_grpc).or(default)?;
    // OTEL_EXPORTER_OTLP_TIMEOUT bounds a request, OTEL_BSP_EXPORT_TIMEOUT an export. Here an export is one request, so the shorter one
    // applies.
    let export_timeout = variables.time("OTEL_BSP_EXPORT_TIMEOUT", 30_000);
    let timeout = variables.time("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000).min(export_timeout);
    let certificate = variables.find("OTEL_EXPORTER_OTLP_CERTIFICATE").map(|(_, file)| file);
    let queue = variables.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048).min(MAX_SPANS);
    // With a delay of 0, the thread that collects spans would never pause.
    let delay = variables.time("OTEL_BSP_SCHEDULE_DELAY", 5_000);
    Some(Settings { protocol, endpoint, timeout, certificate, queue, delay })
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn endpoint(&self, is_grpc: bool) -> Option<Uri> {
        let (name, mut url) = self.find("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        if is_grpc && !url.contains("://") {
            // For gRPC, addresses without a scheme are common.
            let scheme = if self.is_true("OTEL_EXPORTER_OTLP_INSECURE") { "http" } else { "https" };
            url = format!("{scheme}://{url}");
        } else if !is_grpc && name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
            url = format!("{}/v1/traces", url.trim_end_matches('/'));
        }
        let endpoint = url.parse().ok().filter(|url: &Uri| matches!(url.scheme_str(), Some("http" | "https")));
        if endpoint.is_none() {
            warn_unusable(&name, "give it as http://HOST:PORT or https://HOST:PORT");
        }
        endpoint
    }

    /// The variable that applies, with its value. The variable for traces takes precedence over the one for all signals.
    fn find(&self, name: &str) -> Option<(String, String)> {
        let names = [name.replace("_OTLP_", "_OTLP_TRACES_"), name.to_owned()];
        names.into_iter().find_map(|name| {
            let value = self.0(&name)?.trim().to_owned();
            (!value.is_empty()).then_some((name, value))
        })
    }

    /// One of two words, in any case.
    fn word(&self, name: &str, words: [&'static str; 2]) -> Option<&'static str> {
        let (name, value) = self.find(name)?;
        let word = words.into_iter().find(|word| value.eq_ignore_ascii_case(word));
        if word.is_none() {
            warn_unusable(&name, format!("give {}", words.join(" or ")));
        }
        word
    }

    fn is_true(&self, name: &str) -> bool {
        self.word(name, ["true", "false"]) == Some("true")
    }

    /// A number that is not 0.
    fn number<N: Copy + Default + Display + FromStr + PartialEq>(&self, name: &str, default: N) -> N {
        let Some((name, value)) = self.find(name) else { return default };
        value.parse().ok().filter(|number| *number != N::default()).unwrap_or_else(|| {
            warn_unusable(&name, format!("give a whole number above 0; using {default}"));
            default
        })
    }

    /// Milliseconds, at most 49 days: tonic panics at a timeout that gRPC cannot express.
    fn time(&self, name: &str, default: u32) -> Duration {
        Duration::from_millis(self.number(name, default).into())
    }
}

/// Does not log the value, which may be a secret in the wrong place.
fn warn_unusable(name: &str, remedy: impl Display) {
    warn!("{name} is invalid: {remedy}");
}

#[cfg(test)]
mod tests;
