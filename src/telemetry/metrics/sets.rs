//! How all PodSets together stand. The controller is asked when the metrics are, and only the leader's answer is shown: what
//! a standby sees may be as old as its watches are, and the sum over all replicas would count every set several times.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::SignedDuration;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::seconds;

/// How all PodSets together stand at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetFigures {
    /// How many sets there are by the reason of their condition Ready. The reasons are few and known beforehand.
    pub by_reason: Vec<(&'static str, i64)>,
    /// How many sets have pods that the API server refuses.
    pub refused: i64,
    /// How many pods all sets want.
    pub desired: i64,
    /// How many pods of theirs are Pending or Running, and not being deleted.
    pub available: i64,
    /// How many of those are ready.
    pub ready: i64,
    /// For how long the set that has not been as its spec wants it for the longest has not.
    pub unconverged: SignedDuration,
    /// The longest wait of a set before it replaces a pod that finished.
    pub backoff: SignedDuration,
}

/// Tells how all sets stand; nothing while this process does not lead.
type Ask = dyn Fn() -> Option<SetFigures> + Send + Sync;

/// Asks for the figures when they are wanted. All clones are the same.
#[derive(Clone, Default)]
pub(super) struct Sets {
    ask: Arc<Mutex<Option<Arc<Ask>>>>,
}

impl Sets {
    /// From now on, this one is asked.
    pub(super) fn ask(&self, ask: impl Fn() -> Option<SetFigures> + Send + Sync + 'static) {
        *self.lock() = Some(Arc::new(ask));
    }

    fn figures(&self) -> Option<SetFigures> {
        let ask = self.lock().clone();
        ask.and_then(|ask| ask())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Ask>>> {
        self.ask.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sets")
    }
}

impl Collector for Sets {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(figures) = self.figures() else {
            return Ok(());
        };
        let help = "Number of PodSets by the reason of their condition Ready; Unknown if they have none yet";
        let mut sets = encoder.encode_descriptor("podset_sets", help, None, MetricType::Gauge)?;
        for (reason, count) in &figures.by_reason {
            ConstGauge::new(*count).encode(sets.encode_family(&[("reason", *reason)])?)?;
        }
        let counts = [
            (
                "podset_sets_refused",
                "Number of PodSets with pods that the API server refuses to create or to delete",
                figures.refused,
            ),
            ("podset_pods_desired", "Number of pods that all PodSets want", figures.desired),
            ("podset_pods_available", "Number of pods of PodSets that are Pending or Running", figures.available),
            ("podset_pods_ready", "Number of pods of PodSets that are ready", figures.ready),
        ];
        for (name, help, count) in counts {
            ConstGauge::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let help = "Seconds since the longest-diverged PodSet last matched its spec; 0 if all match";
        let times = [
            ("podset_longest_unconverged_seconds", help, figures.unconverged),
            (
                "podset_longest_backoff_seconds",
                "Seconds of the longest wait of a PodSet before it replaces a finished pod; 0 if none waits",
                figures.backoff,
            ),
        ];
        for (name, help, time) in times {
            let gauge = ConstGauge::new(seconds(time));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
