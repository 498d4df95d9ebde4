//! The log: text for people, or JSON objects with the fields of OpenTelemetry's log data model. The level can change at any time.

use std::{
    fmt,
    io::{IsTerminal, stderr},
    sync::{Arc, Mutex},
};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    field::RecordFields,
    filter::{Builder, LevelFilter},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{DefaultFields, Writer},
    },
    registry::LookupSpan,
    reload,
};

use super::{resource::Resource, spans};
use crate::{is_in_pod, lock};

/// The target of events that are logged at every level: changes of the log level.
pub const AUDIT: &str = "podset_operator::audit";

/// How to log.
#[derive(Args, Clone, Debug)]
pub struct Logging {
    /// Format of the log [default: json in a cluster, text elsewhere]
    #[arg(long = "log-format", env = "PODSET_OPERATOR_LOG_FORMAT", value_name = "FORMAT")]
    pub format: Option<LogFormat>,

    /// What to log: a level, or directives as in RUST_LOG
    #[arg(long = "log-level", env = "PODSET_OPERATOR_LOG_LEVEL", default_value = "info", value_parser = Directives::read,
        value_name = "LEVEL")]
    pub level: Directives,
}

/// A format of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// A checked log level: a level, or directives as in RUST_LOG.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directives(pub String);

impl Directives {
    /// Parses a level, or directives as in RUST_LOG.
    ///
    /// # Errors
    ///
    /// When it is neither. The text says what to give instead.
    pub fn read(text: &str) -> Result<Self, String> {
        // EnvFilter rejects some spaces with an unclear error, and panics at others.
        if text.contains(char::is_whitespace) {
            return Err("give it without spaces: info,hyper=debug".to_owned());
        }
        // EnvFilter takes an unknown word for a module, so a misspelt level would log nothing.
        let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
        let is_plausible = |part: &str| part.contains(['=', '[']) || is_level(part);
        match parser().parse(text) {
            Ok(_) if text.split(',').all(is_plausible) => Ok(Directives(text.to_owned())),
            _ => {
                Err("give error, warn, info, debug or trace, or directives as in RUST_LOG: info,hyper=debug".to_owned())
            }
        }
    }
}

/// The log level of this process, which can change while it runs. Clones share it.
#[derive(Clone, Debug)]
pub struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
    wanted: Arc<Mutex<Directives>>,
}

impl Level {
    /// Returns the level, and the filter that follows it.
    pub fn new(directives: &Directives) -> (Self, reload::Layer<EnvFilter, Registry>) {
        let (layer, handle) = reload::Layer::new(filter(directives));
        (Level { filter: handle, wanted: Arc::new(Mutex::new(directives.clone())) }, layer)
    }

    /// The directives that apply now.
    pub fn current(&self) -> Directives {
        lock(&self.wanted).clone()
    }

    /// Changes the level, and returns the former one.
    ///
    /// # Errors
    ///
    /// When the subscriber is gone.
    pub fn set(&self, directives: &Directives) -> Result<Directives, reload::Error> {
        let mut wanted = lock(&self.wanted);
        self.filter.reload(filter(directives))?;
        Ok(std::mem::replace(&mut *wanted, directives.clone()))
    }
}

/// The filter for these directives. Four crates are off unless a directive names them, because this process logs their warnings itself, with
/// more detail or less often. Spans are off unless a directive names one, such as `[reconcile]`.
fn filter(directives: &Directives) -> EnvFilter {
    let Directives(wanted) = directives;
    let duplicates = "kube_client=off,kube_leader_election=off,opentelemetry=off,rustls_platform_verifier=off";
    parser().parse_lossy(format!("{duplicates},{wanted},{}=off", spans::TARGET))
}

/// Compares field values as text: a short regular expression could take all memory.
fn parser() -> Builder {
    EnvFilter::builder().with_regex(false)
}

fn format(chosen: Option<LogFormat>, is_in_pod: bool) -> LogFormat {
    chosen.unwrap_or(if is_in_pod { LogFormat::Json } else { LogFormat::Text })
}

pub(super) fn layer(logging: &Logging, resource: &Resource) -> Box<dyn Layer<Registry> + Send + Sync> {
    let is_json = format(logging.format, is_in_pod()) == LogFormat::Json;
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    if is_json {
        layer.event_format(Json { resource: resource.clone(), ids: spans::current_ids }).boxed()
    } else {
        let is_terminal = stderr().is_terminal();
        let text = tracing_subscriber::fmt::format().with_target(false).with_ansi(is_terminal);
        layer.with_ansi(is_terminal).event_format(Text(text, spans::current_ids)).fmt_fields(OneLine).boxed()
    }
}

/// Writes fields on one line: a tenant may control part of an API server message, and must not forge a log line.
struct OneLine;

impl<'w> FormatFields<'w> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        text.chars().try_for_each(|c| match c {
            c if is_unprintable(c) => write!(writer, "{}", c.escape_default()),
            c => writer.write_char(c),
        })
    }
}

/// Whether a character ends a line, changes the text direction, or controls a terminal.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes text lines. Within a trace, each line ends with the ids of the trace and the span. [`OneLine`] cannot write them: it also formats
/// the fields of a locked span, and reading the ids would wait for the lock forever.
struct Text<F>(F, spans::CurrentIds);

impl<S, N, F> FormatEvent<S, N> for Text<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Text(format, ids) = self;
        let Some((trace, span, _)) = ids() else {
            return format.format_event(context, writer, event);
        };
        let mut line = String::new();
        format.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{} trace_id={trace} span_id={span}", line.trim_end())
    }
}

/// JSON lines. Neither tracing-subscriber nor json-subscriber can separate the body of a record from its attributes.
struct Json {
    resource: Resource,
    ids: spans::CurrentIds,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = event.metadata().level();
        let Ok(Value::Object(mut attributes)) = serde_json::to_value(event.field_map()) else { return Err(fmt::Error) };
        // Events of the crate `log` have their target as a field.
        let scope = attributes.remove("log.target").unwrap_or_else(|| event.metadata().target().into());
        attributes.retain(|name, _| !name.starts_with("log."));
        let ids = (self.ids)();
        let record = Record {
            timestamp: format!("{:.6}", Timestamp::now()),
            severity_text: level.as_str(),
            severity_number: severity(*level),
            body: attributes.remove("message").unwrap_or_else(|| "".into()),
            attributes,
            trace_id: ids.as_ref().map(|(trace, ..)| trace.as_str()),
            span_id: ids.as_ref().map(|(_, span, _)| span.as_str()),
            trace_flags: ids.as_ref().map(|(.., flags)| *flags),
            instrumentation_scope: json!({ "Name": scope }),
            resource: &self.resource,
        };
        writeln!(writer, "{}", serde_json::to_string(&record).map_err(|_| fmt::Error)?)
    }
}

/// A log record of OpenTelemetry's data model.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Record<'a> {
    timestamp: String,
    severity_text: &'static str,
    severity_number: u8,
    body: Value,
    #[serde(skip_serializing_if = "Map::is_empty")]
    attributes: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_flags: Option<u8>,
    instrumentation_scope: Value,
    resource: &'a Resource,
}

fn severity(level: tracing::Level) -> u8 {
    match level {
        tracing::Level::TRACE => 1,
        tracing::Level::DEBUG => 5,
        tracing::Level::INFO => 9,
        tracing::Level::WARN => 13,
        tracing::Level::ERROR => 17,
    }
}

#[cfg(test)]
mod tests;
