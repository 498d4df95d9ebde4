//! The list of all that can happen. A deed answers whether it happened: some need a pod, or a leader.

use super::{World, dice::Dice, faults, lease_edits, plots, users};
use crate::apiserver::{Fault, PodScript, Status, WatchControl};

/// What goes together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// People use what they have: in every world.
    User,
    /// Something goes wrong, in some worlds.
    Fault,
    /// Requests are executed late, in some worlds.
    Late,
    /// Somebody or something stands between a replica and the API server.
    Apart,
    /// The Lease is edited by hand: not where anything is late, since both together are beyond the promise.
    Edit,
    /// Pods get other names than were asked for: not where anything is late, since a name is what makes a create that comes
    /// twice harmless.
    Renamed,
}

/// Something that can happen.
pub struct Deed {
    /// Its name.
    pub name: &'static str,
    /// What it goes together with.
    pub kind: Kind,
    /// Does it, and says whether it could be done.
    pub act: fn(&mut World) -> bool,
}

const fn deed(kind: Kind, name: &'static str, act: fn(&mut World) -> bool) -> Deed {
    Deed { name, kind, act }
}

/// All of them.
pub const DEEDS: &[Deed] = &[
    deed(Kind::User, "a set is scaled", users::scale),
    deed(Kind::User, "a set is scaled back and forth", users::scale_back_and_forth),
    deed(Kind::User, "a pod is deleted", users::delete_pod),
    deed(Kind::User, "a pod is killed", users::kill_pod),
    deed(Kind::User, "all pods of a set are killed", users::kill_all_pods),
    deed(Kind::User, "a pod fails", users::fail_pod),
    deed(Kind::User, "a pod finishes", users::finish_pod),
    deed(Kind::User, "a pod is not ready for a while", users::unready_pod),
    deed(Kind::User, "a set gets a label", users::label_set),
    deed(Kind::User, "a set changes its podReplacementPolicy", users::change_policy),
    deed(Kind::User, "a template is changed", users::change_template),
    deed(Kind::User, "a template is broken, and mended later", users::break_template),
    deed(Kind::User, "a set changes its updateStrategy", users::change_strategy),
    deed(Kind::User, "a stored template is deleted", users::delete_revision),
    deed(Kind::User, "a status is wiped", users::wipe_status),
    deed(Kind::User, "a set is deleted, or made anew", users::delete_set),
    deed(Kind::User, "a set is orphaned", users::orphan_set),
    deed(Kind::User, "a set is deleted in the foreground", users::delete_set_in_foreground),
    deed(Kind::User, "a namespace is deleted", users::delete_namespace),
    deed(Kind::User, "a pod loses the watched label", users::strip_label),
    deed(Kind::User, "a pod loses its owner", users::strip_owner),
    deed(Kind::User, "a stranger has the next name", users::strange_name),
    deed(Kind::User, "a stranger takes a pod's place", users::strange_pod),
    deed(Kind::User, "a pod of another namespace claims a set", users::claim),
    deed(Kind::User, "a friend is looked for", users::seek_friend),
    deed(Kind::User, "a friend comes or goes", users::toggle_friend),
    deed(Kind::Fault, "a pod that failed runs again", users::run_again),
    deed(Kind::Fault, "a quota is set or lifted", faults::quota),
    deed(Kind::Fault, "a webhook takes owners off", faults::webhook_without_owner),
    deed(Kind::Fault, "a webhook takes labels off", faults::webhook_without_labels),
    deed(Kind::Renamed, "a webhook renames pods", faults::webhook_renames),
    deed(Kind::Fault, "a webhook refuses pods", |world| world.webhook(|_| Err(Status::of_code(403)))),
    deed(Kind::Fault, "a pod cannot be deleted", faults::protect_pod),
    deed(Kind::Fault, "pods go slowly", faults::slow_to_go),
    deed(Kind::Fault, "pods fail or finish soon", faults::short_lived),
    deed(Kind::Fault, "pods are never ready", |world| world.pods_are(PodScript::never_ready())),
    deed(Kind::Fault, "requests are refused", |world| world.failing(|code| Fault::Refuse(Status::of_code(code)))),
    deed(Kind::Fault, "requests are executed and answered with an error", |world| {
        world.failing(Fault::ExecuteThenError)
    }),
    deed(Kind::Fault, "answers are lost", |world| world.fault(Fault::ExecuteThenCut)),
    deed(Kind::Fault, "answers are garbled", |world| world.fault(Fault::ExecuteThenGarble)),
    deed(Kind::Fault, "requests are lost", |world| world.fault(Fault::CutBefore)),
    deed(Kind::Fault, "answers are held", faults::hold_answers),
    deed(Kind::Apart, "requests are slow", |world| world.slow(100..12_000, Fault::Delay)),
    deed(Kind::Apart, "requests arrive late", faults::arrive_late),
    deed(Kind::Apart, "creates are executed twice", faults::execute_twice),
    deed(Kind::Fault, "pages of lists fail", faults::fail_page),
    deed(Kind::Late, "requests are executed late", |world| world.slow(500..58_000, Fault::ExecuteLate)),
    deed(Kind::Late, "requests are executed late and never answered", |world| {
        world.slow(500..58_000, Fault::ExecuteUnanswered)
    }),
    deed(Kind::Apart, "watches lag", faults::delay_watches),
    deed(Kind::Apart, "watches are held", faults::hold_watches),
    deed(Kind::Apart, "watches stall", |world| world.disturb(WatchControl::stall)),
    deed(Kind::Fault, "watches repeat old events", faults::replay_watches),
    deed(Kind::Fault, "watches end", |world| world.disturb(WatchControl::end)),
    deed(Kind::Fault, "watches are cut", |world| world.disturb(WatchControl::cut)),
    deed(Kind::Fault, "watches are gone", |world| world.disturb(WatchControl::gone)),
    deed(Kind::Fault, "a replica is killed", faults::kill),
    deed(Kind::Fault, "a replica is asked to end", faults::ask_to_end),
    deed(Kind::Apart, "a replica is frozen", faults::freeze),
    deed(Kind::Fault, "a replica is frozen before the socket", faults::freeze_writes),
    deed(Kind::Apart, "a replica is cut off", faults::partition),
    deed(Kind::Apart, "a replica hears no answers", faults::one_way),
    deed(Kind::Apart, "a replica is cut off from the Lease", faults::cut_lease),
    deed(Kind::Apart, "the API server is away", faults::go_away),
    deed(Kind::Fault, "the cluster is sound again", |world| {
        world.server.heal();
        true
    }),
    deed(Kind::Edit, "the Lease is deleted", lease_edits::delete_lease),
    deed(Kind::Edit, "the Lease is emptied", lease_edits::empty_lease),
    deed(Kind::Edit, "the Lease is overwritten", lease_edits::overwrite_lease),
    deed(Kind::Edit, "the Lease is released by hand", lease_edits::release_lease),
    deed(Kind::Apart, "the leader is frozen in the middle of creates", plots::frozen_in_the_middle),
    deed(Kind::Apart, "a standby is blind until the lease looks expired", plots::blind_standby),
    deed(Kind::Apart, "standbys see late, and the leader dies", plots::tie),
    deed(Kind::Apart, "a renewal is answered late, and the last one", plots::late_renewal),
    deed(Kind::Apart, "the leader of the shortest lease is cut off", plots::short_lease),
    deed(Kind::Apart, "the leader is asked to end with creates unanswered", plots::end_unanswered),
    deed(Kind::Apart, "a standby whose watches stall takes over", plots::blind_heir),
    deed(Kind::Fault, "a pod ends before its create is answered", plots::ghost),
    deed(Kind::Apart, "an old N comes late", plots::old_n),
    deed(Kind::Late, "a status lands after the next one", plots::late_status),
    deed(Kind::Late, "a lost create lands after its pod was replaced", plots::late_create),
    deed(Kind::Fault, "pods out of sight, and fewer wanted", plots::out_of_sight),
    deed(Kind::Late, "fewer are wanted before a lost create lands", plots::surplus_create),
    deed(Kind::Late, "strangers have the names of pods whose deletes are late", plots::late_delete),
    deed(Kind::Apart, "fewer are wanted, and a pod is unseen", plots::unseen_create),
    deed(Kind::Fault, "pods lose the label while no operator runs", plots::unwatched),
    deed(Kind::Apart, "the store has no quorum", plots::no_quorum),
    deed(Kind::Apart, "nothing is within reach, and a replica is asked to end", plots::total_outage),
];

/// What can happen in one world: all that users do, and some of what goes wrong. In one of eight nothing does.
pub fn drawn(dice: &mut Dice) -> Vec<&'static Deed> {
    let is_sound = dice.one_in(8);
    let special: &[Kind] = dice.one(&[&[Kind::Apart], &[Kind::Apart, Kind::Late], &[Kind::Edit], &[Kind::Renamed]]);
    let share = dice.one(&[2, 3, 6]);
    let can_be = |kind| match kind {
        Kind::User => true,
        Kind::Fault => !is_sound,
        kind => !is_sound && special.contains(&kind),
    };
    let mut drawn: Vec<_> = DEEDS.iter().filter(|deed| can_be(deed.kind)).collect();
    drawn.retain(|deed| deed.kind == Kind::User || dice.one_in(share));
    drawn
}
