//! The median and the range of a figure that was measured in several rounds.

use std::fmt;

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, least, most })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, least, most) = (brief(self.median), brief(self.least), brief(self.most));
        if least == most { f.write_str(&median) } else { write!(f, "{median} ({least}–{most})") }
    }
}

/// A number with three significant digits.
pub fn brief(number: f64) -> String {
    let digits = match number.abs() {
        0.0 => 0,
        small if small < 0.0995 => 3,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_shows_the_median_and_the_range() {
        let of = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.to_string());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]).as_deref(), Some("2.00 (1.00–3.00)"));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).as_deref(), Some("2.50 (1.00–4.00)"));
        assert_eq!(of(&[12.34]).as_deref(), Some("12.3"));
    }
}
