//! Names that no known pod has and that no new pod may take yet. No I/O.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use operator_kit::ObjectKey;

/// Names of pods that ended recently, and of pods that belong to others.
#[derive(Debug, Default)]
pub struct TakenNames {
    /// When the pod of each name ended, as far as was seen.
    ended: HashMap<ObjectKey, Timestamp>,
    /// The same in the order of time.
    ends: VecDeque<(Timestamp, ObjectKey)>,
    /// When a stranger was found under each name: a pod without our owner and label.
    strangers: HashMap<ObjectKey, Timestamp>,
}

impl TakenNames {
    /// The pod of this name ended.
    pub fn pod_ended(&mut self, key: ObjectKey, now: Timestamp) {
        self.ended.insert(key.clone(), now);
        self.ends.push_back((now, key));
    }

    /// When the pod of this name ended, if that is remembered.
    pub fn ended_at(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.ended.get(key).copied()
    }

    /// The name may be used again.
    pub fn allow_reuse(&mut self, key: &ObjectKey) {
        self.ended.remove(key);
    }

    /// A stranger has this name.
    pub fn stranger_met(&mut self, key: ObjectKey, now: Timestamp) {
        self.strangers.insert(key, now);
    }

    /// No stranger has this name any more.
    pub fn stranger_gone(&mut self, key: &ObjectKey) {
        self.strangers.remove(key);
    }

    /// When a stranger was found under this name, if that is remembered.
    pub fn stranger_met_at(&self, key: &ObjectKey) -> Option<Timestamp> {
        self.strangers.get(key).copied()
    }

    /// Forgets what is older than `quarantine`.
    pub fn expire(&mut self, now: Timestamp, quarantine: SignedDuration) {
        let is_old = |at: Timestamp| now.duration_since(at) >= quarantine;
        while let Some((ended, key)) = self.ends.pop_front_if(|(ended, _)| is_old(*ended)) {
            if self.ended.get(&key) == Some(&ended) {
                self.ended.remove(&key);
            }
        }
        self.strangers.retain(|_, met| !is_old(*met));
    }

    /// Whether nothing is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.ends.is_empty() && self.strangers.is_empty()
    }
}
