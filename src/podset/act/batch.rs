//! Part of *act*: the requests of one pass over one set, and their shared limits.

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as PodResource;

use crate::podset::{
    context::Context,
    names,
    observe::{Pod, Pods, Set},
    rejected_writes::RejectedWrites,
    rejection::{self, Rejection, RejectionKind},
    set_state::SetState,
};
use operator_kit::{ObjectKey, client::WRITES_OF_A_NAMESPACE, lock, log_once::warn_once, meta::Uid};

/// The most requests of one set in flight. More would only wait in the writer, and delay other sets of the namespace.
pub const AT_ONCE: usize = WRITES_OF_A_NAMESPACE;

/// A batch begins no request after this time. Without this limit, the status of a set whose creates take 8 s would be wrong for 30 s.
const SENDING_TIME: SignedDuration = SignedDuration::from_secs(4);

/// What came of a plan. Only [`act`](super::act) makes it, so the report contains nothing that was not tried.
#[derive(Debug, Default)]
pub struct Done {
    /// Names of the pods that were created.
    pub created: Vec<String>,
    /// Names of the surplus and outdated pods whose delete was accepted.
    pub deleted: Vec<String>,
    /// Why a create was rejected, if one was.
    pub rejected_create: Option<Rejection>,
    /// Whether a pod was created with the template of the spec.
    pub has_created_updated: bool,
    /// Why a delete was rejected, if one was.
    pub rejected_delete: Option<String>,
    /// Whether something failed, so that the next try must wait.
    pub has_failed: bool,
}

impl Done {
    /// Whether the API server says that the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.rejected_create.as_ref().is_some_and(|rejected| rejected.kind == RejectionKind::NamespaceTerminating)
    }
}

/// The work on one set in one pass. Each kind of work is in a file of its own.
pub struct Work<'a> {
    pub batch: Batch<'a>,
    pub state: &'a mut SetState,
    pub done: Done,
}

/// Requests of one pass that share a time limit.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub context: &'a Context,
    pub set: &'a Set,
    /// The most requests in flight before the first answer.
    pub first: usize,
    /// The most requests in flight.
    pub at_once: usize,
    /// No request begins after this time, because the plan may be out of date. The first request of each [`Self::slow_start`] is exempt.
    until: Timestamp,
}

impl<'a> Batch<'a> {
    /// A batch that begins now.
    pub fn new(context: &'a Context, set: &'a Set) -> Self {
        Batch { context, set, first: 1, at_once: AT_ONCE, until: context.env.now() + SENDING_TIME }
    }

    /// Sends up to `first` requests, and allows one more in flight after each answer, up to `at_once`. If `first` is 1, a set whose creates
    /// are rejected costs one request. `handle` handles an answer. If it returns false, no further request begins.
    pub async fn slow_start<'i, T: 'i, R, F: Future<Output = R>>(
        self,
        items: impl IntoIterator<Item = &'i T>,
        send: impl Fn(&'i T) -> F,
        mut handle: impl FnMut(&'i T, R) -> bool,
    ) {
        let mut items = items.into_iter();
        let mut in_flight = FuturesUnordered::new();
        let mut at_once = self.first.min(self.at_once);
        let mut goes_on = true;
        let mut is_first = true;
        let may_begin = |is_first| (is_first || self.context.env.now() < self.until) && self.may_continue();
        loop {
            while goes_on && in_flight.len() < at_once && may_begin(is_first) {
                let Some(item) = items.next() else { break };
                in_flight.push(send(item).map(move |answer| (item, answer)));
                is_first = false;
            }
            let Some((item, answer)) = in_flight.next().await else { break };
            goes_on &= handle(item, answer);
            at_once = (at_once + 1).min(self.at_once);
        }
    }

    /// Whether the spec is unchanged and the process is not stopping.
    fn may_continue(&self) -> bool {
        let found = lock(&self.context.observed).sets.get(&self.set.key);
        !self.context.stop.is_cancelled() && found.is_some_and(|found| !self.set.calls_for_action(&found))
    }

    /// Until when a write that was given up now may take effect.
    pub fn may_land_until(&self) -> Timestamp {
        self.context.env.now() + self.context.rules.cache.quarantine
    }

    /// Reads a pod, consistently. The future is boxed: few writes need a read, and its state would enlarge the future of every write.
    pub async fn read_pod(self, key: &ObjectKey) -> Result<Option<Pod>, String> {
        Box::pin(self.context.clients.read.get::<PodResource, Pod>(key)).await
    }

    /// Changes the cache of pods.
    pub fn change_pods(&self, change: impl FnOnce(&mut Pods, Timestamp)) {
        let now = self.context.env.now();
        self.context.change_pods(Some(&self.set.key), |caches| change(&mut caches.pods, now));
    }

    /// Delays the next try of a rejected request for one pod, and logs `what` once for each new reason. Returns the message for users.
    pub fn delay_rejected(
        &self,
        rejected: &mut RejectedWrites,
        (key, uid, version): (&ObjectKey, &Uid, u64),
        error: &str,
        what: &str,
    ) -> String {
        let env = &self.context.env;
        let message = rejection::words(error, &key.name, &names::prefix(&self.set.key.name));
        let is_news = rejected.note(uid.clone(), version, message.clone(), env.now(), |wait| env.jittered(wait, 0.1));
        warn_once!(is_news, pod = %key, error, "{what}");
        message
    }
}

/// The pod in an answer. It must have a name, a UID and a version, because a proxy before the API server may answer anything.
pub fn decoded(body: &[u8]) -> Result<Pod, String> {
    let pod: Pod = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let is_pod = !pod.key.name.is_empty() && !pod.uid.is_empty() && pod.version > 0;
    if is_pod { Ok(pod) } else { Err("it does not contain a pod".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::{observe::Phase, pod, revision::Revision};

    #[test]
    fn the_metadata_of_a_created_pod_is_enough_to_cache_it() {
        // The response of Kubernetes 1.36 to a create of the operator.
        let answer = include_bytes!("../../../tests/data/pod.metadata.json");
        let made = decoded(answer).unwrap();
        let owner: Uid = "22222222-2222-2222-2222-222222222222".into();
        assert_eq!(pod::difference(&made, "web-pod12345", &owner, Revision::of(None, 0)), None);
        assert_eq!((&*made.uid, made.version), ("cba8f5ac-a9cb-4a7e-8203-58d662d59ba2", 243));
        assert_eq!((made.phase, made.is_terminating, made.replacements), (Phase::Pending, true, 3));
        decoded(&answer[..600]).expect_err("half of a response");
        decoded(b"{}").expect_err("a pod without a version");
    }
}
