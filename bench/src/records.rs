//! What was measured, one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Who works on the sets.
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
}

impl Contestant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Operator, Self::ReplicaSet, Self::Go, Self::Floor];

    /// Its name in the report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Operator => "podset-operator",
            Self::ReplicaSet => "ReplicaSet controller",
            Self::Go => "tuned Go operator",
            Self::Floor => "bare requests",
        }
    }
}

/// A number of sets, and of pods in each.
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

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// One load in all its phases.
    Load(Load),
    /// Starts of the operator.
    Starts,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "starts" {
            return Ok(Self::Starts);
        }
        let wrong = || "a part is `starts` or a load SETSxPODS such as 100x10".to_owned();
        let (sets, pods) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|number| (1..=100_000).contains(number)).ok_or_else(wrong);
        Ok(Self::Load(Load { sets: number(sets)?, pods: number(pods)? }))
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
    /// They are deleted.
    Delete,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [Self::Create, Self::Up, Self::Repair, Self::Down, Self::Refill, Self::Delete];

    /// Its name in the report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Up => "scale up ×2",
            Self::Repair => "repair",
            Self::Down => "scale down to 1",
            Self::Refill => "refill",
            Self::Delete => "deletion",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// The circumstances of all records that follow.
    Run(Run),
    /// One phase of one load.
    Phase(Measured),
    /// Some seconds after the sets of a load were created.
    Rest(Rest),
    /// A start of the operator.
    Start(Start),
}

/// The circumstances of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Such as 2026-01-31.
    pub date: String,
    /// Name of the processor.
    pub processor: String,
    /// Its cores.
    pub cores: usize,
    /// Memory of the machine, in GiB.
    pub memory: f64,
    /// Version of the API server.
    pub kubernetes: String,
    /// The operator's Git revision, or the name of its binary.
    pub revision: String,
    /// Version of the compiler.
    pub rust: String,
    /// Connections that the bare requests use to create pods, and to delete them.
    pub connections: (usize, usize),
    /// A remark in Markdown, added by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// One phase of one load.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// Who worked on the sets.
    pub contestant: Contestant,
    /// The load.
    pub load: Load,
    /// The repetition, from 1.
    pub round: u32,
    /// The phase.
    pub phase: Phase,
    /// Seconds until the pods were as wanted.
    pub pods: f64,
    /// Seconds until every status said so.
    pub status: Option<f64>,
    /// Seconds until every status said that all pods are ready.
    pub ready: Option<f64>,
    /// Pods that had to be created or deleted.
    pub touched: usize,
    /// The contestant's requests by verb and resource, including watches and Lease traffic.
    pub requests: BTreeMap<String, usize>,
    /// CPU time until everything was at rest, in ms.
    pub cpu: Option<f64>,
    /// Peak memory, in MiB.
    pub peak: Option<f64>,
    /// Sum over the sets of the most pods that each had too many at any instant.
    pub excess: usize,
    /// Sum over the sets of the most pods that each had too few at any instant because of the contestant.
    pub over_deleted: usize,
    /// How often the watch of the pods started again, which hides what happened in between.
    pub gaps: usize,
}

impl Measured {
    /// Requests for each pod that had to be created or deleted.
    pub fn requests_per_pod(&self) -> f64 {
        work(&self.requests) as f64 / self.touched as f64
    }

    /// CPU time for each pod that had to be created or deleted, in ms.
    pub fn cpu_per_pod(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu / self.touched as f64)
    }
}

/// Some seconds after the sets of a load were created.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rest {
    /// Who was at rest.
    pub contestant: Contestant,
    /// The load.
    pub load: Load,
    /// The repetition, from 1.
    pub round: u32,
    /// How many seconds.
    pub seconds: f64,
    /// The contestant's requests by verb and resource, including watches and Lease traffic.
    pub requests: BTreeMap<String, usize>,
    /// CPU time, in ms.
    pub cpu: f64,
    /// Memory at the end, in MiB.
    pub resident: f64,
}

/// A start of the operator.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Start {
    /// Pods in the cluster, in 100 namespaces.
    pub pods: usize,
    /// The repetition, from 1.
    pub round: u32,
    /// From exec to the first reconcile, in ms.
    pub reconcile: f64,
    /// From exec to the response that makes it the leader, in ms.
    pub lease: f64,
    /// From that response to the receipt of its first write, in ms.
    pub write: f64,
}

/// The number of requests, without watches and Lease traffic.
pub fn work(requests: &BTreeMap<String, usize>) -> usize {
    let is_work = |kind: &str| !kind.starts_with("watch ") && !kind.ends_with(" leases");
    requests.iter().filter(|(kind, _)| is_work(kind)).map(|(_, count)| count).sum()
}

/// Reads the records in a file.
pub fn read(file: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let record = |line| serde_json::from_str(line).with_context(|| format!("in {}: {line}", file.display()));
    text.lines().map(record).collect()
}
