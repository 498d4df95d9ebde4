//! Two fleets for one Lease, with different times, as during a rollout that changes them.

use std::sync::Arc;

use anyhow::Result;
use e2e::fleet::Fleet;
use e2e::operator::Election;
use e2e::proxy::Fault;
use e2e::scene::Scene;
use k8s_openapi::jiff::Timestamp;

use super::{END, Reign};

/// What the old fleet was told: its leader goes on for longer than the Lease of the new fleet lasts.
const LONG: Election = Election { lease_duration: 12, renew_deadline: 9, retry_period: 1 };

/// A leader of the old fleet that is cut off is waited for as long as it may go on; then a leader of the new fleet is cut
/// off, before the eyes of both.
pub async fn with_other_times(t: Arc<Scene>) -> Result<()> {
    let fleet = Fleet::start_behind_proxies(&t, 2, &t.settings().elected(LONG)).await?;
    let mut reign = Reign::of(&t, fleet, LONG).await?;
    for _ in 0..2 {
        reign.fleet.add_behind_proxy(t.settings().elected(Election::SHORT)).await?;
    }
    reign.fleet.is_complete().await?;
    for _ in 0..3 {
        let leader = reign.fleet.leader().await?;
        let cut = Timestamp::now();
        reign.fleet.proxy(&leader)?.torment(Fault::Silent);
        reign.is_taken_over(&leader, cut).await?;
        reign.ends_for_want_of_the_lease(&leader, END).await?;
    }
    reign.ends().await
}
