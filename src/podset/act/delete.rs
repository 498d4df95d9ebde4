//! Part of *act*: deletes pods, and handles each answer.

use k8s_openapi::api::core::v1::Pod as PodResource;
use kube::core::Status;
use tracing::warn;

use super::batch::{Batch, Work, decoded};
use crate::podset::{
    observe::Pod,
    plan::{Deletion, Why},
    status,
};
use operator_kit::{
    client::Answer,
    meta::Uid,
    requests,
    text::{LONGEST, cut},
};

/// If deletes were rejected, a pass starts with this many more at most. Even more would take connections from other sets of the namespace.
const MAX_EXTRA: usize = 4;

/// What came of a delete.
enum Deleted {
    /// It was accepted; with the pod's last state, if the answer has it.
    Accepted(Option<Pod>),
    /// The pod was gone already.
    Gone,
    /// The delete got this answer, and it is not known to be accepted.
    Answered(Answer),
}

impl Work<'_> {
    /// Deletes pods.
    pub async fn delete<'p>(&mut self, deletions: &'p [Deletion]) {
        let Work { mut batch, ref state, .. } = *self;
        // Rejected deletes may be slow. Begin several, or the pass ends before it reaches the other pods.
        batch.first += state.retry.rejected_deletes.count().min(MAX_EXTRA);
        let send = |deletion: &'p Deletion| delete_one(batch, deletion);
        let is_going = |deletion: &Deletion| state.fates.is_going(&deletion.uid);
        let is_reported = state.inherits_failure(batch.set, status::FAILED_DELETE);
        let have_failed =
            is_reported || state.retry.rejected_deletes.message().is_some() || deletions.iter().any(is_going);
        let handle = |deletion: &Deletion, deleted| self.handle_delete(deletion, deleted, have_failed);
        batch.slow_start(deletions, send, handle).await;
    }

    /// Handles what came of a delete. `have_failed`: before this batch, a delete of a pod of this set was rejected, perhaps one of the
    /// former leader, or a delete of one of these pods got no answer. Returns whether the next one may be sent.
    fn handle_delete(&mut self, deletion: &Deletion, deleted: Deleted, have_failed: bool) -> bool {
        let Work { batch, state, done } = self;
        let Deletion { key, uid, why, .. } = deletion;
        match deleted {
            Deleted::Accepted(last) => {
                batch.change_pods(|pods, now| pods.delete_answered(uid, last, now));
                match why {
                    Why::Surplus | Why::Outdated => done.deleted.push(key.name.to_string()),
                    Why::Finished => {}
                    // No pod is created until it is certainly gone.
                    Why::Stray => {
                        state.retry.rejected_deletes.forget(uid);
                        done.has_failed = true;
                        return true;
                    }
                }
            }
            Deleted::Gone => batch.change_pods(|pods, now| pods.gone(uid, now)),
            Deleted::Answered(Answer::Failed { error, may_land }) => {
                if may_land {
                    state.fates.deletes.insert(uid.clone(), batch.may_land_until());
                }
                if may_land && have_failed {
                    // It is not the first failure. Perhaps only this pod is affected.
                    let quarantine = batch.context.rules.cache.quarantine;
                    let goes_on = self.delay_delete(deletion, &error);
                    self.state.retry.rejected_deletes.leave_time_for_others(uid, quarantine);
                    return goes_on;
                }
                // This says nothing about the pod: it may be a short outage, the delete was not sent, or the cache was out of date.
                warn!(pod = %key, error, "deleting a pod failed; trying again");
                done.has_failed = true;
                return false;
            }
            Deleted::Answered(Answer::Rejected(status)) => {
                return self.delay_delete(deletion, &cut(&status.message, LONGEST));
            }
            Deleted::Answered(Answer::NotLeading | Answer::Done(_)) => return false,
        }
        state.fates.deletes.remove(uid);
        state.fates.strays.remove(uid);
        state.retry.rejected_deletes.forget(uid);
        true
    }

    /// Delays the next delete of this pod alone. Returns whether the next one may be sent.
    fn delay_delete(&mut self, Deletion { key, uid, version, .. }: &Deletion, error: &str) -> bool {
        let Work { batch, state, done } = self;
        if !batch.context.rules.is_confined {
            done.has_failed = true;
            return false;
        }
        let pod = (key, uid, *version);
        done.rejected_delete =
            Some(batch.delay_rejected(&mut state.retry.rejected_deletes, pod, error, "cannot delete a pod"));
        batch.change_pods(|pods, _| pods.delete_rejected(uid));
        true
    }
}

async fn delete_one(batch: Batch<'_>, deletion: &Deletion) -> Deleted {
    let uid = (batch.context.rules.precondition)(&deletion.uid);
    let version = deletion.is_exact.then_some(deletion.version);
    let build = || requests::delete::<PodResource>(&deletion.key, uid.as_deref(), version);
    let failed = |error: &str, may_land| Answer::Failed { error: error.to_owned(), may_land };
    // The answer, as far as it holds if the read below shows that the pod stays.
    let answer = match batch.context.clients.write.send(&deletion.key.namespace, build).await {
        Answer::Done(body) => match accepted(&body, &deletion.uid) {
            Some(last) => return Deleted::Accepted(last),
            None => failed("the answer does not belong to the delete of this pod", true),
        },
        // Not found, another pod has the name, the pod has changed, or a webhook answers with this code. The read below tells.
        Answer::Rejected(status) if matches!(status.code, 404 | 409) => Answer::Rejected(status),
        answer => return Deleted::Answered(answer),
    };
    match batch.read_pod(&deletion.key).await {
        Ok(found) if found.as_ref().is_none_or(|pod| pod.uid != deletion.uid) => Deleted::Gone,
        Ok(Some(pod)) if pod.is_terminating => Deleted::Accepted(Some(pod)),
        // The cache has an older state, and a delete that requires its version would fail again.
        Ok(Some(pod)) if deletion.is_exact && pod.version > deletion.version => {
            batch.change_pods(|pods, now| pods.looked_up(&deletion.key, None, Some(pod), now));
            Deleted::Answered(failed("the pod has changed in the meantime", false))
        }
        Ok(_) => Deleted::Answered(answer),
        Err(error) => Deleted::Answered(Answer::Failed { error, may_land: true }),
    }
}

/// The pod's last state, if the answer has it; `None`: this successful answer does not prove the delete of the pod with this UID. It proves
/// nothing if a proxy before the API server made it, or if another client deleted the pod at the same moment: the API server then answers
/// with a pod without a version.
pub fn accepted(body: &[u8], uid: &Uid) -> Option<Option<Pod>> {
    match (decoded(body), serde_json::from_slice::<Status>(body)) {
        (Ok(pod), _) if pod.uid == *uid => Some(Some(pod)),
        (Err(_), Ok(status)) if status.is_success() => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_about_the_pod_proves_its_delete() {
        let is_accepted = |body: &str| accepted(body.as_bytes(), &"uid-of-a".into()).is_some();
        assert!(is_accepted(
            r#"{ "metadata": { "name": "a", "namespace": "b", "uid": "uid-of-a", "resourceVersion": "7" } }"#
        ));
        assert!(is_accepted(r#"{ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }"#));
        for foreign in [
            "",
            "<html>All is well</html>",
            "{}",
            r#"{ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure" }"#,
            r#"{ "metadata": { "name": "a", "namespace": "b", "uid": "another", "resourceVersion": "7" } }"#,
            r#"{ "metadata": { "name": "a", "namespace": "b", "uid": "uid-of-a" } }"#,
        ] {
            assert!(!is_accepted(foreign), "{foreign}");
        }
    }
}
