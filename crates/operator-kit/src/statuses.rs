//! Writes the status of a custom resource, and says what the answer proves. The only writes of statuses.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{ObjectKey, failures::Waits, meta::Uid, requests};
use crate::{
    client::{Answer, Clients},
    listwatch::Watched,
};
use leadership::text::{in_full, in_words};

/// How long to wait before a status is applied again to an object that was not as it was thought to be.
pub const OUTDATED_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// The least time from one write of a status to the next, and the longest after failures.
pub const PAUSE: Waits = (SignedDuration::from_secs(5), SignedDuration::from_secs(30));

/// The time of day as conditions carry it: without fractions of a second.
pub fn transition_time(wall: Timestamp) -> Time {
    Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall))
}

/// A stored status. A condition that cannot be read is left out: who wrote it must not spoil what is ours. A status that cannot be read
/// all the same counts as empty, and is written anew.
pub fn stored<S: DeserializeOwned + Default>(mut status: Value) -> S {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| Condition::deserialize(condition).is_ok());
    }
    S::deserialize(status).unwrap_or_default()
}

/// Of a condition what is ours: its type, status, reason, message and time.
pub type OwnCondition<'a> = (&'a str, &'a str, &'a str, &'a str, &'a Time);

/// What is ours in the conditions of these types, in the order of their types: the API server keeps them in any order, and what others
/// have added is theirs, be it the observedGeneration of one of ours.
pub fn own_conditions<'a>(conditions: &'a [Condition], types: &[&str]) -> Vec<OwnCondition<'a>> {
    let own = |condition: &'a Condition| {
        let Condition { last_transition_time, message, observed_generation: _, reason, status, type_ } = condition;
        (type_.as_str(), status.as_str(), reason.as_str(), message.as_str(), last_transition_time)
    };
    let mut own: Vec<_> = conditions.iter().map(own).filter(|(type_, ..)| types.contains(type_)).collect();
    own.sort_unstable_by_key(|(type_, ..)| *type_);
    own
}

/// What became of a status.
#[derive(Debug)]
pub enum Applied<W> {
    /// It is stored; the object that carries it.
    Written(Box<W>),
    /// The object is no longer as it was thought to be: this is how it is; `None`: it is gone.
    Outdated(Option<Box<W>>),
    /// It was refused, or nobody can say; why.
    Failed(String),
    /// This process does not lead.
    NotSent,
}

/// Statuses that are being written, by the UID of their object: what comes back of them by a watch is no news.
#[derive(Debug)]
pub struct Writing<S>(HashMap<Uid, S>);

impl<S> Default for Writing<S> {
    fn default() -> Self {
        Writing(HashMap::new())
    }
}

impl<S: PartialEq> Writing<S> {
    /// This status is about to be written.
    pub fn begin(&mut self, uid: &Uid, status: S) {
        self.0.insert(uid.clone(), status);
    }

    /// What became of it is known, and taken in.
    pub fn end(&mut self, uid: &Uid) {
        self.0.remove(uid);
    }

    /// The status of the object of this UID that is being written.
    pub fn of(&self, uid: &Uid) -> Option<&S> {
        self.0.get(uid)
    }

    /// Whether somebody else put this new status in place of the former, perhaps a former leader who knew less.
    pub fn is_strange(&self, uid: &Uid, former: &S, new: &S) -> bool {
        former != new && self.of(uid) != Some(new)
    }
}

/// Applies the status of the object of this name and UID, if its resourceVersion is still `version`; `None`: whatever
/// its resourceVersion.
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
        Answer::Done(body) => match serde_json::from_slice(&body) {
            Ok(object) => Applied::Written(object),
            Err(error) => Applied::Failed(in_full(&error)),
        },
        Answer::Rejected(status) if matches!(status.code, 404 | 409) => match read_again::<K, W>(clients, key).await {
            // The object is as it was thought to be: a webhook refuses its status, or its kind has none.
            Ok(Some(found)) if Some(found.version()) == version => Applied::Failed(in_words(&status)),
            Ok(found) => Applied::Outdated(found),
            Err(error) => Applied::Failed(error),
        },
        Answer::Rejected(status) | Answer::Unclear(status) => Applied::Failed(in_words(&status)),
        Answer::Unknown(error) | Answer::NeverLeft(error) => Applied::Failed(error),
        Answer::NotSent => Applied::NotSent,
    }
}

/// The object as it is; `None`: it is gone.
async fn read_again<K, W>(clients: &Clients, key: &ObjectKey) -> Result<Option<Box<W>>, String>
where
    K: Resource<DynamicType = ()>,
    W: Watched,
{
    let request = requests::get::<K>(key).map_err(|error| error.to_string())?;
    let found = clients.read.read_one(request).await.map_err(|error| in_full(&error))?;
    Ok(found.map(Box::new))
}
