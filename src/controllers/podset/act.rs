//! Third stage, *act*: does what the plan says, and nothing else. The only writes of pods.
//!
//! In: a plan. Out: [`Done`], what came of it. Every answer goes into the cache or into the state at once, so that the
//! next plan counts it. It decides nothing: not what is created, only what an answer proves.

mod create;

pub use create::bytes_to_read;

use std::future::Future;

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as PodResource;
use kube::core::Status;
use serde_json::json;
use tracing::{debug, warn};

use super::{
    Context, names,
    observe::{Pod, Seen, Set, View, Whole},
    plan::{Deletion, Plan, Why},
    rejected_deletes::RejectedDeletes,
    rejection,
    set_state::{Rejection, SetState},
};
use crate::{
    api::{self, PodSet},
    client::{Answer, WRITES_OF_A_NAMESPACE},
    controllers::{ObjectKey, meta::Uid, requests},
};
use leadership::text::{LONGEST, cut, in_full, in_words};

/// How many requests of one set are under way at once: what cannot be sent yet would only keep that of other sets waiting.
const AT_ONCE: usize = WRITES_OF_A_NAMESPACE;

/// After so long no further request is begun: the status must not stay wrong while thousands of pods are made.
const PASS: SignedDuration = SignedDuration::from_secs(4);

/// What came of a plan. Only [`act`] makes one, so nothing is reported that was not tried.
#[derive(Debug, Default)]
pub struct Done {
    /// Names of the pods that were created.
    pub created: Vec<String>,
    /// Names of the surplus pods that were deleted.
    pub deleted: Vec<String>,
    /// Why pods were refused, if one was.
    pub rejected_create: Option<Rejection>,
    /// Whether pods were to be created.
    pub is_creating: bool,
    /// Whether surplus pods were to be deleted.
    pub is_deleting: bool,
    /// Why a delete was rejected, if one was.
    pub rejected_delete: Option<String>,
    /// Whether something failed, so that the next try must wait.
    pub has_failed: bool,
}

/// What the answer to a delete proves.
enum Deleted {
    /// Its deletion was accepted; perhaps with its last state.
    Accepted(Option<Box<Pod>>),
    /// It was gone already.
    Gone,
    /// The API server rejected it, or complains and may carry it out all the same (`may_land`).
    RejectedDeletes { words: String, may_land: bool },
    /// Nobody can say.
    Unknown(String),
    /// It never left.
    NeverLeft(String),
    /// This process does not lead.
    NotSent,
}

/// What the parts of one pass share.
#[derive(Clone, Copy)]
struct Pass<'a> {
    context: &'a Context,
    set: &'a Set,
    /// From then on no further request is begun but the first of a part: one that takes long must not keep the others from
    /// all they do.
    until: Timestamp,
    /// How many requests of a part are under way at once.
    at_once: usize,
}

/// Carries out a plan.
pub async fn act(context: &Context, view: &View, plan: Plan, state: &mut SetState) -> Done {
    let is_creating = !plan.create.is_empty();
    let is_deleting = plan.delete.iter().any(|deletion| deletion.why == Why::Surplus);
    let until = context.env.now() + PASS;
    let pass = Pass { context, set: &view.set, until, at_once: AT_ONCE };
    let mut done = Done { is_creating, is_deleting, ..Done::default() };
    let unlabelled = view.pods.iter().map(|seen| &seen.pod).filter(|pod| !pod.is_labelled);
    state.relabels.retain(&unlabelled.map(|pod| pod.uid.clone()).collect());
    look(pass, &plan.look, &mut done).await;
    probe(pass, plan.probe, state, &mut done).await;
    relabel(pass, &plan.relabel, state, &mut done).await;
    delete(pass, plan.delete, state, &mut done).await;
    create::create(pass, plan.create, state, &mut done).await;
    done
}

/// Sends `first` requests at once, and one more for each answer, up to a bound, as long as all goes well: refused pods cost one request.
async fn slow_start<T, R, F: Future<Output = R>>(
    Pass { context, until, at_once, .. }: Pass<'_>,
    first: usize,
    items: impl IntoIterator<Item = T>,
    send: impl Fn(T) -> F,
    mut settle: impl FnMut(R) -> bool,
) {
    let mut items = items.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut most = first.min(at_once);
    let mut goes_on = true;
    let mut is_first = true;
    loop {
        while goes_on && under_way.len() < most && (is_first || context.env.now() < until) {
            match items.next() {
                Some(item) => under_way.push(send(item)),
                None => break,
            }
            is_first = false;
        }
        let Some(result) = under_way.next().await else { break };
        goes_on &= settle(result);
        most = (most + 1).min(at_once);
    }
}

async fn look(pass: Pass<'_>, pods: &[Seen], done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let read = |seen: Seen| async move { (read_pod(context, &seen.pod.key).await, seen) };
    let settle = |(found, seen): (Result<Option<Pod>, String>, Seen)| match found {
        Ok(found) => {
            let now = context.env.now();
            context.pods(set, |pods| pods.looked_up(&seen.pod.key, Some(&seen), found, now));
            true
        }
        Err(error) => {
            warn!(pod = %seen.pod.key, error, "cannot read a pod whose fate is unknown");
            done.has_failed = true;
            false
        }
    };
    slow_start(pass, 1, pods.to_vec(), read, settle).await;
}

/// Looks whether creates of unknown fate have taken effect, now that they can do so no more.
async fn probe(pass: Pass<'_>, names: Vec<String>, state: &mut SetState, done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let key = |name: &str| ObjectKey::new(set.key.namespace.clone(), name);
    let read = |name: String| async move { (read_pod(context, &key(&name)).await, name) };
    let settle = |(found, name): (Result<Option<Pod>, String>, String)| match found {
        Ok(found) => {
            let now = context.env.now();
            context.pods(set, |pods| pods.looked_up(&key(&name), None, found, now));
            state.creates.remove(&name);
            true
        }
        Err(error) => {
            warn!(set = %set.key, pod = name, error, "cannot look whether a pod was created after all");
            done.has_failed = true;
            false
        }
    };
    slow_start(pass, 1, names, read, settle).await;
}

/// Reads a pod, consistently. Boxed, for few writes need it: its state would make room for itself in every one.
fn read_pod<'a>(context: &'a Context, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Pod>, String>> {
    Box::pin(async move {
        let request = requests::get::<PodResource>(key).map_err(|error| error.to_string())?;
        context.clients.read.read_one(request).await.map_err(|error| in_full(&error))
    })
}

/// Reads a PodSet, consistently, and takes in what is found. Returns it with its template; `None`: it is gone.
///
/// # Errors
///
/// When it cannot be read; with the reason.
pub async fn read_set(context: &Context, set: &Set) -> Result<Option<Set>, String> {
    let request = requests::get::<PodSet>(&set.key).map_err(|error| error.to_string())?;
    let found: Option<Whole> = context.clients.read.read_one(request).await.map_err(|error| in_full(&error))?;
    let found = found.map(|Whole(found)| found);
    context.set_answered(set, found.clone().map(Set::trimmed));
    Ok(found)
}

/// The pod in an answer: one that has a name, a UID and a version, for whatever stands before the API server may answer, too.
fn decoded(body: &[u8]) -> Result<Pod, String> {
    let pod: Pod = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let is_one = !pod.key.name.is_empty() && !pod.uid.is_empty() && pod.version > 0;
    if is_one { Ok(pod) } else { Err("it has no pod".to_owned()) }
}

/// Gives the watched label back to pods that lost it.
async fn relabel(pass: Pass<'_>, pods: &[Seen], state: &mut SetState, done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let patch = |seen: Seen| async move {
        let metadata = json!({
            "uid": seen.pod.uid,
            "resourceVersion": seen.pod.version.to_string(),
            "labels": { api::LABEL_MANAGED_BY: api::MANAGER },
        });
        let build = || requests::merge::<PodResource>(&seen.pod.key, &json!({ "metadata": metadata }));
        (context.clients.write.send(&set.key.namespace, build).await, seen)
    };
    let settle = |(answer, seen): (Answer, Seen)| {
        let patched = match answer {
            Answer::Done(body) => decoded(&body).ok().filter(|pod| pod.is_labelled),
            Answer::NotSent => return false,
            // The pod is as it was known: this concerns no other pod, and no other work.
            Answer::Rejected(status) if !matches!(status.code, 404 | 409) => {
                let Pod { key, uid, version, .. } = &*seen.pod;
                let pod = (key, uid, *version);
                note_rejection(pass, &mut state.relabels, pod, &in_words(&status), "cannot restore the label of a pod");
                return true;
            }
            answer => {
                debug!(pod = %seen.pod.key, error = answer.complaint(), "cannot restore the label of a pod");
                None
            }
        };
        let now = context.env.now();
        match patched {
            Some(pod) => context.pods(set, |pods| pods.patched(pod, now)),
            None => {
                done.has_failed = true;
                context.pods(set, |pods| pods.doubt(&seen.pod.uid));
            }
        }
        !done.has_failed
    };
    slow_start(pass, 1, pods.to_vec(), patch, settle).await;
}

/// Delays the next try of what was rejected for one pod, and logs `what` once for each new reason. Returns the message for users.
fn note_rejection(
    Pass { context, set, .. }: Pass<'_>,
    rejected: &mut RejectedDeletes,
    (key, uid, version): (&ObjectKey, &Uid, u64),
    error: &str,
    what: &str,
) -> String {
    let message = rejection::words(error, &key.name, &names::prefix(&set.key.name));
    let jittered = |wait| context.env.jittered(wait, 0.1);
    if rejected.note(uid.clone(), version, message.clone(), context.env.now(), jittered) {
        warn!(pod = %key, error, "{what}");
    } else {
        debug!(pod = %key, error, "{what}");
    }
    message
}

async fn delete(pass: Pass<'_>, deletions: Vec<Deletion>, state: &mut SetState, done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let send = |deletion: Deletion| async move { (delete_one(context, &deletion).await, deletion) };
    let settle = |(result, deletion): (Deleted, Deletion)| {
        let now = context.env.now();
        let Deletion { key, uid, version, why } = deletion;
        match result {
            Deleted::Accepted(last) => {
                context.pods(set, |pods| pods.delete_answered(&uid, last.map(|pod| *pod), now));
                match why {
                    Why::Surplus => done.deleted.push(key.name.to_string()),
                    Why::Finished => {}
                    // Until it is gone for certain, nothing else is made.
                    Why::Stray => {
                        state.rejected.forget(&uid);
                        done.has_failed = true;
                        return true;
                    }
                }
            }
            Deleted::Gone => context.pods(set, |pods| pods.gone(&uid, now)),
            Deleted::Unknown(error) => {
                warn!(pod = %key, error, "the delete of a pod was not answered: its fate is unknown");
                state.deletes.insert(uid, now);
                // Nothing waits for a finished pod to go.
                done.has_failed |= why != Why::Finished;
                return false;
            }
            Deleted::RejectedDeletes { .. } if !(context.rules.is_confined)(why) => {
                done.has_failed = true;
                return false;
            }
            Deleted::RejectedDeletes { words: error, may_land } => {
                if may_land {
                    state.deletes.insert(uid.clone(), now);
                }
                let pod = (&key, &uid, version);
                done.rejected_delete =
                    Some(note_rejection(pass, &mut state.rejected, pod, &error, "a pod cannot be deleted"));
                context.pods(set, |pods| pods.delete_rejected(&uid));
                return true;
            }
            Deleted::NeverLeft(error) => {
                warn!(pod = %key, error, "the delete of a pod was not sent");
                done.has_failed = true;
                return false;
            }
            Deleted::NotSent => return false,
        }
        state.deletes.remove(&uid);
        state.strays.remove(&uid);
        state.rejected.forget(&uid);
        true
    };
    slow_start(pass, 1, deletions, send, settle).await;
}

async fn delete_one(context: &Context, deletion: &Deletion) -> Deleted {
    let uid = (context.rules.precondition)(&deletion.uid);
    let build = || requests::delete::<PodResource>(&deletion.key, uid.as_deref());
    let rejected = |words: &str, may_land| Deleted::RejectedDeletes { words: cut(words, LONGEST), may_land };
    match context.clients.write.send(&deletion.key.namespace, build).await {
        Answer::Done(body) => accepted(&body, &deletion.uid),
        // Not found, or another incarnation: whether that is so, a read tells.
        Answer::Rejected(status) if matches!(status.code, 404 | 409) => match read_pod(context, &deletion.key).await {
            Ok(found) if found.as_ref().is_none_or(|pod| pod.uid != deletion.uid) => Deleted::Gone,
            Ok(Some(pod)) if pod.is_terminating => Deleted::Accepted(Some(Box::new(pod))),
            Ok(_) => rejected(status.message.as_str(), false),
            Err(error) => Deleted::Unknown(error),
        },
        Answer::Rejected(status) => rejected(&status.message, false),
        Answer::Unclear(status) => rejected(&in_words(&status), true),
        Answer::Unknown(error) => Deleted::Unknown(error),
        Answer::NeverLeft(error) => Deleted::NeverLeft(error),
        Answer::NotSent => Deleted::NotSent,
    }
}

/// What a good answer to the delete of the pod of this UID proves: whatever stands before the API server may say that all is well,
/// too.
fn accepted(body: &[u8], uid: &Uid) -> Deleted {
    match (decoded(body), serde_json::from_slice::<Status>(body)) {
        (Ok(pod), _) if pod.uid == *uid => Deleted::Accepted(Some(Box::new(pod))),
        (Err(_), Ok(status)) if status.is_success() => Deleted::Accepted(None),
        _ => Deleted::Unknown("the answer is not one to the delete of this pod".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::{observe::Phase, pod};

    #[test]
    fn the_metadata_of_a_pod_that_was_made_tell_enough_of_it() {
        // Kubernetes 1.36 said it of a pod of ours.
        let answer = include_bytes!("../../../tests/data/pod.metadata.json");
        let made = decoded(answer).unwrap();
        let owner: Uid = "22222222-2222-2222-2222-222222222222".into();
        assert_eq!(pod::difference(&made, "web-pod12345", &owner), None);
        assert_eq!((&*made.uid, made.version), ("cba8f5ac-a9cb-4a7e-8203-58d662d59ba2", 243));
        assert_eq!((made.phase, made.is_terminating, made.replacements), (Phase::Pending, true, 3));
        decoded(&answer[..600]).expect_err("half of it");
        decoded(b"{}").expect_err("a pod without a version");
    }

    #[test]
    fn only_a_word_about_the_pod_proves_that_its_delete_was_accepted() {
        let is_accepted = |body: &str| matches!(accepted(body.as_bytes(), &"uid-of-a".into()), Deleted::Accepted(_));
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
