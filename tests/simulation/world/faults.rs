//! Faults of requests, watches, replicas and nodes, and edits of the Lease by hand.

use std::ops::Range;

use super::*;

impl World {
    /// Random requests, of one replica or of all.
    fn some_requests(&mut self) -> Requests {
        let requests = match self.dice.below(7) {
            0 | 1 => Requests::creates("pods"),
            2 => Requests::deletes("pods"),
            3 => Requests::status_patches("podsets"),
            4 => Requests::all().of("leases"),
            5 => Requests::all(),
            _ => Requests::mutating(),
        };
        let requests = if self.dice.one_in(2) { requests.from(&self.any_name()) } else { requests };
        requests.first(usize::try_from(self.dice.within(1..9)).unwrap_or(1))
    }

    /// Adds this fault for some requests. Returns `true`, like an action that was possible.
    pub fn fault(&mut self, fault: Fault) -> bool {
        let requests = self.some_requests();
        self.server.fault(requests, fault);
        true
    }

    pub fn fault_of_one(&mut self, fault: impl FnOnce(&ApiServer, &str) -> FaultRule) -> bool {
        let name = self.any_name();
        let rule = fault(&self.server, &name);
        let pause = self.dice.millis(1_000..30_000);
        self.later(pause, |_| rule.remove());
        true
    }

    pub fn freeze_one(&mut self, freeze: fn(&Replica, Duration)) -> bool {
        let (place, time) = (self.any(), self.dice.millis(100..25_000));
        self.note_freeze(place);
        freeze(&self.replicas[place], time);
        true
    }

    pub fn failing(&mut self, fault: fn(u16) -> Fault) -> bool {
        let code = self.dice.one(&[409, 429, 500, 503, 504]);
        self.fault(fault(code))
    }

    /// Delays some requests by a random time of this range.
    pub fn slow(&mut self, millis: Range<u64>, fault: fn(Duration) -> Fault) -> bool {
        let time = self.dice.millis(millis);
        self.fault(fault(time))
    }

    pub fn disturb(&mut self, act: fn(&WatchControl)) -> bool {
        act(&self.some_watches());
        true
    }

    pub fn webhook(&mut self, set: fn(&ApiServer)) -> bool {
        set(&self.server);
        let pause = self.dice.millis(500..8_000);
        self.later(pause, |world| world.server.lift_webhook());
        true
    }

    pub fn set_pod_script_for_a_while(&mut self, script: PodScript) -> bool {
        self.server.set_pod_script(script);
        let pause = self.dice.millis(5_000..30_000);
        self.later(pause, |world| world.server.set_pod_script(PodScript::default()));
        true
    }

    /// Random watches, of one replica or of all.
    pub fn some_watches(&mut self) -> WatchControl {
        let watches = self.server.watches();
        let watches = if self.dice.one_in(2) { watches.of(&self.any_name()) } else { watches };
        match self.dice.below(5) {
            0 => watches,
            1 | 2 => watches.on("pods"),
            3 => watches.on("podsets"),
            _ => watches.on("leases"),
        }
    }

    /// Replaces the spec of the Lease, or deletes the Lease, by hand. Returns whether this was possible.
    pub fn edit_lease(&mut self, spec: Option<Value>) -> bool {
        // The promise covers an edit only if each replica can see it. So all faults end first, and there is no edit while
        // a frozen replica has no watch, because it starts a new watch only after the freeze.
        let leases = |replica: &Replica| self.server.watches().of(&replica.name).on("leases").count();
        let hears = |replica: &Replica| !replica.is_frozen() || leases(replica) > 0;
        if self.server.get(&LEASES, LEASE.0, LEASE.1).is_null() || !self.replicas.iter().all(hears) {
            return false;
        }
        self.server.heal();
        self.server.edit_lease(LEASE, spec);
        true
    }

    /// Notes that the action freezes the replica at this index.
    pub fn note_freeze(&self, place: usize) {
        self.server.with(|state| state.coverage.freeze(&self.replicas[place].name));
    }
}

pub fn quota(world: &mut World) -> bool {
    if world.dice.one_in(2) {
        let pods = usize::try_from(world.dice.within(1..12)).unwrap_or(1);
        world.server.set_quota("default", pods);
    } else {
        world.server.lift_quota("default");
    }
    true
}

pub fn webhook_renames(world: &mut World) -> bool {
    world.webhook(|server| {
        server.change_new_pods(|pod| {
            pod["metadata"]["name"] = format!("renamed-{}", object::name(pod).replace("-pod", "-")).into();
        });
    })
}

/// Rejects all deletes of the pod that is first in line, and scales the set down. Protects at most one pod of each set,
/// and none that a webhook changed, so there is always another pod to delete.
pub fn protect_pod(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let pods = world.server.live_pods(namespace, set);
    let protected = world.server.with(|state| state.admission.protected.clone());
    let is_protected = |pod: &Value| protected.contains_key(object::uid(pod));
    if pods.len() < 2 || world.server.pods(namespace, set).iter().any(is_protected) {
        return false;
    }
    let as_requested = |pod: &String| is_as_requested(&world.server.get(&PODS, namespace, pod));
    let victims: Vec<String> = pods.iter().filter(|pod| as_requested(pod)).cloned().collect();
    let Some(pod) = world.dice.pick(&victims).cloned() else { return false };
    world.server.protect_pod(namespace, &pod);
    let cost = json!({ "controller.kubernetes.io/pod-deletion-cost": "-1" });
    world.server.patch(&PODS, namespace, &pod, json!({ "metadata": { "annotations": cost } }));
    let (replicas, pause) = (world.dice.within(1..pods.len() as u64).cast_signed(), world.dice.millis(0..2_000));
    world.later(pause, move |world| world.scale_if_there((namespace, set), replicas));
    true
}

pub fn hold_answers(world: &mut World) -> bool {
    let requests = world.some_requests();
    let held = world.server.fault(requests, Fault::HoldAnswer);
    let pause = world.dice.millis(100..12_000);
    world.later(pause, |_| held.release());
    true
}

/// The network holds bytes back.
pub fn arrive_late(world: &mut World) -> bool {
    let late = Fault::ArriveLate(world.time_in_transit());
    if world.dice.one_in(2) {
        return world.fault(late);
    }
    world.fault_of_one(|server, name| server.fault(Requests::all().from(name), late))
}

/// The first pages of lists arrive, but the next one fails.
pub fn fail_page(world: &mut World) -> bool {
    let fault = match world.dice.below(4) {
        0 => Fault::CutBefore,
        1 => Fault::ExecuteThenCut,
        2 => Fault::Refuse(Status::of_code(503)),
        _ => Fault::Refuse(Status::expired("The provided continue parameter is too old")),
    };
    let pages = Requests::all().verb(Verb::List).when(|request| !request.query("continue").is_empty());
    let pages = pages.first(usize::try_from(world.dice.within(1..5)).unwrap_or(1));
    world.server.fault(pages, fault);
    // A client whose watch expires relists. That alone does not count as a failed page.
    world.server.with(|state| state.coverage.begin("a watch expires"));
    world.some_watches().gone();
    true
}

pub fn shut_down(world: &mut World) -> bool {
    let place = world.any();
    world.shut_down(place, Duration::ZERO);
    true
}

/// Sometimes for longer than every lease. During this time, a replica may be shut down.
pub fn become_unreachable(world: &mut World) -> bool {
    world.server.become_unreachable();
    let pause = world.dice.millis(100..25_000);
    if world.dice.one_in(2) {
        let asked = world.dice.millis(0..10_000);
        world.later(asked, |world| _ = shut_down(world));
    }
    world.later(pause, |world| world.server.become_reachable());
    true
}

pub fn lift_all(world: &mut World) {
    world.server.heal();
    world.server.lift_quota("default");
    world.server.lift_webhook();
    world.server.set_pod_script(PodScript::default());
    world.server.settings(|settings| settings.request_latency = Duration::from_millis(1));
    for (namespace, set) in world.sets {
        users::mend_template(world, (namespace, set));
        // The operator deletes another surplus pod if one cannot be deleted, but a rollout waits for an old pod.
        let template = &world.server.podset(namespace, set)["spec"]["template"];
        let is_old = |pod: &&Value| {
            let revision = &pod["metadata"]["labels"]["controller-revision-hash"];
            revision.is_null() || !has_template(pod, template)
        };
        let pods = world.server.pods(namespace, set);
        let old: Vec<&str> = pods.iter().filter(is_old).map(object::uid).collect();
        world.server.with(|state| state.admission.protected.retain(|uid, _| !old.contains(&&**uid)));
        let strategy = &world.server.podset(namespace, set)["spec"]["updateStrategy"];
        let rolling = &strategy["rollingUpdate"];
        if strategy["type"] == "OnDelete" || rolling["paused"] == true || rolling["partition"].is_string() {
            let all = json!({ "type": "RollingUpdate", "rollingUpdate": { "paused": false, "partition": 0 } });
            world.server.patch(&PODSETS, namespace, set, json!({ "spec": { "updateStrategy": all } }));
        }
        for pod in world.server.live_pods(namespace, set) {
            world.server.set_ready(namespace, &pod, true);
        }
    }
}
