//! What was measured, as it is kept: one JSON object a line, so that a report can be made anew, and of several runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Who works on the sets; one at a time.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contestant {
    /// This operator, on PodSets.
    Operator,
    /// The ReplicaSet controller of kube-controller-manager, alone in its process, on ReplicaSets.
    ReplicaSet,
    /// A Go operator on controller-runtime, written with care for speed (`hack/bench/go-peer`), on PodSets.
    Go,
    /// Nobody: the benchmark sends the same pods' creates and deletes itself, over as many connections as serve best.
    Floor,
}

impl Contestant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Operator, Self::ReplicaSet, Self::Go, Self::Floor];

    /// In a word, as on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::ReplicaSet => "replicaset",
            Self::Go => "go",
            Self::Floor => "floor",
        }
    }

    /// As the report calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Operator => "podset-operator",
            Self::ReplicaSet => "ReplicaSet controller",
            Self::Go => "tuned Go operator",
            Self::Floor => "bare requests",
        }
    }
}

/// So many sets, and pods in each.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Load {
    /// Sets.
    pub sets: usize,
    /// Pods of each set.
    pub pods: usize,
}

impl Load {
    /// Pods of all sets.
    pub fn all_pods(self) -> usize {
        self.sets * self.pods
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.sets, self.pods)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no load: it is SETSxPODS, as 100x10");
        let (sets, pods) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|number| (1..=100_000).contains(number)).ok_or_else(wrong);
        Ok(Self { sets: number(sets)?, pods: number(pods)? })
    }
}

/// What happens to the sets of a load, in this order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// They are created.
    Create,
    /// They want twice as many pods.
    Up,
    /// A tenth of their pods is deleted at once.
    Repair,
    /// They want one pod each.
    Down,
    /// They want as many as in the beginning again, so that there is something to delete.
    Refill,
    /// They are deleted; without them, their pods.
    Delete,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [Self::Create, Self::Up, Self::Repair, Self::Down, Self::Refill, Self::Delete];

    /// As the report calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Up => "up ×2",
            Self::Repair => "repair",
            Self::Down => "down to 1",
            Self::Refill => "refill",
            Self::Delete => "deletion",
        }
    }
}

/// What can be measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Loads in all their phases.
    Load,
    /// How the cost grows with the number of pods.
    Scale,
    /// Starts of the operator.
    Start,
    /// The operator with much to watch and nothing to do.
    Idle,
    /// Two small loads, against limits.
    Short,
}

/// One thing that was measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// Where and with what all that follows was measured.
    Run(Run),
    /// One phase of one load.
    Phase(Measured),
    /// Some seconds after a load's sets were created.
    Rest(Rest),
    /// An operator with much to watch and nothing to do.
    Idle(Idle),
    /// A start of the operator.
    Start(Start),
}

/// Where and with what was measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// The day, as 2026-01-31.
    pub date: String,
    /// The processor's name.
    pub processor: String,
    /// Its cores.
    pub cores: usize,
    /// SetState of the machine, in GiB.
    pub memory: f64,
    /// The API server's version.
    pub kubernetes: String,
    /// The operator's revision in Git; or that of which file it was, where that was said.
    pub revision: String,
    /// The compiler's version.
    pub rust: String,
    /// Connections by which most pods are created, and deleted, in a second.
    pub connections: (usize, usize),
    /// What else has to be known of it: a paragraph of Markdown, written by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// One phase of one load.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// For which part.
    pub part: Part,
    /// Whose.
    pub contestant: Contestant,
    /// Of which load.
    pub load: Load,
    /// In which round, counted from 1.
    pub round: usize,
    /// Which.
    pub phase: Phase,
    /// Seconds until all pods were as wanted, and stayed so.
    pub pods: f64,
    /// Seconds until the status of every set said so.
    pub status: Option<f64>,
    /// Seconds until the status of every set said that all pods are ready.
    pub ready: Option<f64>,
    /// Pods that had to be created, or deleted.
    pub touched: usize,
    /// The contestant's requests, by verb and resource; also for its Lease, and watches.
    pub requests: BTreeMap<String, usize>,
    /// Its processor time, in ms, until all was at rest.
    pub cpu: Option<f64>,
    /// The most memory that it had, in MiB.
    pub peak: Option<f64>,
    /// The most pods that each set had too many at any instant, added up.
    pub excess: usize,
    /// The most pods that each set had too few at any instant by the contestant's doing, added up.
    pub over_deleted: usize,
    /// How often the watch of the pods began anew, so that nobody saw what was between.
    #[serde(default)]
    pub gaps: usize,
}

impl Measured {
    /// Requests for each pod that had to be created or deleted: without the Lease, and without watches, which last.
    pub fn requests_a_pod(&self) -> f64 {
        work(&self.requests) as f64 / self.touched as f64
    }

    /// Processor time for each pod that had to be created or deleted, in ms.
    pub fn cpu_a_pod(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu / self.touched as f64)
    }
}

/// Some seconds after a load's sets were created.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rest {
    /// For which part.
    pub part: Part,
    /// Whose.
    pub contestant: Contestant,
    /// Of which load.
    pub load: Load,
    /// In which round, counted from 1.
    pub round: usize,
    /// How many seconds.
    pub seconds: f64,
    /// The contestant's requests, by verb and resource; also for its Lease, and watches.
    pub requests: BTreeMap<String, usize>,
    /// Its processor time, in ms.
    pub cpu: f64,
    /// Its memory in the end, in MiB.
    pub resident: f64,
}

/// What an operator with nothing to do has done before.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Past {
    /// It brought up the sets itself.
    Made,
    /// It leads since a short time ago.
    Started,
    /// It stands by.
    Standby,
}

/// An operator with much to watch and nothing to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Idle {
    /// What it has done before.
    pub past: Past,
    /// Sets, of one pod each.
    pub sets: usize,
    /// Pods of others, which are not scheduled to any node.
    pub strangers: usize,
    /// MyCustomResources, each of which looks for a stranger.
    pub seekers: usize,
    /// How many seconds.
    pub seconds: f64,
    /// The requests of all operators that run, by verb and resource; also for the Lease, and watches.
    pub requests: BTreeMap<String, usize>,
    /// Its processor time, in ms.
    pub cpu: f64,
    /// Its memory in the end, in MiB.
    pub resident: f64,
    /// The most memory that it had before, in MiB: while it made the sets, or since it started. Of a standby it is not measured.
    pub peak: Option<f64>,
}

/// A start of the operator.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Start {
    /// Pods that were there, in 100 namespaces.
    pub pods: usize,
    /// In which round, counted from 1.
    pub round: usize,
    /// From exec to the first reconcile, in ms.
    pub reconcile: f64,
    /// From exec to the API server's answer by which it leads, in ms.
    pub lease: f64,
    /// From that answer to the API server's receipt of its first write, in ms.
    pub write: f64,
}

/// What a record is about. What is measured of it again replaces what was measured before.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// One contestant with one load.
    Course(Part, Load, Contestant),
    /// Starts of the operator.
    Starts,
    /// The operator with nothing to do.
    Idle,
}

impl Record {
    /// What it is about; `None`: the circumstances.
    pub fn subject(&self) -> Option<Subject> {
        match self {
            Self::Run(_) => None,
            Self::Phase(Measured { part, load, contestant, .. }) | Self::Rest(Rest { part, load, contestant, .. }) => {
                Some(Subject::Course(*part, *load, *contestant))
            }
            Self::Idle(_) => Some(Subject::Idle),
            Self::Start(_) => Some(Subject::Starts),
        }
    }
}

/// The runs in these records: where and with what, and what was measured.
pub fn runs(records: &[Record]) -> Vec<(&Run, BTreeSet<Subject>)> {
    let mut runs: Vec<(&Run, BTreeSet<Subject>)> = Vec::new();
    for record in records {
        match (record, runs.last_mut()) {
            (Record::Run(run), _) => runs.push((run, BTreeSet::new())),
            (record, Some((_, subjects))) => subjects.extend(record.subject()),
            _ => {}
        }
    }
    runs
}

/// What was measured before, and what was measured now in the place of what was measured of the same. The two small loads for CI are
/// left out, and runs of which nothing remains.
pub fn merged(before: Vec<Record>, now: Vec<Record>) -> Vec<Record> {
    let anew: BTreeSet<Subject> = now.iter().filter_map(Record::subject).collect();
    let is_kept = |record: &Record| record.subject().is_none_or(|subject| !anew.contains(&subject));
    let is_for_ci = |record: &Record| matches!(record.subject(), Some(Subject::Course(Part::Short, ..)));
    let all = before.into_iter().filter(is_kept).chain(now).filter(|record| !is_for_ci(record));
    let mut merged: Vec<Record> = Vec::new();
    for record in all {
        if matches!((&record, merged.last()), (Record::Run(_), Some(Record::Run(_)))) {
            merged.pop();
        }
        merged.push(record);
    }
    if let Some(Record::Run(_)) = merged.last() {
        merged.pop();
    }
    merged
}

/// How many of these requests are work: those for the Lease keep the leader, and watches last.
pub fn work(requests: &BTreeMap<String, usize>) -> usize {
    let is_work = |kind: &str| !kind.ends_with(" leases") && !kind.starts_with("watch ");
    requests.iter().filter(|(kind, _)| is_work(kind)).map(|(_, count)| count).sum()
}

/// The records in a file.
pub fn read(file: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let record = |line| serde_json::from_str(line).with_context(|| format!("in {}: {line}", file.display()));
    text.lines().map(record).collect()
}

/// For the tests of this folder.
#[cfg(test)]
pub mod testing {
    use super::Run;

    /// A run on this day.
    pub fn run(date: &str) -> Run {
        Run {
            date: date.to_owned(),
            processor: "a fast one".to_owned(),
            cores: 2,
            memory: 24.0,
            kubernetes: "v1.36.3".to_owned(),
            revision: "abc".to_owned(),
            rust: "1.95.0".to_owned(),
            connections: (64, 128),
            remark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_reads_as_it_is_written() {
        assert_eq!("100x10".parse(), Ok(Load { sets: 100, pods: 10 }));
        for wrong in ["100", "0x10", "10x", "x", "1x1000000"] {
            assert!(wrong.parse::<Load>().unwrap_err().contains("SETSxPODS"), "{wrong}");
        }
    }

    #[test]
    fn the_lease_and_watches_are_no_work() {
        let requests = [("create pods", 10), ("patch podsets/status", 2), ("patch leases", 5), ("watch pods", 1)];
        let requests = requests.map(|(kind, count)| (kind.to_owned(), count)).into();
        assert_eq!(work(&requests), 12);
    }

    fn run(date: &str) -> Record {
        Record::Run(testing::run(date))
    }

    fn rest(part: Part, sets: usize, cpu: f64) -> Record {
        let (contestant, load) = (Contestant::Operator, Load { sets, pods: 10 });
        Record::Rest(Rest {
            part,
            contestant,
            load,
            round: 1,
            seconds: 10.0,
            requests: BTreeMap::new(),
            cpu,
            resident: 9.0,
        })
    }

    fn start(pods: usize) -> Record {
        Record::Start(Start { pods, round: 1, reconcile: 50.0, lease: 40.0, write: 12.5 })
    }

    #[test]
    fn what_is_measured_again_replaces_the_same_and_nothing_else() {
        let (old, older) = (rest(Part::Load, 100, 1.0), rest(Part::Load, 500, 1.0));
        let before =
            vec![run("a"), old.clone(), run("b"), older.clone(), rest(Part::Scale, 100, 1.0), start(0), start(1)];
        let now = vec![
            rest(Part::Short, 20, 1.0),
            run("c"),
            rest(Part::Load, 100, 2.0),
            rest(Part::Load, 100, 3.0),
            start(2),
        ];
        let expected = [
            run("b"),
            older,
            rest(Part::Scale, 100, 1.0),
            run("c"),
            rest(Part::Load, 100, 2.0),
            rest(Part::Load, 100, 3.0),
            start(2),
        ];
        let all = merged(before.clone(), now);
        assert_eq!(all, expected);
        let course = |part, sets| Subject::Course(part, Load { sets, pods: 10 }, Contestant::Operator);
        let subjects: Vec<_> = runs(&all).into_iter().map(|(run, subjects)| (run.date.as_str(), subjects)).collect();
        let expected = [
            ("b", BTreeSet::from([course(Part::Load, 500), course(Part::Scale, 100)])),
            ("c", BTreeSet::from([course(Part::Load, 100), Subject::Starts])),
        ];
        assert_eq!(subjects, expected);
        assert_eq!(merged(before.clone(), Vec::new()), before);
        let now = vec![run("c"), rest(Part::Load, 100, 2.0)];
        assert_eq!(merged(vec![run("a"), old], now.clone()), now);
    }

    #[test]
    fn a_record_comes_back_from_its_line() {
        let start = start(0);
        let line = serde_json::to_string(&start).unwrap();
        assert!(line.starts_with(r#"{"kind":"start","#), "{line}");
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), start);
    }
}
