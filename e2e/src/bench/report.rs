//! The page of what was measured, in Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::records::{
    Contestant, Idle, Load, Measured, Part, Past, Phase, Record, Rest, Run, Start, Subject, runs, work,
};
use super::spread::{Spread, brief};

/// Whose figure of which phase of which load.
pub type Place = (Part, Load, Phase, Contestant);

/// What a figure comes to over all rounds.
pub fn spread(measured: &[&Measured], place: Place, figure: impl Fn(&Measured) -> Option<f64>) -> Option<Spread> {
    let is_it = |m: &&&Measured| (m.part, m.load, m.phase, m.contestant) == place;
    Spread::of(measured.iter().filter(is_it).filter_map(|measured| figure(measured)))
}

/// The loads of a part, in order.
pub fn loads(measured: &[&Measured], part: Part) -> Vec<Load> {
    let of_part = measured.iter().filter(|measured| measured.part == part);
    of_part.map(|measured| measured.load).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The records, sorted by what they are.
#[derive(Default)]
pub struct Records<'a> {
    /// Where and with what was measured, and what.
    pub runs: Vec<(&'a Run, BTreeSet<Subject>)>,
    /// Phases of loads.
    pub measured: Vec<&'a Measured>,
    /// Seconds at rest.
    pub rests: Vec<&'a Rest>,
    /// An operator with nothing to do.
    pub idles: Vec<&'a Idle>,
    /// Starts.
    pub starts: Vec<&'a Start>,
}

impl<'a> Records<'a> {
    /// Sorts them.
    pub fn of(records: &'a [Record]) -> Self {
        let mut sorted = Self { runs: runs(records), ..Self::default() };
        for record in records {
            match record {
                Record::Run(_) => {}
                Record::Phase(measured) => sorted.measured.push(measured),
                Record::Rest(rest) => sorted.rests.push(rest),
                Record::Idle(idle) => sorted.idles.push(idle),
                Record::Start(start) => sorted.starts.push(start),
            }
        }
        sorted
    }

    /// Whether anything of this part is there.
    pub fn has(&self, part: Part) -> bool {
        match part {
            Part::Idle => !self.idles.is_empty(),
            Part::Start => !self.starts.is_empty(),
            part => self.measured.iter().any(|measured| measured.part == part),
        }
    }

    /// The page. Its pictures are `benchmarks/times.svg`, `costs.svg` and `scale.svg` beside it.
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        self.runs.iter().for_each(|(run, subjects)| page.push_str(&circumstances(run, subjects)));
        if self.has(Part::Load) {
            page.push_str(LOADS);
            loads(&self.measured, Part::Load).into_iter().for_each(|load| page.push_str(&self.times(load)));
            page.push_str(COSTS);
            page.push_str(&self.costs(Part::Load));
            page.push_str(&self.requests());
        }
        if self.has(Part::Scale) {
            page.push_str(SCALE);
            page.push_str(&self.costs(Part::Scale));
        }
        if self.has(Part::Start) {
            page.push_str(START);
            page.push_str(&self.start_table());
        }
        if self.has(Part::Idle) {
            page.push_str(IDLE);
            page.push_str(&self.idle_table());
        }
        page
    }

    fn contestants(&self, part: Part) -> Vec<Contestant> {
        let of_part = self.measured.iter().filter(|measured| measured.part == part);
        of_part.map(|measured| measured.contestant).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn times(&self, load: Load) -> String {
        let contestants = self.contestants(Part::Load);
        let mut table = Table::new(&format!("{load}, s"), contestants.iter().map(|contestant| contestant.title()));
        let value = |phase, contestant, figure: fn(&Measured) -> Option<f64>| {
            spread(&self.measured, (Part::Load, load, phase, contestant), figure)
        };
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Refill) {
            // The pods of the others are deleted by the garbage collector, their owners being gone: that is other work.
            let floor = value(phase, Contestant::Floor, |measured| Some(measured.pods));
            let floor = floor.filter(|_| phase != Phase::Delete);
            for (what, figure) in TIMES {
                if phase == Phase::Delete && what != "pods" {
                    continue; // what is gone has no status
                }
                let cell = |contestant: &Contestant| {
                    let value = value(phase, *contestant, figure)?;
                    let times =
                        floor.filter(|_| *contestant != Contestant::Floor).map(|floor| value.median / floor.median);
                    Some(format!("{value}{}", times.map(|times| format!(", ×{times:.2}")).unwrap_or_default()))
                };
                table.row(&format!("{}: {what}", phase.title()), contestants.iter().map(cell));
            }
        }
        table.finish()
    }

    fn costs(&self, part: Part) -> String {
        let mut contestants = self.contestants(part);
        contestants.retain(|contestant| *contestant != Contestant::Floor);
        let mut table = Table::new("", contestants.iter().map(|contestant| contestant.title()));
        for load in loads(&self.measured, part) {
            for (what, phase, figure) in FIGURES {
                let cell = |contestant: &Contestant| {
                    spread(&self.measured, (part, load, phase, *contestant), figure).map(|value| value.to_string())
                };
                table.row(&format!("{load}: {what}"), contestants.iter().map(cell));
            }
            let cell = |contestant: &Contestant| self.at_rest(part, load, *contestant);
            table.row(&format!("{load}: at rest"), contestants.iter().map(cell));
            let cell = |contestant: &Contestant| self.faults(part, load, *contestant);
            table.row(&format!("{load}: pods too many, too few"), contestants.iter().map(cell));
        }
        table.finish()
    }

    fn at_rest(&self, part: Part, load: Load, contestant: Contestant) -> Option<String> {
        let is_it = |rest: &&&Rest| (rest.part, rest.load, rest.contestant) == (part, load, contestant);
        let rests: Vec<_> = self.rests.iter().filter(is_it).collect();
        let sum = |value: fn(&Rest) -> f64| rests.iter().map(|rest| value(rest)).sum::<f64>();
        let resident = Spread::of(rests.iter().map(|rest| rest.resident))?;
        let requests: usize = rests.iter().map(|rest| work(&rest.requests)).sum();
        let seconds = sum(|rest| rest.seconds);
        let cpu = sum(|rest| rest.cpu) * 60.0 / seconds;
        Some(format!("{requests} requests in {seconds:.0} s, {} ms/min, {} MiB", brief(cpu), brief(resident.median)))
    }

    /// In all phases and rounds.
    fn faults(&self, part: Part, load: Load, contestant: Contestant) -> Option<String> {
        let is_it = |m: &&&Measured| (m.part, m.load, m.contestant) == (part, load, contestant);
        let all: Vec<_> = self.measured.iter().filter(is_it).collect();
        let sum = |value: fn(&Measured) -> usize| all.iter().map(|measured| value(measured)).sum::<usize>();
        let gaps = match sum(|m| m.gaps) {
            0 => String::new(),
            gaps => format!("; {gaps} times nobody saw for a moment"),
        };
        (!all.is_empty()).then(|| format!("{}, {}{gaps}", sum(|m| m.excess), sum(|m| m.over_deleted)))
    }

    /// What was asked for while the sets were created, by verb and resource; the mean of all rounds.
    fn requests(&self) -> String {
        let mut table = Table::new("requests while the sets are created", ["", ""].into_iter());
        for load in loads(&self.measured, Part::Load) {
            for contestant in self.contestants(Part::Load).into_iter().filter(|one| *one != Contestant::Floor) {
                let is_it = |m: &&&Measured| {
                    (m.part, m.load, m.phase, m.contestant) == (Part::Load, load, Phase::Create, contestant)
                };
                let all: Vec<_> = self.measured.iter().filter(is_it).collect();
                let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
                for (kind, count) in all.iter().flat_map(|measured| &measured.requests) {
                    *kinds.entry(kind).or_default() += count;
                }
                let mean = |count: usize| match count % all.len() {
                    0 => (count / all.len()).to_string(),
                    _ => brief(count as f64 / all.len() as f64),
                };
                let told = kinds.iter().map(|(kind, count)| format!("{kind} {}", mean(*count)));
                let told = told.collect::<Vec<_>>().join(", ");
                table.row(&load.to_string(), [Some(contestant.title().to_owned()), Some(told)].into_iter());
            }
        }
        table.finish()
    }

    fn start_table(&self) -> String {
        let columns = ["exec to first reconcile, ms", "exec to the Lease, ms", "the Lease to first write, ms"];
        let mut table = Table::new("pods", columns.into_iter());
        for pods in self.starts.iter().map(|start| start.pods).collect::<BTreeSet<_>>() {
            let of = |value: fn(&Start) -> f64| {
                let starts = self.starts.iter().filter(|start| start.pods == pods);
                Spread::of(starts.map(|start| value(start))).map(|spread| spread.to_string())
            };
            table.row(&pods.to_string(), [of(|s| s.reconcile), of(|s| s.lease), of(|s| s.write)].into_iter());
        }
        table.finish()
    }

    fn idle_table(&self) -> String {
        let columns = ["memory, MiB", "the most, MiB", "processor, ms a minute", "requests", "for its Lease"];
        let mut table = Table::new("", columns.into_iter());
        for idle in &self.idles {
            let past = match idle.past {
                Past::Made => "has made them",
                Past::Started => "just started",
                Past::Standby => "stands by, beside the leader",
            };
            let leases = idle.requests.iter().filter(|(kind, _)| kind.ends_with(" leases")).map(|(_, count)| count);
            let cells = [
                Some(brief(idle.resident)),
                idle.peak.map(brief),
                Some(brief(idle.cpu * 60.0 / idle.seconds)),
                Some(format!("{} in {:.0} s", work(&idle.requests), idle.seconds)),
                Some(leases.sum::<usize>().to_string()),
            ];
            let what = format!(
                "{} sets of 1 pod, {} pods of others, {} MyCustomResources; {past}",
                idle.sets, idle.strangers, idle.seekers
            );
            table.row(&what, cells.into_iter());
        }
        table.finish()
    }
}

type Figure = fn(&Measured) -> Option<f64>;

const TIMES: [(&str, Figure); 3] = [
    ("pods", |measured| Some(measured.pods)),
    ("status", |measured| measured.status),
    ("ready", |measured| measured.ready),
];

const FIGURES: [(&str, Phase, Figure); 8] = [
    ("created, s", Phase::Create, |measured| measured.status),
    ("requests a pod, create", Phase::Create, |measured| Some(measured.requests_a_pod())),
    ("requests a pod, up ×2", Phase::Up, |measured| Some(measured.requests_a_pod())),
    ("requests a pod, down to 1", Phase::Down, |measured| Some(measured.requests_a_pod())),
    ("processor ms a pod, create", Phase::Create, Measured::cpu_a_pod),
    ("processor ms a pod, up ×2", Phase::Up, Measured::cpu_a_pod),
    ("memory MiB, create", Phase::Create, |measured| measured.peak),
    ("memory MiB, up ×2", Phase::Up, |measured| measured.peak),
];

fn circumstances(run: &Run, subjects: &BTreeSet<Subject>) -> String {
    let Run { date, processor, cores, memory, kubernetes, revision, rust, connections, remark } = run;
    let remark = remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    format!(
        "- {date}, {}: {processor}, {cores} cores, {memory:.0} GiB, shared with the control plane. Kubernetes {kubernetes}, the operator at \
         revision {revision}, Rust {rust}. Bare requests over {} connections to create and {} to delete.{remark}\n",
        listed(subjects),
        connections.0,
        connections.1
    )
}

/// What a run was about, in words: contestants are named where not all took part.
fn listed(subjects: &BTreeSet<Subject>) -> String {
    let mut courses: BTreeMap<(Part, Load), Vec<Contestant>> = BTreeMap::new();
    for subject in subjects {
        if let Subject::Course(part, load, contestant) = subject {
            courses.entry((*part, *load)).or_default().push(*contestant);
        }
    }
    let mut listed: Vec<String> = Vec::new();
    for ((part, load), contestants) in courses {
        let growth = if part == Part::Scale { " of the growth" } else { "" };
        let words: Vec<_> = contestants.iter().map(|contestant| contestant.title()).collect();
        // Bare requests do not grow.
        let all = Contestant::ALL.len() - usize::from(part == Part::Scale);
        let by = if words.len() == all { String::new() } else { format!(" ({})", words.join(", ")) };
        listed.push(format!("{load}{growth}{by}"));
    }
    listed.extend(subjects.contains(&Subject::Starts).then(|| "starts".to_owned()));
    listed.extend(subjects.contains(&Subject::Idle).then(|| "nothing to do".to_owned()));
    listed.join(", ")
}

/// A table of Markdown.
struct Table(String);

impl Table {
    fn new<'a>(corner: &str, columns: impl Iterator<Item = &'a str>) -> Self {
        let columns: Vec<_> = columns.collect();
        Self(format!("\n| {corner} | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len())))
    }

    /// A row; none at all where nothing was measured of it.
    fn row(&mut self, name: &str, cells: impl Iterator<Item = Option<String>>) {
        let cells: Vec<_> = cells.collect();
        if cells.iter().any(Option::is_some) {
            let cells: Vec<_> = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect();
            // Writing to a string does not fail.
            let _ = writeln!(self.0, "| {name} | {} |", cells.join(" | "));
        }
    }

    fn finish(self) -> String {
        self.0
    }
}

const HEAD: &str = "\
# Benchmarks

Written by `make bench`, which measures everything or a part of it: how long users wait, and what it costs. The contestants run on the same local
cluster ([hack/cluster](../hack/cluster/README.md)), one after the other and in turn:

- **podset-operator**: its release build, alone, as elected leader, with the default flags except for ports and log format, and with the rights of
  `config/rbac`.
- **ReplicaSet controller**: a kube-controller-manager that runs no other controller, and whose client has no limits. It writes some events
  seconds later, so they count as requests at rest.
- **tuned Go operator** ([hack/bench/go-peer](../hack/bench/go-peer/main.go)): controller-runtime, 16 workers, parallel writes, no events, no
  election, and no limits of its client. It counts pods and keeps no promise.
- **bare requests**: no controller. The benchmark itself creates and deletes the same pods, over the number of connections that was fastest in one
  trial of each number. No controller can be much faster. Machines are noisy, and so is this figure.

Nodes are simulated. The API server, etcd, the scheduler and the garbage collector are real, and their clients have no limits. A figure is the
median of all rounds, with the minimum and maximum in parentheses. Watches see each pod and each status:

- *pods*: the time until the number of pods is right.
- *status*: the time until the status of every set says so for its current generation and, after a repair, names none of the lost pods.
- *ready*: the time until the status says that all pods are ready.
- *×*: compared with the bare requests for the pods.

Request counts exclude watches and Lease traffic, and include events.

";

const LOADS: &str = "
## Duration

A load is *sets* × *pods of each*. The phases are: create the sets; scale up to twice as many pods; repair, after a tenth of the pods is lost at
once; scale down to one pod; scale up to the first number again; delete the sets, after which the garbage collector deletes their pods.

![Seconds of each phase of each load](benchmarks/times.svg)
";

const COSTS: &str = "
## Cost

*Too many* and *too few* count pods at any instant in any phase of any round.

![Requests, processor time and memory](benchmarks/costs.svg)
";

const SCALE: &str = "
## Growth

Sets of 10 pods are created. The API server limits the speed: the operator waits for the responses to 96 parallel requests (128 in the last row),
while the scheduler and the nodes write each new pod three or four times more. Requests per pod grow because a set whose pods take longer than 5 s
to become ready gets one more status update. Memory grows by about 1 KiB with each pod.

![How time and cost grow with the number of pods](benchmarks/scale.svg)
";

const START: &str = "
## Start and failover

The operator starts on a cluster with pods in 100 namespaces, in sets of 10. One set needs one more pod. The Lease is free. The first reconcile is
the first one in the log at the level `debug`. The other times come from the API server's audit log. Before its first write, the operator lists one
namespace consistently. For that the API server may have to wait for its cache, which asks etcd at most once in 100 ms. On an idle cluster, this is
most of the time.
";

const IDLE: &str = "
## Idle

Both controllers run. The other pods are on no node, and no scheduler works on them. *The most* is the maximum while the operator created the sets,
or since it started. Requests are those of all running operators.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::records::testing;

    fn measured(contestant: Contestant, round: usize, phase: Phase, pods: f64) -> Record {
        let is_floor = contestant == Contestant::Floor;
        let requests = [("create pods".to_owned(), 20), ("patch leases".to_owned(), 3)].into();
        Record::Phase(Measured {
            part: Part::Load,
            contestant,
            load: Load { sets: 2, pods: 10 },
            round,
            phase,
            pods,
            status: (!is_floor).then_some(pods + 0.5),
            ready: None,
            touched: 20,
            requests,
            cpu: (!is_floor).then_some(50.0),
            peak: (!is_floor).then_some(10.0),
            excess: 0,
            over_deleted: 0,
            gaps: 0,
        })
    }

    #[test]
    fn rounds_come_to_medians_and_are_compared_with_the_floor() {
        let mut records: Vec<_> = [(1, 3.0), (2, 2.0), (3, 4.0)]
            .map(|(round, pods)| measured(Contestant::Operator, round, Phase::Create, pods))
            .into();
        records.push(measured(Contestant::Floor, 1, Phase::Create, 2.0));
        let page = Records::of(&records).page();
        let lines = [
            "| 2 × 10, s | podset-operator | bare requests |",
            "| create: pods | 3.00 (2.00–4.00), ×1.50 | 2.00 |",
            "| create: status | 3.50 (2.50–4.50), ×1.75 | – |",
            "| 2 × 10: requests a pod, create | 1.00 |",
            "| 2 × 10: processor ms a pod, create | 2.50 |",
            "| 2 × 10: pods too many, too few | 0, 0 |",
            "| 2 × 10 | podset-operator | create pods 20, patch leases 3 |",
        ];
        for line in lines {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
        assert!(
            !page.contains("create: ready") && !page.contains("## Start"),
            "what was not measured is not told: {page}"
        );
    }

    #[test]
    fn a_run_is_told_with_what_was_measured_in_it() {
        let run = Record::Run(Run { remark: Some("It rained.".to_owned()), ..testing::run("2026-01-31") });
        let two = [Contestant::Floor, Contestant::Operator].map(|who| measured(who, 1, Phase::Create, 2.0));
        let records: Vec<_> = [run].into_iter().chain(two).collect();
        let page = Records::of(&records).page();
        let line = "- 2026-01-31, 2 × 10 (podset-operator, bare requests): a fast one, 2 cores, 24 GiB, shared with the control plane. \
                    Kubernetes v1.36.3, the operator at revision abc, Rust 1.95.0. Bare requests over 64 connections to create and 128 \
                    to delete. It rained.";
        assert!(page.lines().any(|other| other == line), "{page}");
    }

    #[test]
    fn starts_are_told_by_the_number_of_pods() {
        let start = |pods, reconcile| Record::Start(Start { pods, round: 1, reconcile, lease: 40.0, write: 9.0 });
        let records = [start(1_000, 70.0), start(0, 50.0), start(0, 60.0)];
        let page = Records::of(&records).page();
        let at = |line: &str| page.find(line).unwrap_or_else(|| panic!("{line}\n{page}"));
        assert!(at("| 0 | 55.0 (50.0–60.0) | 40.0 | 9.00 |") < at("| 1000 | 70.0 | 40.0 | 9.00 |"));
    }
}
