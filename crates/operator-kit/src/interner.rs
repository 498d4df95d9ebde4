//! Keeps one copy of each text that many objects share, such as namespaces, nodes and owners.

use std::{collections::HashSet, sync::Arc};

/// Unused texts are not removed while there are fewer texts than this.
const SMALLEST_SWEEP: usize = 64;

/// The texts.
#[derive(Debug, Default)]
pub struct Interner {
    held: HashSet<Arc<str>>,
    /// At this number of texts, unused ones are removed.
    sweep_at: usize,
}

impl Interner {
    /// Replaces `text` with the copy that is kept, or keeps this one.
    pub fn share(&mut self, text: &mut Arc<str>) {
        if let Some(held) = self.held.get(text) {
            *text = held.clone();
            return;
        }
        if self.held.len() >= self.sweep_at {
            self.held.retain(|held| Arc::strong_count(held) > 1);
            self.sweep_at = (2 * self.held.len()).max(SMALLEST_SWEEP);
        }
        self.held.insert(text.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_held_once() {
        let mut texts = Interner::default();
        let (mut one, mut same): (Arc<str>, Arc<str>) = ("default".into(), "default".into());
        assert!(!Arc::ptr_eq(&one, &same));
        texts.share(&mut one);
        texts.share(&mut same);
        assert!(Arc::ptr_eq(&one, &same));
    }

    #[test]
    fn unused_texts_are_dropped() {
        let mut texts = Interner::default();
        let mut kept: Arc<str> = "kept".into();
        texts.share(&mut kept);
        for number in 0..10 * SMALLEST_SWEEP {
            texts.share(&mut number.to_string().into());
        }
        assert!(texts.held.len() <= SMALLEST_SWEEP, "{}", texts.held.len());
        let mut again: Arc<str> = "kept".into();
        texts.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
