//! Watches the pods and the sets, and passes every event to the judge.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use e2e::observe::follow::follow;
use e2e::operator::Operator;
use e2e::types::Pod;
use kube::Client;
use kube::api::{Api, ApiResource};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::judge::{Judge, Progress, Set};

/// Everything is at rest if nothing happens for this time.
const QUIET: Duration = Duration::from_millis(1_500);

/// Resolution of all times.
const RESOLUTION: Duration = Duration::from_millis(10);

/// The two watches. They end when it is dropped.
pub struct Watcher {
    judge: Arc<Mutex<Judge>>,
    _watches: JoinSet<()>,
}

impl Watcher {
    /// Starts the watches, in one namespace or in all.
    pub fn start(client: &Client, namespace: Option<&str>, sets: Option<&ApiResource>) -> Self {
        let judge = Arc::new(Mutex::new(Judge::default()));
        let mut watches = JoinSet::new();
        let target = judge.clone();
        let pods = match namespace {
            Some(namespace) => Api::<Pod>::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        watches.spawn(follow(pods, move |step| lock(&target).take_pods(step, Instant::now())));
        if let Some(resource) = sets {
            let target = judge.clone();
            let sets = match namespace {
                Some(namespace) => Api::<Set>::namespaced_with(client.clone(), namespace, resource),
                None => Api::all_with(client.clone(), resource),
            };
            watches.spawn(follow(sets, move |step| lock(&target).take_sets(step, Instant::now())));
        }
        Self { judge, _watches: watches }
    }

    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    pub fn shared(&self) -> Arc<Mutex<Judge>> {
        self.judge.clone()
    }

    /// Waits until everything is as wanted and nothing happens any more, as long as the processes run. Returns since when the pods,
    /// the status of every set, and its number of ready pods have been as wanted.
    pub async fn until_at_rest(&self, limit: Duration, processes: &mut [Operator]) -> Result<[Option<Instant>; 3]> {
        let (end, mut marks) = (Instant::now() + limit, [None; 3]);
        loop {
            let now = Instant::now();
            {
                let judge = self.judge();
                let progress = judge.progress();
                for (mark, enough) in marks.iter_mut().zip([Progress::Pods, Progress::Status, Progress::Ready]) {
                    *mark = (progress >= enough).then(|| mark.unwrap_or(now));
                }
                let is_quiet = judge.last_event.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
                if is_quiet && judge.rests() {
                    return Ok(marks);
                }
                if now > end {
                    bail!("not at rest after {} s: {}", limit.as_secs(), judge.summary());
                }
            }
            processes.iter_mut().try_for_each(Operator::is_running)?;
            // With tens of thousands of pods, a check takes milliseconds. It must not disturb the measurement.
            sleep(RESOLUTION.max(now.elapsed() * 20)).await;
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
