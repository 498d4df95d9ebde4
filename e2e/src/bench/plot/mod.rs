//! The pictures of the report.

mod panel;
mod svg;

use std::collections::BTreeSet;

use super::records::{Contestant, Load, Measured, Part, Phase};
use super::report::{loads, spread};
use panel::{Bar, Curve, Frame, Group, bars, curves};
use svg::{Anchor, Svg};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 220.0;
const GAP: f64 = 28.0;

/// Of the lines that say which colour is whose, and what is to be seen.
const HEAD: f64 = 42.0;

fn class(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Operator => "a",
        Contestant::ReplicaSet => "b",
        Contestant::Go => "d",
        Contestant::Floor => "c",
    }
}

/// A picture of so many diagrams, so many of them in a row, with a line that says which colour is whose; and where each diagram is.
fn page(
    shows: &str,
    (diagrams, columns): (usize, usize),
    contestants: &BTreeSet<Contestant>,
    remark: &str,
) -> (Svg, Vec<Frame>) {
    let rows = diagrams.div_ceil(columns) as f64;
    let mut svg = Svg::new(WIDTH, GAP + HEAD + rows * (PANEL + GAP), shows);
    let mut x = GAP;
    for contestant in contestants {
        svg.rect(x, 16.0, 12.0, 12.0, &format!("{} bar", class(*contestant)));
        svg.text((x + 18.0, 26.0), Anchor::Start, "", contestant.title());
        x += 40.0 + 7.0 * contestant.title().len() as f64;
    }
    svg.text((GAP, 48.0), Anchor::Start, "small faint", remark);
    let width = (WIDTH - GAP) / columns as f64 - GAP;
    let frame = |number: usize| Frame {
        x: GAP + (number % columns) as f64 * (width + GAP),
        y: GAP + HEAD + (number / columns) as f64 * (PANEL + GAP),
        width,
        height: PANEL,
    };
    (svg, (0..diagrams).map(frame).collect())
}

fn contestants(measured: &[&Measured], part: Part) -> BTreeSet<Contestant> {
    measured.iter().filter(|measured| measured.part == part).map(|measured| measured.contestant).collect()
}

/// Seconds of each phase, a diagram for each load.
pub fn times(measured: &[&Measured]) -> String {
    let (loads, contestants) = (loads(measured, Part::Load), contestants(measured, Part::Load));
    let remark = "full: all pods as wanted; pale: every status right; line: least to most";
    let (mut svg, frames) = page("Seconds of each phase of each load", (loads.len(), 2), &contestants, remark);
    for (load, frame) in loads.iter().zip(frames) {
        let bar = |phase, contestant| {
            let of =
                |value: fn(&Measured) -> Option<f64>| spread(measured, (Part::Load, *load, phase, contestant), value);
            let value = of(|measured| Some(measured.pods))?;
            let beyond = of(|measured| measured.status).map(|status| status.median);
            Some(Bar { class: class(contestant), value, beyond: beyond.filter(|_| phase != Phase::Delete) })
        };
        let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Refill);
        let group = |phase: Phase| Group {
            label: phase.title().to_owned(),
            bars: contestants.iter().filter_map(|contestant| bar(phase, *contestant)).collect(),
        };
        let groups: Vec<_> = phases.map(group).collect();
        bars(&mut svg, frame, &title(*load), "seconds", &groups);
    }
    svg.finish()
}

fn title(load: Load) -> String {
    let sets = if load.sets == 1 { "set" } else { "sets" };
    format!("{} {sets} of {} pods", load.sets, load.pods)
}

type Figure = fn(&Measured) -> Option<f64>;

/// What a pod costs whom, and memory; in the first phase of each load.
const COSTS: [(&str, &str, Figure); 4] = [
    ("Time", "seconds until all pods were there and every status right", |measured| measured.status),
    ("Requests", "requests for each pod", |measured| Some(measured.requests_a_pod())),
    ("Processor", "ms for each pod", Measured::cpu_a_pod),
    ("SetState", "the most, in MiB", |measured| measured.peak),
];

/// Requests, processor time and memory, a group of bars for each load.
pub fn costs(measured: &[&Measured]) -> String {
    let loads = loads(measured, Part::Load);
    let (contestants, costs) = (working(measured, Part::Load), &COSTS[1..]);
    let remark = "while the sets are created; line: least to most";
    let (mut svg, frames) = page("Requests, processor time and memory", (costs.len(), 3), &contestants, remark);
    for ((title, unit, figure), frame) in costs.iter().zip(frames) {
        let value = |load: Load, contestant| spread(measured, (Part::Load, load, Phase::Create, contestant), figure);
        let bar = |load, contestant| {
            value(load, contestant).map(|value| Bar { class: class(contestant), value, beyond: None })
        };
        let group = |load: &Load| Group {
            label: load.to_string(),
            bars: contestants.iter().filter_map(|contestant| bar(*load, *contestant)).collect(),
        };
        bars(&mut svg, frame, title, unit, &loads.iter().map(group).collect::<Vec<_>>());
    }
    svg.finish()
}

/// How all that grows with the number of pods.
pub fn scale(measured: &[&Measured]) -> String {
    let (loads, contestants) = (loads(measured, Part::Scale), working(measured, Part::Scale));
    let remark = "over the number of pods, in sets of 10, while they are created";
    let (mut svg, frames) =
        page("How time and cost grow with the number of pods", (COSTS.len(), 2), &contestants, remark);
    for ((title, unit, figure), frame) in COSTS.iter().zip(frames) {
        let curve = |contestant: &Contestant| {
            let value = |load: Load| spread(measured, (Part::Scale, load, Phase::Create, *contestant), figure);
            let point = |load: &Load| Some((load.all_pods() as f64, value(*load)?.median));
            Curve { class: class(*contestant), points: loads.iter().filter_map(point).collect() }
        };
        curves(&mut svg, frame, title, unit, &contestants.iter().map(curve).collect::<Vec<_>>());
    }
    svg.finish()
}

/// Those who have a process of their own.
fn working(measured: &[&Measured], part: Part) -> BTreeSet<Contestant> {
    let mut contestants = contestants(measured, part);
    contestants.remove(&Contestant::Floor);
    contestants
}
