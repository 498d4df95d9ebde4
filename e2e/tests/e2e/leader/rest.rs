//! When there is nothing to do, the leader renews its Lease, and nobody asks for anything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::fleet::Fleet;
use e2e::operator::Election;
use e2e::scene::Scene;
use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;

pub async fn nothing_is_asked(t: Arc<Scene>) -> Result<()> {
    let election = Election::DEFAULT;
    let mut fleet = Fleet::start(&t, 3, &t.settings().elected(election)).await?;
    t.create_set("web", 5).await?;
    t.until("5 pods", |seen| seen.at_rest("web", 5)).await?;
    sleep(Duration::from_secs(8)).await;
    let rest = Duration::from_secs(30);
    let began = Timestamp::now();
    sleep(rest + Duration::from_secs(1)).await;

    let leader = fleet.leader().await?;
    let mut asked = BTreeMap::new();
    for request in t.requests()?.received_in(began..began + rest).0.iter().filter(|request| request.verb != "watch") {
        *asked.entry((request.user().to_owned(), request.kind())).or_insert(0) += 1;
    }
    let user = fleet.operator(&leader)?.user().to_owned();
    // A read and a write for each renewal, and one more for what begins or ends within.
    let renewals = rest.as_secs() / election.retry_period + 1;
    for kind in ["get leases", "patch leases"] {
        let sent = asked.remove(&(user.clone(), kind.to_owned())).unwrap_or(0);
        ensure!(sent > 0 && sent <= renewals, "the leader sent '{kind}' {sent} times in {} s", rest.as_secs());
    }
    ensure!(asked.is_empty(), "at rest there were other requests than those of the leader for its Lease: {asked:?}");
    fleet.ends_well().await?;
    t.one_writer()
}
