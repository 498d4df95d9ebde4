//! Chance: all of it follows from the seed.

use std::{ops::Range, time::Duration};

use crate::apiserver::Chance;

/// Draws.
pub struct Dice(Chance);

impl Dice {
    /// All draws follow from these two numbers, and have nothing to do with those of any other two.
    pub fn new([seed, part]: [u64; 2]) -> Self {
        let seed = Chance::from_seed(seed).bits();
        Dice(Chance::from_seed(seed ^ Chance::from_seed(part).bits()))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    /// A number of these.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them, if there are any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let length = u64::try_from(of.len()).ok().filter(|length| *length > 0)?;
        of.get(usize::try_from(self.below(length)).ok()?)
    }

    /// One of these, of which there are some.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        *self.pick(of).expect("a choice among some")
    }

    /// Milliseconds of this range.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }
}
