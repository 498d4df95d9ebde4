//! How a received state of a pod is classified.

use super::*;

#[test]
fn a_state_is_classified_by_what_is_known() {
    let mut pods = Pods::new(CacheRules::default());
    let known = testing::pod("known").version(5).0;
    pods.apply(&None, Change::Snapshot { items: vec![known], version: 10 }, &|_| Some(false), testing::now());
    pods.apply_list(&None, vec![testing::pod("known").version(5).0], HashSet::new(), 20, testing::now());
    let new = |is_missing, replaces: Option<&str>| Arrival::New { is_missing, replaces: replaces.map(Into::into) };
    for (case, pod, is_from_watch, expected) in [
        ("an older state", testing::pod("known").version(4), true, Arrival::Stale),
        ("a newer state", testing::pod("known").version(6), true, Arrival::Update),
        ("a newer list did not show it", testing::pod("ghost").version(15), true, Arrival::Over),
        ("a new pod", testing::pod("new").version(21), true, new(false, None)),
        ("a response older than the watch", testing::pod("new").version(9), false, new(true, None)),
        ("a response ahead of the watch", testing::pod("new").version(11), false, new(false, None)),
        ("an earlier pod with the name", testing::pod("known").uid("a").version(4), false, Arrival::Stale),
        (
            "the next pod with the name",
            testing::pod("known").uid("a").version(22),
            true,
            new(false, Some("uid-of-known")),
        ),
    ] {
        assert_eq!(pods.classify(&pod.0, is_from_watch, testing::now()), expected, "{case}");
    }
    pods.apply(&None, Change::Deleted(testing::pod("known").version(23).0), &|_| Some(false), testing::now());
    for (seconds, expected) in [(59, Arrival::Over), (60, new(true, None))] {
        let now = testing::now() + SignedDuration::from_secs(seconds);
        let next = testing::pod("known").uid("next").version(22).0;
        assert_eq!(pods.classify(&next, false, now), expected, "its name ended {seconds} s before");
    }
}
