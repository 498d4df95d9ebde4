//! "One writer" as a check: every write that took effect was sent by the one who held the Lease at that time; and nobody
//! takes a Lease that has not run out.
//!
//! What is exact: Lease and objects are in one etcd, so the resourceVersion after a write tells between which two changes of
//! the Lease it took effect. Where a write left no resourceVersion of its own (a delete, or a patch that changed nothing)
//! time decides, and in favour of the sender: it took effect at some moment between its receipt and its answer, and so did the
//! changes of the Lease. No I/O, no clock.

use std::path::Path;

use anyhow::{Result, bail};
use k8s_openapi::jiff::SignedDuration;

use super::lease::{Change, History};
use super::{AGENT, Request, entries, read};

/// For so long after a person changed the Lease its former holder may not know of it.
const NEWS: SignedDuration = SignedDuration::from_secs(1);

/// What belongs to the election itself, or changes nothing for all that it is a create.
const NO_WRITES: [&str; 5] =
    ["leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// What the check has found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Writes that were judged: a check of nothing proves nothing.
    pub judged: usize,
    /// Writes of a leader that did not know yet what a person had done to the Lease.
    pub exempt: usize,
    /// What was wrong, one line for each write of an object or of the Lease.
    pub violations: Vec<String>,
}

impl Verdict {
    /// Judges all writes of operators in a namespace by the Lease there.
    pub fn read(log: &Path, namespace: &str, lease: &str) -> Result<Self> {
        let history = History::read(log, namespace, lease)?;
        let mut requests = entries(&read(log)?, namespace, |line| line.contains(AGENT))?;
        requests.retain(is_write);
        Ok(Self::of(&requests, &history))
    }

    /// Judges these writes.
    pub fn of(writes: &[Request], history: &History) -> Self {
        let mut verdict = Self { violations: history.thefts(), ..Self::default() };
        for write in writes {
            verdict.judged += 1;
            match judge(write, history) {
                Ok(()) => {}
                Err(_) if is_exempt(write, history) => verdict.exempt += 1,
                Err(why) => verdict.violations.push(format!("{write}: {why}")),
            }
        }
        verdict
    }

    /// An error where anybody wrote who was not the leader; else how many writes were judged.
    pub fn held(&self) -> Result<usize> {
        match self.violations.first() {
            None => Ok(self.judged),
            Some(first) => bail!("TWO WRITERS: {} of {} writes, first {first}", self.violations.len(), self.judged),
        }
    }
}

fn is_write(request: &Request) -> bool {
    request.took_effect() && !NO_WRITES.contains(&request.object_ref.resource.as_str())
}

fn judge(write: &Request, history: &History) -> Result<(), String> {
    let changes = &history.0;
    let is_leader = |change: &&Change| change.leader.as_deref() == Some(write.user());
    // All before this one were over before the write arrived.
    let sure = changes.iter().rposition(|change| change.answered < write.received()).unwrap_or(0);
    let own_version = write.version().filter(|version| changes.get(sure).is_some_and(|c| c.version < Some(*version)));
    let possible = match own_version {
        Some(version) => {
            let last = changes.iter().rposition(|change| change.version.is_some_and(|it| it < version)).unwrap_or(0);
            &changes[last.max(sure)..=last.max(sure)]
        }
        None => {
            let last = changes.iter().rposition(|change| change.received <= write.answered()).unwrap_or(0);
            changes.get(sure..=last.max(sure)).unwrap_or_default()
        }
    };
    if !possible.iter().any(|change| is_leader(&change)) {
        let leaders: Vec<_> = possible.iter().map(|change| change.leader.as_deref().unwrap_or("nobody")).collect();
        return Err(format!("the Lease was held by {leaders:?}"));
    }
    // A renewal is sent before it is received, and a term counts from the sending: so it cannot have ended later.
    let renewed = changes.iter().rfind(|change| is_leader(change) && change.received <= write.received());
    match renewed {
        Some(renewed) if write.received() > renewed.received + renewed.lasts => {
            let late = write.received().duration_since(renewed.received + renewed.lasts);
            Err(format!("its lease had run out {late:?} before"))
        }
        _ => Ok(()),
    }
}

fn is_exempt(write: &Request, history: &History) -> bool {
    history.0.windows(2).any(|pair| {
        let (before, edit) = (&pair[0], &pair[1]);
        let was_leader = before.leader.as_deref() == Some(write.user());
        was_leader && edit.is_by_hand() && write.received() <= edit.answered + NEWS
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A request of `user` that was received `at` milliseconds and answered 10 ms later.
    fn request(user: &str, verb: &str, at: i64, version: u64, spec: serde_json::Value) -> Request {
        let time = |ms: i64| format!("2026-01-01T00:00:{:02}.{:03}000Z", ms / 1000, ms % 1000);
        serde_json::from_value(json!({
            "verb": verb, "requestURI": "/x", "user": {"username": user},
            "requestReceivedTimestamp": time(at), "stageTimestamp": time(at + 10), "responseStatus": {"code": 200},
            "responseObject": {"metadata": {"resourceVersion": version.to_string()}, "spec": spec}
        }))
        .unwrap()
    }

    const A: &str = "system:serviceaccount:here:a";
    const B: &str = "system:serviceaccount:here:b";

    fn lease(user: &str, at: i64, version: u64, holder: &str) -> Request {
        request(user, "patch", at, version, json!({"holderIdentity": holder, "leaseDurationSeconds": 15}))
    }

    fn given_back(user: &str, at: i64, version: u64) -> Request {
        request(user, "patch", at, version, json!({"holderIdentity": "", "leaseDurationSeconds": 1}))
    }

    /// A takes it at 1 s and gives it back at 5 s, B takes it right after.
    fn handed_over() -> History {
        History::of(&[lease(A, 1_000, 10, "a_1"), given_back(A, 5_000, 50), lease(B, 5_015, 51, "b_1")])
    }

    fn violations(write: Request, history: &History) -> usize {
        Verdict::of(&[write], history).violations.len()
    }

    #[test]
    fn the_resource_version_tells_under_which_leader_a_write_took_effect() {
        let history = handed_over();
        let write = |user, at, version| violations(request(user, "create", at, version, json!(null)), &history);
        assert_eq!(write(A, 4_995, 49), 0);
        assert_eq!(write(A, 4_995, 52), 1, "sent in time, and took effect under the next leader");
        assert_eq!(write(B, 5_030, 52), 0);
        assert_eq!(write(B, 4_000, 40), 1, "nobody but the leader");
        assert_eq!(write(A, 500, 5), 1, "nor before there is one");
        assert_eq!(history.terms().len(), 2);
        assert_eq!(history.released(A).map(|at| at.as_millisecond() % 60_000), Some(5_010));
    }

    #[test]
    fn a_write_without_a_version_of_its_own_is_judged_by_time_in_favour_of_the_sender() {
        let history = handed_over();
        let delete = |user, at| violations(request(user, "delete", at, 7, json!(null)), &history);
        assert_eq!(delete(A, 5_005), 0, "it may have been deleted before the release");
        assert_eq!(delete(A, 5_040), 1);
        assert_eq!(delete(B, 5_040), 0);
        assert_eq!(delete(B, 4_000), 1);
    }

    #[test]
    fn a_lease_that_nobody_renewed_is_nobodys() {
        let history = History::of(&[lease(A, 1_000, 10, "a_1")]);
        assert_eq!(violations(request(A, "create", 15_900, 20, json!(null)), &history), 0);
        assert_eq!(violations(request(A, "create", 16_100, 20, json!(null)), &history), 1);
    }

    #[test]
    fn a_lease_is_waited_out_or_given_back() {
        let thefts = |writes: &[Request]| History::of(writes).thefts().len();
        assert_eq!(thefts(&[lease(A, 1_000, 10, "a_1"), lease(B, 16_100, 50, "b_1")]), 0);
        assert_eq!(thefts(&[lease(A, 1_000, 10, "a_1"), lease(B, 15_900, 50, "b_1")]), 1);
        assert_eq!(thefts(&[lease(A, 1_000, 10, "a_1"), given_back(A, 3_000, 20), lease(B, 3_100, 50, "b_1")]), 0);
        let deleted = request("kubernetes-admin", "delete", 1_004, 0, json!(null));
        let renewed_meanwhile = lease(A, 1_006, 11, "a_1");
        let made_again = request(B, "create", 9_000, 60, json!({"holderIdentity": "b_1", "leaseDurationSeconds": 15}));
        let history = History::of(&[lease(A, 1_000, 10, "a_1"), deleted, renewed_meanwhile, made_again]);
        assert_eq!(history.terms().len(), 2, "a deletion comes right before what makes the Lease again");
        assert_eq!(history.thefts().len(), 1);
    }

    #[test]
    fn after_an_edit_by_hand_its_former_holder_has_a_second() {
        let deleted = request("kubernetes-admin", "delete", 5_000, 0, json!(null));
        for edit in [lease("kubernetes-admin", 5_000, 50, "nobody"), deleted] {
            let taken = request(B, "create", 20_000, 80, json!({"holderIdentity": "b_1", "leaseDurationSeconds": 15}));
            let history = History::of(&[lease(A, 1_000, 10, "a_1"), edit, taken]);
            assert_eq!(history.thefts().len(), 0);
            assert_eq!(violations(request(A, "create", 5_900, 55, json!(null)), &history), 0);
            assert_eq!(violations(request(A, "create", 6_100, 56, json!(null)), &history), 1);
            assert_eq!(violations(request(B, "create", 5_900, 55, json!(null)), &history), 1, "not for others");
        }
    }
}
