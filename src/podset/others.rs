//! Detects another installation that writes the same PodSets. Together, two installations may run more than N pods.
//!
//! In: the installation that each new status names. Out: a counter, and a warning for each of the first hundred other installations.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use prometheus_client::metrics::counter::Counter;
use tracing::warn;

use operator_kit::{lock, telemetry::metrics::Metrics};

/// The longest name of an installation: a namespace, a slash, and the name of a Lease. Users who may write statuses may write longer texts,
/// which are not logged.
const LONGEST: usize = 63 + 1 + 253;

/// The most other installations that are remembered and logged.
const MOST: usize = 100;

/// This installation, and the others that were seen.
pub struct Others {
    /// The name of this installation.
    pub installation: Arc<str>,
    writes: Counter,
    known: Mutex<HashSet<Arc<str>>>,
}

impl Others {
    /// No other installation was seen yet. `installation` is the name of this one.
    pub fn new(installation: String, metrics: &Metrics) -> Self {
        let writes = Counter::default();
        let help = "Number of PodSet statuses written by another installation; above 0, two installations write the same PodSets";
        metrics.register(|registry| registry.register("podset_writes_by_other_installations", help, writes.clone()));
        Others { installation: installation.into(), writes, known: Mutex::default() }
    }

    /// The installation of this name has just written a status.
    pub fn has_written(&self, writer: Arc<str>) {
        if writer == self.installation {
            return;
        }
        self.writes.inc();
        let mut known = lock(&self.known);
        if writer.len() <= LONGEST && known.len() < MOST && known.insert(writer.clone()) {
            warn!(
                other = &*writer,
                this = &*self.installation,
                "another installation writes the same PodSets, so they may get too many pods: uninstall one of the installations, or give them different namespaces with --watch-namespace"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadership::env::Env;
    use operator_kit::telemetry::metrics::Format;

    #[test]
    fn writes_of_other_installations_are_counted_and_our_own_are_not() {
        let metrics = Metrics::new(Env::system());
        let others = Others::new("here/podset-operator".to_owned(), &metrics);
        for writer in ["here/podset-operator", "there/podset-operator", "there/podset-operator", "web-1_ab12"] {
            others.has_written(writer.into());
        }
        let text = metrics.text(Format::OpenMetrics).unwrap();
        assert!(text.contains("\npodset_writes_by_other_installations_total 3\n"), "{text}");
        assert_eq!(others.known.lock().unwrap().len(), 2, "each writer is logged once");
        others.has_written("x".repeat(318).into());
        (0..200).for_each(|number| others.has_written(number.to_string().into()));
        assert_eq!(others.known.lock().unwrap().len(), MOST, "texts of any length and number take no memory");
    }
}
