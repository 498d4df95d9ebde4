//! Watches the pods and the sets, and passes every event to the judge.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::observe::follow::follow;
use e2e::operator::Operator;
use e2e::types::Pod;
use kube::Client;
use kube::api::{Api, ApiResource};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::judge::{Judge, Set};

/// Everything is at rest if nothing happens for this time.
const QUIET: Duration = Duration::from_millis(1_500);

/// Resolution of all times.
const RESOLUTION: Duration = Duration::from_millis(10);

/// The two watches. They end when it is dropped.
pub struct Watcher {
    judge: Arc<Mutex<Judge>>,
    _tasks: JoinSet<()>,
}

impl Watcher {
    pub fn start(client: &Client, sets: Option<&ApiResource>) -> Self {
        let judge = Arc::new(Mutex::new(Judge::default()));
        let mut tasks = JoinSet::new();
        let target = judge.clone();
        // No other pods are on the cluster.
        let pods = Api::<Pod>::all(client.clone());
        tasks.spawn(follow(pods, move |step| lock(&target).take_pods(step, Instant::now())));
        if let Some(resource) = sets {
            let target = judge.clone();
            let sets = Api::<Set>::all_with(client.clone(), resource);
            tasks.spawn(follow(sets, move |step| lock(&target).take_sets(step, Instant::now())));
        }
        Self { judge, _tasks: tasks }
    }

    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    /// Waits until everything is as wanted and nothing happens any more, as long as the processes run. Returns since when the pods and
    /// the statuses have been as wanted, and the highest age of any status.
    pub async fn until_at_rest(
        &self,
        limit: Duration,
        processes: &mut [Operator],
    ) -> Result<([Option<Instant>; 2], Duration)> {
        let (end, mut marks, mut oldest) = (Instant::now() + limit, [None; 2], Duration::ZERO);
        loop {
            let now = Instant::now();
            {
                let mut judge = self.judge();
                oldest = oldest.max(judge.oldest_status(now));
                let pods = judge.pods_are_right();
                for (mark, is_right) in marks.iter_mut().zip([pods, pods && judge.statuses_are_right()]) {
                    *mark = is_right.then(|| mark.unwrap_or(now));
                }
                let is_quiet = judge.last_event.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
                if is_quiet && judge.rests() {
                    return Ok((marks, oldest));
                }
                ensure!(now < end, "not at rest after {} s: {}", limit.as_secs(), judge.summary());
            }
            processes.iter_mut().try_for_each(Operator::is_running)?;
            // With tens of thousands of pods, a check takes milliseconds. It must not disturb the measurement.
            sleep(RESOLUTION.max(now.elapsed() * 20)).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
