//! People do to the Lease what they should not: delete it, empty it, write another holder into it, give it back.

use std::sync::Arc;

use anyhow::Result;
use e2e::operator::Election;
use e2e::scene::{LEASE, Scene};
use k8s_openapi::jiff::Timestamp;

use super::{END, Reign};

/// What they do with kubectl.
const EDITS: [(&str, &[&str]); 4] = [
    ("deleted", &["delete", "lease", LEASE]),
    ("emptied", &["patch", "lease", LEASE, "--type=json", r#"-p=[{"op": "replace", "path": "/spec", "value": {}}]"#]),
    ("overwritten", &["patch", "lease", LEASE, "--type=merge", r#"-p={"spec": {"holderIdentity": "somebody-else"}}"#]),
    (
        "given back",
        &["patch", "lease", LEASE, "--type=merge", r#"-p={"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}"#],
    ),
];

/// The leader stops at once, and another one leads: when the Lease would have run out, or at once if it was given back.
pub async fn by_hand(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin(&t, Election::SHORT).await?;
    for (edit, command) in EDITS {
        let leader = reign.fleet.leader().await?;
        t.tell(&format!("the Lease is {edit}"));
        let before = Timestamp::now();
        t.kubectl().run(command).await?;
        // On a busy machine kubectl alone takes a second to begin.
        let after = Timestamp::now();
        reign.ends_for_want_of_the_lease(&leader, END).await?;
        reign.is_taken_over_between(&leader, before, after).await?;
        reign.gets_another().await?;
    }
    reign.ends().await
}
