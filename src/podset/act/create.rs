//! Part of *act*: creates pods, and handles each answer. A created pod goes into the cache. A create without an answer goes into the state,
//! where it counts as live.

use k8s_openapi::api::core::v1::Pod as PodResource;
use kube::core::Status;
use tracing::{debug, warn};

use super::{
    batch::{AT_ONCE, Batch, Work, decoded},
    prepare,
};
use crate::{
    api::PodTemplate,
    podset::{
        names,
        observe::{Pod, PodsLike, Set, Wanted},
        plan::{Creation, Plan},
        pod,
        rejection::{self, Rejection, RejectionKind},
        revision::Revision,
        set_state::Retry,
        status,
    },
};
use operator_kit::{budget, client::Answer, log_once::warn_once, requests};

/// How many bytes of templates the creates of one set may have in flight.
const BYTES_AT_ONCE: usize = 1 << 20;

/// What came of a create.
enum Created {
    /// The create got this answer. If the answer is a rejection with 409, a read has found no pod of this name.
    Answered(Answer),
    /// The name was taken: by this pod, or by one that is gone again.
    Taken(Option<Pod>),
    /// It was not sent, because a read before it failed.
    Unread(String),
}

/// How many creates of one set may be in flight if its template has this many bytes.
fn at_once(bytes: usize) -> usize {
    (BYTES_AT_ONCE / bytes.max(1)).clamp(1, AT_ONCE)
}

/// How many bytes a plan needs if the template must be read first: the template, and one copy for each create in flight. `None`: the
/// template is in memory, or no pod is created and no template is prepared.
pub fn bytes_to_read(set: &Set, plan: &Plan) -> Option<usize> {
    let Ok(Wanted { template: PodsLike::Large(bytes), .. }) = set.wanted else { return None };
    let pods = plan.create.len().max(usize::from(plan.prepare.is_some()));
    (pods > 0).then(|| bytes * (1 + at_once(bytes).min(pods)))
}

/// The template of pods to create.
#[derive(Clone, Copy)]
struct Source<'a> {
    revision: Revision,
    /// `None`: the default pod.
    template: Option<&'a PodTemplate>,
}

impl Work<'_> {
    /// Creates pods: those of the former template first, and then those of the spec's. A rejection of one template does not keep the other
    /// from being tried.
    pub async fn create(&mut self, creations: Vec<&Creation>) {
        let Batch { context, set, .. } = self.batch;
        let Ok(Wanted { revision, template: PodsLike::Template(template), .. }) = &set.wanted else { return };
        // Each batch has a time limit of its own, because slow requests can use it up.
        let batch = || Batch::new(context, set);
        let (former, new): (Vec<_>, Vec<_>) = creations.into_iter().partition(|creation| creation.former.is_some());
        let mut of_former = 0;
        if let Some(revision) = former.iter().find_map(|creation| creation.former) {
            match prepare::former_template(batch(), revision).await {
                Ok(Some(template)) => {
                    self.create_from(batch(), Source { revision, template: template.as_ref() }, former).await;
                    of_former = self.done.created.len();
                    if self.state.strays_hold() || self.done.is_namespace_terminating() {
                        return;
                    }
                }
                Ok(None) if self.state.preparation.has_collided(set) => self.done.has_failed = true,
                // The next plan gives these pods the template of the spec, and lets them wait if pods of that template fail.
                Ok(None) => self.state.preparation.unusable = Some((revision, set.generation)),
                Err(error) => {
                    warn!(set = %set.key, %revision, error, "cannot read the ControllerRevision of the former template");
                    self.done.has_failed = true;
                }
            }
        }
        self.create_from(batch(), Source { revision: *revision, template: template.as_deref() }, new).await;
        self.done.has_created_updated = self.done.created.len() > of_former;
    }

    /// Creates pods of one template.
    async fn create_from<'p>(&mut self, mut batch: Batch<'_>, source: Source<'_>, creations: Vec<&'p Creation>) {
        let bytes = source.template.map_or(0, PodTemplate::bytes);
        batch.at_once = at_once(bytes);
        // A former template is never kept, so it needs room like a large one of the spec. It is held until the pods are created.
        let room = bytes * (1 + batch.at_once.min(creations.len()));
        let is_former = creations.iter().any(|creation| creation.former.is_some());
        let needs_room = is_former && room > budget::SMALL;
        let room = needs_room.then(|| batch.context.templates.try_acquire(&batch.set.key.namespace, room));
        if matches!(room, Some(None)) {
            self.done.has_failed = true;
            return;
        }
        // Start with as many as have succeeded for this spec since the last event. Otherwise a large set with slow creates would start with
        // one in each pass.
        let Retry { tried_generation, backoff, .. } = &self.state.retry;
        let is_known = *tried_generation == Some(batch.set.generation) && backoff.is_none();
        batch.first = 1 + self.state.reports.burst.filter(|_| is_known).map_or(0, |burst| burst.created);
        let send = |creation: &'p Creation| create_one(batch, creation, source);
        let handle = |creation: &Creation, created| self.handle_create(source.revision, creation, created);
        batch.slow_start(creations, send, handle).await;
    }

    /// Handles what came of a create with the template of this revision. Returns whether the next one may be sent.
    fn handle_create(&mut self, revision: Revision, creation: &Creation, created: Created) -> bool {
        let name = &creation.name;
        match created {
            Created::Answered(Answer::Done(body)) => match decoded(&body) {
                Ok(pod) => return self.handle_made(revision, creation, pod),
                Err(error) => self.handle_failed(creation, &format!("the answer cannot be read: {error}"), true),
            },
            Created::Answered(Answer::Rejected(status)) => self.handle_rejected(creation, &status),
            Created::Answered(Answer::Failed { error, may_land }) => self.handle_failed(creation, &error, may_land),
            Created::Answered(Answer::NotLeading) => {}
            Created::Taken(found) => return self.handle_taken(name, found),
            Created::Unread(error) => {
                warn!(set = %self.batch.set.key, pod = name, error, "cannot check whether a pod was created");
                self.done.has_failed = true;
            }
        }
        false
    }

    /// Whether the status keeps saying that the template of the spec is invalid: failed creates with the former template do not replace
    /// that message.
    fn is_hidden(&self, creation: &Creation) -> bool {
        let known = self.state.reports.rejected_create.as_ref();
        creation.former.is_some() && known.is_some_and(|known| known.is_invalid_template(self.batch.set.generation))
    }

    fn handle_rejected(&mut self, creation: &Creation, status: &Status) {
        let (set, name) = (self.batch.set, &creation.name);
        let mut rejection = rejection::read(status, name, &names::prefix(&set.key.name), set.generation);
        // An invalid former template does not make the spec invalid, so it is not reported as `InvalidTemplate`.
        if creation.former.is_some() && rejection.kind == RejectionKind::InvalidTemplate {
            rejection.kind = RejectionKind::Forbidden;
        }
        // A namespace that is being deleted has its own backoff.
        let is_failure = rejection.kind != RejectionKind::NamespaceTerminating;
        if is_failure {
            debug!(set = %set.key, pod = name, reason = rejection.message, "creating a pod was rejected");
        }
        self.state.fates.create_rejected(name, self.batch.may_land_until());
        if rejection.kind == RejectionKind::InvalidTemplate {
            self.state.preparation.dry_run = None;
        }
        self.done.has_failed |= is_failure;
        if !(is_failure && self.is_hidden(creation)) {
            self.done.rejected_create = Some(rejection);
        }
    }

    /// Handles a create that got no answer which proves its fate and may take effect (`may_land`), or that did not leave this process.
    fn handle_failed(&mut self, creation: &Creation, error: &str, may_land: bool) {
        let (set, name) = (self.batch.set, &creation.name);
        let reason = rejection::words(error, name, &names::prefix(&set.key.name));
        self.done.has_failed = true;
        // Only a repeated failure is reported: the first may have been a short outage, but a webhook may never answer.
        let is_repeated = self.state.fates.has_failed(name);
        warn_once!(!is_repeated, set = %set.key, pod = name, reason, may_take_effect = may_land, "creating a pod failed");
        let is_reported = is_repeated || self.state.inherits_failure(set, status::FAILED_CREATE);
        if is_reported && !self.is_hidden(creation) {
            let (kind, generation) = (RejectionKind::Unclear, set.generation);
            self.done.rejected_create = Some(Rejection { kind, message: reason, generation });
        }
        let until = self.batch.may_land_until();
        match may_land {
            true => self.state.fates.create_unanswered(name, until),
            false => self.state.fates.create_rejected(name, until),
        }
    }

    /// Handles a created pod. Returns whether it matches its manifest. If not, it is a stray and is deleted.
    fn handle_made(&mut self, revision: Revision, creation: &Creation, mut pod: Pod) -> bool {
        let Work { batch, state, done } = self;
        let (Batch { context, set, .. }, Creation { name, replacements, .. }) = (*batch, creation);
        state.fates.create_answered(name);
        // A webhook may have removed the annotation with the number of replacements.
        pod.replacements = pod.replacements.max(*replacements);
        let difference = (context.rules.differs)(&pod, name, &set.uid, revision);
        let (uid, made) = (pod.uid.clone(), pod.key.name.to_string());
        if difference.is_none() || pod.owner.as_ref() == Some(&set.uid) {
            batch.change_pods(|pods, now| pods.created(pod, now));
        }
        let Some(message) = difference else {
            done.created.push(name.clone());
            state.retry.finishes.created(revision, *replacements);
            return true;
        };
        warn!(set = %set.key, pod = made, "{message}");
        state.fates.strays.insert(uid, made);
        done.rejected_create = Some(Rejection { message, kind: RejectionKind::Forbidden, generation: set.generation });
        done.has_failed = true;
        false
    }

    /// Handles a create whose name was taken. `found` has this name, and may be our own pod of an earlier create; `None`: the name is free
    /// again. Returns whether the next create may be sent.
    fn handle_taken(&mut self, name: &str, found: Option<Pod>) -> bool {
        let Batch { context, set, .. } = self.batch;
        let key = set.key.sibling(name);
        self.state.fates.create_answered(name);
        let Some(pod) = found else {
            self.batch.change_pods(|pods, _| pods.allow_reuse(&key));
            self.done.has_failed = true;
            return false;
        };
        let is_ours = (context.rules.is_ours)(&pod, &set.uid);
        self.state.met_foreign_pod |= !is_ours;
        if is_ours && !pod.is_terminating && !pod.is_finished() {
            self.done.created.push(name.to_owned());
        }
        if !is_ours || pod.owner.as_ref() == Some(&set.uid) {
            self.batch.change_pods(|pods, now| pods.looked_up(&key, None, Some(pod), now));
        }
        true
    }
}

async fn create_one(batch: Batch<'_>, creation: &Creation, source: Source<'_>) -> Created {
    let Batch { context, set, .. } = batch;
    let key = set.key.sibling(&creation.name);
    if creation.is_repeated {
        // The name makes a second create harmless, unless a webhook renames pods. So read first.
        match batch.read_pod(&key).await {
            Ok(None) => {}
            Ok(found) => return Created::Taken(found),
            Err(error) => return Created::Unread(error),
        }
    }
    let build = || {
        let (Source { revision, template, .. }, Creation { name, replacements, .. }) = (source, creation);
        let manifest = pod::manifest(set, template, &context.default_spec, name, *replacements, revision);
        requests::create::<PodResource>(&key.namespace, &manifest)
    };
    match context.clients.write.send(&key.namespace, build).await {
        // The name is taken, or a quota is being changed. The reason tells which, and a read confirms it.
        Answer::Rejected(status) if status.code == 409 => match batch.read_pod(&key).await {
            Ok(None) if status.reason != "AlreadyExists" => Created::Answered(Answer::Rejected(status)),
            Ok(found) => Created::Taken(found),
            Err(error) => Created::Answered(Answer::Failed { error, may_land: true }),
        },
        answer => Created::Answered(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    fn plan(creates: u32) -> Plan {
        let create = |_| Creation { name: String::new(), replacements: 0, is_repeated: false, former: None };
        Plan { create: (0..creates).map(create).collect(), ..Plan::default() }
    }

    /// What must be read before this many creates of a set. Its template has this many bytes and is not in memory.
    fn to_read(bytes: usize, creates: u32) -> Option<usize> {
        let mut set = testing::set(10);
        set.wanted.as_mut().unwrap().template = PodsLike::Large(bytes);
        bytes_to_read(&set, &plan(creates))
    }

    #[test]
    fn the_larger_a_template_the_fewer_creates_are_under_way() {
        let cases = [(0, AT_ONCE), (8 << 10, AT_ONCE), (20 << 10, 51), (1 << 19, 2), (1 << 20, 1), (3 << 20, 1)];
        assert_eq!(cases.map(|(bytes, _)| (bytes, at_once(bytes))), cases);
    }

    #[test]
    fn memory_is_reserved_for_the_template_and_creates_in_flight() {
        assert_eq!(to_read(20_000, 0), None);
        assert_eq!(to_read(20_000, 3), Some(80_000));
        assert_eq!(to_read(20_000, 1000), Some(20_000 * 53));
        assert_eq!(to_read(2_000_000, 10), Some(4_000_000));
        assert_eq!(bytes_to_read(&testing::set(1), &plan(1)), None, "it is in memory");
    }
}
