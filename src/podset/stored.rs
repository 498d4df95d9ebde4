//! Reads stored statuses of PodSets. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{PodSetStatus, condition};
use operator_kit::statuses;

/// The condition of this type, if the status has it.
pub fn find<'a>(status: &'a PodSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|stored| stored.type_ == type_)
}

/// Whether the condition of this type is True.
pub fn holds(status: &PodSetStatus, type_: &str) -> bool {
    find(status, type_).is_some_and(|stored| stored.status == "True")
}

/// The reason of the condition Ready; empty if there is none.
pub fn ready_reason(status: &PodSetStatus) -> &str {
    find(status, condition::READY).map_or("", |ready| &ready.reason)
}

/// Whether two statuses are equal, apart from the writer and from conditions that others have added. Pods that terminate one after the
/// other are no reason to write a status each time: only from and to 0.
pub fn is_same(stored: &PodSetStatus, new: &PodSetStatus) -> bool {
    const OWN: [&str; 4] = [condition::READY, condition::RECONCILING, condition::STALLED, condition::REPLICA_FAILURE];
    let PodSetStatus {
        pod_names,
        available_replicas,
        ready_replicas,
        terminating_replicas,
        updated_replicas,
        updated_ready_replicas,
        updated_available_replicas,
        current_revision,
        update_revision,
        collision_count,
        observed_generation,
        selector,
        conditions,
        written_by: _,
    } = stored;
    let updated = (updated_replicas, updated_ready_replicas, updated_available_replicas);

    (pod_names, available_replicas, ready_replicas) == (&new.pod_names, &new.available_replicas, &new.ready_replicas)
        && (*terminating_replicas == 0) == (new.terminating_replicas == 0)
        && updated == (&new.updated_replicas, &new.updated_ready_replicas, &new.updated_available_replicas)
        && (current_revision, update_revision) == (&new.current_revision, &new.update_revision)
        && (observed_generation, collision_count) == (&new.observed_generation, &new.collision_count)
        && *selector == new.selector
        && statuses::are_same(conditions, &new.conditions, &OWN)
}
