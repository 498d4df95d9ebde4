//! The list of all actions. An action returns whether it was possible: some need a pod, or a leader.

use super::*;

/// Kinds of actions. A world combines only some of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Users and nodes act, in every world.
    User,
    /// A fault, in some worlds.
    Fault,
    /// Requests are executed late, in some worlds.
    Late,
    /// Requests are delayed or repeated, or replicas are cut off, frozen or ended, in some worlds.
    Apart,
    /// The Lease is edited by hand. Not in worlds with late requests, because the promise does not cover both together.
    Edit,
    /// A webhook renames pods. Not in worlds with late requests: repeated creates are harmless because of their names.
    Renamed,
}

pub struct Action {
    pub name: &'static str,
    pub kind: Kind,
    /// Runs it, and returns whether it was possible.
    pub act: fn(&mut World) -> bool,
}

const fn action(kind: Kind, name: &'static str, act: fn(&mut World) -> bool) -> Action {
    Action { name, kind, act }
}

pub const ACTIONS: &[Action] = &[
    action(Kind::User, "a set is scaled", |world| {
        world.patch_set(|dice| json!({ "spec": { "replicas": dice.within(1..11) } }))
    }),
    action(Kind::User, "a pod is deleted", |world| world.act_on_pod(World::pod, ApiServer::delete_pod)),
    action(Kind::User, "a pod is killed", |world| world.act_on_pod(World::any_pod, ApiServer::kill_pod)),
    action(Kind::User, "all pods of a set are killed", |world| {
        let Some((namespace, set)) = world.set() else { return false };
        let live = world.server.live_pods(namespace, set);
        live.iter().for_each(|pod| world.server.kill_pod(namespace, pod));
        !live.is_empty()
    }),
    action(Kind::User, "a pod fails", |world| world.act_on_pod(World::running_pod, ApiServer::fail_pod)),
    action(Kind::User, "a pod succeeds", |world| world.act_on_pod(World::any_pod, ApiServer::succeed_pod)),
    action(Kind::User, "a pod is not ready for a while", |world| {
        world.act_on_pod(World::running_pod, |server, namespace, pod| server.set_ready(namespace, pod, false))
    }),
    action(Kind::User, "a set gets a label", |world| {
        world.patch_set(|dice| json!({ "metadata": { "labels": { "n": dice.below(9).to_string() } } }))
    }),
    action(Kind::User, "a set changes its podReplacementPolicy", |world| {
        world.patch_set(|dice| {
            let policy = dice.one(&["TerminationStarted", "TerminationComplete", "TerminationComplete"]);
            json!({ "spec": { "podReplacementPolicy": policy } })
        })
    }),
    action(Kind::User, "a template is changed", users::change_template),
    action(Kind::User, "a template is broken, and mended later", users::break_template),
    action(Kind::User, "a set changes its updateStrategy", |world| world.patch_set(users::another_strategy)),
    action(Kind::User, "a revision is deleted", users::delete_revision),
    action(Kind::User, "a status is wiped", |world| world.seldom_act_on_set(3, ApiServer::wipe_status)),
    action(Kind::User, "a set is deleted or recreated", users::delete_set),
    action(Kind::User, "a set is orphaned", |world| world.seldom_act_on_set(3, ApiServer::orphan_podset)),
    action(Kind::User, "a set is deleted in the foreground", |world| {
        world.seldom_act_on_set(2, ApiServer::delete_podset_in_foreground)
    }),
    action(Kind::User, "a namespace is deleted", users::delete_namespace),
    action(Kind::User, "a pod loses the watched label", users::strip_label),
    action(Kind::User, "a pod loses its owner", |world| {
        world.act_on_pod(|world| world.pod().filter(|_| world.dice.one_in(2)), ApiServer::strip_owner)
    }),
    action(Kind::User, "a user's pod takes the next name", users::take_name),
    action(Kind::User, "a user's pod replaces a pod of a set", users::replace_pod),
    action(Kind::User, "a pod of another namespace claims a set", users::claim),
    action(Kind::User, "a MyCustomResource is created", users::seek_friend),
    action(Kind::User, "a friend is created or killed", users::toggle_friend),
    action(Kind::Fault, "a pod that failed runs again", |world| {
        world.act_on_pod(World::failed_pod, ApiServer::run_again)
    }),
    action(Kind::Fault, "a quota is set or lifted", faults::quota),
    action(Kind::Fault, "a webhook removes owners", |world| {
        world.webhook(|server| server.change_new_pods(|pod| pod["metadata"]["ownerReferences"] = json!([])))
    }),
    action(Kind::Fault, "a webhook removes labels", |world| {
        world.webhook(|server| server.change_new_pods(|pod| pod["metadata"]["labels"] = json!({})))
    }),
    action(Kind::Renamed, "a webhook renames pods", faults::webhook_renames),
    action(Kind::Fault, "a webhook rejects pods", |world| {
        world.webhook(|server| server.set_webhook(|_| Err(Status::of_code(403))))
    }),
    action(Kind::Fault, "a pod cannot be deleted", faults::protect_pod),
    action(Kind::Fault, "pods terminate slowly", |world| {
        let time = world.dice.millis(2_000..40_000);
        world.set_pod_script_for_a_while(PodScript::gone_after(time))
    }),
    action(Kind::Fault, "pods fail or succeed soon", |world| {
        let time = world.dice.millis(100..5_000);
        let ends_after = Some((time, world.dice.one_in(2)));
        world.set_pod_script_for_a_while(PodScript { ends_after, ..PodScript::default() })
    }),
    action(Kind::Fault, "pods are never ready", |world| world.set_pod_script_for_a_while(PodScript::never_ready())),
    action(Kind::Fault, "requests are rejected", |world| world.failing(|code| Fault::Refuse(Status::of_code(code)))),
    action(Kind::Fault, "requests are executed and answered with an error", |world| {
        world.failing(Fault::ExecuteThenError)
    }),
    action(Kind::Fault, "answers are lost", |world| world.fault(Fault::ExecuteThenCut)),
    action(Kind::Fault, "answers are garbled", |world| world.fault(Fault::ExecuteThenGarble)),
    action(Kind::Fault, "requests are lost", |world| world.fault(Fault::CutBefore)),
    action(Kind::Fault, "answers are held", faults::hold_answers),
    action(Kind::Apart, "requests are slow", |world| world.slow(100..12_000, Fault::Delay)),
    action(Kind::Apart, "requests arrive late", faults::arrive_late),
    action(Kind::Apart, "creates are executed twice", |world| {
        let creates = Requests::creates("pods").first(usize::try_from(world.dice.within(1..9)).unwrap_or(1));
        world.server.fault(creates, Fault::ExecuteTwice);
        true
    }),
    action(Kind::Fault, "pages of lists fail", faults::fail_page),
    action(Kind::Late, "requests are executed late", |world| world.slow(500..58_000, Fault::ExecuteLate)),
    action(Kind::Late, "requests are executed late and never answered", |world| {
        world.slow(500..58_000, Fault::ExecuteUnanswered)
    }),
    action(Kind::Apart, "watches lag", |world| {
        let time = world.dice.millis(50..8_000);
        world.some_watches().delay(time);
        true
    }),
    action(Kind::Apart, "watches stall", |world| world.disturb(WatchControl::stall)),
    action(Kind::Fault, "watches repeat old events", |world| {
        let events = usize::try_from(world.dice.within(1..20)).unwrap_or(1);
        world.some_watches().replay(events);
        true
    }),
    action(Kind::Fault, "watches end", |world| world.disturb(WatchControl::end)),
    action(Kind::Fault, "watches are cut", |world| world.disturb(WatchControl::cut)),
    action(Kind::Fault, "watches expire (410)", |world| world.disturb(WatchControl::gone)),
    action(Kind::Fault, "a replica is killed", |world| {
        let place = world.any();
        world.replicas.remove(place).kill();
        world.start_replica();
        true
    }),
    action(Kind::Fault, "a replica is shut down", faults::shut_down),
    action(Kind::Apart, "a replica is frozen", |world| world.freeze_one(Replica::freeze)),
    action(Kind::Fault, "the writes of a replica are frozen", |world| world.freeze_one(Replica::freeze_writes)),
    action(Kind::Apart, "a replica is partitioned", |world| world.fault_of_one(ApiServer::partition)),
    action(Kind::Apart, "a replica gets no answers", |world| {
        world.fault_of_one(|server, name| server.fault(Requests::all().from(name), Fault::ExecuteThenCut))
    }),
    action(Kind::Apart, "a replica is cut off from the Lease", |world| {
        world.fault_of_one(|server, name| server.fault(Requests::all().of("leases").from(name), Fault::CutBefore))
    }),
    action(Kind::Apart, "the API server is unreachable", faults::become_unreachable),
    action(Kind::Fault, "all faults are healed", |world| {
        world.server.heal();
        true
    }),
    action(Kind::Edit, "the Lease is deleted", |world| world.edit_lease(None)),
    action(Kind::Edit, "the Lease is emptied", |world| world.edit_lease(Some(json!({})))),
    action(Kind::Edit, "the Lease is overwritten", |world| {
        let seconds = world.dice.within(1..10);
        let mut spec = json!({ "holderIdentity": "somebody", "leaseDurationSeconds": seconds });
        spec["leaseTransitions"] = i32::MAX.into();
        world.edit_lease(Some(spec))
    }),
    action(Kind::Edit, "the Lease is released by hand", |world| {
        world.edit_lease(Some(json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })))
    }),
    action(Kind::Apart, "the leader is frozen during creates", combinations::frozen_in_the_middle),
    action(Kind::Apart, "a standby is blind until the lease looks expired", combinations::blind_standby),
    action(Kind::Apart, "the Lease watches lag, and the leader is killed", combinations::tie),
    action(Kind::Apart, "the last renewal is answered late", combinations::late_renewal),
    action(Kind::Apart, "the leader is cut off from the Lease", combinations::short_lease),
    action(Kind::Apart, "the leader is shut down with creates unanswered", combinations::end_unanswered),
    action(Kind::Apart, "a standby whose watches stall takes over", combinations::blind_takeover),
    action(Kind::Apart, "an old replica count arrives late", combinations::old_replicas),
    action(Kind::Late, "a status lands after the next one", combinations::late_status),
    action(Kind::Late, "a lost create lands after its pod was replaced", combinations::late_create),
    action(Kind::Fault, "pods lose the label, and the set shrinks", combinations::out_of_sight),
    action(Kind::Late, "the set shrinks before a lost create lands", combinations::surplus_create),
    action(Kind::Late, "users' pods take the names of pods whose deletes are late", combinations::late_delete),
    action(Kind::Apart, "the set shrinks, and a new pod is unseen", combinations::unseen_create),
    action(Kind::Fault, "pods lose the label while no operator runs", combinations::unwatched),
    action(Kind::Apart, "the store has no quorum", combinations::no_quorum),
    action(Kind::Apart, "a replica is shut down while nothing is reachable", combinations::total_outage),
];

/// Draws the actions of one world: all of users, and some faults. One world in eight has no faults.
pub fn drawn(dice: &mut Dice) -> Vec<&'static Action> {
    let is_sound = dice.one_in(8);
    let special: &[Kind] = dice.one(&[&[Kind::Apart], &[Kind::Apart, Kind::Late], &[Kind::Edit], &[Kind::Renamed]]);
    let share = dice.one(&[2, 3, 6]);
    let can_be = |kind| match kind {
        Kind::User => true,
        Kind::Fault => !is_sound,
        kind => !is_sound && special.contains(&kind),
    };
    let mut drawn: Vec<_> = ACTIONS.iter().filter(|action| can_be(action.kind)).collect();
    drawn.retain(|action| action.kind == Kind::User || dice.one_in(share));
    drawn
}
