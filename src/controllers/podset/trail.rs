//! What the traces tell of the work on a set. No I/O, and nothing is decided here.
//!
//! A user's change can be followed: each reconcile that works on a generation points at the one that saw it first, until
//! the status has answered it.

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{
    act::Done,
    plan::{Count, Hold, Plan},
};
use crate::telemetry::spans::{self, Place};

/// The generation that is being worked on.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    generation: i64,
    /// The span of the reconcile that saw it first.
    first: Option<Place>,
    is_answered: bool,
}

impl Trail {
    /// A reconcile of this generation begins: its span is the first, or points at the first.
    pub fn begin(&mut self, generation: i64) {
        spans::note("object.generation", generation);
        if self.generation != generation {
            *self = Trail { generation, ..Trail::default() };
        }
        match &self.first {
            Some(first) if !self.is_answered => first.link(),
            Some(_) => {}
            None => self.first = Place::current(),
        }
    }

    /// The status has answered this generation. What comes from now on, a pod that dies, is another story.
    pub fn answered(&mut self, generation: i64) {
        self.is_answered |= self.generation == generation;
    }
}

/// Says in the span of a decision what was decided.
pub fn note_plan(span: &Span, plan: &Plan) {
    if span.is_none() {
        return;
    }
    let Plan { count: Count { wanted, live, .. }, create, delete, look, probe, relabel, hold, .. } = plan;
    for (key, things) in [
        ("plan.wanted", *wanted),
        ("plan.live", *live),
        ("plan.create", create.len()),
        ("plan.delete", delete.len()),
        ("plan.look", look.len() + probe.len()),
        ("plan.relabel", relabel.len()),
    ] {
        spans::count(span, key, things);
    }
    if *hold != Hold::Nothing {
        span.set_attribute("plan.hold", format!("{hold:?}"));
    }
}

/// Says in the span of the reconcile what was done.
pub fn note_done(done: &Done) {
    let span = Span::current();
    spans::count(&span, "pods.created", done.created.len());
    spans::count(&span, "pods.deleted", done.deleted.len());
    if done.has_failed {
        let reason = done.refusal.as_ref().map_or("a request for a pod failed", |refusal| refusal.message.as_str());
        spans::failed(reason);
    }
}
