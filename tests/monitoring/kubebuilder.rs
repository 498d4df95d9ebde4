//! The two dashboards of kubebuilder's plugin grafana.kubebuilder.io/v1-alpha work with this operator. The lists have
//! the metrics of their queries, as of kubebuilder 4, with the labels in selectors, groupings and legends.

use crate::{TARGET_LABELS, exposed::Exposed};

/// controller-runtime-metrics.json. Its variables are the values of namespace, job and pod of the first metric.
const RUNTIME: [(&str, &[&str]); 9] = [
    ("controller_runtime_reconcile_total", &["job", "namespace", "instance", "pod"]),
    ("controller_runtime_reconcile_errors_total", &["job", "namespace", "instance", "pod"]),
    ("controller_runtime_active_workers", &["job", "namespace", "controller", "instance"]),
    ("workqueue_depth", &["job", "namespace", "name", "instance"]),
    ("workqueue_adds_total", &["job", "namespace", "name", "instance"]),
    ("workqueue_retries_total", &["job", "namespace", "name", "instance"]),
    ("workqueue_unfinished_work_seconds", &["job", "namespace", "name", "instance"]),
    ("workqueue_queue_duration_seconds_bucket", &["job", "namespace", "name", "instance", "le"]),
    ("workqueue_work_duration_seconds_bucket", &["job", "namespace", "name", "instance", "le"]),
];

/// controller-resources-metrics.json.
const RESOURCES: [(&str, &[&str]); 2] = [
    ("process_resident_memory_bytes", &["job", "namespace", "pod"]),
    ("process_cpu_seconds_total", &["job", "namespace", "pod"]),
];

#[test]
fn kubebuilders_dashboards_find_their_data() {
    let exposed = Exposed::by_a_leader();
    for (metric, wanted) in RUNTIME.into_iter().chain(RESOURCES) {
        let labels = exposed.labels(metric).unwrap_or_else(|| panic!("there is no metric {metric}"));
        for label in wanted {
            let is_there = labels.contains(*label) || TARGET_LABELS.contains(label);
            assert!(is_there, "{metric} has no label {label}: {labels:?}");
        }
    }
}
