//! A token bucket: some tokens at once, then one in each interval. Pure: it has no clock.

use jiff::{SignedDuration, Timestamp};

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    interval: SignedDuration,
    burst: i32,
    /// When it is full again.
    full_at: Timestamp,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, which gains one token in each `interval`.
    pub const fn new(burst: i32, interval: SignedDuration) -> Self {
        TokenBucket { interval, burst, full_at: Timestamp::MIN }
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Timestamp) -> bool {
        let has_token = self.next_token(now) <= now;
        if has_token {
            self.take(now);
        }
        has_token
    }

    /// When it next has a token, now or later.
    pub fn next_token(&self, now: Timestamp) -> Timestamp {
        now.max(self.full_at.max(now) - self.interval * (self.burst - 1))
    }

    /// Takes a token. If there is none, the next one is delayed.
    pub fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}
