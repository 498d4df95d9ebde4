//! Combinations of faults: the attacks of `attacks` and `crates/leadership/tests/attacks`, with random times. At the
//! end of a world, `lift_all` ends the faults that they leave in force.

use super::*;

impl World {
    fn leader_and_name(&self) -> Option<(usize, String)> {
        let place = self.leader()?;
        Some((place, self.replicas[place].name.clone()))
    }

    fn any_standby(&mut self) -> Option<String> {
        let standbys: Vec<_> = self.replicas.iter().filter(|r| !r.leads()).map(|r| r.name.clone()).collect();
        self.dice.pick(&standbys).cloned()
    }

    fn lease(&self, place: usize) -> Duration {
        Duration::from_secs(self.replicas[place].model.timing.0)
    }

    /// Gives the leader pods to replace, now and for a while.
    fn keep_busy(&mut self, rounds: u64) {
        for (namespace, set) in self.sets {
            for pod in self.server.live_pods(namespace, set).iter().take(3) {
                self.server.kill_pod(namespace, pod);
            }
        }
        if rounds > 0 {
            self.later(Duration::from_millis(400), move |world| world.keep_busy(rounds - 1));
        }
    }

    /// Scales a set, unless it is gone or going.
    pub fn scale_if_there(&self, (namespace, set): (&'static str, &'static str), replicas: i64) {
        let stored = self.server.podset(namespace, set);
        if !stored.is_null() && !object::is_terminating(&stored) {
            self.server.scale(namespace, set, replicas);
        }
    }
}

/// E1: the leader is frozen between the check of its leadership and the socket.
pub fn frozen_in_the_middle(world: &mut World) -> bool {
    let Some((place, name)) = world.leader_and_name() else { return false };
    let lease = world.lease(place);
    world.note_freeze(place);
    world.replicas[place].freeze_writes(lease * 2 + world.dice.millis(0..4_000));
    world.server.watches().of(&name).on("leases").stall();
    world.server.fault(Requests::all().of("leases").from(&name), Fault::CutBefore);
    world.keep_busy(50);
    true
}

/// E2: the watch of a standby stalls, and its reads fail, until the Lease looks expired to it.
pub fn blind_standby(world: &mut World) -> bool {
    let (Some(name), Some((place, _))) = (world.any_standby(), world.leader_and_name()) else { return false };
    world.server.watches().of(&name).on("leases").stall();
    let lost = world.server.fault(Requests::all().of("leases").from(&name), Fault::CutBefore);
    let time = world.lease(place).max(Duration::from_secs(15)) + world.dice.millis(0..3_000);
    world.later(time, |world| {
        lost.remove();
        world.keep_busy(20);
    });
    true
}

/// E3: two standbys take over at the same time, because the watches of the Lease lag.
pub fn tie(world: &mut World) -> bool {
    let Some((place, _)) = world.leader_and_name() else { return false };
    let lag = world.dice.millis(100..1_500);
    let time = world.lease(place) + Duration::from_secs(4);
    world.server.watches().on("leases").delay(lag);
    world.replicas.remove(place).kill();
    world.start_replica();
    world.keep_busy(50);
    world.later(time, |world| world.server.watches().on("leases").release());
    true
}

/// E4: the answer to the last renewal of the leader is late, and then its writes are slow.
pub fn late_renewal(world: &mut World) -> bool {
    let Some((place, name)) = world.leader_and_name() else { return false };
    let held = world.server.fault(Requests::mutating().of("leases").from(&name), Fault::HoldAnswer);
    // Any later, and the leader no longer waits for the answer.
    let pause = Duration::from_millis(world.replicas[place].model.timing.1 * 1_000 * 9 / 20);
    let slow = world.dice.millis(500..4_000);
    when_hit(world, held, move |world, held| {
        world.later(pause, move |world| {
            held.release();
            world.server.fault(Requests::all().of("leases").from(&name), Fault::CutBefore);
            world.server.watches().of(&name).on("leases").stall();
            world.server.fault(Requests::mutating().of("pods").from(&name), Fault::Delay(slow));
            world.keep_busy(50);
        });
    });
    true
}

/// Calls `act` as soon as the fault has hit a request.
fn when_hit(world: &mut World, rule: FaultRule, act: impl FnOnce(&mut World, FaultRule) + 'static) {
    if rule.hits() > 0 {
        return act(world, rule);
    }
    world.later(Duration::from_millis(20), move |world| {
        // A fault that was healed will hit nothing any more.
        if rule.is_in_force() {
            when_hit(world, rule, act);
        }
    });
}

/// E6: the leader cannot reach the Lease until its term ends. The standbys may have other durations.
pub fn short_lease(world: &mut World) -> bool {
    let Some((_, name)) = world.leader_and_name() else { return false };
    world.server.fault(Requests::all().of("leases").from(&name), Fault::CutBefore);
    world.server.watches().of(&name).on("leases").stall();
    world.keep_busy(40);
    true
}

/// E7: the leader is shut down while creates are unanswered.
pub fn end_unanswered(world: &mut World) -> bool {
    let Some((place, name)) = world.leader_and_name() else { return false };
    let time = world.dice.millis(1_000..6_000);
    world.server.fault(Requests::creates("pods").from(&name).first(4), Fault::ExecuteUnanswered(time));
    world.keep_busy(20);
    let pause = world.dice.millis(20..500);
    world.shut_down(place, pause);
    true
}

/// A4: a standby takes over while its watches stall.
pub fn blind_takeover(world: &mut World) -> bool {
    let Some((place, _)) = world.leader_and_name() else { return false };
    for replica in world.replicas.iter().filter(|replica| !replica.leads()) {
        let watches = world.server.watches().of(&replica.name);
        watches.clone().on("pods").stall();
        watches.on("podsets").stall();
    }
    world.keep_busy(3);
    let leader = world.replicas[place].name.clone();
    world.later(Duration::from_secs(4), move |world| {
        if let Some(place) = world.replicas.iter().position(|replica| replica.name == leader) {
            world.shut_down(place, Duration::ZERO);
        }
    });
    true
}

/// A5: an old number of replicas arrives late.
pub fn old_replicas(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let lag = world.dice.millis(2_000..10_000);
    world.scale_if_there((namespace, set), 8);
    world.server.with(|state| state.coverage.place_fault());
    world.later(Duration::from_secs(2), move |world| {
        if world.server.podset(namespace, set).is_null() {
            return;
        }
        world.server.watches().on("podsets").delay(lag);
        let label = json!({ "metadata": { "labels": { "seen": "late" } } });
        world.server.patch(&PODSETS, namespace, set, label);
        world.later(Duration::from_secs(1), move |world| {
            world.scale_if_there((namespace, set), 2);
            for pod in world.server.live_pods(namespace, set).iter().take(1) {
                world.server.kill_pod(namespace, pod);
            }
        });
        world.later(lag + Duration::from_secs(5), |world| world.server.watches().on("podsets").release());
    });
    true
}

pub fn late_status(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let time = world.dice.millis(2_000..20_000);
    let (first, second) = (world.dice.within(1..11).cast_signed(), world.dice.within(1..11).cast_signed());
    let statuses = Requests::status_patches("podsets").in_namespace(namespace).named(set).first(1);
    world.server.fault(statuses, Fault::ExecuteUnanswered(time));
    world.scale_if_there((namespace, set), first);
    world.later(Duration::from_secs(1), move |world| world.scale_if_there((namespace, set), second));
    true
}

/// A1: a create is executed late, when its pod was replaced.
pub fn late_create(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let time = world.dice.millis(2_000..50_000);
    let script = PodScript::gone_after(world.dice.millis(1_000..15_000));
    world.server.set_pod_script(script);
    let creates = Requests::creates("pods").in_namespace(namespace).first(2);
    world.server.fault(creates, Fault::ExecuteLate(time));
    for pod in world.server.live_pods(namespace, set).iter().take(2) {
        world.server.kill_pod(namespace, pod);
    }
    for round in 1..4 {
        world.later(Duration::from_secs(round), move |world| {
            for pod in world.server.live_pods(namespace, set) {
                world.server.delete_pod(namespace, &pod);
            }
        });
    }
    true
}

/// A7: pods lose the watched label, and the set shrinks.
pub fn out_of_sight(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let live = world.server.live_pods(namespace, set);
    for pod in live.iter().take(live.len() / 2 + 1) {
        world.server.strip_label(namespace, pod);
    }
    let replicas = world.dice.within(1..6).cast_signed();
    let pause = world.dice.millis(0..3_000);
    world.later(pause, move |world| world.scale_if_there((namespace, set), replicas));
    true
}

/// Loses the next creates of a set, or their answers, and scales the set up and soon down again, so the operator does
/// not use their names again. Often this is the last action, so the leader does not change.
fn lose_creates(world: &mut World, fault: Fault, is_blind: bool) -> bool {
    let pause = world.dice.millis(0..90_000);
    world.server.with(|state| state.coverage.place_fault());
    world.later(pause, move |world| {
        let (Some((namespace, set)), Some((_, name))) = (world.set(), world.leader_and_name()) else { return };
        if is_blind {
            world.server.watches().of(&name).on("pods").stall();
        }
        let wanted = world.server.podset(namespace, set)["spec"]["replicas"].as_i64().unwrap_or(1).min(8);
        let creates = Requests::creates("pods").in_namespace(namespace).named(&format!("{set}-pod"));
        world.server.fault(creates.first(2), fault);
        world.scale_if_there((namespace, set), wanted + 2);
        let pause = world.dice.millis(100..1_000);
        world.later(pause, move |world| world.scale_if_there((namespace, set), wanted));
    });
    true
}

pub fn surplus_create(world: &mut World) -> bool {
    let time = world.dice.millis(25_000..59_000);
    lose_creates(world, Fault::ExecuteLate(time), false)
}

/// The set shrinks, and the leader does not see the pod of a lost answer for longer than a request may take.
pub fn unseen_create(world: &mut World) -> bool {
    lose_creates(world, Fault::ExecuteThenCut, true)
}

/// Deletes arrive late, when pods of users have the names.
pub fn late_delete(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let live = world.server.live_pods(namespace, set).len();
    let time = world.dice.millis(5_000..40_000);
    let deletes = Requests::deletes("pods").in_namespace(namespace);
    world.server.fault(deletes.clone().first(2), Fault::ExecuteLate(time));
    world.scale_if_there((namespace, set), live.saturating_sub(2).max(1) as i64);
    world.later(Duration::from_millis(1_500), move |world| {
        let mut late = world.server.requests(&deletes);
        late.retain(|entry| matches!(entry.fault, Some(Fault::ExecuteLate(_))));
        for late in late.iter().rev().take(2) {
            let name = &late.request.name;
            if !world.server.pod(namespace, name).is_null() {
                world.server.kill_pod(namespace, name);
            }
            world.try_to_create_pod(namespace, json!({ "name": name, "labels": { "app": "theirs" } }));
        }
    });
    true
}

pub fn unwatched(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    while let Some(replica) = world.replicas.pop() {
        replica.kill();
    }
    for pod in world.server.live_pods(namespace, set).iter().take(2) {
        world.server.strip_label(namespace, pod);
    }
    for _ in 0..3 {
        world.start_replica();
    }
    true
}

/// The store has no quorum: requests wait until they time out, and may take effect long after.
pub fn no_quorum(world: &mut World) -> bool {
    let most = world.dice.one(&[60_000, 120_000, 600_000]);
    let time = world.dice.millis(30_000..most);
    world.keep_busy(0);
    world.server.lose_quorum();
    world.outage = Some((Instant::now() + time, ApiServer::regain_quorum));
    true
}

/// The API server is unreachable for longer than the lease, and a replica is shut down in this time.
pub fn total_outage(world: &mut World) -> bool {
    let (place, longest) = (world.any(), world.timings.iter().map(|timing| timing.0).max().unwrap_or_default());
    let time = Duration::from_secs(longest) + world.dice.millis(1_000..60_000);
    let after = time.mul_f64(world.dice.below(100) as f64 / 100.0);
    world.keep_busy(0);
    world.server.become_unreachable();
    world.outage = Some((Instant::now() + time, ApiServer::become_reachable));
    world.shut_down(place, after);
    world.later(time + Duration::from_secs(1), |world| world.keep_busy(3));
    true
}
