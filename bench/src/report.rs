//! The page of the benchmark, in Markdown.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::records::{Contestant, Load, Measured, Phase, Record, Rest, Run, Start, work};
use crate::spread::{Spread, brief};

/// A figure of one phase, if it was measured.
pub type Figure = fn(&Measured) -> Option<f64>;

/// The load that the page starts with, if it was measured.
const HEADLINE: Load = Load { sets: 100, pods: 10 };

/// Rows of the first table.
const SUMMARY: [(&str, Phase, Figure); 6] = [
    ("create 1,000 pods: every status right, s", Phase::Create, |measured| measured.status),
    ("scale up to 2,000: every status right, s", Phase::Up, |measured| measured.status),
    ("replace 200 lost pods, s", Phase::Repair, |measured| Some(measured.pods)),
    ("requests per created pod", Phase::Create, |measured| Some(measured.requests_per_pod())),
    ("CPU per created pod, ms", Phase::Create, Measured::cpu_per_pod),
    ("peak memory with 2,000 pods, MiB", Phase::Up, |measured| measured.peak),
];

/// Rows of the table of a load, for each phase.
const FIGURES: [(&str, Figure); 6] = [
    ("pods, s", |measured| Some(measured.pods)),
    ("status, s", |measured| measured.status),
    ("ready, s", |measured| measured.ready),
    ("requests per pod", |measured| Some(measured.requests_per_pod())),
    ("CPU per pod, ms", Measured::cpu_per_pod),
    ("peak memory, MiB", |measured| measured.peak),
];

/// The records, sorted by kind.
#[derive(Default)]
pub struct Report<'a> {
    runs: Vec<(&'a Run, BTreeSet<String>)>,
    measured: Vec<&'a Measured>,
    rests: Vec<&'a Rest>,
    starts: Vec<&'a Start>,
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
                Record::Rest(rest) => {
                    report.rests.push(rest);
                    continue;
                }
                Record::Start(start) => {
                    report.starts.push(start);
                    "starts".to_owned()
                }
            };
            if let Some((_, parts)) = report.runs.last_mut() {
                parts.insert(part);
            }
        }
        report
    }

    /// The contestants, in order.
    pub fn contestants(&self) -> Vec<Contestant> {
        let is_there = |one: &Contestant| self.measured.iter().any(|measured| measured.contestant == *one);
        Contestant::ALL.into_iter().filter(is_there).collect()
    }

    /// The load of the chart and of the first table.
    pub fn headline(&self) -> Option<Load> {
        let loads = self.loads();
        loads.get(&HEADLINE).or(loads.first()).copied()
    }

    /// A figure over all rounds.
    pub fn spread(&self, load: Load, phase: Phase, contestant: Contestant, figure: Figure) -> Option<Spread> {
        let is_it = |m: &&&Measured| (m.load, m.phase, m.contestant) == (load, phase, contestant);
        Spread::of(self.measured.iter().filter(is_it).filter_map(|measured| figure(measured)))
    }

    /// The page. Its chart is `benchmarks/times.svg` beside it.
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        if let Some(load) = self.headline() {
            page.push_str(&chart_and_summary(load));
            page.push_str(&self.summary(load));
        }
        page.push_str(METHOD);
        for load in self.loads() {
            let _ = write!(page, "\n## {load} pods\n\n{}", self.details(load));
        }
        if !self.starts.is_empty() {
            page.push_str(START);
            page.push_str(&self.start_table());
        }
        page.push_str("\n## Runs\n\n");
        for (run, parts) in &self.runs {
            page.push_str(&circumstances(run, parts));
        }
        page
    }

    fn loads(&self) -> BTreeSet<Load> {
        self.measured.iter().map(|measured| measured.load).collect()
    }

    fn summary(&self, load: Load) -> String {
        let rows = SUMMARY.into_iter().map(|(title, phase, figure)| {
            // The first table is about 100 × 10. Other loads have no such round numbers.
            let title = if load == HEADLINE { title } else { title.split(':').next().unwrap_or(title) };
            let cell = |one| self.spread(load, phase, one, figure).map(|spread| brief(spread.median));
            (title.to_owned(), self.contestants().into_iter().map(cell).collect())
        });
        table("", &self.contestants(), rows.chain([self.faults(load)]).collect())
    }

    fn details(&self, load: Load) -> String {
        let mut rows = Vec::new();
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Refill) {
            for (what, figure) in FIGURES {
                // Deleted sets have no status, and the garbage collector deletes their pods.
                if phase == Phase::Delete && what != "pods, s" {
                    continue;
                }
                let cell = |one| self.spread(load, phase, one, figure).map(|spread| spread.to_string());
                let cells = self.contestants().into_iter().map(cell).collect();
                rows.push((format!("{}: {what}", phase.title()), cells));
            }
        }
        let at_rest = self.contestants().into_iter().map(|one| self.at_rest(load, one)).collect();
        rows.extend([("at rest".to_owned(), at_rest), self.faults(load)]);
        table("", &self.contestants(), rows)
    }

    fn at_rest(&self, load: Load, contestant: Contestant) -> Option<String> {
        let is_it = |rest: &&&Rest| (rest.load, rest.contestant) == (load, contestant);
        let rests: Vec<_> = self.rests.iter().filter(is_it).collect();
        let sum = |value: fn(&Rest) -> f64| rests.iter().map(|rest| value(rest)).sum::<f64>();
        let memory = Spread::of(rests.iter().map(|rest| rest.resident))?;
        let requests: usize = rests.iter().map(|rest| work(&rest.requests)).sum();
        let seconds = sum(|rest| rest.seconds);
        let cpu = sum(|rest| rest.cpu) * 60.0 / seconds;
        let memory = brief(memory.median);
        Some(format!("{requests} requests in {seconds:.0} s, {} ms CPU per minute, {memory} MiB", brief(cpu)))
    }

    /// In all phases and rounds.
    fn faults(&self, load: Load) -> (String, Vec<Option<String>>) {
        let cell = |contestant| {
            let all: Vec<_> = self.measured.iter().filter(|m| (m.load, m.contestant) == (load, contestant)).collect();
            let sum = |value: fn(&Measured) -> usize| all.iter().map(|measured| value(measured)).sum::<usize>();
            let gaps = match sum(|measured| measured.gaps) {
                0 => String::new(),
                gaps => format!(" ({gaps} gaps in the watch)"),
            };
            let faults = format!("{}, {}{gaps}", sum(|m| m.excess), sum(|m| m.over_deleted));
            (!all.is_empty()).then_some(faults)
        };
        ("pods too many, too few at any instant".to_owned(), self.contestants().into_iter().map(cell).collect())
    }

    fn start_table(&self) -> String {
        let mut table = String::from(
            "| pods | exec to first reconcile, ms | exec to the Lease, ms | the Lease to first write, ms |\n|---|---|---|---|\n",
        );
        for pods in self.starts.iter().map(|start| start.pods).collect::<BTreeSet<_>>() {
            let of = |value: fn(&Start) -> f64| {
                let starts = self.starts.iter().filter(|start| start.pods == pods);
                Spread::of(starts.map(|start| value(start))).map(|spread| spread.to_string()).unwrap_or_default()
            };
            let _ = writeln!(table, "| {pods} | {} | {} | {} |", of(|s| s.reconcile), of(|s| s.lease), of(|s| s.write));
        }
        table
    }
}

/// A row per title, without the rows in which nothing was measured.
fn table(corner: &str, contestants: &[Contestant], rows: Vec<(String, Vec<Option<String>>)>) -> String {
    let titles: Vec<_> = contestants.iter().map(|contestant| contestant.title()).collect();
    let mut table = format!("| {corner} | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for (title, cells) in rows.into_iter().filter(|(_, cells)| cells.iter().any(Option::is_some)) {
        let cells: Vec<_> = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect();
        let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
    }
    table
}

fn chart_and_summary(load: Load) -> String {
    format!(
        "![Seconds until the status of every set is right, by phase]({CHART})\n\n{} sets of {} pods, medians of all rounds:\n\n",
        load.sets, load.pods
    )
}

fn circumstances(run: &Run, parts: &BTreeSet<String>) -> String {
    let Run { date, processor, cores, memory, kubernetes, revision, rust, connections, remark } = run;
    let remark = remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    format!(
        "- {date}, {}: {processor}, {cores} cores, {memory:.0} GiB, shared with the control plane. Kubernetes {kubernetes}, operator \
         revision {revision}, Rust {rust}. Bare requests over {} connections to create and {} to delete.{remark}\n",
        parts.join(", "),
        connections.0,
        connections.1
    )
}

const CHART: &str = "benchmarks/times.svg";

const HEAD: &str = "\
# Benchmarks

How long users wait for the operator, and what it costs, compared with other controllers on the same cluster.

";

const METHOD: &str = "
## Method

`make bench` measures the contestants on the same local cluster ([hack/cluster](../hack/cluster/README.md)), one after the other and in
turn. [bench/README.md](../bench/README.md) shows how to run a part of it.

- **podset-operator**: its release build, alone, as elected leader, with the default flags except for ports and log format, and with the rights of
  `config/rbac`.
- **ReplicaSet controller**: a kube-controller-manager that runs no other controller, and whose client has no limits. It writes some events
  seconds later, so they count as requests at rest.
- **tuned Go operator** ([hack/bench/go-peer](../hack/bench/go-peer/main.go)): controller-runtime, 16 workers, parallel writes, no events, no
  election, and no limits of its client. It counts pods and keeps no promise.
- **bare requests**: no controller. The benchmark itself creates and deletes the same pods, over the number of connections that was fastest in one
  trial of each number. No controller can be much faster. Machines are noisy, and so is this figure.

Nodes are simulated. The API server, etcd, the scheduler and the garbage collector are real, and their clients have no limits. The phases of a load
are: create the sets; scale up to twice as many pods; repair, after a tenth of the pods is lost at once; scale down to one pod; scale up to the
first number again; delete the sets, after which the garbage collector deletes their pods. Watches see each pod and each status:

- *pods*: the time until the number of pods is right.
- *status*: the time until the status of every set says so for its current generation and, after a repair, names none of the lost pods.
- *ready*: the time until the status says that all pods are ready.

A figure is the median of all rounds, with the minimum and maximum in parentheses. Request counts exclude watches and Lease traffic, and include
events. *Too many* and *too few* count pods at any instant in any phase of any round.
";

const START: &str = "
## Start and failover

The operator starts on a cluster with pods in 100 namespaces, in sets of 10. One set needs one more pod. The Lease is free. The first reconcile is
the first one in the log at the level `debug`. The other times come from the API server's audit log. Before its first write, the operator lists one
namespace consistently. For that the API server may have to wait for its cache, which asks etcd at most once in 100 ms. On an idle cluster, this is
most of the time.

";

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
            over_deleted: 0,
            gaps: 0,
        })
    }

    #[test]
    fn rounds_become_medians() {
        let mut records: Vec<_> = [3.0, 2.0, 4.0]
            .into_iter()
            .zip(1..)
            .map(|(pods, round)| measured(Contestant::Operator, round, pods))
            .collect();
        records.push(measured(Contestant::Floor, 1, 2.0));
        let line = serde_json::to_string(&records[0]).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), records[0]);
        let page = Report::of(&records).page();
        for line in [
            "|  | podset-operator | bare requests |",
            "| create 1,000 pods: every status right, s | 3.50 | – |",
            "| create: pods, s | 3.00 (2.00–4.00) | 2.00 |",
            "| create: requests per pod | 1.00 | 1.00 |",
            "| create: CPU per pod, ms | 2.50 | – |",
            "| pods too many, too few at any instant | 0, 0 | 0, 0 |",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
        assert!(!page.contains("create: ready") && !page.contains("## Start"), "nothing was measured: {page}");
    }
}
