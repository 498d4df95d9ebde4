//! Part of *act*: prepares a new template before pods get it. It stores the template in a ControllerRevision, and creates a pod from it with
//! `dryRun`.

use std::collections::HashMap;

use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::Pod as PodResource};
use kube::Resource;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json, value::RawValue};
use tracing::warn;

use super::batch::{Batch, Work};
use crate::{
    api::{self, PodTemplate},
    podset::{
        names,
        observe::{Pod, PodsLike, Set, View, Wanted},
        plan::Prepare,
        pod,
        rejection::{self, BACKOFF, Rejection, RejectionKind},
        revision::Revision,
        set_state::{FailedPreparation, Preparation},
    },
};
use operator_kit::{
    ObjectKey,
    client::Answer,
    listwatch::{self, Source, Watched},
    log_once::warn_once,
    meta::{Meta, Uid},
    requests,
    text::{cut, in_full},
};

/// A ControllerRevision, with its content or without (`IgnoredAny`).
#[derive(Deserialize)]
struct Stored<D> {
    metadata: Meta,
    #[serde(default)]
    revision: i64,
    #[serde(default)]
    data: D,
}

impl<D: DeserializeOwned + Default> Watched for Stored<D> {
    fn version(&self) -> u64 {
        self.metadata.version()
    }
}

impl Stored<Option<Box<RawValue>>> {
    /// The template. The content of a ControllerRevision may be anything.
    fn template(&self) -> Option<PodTemplate> {
        serde_json::from_str::<Data<PodTemplate>>(self.data.as_ref()?.get()).ok().map(|data| data.template)
    }

    /// Whether nobody owns it: a delete of the set with `--cascade=orphan` removes the owner.
    fn is_orphan(&self) -> bool {
        self.metadata.owner_references.is_empty()
    }

    /// Whether another PodSet controls it: a former one of this name, because the name of a revision is that of its set and a hash. The
    /// garbage collector deletes it soon.
    fn is_of_predecessor(&self, set: &Set) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|owner| owner.controller && owner.kind == api::PodSet::kind(&()) && *owner.uid != *set.uid)
    }
}

/// The content of a ControllerRevision.
#[derive(Deserialize, Serialize)]
struct Data<T> {
    template: T,
}

/// The manifest of a ControllerRevision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    revision: i64,
    data: Data<&'a PodTemplate>,
}

/// What came of a preparation.
enum Prepared {
    Done,
    /// The ControllerRevision of this name has other content or another owner.
    Collided,
    /// The API server rejects pods of the template, or everything in the namespace.
    Rejected(Rejection),
}

impl Work<'_> {
    /// Prepares the template of the spec. A failure delays the rollout. If the template is not stored and there is a former one, missing pods
    /// get the former one meanwhile, except with OnDelete.
    pub async fn prepare(&mut self, view: &View, prepare: Prepare) {
        let Work { batch, state, done } = self;
        let batch = *batch;
        let Ok(Wanted { revision, template: PodsLike::Template(template), .. }) = &batch.set.wanted else { return };
        let prepared = match prepare {
            Prepare::Store => store(batch, view, *revision, template.as_deref(), &state.preparation).await,
            Prepare::DryRun => dry_run(batch, *revision, template.as_deref()).await,
        };
        let preparation = &mut state.preparation;
        let (message, is_invalid) = match prepared {
            Ok(Prepared::Done) => {
                match prepare {
                    Prepare::Store => preparation.stored = Some(*revision),
                    Prepare::DryRun => preparation.dry_run = Some(*revision),
                }
                (preparation.failed, preparation.collided) = (None, None);
                return;
            }
            Ok(Prepared::Collided) => {
                preparation.collided = Some(*revision);
                ("a ControllerRevision of this name has other content or another owner".to_owned(), false)
            }
            Ok(Prepared::Rejected(rejection)) if rejection.kind == RejectionKind::NamespaceTerminating => {
                done.rejected_create = Some(rejection);
                return;
            }
            Ok(Prepared::Rejected(rejection)) => (rejection.message, true),
            // A retry that fails for another reason does not make the template valid.
            Err(error) => match preparation.invalid(batch.set) {
                Some(former) => (former.message.clone(), true),
                None => (error, false),
            },
        };
        let mut failures = preparation.failure(batch.set).map(|failed| failed.failures.clone()).unwrap_or_default();
        let (wait, is_news) = failures.note(&message, BACKOFF);
        let env = &batch.context.env;
        warn_once!(is_news, set = %batch.set.key, revision = %revision, error = message, "cannot prepare a template; its rollout is on hold");
        let again = env.now() + env.jittered(wait, 0.1);
        preparation.failed =
            Some(Box::new(FailedPreparation { revision: *revision, message, is_invalid, failures, again }));
    }
}

/// The key of the ControllerRevision.
fn key(set: &Set, revision: Revision) -> ObjectKey {
    set.key.sibling(&format!("{}-{revision}", set.key.name))
}

/// Stores the template in a ControllerRevision, unless it is stored.
async fn store(
    batch: Batch<'_>,
    view: &View,
    revision: Revision,
    template: Option<&PodTemplate>,
    preparation: &Preparation,
) -> Result<Prepared, String> {
    let Batch { context, set, .. } = batch;
    let key = key(set, revision);
    let Some(template) = template else { return Ok(Prepared::Done) };
    let build = || requests::create::<ControllerRevision>(&key.namespace, &manifest(set, &key, template));
    let answer = context.clients.write.send(&key.namespace, build).await;
    let exists = match &answer {
        Answer::Done(_) => {
            delete_oldest(batch, view).await;
            return Ok(Prepared::Done);
        }
        Answer::Rejected(status) => {
            let rejection = rejection::read(status, &set.key.name, &set.key.name, set.generation);
            if rejection.kind == RejectionKind::NamespaceTerminating {
                return Ok(Prepared::Rejected(rejection));
            }
            // A quota, a policy or a webhook also rejects the create of a ControllerRevision that exists.
            status.code == 409
        }
        _ => return Err(failure(&answer)),
    };
    let found = read(batch, revision).await.map_err(|error| if exists { error } else { failure(&answer) })?;
    match found {
        None if exists => Err("a ControllerRevision was deleted at the same moment".to_owned()),
        None => Err(failure(&answer)),
        Some(found) if found.is_of_predecessor(set) => {
            Err("the ControllerRevision of a deleted set of this name still exists".to_owned())
        }
        Some(found) if !found.template().is_some_and(|found| found.is_same(template)) => Ok(Prepared::Collided),
        Some(found) if !found.is_orphan() && !is_owned(&found.metadata, &set.uid) => Ok(Prepared::Collided),
        Some(found) if !found.is_orphan() && found.revision == set.generation => Ok(Prepared::Done),
        Some(found) => {
            let is_newer = |other: &Stored<_>| other.revision > found.revision;
            let is_restored = found.is_orphan()
                || preparation.unreported == Some(revision)
                || match history(batch).await {
                    Ok(stored) => stored.iter().any(is_newer),
                    Err(error) if preparation.is_new(set) => return Err(error),
                    // Perhaps nothing changed back. Pods of this template do not wait for the number.
                    Err(_) => false,
                };
            if is_restored {
                make_newest(batch, &key, found.is_orphan()).await?;
                delete_oldest(batch, view).await;
            }
            Ok(Prepared::Done)
        }
    }
}

fn failure(answer: &Answer) -> String {
    answer.error().unwrap_or_else(|| "this process does not lead".to_owned())
}

fn manifest<'a>(set: &Set, key: &ObjectKey, template: &'a PodTemplate) -> Manifest<'a> {
    let annotations: HashMap<_, _> =
        set.change_cause.iter().map(|cause| (api::ANNOTATION_CHANGE_CAUSE, cause)).collect();
    let metadata = json!({
        "name": key.name,
        "namespace": key.namespace,
        "labels": { api::LABEL_APP: set.key.name, api::LABEL_MANAGED_BY: api::MANAGER },
        "annotations": annotations,
        "ownerReferences": [pod::owner(set)],
    });
    let (revision, data) = (set.generation, Data { template });
    Manifest { api_version: "apps/v1", kind: "ControllerRevision", metadata, revision, data }
}

fn is_owned(metadata: &Meta, set: &Uid) -> bool {
    metadata.owner_references.iter().any(|owner| owner.controller && *owner.uid == **set)
}

async fn read(batch: Batch<'_>, revision: Revision) -> Result<Option<Stored<Option<Box<RawValue>>>>, String> {
    batch.context.clients.read.get::<ControllerRevision, _>(&key(batch.set, revision)).await
}

/// Makes the ControllerRevision of a former template the newest, after a change back to this template. Adopts an orphan.
async fn make_newest(batch: Batch<'_>, key: &ObjectKey, is_orphan: bool) -> Result<(), String> {
    let Batch { context, set, .. } = batch;
    let annotations = json!({ api::ANNOTATION_CHANGE_CAUSE: set.change_cause });
    let mut patch = json!({ "revision": set.generation, "metadata": { "annotations": annotations } });
    if is_orphan {
        patch["metadata"]["ownerReferences"] = json!([pod::owner(set)]);
    }
    let build = || requests::merge::<ControllerRevision>(key, &patch);
    match context.clients.write.send(&key.namespace, build).await {
        Answer::Done(_) => Ok(()),
        // A policy or a webhook does not stop a change back. Only the history keeps the former order. But an orphan is not stored for the set.
        Answer::Rejected(status) if status.code != 404 && !is_orphan => Ok(()),
        answer => Err(failure(&answer)),
    }
}

/// The ControllerRevisions of the set, without their content.
async fn history(Batch { context, set, .. }: Batch<'_>) -> Result<Vec<Stored<IgnoredAny>>, String> {
    let source = Source {
        labels: Some(format!("{}={}", api::LABEL_APP, set.key.name)),
        ..Source::new::<ControllerRevision>("controllerrevisions.apps", &Some(set.key.namespace.clone()))
    };
    let is_own = |found: &Stored<IgnoredAny>| is_owned(&found.metadata, &set.uid);
    let (stored, _) = listwatch::list(&context.clients.read, &source, is_own).await.map_err(|error| in_full(&error))?;
    Ok(stored)
}

/// Deletes unused ControllerRevisions beyond the history limit, oldest first. A failed delete is tried again when the next template is stored.
async fn delete_oldest(batch: Batch<'_>, view: &View) {
    let Batch { context, set, .. } = batch;
    let Ok(Wanted { revision, update, .. }) = &set.wanted else { return };
    // Each was stored for another generation, so there cannot be more.
    if set.generation <= i64::from(update.history) + 1 {
        return;
    }
    let Ok(mut stored) = history(batch).await else { return };
    let used = view.pods.iter().filter_map(|seen| seen.pod.revision);
    let used = used.chain(set.former_revision()).chain([*revision]);
    let used: Vec<String> = used.map(|revision| key(set, revision).name.to_string()).collect();
    stored.retain(|found| !used.contains(&found.metadata.name));
    stored.sort_by_key(|found| found.revision);
    let surplus = stored.len().saturating_sub(usize::try_from(update.history).unwrap_or(usize::MAX));
    for Stored { metadata, .. } in stored.into_iter().take(surplus) {
        let (key, uid) = (metadata.key(), metadata.uid);
        let build = || requests::delete::<ControllerRevision>(&key, Some(&uid), None);
        context.clients.write.send(&key.namespace, build).await;
    }
}

/// Whether the API server would create a pod of the template. Quotas and webhooks may reject it for reasons that do not concern the
/// template, so only errors in the template count.
async fn dry_run(batch: Batch<'_>, revision: Revision, template: Option<&PodTemplate>) -> Result<Prepared, String> {
    let Batch { context, set, .. } = batch;
    let prefix = names::prefix(&set.key.name);
    let name = format!("{}{revision}", cut(&prefix, 50));
    let build = || {
        let manifest = pod::manifest(set, template, &context.default_spec, &name, 0, revision);
        requests::dry_run::<PodResource>(&set.key.namespace, &manifest)
    };
    match context.clients.write.send(&set.key.namespace, build).await {
        // A webhook may have changed the pod. A pod created like this would be deleted as a stray.
        Answer::Done(body) => {
            let made: Pod =
                serde_json::from_slice(&body).map_err(|error| format!("the answer cannot be read: {error}"))?;
            match (context.rules.differs)(&made, &name, &set.uid, revision) {
                None => Ok(Prepared::Done),
                Some(difference) => Err(difference),
            }
        }
        Answer::Rejected(status) => {
            let rejection = rejection::read(&status, &name, &prefix, set.generation);
            Ok(match rejection.kind {
                RejectionKind::InvalidTemplate | RejectionKind::NamespaceTerminating => Prepared::Rejected(rejection),
                RejectionKind::Forbidden | RejectionKind::Unclear => Prepared::Done,
            })
        }
        answer => Err(failure(&answer)),
    }
}

/// The grace period of a pod template.
#[derive(Deserialize)]
struct Grace {
    #[serde(rename = "terminationGracePeriodSeconds")]
    seconds: Option<i64>,
}

/// Reads a former template. `None`: it is no longer stored or cannot be used, so pods get the template of the spec. `Some(None)`: the default
/// pod.
pub async fn former_template(batch: Batch<'_>, revision: Revision) -> Result<Option<Option<PodTemplate>>, String> {
    if revision == Revision::of(None, 0) {
        return Ok(Some(None));
    }
    // With TerminationComplete the API server rejects a grace period of 0 in a PodSet: a delete would remove the pod while its containers
    // run.
    let is_usable = |template: &PodTemplate| {
        let grace = || serde_json::from_str::<Grace>(template.spec.as_ref()?.get()).ok()?.seconds;
        !batch.set.waits_for_termination() || grace() != Some(0)
    };
    let found = read(batch, revision).await?.filter(|found| is_owned(&found.metadata, &batch.set.uid));
    let found = found.and_then(|found| found.template()).filter(is_usable);
    if found.is_none() {
        let why = "it is not stored, or has terminationGracePeriodSeconds: 0";
        warn!(set = %batch.set.key, %revision, why, "a former template cannot be used; pods get the new one");
    }
    Ok(found.map(Some))
}
