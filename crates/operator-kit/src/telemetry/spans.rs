//! Spans of the operator's work.
//!
//! Without an exporter no span is created, and the functions here do almost nothing. The target of a span selects it for the exporter and
//! hides it from the log, unless a directive of the log names the span. Record several fields in one call: each call costs as much as a new
//! span.

use opentelemetry::{
    Context,
    trace::{SpanContext, Status, TraceContextExt},
};
use tracing::{Span, Value};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of spans. No event has it.
pub const TARGET: &str = "podset_operator::spans";

/// Records a field of the current span.
pub fn record(field: &'static str, value: impl Value) {
    Span::current().record(field, value);
}

/// A count as a span attribute.
pub fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Marks the current span as failed.
pub fn failed(reason: &str) {
    Span::current().set_status(Status::error(reason.to_owned()));
}

/// A reference to a span, which may have ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SpanRef(SpanContext);

impl SpanRef {
    /// The current span, if there is one with a valid context.
    pub fn current() -> Option<Self> {
        Self::new(&Span::current())
    }

    /// A reference to this span, if it has a valid context.
    pub fn new(span: &Span) -> Option<Self> {
        let context = span.context().span().span_context().clone();
        context.is_valid().then_some(SpanRef(context))
    }

    /// Makes this one the parent of a span that has just been made.
    pub fn adopt(self, span: &Span) {
        // This fails if no spans are exported.
        let _ = span.set_parent(Context::new().with_remote_span_context(self.0));
    }

    /// Links the current span to this one.
    pub fn link(&self) {
        Span::current().add_link(self.0.clone());
    }

    /// The id of its trace, if it is exported.
    pub fn exported_trace(&self) -> Option<String> {
        self.0.is_sampled().then(|| self.0.trace_id().to_string())
    }
}

/// Returns the ids of the trace and of the current span, and the trace flags, for the log.
pub(super) type CurrentIds = fn() -> Option<(String, String, u8)>;

pub(super) fn current_ids() -> Option<(String, String, u8)> {
    let SpanRef(context) = SpanRef::current()?;
    Some((context.trace_id().to_string(), context.span_id().to_string(), context.trace_flags().to_u8()))
}
