//! The measurements, one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What manages the sets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Contestant {
    /// This operator, on PodSets
    Operator,
    /// The ReplicaSet controller, alone in its kube-controller-manager, on ReplicaSets
    ReplicaSet,
    /// A Go operator on controller-runtime, tuned for speed (hack/bench/go-peer), on PodSets
    Go,
    /// No controller: the benchmark sends the creates and deletes of the same pods itself
    Floor,
    /// The Deployment and ReplicaSet controllers in their own kube-controller-manager, on Deployments without surge
    Deployment,
}

impl Contestant {
    /// Whether it takes part in this load.
    pub fn does(self, load: Load) -> bool {
        self == Self::Operator || load.rolls == (self == Self::Deployment)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Operator => "podset-operator",
            Self::ReplicaSet => "ReplicaSet controller",
            Self::Go => "tuned Go operator",
            Self::Floor => "bare requests",
            Self::Deployment => "Deployment controller",
        }
    }
}

/// A number of sets, and of pods in each.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Load {
    /// Whether their templates change, and not their numbers of pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls: bool,
    pub sets: usize,
    /// Pods of each set.
    pub pods: usize,
}

impl Load {
    pub const fn new(sets: usize, pods: usize) -> Self {
        Self { rolls: false, sets, pods }
    }

    pub fn all_pods(self) -> usize {
        self.sets * self.pods
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} × {}", if self.rolls { "Rollout of " } else { "" }, self.sets, self.pods)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "rollout" {
            return Ok(Self { rolls: true, ..Self::new(100, 10) });
        }
        let wrong = || "a load is SETSxPODS, such as 100x10, or rollout".to_owned();
        let (sets, pods) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|number| (1..=100_000).contains(number)).ok_or_else(wrong);
        Ok(Self::new(number(sets)?, number(pods)?))
    }
}

/// What happens to the sets of a load, in this order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The sets are created.
    Create,
    /// Their replicas are doubled.
    Up,
    /// A tenth of their pods is deleted at once.
    Repair,
    /// They are scaled down to one pod each.
    Down,
    /// They are scaled up to the first number again, so that there is something to delete.
    Refill,
    /// Their templates change, half of the pods of a set at once.
    Roll,
    /// They are deleted.
    Delete,
}

impl Phase {
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Up, Self::Repair, Self::Down, Self::Refill, Self::Roll, Self::Delete];

    /// Whether it is one of this load.
    pub fn is_of(self, load: Load) -> bool {
        matches!(self, Self::Create | Self::Delete) || load.rolls == (self == Self::Roll)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Up => "scale up ×2",
            Self::Repair => "repair",
            Self::Down => "scale down to 1",
            Self::Refill => "refill",
            Self::Roll => "rollout",
            Self::Delete => "deletion",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    Run(Run),
    Phase(Measured),
    /// A step of the scale run.
    Step(Step),
    /// All samples of the scale run.
    Samples(Samples),
}

/// The circumstances of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    pub date: String,
    pub processor: String,
    pub cores: usize,
    pub kubernetes: String,
    /// Of the operator in Git, or the name of its binary.
    pub revision: String,
    /// A remark in Markdown, added by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// One phase of one load.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    pub contestant: Contestant,
    pub load: Load,
    pub round: u32,
    pub phase: Phase,
    /// Seconds until the pods were as wanted.
    pub pods: f64,
    /// Seconds until every status said so.
    pub status: Option<f64>,
    /// Seconds until every status said that all pods are ready.
    pub ready: Option<f64>,
    /// Pods that had to be created, deleted or replaced.
    pub touched: usize,
    /// The contestant's requests by verb and resource, including watches and Lease traffic.
    pub requests: BTreeMap<String, usize>,
    /// CPU time until everything was at rest, in ms.
    pub cpu: Option<f64>,
    /// Peak memory, in MiB.
    pub peak: Option<f64>,
    /// Sum over the sets of the most pods that each had too many at any instant.
    pub excess: usize,
    /// How often the watch of the pods started again, which hides what happened in between.
    pub gaps: usize,
}

/// One step of the scale run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    pub load: Load,
    pub title: String,
    /// Seconds since the start of the run.
    pub began: f64,
    /// Seconds until the pods were as wanted.
    pub pods: f64,
    /// Seconds until every status said so.
    pub status: f64,
    /// Requests of all operators, without watches and Lease traffic.
    pub requests: usize,
    /// CPU time of all operators that still run, in s.
    pub cpu: f64,
    /// Peak memory of the largest operator, in MiB.
    pub peak: f64,
    /// The greatest age of a status in seconds.
    pub age: f64,
    /// As in a phase.
    pub excess: usize,
    pub gaps: usize,
}

/// What is sampled every second.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Samples {
    pub list: Vec<Sample>,
}

/// Seconds since the start of the run, resident memory of the largest operator in MiB, live pods, and the age of the oldest status in
/// seconds.
pub type Sample = (f64, f64, usize, f64);

/// The number of requests without watches and Lease traffic.
pub fn work(requests: &BTreeMap<String, usize>) -> usize {
    let is_work = |kind: &str| !kind.starts_with("watch ") && !kind.ends_with(" leases");
    requests.iter().filter(|(kind, _)| is_work(kind)).map(|(_, count)| count).sum()
}

impl Measured {
    /// Requests for each pod that had to be created or deleted, without watches and Lease traffic.
    pub fn requests_per_pod(&self) -> f64 {
        work(&self.requests) as f64 / self.touched as f64
    }

    /// In a rollout, the number of requests of this kind for each set.
    pub fn per_set(&self, kind: &str) -> Option<f64> {
        let counts = self.requests.iter().filter(|(other, _)| other.ends_with(kind)).map(|(_, count)| count);
        (self.phase == Phase::Roll).then(|| counts.sum::<usize>() as f64 / self.load.sets as f64)
    }

    /// CPU time for each pod that had to be created or deleted, in ms.
    pub fn cpu_per_pod(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu / self.touched as f64)
    }
}

/// Appends a record to a file.
pub fn append(file: &Path, record: &Record) -> Result<()> {
    let opened = File::options().create(true).append(true).open(file);
    let mut opened = opened.with_context(|| format!("opening {}", file.display()))?;
    Ok(writeln!(opened, "{}", serde_json::to_string(record)?)?)
}

/// Reads the records in a file.
pub fn read(file: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let record = |line| serde_json::from_str(line).with_context(|| format!("in {}: {line}", file.display()));
    text.lines().map(record).collect()
}
