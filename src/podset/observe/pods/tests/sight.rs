//! Pods of other namespaces, pods that the watch of a standby no longer shows, and pods whose delete was rejected.

use super::*;

/// Attack A11: ownership is within a namespace.
#[test]
fn a_pod_of_another_namespace_belongs_to_no_set_of_this_one() {
    let claim = |version| {
        let mut claim = testing::pod("claim").version(version).ready(1).0;
        claim.key.namespace = "elsewhere".into();
        claim
    };
    let elsewhere = ObjectKey::new("elsewhere", "claim");
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let unowned = Pod { owner: None, ..claim(11) };
    assert_eq!(hear(&mut cache, Change::Applied(unowned)), 0);
    hear(&mut cache, Change::Applied(claim(12)));
    cache.looked_up(&elsewhere, None, Some(claim(13)), testing::now());
    cache.apply_list(&None, vec![testing::pod("a").version(5).0, claim(14)], HashSet::new(), 15, testing::now());
    assert_eq!((live(&cache), cache.owned(&set()).count()), (vec!["a".to_owned()], 1));
    assert!(!cache.take_touched().contains_key(&set()));
    assert!(cache.is_known(&elsewhere, testing::now()), "its name is taken there");
    hear(&mut cache, Change::Deleted(claim(16)));
    assert!(!cache.is_known(&elsewhere, testing::now()), "it is not looked up, as it belongs to no set");

    let mut by_uid_alone = Pods::new(CacheRules { home: |_| "anywhere".into(), ..CacheRules::default() });
    by_uid_alone.apply(&None, Change::Applied(claim(12)), &|_| Some(false), testing::now());
    assert_eq!(by_uid_alone.owned(&("anywhere".into(), "set-uid".into())).count(), 1);
}

/// A standby never looks up pods that its watch no longer shows.
#[test]
fn only_a_standby_forgets_a_missing_pod() {
    let after = |seconds| testing::now() + SignedDuration::from_secs(seconds);
    for (make, is_live) in [(standby as fn([PodBuilder; 2], u64) -> Pods, false), (cache, true)] {
        let mut cache = make([testing::pod("a").version(5), testing::pod("b").version(6)], 10);
        hear(&mut cache, Change::Snapshot { items: vec![testing::pod("b").version(6).0], version: 20 });
        hear(&mut cache, Change::Deleted(testing::pod("b").version(21).0));
        cache.expire(after(59));
        assert_eq!(live(&cache), if is_live { vec!["a", "b"] } else { vec![] });
        assert_eq!(cache.is_resting(&key("a"), after(59)), !is_live, "its name is not reused yet");
        cache.expire(after(600));
        assert_eq!(live(&cache).len(), if is_live { 2 } else { 0 });
        hear(&mut cache, Change::Applied(testing::pod("a").version(22).0));
        assert!(live(&cache).contains(&"a".to_owned()), "the watch shows it again");
    }
}

/// A pod that a standby forgot is still live. The list at the beginning of the term shows it, with or without the label.
#[test]
fn the_list_at_take_over_finds_a_forgotten_pod() {
    for label_is_back in [false, true] {
        let mut cache = standby([testing::pod("a").version(5)], 10);
        hear(&mut cache, Change::Deleted(testing::pod("a").version(11).0));
        cache.expire(testing::now() + SignedDuration::from_secs(60));
        assert_eq!(live(&cache).len(), 0);
        cache.begin_term();
        let found = if label_is_back {
            hear(&mut cache, Change::Progress(19));
            testing::pod("a").version(20)
        } else {
            testing::pod("a").version(11).unlabelled()
        };
        cache.apply_list(&None, vec![found.0], HashSet::new(), 30, testing::now());
        assert_eq!(live(&cache), ["a"], "{label_is_back}");
    }
}

/// While a list is read, the label of a pod is restored, and then the pod is deleted. The list shows it from before.
#[test]
fn a_pod_that_ends_while_a_list_is_read_is_doubtful() {
    let mut cache = cache([testing::pod("b").version(6)], 10);
    cache.relabelled(testing::pod("a").version(17).0, testing::now());
    hear(&mut cache, Change::Deleted(testing::pod("a").version(22).terminating().0));
    let items = vec![testing::pod("a").version(11).unlabelled().0, testing::pod("b").version(6).0];
    cache.apply_list(&None, items, HashSet::new(), 16, testing::now());
    assert_eq!(live(&cache), ["a", "b"], "it may be another pod of this name");
    let certain: Vec<_> =
        cache.owned(&set()).filter(|seen| seen.is_certain()).map(|seen| &*seen.pod.key.name).collect();
    assert_eq!(certain, ["b"], "no other pod is deleted for it");
}

#[test]
fn any_change_of_a_pod_whose_delete_was_rejected_is_urgent() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let news_of = |cache: &mut Pods, version| {
        cache.apply(&None, Change::Applied(testing::pod("a").version(version).0), &|_| Some(false), testing::now());
        cache.take_touched().remove(&set())
    };
    cache.take_touched();
    cache.delete_rejected(&"uid-of-a".into());
    assert_eq!(news_of(&mut cache, 5), None, "the state that was rejected");
    assert_eq!(news_of(&mut cache, 11), Some(Urgency::Urgent));
    assert_eq!(news_of(&mut cache, 12), None);
}

/// A DELETED event means that a pod is gone, or that it lost the watched label. A pod that is being deleted may run on.
#[test]
fn a_terminating_pod_stays_known_while_it_may_run_and_its_set_waits() {
    let known = |waits: bool, pod: PodBuilder| {
        let mut cache = cache([pod.clone().version(5)], 10);
        cache.apply(&None, Change::Deleted(pod.version(11).0), &|_| Some(waits), testing::now());
        cache.of(&set()).first().map(|seen| seen.is_missing)
    };
    let pod = || testing::pod("a").ready(9).deleted(1);
    for (waits, pod, is_known) in [
        (true, pod(), Some(true)),
        (false, pod(), None),
        (true, pod().failed(1), None),
        (true, pod().unscheduled(), None),
    ] {
        assert_eq!(known(waits, pod.clone()), is_known, "{waits} {pod:?}");
    }
}
