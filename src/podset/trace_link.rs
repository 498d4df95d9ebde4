//! What the traces tell of the work on a set. No I/O, and nothing is decided here.
//!
//! A user's change can be followed: each reconcile that works on a generation points at the one that saw it first, until
//! the status has answered it.

use operator_kit::telemetry::spans::{self, Place};

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
