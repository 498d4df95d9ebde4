//! The promise that two replicas never write at the same time, and its rules. Each rule is a value, so that a test can replace it and show
//! that the promise breaks. `tests/attacks` of this crate does so for E1 to E7, through the real connections and on virtual time.
//!
//! **The promise.** When a write takes effect, its sender holds the Lease. This assumes that clocks run at a sane rate (they may be minutes
//! apart), that nobody edits the Lease while a process leads, and that the API server receives a request without delay: it counts the
//! timeout of the request ([`Ends`](super::Ends)) from the moment its first filter receives it.
//!
//! | rule | where | attack |
//! |---|---|---|
//! | 1. A lease has expired when this process has seen the same version for the lease duration, counted from receipt. The longer of its own and the written duration counts. A read just before the write must still show that version | [`Rules::wait`], [`Rules::is_free`] | E2 a watch that stalls; E6 different durations |
//! | 2. A write of the Lease carries the version of the read in the same operation, and there is one operation at a time | [`Rules::version`] | E3 two candidates take a Lease that both saw expired |
//! | 3. A term counts from just before its last good renewal was sent, and does not revive after its end | [`Rules::term_from`], [`LeaderState::prolong`](super::LeaderState::prolong) | E4 a late answer |
//! | 4. The leader's own watch or read that shows another holder, or none, ends its term as soon as this process sees it. A Lease that was deleted or emptied is not taken before its former holder's duration is over, unless that holder released it | [`Rules::has_lost`], [`Observation::frees_at`] | E5 a Lease deleted, emptied, overwritten |
//! | 5. The lease is released only when no write can take effect any more. A write whose first byte was never sent cannot take effect | [`Rules::may_release`], [`WritePermit::try_leave`] | E7 a create without an answer |
//! | 6. Leadership is checked where bytes leave the process | [`Rules::may_leave`], `gate.rs` | E1 frozen between the check and the socket |
//! | 7. Elapsed time includes the time that the machine slept | `env.rs` | |
//! | 8. A Lease whose version goes back ends the process: the cluster is older than its caches | [`Observation::read`] | |

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::{
    LeaderState, WritePermit,
    observation::{Observation, Wait},
};

/// The rules that a test can replace.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long the Lease must be seen unchanged before it is free.
    pub wait: Wait,
    /// Whether the Lease may be taken. `read` is the version that the read returned, 0 if there is no Lease. `before` and `after` are the
    /// expired version before and after the read, if any. The default requires that `after` is `read`. Only tests use `before`.
    pub is_free: fn(before: Option<u64>, after: Option<u64>, read: u64) -> bool,
    /// The version that a write of the Lease carries, from the Lease that its operation read.
    pub version: fn(read: &Lease) -> Option<String>,
    /// When a term begins to count.
    pub term_from: fn(sent: Timestamp, answered: Timestamp) -> Timestamp,
    /// Whether this process no longer holds the Lease.
    pub has_lost: fn(&Observation) -> bool,
    /// Whether the lease may be released.
    pub may_release: fn(&LeaderState) -> bool,
    /// Whether bytes of a write may leave now, for the gate of each connection.
    pub may_leave: fn(&WritePermit) -> bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            wait: Ord::max,
            is_free: |_, after, read| after == Some(read),
            version: |read| read.metadata.resource_version.clone(),
            term_from: |sent, _| sent,
            has_lost: |observation| !observation.is_ours(),
            may_release: LeaderState::is_settled,
            may_leave: WritePermit::is_valid,
        }
    }
}
