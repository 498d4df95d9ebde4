//! Texts that many objects have in common, such as namespaces, nodes and owners: each is in memory once.

use std::{collections::HashSet, sync::Arc};

/// Below so many texts nobody looks which of them are still used.
const FEW: usize = 64;

/// The texts that are held.
#[derive(Debug, Default)]
pub struct Interner {
    held: HashSet<Arc<str>>,
    /// With so many texts, those that nobody uses any more are let go.
    sweep_at: usize,
}

impl Interner {
    /// Puts the text that is held already in place of one that says the same, or holds this one.
    pub fn share(&mut self, text: &mut Arc<str>) {
        if let Some(held) = self.held.get(text) {
            *text = held.clone();
            return;
        }
        if self.held.len() >= self.sweep_at {
            self.held.retain(|held| Arc::strong_count(held) > 1);
            self.sweep_at = (2 * self.held.len()).max(FEW);
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
    fn what_nobody_uses_is_let_go() {
        let mut texts = Interner::default();
        let mut kept: Arc<str> = "kept".into();
        texts.share(&mut kept);
        for number in 0..10 * FEW {
            texts.share(&mut number.to_string().into());
        }
        assert!(texts.held.len() <= FEW, "{}", texts.held.len());
        let mut again: Arc<str> = "kept".into();
        texts.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
