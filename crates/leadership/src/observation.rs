//! What this process has seen of the Lease. Pure: no I/O and no clock.
//!
//! In: each state of the Lease from a watch, a read or the answer to a write. Out: when the Lease becomes free
//! ([`Observation::frees_at`]), and whether this process still holds it ([`Observation::is_ours`]).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

use super::lease::{duration, holder, is_released, version};

/// The holder of a Lease that was not seen yet.
pub const UNSEEN: &str = "not known yet";

/// How long the Lease must be seen unchanged before it is free, from this process's lease duration and the written one: the longer of
/// both, [`Ord::max`].
pub type Wait = fn(own: SignedDuration, written: SignedDuration) -> SignedDuration;

/// The Lease is older than the version that this process knows. The process must exit, so that the next one starts with new caches.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the resourceVersion of the Lease went back from {known} to {read}, as after a restored backup: \
     the caches of this process are no longer valid"
)]
pub struct WentBack {
    known: u64,
    read: u64,
}

/// The state of the Lease as this process knows it.
#[derive(Clone, Debug)]
pub struct Observation {
    identity: String,
    /// The lease duration of this process.
    own_duration: SignedDuration,
    wait: Wait,
    /// The latest state of the Lease (inner `None`: there is none), and when this process first saw that state.
    latest: Option<(Option<Lease>, Timestamp)>,
    /// When a read, a write or a watch event last showed the Lease or its absence.
    pub(crate) heard: Option<Timestamp>,
    /// The highest version seen.
    highest: u64,
    /// The lease duration of the last holder; `None` if it released the Lease, or there was none.
    pub(crate) holder_duration: Option<SignedDuration>,
    /// The UID of the Lease that this process took.
    taken_uid: Option<String>,
}

impl Observation {
    /// The observation of a candidate that has seen nothing yet.
    pub fn new(identity: impl Into<String>, own_duration: SignedDuration, wait: Wait) -> Self {
        Observation {
            identity: identity.into(),
            own_duration,
            wait,
            latest: None,
            heard: None,
            highest: 0,
            holder_duration: None,
            taken_uid: None,
        }
    }

    /// A watch shows the Lease. It is ignored unless its version is higher than all seen.
    pub fn watched(&mut self, lease: Lease, now: Timestamp) {
        self.heard = Some(now);
        if version(&lease) > self.highest {
            self.see(lease, now);
        }
    }

    /// A watch shows that there is no Lease as of this version.
    pub fn watched_absent(&mut self, version: u64, now: Timestamp) {
        self.heard = Some(now);
        if version > self.highest {
            self.highest = version;
            self.update(None, now);
        }
    }

    /// A read shows the Lease, or that there is none; `known` was the highest version when the read was sent.
    ///
    /// # Errors
    ///
    /// If the Lease is older than `known`. A consistent read never goes back, not even to a recreated Lease, so a backup was restored.
    pub fn read(&mut self, lease: Option<Lease>, known: u64, now: Timestamp) -> Result<(), WentBack> {
        self.heard = Some(now);
        match lease {
            Some(lease) if version(&lease) < known => return Err(WentBack { known, read: version(&lease) }),
            // A watch may have shown something newer meanwhile.
            Some(lease) if version(&lease) >= self.highest => self.see(lease, now),
            None if known == self.highest => self.update(None, now),
            Some(_) | None => {}
        }
        Ok(())
    }

    /// The API server answered the write with this Lease, which names this process.
    pub fn wrote(&mut self, lease: Lease, now: Timestamp) {
        self.taken_uid = Some(lease.metadata.uid.clone().unwrap_or_default());
        self.watched(lease, now);
    }

    fn see(&mut self, lease: Lease, now: Timestamp) {
        self.highest = version(&lease);
        if is_released(&lease) {
            self.holder_duration = None;
        } else if holder(&lease).is_some() {
            self.holder_duration = Some(duration(&lease));
        }
        self.update(Some(lease), now);
    }

    fn update(&mut self, state: Option<Lease>, now: Timestamp) {
        if self.latest.as_ref().is_none_or(|(latest, _)| *latest != state) {
            self.latest = Some((state, now));
        }
    }

    /// The highest version seen so far.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    fn lease(&self) -> Option<&Lease> {
        self.latest.as_ref()?.0.as_ref()
    }

    /// Whether the Lease names this process.
    pub fn names_us(&self) -> bool {
        self.lease().is_some_and(|lease| holder(lease) == Some(&self.identity))
    }

    /// Whether the latest state is the Lease that this process took, and still names it.
    pub fn is_ours(&self) -> bool {
        let uid = self.lease().map(|lease| lease.metadata.uid.as_deref().unwrap_or_default());
        self.names_us() && uid == self.taken_uid.as_deref()
    }

    /// Whether there is no Lease.
    pub fn is_absent(&self) -> bool {
        matches!(self.latest, Some((None, _)))
    }

    /// The holder, for logs.
    pub fn holder(&self) -> String {
        match &self.latest {
            None => UNSEEN.to_owned(),
            Some((None, _)) => "none (there is no Lease)".to_owned(),
            Some((Some(lease), _)) => holder(lease).unwrap_or("none").to_owned(),
        }
    }

    /// When the Lease becomes free if nothing changes; `None` before its first state is known.
    pub fn frees_at(&self) -> Option<Timestamp> {
        let (state, since) = self.latest.as_ref()?;
        let after = |written| since.saturating_add((self.wait)(self.own_duration, written)).unwrap_or(Timestamp::MAX);
        // Also if the Lease names this process, because the answer to its write was lost: a process that does not receive its answers must
        // not take the Lease again and again.
        match state.as_ref().filter(|lease| holder(lease).is_some()) {
            Some(lease) => Some(after(duration(lease))),
            // Without a former holder, or after a release, there is nothing to wait for.
            None => Some(self.holder_duration.map_or(*since, after)),
        }
    }

    /// The version that has expired, if any; 0 for an absent Lease.
    pub fn expired(&self, now: Timestamp) -> Option<u64> {
        self.frees_at().filter(|free| *free <= now)?;
        Some(self.lease().map_or(0, version))
    }
}

#[cfg(test)]
mod tests;
