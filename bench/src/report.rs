//! The page of the benchmark, in Markdown.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Deserializer;

use crate::records::{Contestant, Kind, Load, Measured, Phase, Record, Run};

/// A figure of one phase, if it was measured.
pub type Figure = fn(&Measured) -> Option<f64>;

/// The load of the chart and of the first table.
pub const HEADLINE: Load = Load { kind: Kind::Replicas, sets: 100, pods: 10 };

/// Rows of the first table.
const SUMMARY: [(&str, Phase, Figure); 6] = [
    ("create: until every status is right, s", Phase::Create, |measured| measured.status),
    ("scale up ×2: until every status is right, s", Phase::Up, |measured| measured.status),
    ("repair: until a tenth of the pods is replaced, s", Phase::Repair, |measured| Some(measured.pods)),
    ("create: requests per pod", Phase::Create, |measured| Some(measured.work() / measured.load.all_pods() as f64)),
    ("create: CPU per pod, ms", Phase::Create, |measured| Some(measured.cpu? / measured.load.all_pods() as f64)),
    ("peak memory after the scale-up, MiB", Phase::Up, |measured| measured.peak),
];

/// Columns of the table of a load, if they have a figure.
const FIGURES: [(&str, Figure); 7] = [
    ("pods, s", |measured| Some(measured.pods)),
    ("status, s", |measured| measured.status),
    ("requests", |measured| Some(measured.work())),
    ("CPU, s", |measured| Some(measured.cpu? / 1_000.0)),
    ("peak memory, MiB", |measured| measured.peak),
    ("oldest status, s", |measured| measured.oldest),
    ("excess pods", |measured| Some(measured.excess? as f64)),
];

/// The records that the page shows.
#[derive(Default)]
pub struct Report {
    runs: Vec<Run>,
    measured: Vec<Measured>,
}

impl Report {
    /// Parses the records.
    pub fn of(records: &str) -> Result<Self> {
        let mut report = Self::default();
        for record in Deserializer::from_str(records).into_iter() {
            match record.context("in the records")? {
                Record::Run(run) => report.runs.push(run),
                Record::Phase(measured) => report.measured.push(measured),
            }
        }
        Ok(report)
    }

    /// The contestants of a load, in order.
    pub fn contestants(&self, load: Load) -> BTreeSet<Contestant> {
        self.measured.iter().filter(|measured| measured.load == load).map(|measured| measured.contestant).collect()
    }

    pub fn has_headline(&self) -> bool {
        !self.contestants(HEADLINE).is_empty()
    }

    /// A figure of all rounds, in ascending order.
    fn values(&self, load: Load, phase: Phase, contestant: Contestant, figure: Figure) -> Vec<f64> {
        let is_it = |m: &&Measured| (m.load, m.phase, m.contestant) == (load, phase, contestant);
        let mut values: Vec<_> = self.measured.iter().filter(is_it).filter_map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The median over all rounds.
    pub fn median(&self, phase: Phase, contestant: Contestant, figure: Figure) -> Option<f64> {
        median(&self.values(HEADLINE, phase, contestant, figure))
    }

    /// The page. Its chart is `benchmarks/times.svg` beside it.
    pub fn page(&self) -> String {
        let mut page = String::from("# Benchmarks\n\nHow long users wait for the operator, and what it costs, ");
        page.push_str("compared with other controllers on the same cluster.\n\n");
        if self.has_headline() {
            page.push_str("![Seconds until the status of every set is right, by phase](benchmarks/times.svg)\n\n");
            let Load { sets, pods, .. } = HEADLINE;
            page.push_str(&format!("{sets} sets of {pods} pods:\n\n{}\n", self.summary()));
        }
        page.push_str(include_str!("../method.md"));
        for load in self.measured.iter().map(|measured| measured.load).collect::<BTreeSet<_>>() {
            page.push_str(&format!("\n## {load}\n\n{}", self.figures(load)));
            if load.kind == Kind::Scale {
                page.push_str(include_str!("../scale.md"));
            }
        }
        page.push_str("\n## Runs\n\n");
        page.extend(self.runs.iter().map(circumstances));
        page
    }

    /// The first table, with a column for each contestant.
    fn summary(&self) -> String {
        let contestants = self.contestants(HEADLINE);
        let row = |title: &str, cell: &dyn Fn(Contestant) -> Option<f64>| {
            let cells = contestants.iter().map(|one| cell(*one).map_or("–".to_owned(), brief));
            row([title.to_owned()].into_iter().chain(cells))
        };
        let mut table = head(&[""], contestants.iter().map(|one| one.title()));
        for (title, phase, figure) in SUMMARY {
            table += &row(title, &|one| self.median(phase, one, figure));
        }
        table + &row("excess pods at any instant", &|one| Some(self.excess(one)? as f64))
    }

    /// Excess pods in all phases and rounds.
    fn excess(&self, contestant: Contestant) -> Option<usize> {
        let all = self.measured.iter().filter(|m| (m.load, m.contestant) == (HEADLINE, contestant));
        all.map(|measured| measured.excess).sum()
    }

    /// The table of a load, with a row for each phase and contestant.
    fn figures(&self, load: Load) -> String {
        let of_load = || self.measured.iter().filter(|measured| measured.load == load);
        let is_used = |(_, figure): &&(&str, Figure)| of_load().filter_map(*figure).count() > 0;
        let columns: Vec<_> = FIGURES.iter().filter(is_used).collect();
        let mut table = head(&["phase", "contestant"], columns.iter().map(|(title, _)| *title));
        for phase in load.phases() {
            for contestant in self.contestants(load) {
                let cells = columns.iter().map(|(_, it)| spread(&self.values(load, *phase, contestant, *it)));
                table += &row([phase.title().to_owned(), contestant.title().to_owned()].into_iter().chain(cells));
            }
        }
        table
    }
}

/// The head of a table in Markdown.
fn head<'a>(first: &[&'a str], titles: impl Iterator<Item = &'a str>) -> String {
    let titles: Vec<_> = first.iter().copied().chain(titles).collect();
    format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len()))
}

fn row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// The middle value, or the mean of the two in the middle, of values in ascending order.
fn median(values: &[f64]) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| (values[(count - 1) / 2] + values[count / 2]) / 2.0)
}

/// Median, minimum and maximum of values in ascending order.
fn spread(values: &[f64]) -> String {
    let (Some(median), [least, ..], [.., most]) = (median(values), values, values) else { return "–".to_owned() };
    let (median, least, most) = (brief(median), brief(*least), brief(*most));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

fn circumstances(run: &Run) -> String {
    let Run { date, processor, cores, kubernetes, revision, remark } = run;
    let remark = remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    format!(
        "- {date}: {processor}, {cores} cores, shared with the control plane. Kubernetes {kubernetes}, operator revision \
         {revision}.{remark}\n"
    )
}

/// A whole number, or three significant digits.
fn brief(number: f64) -> String {
    let digits = match number {
        99.95.. => 0,
        _ if number.fract() == 0.0 => 0,
        9.995.. => 1,
        0.0995.. => 2,
        _ => 3,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_shows_the_records_in_docs() {
        let records = include_str!("../../docs/benchmarks/records.jsonl");
        for line in records.lines() {
            let record: Record = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
        }
        let page = Report::of(records).unwrap().page();
        // This writes the page again: make bench BENCH='--from docs/benchmarks/records.jsonl --write'
        assert!(page.lines().eq(include_str!("../../docs/benchmarks.md").lines()), "{page}");
    }
}
