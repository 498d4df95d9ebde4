//! The promise that two replicas never write, and the rules behind it: each is a value here, so that a test can take it
//! out and show that the promise then breaks (`tests/simulation/elections`).
//!
//! **The promise.** Every write that takes effect was sent by the holder of the Lease at that time. It stands on clocks
//! that run at a sane rate (they may be minutes apart), and on requests that take effect before the lease of their sender
//! ends, for which each carries a time-out ([`Ends`](super::term::Ends)). The API server counts that time-out from the moment
//! its first filter receives the request, so the promise does not cover bytes that something before it holds back.
//!
//! | rule | where | attack |
//! |---|---|---|
//! | 1. A lease has expired when this process has seen the same version of it for the longer of its own and the written duration, counted from receipt; and only if a read just before the write still shows that version | [`Rules::wait`], [`Rules::is_free`] | E2 a watch that stalls; E6 different durations |
//! | 2. A write of the Lease carries the version of the read in the same operation, and there is one operation at a time | [`Rules::version`] | E3 two take what both saw expired |
//! | 3. A term runs from before the sending of the last good renewal, and one that is over stays over | [`Rules::term_from`], [`LeaderState::prolong`](super::LeaderState::prolong) | E4 an answer that comes late |
//! | 4. The leader's own watch or read that shows another holder, or none, ends its term at once; a Lease that was deleted or emptied is not taken before its former holder's duration is over, unless that holder released it | [`Rules::has_lost`], [`Observation::frees_at`] | E5 a Lease deleted, emptied, overwritten |
//! | 5. The lease is released only when no write can take effect any more. A write of which no byte left cannot | [`Rules::may_release`], [`WritePermit::leaves`] | E7 a create without an answer |
//! | 6. Leadership is asked where bytes leave | [`Rules::may_leave`], `gate.rs` | E1 frozen between the check and the socket |
//! | 7. Elapsed time includes the time for which the machine slept | `env.rs` | |
//! | 8. A Lease whose version goes back ends the process: the cluster is older than what it knows | [`Observation::read`] | |

use jiff::Timestamp;

use super::{
    LeaderState, WritePermit,
    observation::{Observation, Wait},
};

/// The rules that a test can exchange.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long a lease must be seen unchanged, from its own duration and the written one.
    pub wait: Wait,
    /// Whether the Lease may be taken: from the version that has expired, if any, as it was known before the read just made
    /// and as it is known by that read, and from the version that it showed. 0 is the version of no Lease.
    pub is_free: fn(before: Option<u64>, after: Option<u64>, read: u64) -> bool,
    /// The version that a write of the Lease carries, taken from what the read of its operation left.
    pub version: fn(read: &mut Option<String>) -> Version,
    /// From when on a term is counted.
    pub term_from: fn(sent: Timestamp, answered: Timestamp) -> Timestamp,
    /// Whether what was seen of the Lease says that this process no longer holds it.
    pub has_lost: fn(&Observation) -> bool,
    /// Whether the lease may be released.
    pub may_release: fn(&LeaderState) -> bool,
    /// Whether bytes of a write may leave now: the gate of each connection for writes asks this.
    pub may_leave: fn(&WritePermit) -> bool,
}

/// Which version a write of the Lease carries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Version {
    /// This one: the write fails if the Lease was changed since.
    Exactly(String),
    /// None was read: nothing is written.
    Unknown,
    /// Any: whatever was written since is overwritten. No operator does that; a test does.
    Any,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            wait: Ord::max,
            is_free: |_, after, read| after == Some(read),
            version: |read| read.take().map_or(Version::Unknown, Version::Exactly),
            term_from: |sent, _| sent,
            has_lost: |observation| !observation.is_ours(),
            may_release: LeaderState::is_settled,
            may_leave: WritePermit::is_valid,
        }
    }
}
