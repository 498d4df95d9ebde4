//! A budget for large objects, such as pod templates: only a few are in memory at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use crate::{budget::TOTAL, fair::is_fair, lock};

/// A budget that namespaces share fairly ([`is_fair`]). Clones share the same bytes.
#[derive(Clone, Debug, Default)]
pub struct FairBudget(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// A part of a [`FairBudget`], until it is dropped.
#[derive(Debug)]
pub struct Room {
    budget: FairBudget,
    namespace: Arc<str>,
    bytes: usize,
}

impl FairBudget {
    /// Takes this many bytes, if they are free and the namespace may have them. A request larger than the whole budget takes all of it.
    pub fn try_take(&self, namespace: &Arc<str>, bytes: usize) -> Option<Room> {
        let (mut held, all) = (lock(&self.0), TOTAL as usize);
        let bytes = bytes.min(all);
        let left_free = all.checked_sub(held.values().sum::<usize>() + bytes)?;
        let own = held.get(namespace).copied().unwrap_or_default();
        if !is_fair(own, bytes, left_free) {
            return None;
        }
        held.insert(namespace.clone(), own + bytes);
        Some(Room { budget: self.clone(), namespace: namespace.clone(), bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut held = lock(&self.budget.0);
        let own = held.get(&self.namespace).map_or(0, |own| own.saturating_sub(self.bytes));
        if own > 0 {
            held.insert(self.namespace.clone(), own);
        } else {
            held.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_larger_than_the_budget_takes_all_of_it() {
        let (budget, a) = (FairBudget::default(), "a".into());
        let all = budget.try_take(&a, usize::MAX).unwrap();
        assert!(budget.try_take(&a, 1).is_none());
        drop(all);
        assert!(lock(&budget.0).is_empty());
    }

    #[test]
    fn a_namespace_leaves_room_for_others() {
        let (budget, [a, b]) = (FairBudget::default(), ["a", "b"].map(Arc::from));
        let mut held: Vec<Room> = std::iter::from_fn(|| budget.try_take(&a, 2 << 20)).collect();
        assert_eq!(held.len(), 3, "of 8 MiB");
        let last = budget.try_take(&b, 2 << 20).unwrap();
        held.pop();
        assert!(budget.try_take(&a, 2 << 20).is_none(), "it would leave nothing free again");
        drop(last);
        assert!(budget.try_take(&a, 2 << 20).is_some());
    }
}
