//! Shows any Leases to a candidate. None is free before its holder had the time to renew it, and none is held forever.
#![no_main]

use arbitrary::Arbitrary;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use leadership::Observation;
use libfuzzer_sys::fuzz_target;
use podset_operator_fuzz::{Edit, edited};
use serde_json::{Value, json};

const OWN: SignedDuration = SignedDuration::from_secs(15);

#[derive(Arbitrary, Debug)]
enum Step {
    Pass { milliseconds: u16 },
    Watched(State),
    WatchedAbsent { version: u8 },
    Read { state: Option<State>, behind: u8 },
    Wrote(State),
}

#[derive(Arbitrary, Debug)]
struct State {
    holder: u8,
    seconds: i8,
    version: u8,
    edits: Vec<Edit>,
}

impl State {
    fn lease(&self) -> Option<(Lease, Value)> {
        let holder = ["", "me", "other", "third"][usize::from(self.holder) % 4];
        let json = json!({
            "metadata": { "name": "l", "uid": "u", "resourceVersion": self.version.to_string() },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": self.seconds, "leaseTransitions": 3,
                "renewTime": "2026-01-01T12:00:03.000000Z", "acquireTime": "2026-01-01T12:00:03.000000Z",
            },
        });
        let json = edited(&json, &self.edits);
        Some((serde_json::from_value(json.clone()).ok()?, json))
    }
}

/// The documented rule: a Lease is free once it was unchanged for the longer of the two durations.
#[derive(Default)]
struct Rule {
    highest: u64,
    /// The earliest end of the last holder's lease.
    held: Option<Timestamp>,
    /// The maximum time to wait.
    longest: SignedDuration,
    is_known: bool,
    is_mine: bool,
}

impl Rule {
    fn see(&mut self, json: &Value, now: Timestamp) {
        let holder = json["spec"]["holderIdentity"].as_str();
        let seconds = json["spec"]["leaseDurationSeconds"].as_i64();
        let wait = SignedDuration::from_secs(seconds.unwrap_or(0)).max(OWN);
        self.highest = version(json);
        self.is_known = true;
        match holder {
            Some("") if seconds == Some(1) => self.held = None,
            None | Some("") => {}
            Some(_) => {
                self.held = Some(now + wait);
                self.longest = self.longest.max(wait);
            }
        }
        self.is_mine = holder == Some("me");
    }
}

fn version(json: &Value) -> u64 {
    json["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fuzz_target!(|steps: Vec<Step>| {
    let (mut now, mut rule) = (Timestamp::UNIX_EPOCH, Rule::default());
    let mut seen = Observation::new("me", OWN, Ord::max);
    let mut has_written = false;
    for step in steps {
        match step {
            Step::Pass { milliseconds } => now += SignedDuration::from_millis(milliseconds.into()),
            Step::Watched(state) | Step::Wrote(state) if state.lease().is_none() => {}
            Step::Watched(state) => {
                let (lease, json) = state.lease().expect("it was checked");
                seen.watched(lease, now);
                if version(&json) > rule.highest {
                    rule.see(&json, now);
                }
            }
            Step::Wrote(state) => {
                let (lease, json) = state.lease().expect("it was checked");
                seen.wrote(lease, now);
                has_written = true;
                if version(&json) > rule.highest {
                    rule.see(&json, now);
                }
            }
            Step::WatchedAbsent { version } => {
                seen.watched_absent(version.into(), now);
                if u64::from(version) > rule.highest {
                    rule = Rule { highest: version.into(), is_known: true, is_mine: false, ..rule };
                }
            }
            Step::Read { state, behind } => {
                let known = rule.highest.saturating_sub(behind.into());
                let lease = state.as_ref().and_then(State::lease);
                let (lease, json) = lease.unzip();
                let read = seen.read(lease, known, now);
                match json {
                    Some(json) if version(&json) < known => assert!(read.is_err(), "the version went back"),
                    // The same version is the same state.
                    Some(json) if version(&json) > rule.highest => rule.see(&json, now),
                    Some(json) if version(&json) == rule.highest => return,
                    None if known == rule.highest => rule = Rule { is_known: true, is_mine: false, ..rule },
                    _ => assert_eq!(read, Ok(())),
                }
            }
        }
        assert_eq!(seen.highest(), rule.highest);
        assert!(!seen.is_ours() || has_written && rule.is_mine, "it is ours only after a write, and while it names us");
        let is_free = seen.expired(now).is_some();
        assert!(!is_free || rule.is_known, "free without an observation");
        assert!(!is_free || rule.held.is_none_or(|until| until <= now), "free at {now}, held until {:?}", rule.held);
        let late = now + rule.longest.max(OWN);
        assert!(!rule.is_known || seen.expired(late).is_some(), "it is never free: {:?}", seen.frees_at());
    }
});
