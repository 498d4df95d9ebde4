//! What this process has seen of the Lease, when, and what follows from it. Pure: no I/O, no clock of its own.
//!
//! In: every look at the Lease, by watch, by read, by the answer to an own write. Out: when it is free to be taken
//! ([`Observation::frees_at`]), and whether it is still ours ([`Observation::is_ours`]).

use jiff::{SignedDuration, Timestamp};

use super::{lease::Lease, promise::Rules};

/// What was seen last.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Sight {
    /// There is no Lease.
    Absent,
    /// There is one.
    Present(Lease),
}

/// The Lease is older than what this process knows of it: somebody put back a backup.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the Lease went back from resourceVersion {known} to {read}, as after a backup was restored: \
     what this process knows of the cluster is no longer true"
)]
pub struct WentBack {
    known: u64,
    read: u64,
}

/// All that is known of the Lease.
#[derive(Clone, Debug)]
pub struct Observation {
    us: String,
    own: SignedDuration,
    rules: Rules,
    /// What was seen last, and since when it has looked like that.
    sight: Option<(Sight, Timestamp)>,
    /// When anything was heard of it last.
    heard: Option<Timestamp>,
    /// The highest version seen so far.
    highest: u64,
    /// How long whoever was seen to hold it last may go on, from when that is no longer seen.
    held: Option<SignedDuration>,
    /// The UID of the Lease that we hold, once we do.
    ours: Option<String>,
    /// Whether nobody knows what became of our last write.
    in_doubt: bool,
}

impl Observation {
    /// Nothing was seen yet by the candidate `us`, whose own lease duration is `own`.
    pub fn new(us: impl Into<String>, own: SignedDuration, rules: Rules) -> Self {
        let us = us.into();
        Observation { us, own, rules, sight: None, heard: None, highest: 0, held: None, ours: None, in_doubt: false }
    }

    /// A watch shows the Lease. What is not newer than what is known was overtaken on its way.
    pub fn watched(&mut self, lease: Lease, now: Timestamp) {
        self.heard = Some(now);
        if lease.version() > self.highest {
            self.see(lease, now);
        }
    }

    /// A watch shows that there is no Lease as of this version.
    pub fn watched_absent(&mut self, version: u64, now: Timestamp) {
        self.heard = Some(now);
        if version > self.highest {
            self.highest = version;
            self.see_absent(now);
        }
    }

    /// A read shows the Lease, or that there is none; `known` was the highest version when the read was sent.
    ///
    /// # Errors
    ///
    /// When the Lease is older than that: a read is consistent, and one that was made anew has a higher version.
    pub fn read(&mut self, lease: Option<Lease>, known: u64, now: Timestamp) -> Result<(), WentBack> {
        self.heard = Some(now);
        match lease {
            Some(lease) if lease.version() < known => return Err(WentBack { known, read: lease.version() }),
            // A watch may have shown something newer meanwhile.
            Some(lease) if lease.version() >= self.highest => self.see(lease, now),
            None if known == self.highest => self.see_absent(now),
            Some(_) | None => {}
        }
        Ok(())
    }

    /// An own write is about to be sent.
    pub fn writes(&mut self) {
        self.in_doubt = true;
    }

    /// It was refused for certain.
    pub fn refused(&mut self) {
        self.in_doubt = false;
    }

    /// It was answered with this Lease, which names us: we hold it.
    pub fn wrote(&mut self, lease: Lease, now: Timestamp) {
        self.in_doubt = false;
        self.ours = Some(lease.metadata.uid.clone());
        self.watched(lease, now);
    }

    fn see(&mut self, lease: Lease, now: Timestamp) {
        // A write of ours asks for the state that it was made for: where there was another one since, it changes nothing any more. (One
        // that makes the Lease might, if it goes once more. It would be nobody's: only whom courtesy lets go first hangs on this.)
        if lease.version() > self.highest && lease.holder() != Some(self.us.as_str()) {
            self.in_doubt = false;
        }
        self.highest = lease.version();
        if lease.is_released() {
            self.held = None;
        } else if lease.holder().is_some() {
            self.held = Some(lease.duration());
        }
        let sight = Sight::Present(lease);
        if self.sight.as_ref().is_none_or(|(seen, _)| *seen != sight) {
            self.sight = Some((sight, now));
        }
    }

    fn see_absent(&mut self, now: Timestamp) {
        if !matches!(self.sight, Some((Sight::Absent, _))) {
            self.sight = Some((Sight::Absent, now));
        }
    }

    /// When anything was heard of the Lease last, if ever. Its leader renews it all the time, so silence means that the watch
    /// is mute, or that there is no leader.
    pub fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// How long the lease lasts that was seen last.
    pub fn written(&self) -> SignedDuration {
        self.held.unwrap_or_default()
    }

    /// The highest version seen so far.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether what was seen last is the Lease that we took, and still names us.
    pub fn is_ours(&self) -> bool {
        let names_us =
            |lease: &Lease| lease.holder() == Some(self.us.as_str()) && self.ours.as_ref() == Some(&lease.metadata.uid);
        matches!(&self.sight, Some((Sight::Present(lease), _)) if names_us(lease))
    }

    /// Whether nobody knows what became of our last write: no answer was heard, or one that does not say.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Whether there is no Lease.
    pub fn is_absent(&self) -> bool {
        matches!(self.sight, Some((Sight::Absent, _)))
    }

    /// What stands in the Lease now, for people.
    pub fn holder(&self) -> String {
        match &self.sight {
            None => "not known yet".to_owned(),
            Some((Sight::Absent, _)) => "nobody: there is no Lease".to_owned(),
            Some((Sight::Present(lease), _)) => lease.holder().unwrap_or("nobody").to_owned(),
        }
    }

    /// From when on the Lease is free to be taken, if nothing changes; `None` when nothing was seen of it yet.
    pub fn frees_at(&self) -> Option<Timestamp> {
        let (sight, since) = self.sight.as_ref()?;
        let after = |written| since.saturating_add((self.rules.wait)(self.own, written)).unwrap_or(Timestamp::MAX);
        // Nobody was ever seen to hold it, or whoever did released it: there is nobody to wait for.
        let vacant = self.held.map_or(*since, after);
        Some(match sight {
            Sight::Absent => vacant,
            // Also where it names us, by an own write whose answer was lost: taking it again and again would keep it from
            // those who hear their answers.
            Sight::Present(lease) => lease.holder().map_or(vacant, |_| after(lease.duration())),
        })
    }

    /// The version that has been seen for long enough, if any: 0 for a Lease that is absent.
    pub fn expired(&self, now: Timestamp) -> Option<u64> {
        self.frees_at().filter(|free| *free <= now)?;
        match &self.sight {
            Some((Sight::Present(lease), _)) => Some(lease.version()),
            _ => Some(0),
        }
    }
}

#[cfg(test)]
mod tests;
