//! The status of custom resources: its conditions, and the only function that writes it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{ObjectKey, meta::Uid, requests};
use crate::{
    client::{Answer, Clients, with_version},
    log_once::warn_once,
    meta::Watched,
    telemetry::spans,
    text::{in_full, in_words},
};

/// The wait before the next try, if the object has changed since the status was made.
pub const OUTDATED_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// A new condition for an object with these stored ones. Its transition time changes only with its status, and is in whole seconds.
pub fn condition(
    stored: &[Condition],
    type_: &str,
    holds: bool,
    reason: &str,
    message: String,
    wall: Timestamp,
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let former = stored.iter().find(|former| former.type_ == type_ && former.status == status);
    let now = || Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall));
    Condition {
        last_transition_time: former.map_or_else(now, |former| former.last_transition_time.clone()),
        message,
        observed_generation: None,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    }
}

/// Whether both have the same conditions of these types, in any order. Others may have added conditions, or an observedGeneration to ours.
pub fn are_same<'a>(stored: &'a [Condition], new: &'a [Condition], types: &[&str]) -> bool {
    let facts = |conditions: &'a [Condition], type_: &str| {
        let Condition { last_transition_time, message, reason, status, .. } =
            conditions.iter().find(|condition| condition.type_ == type_)?;
        Some((status, reason, message, last_transition_time))
    };
    types.iter().all(|type_| facts(stored, type_) == facts(new, type_))
}

/// Decodes a stored status. Drops conditions that cannot be decoded, because others may have added them. A status that cannot be decoded
/// counts as empty, and is written again.
pub fn stored<S: DeserializeOwned + Default>(mut status: Value) -> S {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| Condition::deserialize(condition).is_ok());
    }
    S::deserialize(status).unwrap_or_default()
}

/// The result of a write of a status.
#[derive(Debug)]
pub enum Applied<W> {
    /// The status was written. Contains the object as the API server returned it.
    Written(W),
    /// The object has changed in the meantime; its current state, or `None` if it is gone.
    Outdated(Option<W>),
    /// It was rejected or got no answer; the reason.
    Failed(String),
    /// This process does not lead.
    NotLeading,
}

/// Logs that a status may not have been written, as a warning if the error is new.
pub fn log_failure(key: &ObjectKey, error: &str, is_news: bool) {
    warn_once!(is_news, object = %key, error, "writing the status failed or got no answer; trying again");
    spans::failed(error);
}

/// Applies the status of the object with this name and UID, if it still has the resourceVersion `version`; `None`: any version.
pub async fn apply<K, W>(
    clients: &Clients,
    key: &ObjectKey,
    uid: &Uid,
    version: Option<u64>,
    status: &impl Serialize,
) -> Applied<W>
where
    K: Resource<DynamicType = ()>,
    W: Watched,
{
    let build = || requests::apply_status::<K>(key, uid, version, status);
    match clients.write.send(&key.namespace, build).await {
        Answer::Done(body) => match serde_json::from_slice(&body).and_then(with_version) {
            Ok(object) => Applied::Written(object),
            Err(error) => Applied::Failed(in_full(&error)),
        },
        Answer::Rejected(status) if matches!(status.code, 404 | 409) => match clients.read.get::<K, W>(key).await {
            // The object has not changed, so the reason is another one: a webhook rejects its status, or its kind has none.
            Ok(Some(found)) if Some(found.version()) == version => Applied::Failed(in_words(&status)),
            Ok(found) => Applied::Outdated(found),
            Err(error) => Applied::Failed(error),
        },
        Answer::Rejected(status) => Applied::Failed(in_words(&status)),
        Answer::Failed { error, .. } => Applied::Failed(error),
        Answer::NotLeading => Applied::NotLeading,
    }
}
