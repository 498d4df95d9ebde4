//! Third stage, *act*: carries out a plan, and nothing else. No other code creates, changes or deletes pods.
//!
//! In: a plan. Out: [`Done`]. Each answer updates the cache or the state at once, so that the next plan counts it. The plan decides about
//! pods. This stage interprets the answers and limits the requests.

mod batch;
mod create;
mod delete;
mod prepare;

pub use batch::Done;
pub use create::bytes_to_read;

/// What the fuzz targets call.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::{batch::decoded, delete::accepted};
}

use k8s_openapi::api::core::v1::Pod as PodResource;
use serde_json::json;
use tracing::warn;

use self::batch::{Batch, Work, decoded};
use super::{
    context::Context,
    observe::{Pod, Seen, View},
    plan::{Look, Plan},
    set_state::SetState,
};
use crate::api;
use operator_kit::{client::Answer, requests};

/// Carries out a plan.
pub async fn act(context: &Context, view: &View, plan: &Plan, state: &mut SetState) -> Done {
    let unlabelled = view.pods.iter().map(|seen| &seen.pod).filter(|pod| !pod.is_labelled);
    state.retry.relabels.retain(&unlabelled.map(|pod| pod.uid.clone()).collect());
    let mut work = Work { batch: Batch::new(context, &view.set), state, done: Done::default() };
    work.look(&plan.look).await;
    work.relabel(&plan.relabel).await;
    let mut create = Vec::from_iter(&plan.create);
    if let Some(prepare) = plan.prepare {
        work.prepare(view, prepare).await;
        // A failed preparation may stop creates. The next plan decides about those.
        let is_terminating = work.done.is_namespace_terminating();
        let is_stopped = work.state.preparation.stops_creates(&view.set);
        create.retain(|creation| !is_terminating && (creation.former.is_some() || !is_stopped));
    }
    work.delete(&plan.delete).await;
    work.create(create).await;
    work.done
}

impl Work<'_> {
    /// Reads pods that may or may not exist.
    async fn look<'p>(&mut self, looks: &'p [Look]) {
        let Work { batch, state, done } = self;
        let read = |look: &'p Look| batch.read_pod(&look.key);
        let mut failures = 0;
        let handle = |look: &Look, found: Result<Option<Pod>, String>| match found {
            Ok(found) => {
                batch.change_pods(|pods, now| pods.looked_up(&look.key, look.sought.as_ref(), found, now));
                match &look.sought {
                    Some(sought) if look.settles_delete => drop(state.fates.deletes.remove(&sought.pod.uid)),
                    Some(_) => {}
                    None => drop(state.fates.unknown.remove(&*look.key.name)),
                }
                true
            }
            Err(error) => {
                warn!(pod = %look.key, error, "cannot read a pod to learn whether it exists");
                done.has_failed = true;
                // A single pod that cannot be read does not stop the other reads. A second failure does.
                failures += 1;
                failures < 2
            }
        };
        batch.slow_start(looks, read, handle).await;
    }

    /// Restores the watched label of pods that lost it.
    async fn relabel<'p>(&mut self, pods: &'p [Seen]) {
        let Work { batch, state, .. } = self;
        let send = |seen: &'p Seen| restore_label(*batch, &seen.pod);
        let handle = |Seen { pod, .. }: &Seen, answer: Answer| {
            let restored = match &answer {
                Answer::NotLeading => return false,
                Answer::Done(body) => decoded(body).ok().filter(|pod| pod.is_labelled),
                _ => None,
            };
            if let Some(restored) = restored {
                batch.change_pods(|pods, now| pods.relabelled(restored, now));
                return true;
            }
            let error =
                answer.error().unwrap_or_else(|| "the response does not contain the pod with its label".to_owned());
            // A rejection other than 404 or 409 does not contradict the cached state. After any other answer, the pod may have changed or be
            // gone, so it must be read.
            let is_unchanged = matches!(&answer, Answer::Rejected(status) if !matches!(status.code, 404 | 409));
            // The failure delays only this pod.
            let of = (&pod.key, &pod.uid, pod.version);
            batch.delay_rejected(&mut state.retry.relabels, of, &error, "cannot restore the label of a pod");
            if !is_unchanged {
                batch.change_pods(|pods, _| pods.doubt(&pod.uid));
            }
            true
        };
        batch.slow_start(pods, send, handle).await;
    }
}

async fn restore_label(batch: Batch<'_>, pod: &Pod) -> Answer {
    let metadata = json!({
        "uid": pod.uid,
        "resourceVersion": pod.version.to_string(),
        "labels": { api::LABEL_MANAGED_BY: api::MANAGER },
    });
    let build = || requests::merge::<PodResource>(&pod.key, &json!({ "metadata": metadata }));
    batch.context.clients.write.send(&pod.key.namespace, build).await
}
