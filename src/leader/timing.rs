//! The three durations of leader election.

use jiff::SignedDuration;

/// How long a lease lasts, until when it must be renewed, and how often that is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// How long the others wait for a leader that is not heard of.
    pub lease_duration: SignedDuration,
    /// How long a leader that cannot renew the lease goes on writing.
    pub renew_deadline: SignedDuration,
    /// The time from one try to the next.
    pub retry_period: SignedDuration,
}
