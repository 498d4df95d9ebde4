//! Watches the pods and the sets, and passes every event to the judge.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use e2e::observe::follow::{Told, follow};
use e2e::types::{Pod, uid};
use kube::Client;
use kube::api::{Api, ApiResource, Object};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::judge::{Judge, Marks, SeenPod, SeenSet};

/// Everything is at rest if nothing happens for this time.
const QUIET: Duration = Duration::from_millis(1_500);

/// A PodSet or a ReplicaSet.
type Set = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize)]
struct Spec {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
    /// A ReplicaSet's pods. Its `availableReplicas` are ready ones.
    replicas: Option<usize>,
    /// A PodSet's pods.
    available_replicas: usize,
    ready_replicas: usize,
    pod_names: Vec<String>,
}

/// The two watches of one namespace. They end when it is dropped.
pub struct Watcher {
    judge: Arc<Mutex<Judge>>,
    _watches: JoinSet<()>,
}

impl Watcher {
    /// Starts the watches.
    pub fn start(client: &Client, namespace: &str, sets: Option<&ApiResource>) -> Self {
        let judge = Arc::new(Mutex::new(Judge::new(Instant::now())));
        let mut watches = JoinSet::new();
        let told = judge.clone();
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        watches.spawn(follow(pods, move |event| take_pod(&mut lock(&told), event)));
        if let Some(resource) = sets {
            let told = judge.clone();
            let sets = Api::<Set>::namespaced_with(client.clone(), namespace, resource);
            watches.spawn(follow(sets, move |event| take_set(&mut lock(&told), event)));
        }
        Self { judge, _watches: watches }
    }

    /// The judge.
    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    /// The marks, the excess and the missing pods, and the number of gaps.
    pub fn verdict(&self) -> (Marks, (usize, usize), usize) {
        let judge = self.judge();
        (judge.marks(), judge.faults(), judge.gaps())
    }

    /// Waits until everything is as wanted and nothing happens any more, as long as `goes_on` returns no error.
    pub async fn until_at_rest(&self, limit: Duration, mut goes_on: impl FnMut() -> Result<()>) -> Result<()> {
        let end = Instant::now() + limit;
        while !self.judge().rests(Instant::now(), QUIET) {
            goes_on()?;
            if Instant::now() > end {
                bail!("not at rest after {} s: {}", limit.as_secs(), self.judge().summary());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn lock(judge: &Mutex<Judge>) -> MutexGuard<'_, Judge> {
    judge.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn take_pod(judge: &mut Judge, told: Told<Pod>) {
    let now = Instant::now();
    match told {
        Told::Applied(pod) => judge.pod(seen_pod(&pod), false, now),
        Told::Deleted(pod) => judge.pod(seen_pod(&pod), true, now),
        Told::Listed(pods, _) => {
            // First remove the pods that went during the gap. Otherwise they would count as excess.
            judge.only_pods(&pods.iter().map(|pod| uid(&pod.metadata)).collect::<HashSet<_>>(), now);
            let mut seen: Vec<_> = pods.iter().map(seen_pod).collect();
            // Also take finished pods before their replacements.
            seen.sort_by_key(|pod| pod.live);
            seen.into_iter().for_each(|pod| judge.pod(pod, false, now));
        }
        Told::Nothing(_) => {}
    }
}

fn take_set(judge: &mut Judge, told: Told<Set>) {
    let now = Instant::now();
    match told {
        Told::Applied(set) => judge.set(seen_set(set), false, now),
        Told::Deleted(set) => judge.set(seen_set(set), true, now),
        Told::Listed(sets, _) => {
            judge.only_sets(&sets.iter().map(|set| uid(&set.metadata)).collect::<HashSet<_>>(), now);
            sets.into_iter().for_each(|set| judge.set(seen_set(set), false, now));
        }
        Told::Nothing(_) => {}
    }
}

fn seen_pod(pod: &Pod) -> SeenPod {
    SeenPod {
        uid: uid(&pod.metadata),
        name: pod.metadata.name.clone().unwrap_or_default(),
        owner: pod.owner().unwrap_or_default().to_owned(),
        live: pod.is_live(),
        ready: pod.is_ready(),
    }
}

fn seen_set(set: Set) -> SeenSet {
    let status = set.status.unwrap_or_default();
    SeenSet {
        uid: uid(&set.metadata),
        is_current: status.observed_generation == set.metadata.generation,
        pods: status.replicas.unwrap_or(status.available_replicas),
        ready: status.ready_replicas,
        names: status.pod_names,
    }
}
