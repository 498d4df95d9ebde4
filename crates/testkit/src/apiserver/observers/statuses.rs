//! A status may be outdated, but every value in it must have been true at some time.

use super::*;

/// What happened to one set so far.
#[derive(Default)]
struct Known {
    replicas: BTreeMap<i64, u64>,
    /// The names of all pods that it ever had.
    pods: BTreeSet<String>,
}

#[derive(Default)]
pub struct Statuses {
    sets: BTreeMap<String, Known>,
}

impl Observer for Statuses {
    fn changed(&mut self, change: &Change) -> Checked {
        if *change.kind == PODS {
            if let Some(owner) = owner(&change.object) {
                self.sets.entry(owner).or_default().pods.insert(object::name(&change.object).to_owned());
            }
        } else if *change.kind == PODSETS {
            return self.set(change);
        }
        Ok(())
    }
}

impl Statuses {
    fn set(&mut self, change: &Change) -> Checked {
        let set = &change.object;
        if change.event == EventType::Deleted {
            return Ok(());
        }
        let known = self.sets.entry(key(object::namespace(set), object::uid(set))).or_default();
        known.replicas.insert(object::generation(set), set["spec"]["replicas"].as_u64().unwrap_or(1));
        if !is_by_replica(change) || !changes_only_status(change) {
            return Ok(());
        }
        let before = change.before.as_ref().map_or(&Value::Null, |before| &before["status"]);
        known.check(set, before).map_err(|wrong| format!("{wrong}: {change}: {}", set["status"]))
    }
}

impl Known {
    fn check(&self, set: &Value, before: &Value) -> Result<(), &'static str> {
        let status = &set["status"];
        let names: Vec<&str> = status["podNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [ready, available] = ["readyReplicas", "availableReplicas"].map(|count| status[count].as_u64());
        let observed = status["observedGeneration"].as_i64();
        let went_back = observed < before["observedGeneration"].as_i64() || observed > Some(object::generation(set));
        let wanted = observed.and_then(|observed| self.replicas.range(..=observed).next_back()).map(|(_, n)| *n);
        let least = observed.and_then(|observed| self.replicas.range(observed..).map(|(_, n)| *n).min()).or(wanted);
        let is_ready = object::is_ready(set);
        // Then availableReplicas includes surplus pods.
        let cannot_delete =
            object::condition(set, "ReplicaFailure").is_some_and(|held| held["reason"] == "FailedDelete");
        let is_all = ready == wanted && available == wanted;
        let wrongs = [
            (available != u64::try_from(names.len()).ok(), "availableReplicas is not the number of podNames"),
            (ready > available, "more pods are ready than available"),
            (names.iter().any(|name| !self.pods.contains(*name)), "podNames has a pod that the set never had"),
            (went_back, "observedGeneration went back, or ahead of the generation"),
            (is_ready && ready < least, "the condition Ready is True, but too few pods are ready"),
            (is_ready && !cannot_delete && !is_all, "the condition Ready is True, but not all pods are ready"),
        ];
        wrongs.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, wrong)| Err(*wrong))
    }
}
