//! Spans of the operator's work.
//!
//! Without an exporter no span is created, and each function here only checks a flag. Spans of reconciles and plans come from `tracing`;
//! their target selects them for the exporter and hides them from the log. Record several fields at once: one attribute alone costs as much
//! as the whole span. Spans of requests, which are many and have no children, use OpenTelemetry directly, which costs less than half.

use std::sync::OnceLock;

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanKind, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use tracing::{Span, Value, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of the spans from `tracing`. No event has it.
pub const TARGET: &str = "podset_operator::spans";

/// The span of a plan, within a reconcile.
pub fn plan() -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    info_span!(
        target: TARGET,
        "plan",
        plan.wanted = Empty,
        plan.live = Empty,
        plan.create = Empty,
        plan.delete = Empty,
        plan.look = Empty,
        plan.relabel = Empty,
        plan.hold = Empty,
    )
}

/// The tracer for requests, if traces are exported.
static REQUESTS: OnceLock<SdkTracer> = OnceLock::new();

pub(super) fn begin(tracer: SdkTracer) {
    // The first tracer stays, like the first log subscriber.
    let _ = REQUESTS.set(tracer);
}

/// The span of a request to the API server, without a name yet, in `parent` or else the current span. `None` without an exporter.
pub fn request(parent: Option<SpanRef>) -> Option<SdkSpan> {
    let tracer = REQUESTS.get()?;
    let span = tracer.span_builder("").with_kind(SpanKind::Client);
    let parent = match parent {
        Some(SpanRef(parent)) => Context::new().with_remote_span_context(parent),
        None => Span::current().context(),
    };
    Some(tracer.build_with_context(span, &parent))
}

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
    /// The current span, if there is one.
    pub fn current() -> Option<Self> {
        Some(Span::current()).filter(|span| !span.is_none()).as_ref().and_then(Self::new)
    }

    /// A reference to this span, if it has a valid context.
    pub fn new(span: &Span) -> Option<Self> {
        let context = span.context().span().span_context().clone();
        context.is_valid().then_some(SpanRef(context))
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

/// See [`CurrentIds`].
pub(super) fn current_ids() -> Option<(String, String, u8)> {
    let SpanRef(context) = SpanRef::current()?;
    Some((context.trace_id().to_string(), context.span_id().to_string(), context.trace_flags().to_u8()))
}
