//! Links between the traces of a set. No I/O, no decision.
//!
//! Each reconcile of a generation links to the first one, until the set is ready. So a user's change can be followed in the traces.

use operator_kit::telemetry::spans::{self, SpanRef};

/// The generation in progress, and the span to link to.
#[derive(Clone, Debug, Default)]
pub struct TraceLink {
    generation: i64,
    /// The span of the first reconcile.
    first: Option<Box<SpanRef>>,
    is_answered: bool,
}

impl TraceLink {
    /// Records that a reconcile of this generation begins.
    pub fn begin(&mut self, generation: i64) {
        spans::record("object.generation", generation);
        if self.generation != generation {
            *self = TraceLink { generation, ..TraceLink::default() };
        }
        match &self.first {
            Some(first) if !self.is_answered => first.link(),
            Some(_) => {}
            None => self.first = SpanRef::current().map(Box::new),
        }
    }

    /// Records that the set is ready for this generation. Later reconciles have other causes, and do not link.
    pub fn answered(&mut self, generation: i64) {
        self.is_answered |= self.generation == generation;
    }
}
