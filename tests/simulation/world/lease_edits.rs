//! Edits of the Lease by hand.

use serde_json::{Value, json};

use super::World;
use crate::{
    apiserver::LEASES,
    replica::{LEASE, Replica},
};

/// Returns whether the Lease was edited.
fn edit_lease(world: &mut World, edit: impl FnOnce(&World)) -> bool {
    let is_there = world.server.with(|state| state.get(&LEASES, LEASE.0, LEASE.1).is_some());
    // The promise covers an edit only if each replica can see it. So all faults end first, and there is no edit while a
    // frozen replica has no watch, because it starts a new watch only after the freeze.
    let leases = |replica: &Replica| world.server.watches().of(replica.name()).on("leases").count();
    let hears = |replica: &Replica| !replica.is_frozen() || leases(replica) > 0;
    if !is_there || !world.replicas.iter().all(hears) {
        return false;
    }
    world.server.heal();
    edit(world);
    true
}

fn write_lease(world: &mut World, spec: Value) -> bool {
    edit_lease(world, |world| world.server.overwrite_lease(LEASE.0, LEASE.1, spec))
}

pub fn delete_lease(world: &mut World) -> bool {
    edit_lease(world, |world| world.server.delete_lease(LEASE.0, LEASE.1))
}

pub fn empty_lease(world: &mut World) -> bool {
    write_lease(world, json!({}))
}

pub fn overwrite_lease(world: &mut World) -> bool {
    let seconds = world.dice.within(1..10);
    write_lease(world, json!({ "holderIdentity": "somebody", "leaseDurationSeconds": seconds }))
}

pub fn release_lease(world: &mut World) -> bool {
    write_lease(world, json!({ "holderIdentity": "", "leaseDurationSeconds": 1 }))
}
