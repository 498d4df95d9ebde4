//! The traces of the work on a set. No I/O, no decision.
//!
//! Each reconcile that works on a generation links to the one that saw it first, until the status answers it. So a user's change can be
//! followed in the traces.

use tracing::{Span, field, record_all};

use super::{
    act::Done,
    plan::{Count, Hold, Plan},
};
use crate::telemetry::spans::{self, Place};

/// The generation in progress, and the span to link to.
#[derive(Clone, Debug, Default)]
pub struct TraceLink {
    generation: i64,
    /// The span of the first reconcile.
    first: Option<Place>,
    is_answered: bool,
}

impl TraceLink {
    /// Records that a reconcile of this generation begins.
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

    /// Records that the status answers this generation. Later reconciles have other causes, and do not link.
    pub fn answered(&mut self, generation: i64) {
        self.is_answered |= self.generation == generation;
    }
}

/// Records a plan in a span of its own. A plan that does nothing and waits for nothing gets none, because a set whose pods start is
/// planned often.
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

/// Records the result in the span of the reconcile.
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
