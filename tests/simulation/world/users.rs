//! Actions of users and nodes.

use podset_operator::podset::names::pod_name;

use super::*;

const FRIENDS: [&str; 2] = ["joe", "ann"];

type Set = (&'static str, &'static str);
type Pod = (&'static str, String);

impl World {
    /// A random set that exists and is not being deleted.
    pub fn set(&mut self) -> Option<Set> {
        let (namespace, name) = self.dice.one(self.sets);
        let set = self.server.podset(namespace, name);
        (!set.is_null() && !object::is_terminating(&set)).then_some((namespace, name))
    }

    /// A random pod for which this holds, and its namespace.
    fn pod_that(&mut self, holds: fn(&Value) -> bool) -> Option<Pod> {
        let (namespace, set) = self.set()?;
        let pods = self.server.pods(namespace, set);
        let names: Vec<&str> = pods.iter().filter(|pod| holds(pod)).map(object::name).collect();
        Some((namespace, (*self.dice.pick(&names)?).to_owned()))
    }

    pub fn pod(&mut self) -> Option<Pod> {
        self.pod_that(object::is_live)
    }

    pub fn running_pod(&mut self) -> Option<Pod> {
        self.pod_that(|pod| object::is_live(pod) && object::phase(pod) == "Running")
    }

    pub fn failed_pod(&mut self) -> Option<Pod> {
        self.pod_that(|pod| object::phase(pod) == "Failed" && !object::is_terminating(pod))
    }

    /// A pod that is being deleted and has not finished, in half of the cases; otherwise a live one.
    pub fn any_pod(&mut self) -> Option<Pod> {
        let is_ending = |pod: &Value| object::is_terminating(pod) && !object::is_finished(pod);
        let ending = self.dice.one_in(2).then(|| self.pod_that(is_ending)).flatten();
        ending.or_else(|| self.pod())
    }

    pub fn act_on_pod(&mut self, which: fn(&mut World) -> Option<Pod>, act: fn(&ApiServer, &str, &str)) -> bool {
        which(self).map(|(namespace, pod)| act(&self.server, namespace, &pod)).is_some()
    }

    /// Does this to a set, once in `n` times.
    pub fn seldom_act_on_set(&mut self, n: u64, act: fn(&ApiServer, &str, &str)) -> bool {
        let set = self.set().filter(|_| self.dice.one_in(n));
        set.map(|(namespace, set)| act(&self.server, namespace, set)).is_some()
    }

    pub fn patch_set(&mut self, patch: fn(&mut Dice) -> Value) -> bool {
        let Some((namespace, set)) = self.set() else { return false };
        let patch = patch(&mut self.dice);
        self.server.patch(&PODSETS, namespace, set, patch);
        true
    }

    /// Creates a pod with this metadata. Returns whether the API server accepted it.
    pub fn try_to_create_pod(&self, namespace: &str, metadata: Value) -> bool {
        self.server.try_to_create(&PODS, namespace, pod(metadata)).is_ok()
    }

    fn is_open(&self, namespace: &str) -> bool {
        !object::is_terminating(&self.server.get(&NAMESPACES, "", namespace))
    }
}

pub fn change_template(world: &mut World) -> bool {
    let Some(set) = world.set() else { return false };
    let image = format!("example.com/app:{}", world.dice.below(9));
    set_image(world, set, &image);
    true
}

fn set_image(world: &mut World, (namespace, set): Set, image: &str) {
    // Every second template is too large for the operator to keep in memory.
    let text = "x".repeat(if world.dice.below(2) == 0 { 0 } else { 20_000 });
    let template = json!({ "spec": { "containers": [{ "name": "app", "image": image, "workingDir": text }] } });
    world.server.patch(&PODSETS, namespace, set, json!({ "spec": { "template": template } }));
}

/// Sets a template whose pods never become ready, and mends it some time later.
pub fn break_template(world: &mut World) -> bool {
    let Some(set) = world.set() else { return false };
    let image = format!("example.com/broken:{}", world.dice.below(9));
    set_image(world, set, &image);
    let pause = world.dice.millis(5_000..40_000);
    world.later(pause, move |world| mend_template(world, set));
    true
}

pub fn mend_template(world: &mut World, (namespace, set): Set) {
    let stored = world.server.podset(namespace, set);
    if !object::is_terminating(&stored) && object::has_broken_image(&stored["spec"]["template"]) {
        set_image(world, (namespace, set), "example.com/app:mended");
    }
}

pub fn delete_revision(world: &mut World) -> bool {
    let Some((namespace, _)) = world.set() else { return false };
    let stored = world.server.all(&REVISIONS, namespace);
    let Some(revision) = world.dice.pick(&stored) else { return false };
    world.server.delete(&REVISIONS, namespace, object::name(revision), &Value::Null);
    true
}

pub fn another_strategy(dice: &mut Dice) -> Value {
    let max_unavailable = dice.one(&["10%", "25%", "50%", "100%"]);
    let partition = dice.one(&["0%", "0%", "20%", "50%"]);
    let (is_paused, waits) = (dice.one_in(4), dice.one_in(3));
    let rolling = json!({ "maxUnavailable": max_unavailable, "partition": partition, "paused": is_paused });
    let strategy = match (max_unavailable, partition) {
        // One strategy in 16.
        ("100%", "50%") => json!({ "type": "OnDelete", "rollingUpdate": null }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": rolling }),
    };
    json!({ "spec": { "updateStrategy": strategy, "minReadySeconds": if waits { 3 } else { 0 } } })
}

pub fn delete_set(world: &mut World) -> bool {
    let (namespace, name) = world.dice.one(world.sets);
    if !world.server.podset(namespace, name).is_null() {
        let is_open = world.set() == Some((namespace, name));
        if is_open {
            world.server.delete_podset(namespace, name);
        }
        return is_open;
    }
    let replicas = world.dice.within(1..11).cast_signed();
    let is_open = world.is_open(namespace);
    if is_open {
        world.server.create_podset(namespace, name, replicas);
    }
    is_open
}

pub fn delete_namespace(world: &mut World) -> bool {
    const DOOMED: &str = "other";
    let is_there = !world.server.get(&NAMESPACES, "", DOOMED).is_null() && world.is_open(DOOMED);
    let is_it = is_there && world.dice.one_in(4);
    if is_it {
        world.server.delete_namespace(DOOMED);
    }
    is_it
}

/// In half of the cases the pod is being deleted.
pub fn strip_label(world: &mut World) -> bool {
    let Some((namespace, pod)) = world.pod() else { return false };
    if world.dice.one_in(2) {
        world.server.delete_pod(namespace, &pod);
    }
    // A pod without a node is gone at once.
    let is_there = !world.server.pod(namespace, &pod).is_null();
    if is_there {
        world.server.strip_label(namespace, &pod);
    }
    is_there
}

/// A user creates a pod with a name that the operator may use.
pub fn take_name(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let uid = object::uid(&world.server.podset(namespace, set)).to_owned();
    let index = u32::try_from(world.dice.below(16)).unwrap_or_default();
    let name = pod_name(set, &uid, index);
    let is_free = world.server.pod(namespace, &name).is_null();
    is_free && world.try_to_create_pod(namespace, json!({ "name": name, "labels": { "app": "theirs" } }))
}

/// A user kills a pod of a set, and creates another one with the same name and labels.
pub fn replace_pod(world: &mut World) -> bool {
    let Some((namespace, name)) = world.pod() else { return false };
    let labels = world.server.pod(namespace, &name)["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    world.server.kill_pod(namespace, &name);
    world.try_to_create_pod(namespace, json!({ "name": name, "labels": labels }))
}

/// A user creates a pod in another namespace with a set as its owner.
pub fn claim(world: &mut World) -> bool {
    let Some((namespace, set)) = world.set() else { return false };
    let elsewhere = if namespace == "default" { "other" } else { "default" };
    if !world.is_open(elsewhere) {
        return false;
    }
    let uid = object::uid(&world.server.podset(namespace, set)).to_owned();
    let name = pod_name(set, &uid, u32::try_from(world.dice.below(16)).unwrap_or_default());
    let owner = object::owner_reference(set, &uid);
    let labels = if world.dice.one_in(2) { json!({ LABEL: "podset-operator" }) } else { json!({}) };
    let metadata = json!({ "name": name, "labels": labels, "ownerReferences": [owner] });
    world.try_to_create_pod(elsewhere, metadata)
}

pub fn seek_friend(world: &mut World) -> bool {
    let friend = world.dice.one(&FRIENDS);
    let is_new = world.server.get(&MYCUSTOMRESOURCES, "default", friend).is_null();
    if is_new {
        world.server.create_mycustomresource("default", friend, friend);
    }
    is_new
}

pub fn toggle_friend(world: &mut World) -> bool {
    let (friend, namespace) = (world.dice.one(&FRIENDS), world.dice.one(&["default", "other"]));
    let stored = world.server.get(&PODS, namespace, friend);
    if !stored.is_null() {
        world.server.kill_pod(namespace, friend);
        return true;
    }
    world.try_to_create_pod(namespace, json!({ "name": friend }))
}
