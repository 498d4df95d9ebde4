//! The format of log lines, and changes of the level.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use serde_json::json;
use tracing::{debug, info, info_span, warn};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// A log in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `say` logs.
fn logged(is_json: bool, level: &str, ids: spans::CurrentIds, say: impl FnOnce(&Level)) -> Vec<String> {
    let kept = Kept::default();
    let (writer, resource) = (kept.clone(), crate::telemetry::resource::attributes("operator", "1.2", "me", |_| None));
    let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
    let layer: Box<dyn Layer<Registry> + Send + Sync> = if is_json {
        layer.event_format(Json { resource, ids }).boxed()
    } else {
        let text = tracing_subscriber::fmt::format().with_target(false).with_ansi(false).without_time();
        layer.event_format(Text(text, ids)).fmt_fields(OneLine).boxed()
    };
    let (level, filter) = Level::new(&Directives(level.to_owned()));
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    tracing::subscriber::with_default(subscriber, || say(&level));
    kept.lines()
}

/// Outside a trace.
const UNTRACED: spans::CurrentIds = || None;

/// Within a trace.
const TRACED: spans::CurrentIds = || Some(("0a".to_owned(), "0b".to_owned(), 1));

#[test]
fn a_json_line_is_an_opentelemetry_log_record() {
    let lines = logged(true, "info", TRACED, |_| {
        warn!(set = %"shop/web", created = 2, is_new = true, share = 0.5, "a \"plan\" was\ncarried out");
    });
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    let mut record: Value = serde_json::from_str(line).unwrap();
    let time = record.as_object_mut().unwrap().remove("Timestamp").unwrap();
    assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
    let expected = json!({
        "SeverityText": "WARN",
        "SeverityNumber": 13,
        "Body": "a \"plan\" was\ncarried out",
        "Attributes": { "set": "shop/web", "created": 2, "is_new": true, "share": 0.5 },
        "TraceId": "0a",
        "SpanId": "0b",
        "TraceFlags": 1,
        "InstrumentationScope": { "Name": "operator_kit::telemetry::logs::tests" },
        "Resource": {
            "service.instance.id": "me",
            "service.name": "operator",
            "service.version": "1.2",
        },
    });
    assert_eq!(record, expected);
}

#[test]
fn a_text_line_ends_with_the_trace_if_there_is_one() {
    let scaled = |ids| logged(false, "info", ids, |_| info!(created = 2, "scaled"));
    assert_eq!(scaled(UNTRACED), [" INFO scaled created=2"]);
    assert_eq!(scaled(TRACED), [" INFO scaled created=2 trace_id=0a span_id=0b"]);
}

#[test]
fn an_event_is_one_line_whatever_it_carries() {
    const FORGED: &str = "denied\n INFO elected\r\u{1b}[2J\u{9b}\u{2028}\u{202e}é";
    let say = |_: &Level| warn!(reason = %FORGED, set = FORGED, error = ?FORGED, "it was {FORGED}");
    for ids in [UNTRACED, TRACED] {
        let lines = logged(false, "info", ids, say);
        let [line] = &lines[..] else { panic!("one line: {lines:?}") };
        assert!(!line.contains(is_unprintable), "{line:?}");
        assert_eq!(line.matches(r"denied\n INFO elected\r").count(), 4, "{line}");
        assert!(line.contains('é'), "{line}");
        let lines = logged(true, "info", ids, say);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let record: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&record["Attributes"]["reason"], &record["Attributes"]["set"]), (&json!(FORGED), &json!(FORGED)));
    }
}

#[test]
fn the_level_can_change_at_any_time_and_spans_are_never_logged() {
    let lines = logged(false, "warn", UNTRACED, |level| {
        info!("not yet");
        level.set(&Directives("trace".to_owned())).unwrap();
        let _span = info_span!(target: spans::TARGET, "reconcile", controller = "podset").entered();
        debug!("now");
        level.set(&Directives("error".to_owned())).unwrap();
        warn!("no more");
    });
    assert_eq!(lines, ["DEBUG now"]);
}

#[test]
fn directives_have_no_spaces() {
    assert!(Directives::read("info,hyper=debug").is_ok());
    for text in ["info, hyper=debug", "info, é=debug", " info"] {
        assert_eq!(Directives::read(text), Err("give it without spaces: info,hyper=debug".to_owned()), "{text:?}");
    }
}

/// As a regular expression, `[{a=.*b........................}]` has 16 million states.
#[test]
fn field_values_are_compared_as_text() {
    assert!(Directives::read("info,[{a=(}]=debug").is_ok());
}

#[test]
fn the_default_format_is_json_in_a_pod_and_text_elsewhere() {
    assert_eq!([format(None, true), format(None, false)], [LogFormat::Json, LogFormat::Text]);
    for chosen in [LogFormat::Json, LogFormat::Text] {
        assert_eq!([true, false].map(|is_in_pod| format(Some(chosen), is_in_pod)), [chosen; 2]);
    }
}
