//! The cache of pods, with events and responses that come late, twice or not at all.

use jiff::SignedDuration;

use super::*;
use crate::podset::testing::{self, PodBuilder};

mod arrival;
mod sight;

/// A leader's cache. Its watch has listed these pods at this resourceVersion.
fn cache(pods: impl IntoIterator<Item = PodBuilder>, version: u64) -> Pods {
    let mut cache = standby(pods, version);
    cache.begin_term();
    cache
}

/// The same cache in a standby.
fn standby(pods: impl IntoIterator<Item = PodBuilder>, version: u64) -> Pods {
    let mut cache = Pods::new(CacheRules::default());
    let items = pods.into_iter().map(|pod| pod.0).collect();
    hear(&mut cache, Change::Snapshot { items, version });
    cache
}

fn hear(cache: &mut Pods, change: Change<Pod>) -> usize {
    cache.apply(&None, change, &|owner| (*owner == set()).then_some(false), testing::now());
    cache.take_touched().len()
}

/// Looks up the pod with this name, which returns `found`.
fn look(cache: &mut Pods, name: &str, found: Option<Pod>) {
    let sought = cache.of(&set()).into_iter().find(|seen| *seen.pod.key.name == *name);
    cache.looked_up(&key(name), sought.as_ref(), found, testing::now());
}

fn set() -> Owner {
    ("default".into(), "set-uid".into())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn live(cache: &Pods) -> Vec<String> {
    cache.of(&set()).iter().filter(|seen| seen.is_live()).map(|seen| seen.pod.key.name.to_string()).collect()
}

#[test]
fn only_relevant_changes_wake_the_set() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    assert_eq!(hear(&mut cache, Change::Applied(testing::pod("a").version(11).0)), 0, "only the version changed");
    assert_eq!(hear(&mut cache, Change::Applied(testing::pod("a").version(12).ready(1).0)), 1);
    let mut stranger = testing::pod("stranger").version(14).0;
    stranger.owner = None;
    assert_eq!(hear(&mut cache, Change::Applied(stranger)), 0);
    assert!(cache.is_known(&key("stranger"), testing::now()), "its name is taken anyway");
    assert_eq!(live(&cache), ["a"]);
}

#[test]
fn states_of_one_pod_share_their_texts() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let first = cache.of(&set()).remove(0).pod;
    hear(&mut cache, Change::Applied(testing::pod("a").version(11).0));
    let second = cache.of(&set()).remove(0).pod;
    assert_eq!(second.version, 11);
    assert!(Arc::ptr_eq(&first.uid, &second.uid) && Arc::ptr_eq(&first.key.name, &second.key.name));
}

#[test]
fn a_create_response_does_not_undo_what_the_watch_showed() {
    let mut cache = cache([], 10);
    hear(&mut cache, Change::Applied(testing::pod("a").version(20).0));
    cache.created(testing::pod("a").version(20).unscheduled().0, testing::now());
    let seen = cache.of(&set()).remove(0);
    assert!(seen.pod.node.is_some() && seen.unconfirmed_since.is_none());
}

#[test]
fn a_created_pod_survives_an_older_list() {
    let mut cache = cache([], 10);
    cache.created(testing::pod("a").version(20).0, testing::now());
    hear(&mut cache, Change::Snapshot { items: vec![], version: 15 });
    assert_eq!(live(&cache), ["a"]);
    hear(&mut cache, Change::Snapshot { items: vec![], version: 25 });
    assert!(cache.of(&set())[0].is_missing, "a newer list does not show it");
    assert_eq!(live(&cache), ["a"], "a missing pod still counts");
}

/// Attack A6: the watch shows a pod's beginning and end before its create is answered.
#[test]
fn a_pod_that_ended_before_its_create_response_stays_gone() {
    let mut cache = cache([], 10);
    hear(&mut cache, Change::Applied(testing::pod("a").version(20).0));
    hear(&mut cache, Change::Applied(testing::pod("a").version(21).terminating().0));
    hear(&mut cache, Change::Deleted(testing::pod("a").version(22).terminating().0));
    cache.created(testing::pod("a").version(20).0, testing::now());
    cache.looked_up(&key("a"), None, Some(testing::pod("a").version(21).0), testing::now());
    cache.relabelled(testing::pod("a").version(21).0, testing::now());
    assert_eq!(live(&cache).len(), 0, "no late response brings it back");
    assert!(cache.is_resting(&key("a"), testing::now()));
}

#[test]
fn an_old_state_changes_nothing() {
    let mut cache = cache([testing::pod("a").uid("second").version(30)], 40);
    cache.created(testing::pod("a").uid("first").version(20).0, testing::now());
    cache.looked_up(&key("a"), None, Some(testing::pod("a").uid("first").version(20).0), testing::now());
    hear(&mut cache, Change::Deleted(testing::pod("a").uid("first").version(41).terminating().0));
    assert_eq!(&*cache.of(&set())[0].pod.uid, "second");
    cache.relabelled(testing::pod("a").uid("second").version(29).terminating().0, testing::now());
    assert_eq!(live(&cache), ["a"]);
}

#[test]
fn an_older_event_does_not_undo_our_delete() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    cache.delete_answered(&"uid-of-a".into(), None, testing::now());
    hear(&mut cache, Change::Applied(testing::pod("a").version(12).ready(1).0));
    assert_eq!(live(&cache).len(), 0, "an event from before the delete does not revive it");
    assert!(cache.is_known(&key("a"), testing::now()), "its name is taken until it is gone");
    hear(&mut cache, Change::Deleted(testing::pod("a").version(13).0));
    assert!(!cache.is_known(&key("a"), testing::now()));
}

#[test]
fn a_name_rests_for_the_quarantine() {
    let mut cache = cache([testing::pod("a").version(5).terminating()], 10);
    hear(&mut cache, Change::Deleted(testing::pod("a").version(11).terminating().0));
    let after = |seconds| testing::now() + SignedDuration::from_secs(seconds);
    assert!(cache.is_resting(&key("a"), after(59)));
    assert!(!cache.is_resting(&key("a"), after(60)));
    cache.expire(after(60));
    assert_eq!((cache.ended.len(), cache.strangers.len()), (0, 0), "nothing is left behind");
    hear(&mut cache, Change::Applied(testing::pod("b").version(12).terminating().0));
    hear(&mut cache, Change::Deleted(testing::pod("b").version(13).terminating().0));
    cache.allow_reuse(&key("b"));
    assert!(!cache.is_resting(&key("b"), after(1)));
}

/// Attack A5: the watch lags behind a list, and shows pods that are gone in that list.
#[test]
fn a_pod_that_a_list_showed_gone_does_not_come_back() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    cache.apply_list(&None, vec![testing::pod("b").version(30).0], HashSet::new(), 40, testing::now());
    hear(&mut cache, Change::Applied(testing::pod("a").version(20).ready(1).0));
    hear(&mut cache, Change::Applied(testing::pod("never-known").version(25).0));
    hear(&mut cache, Change::Snapshot { items: vec![testing::pod("a").version(20).0], version: 29 });
    assert_eq!(live(&cache), ["b"]);
    hear(&mut cache, Change::Applied(testing::pod("c").version(41).0));
    assert_eq!(live(&cache), ["b", "c"], "it is newer than the list");
}

#[test]
fn a_pod_that_a_lookup_showed_gone_does_not_come_back() {
    let second = testing::pod("a").uid("second").version(60).0;
    for (found, left) in [(None, vec![]), (Some(second), vec!["second"])] {
        let mut cache = cache([testing::pod("a").version(5)], 10);
        look(&mut cache, "a", found);
        hear(&mut cache, Change::Applied(testing::pod("a").version(50).ready(1).0));
        let known: Vec<String> = cache.of(&set()).iter().map(|seen| seen.pod.uid.to_string()).collect();
        assert_eq!(known, left);
        hear(&mut cache, Change::Deleted(testing::pod("a").version(51).terminating().0));
        assert_eq!(cache.gone.len(), 0, "the watch has shown its deletion");
    }
}

/// A pod loses its label (11). We restore the label (12) and delete the pod (13). Only then does the watch show these changes.
#[test]
fn a_pod_whose_name_another_one_has_in_an_answer_does_not_come_back() {
    let mut cache = cache([], 10);
    cache.created(testing::pod("a").uid("first").version(11).0, testing::now());
    cache.looked_up(&key("a"), None, Some(testing::pod("a").uid("second").version(20).0), testing::now());
    look(&mut cache, "a", None);
    hear(&mut cache, Change::Applied(testing::pod("a").uid("first").version(11).0));
    assert!(live(&cache).is_empty(), "the watch is late");
}

#[test]
fn a_late_loss_of_the_label_does_not_bring_a_deleted_pod_back() {
    let pod = |version| testing::pod("a").version(version);
    let mut cache = cache([pod(10)], 10);
    look(&mut cache, "a", Some(pod(11).unlabelled().0));
    cache.relabelled(pod(12).0, testing::now());
    cache.delete_answered(&"uid-of-a".into(), Some(pod(13).terminating().0), testing::now());
    for change in [Change::Deleted(pod(11).0), Change::Applied(pod(12).0), Change::Applied(pod(13).terminating().0)] {
        hear(&mut cache, change);
        assert!(live(&cache).is_empty());
    }
    hear(&mut cache, Change::Deleted(pod(14).terminating().0));
    assert_eq!(cache.owned(&set()).count(), 0);
}

/// The same, but a read shows that the pod is gone before the watch does. In the second case, the label is not restored.
#[test]
fn a_pod_that_lost_its_label_and_is_gone_does_not_come_back() {
    let pod = |version| testing::pod("a").version(version);
    for is_restored in [true, false] {
        let mut cache = cache([pod(10)], 10);
        let last = if is_restored { pod(13) } else { pod(13).unlabelled() };
        cache.delete_answered(&"uid-of-a".into(), Some(last.terminating().0), testing::now());
        look(&mut cache, "a", None);
        assert_eq!(cache.owned(&set()).count(), 0);
        hear(&mut cache, Change::Applied(pod(11).0));
        hear(&mut cache, Change::Deleted(pod(11).0));
        if is_restored {
            hear(&mut cache, Change::Applied(pod(12).0));
            assert_eq!(cache.owned(&set()).count(), 0);
            hear(&mut cache, Change::Deleted(pod(14).terminating().0));
        }
        assert_eq!(cache.owned(&set()).count(), 0);
        assert_eq!(cache.gone.is_empty(), is_restored, "only a list clears the other entry");
    }
}

#[test]
fn gone_pods_are_forgotten_once_the_watch_agrees() {
    let mut cache = cache([testing::pod("a").version(5), testing::pod("b").version(6)], 10);
    hear(&mut cache, Change::Deleted(testing::pod("a").version(11).0));
    look(&mut cache, "a", None);
    assert_eq!(cache.gone.len(), 0);
    look(&mut cache, "b", None);
    assert_eq!(cache.gone.len(), 1);
    hear(&mut cache, Change::Snapshot { items: vec![], version: 20 });
    assert_eq!(cache.gone.len(), 0);
}

#[test]
fn a_delete_that_a_later_read_disproves_is_taken_back() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    cache.delete_answered(&"uid-of-a".into(), None, testing::now());
    assert_eq!(live(&cache).len(), 0);
    look(&mut cache, "a", Some(testing::pod("a").version(5).0));
    assert_eq!(live(&cache), ["a"], "the API server had not accepted the delete");
    cache.delete_answered(&"uid-of-a".into(), None, testing::now());
    let terminating = testing::pod("a").version(12).terminating().0;
    look(&mut cache, "a", Some(terminating));
    assert_eq!(live(&cache).len(), 0);
}

/// Attack A7: the pod loses the label by which it is watched.
#[test]
fn a_pod_that_leaves_the_selector_is_looked_up() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    assert_eq!(hear(&mut cache, Change::Deleted(testing::pod("a").version(11).0)), 1);
    assert_eq!(live(&cache), ["a"]);
    assert_eq!(cache.of(&set())[0].look_at(), Some(Timestamp::MIN));

    let found = testing::pod("a").version(11).unlabelled().0;
    look(&mut cache, "a", Some(found));
    assert!(!cache.of(&set())[0].is_missing);
    assert_eq!(live(&cache), ["a"]);
    cache.relabelled(testing::pod("a").version(12).0, testing::now());
    hear(&mut cache, Change::Applied(testing::pod("a").version(12).0));
    assert_eq!(cache.of(&set())[0].look_at(), None, "the watch shows it again");

    hear(&mut cache, Change::Deleted(testing::pod("a").version(13).0));
    look(&mut cache, "a", None);
    assert_eq!(live(&cache).len(), 0, "this time, it is gone");
}

/// The pod loses its label before the create is answered. It is looked up, whether the watch shows an event or a list.
#[test]
fn a_pod_that_leaves_the_selector_before_its_answer_is_looked_up() {
    let mut heard = cache([], 10);
    hear(&mut heard, Change::Applied(testing::pod("a").version(20).0));
    hear(&mut heard, Change::Deleted(testing::pod("a").version(21).0));
    let listed = cache([], 30);
    for mut cache in [heard, listed] {
        cache.created(testing::pod("a").version(20).0, testing::now());
        assert_eq!(live(&cache), ["a"]);
        assert!(cache.of(&set())[0].is_missing);
        let found = testing::pod("a").version(21).unlabelled().0;
        look(&mut cache, "a", Some(found));
        assert!(!cache.of(&set())[0].is_missing);
        assert_eq!(live(&cache), ["a"]);
    }
}

/// The watch stopped showing the pod while a request was in flight. The response is older than that.
#[test]
fn no_older_response_confirms_a_pod_that_the_watch_lost() {
    fn pod() -> Pod {
        testing::pod("a").version(20).0
    }
    let deleted = Change::Deleted(testing::pod("a").version(21).0);
    for lost in [Change::Snapshot { items: vec![], version: 30 }, deleted] {
        let answers = [
            |cache: &mut Pods, _: Seen| cache.created(pod(), testing::now()),
            |cache: &mut Pods, _: Seen| cache.relabelled(pod(), testing::now()),
            |cache: &mut Pods, _: Seen| cache.apply_list(&None, vec![pod()], HashSet::new(), 25, testing::now()),
            |cache: &mut Pods, _: Seen| cache.looked_up(&key("a"), None, Some(pod()), testing::now()),
            |cache: &mut Pods, sought: Seen| cache.looked_up(&key("a"), Some(&sought), Some(pod()), testing::now()),
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            let mut cache = cache([], 10);
            hear(&mut cache, Change::Applied(pod()));
            let sought = cache.of(&set()).remove(0);
            hear(&mut cache, lost.clone());
            answer(&mut cache, sought);
            assert_eq!(cache.of(&set())[0].look_at(), Some(Timestamp::MIN), "{number} {lost:?}");
        }
    }
}

#[test]
fn a_lookup_older_than_the_end_proves_nothing() {
    let mut cache = cache([testing::pod("a").version(20)], 20);
    cache.doubt(&"uid-of-a".into());
    let sought = cache.of(&set()).remove(0);
    hear(&mut cache, Change::Deleted(testing::pod("a").version(21).0));
    cache.looked_up(&key("a"), Some(&sought), Some(testing::pod("a").version(20).0), testing::now());
    assert_eq!(cache.of(&set())[0].look_at(), Some(Timestamp::MIN));
}

#[test]
fn unconfirmed_changes_are_looked_up_after_a_minute() {
    let mut cache = cache([testing::pod("b").version(5)], 10);
    cache.created(testing::pod("a").version(20).0, testing::now());
    cache.delete_answered(&"uid-of-b".into(), None, testing::now());
    let in_a_minute = Some(testing::now() + SignedDuration::from_secs(60));
    assert_eq!(cache.of(&set()).iter().map(Seen::look_at).collect::<Vec<_>>(), [in_a_minute, in_a_minute]);
    hear(&mut cache, Change::Applied(testing::pod("a").version(20).0));
    hear(&mut cache, Change::Applied(testing::pod("b").version(21).terminating().0));
    assert_eq!(cache.of(&set()).iter().map(Seen::look_at).collect::<Vec<_>>(), [None, None]);
}

#[test]
fn a_read_that_agrees_with_the_watch_needs_no_other() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    cache.looked_up(&key("a"), None, Some(testing::pod("a").version(5).0), testing::now());
    assert_eq!(cache.of(&set())[0].look_at(), None);
}

#[test]
fn a_list_of_everything_shows_pods_that_no_watch_shows() {
    let mut cache = cache([testing::pod("gone").version(5), testing::pod("b").version(6)], 10);
    cache.created(testing::pod("new").version(30).0, testing::now());
    hear(&mut cache, Change::Applied(testing::pod("ended").version(11).terminating().0));
    hear(&mut cache, Change::Deleted(testing::pod("ended").version(21).terminating().0));
    let ended = testing::pod("ended").version(11).0;
    let items = vec![testing::pod("b").version(6).0, testing::pod("hidden").version(7).unlabelled().0, ended];
    cache.take_touched();
    cache.apply_list(&None, items, HashSet::new(), 20, testing::now());
    assert_eq!(cache.take_touched().len(), 1, "its set is woken");
    assert_eq!(live(&cache), ["b", "hidden", "new"]);
    assert!(cache.is_resting(&key("gone"), testing::now()));
}

#[test]
fn a_listed_pod_that_is_known_in_this_state_need_not_be_kept() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let (known, changed) = (testing::pod("a").version(5).0, testing::pod("a").version(6).0);
    assert!(cache.knows(&known));
    assert!(!cache.knows(&changed));
    assert!(!cache.knows(&testing::pod("a").version(5).unlabelled().0), "no watch shows it");
    assert!(!cache.knows(&testing::pod("b").version(5).0));
    let patched = testing::pod("c").version(11).0;
    cache.relabelled(patched.clone(), testing::now());
    assert!(!cache.knows(&patched), "the watch has not reached this version");
    cache.apply_list(&None, vec![], HashSet::from([known.uid]), 20, testing::now());
    assert_eq!(live(&cache), ["a"], "and c is not in the list");
    cache.apply_list(&None, vec![], HashSet::new(), 30, testing::now());
    assert!(live(&cache).is_empty());
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_another() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let scope = Some("elsewhere".into());
    cache.apply(&scope, Change::Snapshot { items: vec![], version: 20 }, &|_| Some(false), testing::now());
    cache.apply_list(&scope, vec![], HashSet::new(), 20, testing::now());
    assert_eq!(live(&cache), ["a"]);
}

#[test]
fn a_strangers_name_is_taken_for_a_while() {
    let mut cache = cache([], 10);
    let mut stranger = testing::pod("a").unlabelled().0;
    stranger.owner = None;
    cache.looked_up(&key("a"), None, Some(stranger), testing::now());
    assert!(cache.is_known(&key("a"), testing::now()));
    assert!(!cache.is_known(&key("a"), testing::now() + SignedDuration::from_secs(60)));
    assert_eq!(cache.of(&set()).len(), 0);
}

#[test]
fn an_owner_reference_that_is_removed_ends_the_ownership() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    let mut orphan = testing::pod("a").version(11).0;
    orphan.owner = None;
    assert_eq!(hear(&mut cache, Change::Applied(orphan)), 1, "its former owner is woken");
    assert_eq!(live(&cache).len(), 0);
}

#[test]
fn a_deleted_set_leaves_no_pods_to_look_up() {
    let mut cache = cache([testing::pod("a").version(5), testing::pod("b").version(6)], 10);
    cache.doubt(&"uid-of-a".into());
    cache.forget_set(&set(), testing::now());
    assert_eq!(live(&cache), ["b"]);
    hear(&mut cache, Change::Deleted(testing::pod("b").version(11).terminating().0));
    assert_eq!(cache.index.sizes(), (0, 0, 0));
}

#[test]
fn a_pod_without_the_label_that_is_gone_is_forgotten_once_the_watch_is_past_it() {
    let mut cache = cache([], 10);
    cache.created(testing::pod("a").unlabelled().version(20).0, testing::now());
    cache.gone(&"uid-of-a".into(), testing::now());
    let mut kept = |version| {
        hear(&mut cache, Change::Progress(version));
        cache.gone.len()
    };
    // A bookmark counts at the next one.
    assert_eq!([19, 20, 21].map(&mut kept), [1, 1, 0]);
}

#[test]
fn a_finish_seen_by_the_watch_is_timed_by_our_own_clock() {
    let mut cache = cache([testing::pod("a").version(5), testing::pod("b").version(6).failed(50)], 10);
    hear(&mut cache, Change::Applied(testing::pod("a").version(11).failed(300).0));
    let since: Vec<_> = cache.of(&set()).iter().map(|seen| seen.finished_since).collect();
    let ago = |seconds| Some((testing::now() - SignedDuration::from_secs(seconds)).into());
    assert_eq!(since, [ago(0), ago(50)]);
}

#[test]
fn a_loss_and_the_last_ready_pod_are_urgent_news() {
    let mut cache = cache([], 10);
    let mut news_of = |change| {
        cache.apply(&None, change, &|owner| (*owner == set()).then_some(false), testing::now());
        cache.take_touched().remove(&set())
    };
    let [a, b] = ["a", "b"].map(|name| move |version| testing::pod(name).version(version));
    assert_eq!(news_of(Change::Applied(a(11).0)), Some(Urgency::CanWait));
    assert_eq!(news_of(Change::Applied(b(12).0)), Some(Urgency::CanWait));
    assert_eq!(news_of(Change::Applied(a(13).ready(9).0)), Some(Urgency::CanWait));
    assert_eq!(news_of(Change::Applied(b(14).ready(9).0)), Some(Urgency::Urgent), "all are ready now");
    assert_eq!(news_of(Change::Applied(b(15).ready(9).0)), None, "nothing that matters");
    assert_eq!(news_of(Change::Applied(b(16).0)), Some(Urgency::Urgent), "it is no longer ready");
    assert_eq!(news_of(Change::Applied(a(17).terminating().0)), Some(Urgency::Urgent));
    assert_eq!(news_of(Change::Deleted(a(18).terminating().0)), Some(Urgency::Ended), "its deletion had already begun");
    assert_eq!(news_of(Change::Applied(b(19).failed(9).0)), Some(Urgency::Urgent));
    let c = |version| testing::pod("c").version(version);
    news_of(Change::Applied(c(20).0));
    assert_eq!(news_of(Change::Deleted(c(21).0)), Some(Urgency::Urgent));
}

#[test]
fn a_read_of_a_pod_that_is_being_deleted_keeps_when_its_delete_was_accepted() {
    let mut cache = cache([testing::pod("a").version(5)], 10);
    cache.delete_answered(&"uid-of-a".into(), None, testing::now());
    let later = testing::now() + SignedDuration::from_secs(30);
    cache.looked_up(&key("a"), None, Some(testing::pod("a").version(20).terminating().0), later);
    assert_eq!(cache.of(&set())[0].delete_answered, Some(testing::now().into()));
}
