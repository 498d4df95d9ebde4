//! A time whose `Option` takes 8 bytes, not 24 as `Option<Timestamp>`. The cache holds several for each object.

use std::num::NonZeroI64;

use jiff::Timestamp;

/// A time in microseconds.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CompactTime {
    /// Since 1970. `i64::MIN` stands for 0, so that `Option` needs no extra space.
    microseconds: NonZeroI64,
}

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        CompactTime { microseconds: NonZeroI64::new(time.as_microsecond()).unwrap_or(NonZeroI64::MIN) }
    }
}

impl From<CompactTime> for Timestamp {
    fn from(time: CompactTime) -> Self {
        // Only the value that stands for 0 is out of range.
        Timestamp::from_microsecond(time.microseconds.get()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_time_keeps_microseconds_in_eight_bytes() {
        let times = [
            Timestamp::MIN,
            "2026-01-01T12:00:00.123456789Z".parse().unwrap(),
            "9999-12-30T22:00:00Z".parse().unwrap(),
        ];
        for time in times {
            let again = Timestamp::from(CompactTime::from(time));
            assert!(time.duration_since(again).abs().as_micros() < 1, "{time} became {again}");
        }
        assert!(times.map(CompactTime::from).is_sorted());
        assert!(CompactTime::from(Timestamp::default()) < CompactTime::from(times[1]), "the epoch is earlier");
        assert_eq!(Timestamp::from(CompactTime::from(Timestamp::default())), Timestamp::default());
        assert_eq!(size_of::<Option<CompactTime>>(), 8);
    }
}
