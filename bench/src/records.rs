//! The measurements, one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::str::FromStr;

use anyhow::Result;
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
        match load.kind {
            Kind::Replicas => self != Self::Deployment,
            Kind::Rollout => matches!(self, Self::Operator | Self::Deployment),
            Kind::Scale => self == Self::Operator,
        }
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

/// What a load consists of.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The numbers of pods change.
    Replicas,
    /// The templates change.
    Rollout,
    /// Very many pods in three namespaces. The operator restarts, its leader changes, and three operators replace it.
    Scale,
}

/// A number of sets, and of pods in each.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Load {
    pub kind: Kind,
    pub sets: usize,
    /// Pods of each set.
    pub pods: usize,
}

impl Load {
    pub fn all_pods(self) -> usize {
        self.sets * self.pods
    }

    /// What happens to the sets, in this order, before they are deleted.
    pub fn phases(self) -> &'static [Phase] {
        use Phase::*;
        match self.kind {
            Kind::Replicas => &[Create, Up, Repair, Down],
            Kind::Rollout => &[Create, Roll],
            Kind::Scale => &[Create, Rest, Restart, Term, Kill, Roll, Shards, RollShards],
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, sets, pods } = self;
        match kind {
            Kind::Replicas => write!(f, "{sets} × {pods} pods"),
            Kind::Rollout => write!(f, "Rollout of {sets} × {pods} pods"),
            Kind::Scale => write!(f, "Scale: {} pods in {sets} sets", self.all_pods()),
        }
    }
}

impl FromStr for Load {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=100_000).contains(number));
        let (kind, size) = text.split_once(':').unwrap_or(("replicas", text));
        let load = || {
            let (sets, pods) = size.split_once('x')?;
            Some(Self { kind: Kind::from_str(kind, false).ok()?, sets: number(sets)?, pods: number(pods)? })
        };
        load().ok_or("a load is 100x10, rollout:100x10 or scale:10000x5, with other numbers")
    }
}

/// What happens to the sets of a load: `method.md` has a table of the phases.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Create,
    Up,
    Repair,
    Down,
    Rest,
    Restart,
    Term,
    Kill,
    Roll,
    Shards,
    RollShards,
    /// This is not recorded, because it measures the garbage collector.
    Delete,
}

impl Phase {
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Up => "scale up ×2",
            Self::Repair => "repair",
            Self::Down => "scale down to 1",
            Self::Roll => "rollout",
            Self::Delete => "deletion",
            Self::Rest => "60 s at rest",
            Self::Restart => "restart of the operator",
            Self::Term => "SIGTERM to the leader",
            Self::Kill => "SIGKILL to the leader",
            Self::Shards => "start of three operators",
            Self::RollShards => "rollout by three operators",
        }
    }
}

/// One line of the records.
#[derive(Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    Run(Run),
    Phase(Measured),
}

/// The circumstances of a run.
#[derive(Deserialize, Serialize)]
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
#[derive(Deserialize, Serialize)]
pub struct Measured {
    pub contestant: Contestant,
    pub load: Load,
    pub round: u32,
    pub phase: Phase,
    /// Seconds until the pods were as wanted.
    pub pods: f64,
    /// Seconds until every status said so.
    pub status: Option<f64>,
    /// The contestant's requests by verb and resource, including watches and Lease traffic.
    pub requests: BTreeMap<String, usize>,
    /// CPU time until everything was at rest, in ms.
    pub cpu: Option<f64>,
    /// Peak memory, in MiB.
    pub peak: Option<f64>,
    /// Sum over the sets of the most pods that each had too many at any instant. `None`: none were seen, but the watch has a gap.
    pub excess: Option<usize>,
    /// The highest age of any status, in seconds, in the scale run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<f64>,
}

impl Measured {
    /// The number of requests without watches and Lease traffic.
    pub fn work(&self) -> f64 {
        let is_work = |kind: &str| !kind.starts_with("watch ") && !kind.ends_with(" leases");
        self.requests.iter().filter(|(kind, _)| is_work(kind)).map(|(_, count)| count).sum::<usize>() as f64
    }
}

/// Appends a record to a file.
pub fn append(mut file: &File, record: &Record) -> Result<()> {
    Ok(writeln!(file, "{}", serde_json::to_string(record)?)?)
}
