//! Watches the pods and the sets, and passes every event to the judge.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::observe::follow::follow;
use e2e::operator::Operator;
use e2e::types::Pod;
use kube::Client;
use kube::api::{Api, ApiResource};
use procfs::process::Process;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::judge::{Judge, Set};
use crate::records::Sample;

/// Everything is at rest if nothing happens for this time.
const QUIET: Duration = Duration::from_millis(1_500);

/// Resolution of all times.
const RESOLUTION: Duration = Duration::from_millis(10);

/// The two watches, and the samples. They end when it is dropped.
pub struct Watcher {
    judge: Arc<Mutex<Judge>>,
    /// IDs of the contestant's processes, also of those that have ended.
    pub processes: Arc<Mutex<Vec<u32>>>,
    /// One each second.
    pub samples: Arc<Mutex<Vec<Sample>>>,
    _tasks: JoinSet<()>,
}

impl Watcher {
    pub fn start(client: &Client, sets: Option<&ApiResource>) -> Self {
        let judge = Arc::new(Mutex::new(Judge::default()));
        let (processes, samples) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(sample(judge.clone(), Arc::clone(&processes), Arc::clone(&samples)));
        let target = judge.clone();
        // No other pods are on the cluster.
        let pods = Api::<Pod>::all(client.clone());
        tasks.spawn(follow(pods, move |step| lock(&target).take_pods(step, Instant::now())));
        if let Some(resource) = sets {
            let target = judge.clone();
            let sets = Api::<Set>::all_with(client.clone(), resource);
            tasks.spawn(follow(sets, move |step| lock(&target).take_sets(step, Instant::now())));
        }
        Self { judge, processes, samples, _tasks: tasks }
    }

    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    /// Waits until everything is as wanted and nothing happens any more, as long as the processes run. Returns since when the pods and
    /// the statuses have been as wanted.
    pub async fn until_at_rest(&self, limit: Duration, processes: &mut [Operator]) -> Result<[Option<Instant>; 2]> {
        let (end, mut marks) = (Instant::now() + limit, [None; 2]);
        loop {
            let now = Instant::now();
            {
                let judge = self.judge();
                let pods = judge.pods_are_right();
                for (mark, is_right) in marks.iter_mut().zip([pods, pods && judge.statuses_are_right()]) {
                    *mark = is_right.then(|| mark.unwrap_or(now));
                }
                let is_quiet = judge.last_event.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
                if is_quiet && judge.rests() {
                    return Ok(marks);
                }
                ensure!(now < end, "not at rest after {} s: {}", limit.as_secs(), judge.summary());
            }
            processes.iter_mut().try_for_each(Operator::is_running)?;
            // With tens of thousands of pods, a check takes milliseconds. It must not disturb the measurement.
            sleep(RESOLUTION.max(now.elapsed() * 20)).await;
        }
    }
}

/// Takes samples until it is dropped.
async fn sample(judge: Arc<Mutex<Judge>>, processes: Arc<Mutex<Vec<u32>>>, samples: Arc<Mutex<Vec<Sample>>>) {
    let resident = |id: &u32| Process::new(id.cast_signed()).ok()?.status().ok()?.vmrss;
    let tenths = |number: f64| (number * 10.0).round() / 10.0;
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let (pods, age) = lock(&judge).sample(Instant::now());
        let memory = lock(&processes).iter().filter_map(resident).max().unwrap_or(0) as f64 / 1_024.0;
        lock(&samples).push([pods as f64, tenths(memory), tenths(age.as_secs_f64())]);
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
