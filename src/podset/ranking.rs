//! Which pods a scale-down or a rollout deletes first. Pure.
//!
//! A pod whose delete may still take effect comes first. Pods whose last delete was rejected come last for a while. The others are compared
//! by these rules, in order: not yet scheduled; Pending before Unknown before Running; not ready before ready; lower
//! `controller.kubernetes.io/pod-deletion-cost`; lower `template_rank`; on the node with more of these pods; ready for a shorter time;
//! more restarts; younger; then UID, so that the order is total.

use std::{cmp::Reverse, collections::HashMap};

use jiff::Timestamp;

use super::{
    observe::{Phase, Seen},
    set_state::SetState,
};

/// The pods in the order in which a scale-down deletes them. `template_rank` compares pods by their templates.
pub fn victims_first<'a>(
    pods: &[&'a Seen],
    template_rank: impl Fn(&Seen) -> u8,
    state: &SetState,
    now: Timestamp,
) -> Vec<&'a Seen> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for node in pods.iter().filter_map(|seen| seen.pod.node.as_deref()) {
        *on_node.entry(node).or_default() += 1;
    }
    let mut ranked = pods.to_vec();
    ranked.sort_by_cached_key(|seen| {
        let pod = &seen.pod;
        (
            !state.fates.is_going(&pod.uid),
            state.retry.rejected_deletes.rank(&pod.uid, now),
            pod.node.is_some(),
            (pod.phase != Phase::Pending, pod.phase != Phase::Unknown),
            pod.ready_since.is_some(),
            pod.deletion_cost,
            template_rank(seen),
            Reverse(pod.node.as_deref().and_then(|node| on_node.get(node).copied())),
            Reverse(pod.ready_since),
            Reverse(pod.restarts),
            Reverse(pod.created),
            pod.uid.clone(),
        )
    });
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing::{self, PodBuilder};

    /// Each pod is deleted before the next one, by the rule in its name.
    #[test]
    fn the_rules_apply_in_their_order() {
        let pods: Vec<Seen> = [
            testing::pod("going").ready(90).delete_cost(99),
            testing::pod("unscheduled").unscheduled().delete_cost(9),
            testing::pod("pending").phase(Phase::Pending).delete_cost(9),
            testing::pod("unknown").phase(Phase::Unknown).delete_cost(9),
            testing::pod("not-ready").delete_cost(9),
            testing::pod("cheap").ready(90).delete_cost(-1),
            testing::pod("crowded-a").on("crowded").ready(80),
            testing::pod("crowded-b").on("crowded").ready(90),
            testing::pod("ready-shortly").on("a").ready(30),
            testing::pod("restarted").on("b").ready(60).restarts(3),
            testing::pod("young").on("c").ready(60).age(100),
            testing::pod("old-0").on("d").ready(60).age(200),
            testing::pod("old-1").on("e").ready(60).age(200),
        ]
        .map(PodBuilder::seen)
        .into();
        let mut state = SetState::default();
        state.fates.deletes.insert(pods[0].pod.uid.clone(), testing::now());

        let mut shuffled: Vec<&Seen> = pods.iter().rev().collect();
        shuffled.rotate_left(5);
        let ranked: Vec<&str> =
            victims_first(&shuffled, |_| 0, &state, testing::now()).iter().map(|seen| &*seen.pod.key.name).collect();
        let expected: Vec<&str> = pods.iter().map(|seen| &*seen.pod.key.name).collect();
        assert_eq!(ranked, expected);
    }
}
