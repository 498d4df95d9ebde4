//! Reads the conditions of statuses, and compares statuses. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{PodSetStatus, condition};
use operator_kit::statuses;

/// The types of the operator's own conditions.
pub const OWN: [&str; 4] = [condition::READY, condition::RECONCILING, condition::STALLED, condition::REPLICA_FAILURE];

/// The own conditions that the stored status has and the applied one has not: another client also owns them, for example a tool that restores
/// backups.
pub fn kept(stored: &PodSetStatus, applied: &PodSetStatus) -> Vec<&'static str> {
    let is_kept = |type_: &&str| find(stored, type_).is_some() && find(applied, type_).is_none();
    OWN.into_iter().filter(is_kept).collect()
}

/// The reason of Ready and Reconciling while pods of former templates are replaced.
pub const ROLLING: &str = "RolloutInProgress";

/// The reason of Ready and Stalled while a rollout makes no progress.
pub const LATE: &str = "ProgressDeadlineExceeded";

/// The reason of Ready while it is True and a rollout is paused.
pub const PAUSED: &str = "RolloutPaused";

/// Whether the status says that a rollout is in progress.
pub fn reports_rollout(status: &PodSetStatus) -> bool {
    [ROLLING, LATE].contains(&ready_reason(status))
}

/// The reason of Ready, if it is about a rollout that has not ended.
pub fn rollout_reason(status: &PodSetStatus) -> Option<&str> {
    Some(ready_reason(status)).filter(|reason| [ROLLING, LATE, PAUSED].contains(reason))
}

/// The reason of an own condition that no longer holds, and cannot be removed.
pub const OVER: &str = "Over";

/// The condition of this type, if the status has it.
pub fn find<'a>(status: &'a PodSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|stored| stored.type_ == type_)
}

/// The message of the condition of this type, if it has this reason.
pub fn message<'a>(status: &'a PodSetStatus, type_: &str, reason: &str) -> Option<&'a str> {
    find(status, type_).filter(|stored| stored.reason == reason).map(|stored| stored.message.as_str())
}

/// Whether the condition of this type is True.
pub fn holds(status: &PodSetStatus, type_: &str) -> bool {
    find(status, type_).is_some_and(|stored| stored.status == "True")
}

/// The reason of the condition Ready; empty if there is none.
pub fn ready_reason(status: &PodSetStatus) -> &str {
    find(status, condition::READY).map_or("", |ready| &ready.reason)
}

/// Whether two statuses are equal, apart from the writer and from conditions that others have added. The number of terminating pods counts
/// as changed only when it becomes 0 or is no longer 0. Otherwise pods that terminate one after the other would cause a write each.
pub fn is_same(stored: &PodSetStatus, new: &PodSetStatus) -> bool {
    let others = |status: &PodSetStatus| PodSetStatus {
        terminating_replicas: status.terminating_replicas.min(1),
        conditions: Vec::new(),
        written_by: None,
        ..status.clone()
    };
    others(stored) == others(new) && statuses::are_same(&stored.conditions, &new.conditions, &OWN)
}
