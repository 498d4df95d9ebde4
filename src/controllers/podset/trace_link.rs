//! What the traces tell of the work on a set. No I/O, and nothing is decided here.
//!
//! A user's change can be followed: each reconcile that works on a generation points at the one that saw it first, until
//! the status has answered it.

use tracing::{Span, field, record_all};

use super::{
    act::Done,
    plan::{Count, Hold, Plan},
};
use crate::telemetry::spans::{self, Place};

/// The generation that is being worked on.
#[derive(Clone, Debug, Default)]
pub struct TraceLink {
    generation: i64,
    /// The span of the reconcile that saw it first.
    first: Option<Place>,
    is_answered: bool,
}

impl TraceLink {
    /// A reconcile of this generation begins: its span is the first, or points at the first.
    pub fn begin(&mut self, generation: i64) {
        spans::note("object.generation", generation);
        if self.generation != generation {
            *self = TraceLink { generation, ..TraceLink::default() };
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

/// Says in a span of its own what was decided, unless that is to do nothing and to wait for nothing: a set whose pods are
/// starting is looked at again and again.
pub fn tell_plan(plan: &Plan) {
    let Plan { count: Count { wanted, live, .. }, create, delete, look, probe, relabel, hold, .. } = plan;
    if !plan.has_work() && *hold == Hold::Nothing {
        return;
    }
    let span = spans::plan();
    record_all!(
        span,
        plan.wanted = spans::count(*wanted),
        plan.live = spans::count(*live),
        plan.create = spans::count(create.len()),
        plan.delete = spans::count(delete.len()),
        plan.look = spans::count(look.len() + probe.len()),
        plan.relabel = spans::count(relabel.len()),
    );
    if *hold != Hold::Nothing {
        span.record("plan.hold", field::debug(hold));
    }
}

/// Says in the span of the reconcile what was done.
pub fn note_done(done: &Done) {
    let (created, deleted) = (spans::count(done.created.len()), spans::count(done.deleted.len()));
    let span = Span::current();
    record_all!(span, pods.created = created, pods.deleted = deleted);
    let rejected_create = done.rejected_create.as_ref().map(|rejected_create| rejected_create.message.as_str());
    match rejected_create.or(done.rejected_delete.as_deref()) {
        Some(reason) if done.has_failed || done.rejected_delete.is_some() => spans::failed(reason),
        None if done.has_failed => spans::failed("a request for a pod failed"),
        _ => {}
    }
}
