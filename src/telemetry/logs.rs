//! The log: as text for people, or as JSON objects whose fields are those of OpenTelemetry's log data model. What is logged
//! can be changed while the process runs.

use std::{
    collections::BTreeMap,
    fmt,
    io::{IsTerminal, stderr},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{DefaultFields, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
    reload,
};

use super::{resource::Resource, spans};
use crate::cli::{Directives, LogFormat, Logging};
use leadership::env;

/// The target of events that are logged whatever the level: who changed it.
pub const AUDIT: &str = "podset_operator::audit";

/// What is logged, for whoever wants to change it. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
    wanted: Arc<Mutex<Directives>>,
}

impl Level {
    /// What is logged at first, and the filter that it rules.
    pub(crate) fn new(directives: &Directives) -> (Self, reload::Layer<EnvFilter, Registry>) {
        let (layer, handle) = reload::Layer::new(filter(directives));
        (Level { filter: handle, wanted: Arc::new(Mutex::new(directives.clone())) }, layer)
    }

    /// The directives that apply now.
    pub fn current(&self) -> Directives {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs this from now on. Returns what was logged before.
    ///
    /// # Errors
    ///
    /// When the log is there no more.
    pub fn set(&self, directives: &Directives) -> Result<Directives, reload::Error> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.filter.reload(filter(directives))?;
        Ok(std::mem::replace(&mut *wanted, directives.clone()))
    }
}

/// The API client, the lock and what checks certificates warn of what their caller explains better; directives that name them
/// still reach them. The spans are for traces alone.
fn filter(directives: &Directives) -> EnvFilter {
    let Directives(wanted) = directives;
    let explained = "kube_client=off,kube_leader_election=off,rustls_platform_verifier=off";
    EnvFilter::new(format!("{explained},{wanted},{}=off", spans::TARGET))
}

/// The format that was asked for; else what a pod's log is read by is a machine.
fn format(wished: Option<LogFormat>, is_in_pod: bool) -> LogFormat {
    wished.unwrap_or(if is_in_pod { LogFormat::Json } else { LogFormat::Text })
}

/// What writes the log.
pub(super) fn layer(logging: &Logging, resource: &Resource) -> Box<dyn Layer<Registry> + Send + Sync> {
    let is_json = format(logging.log_format, env::is_in_pod()) == LogFormat::Json;
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    if is_json {
        layer.event_format(Json { resource: resource.clone(), ids: spans::current_ids }).boxed()
    } else {
        let is_terminal = stderr().is_terminal();
        let text = tracing_subscriber::fmt::format().with_target(false).with_ansi(is_terminal);
        layer.with_ansi(is_terminal).event_format(Text(text, spans::current_ids)).fmt_fields(OneLine).boxed()
    }
}

/// Fields on one line: a message of the API server, which may be a tenant's, cannot look like a line of its own.
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

/// Whether a character ends a line, changes the direction of what follows, or commands a terminal.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Lines for people: within a trace, each ends with its ids.
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

/// Lines for machines. The JSON of tracing-subscriber and of json-subscriber cannot separate the body of a record from its
/// attributes.
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
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let level = event.metadata().level();
        let Ok(Value::Object(mut attributes)) = serde_json::to_value(event.field_map()) else { return Err(fmt::Error) };
        // Events of the crate `log` bring their origin as fields.
        let scope = attributes.remove("log.target").unwrap_or_else(|| event.metadata().target().into());
        attributes.retain(|name, _| !name.starts_with("log."));
        let ids = (self.ids)();
        let record = Record {
            timestamp,
            severity_text: level.as_str(),
            severity_number: severity(*level),
            body: attributes.remove("message").unwrap_or_else(|| "".into()),
            attributes,
            trace_id: ids.as_ref().map(|(trace, ..)| trace.as_str()),
            span_id: ids.as_ref().map(|(_, span, _)| span.as_str()),
            trace_flags: ids.as_ref().map(|(.., flags)| *flags),
            instrumentation_scope: json!({ "Name": scope }),
            resource: self.resource.attributes(),
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
    resource: &'a BTreeMap<String, String>,
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
