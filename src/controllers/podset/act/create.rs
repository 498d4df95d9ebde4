//! Part of *act*: creates pods, and takes in what each answer proves.
//!
//! In: the creations of a plan. Out: [`Done`]. A pod that was made goes into the cache; a create that was not answered
//! goes into the state, where it counts as live.

use kube::core::Status;
use tracing::{debug, warn};

use super::{AT_ONCE, Context, Done, Pass, PodResource, decoded, read_pod, slow_start};
use crate::{
    client::Answer,
    controllers::{
        ObjectKey,
        podset::{
            names,
            observe::{Pod, PodsLike, Set, Wanted},
            plan::Creation,
            pod, rejection,
            set_state::{Rejection, RejectionKind, SetState},
        },
        requests,
    },
};
use leadership::text::{LONGEST, cut};

/// How many bytes the templates may have together in the creates of one set that are under way at once.
const BYTES_AT_ONCE: usize = 1 << 20;

/// What the answer to a create proves.
enum Created {
    /// The pod is there, by this request.
    Made(Box<Pod>),
    /// Its name was taken: by this pod, or by one that is gone again.
    Taken(Option<Box<Pod>>),
    /// It was refused.
    Rejected(Rejection),
    /// Nobody can say; what is wrong.
    Unknown(Rejection),
    /// It never left; why.
    NeverLeft(Rejection),
    /// Whether it is needed cannot be read: it was not sent.
    Unread(String),
    /// This process does not lead.
    NotSent,
}

/// How many creates of one set may be under way at once whose template has so many bytes.
fn at_once(bytes: usize) -> usize {
    (BYTES_AT_ONCE / bytes.max(1)).clamp(1, AT_ONCE)
}

/// How many bytes are needed for these creates of a set whose template is to be read first: for the template, and for each create
/// under way. `None`: nothing is to be read.
pub fn bytes_to_read(set: &Set, creations: &[Creation]) -> Option<usize> {
    let bytes = set.template_bytes();
    let needs_read = set.is_trimmed() && !creations.is_empty();
    needs_read.then(|| bytes * (1 + at_once(bytes).min(creations.len())))
}

/// Creates pods.
pub(super) async fn create(pass: Pass<'_>, creations: Vec<Creation>, state: &mut SetState, done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let pass = Pass { at_once: at_once(set.template_bytes()), ..pass };
    let send = |creation: Creation| async move { (create_one(context, set, &creation).await, creation) };
    // As many as this spec has just been given without a failure.
    let is_known = state.tried_generation == Some(set.generation) && state.backoff.is_none();
    let known = state.burst.filter(|_| is_known).map_or(0, |burst| burst.created);
    let settle = |(created, creation): (Created, Creation)| settle_create(context, set, created, creation, state, done);
    slow_start(pass, 1 + known, creations, send, settle).await;
}

async fn create_one(context: &Context, set: &Set, creation: &Creation) -> Created {
    let Ok(Wanted { template: PodsLike::Template(template), .. }) = &set.wanted else {
        return Created::NotSent;
    };
    let key = ObjectKey::new(set.key.namespace.clone(), creation.name.as_str());
    if creation.is_repeated {
        // The name makes a second create harmless, unless a webhook gives pods other names; a look makes it needless, too.
        match read_pod(context, &key).await {
            Ok(None) => {}
            Ok(found) => return Created::Taken(found.map(Box::new)),
            Err(error) => return Created::Unread(error),
        }
    }
    let unclear = |words: String| {
        let message = cut(&words, LONGEST);
        Rejection { kind: RejectionKind::Unclear, message, generation: set.generation }
    };
    let refused =
        |status: &Status| rejection::read(status, &creation.name, &names::prefix(&set.key.name), set.generation);
    let Creation { name, replacements, .. } = creation;
    let namespace = &set.key.namespace;
    let build = || {
        let manifest = pod::manifest(set, template.as_deref(), &context.default_spec, name, *replacements);
        requests::create::<PodResource>(namespace, &manifest)
    };
    match context.clients.write.send(namespace, build).await {
        Answer::Done(body) => match decoded(&body) {
            Ok(pod) => Created::Made(Box::new(pod)),
            Err(error) => Created::Unknown(unclear(format!("the answer cannot be read: {error}"))),
        },
        // The name is taken, or a quota is being changed: the reason tells, and a read whether it is true.
        Answer::Rejected(status) if status.code == 409 => match read_pod(context, &key).await {
            Ok(None) if status.reason != "AlreadyExists" => Created::Rejected(refused(&status)),
            Ok(found) => Created::Taken(found.map(Box::new)),
            Err(error) => Created::Unknown(unclear(error)),
        },
        Answer::Rejected(status) => Created::Rejected(refused(&status)),
        Answer::Unclear(status) => Created::Unknown(unclear(refused(&status).message)),
        Answer::Unknown(error) => Created::Unknown(unclear(error)),
        Answer::NeverLeft(error) => Created::NeverLeft(unclear(error)),
        Answer::NotSent => Created::NotSent,
    }
}

/// Takes in what became of a create. Returns whether the next one may be sent.
fn settle_create(
    context: &Context,
    set: &Set,
    created: Created,
    creation: Creation,
    state: &mut SetState,
    done: &mut Done,
) -> bool {
    let now = context.env.now();
    let Creation { index, name, replacements, .. } = creation;
    match created {
        Created::Made(made) => {
            let is_as_ordered = settle_made(context, set, *made, name, state, done);
            if is_as_ordered {
                state.finishes.created(replacements);
            }
            return is_as_ordered;
        }
        Created::Taken(found) => {
            state.create_settled(&name);
            state.met_stranger |= settle_taken(context, set, &name, found, done);
        }
        Created::Rejected(rejected_create) => {
            if rejected_create.kind != RejectionKind::NamespaceTerminating {
                debug!(set = %set.key, pod = name, reason = rejected_create.message, "a pod was refused");
            }
            state.create_refused(&name, index, now);
            // A namespace that is being deleted has waits of its own.
            done.has_failed |= rejected_create.kind != RejectionKind::NamespaceTerminating;
            done.rejected_create = Some(rejected_create);
            return false;
        }
        Created::Unknown(complaint) => {
            let is_again = state.unknown().any(|unknown| unknown == name);
            complain(set, &name, complaint, ("nobody can say whether a pod was created", is_again), done);
            state.create_unanswered(&name, index, now);
            return false;
        }
        Created::NeverLeft(complaint) => {
            let is_again = state.creates.contains_key(&name);
            complain(set, &name, complaint, ("the create of a pod was not sent", is_again), done);
            state.create_refused(&name, index, now);
            return false;
        }
        Created::Unread(error) => {
            warn!(set = %set.key, pod = name, error, "cannot read whether a pod was created");
            done.has_failed = true;
            return false;
        }
        Created::NotSent => return false,
    }
    !done.has_failed
}

/// A create failed, and the API server did not say so. Once may have been a moment. Again, users must know it: a webhook that
/// does not answer, say.
fn complain(set: &Set, name: &str, complaint: Rejection, (what, is_again): (&str, bool), done: &mut Done) {
    done.has_failed = true;
    if is_again {
        debug!(set = %set.key, pod = name, reason = complaint.message, "{what}, again");
        done.rejected_create = Some(complaint);
    } else {
        warn!(set = %set.key, pod = name, reason = complaint.message, "{what}");
    }
}

/// A pod was made: as ordered, or it must go again.
fn settle_made(context: &Context, set: &Set, pod: Pod, name: String, state: &mut SetState, done: &mut Done) -> bool {
    state.create_settled(&name);
    let difference = (context.rules.differs)(&pod, &name, &set.uid);
    let (uid, made) = (pod.uid.clone(), pod.key.name.to_string());
    if difference.is_none() || pod.owner.as_ref() == Some(&set.uid) {
        context.pods(set, |pods| pods.created(pod, context.env.now()));
    }
    if let Some(difference) = difference {
        let message = format!("pods come back changed, {difference}: an admission webhook or policy changes them");
        warn!(set = %set.key, pod = made, "{message}");
        state.strays.insert(uid, made);
        done.rejected_create = Some(Rejection { message, kind: RejectionKind::Forbidden, generation: set.generation });
        done.has_failed = true;
        return false;
    }
    done.created.push(name);
    true
}

/// A name was taken: by our own pod of an earlier create, or by a stranger, or it is free again. Returns whether by a stranger.
fn settle_taken(context: &Context, set: &Set, name: &str, found: Option<Box<Pod>>, done: &mut Done) -> bool {
    let now = context.env.now();
    let key = ObjectKey::new(set.key.namespace.clone(), name);
    match found {
        Some(pod) => {
            let is_ours = (context.rules.is_ours)(&pod, &set.uid);
            if is_ours && !pod.is_terminating && !pod.is_finished() {
                done.created.push(name.to_owned());
            }
            if !is_ours || pod.owner.as_ref() == Some(&set.uid) {
                context.pods(set, |pods| pods.looked_up(&key, None, Some(*pod), now));
            }
            !is_ours
        }
        None => {
            context.pods(set, |pods| pods.may_be_reused(&key));
            done.has_failed = true;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::testing;

    /// What is to be read for so many creates of a set whose template has so many bytes and is not in memory.
    fn to_read(bytes: usize, creates: u32) -> Option<usize> {
        let mut set = testing::set(10);
        set.wanted.as_mut().unwrap().template = PodsLike::Large(bytes);
        let create = |index| Creation { index, name: String::new(), replacements: 0, is_repeated: false };
        bytes_to_read(&set, &(0..creates).map(create).collect::<Vec<_>>())
    }

    #[test]
    fn the_larger_a_template_the_fewer_creates_are_under_way() {
        let cases = [(0, AT_ONCE), (8 << 10, AT_ONCE), (20 << 10, 51), (1 << 19, 2), (1 << 20, 1), (3 << 20, 1)];
        assert_eq!(cases.map(|(bytes, _)| (bytes, at_once(bytes))), cases);
    }

    #[test]
    fn room_is_needed_for_the_template_and_for_what_is_under_way() {
        assert_eq!(to_read(20_000, 0), None);
        assert_eq!(to_read(20_000, 3), Some(80_000));
        assert_eq!(to_read(20_000, 1000), Some(20_000 * 53));
        assert_eq!(to_read(2_000_000, 10), Some(4_000_000));
        let create = Creation { index: 0, name: String::new(), replacements: 0, is_repeated: false };
        assert_eq!(bytes_to_read(&testing::set(1), &[create]), None, "it is in memory");
    }
}
