//! The spans of the operator's work: what they are called, and what is noted in them. Here nothing is sent anywhere.
//!
//! While no traces are exported no span is ever made: each function here costs a look at a flag. Those of reconciles and
//! plans are tracing's. They have one target, by which the exporter picks them out and the log leaves them out; what is noted
//! of them is a field, all that is known at a time in one stroke: an attribute that is set by itself costs as much as the whole
//! span. Requests are many and nothing is within them: their spans are OpenTelemetry's own, which cost less than half as much.

use std::sync::OnceLock;

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanKind, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use tracing::{Span, Value, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of the spans of tracing. No event has it.
pub const TARGET: &str = "podset_operator::spans";

/// The decision what to do, within a reconcile.
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

/// What makes the spans of requests, if any are made.
static REQUESTS: OnceLock<SdkTracer> = OnceLock::new();

/// From now on requests have spans, which `tracer` makes.
pub(super) fn begin(tracer: SdkTracer) {
    // Who comes first stays, as with the log.
    let _ = REQUESTS.set(tracer);
}

/// A request to the API server, without a name yet, within what was being done at that place, or what is being done now; `None`
/// where no spans are made.
pub fn request(within: Option<Place>) -> Option<SdkSpan> {
    let tracer = REQUESTS.get()?;
    let span = tracer.span_builder("").with_kind(SpanKind::Client);
    let within = match within {
        Some(Place(within)) => Context::new().with_remote_span_context(within),
        None => Span::current().context(),
    };
    Some(tracer.build_with_context(span, &within))
}

/// Notes something in the span of the reconcile, in a field that it has.
pub fn note(field: &'static str, value: impl Value) {
    Span::current().record(field, value);
}

/// A number of things, as spans hold numbers.
pub fn count(things: usize) -> i64 {
    i64::try_from(things).unwrap_or(i64::MAX)
}

/// Notes why what is being done has failed.
pub fn failed(reason: &str) {
    Span::current().set_status(Status::error(reason.to_owned()));
}

/// A span that may have ended, for others to point at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place(SpanContext);

impl Place {
    /// The span of what is being done, if it has one.
    pub fn current() -> Option<Self> {
        Some(Span::current()).filter(|span| !span.is_none()).as_ref().and_then(Self::of)
    }

    /// A span, if it is one.
    pub fn of(span: &Span) -> Option<Self> {
        let context = span.context().span().span_context().clone();
        context.is_valid().then_some(Place(context))
    }

    /// Lets the span of what is being done point at this one.
    pub fn link(&self) {
        Span::current().add_link(self.0.clone());
    }

    /// The id of its trace, if it is exported.
    pub fn exported_trace(&self) -> Option<String> {
        self.0.is_sampled().then(|| self.0.trace_id().to_string())
    }
}

/// What tells trace, span and flags of what is being done, for the log.
pub(super) type CurrentIds = fn() -> Option<(String, String, u8)>;

/// See [`CurrentIds`].
pub(super) fn current_ids() -> Option<(String, String, u8)> {
    let Place(context) = Place::current()?;
    Some((context.trace_id().to_string(), context.span_id().to_string(), context.trace_flags().to_u8()))
}
