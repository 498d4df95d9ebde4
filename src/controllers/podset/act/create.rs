//! Part of *act*: creates pods, and takes in what each answer proves.
//!
//! In: the creations of a plan. Out: [`Done`]. A pod that was made goes into the cache; a create that was not answered
//! goes into the memory, where it counts as live.

use kube::core::Status;
use tracing::{debug, warn};

use super::{Context, Done, Pass, PodResource, decoded, read_pod, send, slow_start};
use crate::{
    client::{Answer, LONGEST, cut},
    controllers::{
        ObjectKey,
        podset::{
            memory::{Memory, Refusal, RefusalKind, Window},
            names,
            observe::{Pod, Set},
            plan::Creation,
            pod,
            refusal::refusal,
        },
        requests,
    },
};

/// What the answer to a create proves.
enum Created {
    /// The pod is there, by this request.
    Made(Box<Pod>),
    /// Its name was taken: by this pod, or by one that is gone again.
    Taken(Option<Box<Pod>>),
    /// It was refused.
    Refused(Refusal),
    /// Nobody can say; what is wrong.
    Unknown(Refusal),
    /// It never left; why.
    NeverLeft(Refusal),
    /// Whether it is needed cannot be read: it was not sent.
    Unread(String),
    /// This process does not lead.
    NotSent,
}

/// Creates pods.
pub(super) async fn create(pass: Pass<'_>, creations: Vec<Creation>, memory: &mut Memory, done: &mut Done) {
    let Pass { context, set, .. } = pass;
    let send = |creation: Creation| async move { (create_one(context, set, &creation).await, creation) };
    // Whether another spec is accepted is not known yet.
    let is_new = memory.tried_generation != Some(set.generation);
    let window = if is_new { Window::default() } else { memory.creates_at_once };
    let settle =
        |(created, creation): (Created, Creation)| settle_create(context, set, created, creation, memory, done);
    memory.creates_at_once = slow_start(pass, window, creations, send, settle).await;
}

async fn create_one(context: &Context, set: &Set, creation: &Creation) -> Created {
    let Ok(wanted) = &set.wanted else {
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
        Refusal { kind: RefusalKind::Unclear, message, generation: set.generation }
    };
    let refused = |status: &Status| refusal(status, &creation.name, &names::prefix(&set.key.name), set.generation);
    let manifest = pod::manifest(set, wanted, &context.default_spec, &creation.name, creation.replacements);
    let namespace = &set.key.namespace;
    match send(context, namespace, requests::create::<PodResource>(namespace, &manifest)).await {
        Answer::Done(form, body) => match decoded(form, body) {
            Ok(pod) => Created::Made(Box::new(pod)),
            Err(error) => Created::Unknown(unclear(format!("the answer cannot be read: {error}"))),
        },
        // The name is taken, or a quota is being changed: the reason tells, and a read whether it is true.
        Answer::Refused(status) if status.code == 409 => match read_pod(context, &key).await {
            Ok(None) if status.reason != "AlreadyExists" => Created::Refused(refused(&status)),
            Ok(found) => Created::Taken(found.map(Box::new)),
            Err(error) => Created::Unknown(unclear(error)),
        },
        Answer::Refused(status) => Created::Refused(refused(&status)),
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
    memory: &mut Memory,
    done: &mut Done,
) -> bool {
    let now = context.env.now();
    let Creation { index, name, replacements, .. } = creation;
    match created {
        Created::Made(made) => {
            let is_as_ordered = settle_made(context, set, *made, name, memory, done);
            if is_as_ordered {
                memory.finishes.created(replacements);
            }
            return is_as_ordered;
        }
        Created::Taken(found) => {
            memory.create_settled(&name);
            memory.met_stranger |= settle_taken(context, set, &name, found, done);
        }
        Created::Refused(refusal) => {
            if refusal.kind != RefusalKind::NamespaceTerminating {
                debug!(set = %set.key, pod = name, reason = refusal.message, "a pod was refused");
            }
            memory.create_refused(&name, index, now);
            // A namespace that is being deleted has waits of its own.
            done.has_failed |= refusal.kind != RefusalKind::NamespaceTerminating;
            done.refusal = Some(refusal);
            return false;
        }
        Created::Unknown(complaint) => {
            let is_again = memory.unknown().any(|unknown| unknown == name);
            complain(set, &name, complaint, ("nobody can say whether a pod was created", is_again), done);
            memory.create_unanswered(&name, index, now);
            return false;
        }
        Created::NeverLeft(complaint) => {
            let is_again = memory.creates.contains_key(&name);
            complain(set, &name, complaint, ("the create of a pod was not sent", is_again), done);
            memory.create_refused(&name, index, now);
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
fn complain(set: &Set, name: &str, complaint: Refusal, (what, is_again): (&str, bool), done: &mut Done) {
    done.has_failed = true;
    if is_again {
        debug!(set = %set.key, pod = name, reason = complaint.message, "{what}, again");
        done.refusal = Some(complaint);
    } else {
        warn!(set = %set.key, pod = name, reason = complaint.message, "{what}");
    }
}

/// A pod was made: as ordered, or it must go again.
fn settle_made(context: &Context, set: &Set, pod: Pod, name: String, memory: &mut Memory, done: &mut Done) -> bool {
    memory.create_settled(&name);
    let difference = (context.locks.differs)(&pod, &name, &set.uid);
    let (uid, made) = (pod.uid.clone(), pod.key.name.to_string());
    if difference.is_none() || pod.owner.as_ref() == Some(&set.uid) {
        context.pods(set, |pods| pods.created(pod, context.env.now()));
    }
    if let Some(difference) = difference {
        let message = format!("pods come back changed, {difference}: an admission webhook or policy changes them");
        warn!(set = %set.key, pod = made, "{message}");
        memory.strays.insert(uid, made);
        done.refusal = Some(Refusal { message, kind: RefusalKind::Forbidden, generation: set.generation });
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
            let is_ours = (context.locks.is_ours)(&pod, &set.uid);
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
