//! A time in eight bytes, whether there is one or none, which takes sixteen and twenty-four elsewhere: a cache of many objects holds
//! several of each.

use std::num::NonZeroI64;

use jiff::Timestamp;

/// A time; what is below a microsecond is cut off.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CompactTime {
    /// Since 1970; never 0, so that none takes no more room than one. In its place stands what is no time.
    microseconds: NonZeroI64,
}

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        CompactTime { microseconds: NonZeroI64::new(time.as_microsecond()).unwrap_or(NonZeroI64::MIN) }
    }
}

impl From<CompactTime> for Timestamp {
    fn from(moment: CompactTime) -> Self {
        // All others were made of a timestamp.
        Timestamp::from_microsecond(moment.microseconds.get()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_time_that_it_was_made_of_and_small() {
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
        assert!(CompactTime::from(Timestamp::default()) < CompactTime::from(times[1]), "no time is before all");
        assert_eq!(Timestamp::from(CompactTime::from(Timestamp::default())), Timestamp::default());
        assert_eq!(size_of::<Option<CompactTime>>(), 8);
    }
}
