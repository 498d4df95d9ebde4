//! Random choices, determined by the seed.

use std::{ops::Range, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

pub struct Dice(StdRng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(StdRng::seed_from_u64(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.within(0..n)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them, if there are any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.choose(&mut self.0)
    }

    /// One of these. Panics if there is none.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        *self.pick(of).expect("at least one choice")
    }

    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }
}
