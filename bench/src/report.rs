//! The page of the benchmark, in Markdown.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use clap::ValueEnum;

use crate::records::{Contestant, Load, Measured, Phase, Record, Run, Sample, Step};

/// A figure of one phase, if it was measured.
pub type Figure = fn(&Measured) -> Option<f64>;

/// The title of a row, and the figure of a phase that it shows.
type Row = (String, Phase, Figure);

/// The load that the page starts with, if it was measured.
const HEADLINE: Load = Load::new(100, 10);

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
const FIGURES: [(&str, Figure); 11] = [
    ("pods, s", |measured| Some(measured.pods)),
    ("status, s", |measured| measured.status),
    ("ready, s", |measured| measured.ready),
    ("requests per pod", |measured| Some(measured.requests_per_pod())),
    ("CPU per pod, ms", Measured::cpu_per_pod),
    ("peak memory, MiB", |measured| measured.peak),
    ("deletes per set", |measured| measured.per_set("delete pods")),
    ("creates per set", |measured| measured.per_set("create pods")),
    ("writes of a status per set", |measured| measured.per_set("/status")),
    ("dry runs per set", |measured| measured.per_set("dry-run pods")),
    ("ControllerRevisions per set", |measured| measured.per_set("create controllerrevisions")),
];

/// The records, sorted by kind.
#[derive(Default)]
pub struct Report<'a> {
    runs: Vec<(&'a Run, BTreeSet<String>)>,
    measured: Vec<&'a Measured>,
    /// Of the scale run.
    pub steps: Vec<&'a Step>,
    pub samples: &'a [Sample],
}

impl<'a> Report<'a> {
    /// Sorts the records.
    pub fn of(records: &'a [Record]) -> Self {
        let mut report = Self::default();
        for record in records {
            let part = match record {
                Record::Run(run) => {
                    report.runs.push((run, BTreeSet::new()));
                    continue;
                }
                Record::Phase(measured) => {
                    report.measured.push(measured);
                    format!("{} ({})", measured.load, measured.contestant.title())
                }
                Record::Step(step) => {
                    report.steps.push(step);
                    format!("scale run of {}", step.load)
                }
                Record::Samples(samples) => {
                    report.samples = &samples.list;
                    continue;
                }
            };
            if let Some((_, parts)) = report.runs.last_mut() {
                parts.insert(part);
            }
        }
        report
    }

    /// The contestants of a load, in order.
    pub fn contestants(&self, load: Load) -> Vec<Contestant> {
        let is_there = |one: &Contestant| self.measured.iter().any(|m| (m.load, m.contestant) == (load, *one));
        Contestant::value_variants().iter().copied().filter(is_there).collect()
    }

    /// The load of the chart and of the first table.
    pub fn headline(&self) -> Option<Load> {
        let loads = self.loads();
        loads.get(&HEADLINE).or(loads.first().filter(|load| !load.rolls)).copied()
    }

    /// A figure over all rounds.
    pub fn spread(&self, load: Load, phase: Phase, contestant: Contestant, figure: Figure) -> Option<Spread> {
        let is_it = |m: &&&Measured| (m.load, m.phase, m.contestant) == (load, phase, contestant);
        Spread::of(self.measured.iter().filter(is_it).filter_map(|measured| figure(measured)))
    }

    /// The page. Its chart is `benchmarks/times.svg` beside it.
    pub fn page(&self) -> String {
        let mut page = String::from("# Benchmarks\n\nHow long users wait for the operator, and what it costs, ");
        page.push_str("compared with other controllers on the same cluster.\n\n");
        if let Some(load) = self.headline() {
            let Load { sets, pods, .. } = load;
            page.push_str("![Seconds until the status of every set is right, by phase](benchmarks/times.svg)\n\n");
            let rows = SUMMARY.into_iter().map(|(title, phase, figure)| (title.to_owned(), phase, figure));
            let table = self.table(load, rows, |spread| brief(spread.median));
            let _ = write!(page, "{sets} sets of {pods} pods, medians of all rounds:\n\n{table}");
        }
        page.push('\n');
        page.push_str(include_str!("../method.md"));
        for load in self.loads() {
            // Deleted sets have no status, and the garbage collector deletes their pods.
            let is_shown = |(phase, what): &(Phase, &str)| match phase {
                // In a rollout, a right status also means that all pods are ready.
                _ if load.rolls => *phase == Phase::Roll && *what != FIGURES[2].0,
                Phase::Refill => false,
                Phase::Delete => *what == FIGURES[0].0,
                _ => true,
            };
            let all = Phase::ALL.into_iter().flat_map(|phase| FIGURES.map(|(what, figure)| (phase, what, figure)));
            let rows = all.filter(|(phase, what, _)| is_shown(&(*phase, what)));
            let rows = rows.map(|(phase, what, figure)| (format!("{}: {what}", phase.title()), phase, figure));
            let table = self.table(load, rows, |spread| spread.to_string());
            let _ = write!(page, "\n## {load} pods\n\n{table}");
        }
        page.push_str(&self.scale());
        page.push_str("\n## Runs\n\n");
        for (run, parts) in &self.runs {
            page.push_str(&circumstances(run, parts));
        }
        page
    }

    /// The scale run. Its chart is `benchmarks/scale.svg`.
    fn scale(&self) -> String {
        let Some(Step { load, .. }) = self.steps.first() else { return String::new() };
        let mut page = format!("\n## Scale: {} pods in {} sets\n\n", load.all_pods(), load.sets);
        page.push_str("![Pods, memory and the age of the oldest status over time](benchmarks/scale.svg)\n\n");
        page.push_str("| | pods, s | status, s | requests | CPU, s | peak memory, MiB | oldest status, s |\n");
        page.push_str("|---|---|---|---|---|---|---|\n");
        for (number, step) in self.steps.iter().enumerate() {
            let Step { title, requests, .. } = step;
            let [pods, status, cpu, peak, age] = [step.pods, step.status, step.cpu, step.peak, step.age].map(brief);
            let _ =
                writeln!(page, "| {}. {title} | {pods} | {status} | {requests} | {cpu} | {peak} | {age} |", number + 1);
        }
        let (excess, gaps) =
            self.steps.iter().fold((0, 0), |(excess, gaps), step| (excess + step.excess, gaps + step.gaps));
        let _ =
            write!(page, "\nExcess pods at any instant: {}.\n\n{}", shown(excess, gaps), include_str!("../scale.md"));
        page
    }

    /// The loads, in order.
    pub fn loads(&self) -> BTreeSet<Load> {
        self.measured.iter().map(|measured| measured.load).collect()
    }

    /// A row for each figure, without those that were not measured.
    fn table(&self, load: Load, rows: impl Iterator<Item = Row>, show: fn(Spread) -> String) -> String {
        let contestants = self.contestants(load);
        let titles: Vec<_> = contestants.iter().map(|contestant| contestant.title()).collect();
        let mut table = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
        let mut add = |title: &str, cells: Vec<Option<String>>| {
            if cells.iter().any(Option::is_some) {
                let cells: Vec<_> = cells.iter().map(|cell| cell.as_deref().unwrap_or("–")).collect();
                let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
            }
        };
        for (title, phase, figure) in rows {
            add(&title, contestants.iter().map(|one| self.spread(load, phase, *one, figure).map(show)).collect());
        }
        add("excess pods at any instant", contestants.iter().map(|one| Some(self.excess(load, *one))).collect());
        table
    }

    /// In all phases and rounds.
    fn excess(&self, load: Load, contestant: Contestant) -> String {
        let all = self.measured.iter().filter(|m| (m.load, m.contestant) == (load, contestant));
        let (excess, gaps) = all.fold((0, 0), |(excess, gaps), m| (excess + m.excess, gaps + m.gaps));
        shown(excess, gaps)
    }
}

/// Excess pods, and the gaps in the watch that may hide others.
fn shown(excess: usize, gaps: usize) -> String {
    if gaps > 0 { format!("{excess} ({gaps} gaps in the watch)") } else { excess.to_string() }
}

fn circumstances(run: &Run, parts: &BTreeSet<String>) -> String {
    let Run { date, processor, cores, kubernetes, revision, remark } = run;
    let remark = remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    let parts = parts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "- {date}, {parts}: {processor}, {cores} cores, shared with the control plane. Kubernetes {kubernetes}, operator \
         revision {revision}.{remark}\n"
    )
}

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
            ready: None,
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
        assert!(!page.contains("create: ready") && !page.contains("## Start"), "nothing was measured: {page}");
    }
}
