//! What a figure comes to that was measured in several rounds, and how figures are written.

use std::fmt;

/// The median of several values, the least and the most of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these values; none of none.
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

/// A number as people read it: three digits of it, or all before the point; zero is zero.
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
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
    }

    #[test]
    fn figures_are_as_long_as_they_are_worth() {
        assert_eq!(
            [0.0, 0.0312, 0.25, 1.0, 12.34, 99.96, 1234.5].map(brief).join(" "),
            "0 0.031 0.25 1.00 12.3 100 1234"
        );
        let spread = |least, most| Spread { median: 2.0, least, most }.to_string();
        assert_eq!(spread(1.0, 3.0), "2.00 (1.00–3.00)");
        assert_eq!(spread(2.0, 2.0), "2.00");
    }
}
