//! The median and the range of a figure that was measured in several rounds.

use std::fmt;

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    pub least: f64,
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
