//! Never more than N pods, as [`crate::bound`] counts them. A failed pod that runs again may exceed the bound for a while.

use super::*;

/// For how long a pod that runs again may exceed the bound: the operator needs time to see it and to delete a pod.
const RUNS_AGAIN: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Bound {
    rule: crate::bound::Bound,
    /// Failed pods that run again, and since when.
    again: BTreeMap<String, Duration>,
    /// How often a set had more pods than allowed.
    pub exceeded: usize,
}

impl Observer for Bound {
    fn changed(&mut self, change: &Change) -> Checked {
        let (object, is_deleted) = (&change.object, change.event == EventType::Deleted);
        let check = if *change.kind == PODSETS {
            self.rule.set(object, is_deleted)
        } else if *change.kind == PODS {
            if change.before.as_ref().is_some_and(|before| object::is_finished(before)) && object::is_live(object) {
                self.again.insert(object::uid(object).to_owned(), change.at);
            }
            let Some(check) = self.rule.pod(object, is_deleted) else { return Ok(()) };
            check
        } else {
            return Ok(());
        };
        let is_exempt = |pod: &&&str| self.again.get(**pod).is_some_and(|since| *since + RUNS_AGAIN >= change.at);
        let exempt = check.counted.keys().filter(is_exempt).count();
        if check.allowed.is_none_or(|allowed| check.counted.len() <= allowed + exempt) {
            return Ok(());
        }
        self.exceeded += 1;
        Err(format!("{check}, after {change}"))
    }
}
