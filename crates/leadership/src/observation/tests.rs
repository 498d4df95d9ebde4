use super::*;
use crate::promise::Rules;
use serde_json::{Value, json};

/// The observations of the candidate `us`, whose own lease duration is 15 s.
struct Story {
    observation: Observation,
    now: Timestamp,
}

impl Story {
    fn begin() -> Self {
        let own = SignedDuration::from_secs(15);
        Story { observation: Observation::new("us", own, Rules::default().wait), now: Timestamp::UNIX_EPOCH }
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn watched(&mut self, lease: Lease) -> &mut Self {
        self.observation.watched(lease, self.now);
        self
    }

    fn absent(&mut self, version: u64) -> &mut Self {
        self.observation.watched_absent(version, self.now);
        self
    }

    fn written(&mut self, lease: Lease) -> &mut Self {
        self.observation.wrote(lease, self.now);
        self
    }

    /// The seconds until the Lease is free.
    fn free_in(&self) -> Option<i64> {
        self.observation.frees_at().map(|free| free.duration_since(self.now).as_secs())
    }
}

fn lease(uid: &str, version: u64, spec: Value) -> Lease {
    let metadata = json!({ "uid": uid, "resourceVersion": version.to_string() });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn held(version: u64, holder: &str, seconds: i64) -> Lease {
    lease("u", version, json!({ "holderIdentity": holder, "leaseDurationSeconds": seconds }))
}

fn released(version: u64) -> Lease {
    held(version, "", 1)
}

#[test]
fn a_lease_expires_when_it_was_unchanged_for_its_duration() {
    let mut story = Story::begin();
    assert_eq!(story.free_in(), None, "no Lease was seen yet");
    story.watched(held(5, "a", 15));
    assert_eq!(story.free_in(), Some(15));
    story.after(14).watched(held(6, "a", 15));
    assert_eq!(story.free_in(), Some(15), "it was renewed");
    story.after(10).watched(held(6, "a", 15));
    assert_eq!(story.free_in(), Some(5), "the same version again changes nothing");
    assert_eq!(story.observation.expired(story.now), None);
    story.after(5);
    assert_eq!(story.observation.expired(story.now), Some(6));
}

#[test]
fn the_longer_duration_counts() {
    for (written, expected) in [(60, 60), (5, 15), (0, 15), (-3, 15)] {
        let mut story = Story::begin();
        story.watched(held(5, "a", written));
        assert_eq!(story.free_in(), Some(expected), "written: {written}");
    }
}

#[test]
fn a_released_lease_is_free_at_once() {
    let mut story = Story::begin();
    story.watched(held(5, "a", 15)).after(3).watched(released(6));
    assert_eq!(story.free_in(), Some(0));
    story.absent(7);
    assert_eq!(story.free_in(), Some(0), "also if it is deleted afterwards");
}

#[test]
fn an_emptied_or_deleted_lease_is_free_after_its_duration() {
    for empty in [json!({}), Value::Null, json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })] {
        let mut story = Story::begin();
        story.watched(held(5, "a", 20)).after(3).watched(lease("u", 6, empty));
        assert_eq!(story.free_in(), Some(20), "emptied");
    }
    let mut story = Story::begin();
    story.watched(held(5, "a", 20)).after(3).absent(6).after(1).absent(7);
    assert_eq!(story.free_in(), Some(19), "deleted");
    let mut story = Story::begin();
    story.absent(4);
    assert_eq!(story.free_in(), Some(0), "no holder was ever seen");
    story.watched(lease("u", 6, json!({})));
    assert_eq!(story.free_in(), Some(0));
}

#[test]
fn older_events_and_reads_change_nothing() {
    let mut story = Story::begin();
    story.watched(held(9, "a", 15)).after(5).watched(held(8, "b", 15)).absent(7).watched(released(9));
    assert_eq!(story.free_in(), Some(10));
    // A read of our own may be ahead of the watch.
    story.observation.read(Some(held(12, "a", 15)), 9, story.now).unwrap();
    story.after(2).watched(held(11, "b", 15)).absent(12);
    assert_eq!((story.free_in(), story.observation.holder()), (Some(13), "a".to_owned()));
    // The watch may be ahead of a read that was sent earlier.
    story.watched(held(14, "b", 15));
    story.observation.read(Some(held(13, "a", 15)), 12, story.now).unwrap();
    story.observation.read(None, 12, story.now).unwrap();
    assert_eq!(story.observation.holder(), "b");
}

#[test]
fn an_older_read_does_not_bring_back_a_deleted_lease() {
    let mut story = Story::begin();
    story.watched(held(9, "a", 15)).after(1).absent(11);
    story.observation.read(Some(held(9, "a", 15)), 9, story.now).unwrap();
    assert_eq!(story.observation.holder(), "none (there is no Lease)");
}

#[test]
fn a_read_of_an_older_version_is_an_error() {
    for uid in ["u", "v"] {
        let mut story = Story::begin();
        story.watched(held(9, "a", 15));
        let older = lease(uid, 8, json!({ "holderIdentity": "a", "leaseDurationSeconds": 15 }));
        let result = story.observation.read(Some(older), 9, story.now);
        assert_eq!(result, Err(WentBack { known: 9, read: 8 }), "the cluster is older than it was");
        assert!(result.unwrap_err().to_string().contains("went back from 9 to 8"));
    }
}

#[test]
fn silence_counts_from_the_last_event_or_read() {
    let mut story = Story::begin();
    assert_eq!(story.observation.heard, None);
    story.watched(held(9, "a", 15)).after(3).watched(held(9, "a", 15));
    assert_eq!(story.observation.heard, Some(story.now));
    story.after(3);
    story.observation.read(None, 9, story.now).unwrap();
    assert_eq!(story.observation.heard, Some(story.now));
}

#[test]
fn the_lease_is_ours_from_our_write_until_another_state_is_seen() {
    let mut story = Story::begin();
    story.watched(held(5, "us", 15));
    assert!(!story.observation.is_ours(), "our name in the Lease is not enough");
    assert_eq!(story.free_in(), Some(15), "it must expire like any other");
    story.written(held(6, "us", 15));
    assert!(story.observation.is_ours());
    story.watched(held(5, "a", 15));
    assert!(story.observation.is_ours(), "an older version changes nothing");
    for lost in [
        held(7, "a", 15),
        held(7, "", 15),
        lease("u", 7, json!({})),
        lease("v", 7, json!({ "holderIdentity": "us", "leaseDurationSeconds": 15 })),
    ] {
        let mut story = Story::begin();
        story.written(held(6, "us", 15)).watched(lost.clone());
        assert!(!story.observation.is_ours(), "{lost:?}");
    }
    story.absent(7);
    assert!(!story.observation.is_ours());
}
