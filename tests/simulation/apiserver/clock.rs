//! The cluster's wall clock and its chance, both reproducible: time is tokio's (paused in tests) on
//! top of a fixed epoch, and every random choice comes out of the seed that a test passes in.
//!
//! Nothing else in this folder may read a clock or draw a random number.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z: where the cluster's wall clock stands when a test begins.
const EPOCH_SECONDS: i64 = 1_767_225_600;

/// The characters of generated names, as in `k8s.io/apimachinery/pkg/util/rand`.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The wall clock of the API server, the kubelet and the controllers beside them.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that stands at the epoch now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Virtual time since the test began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The wall clock, with its fraction of a second.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let nanoseconds = i32::try_from(elapsed.subsec_nanos()).unwrap_or(0);
        let seconds = EPOCH_SECONDS + i64::try_from(elapsed.as_secs()).unwrap_or(0);
        Timestamp::new(seconds, nanoseconds).expect("a test never runs into the year 10000")
    }

    /// The wall clock as `metadata` carries it: RFC 3339, whole seconds.
    pub fn rfc3339(&self) -> String {
        self.rfc3339_in(0)
    }

    /// The wall clock `seconds` from now, as `metadata` carries it.
    pub fn rfc3339_in(&self, seconds: i64) -> String {
        Timestamp::from_second(self.now().as_second() + seconds)
            .expect("a grace period never reaches the year 10000")
            .to_string()
    }
}

/// SplitMix64: small, well distributed, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// All later draws follow from `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random UUID (version 4), as `metadata.uid` holds one.
    pub fn uid(&mut self) -> String {
        let (high, low) = (self.bits(), self.bits());
        let version = (high & 0x0fff) | 0x4000;
        let variant = ((low >> 48) & 0x3fff) | 0x8000;
        let (first, second) = (high >> 32, (high >> 16) & 0xffff);
        let node = low & 0xffff_ffff_ffff;
        format!("{first:08x}-{second:04x}-{version:04x}-{variant:04x}-{node:012x}")
    }

    /// The five characters that `generateName` appends.
    pub fn name_suffix(&mut self) -> String {
        let alphabet = NAME_ALPHABET.len() as u64;
        (0..5).map(|_| char::from(NAME_ALPHABET[(self.bits() % alphabet) as usize])).collect()
    }
}
