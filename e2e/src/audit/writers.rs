//! Checks that every write was sent by the replica that held the Lease when it took effect, and that nobody took a Lease before it expired.
//!
//! Lease and objects are in one etcd, so the resourceVersion after a write shows between which two changes of the Lease it took effect.
//! For a write without its own resourceVersion (a delete, or a patch that changed nothing), time decides in favour of the sender: it took
//! effect between its receipt and its response, and so did the changes of the Lease.

use std::path::Path;

use anyhow::{Result, bail};
use k8s_openapi::jiff::SignedDuration;

use super::lease::{Change, History};
use super::{Request, entries, read};

/// For this time after a person changed the Lease, its former holder may not know.
const NEWS: SignedDuration = SignedDuration::from_secs(1);

/// Writes of the election itself, and creates that change nothing.
const NO_WRITES: [&str; 5] =
    ["leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// A ServiceAccount in the log.
const ACCOUNT: &str = r#""username":"system:serviceaccount:"#;

/// The result of the check.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Writes that were judged.
    pub judged: usize,
    /// Writes of a leader that did not know yet of an edit by hand.
    pub exempt: usize,
    /// A line for each wrong write.
    pub violations: Vec<String>,
}

impl Verdict {
    /// Judges all writes of ServiceAccounts in a namespace by the Lease there. Only operators have some.
    pub fn read(log: &Path, namespace: &str, lease: &str) -> Result<Self> {
        let history = History::read(log, namespace, lease)?;
        let mut requests = entries(&read(log)?, namespace, |line| line.contains(ACCOUNT))?;
        requests.retain(is_write);
        Ok(Self::of(&requests, &history))
    }

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

    /// Fails if there is a violation. Returns how many writes were judged.
    pub fn held(&self) -> Result<usize> {
        match self.violations.first() {
            None => Ok(self.judged),
            Some(first) => bail!("TWO WRITERS: {} of {} writes, first {first}", self.violations.len(), self.judged),
        }
    }
}

fn is_write(request: &Request) -> bool {
    request.took_effect() && !NO_WRITES.contains(&request.resource())
}

fn judge(write: &Request, history: &History) -> Result<(), String> {
    let changes = &history.0;
    let is_leader = |change: &&Change| change.leader.as_deref() == Some(write.user());
    // All before this one were over before the write was received.
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
    // A term counts from when a renewal was sent, which was before it was received.
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

    /// A request that was received `at` milliseconds and answered 10 ms later.
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
        let duration = if holder.is_empty() { 1 } else { 15 };
        request(user, "patch", at, version, json!({"holderIdentity": holder, "leaseDurationSeconds": duration}))
    }

    fn is_wrong(write: Request, history: &History) -> bool {
        !Verdict::of(&[write], history).violations.is_empty()
    }

    #[test]
    fn a_write_is_judged_by_its_resource_version_or_by_time() {
        // A takes it at 1 s and releases it at 5 s, B takes it right after.
        let history = History::of(&[lease(A, 1_000, 10, "a_1"), lease(A, 5_000, 50, ""), lease(B, 5_015, 51, "b_1")]);
        let create = |user, at, version| is_wrong(request(user, "create", at, version, json!(null)), &history);
        assert!(!create(A, 4_995, 49) && create(A, 4_995, 52), "A sent it in time, and it took effect under B");
        assert!(!create(B, 5_030, 52) && create(B, 4_000, 40) && create(A, 500, 5));
        // A delete has no resourceVersion of its own.
        let delete = |user, at| is_wrong(request(user, "delete", at, 7, json!(null)), &history);
        assert!(!delete(A, 5_005) && delete(A, 5_040) && !delete(B, 5_040) && delete(B, 4_000));
        assert_eq!((history.terms().len(), history.thefts().len()), (2, 0));
    }

    #[test]
    fn an_expired_lease_permits_no_write_and_a_live_one_no_theft() {
        let history = History::of(&[lease(A, 1_000, 10, "a_1")]);
        assert!(!is_wrong(request(A, "create", 15_900, 20, json!(null)), &history));
        assert!(is_wrong(request(A, "create", 16_100, 20, json!(null)), &history));
        let thefts = |at| History::of(&[lease(A, 1_000, 10, "a_1"), lease(B, at, 50, "b_1")]).thefts().len();
        assert_eq!((thefts(16_100), thefts(15_900)), (0, 1));
    }

    #[test]
    fn after_an_edit_by_hand_the_former_leader_has_a_second() {
        let deleted = request("kubernetes-admin", "delete", 5_000, 0, json!(null));
        for edit in [lease("kubernetes-admin", 5_000, 50, "nobody"), deleted] {
            let taken = request(B, "create", 20_000, 80, json!({"holderIdentity": "b_1", "leaseDurationSeconds": 15}));
            let history = History::of(&[lease(A, 1_000, 10, "a_1"), edit, taken]);
            let create = |user, at| is_wrong(request(user, "create", at, 55, json!(null)), &history);
            assert!(history.thefts().is_empty() && !create(A, 5_900) && create(A, 6_100) && create(B, 5_900));
        }
    }
}
