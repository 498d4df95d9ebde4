//! What must be true when nothing goes wrong any more.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{World, deeds::Kind, faults};
use crate::apiserver::{ApiServer, LEASES, MYCUSTOMRESOURCES, PODS, Requests, object};

/// Within how many seconds all is as it should be: a request may land late for 60 s, pods that kept failing are replaced
/// after 300 s at most, and before either somebody has to lead.
const CONVERGES: u64 = 420;

/// How long a request may take effect: until then the end may not be the end.
const MAY_LAND: Duration = Duration::from_secs(61);

/// For how many seconds nothing may be asked for.
const SILENT: u64 = 30;

/// Waits until everything is as it should be, and stays so in silence.
pub async fn reached(world: &mut World) -> Result<(), String> {
    // Whoever waits for a fault to meet something waits no longer.
    world.server.heal();
    world.sit_out().await;
    while let Some((at, _)) = world.later.last_key_value().map(|(key, _)| *key) {
        world.until(at).await;
    }
    world.sit_out().await;
    faults::lift_all(world);
    let (mut left, landed) = (CONVERGES, Instant::now() + MAY_LAND);
    loop {
        world.replace_the_dead();
        let wrong = what_is_wrong(world);
        if world.broken().is_some() || (wrong.is_empty() && Instant::now() >= landed) {
            break;
        }
        left =
            left.checked_sub(1).ok_or_else(|| format!("not converged after {CONVERGES} s:\n{}", wrong.join("\n")))?;
        sleep(Duration::from_secs(1)).await;
    }
    if world.deeds.iter().all(|deed| deed.kind == Kind::User) {
        within_budget(world)?;
    }
    // It takes its time, so one world of four is enough.
    if !world.dice.one_in(4) {
        return Ok(());
    }
    // Who follows a watch that is mute asks by itself after 150 s; what a watch has not confirmed after a minute is read once.
    sleep(Duration::from_secs(215)).await;
    let mark = world.server.mark();
    sleep(Duration::from_secs(SILENT)).await;
    let requests = world.server.requests_since(mark);
    let leader = world.leader().map(|place| world.replicas[place].name().to_owned());
    let is_renewal = |instance: &str| Some(instance) == leader.as_deref();
    if let Some(noise) = requests.iter().find(|r| *r.request.kind != LEASES || !is_renewal(&r.request.instance)) {
        return Err(format!("not silent at rest: {}", noise.line()));
    }
    world.replace_the_dead();
    match what_is_wrong(world) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(format!("did not stay converged:\n{}", wrong.join("\n"))),
    }
}

/// What a world in which nothing went wrong may have cost: creates for its pods and for names that strangers had; for each
/// thing that users did two status patches, for pods that go or come to be ready later one more, and for each pod that a rollout
/// made another one; and two events.
fn within_budget(world: &World) -> Result<(), String> {
    let count = |requests: Requests| world.server.count(&requests);
    let (creates, made) = (count(Requests::creates("pods")), world.server.effects(&Requests::creates("pods")));
    let done = world.story.len() + world.sets.len();
    let (patches, events) = (count(Requests::status_patches("podsets")), count(Requests::creates("events")));
    if creates > made + done || patches > 3 * done + made || events > 2 * done {
        return Err(format!("{done} deeds cost {creates} creates of {made} pods, {patches} patches, {events} events"));
    }
    Ok(())
}

fn what_is_wrong(world: &World) -> Vec<String> {
    let mut wrong: Vec<String> =
        world.sets.iter().filter_map(|(namespace, name)| set_is_right(&world.server, namespace, name).err()).collect();
    for resource in world.server.all(&MYCUSTOMRESOURCES, "") {
        let friend = &resource["spec"]["name"];
        let is_there = world.server.all(&PODS, "").iter().any(|pod| pod["metadata"]["name"] == *friend);
        if resource["status"]["Healthy"] != is_there {
            wrong.push(format!("the friend {friend}: {}, and it is {is_there}", resource["status"]));
        }
    }
    for (name, ending) in &world.ending {
        if !ending.is_finished() {
            wrong.push(format!("{name} was asked to end, and did not"));
        }
    }
    if world.replicas.iter().filter(|replica| replica.leads()).count() != 1 {
        wrong.push("not one leads".to_owned());
    }
    wrong
}

/// Whether all pods have the template of the spec, according to the status.
fn is_rolled_out(set: &Value) -> bool {
    let (spec, status) = (&set["spec"], &set["status"]);
    spec["updateStrategy"]["type"] == "OnDelete"
        || (status["updatedReplicas"] == spec["replicas"] && status["currentRevision"] == status["updateRevision"])
}

/// Whether a set is as its spec wants it, and its status says so.
fn set_is_right(server: &ApiServer, namespace: &str, name: &str) -> Result<(), String> {
    let set = server.podset(namespace, name);
    if set.is_null() {
        return Ok(());
    }
    let (wanted, status) = (&set["spec"]["replicas"], &set["status"]);
    let live = server.live_pods(namespace, name);
    let finished = server.pods(namespace, name).iter().filter(|pod| object::is_finished(pod)).count();
    let conditions: Vec<&Value> = status["conditions"].as_array().into_iter().flatten().collect();
    let is_ready = matches!(conditions[..], [only] if only["type"] == "Ready" && only["status"] == "True");
    let facts = [
        (wanted.as_u64() == u64::try_from(live.len()).ok(), "as many pods as it wants"),
        (server.ready_pods(namespace, name).len() == live.len(), "only ready pods"),
        (status["podNames"] == json!(live), "the names of its pods in its status"),
        (status["readyReplicas"] == *wanted && status["availableReplicas"] == *wanted, "its numbers in its status"),
        (status["observedGeneration"] == set["metadata"]["generation"], "its generation in its status"),
        (is_ready, "the one condition Ready"),
        (finished <= 3, "3 finished pods at most"),
        (is_rolled_out(&set), "its template in all pods"),
    ];
    match facts.iter().find(|(is_so, _)| !is_so) {
        None => Ok(()),
        Some((_, what)) => Err(format!("{namespace}/{name} has not {what}: {live:?}, spec {}, {status}", set["spec"])),
    }
}
