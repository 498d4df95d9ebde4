//! The page of the benchmark, in Markdown.

use std::collections::BTreeSet;

use clap::ValueEnum;

use crate::records::{Contestant, Kind, Load, Measured, Phase, Record, Run};

/// A figure of one phase, if it was measured.
pub type Figure = fn(&Measured) -> Option<f64>;

/// The load that the page starts with, if it was measured.
const HEADLINE: Load = Load::new(Kind::Replicas, 100, 10);

/// Rows of the first table.
const SUMMARY: [(&str, Phase, Figure); 6] = [
    ("create: until every status is right, s", Phase::Create, |measured| measured.status),
    ("scale up ×2: until every status is right, s", Phase::Up, |measured| measured.status),
    ("replace a tenth of the pods, s", Phase::Repair, |measured| Some(measured.pods)),
    ("requests per created pod", Phase::Create, |measured| Some(measured.requests_per_pod())),
    ("CPU per created pod, ms", Phase::Create, Measured::cpu_per_pod),
    ("peak memory after the scale-up, MiB", Phase::Up, |measured| measured.peak),
];

/// Rows of the table of a load, for each phase.
const FIGURES: [(&str, Figure); 5] = [
    ("pods, s", |measured| Some(measured.pods)),
    ("status, s", |measured| measured.status),
    ("requests per pod", |measured| Some(measured.requests_per_pod())),
    ("CPU per pod, ms", Measured::cpu_per_pod),
    ("peak memory, MiB", |measured| measured.peak),
];

/// Columns of the table of the scale run. In some of its phases no pod changes, so they are not per pod.
const TOTALS: [(&str, Figure); 5] = [
    ("pods, s", |measured| Some(measured.pods)),
    ("status, s", |measured| measured.status),
    ("requests", |measured| Some(measured.work())),
    ("CPU, s", |measured| measured.cpu.map(|cpu| cpu / 1_000.0)),
    ("peak memory, MiB", |measured| measured.peak),
];

/// The records, sorted by kind.
#[derive(Default)]
pub struct Report<'a> {
    /// Each run with its loads.
    runs: Vec<(&'a Run, BTreeSet<Load>)>,
    measured: Vec<&'a Measured>,
}

impl<'a> Report<'a> {
    /// Sorts the records. A run comes before what it measured.
    pub fn of(records: &'a [Record]) -> Self {
        let mut report = Self::default();
        for record in records {
            match record {
                Record::Run(run) => report.runs.push((run, BTreeSet::new())),
                Record::Phase(measured) => {
                    report.measured.push(measured);
                    report.runs.last_mut().map(|(_, loads)| loads.insert(measured.load));
                }
            }
        }
        report
    }

    /// The loads, in order.
    fn loads(&self) -> BTreeSet<Load> {
        self.measured.iter().map(|measured| measured.load).collect()
    }

    /// The contestants of a load, in order.
    pub fn contestants(&self, load: Load) -> Vec<Contestant> {
        let is_there = |one: &Contestant| self.measured.iter().any(|m| (m.load, m.contestant) == (load, *one));
        Contestant::value_variants().iter().copied().filter(is_there).collect()
    }

    /// The load of the chart and of the first table.
    pub fn headline(&self) -> Option<Load> {
        let loads = self.loads();
        loads.get(&HEADLINE).or(loads.first()).copied().filter(|load| load.kind == Kind::Replicas)
    }

    /// A figure over all rounds.
    pub fn spread(&self, load: Load, phase: Phase, contestant: Contestant, figure: Figure) -> Option<Spread> {
        let is_it = |m: &&&Measured| (m.load, m.phase, m.contestant) == (load, phase, contestant);
        Spread::of(self.measured.iter().filter(is_it).filter_map(|measured| figure(measured)).collect())
    }

    /// The page. Its chart is `benchmarks/times.svg` beside it.
    pub fn page(&self) -> String {
        let mut page = String::from("# Benchmarks\n\nHow long users wait for the operator, and what it costs, ");
        page.push_str("compared with other controllers on the same cluster.\n\n");
        if let Some(load) = self.headline() {
            page.push_str("![Seconds until the status of every set is right, by phase](benchmarks/times.svg)\n\n");
            page.push_str(&format!("{} sets of {} pods, medians of all rounds:\n\n", load.sets, load.pods));
            let row = |(title, phase, figure)| {
                (title, self.by_contestant(load, |one| Some(brief(self.spread(load, phase, one, figure)?.median))))
            };
            page.push_str(&self.comparison(load, SUMMARY.map(row)));
            page.push('\n');
        }
        page.push_str(include_str!("../method.md"));
        for load in self.loads() {
            let table = if load.kind == Kind::Scale { self.totals(load) } else { self.figures(load) };
            page.push_str(&format!("\n## {load}\n\n{table}"));
        }
        page.push_str("\n## Runs\n\n");
        self.runs.iter().for_each(|(run, loads)| page.push_str(&circumstances(run, loads)));
        page
    }

    /// All figures of a load.
    fn figures(&self, load: Load) -> String {
        let is_shown = |phase: Phase, what: &str| match phase {
            Phase::Refill => false,
            // Deleted sets have no status, and the garbage collector deletes their pods.
            Phase::Delete => load.kind == Kind::Replicas && what == FIGURES[0].0,
            _ => load.kind == Kind::Replicas || phase == Phase::Roll,
        };
        let all = load.phases().iter().flat_map(|phase| FIGURES.map(|(what, figure)| (*phase, what, figure)));
        let rows = all.filter(|(phase, what, _)| is_shown(*phase, what)).map(|(phase, what, figure)| {
            let cells = self.by_contestant(load, |one| Some(self.spread(load, phase, one, figure)?.shown()));
            (format!("{}: {what}", phase.title()), cells)
        });
        self.comparison(load, rows)
    }

    /// A table with a column for each contestant, and a last row for excess pods.
    fn comparison(&self, load: Load, rows: impl IntoIterator<Item = (impl Into<String>, Vec<String>)>) -> String {
        let titles: Vec<_> = self.contestants(load).iter().map(|one| one.title()).collect();
        let excess = self.by_contestant(load, |one| Some(self.excess(load, one)));
        let rows = rows.into_iter().map(|(title, cells)| (title.into(), cells));
        table(&titles, rows.chain([("excess pods at any instant".to_owned(), excess)]))
    }

    /// All figures of the scale run.
    fn totals(&self, load: Load) -> String {
        let rows = load.phases().iter().map(|phase| {
            let cell = |figure| self.spread(load, *phase, Contestant::Operator, figure).map(|it| it.shown());
            (phase.title().to_owned(), TOTALS.map(|(_, figure)| cell(figure).unwrap_or_default()).to_vec())
        });
        let excess = self.excess(load, Contestant::Operator);
        let (table, method) = (table(&TOTALS.map(|(title, _)| title), rows), include_str!("../scale.md"));
        format!("{table}\nExcess pods at any instant: {excess}.\n\n{method}")
    }

    /// A cell for each contestant of a load.
    fn by_contestant(&self, load: Load, cell: impl Fn(Contestant) -> Option<String>) -> Vec<String> {
        self.contestants(load).into_iter().map(|one| cell(one).unwrap_or_else(|| "–".to_owned())).collect()
    }

    /// Excess pods in all phases and rounds, and the gaps in the watch that may hide others.
    fn excess(&self, load: Load, contestant: Contestant) -> String {
        let all = self.measured.iter().filter(|m| (m.load, m.contestant) == (load, contestant));
        let (excess, gaps) = all.fold((0, 0), |(excess, gaps), m| (excess + m.excess, gaps + m.gaps));
        if gaps > 0 { format!("{excess} ({gaps} gaps in the watch)") } else { excess.to_string() }
    }
}

/// A table in Markdown.
fn table(titles: &[&str], rows: impl Iterator<Item = (String, Vec<String>)>) -> String {
    let head = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    head + &rows.map(|(title, cells)| format!("| {title} | {} |\n", cells.join(" | "))).collect::<String>()
}

fn circumstances(run: &Run, loads: &BTreeSet<Load>) -> String {
    let Run { date, processor, cores, kubernetes, revision, remark } = run;
    let remark = remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    let loads = loads.iter().map(Load::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "- {date}, {loads}: {processor}, {cores} cores, shared with the control plane. Kubernetes {kubernetes}, operator \
         revision {revision}.{remark}\n"
    )
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let count = values.len();
        Some(Self { median: (values[(count - 1) / 2] + values[count / 2]) / 2.0, least, most })
    }

    fn shown(self) -> String {
        let (median, least, most) = (brief(self.median), brief(self.least), brief(self.most));
        if least == most { median } else { format!("{median} ({least}–{most})") }
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

    fn measured(contestant: Contestant, round: u32, pods: f64) -> Record {
        let is_floor = contestant == Contestant::Floor;
        Record::Phase(Measured {
            contestant,
            load: HEADLINE,
            round,
            phase: Phase::Create,
            pods,
            status: (!is_floor).then_some(pods + 0.5),
            touched: 20,
            requests: [("create pods".to_owned(), 20), ("patch leases".to_owned(), 3)].into(),
            cpu: (!is_floor).then_some(50.0),
            peak: (!is_floor).then_some(10.0),
            excess: 0,
            gaps: 0,
        })
    }

    #[test]
    fn rounds_become_medians() {
        let operator = |round, pods| measured(Contestant::Operator, round, pods);
        let records = [operator(1, 3.0), operator(2, 2.0), operator(3, 4.0), measured(Contestant::Floor, 1, 2.0)];
        let line = serde_json::to_string(&records[0]).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), records[0]);
        let page = Report::of(&records).page();
        for line in [
            "| | podset-operator | bare requests |",
            "| create: until every status is right, s | 3.50 | – |",
            "| create: pods, s | 3.00 (2.00–4.00) | 2.00 |",
            "| create: requests per pod | 1.00 | 1.00 |",
            "| create: CPU per pod, ms | 2.50 | – |",
            "| excess pods at any instant | 0 | 0 |",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
    }
}
