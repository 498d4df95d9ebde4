//! A time that takes 8 bytes, also in an `Option`. An `Option<Timestamp>` takes 24 bytes, and the cache of pods holds many.

use std::num::NonZeroU64;

use jiff::Timestamp;

/// A time in microseconds since [`Timestamp::MIN`], plus one: 0 stands for `None`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CompactTime(NonZeroU64);

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        let since_min = time.as_microsecond().abs_diff(Timestamp::MIN.as_microsecond());
        CompactTime(NonZeroU64::MIN.saturating_add(since_min))
    }
}

impl From<CompactTime> for Timestamp {
    fn from(CompactTime(time): CompactTime) -> Self {
        let microseconds = Timestamp::MIN.as_microsecond().saturating_add_unsigned(time.get() - 1);
        // Only times within the last second before Timestamp::MAX are out of range.
        Timestamp::from_microsecond(microseconds).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_time_keeps_microseconds_in_eight_bytes() {
        let times = [
            Timestamp::MIN,
            Timestamp::from_second(-60).unwrap(),
            Timestamp::UNIX_EPOCH,
            "2026-01-01T12:00:00.123456789Z".parse().unwrap(),
            "9999-12-30T22:00:00Z".parse().unwrap(),
        ];
        for time in times {
            let again = Timestamp::from(CompactTime::from(time));
            assert!(time.duration_since(again).abs().as_micros() < 1, "{time} became {again}");
        }
        assert!(times.map(CompactTime::from).is_sorted());
        assert_eq!(size_of::<Option<CompactTime>>(), 8);
    }
}
