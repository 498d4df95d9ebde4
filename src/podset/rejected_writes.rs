//! Writes to single pods that the API server rejected, or that failed after an earlier failure. Both are called rejections here. No I/O.
//!
//! A rejection delays one pod only: the plan skips it until its delay ends, and prefers other pods for a while. A new leader starts without
//! this state and learns it again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::rejection::BACKOFF;
use operator_kit::{failures::doubled, meta::Uid};

/// The rejected deletes of the pods of one set, or the rejected restores of their label.
#[derive(Clone, Debug, Default)]
pub struct RejectedWrites {
    by_uid: BTreeMap<Uid, RejectedWrite>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct RejectedWrite {
    /// The reason, from the API server or the client, without the parts that change each time.
    message: String,
    /// The resourceVersion of the pod for which the write was planned.
    version: u64,
    at: Timestamp,
    /// The delay until the next try, without jitter.
    wait: SignedDuration,
    /// When the write is tried again.
    until: Timestamp,
    /// Whether the delays are at their limit, and the last try may have taken effect.
    is_undecided: bool,
}

impl RejectedWrites {
    /// The write to this pod was rejected, when it had this resourceVersion. The delay doubles, up to a limit. Returns whether
    /// [`Self::message`] is new. `jittered` adds jitter to a delay.
    pub fn note(
        &mut self,
        uid: Uid,
        version: u64,
        message: String,
        now: Timestamp,
        jittered: impl Fn(SignedDuration) -> SignedDuration,
    ) -> bool {
        let former = self.message().map(str::to_owned);
        let wait = doubled(self.by_uid.get(&uid).map(|former| former.wait), BACKOFF);
        let until = now + jittered(wait);
        self.by_uid.insert(uid, RejectedWrite { message, version, at: now, wait, until, is_undecided: false });
        self.message() != former.as_deref()
    }

    /// The delete of this pod may still take effect, so no other pod is deleted in its place until the quarantine is over. Once the delay is
    /// at its limit, the next try waits longer by the quarantine. In that time another pod can be deleted.
    pub fn leave_time_for_others(&mut self, uid: &Uid, quarantine: SignedDuration) {
        let (_, longest) = BACKOFF;
        if let Some(rejection) = self.by_uid.get_mut(uid).filter(|rejection| rejection.wait >= longest) {
            rejection.until += quarantine;
            rejection.is_undecided = true;
        }
    }

    pub fn count(&self) -> usize {
        self.by_uid.len()
    }

    /// When the last write to this pod was rejected. `None`, which sorts before all times: it was not.
    pub fn at(&self, uid: &Uid) -> Option<Timestamp> {
        self.by_uid.get(uid).map(|rejection| rejection.at)
    }

    /// The order in which pods are tried: pods without a recent rejection (`None`) first, then the pod whose last try is the oldest. A
    /// rejection is recent until its next try has been due for 30 s times the number of rejected pods. So each pod gets its turn, and slow
    /// tries do not hold up the others.
    pub fn rank(&self, uid: &Uid, now: Timestamp) -> Option<Timestamp> {
        let rejection = self.by_uid.get(uid)?;
        let (_, longest) = BACKOFF;
        let turn = longest.saturating_mul(i32::try_from(self.by_uid.len()).unwrap_or(i32::MAX));
        (now.duration_since(rejection.until) < turn).then_some(rejection.at)
    }

    /// Whether writes to this pod were rejected more than once.
    pub fn is_repeated(&self, uid: &Uid) -> bool {
        let (first, _) = BACKOFF;
        self.by_uid.get(uid).is_some_and(|rejection| rejection.wait > first)
    }

    pub fn contains(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// When the write to this pod, which now has this resourceVersion, is tried again; `None`: now. A change of the pod may have removed
    /// its protection, so it shortens the delay to the shortest one, unless the last try may still take effect.
    pub fn waits_until(&self, uid: &Uid, version: u64, now: Timestamp) -> Option<Timestamp> {
        let rejection = self.by_uid.get(uid)?;
        let (shortest, _) = BACKOFF;
        let is_changed = version > rejection.version && !rejection.is_undecided;
        let until = if is_changed { rejection.until.min(rejection.at + shortest) } else { rejection.until };
        (now < until).then_some(until)
    }

    /// Forgets this pod: a write to it was accepted, or it is gone.
    pub fn forget(&mut self, uid: &Uid) {
        self.by_uid.remove(uid);
    }

    /// Forgets all pods but these: the others are gone, or need no write any more.
    pub fn retain(&mut self, pods: &BTreeSet<Uid>) {
        self.by_uid.retain(|uid, _| pods.contains(uid));
    }

    /// The reason of the rejections: the first in alphabetical order, so that the status does not alternate. `None`: there is none.
    pub fn message(&self) -> Option<&str> {
        self.by_uid.values().map(|rejection| rejection.message.as_str()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    fn after(seconds: i64) -> Timestamp {
        testing::now() + SignedDuration::from_secs(seconds)
    }

    /// The delete of pod `a` at this version is rejected at this time.
    fn reject(rejected: &mut RejectedWrites, version: u64, at: Timestamp) -> bool {
        rejected.note("a".into(), version, "no".to_owned(), at, |wait| wait)
    }

    #[test]
    fn delays_double_up_to_thirty_seconds_for_each_pod_alone() {
        let mut rejected = RejectedWrites::default();
        let waits: Vec<i64> = (0..7)
            .map(|_| {
                reject(&mut rejected, 5, after(0));
                rejected.waits_until(&"a".into(), 5, after(0)).unwrap().duration_since(after(0)).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(rejected.waits_until(&"a".into(), 5, after(30)), None, "it is retried then");
        assert_eq!(rejected.waits_until(&"b".into(), 5, after(0)), None);
    }

    #[test]
    fn a_change_of_the_pod_ends_the_delay() {
        let mut rejected = RejectedWrites::default();
        for _ in 0..5 {
            reject(&mut rejected, 5, after(0));
        }
        assert_eq!(rejected.waits_until(&"a".into(), 5, after(2)), Some(after(16)));
        assert_eq!(rejected.waits_until(&"a".into(), 6, after(2)), None);
        assert_eq!(
            rejected.waits_until(&"a".into(), 6, after(0)),
            Some(after(1)),
            "a pod that changes often does not cause many requests"
        );
    }

    #[test]
    fn a_message_is_new_once() {
        let mut rejected = RejectedWrites::default();
        assert!(reject(&mut rejected, 5, after(0)));
        assert!(!reject(&mut rejected, 5, after(1)));
        for second in 3..9 {
            let is_new = rejected.note("b".into(), 5, "never".to_owned(), after(second), |wait| wait);
            assert_eq!(is_new, second == 3);
            assert!(!reject(&mut rejected, 5, after(second)), "two pods do not alternate their messages");
        }
        assert_eq!(rejected.message(), Some("never"));
        rejected.retain(&BTreeSet::from(["a".into()]));
        assert_eq!((rejected.contains(&"b".into()), rejected.message()), (false, Some("no")));
        rejected.forget(&"a".into());
        assert_eq!(rejected.message(), None);
        assert!(reject(&mut rejected, 5, after(9)));
    }
}
