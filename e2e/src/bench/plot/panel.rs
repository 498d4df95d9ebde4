//! One diagram of a picture: bars in groups, or curves over a logarithmic axis.

use super::svg::{Anchor, Svg};
use crate::bench::spread::{Spread, brief};

/// Where a diagram is, with its title and labels, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// From the left.
    pub x: f64,
    /// From above.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

const LEFT: f64 = 44.0;
const ABOVE: f64 = 44.0;
const BELOW: f64 = 24.0;
/// The height of a number above a bar.
const LINE: f64 = 9.0;

impl Frame {
    fn left(&self) -> f64 {
        self.x + LEFT
    }

    fn right(&self) -> f64 {
        self.x + self.width
    }

    fn top(&self) -> f64 {
        self.y + ABOVE
    }

    fn foot(&self) -> f64 {
        self.y + self.height - BELOW
    }

    fn head(&self, svg: &mut Svg, title: &str, unit: &str) {
        svg.text((self.x, self.y + 12.0), Anchor::Start, "title", title);
        svg.text((self.x, self.y + 28.0), Anchor::Start, "small faint", unit);
    }

    fn level(&self, svg: &mut Svg, y: f64, value: f64) {
        svg.line((self.left(), y), (self.right(), y), "grid");
        svg.text((self.left() - 6.0, y + 3.5), Anchor::End, "small faint", &tick(value));
    }
}

/// A bar, with the least and the most that was measured.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its colour: a, b, c or d.
    pub class: &'static str,
    /// How high it is.
    pub value: Spread,
    /// How far a paler one goes on above it, if one does.
    pub beyond: Option<f64>,
}

/// Bars side by side.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they have in common.
    pub label: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// Draws groups of bars over an axis that begins at zero.
pub fn bars(svg: &mut Svg, frame: Frame, title: &str, unit: &str, groups: &[Group]) {
    frame.head(svg, title, unit);
    let height = |bar: &Bar| bar.beyond.unwrap_or(0.0).max(bar.value.most);
    let highest = groups.iter().flat_map(|group| &group.bars).map(height).fold(0.0, f64::max);
    let step = step(highest);
    // With room for the number above the highest bar.
    let levels = (highest / step + 0.35).ceil().max(1.0);
    let y = |value: f64| frame.foot() - (frame.foot() - frame.top()) * value / (levels * step);
    for level in 0..=levels as usize {
        frame.level(svg, y(level as f64 * step), level as f64 * step);
    }
    let share = (frame.right() - frame.left()) / groups.len().max(1) as f64;
    for (number, group) in groups.iter().enumerate() {
        let middle = frame.left() + share * (number as f64 + 0.5);
        svg.text((middle, frame.foot() + 15.0), Anchor::Middle, "small", &group.label);
        let width = (share * 0.82 / group.bars.len().max(1) as f64).min(34.0);
        let mut beside = None;
        for (place, bar) in group.bars.iter().enumerate() {
            let x = middle + width * (place as f64 - group.bars.len() as f64 / 2.0);
            beside = Some(one_bar(svg, bar, (x + 1.0, width - 2.0), beside, &y));
        }
    }
}

/// Draws a bar, and its number so that it does not run into the one `beside` it. Returns where the number stands.
fn one_bar(svg: &mut Svg, bar: &Bar, (x, width): (f64, f64), beside: Option<f64>, y: &impl Fn(f64) -> f64) -> f64 {
    let (foot, top) = (y(0.0), y(bar.value.median));
    svg.rect(x, top, width, foot - top, &format!("{} bar", bar.class));
    let mut highest = bar.value.most;
    if let Some(beyond) = bar.beyond.filter(|beyond| *beyond > bar.value.median) {
        svg.rect(x, y(beyond), width, top - y(beyond), &format!("{} bar pale", bar.class));
        highest = highest.max(beyond);
    }
    let middle = x + width / 2.0;
    if bar.value.most > bar.value.least {
        svg.line((middle, y(bar.value.least)), (middle, y(bar.value.most)), "whisker");
    }
    let above = y(highest) - 4.0;
    let at = beside.filter(|beside| (beside - above).abs() < LINE).map_or(above, |beside| above.min(beside - LINE));
    svg.text((middle, at), Anchor::Middle, "tiny", &short(bar.value.median));
    at
}

/// What grows with something else.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its colour: a, b, c or d.
    pub class: &'static str,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Draws curves over two logarithmic axes.
pub fn curves(svg: &mut Svg, frame: Frame, title: &str, unit: &str, curves: &[Curve]) {
    frame.head(svg, title, unit);
    let all = || curves.iter().flat_map(|curve| &curve.points).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let Some((left, right)) = decades(all().map(|point| point.0)) else { return };
    let Some((low, high)) = decades(all().map(|point| point.1)) else { return };
    let place = |value: f64, (from, to): (i32, i32)| (value.log10() - f64::from(from)) / f64::from(to - from);
    let x = |value: f64| frame.left() + 16.0 + (frame.right() - frame.left() - 32.0) * place(value, (left, right));
    let y = |value: f64| frame.foot() - (frame.foot() - frame.top()) * place(value, (low, high));
    for level in low..=high {
        let value = 10f64.powi(level);
        frame.level(svg, y(value), value);
    }
    for level in left..=right {
        let value = 10f64.powi(level);
        svg.line((x(value), frame.top()), (x(value), frame.foot()), "grid");
        svg.text((x(value), frame.foot() + 15.0), Anchor::Middle, "small", &tick(value));
    }
    for curve in curves {
        let points = curve.points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
        let points: Vec<_> = points.map(|point| (x(point.0), y(point.1))).collect();
        svg.curve(&points, curve.class);
        for ((_, value), (x, y)) in curve.points.iter().zip(&points) {
            svg.text((*x, y - 7.0), Anchor::Middle, "small", &brief(*value));
        }
    }
}

/// The powers of ten around these values.
fn decades(values: impl Iterator<Item = f64>) -> Option<(i32, i32)> {
    let spread = Spread::of(values)?;
    let (low, high) = (spread.least.log10().floor() as i32, spread.most.log10().ceil() as i32);
    Some((low, high.max(low + 1)))
}

/// The distance of levels that gives three to six of them: 1, 2 or 5 times a power of ten.
fn step(highest: f64) -> f64 {
    if highest <= 0.0 {
        return 1.0;
    }
    let rough = highest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// A number in as few digits as a bar is wide.
fn short(value: f64) -> String {
    let digits = match value {
        small if small < 0.995 => 2,
        small if small < 9.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// A level as short as it can be told.
fn tick(value: f64) -> String {
    match value {
        thousands if thousands >= 1_000.0 => format!("{}k", thousands / 1_000.0),
        // What adding up tenths leaves behind is not shown.
        value => ((value * 1_000.0).round() / 1_000.0).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_round_numbers() {
        assert_eq!([0.0, 1.0, 7.3, 24.0, 130.0].map(step), [1.0, 0.2, 2.0, 5.0, 50.0]);
        assert_eq!([0.30000000000000004, 5.0, 10_000.0].map(tick).join(" "), "0.3 5 10k");
    }

    #[test]
    fn decades_hold_all_values() {
        assert_eq!(decades([3.0, 700.0].into_iter()), Some((0, 3)));
        assert_eq!(decades([10.0].into_iter()), Some((1, 2)));
        assert_eq!(decades([].into_iter()), None);
    }

    #[test]
    fn a_bar_is_as_high_as_its_value() {
        let mut svg = Svg::new(200.0, 168.0, "one bar");
        let frame = Frame { x: 0.0, y: 0.0, width: 200.0, height: 168.0 };
        let value = Spread { median: 5.0, least: 4.0, most: 6.0 };
        let bars_of = |beyond| [Group { label: "it".to_owned(), bars: vec![Bar { class: "a", value, beyond }] }];
        bars(&mut svg, frame, "title", "s", &bars_of(Some(10.0)));
        let file = svg.finish();
        // 100 pixels for 12 seconds and a number above them: as much in full as pale.
        assert_eq!(file.matches(r#"height="41.7" class="a bar"#).count(), 2, "{file}");
        assert!(file.contains(r#"class="a bar pale""#) && file.contains(">5.0</text>"), "{file}");
    }

    #[test]
    fn numbers_side_by_side_do_not_run_into_each_other() {
        let bar = Bar { class: "a", value: Spread { median: 5.0, least: 5.0, most: 5.0 }, beyond: None };
        let mut svg = Svg::new(200.0, 168.0, "three bars");
        let y = |value: f64| 100.0 - value;
        let first = one_bar(&mut svg, &bar, (0.0, 16.0), None, &y);
        let second = one_bar(&mut svg, &bar, (16.0, 16.0), Some(first), &y);
        let third = one_bar(&mut svg, &bar, (32.0, 16.0), Some(second), &y);
        assert_eq!([first, second, third], [91.0, 82.0, 91.0]);
    }
}
