//! The checks at the end of a world, after all faults.

use tokio::time::sleep;

use super::{actions::Kind, *};

/// The time to converge, in seconds: a replica must become the leader, a late request may land for 60 s, and pods that
/// kept failing are replaced after 300 s at most.
const CONVERGES: u64 = 420;

/// How long a late request may still take effect. The world may not end before.
const MAY_LAND: Duration = Duration::from_secs(61);

/// For how many seconds a converged world must send no requests.
const SILENT: u64 = 30;

/// Ends all faults. Waits until the world converges, and checks that it stays converged without requests.
pub async fn converges(world: &mut World) -> Result<(), String> {
    // This also ends the actions that wait for a fault to hit a request.
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
        let wrong = problems(world);
        if world.broken().is_some() || (wrong.is_empty() && Instant::now() >= landed) {
            break;
        }
        left =
            left.checked_sub(1).ok_or_else(|| format!("not converged after {CONVERGES} s:\n{}", wrong.join("\n")))?;
        sleep(Duration::from_secs(1)).await;
    }
    if world.actions.iter().all(|action| action.kind == Kind::User) {
        within_budget(world)?;
    }
    // This takes long, so one world in four is enough.
    if !world.dice.one_in(4) {
        return Ok(());
    }
    // A replica restarts a silent watch after 150 s, and reads an object that no watch confirmed after a minute.
    sleep(Duration::from_secs(215)).await;
    let mark = world.server.mark();
    sleep(Duration::from_secs(SILENT)).await;
    let requests = world.server.requests_since(mark);
    let leader = world.leader().map(|place| world.replicas[place].name.clone());
    let is_renewal = |instance: &str| Some(instance) == leader.as_deref();
    if let Some(noise) = requests.iter().find(|r| *r.request.kind != LEASES || !is_renewal(&r.request.instance)) {
        return Err(format!("not silent at rest: {}", noise.line()));
    }
    if let Some(dead) = world.replicas.iter().find(|replica| replica.has_ended()) {
        return Err(format!("{} exited at rest", dead.name));
    }
    match problems(world) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(format!("did not stay converged:\n{}", wrong.join("\n"))),
    }
}

/// Checks the number of requests in a world without faults. Creates: one per created pod, and one per action, because a
/// user's pod may have the name. Status patches: three per action, one of them for pods that go or become ready later,
/// and one per created pod. Events: two per action.
fn within_budget(world: &World) -> Result<(), String> {
    let count = |requests: Requests| world.server.count(&requests);
    let (creates, made) = (count(Requests::creates("pods")), world.server.effects(&Requests::creates("pods")));
    let done = world.story.len() + world.sets.len();
    let (patches, events) = (count(Requests::status_patches("podsets")), count(Requests::creates("events")));
    if creates > made + done || patches > 3 * done + made || events > 2 * done {
        return Err(format!("{done} actions: {creates} creates of {made} pods, {patches} patches, {events} events"));
    }
    Ok(())
}

fn problems(world: &World) -> Vec<String> {
    let mut wrong: Vec<String> =
        world.sets.iter().filter_map(|(namespace, name)| check_set(&world.server, namespace, name).err()).collect();
    for resource in world.server.all(&MYCUSTOMRESOURCES, "") {
        let friend = &resource["spec"]["name"];
        let is_there = world.server.all(&PODS, "").iter().any(|pod| pod["metadata"]["name"] == *friend);
        if resource["status"]["Healthy"] != is_there {
            wrong.push(format!("the friend {friend}: {}, but its pod exists: {is_there}", resource["status"]));
        }
    }
    for (name, ending) in &world.ending {
        if !ending.is_finished() {
            wrong.push(format!("{name} did not shut down"));
        }
    }
    if world.replicas.iter().filter(|replica| replica.leads()).count() != 1 {
        wrong.push("the number of leaders is not 1".to_owned());
    }
    wrong
}

/// Whether all pods have the template of the spec, according to the status.
fn is_rolled_out(set: &Value) -> bool {
    let (spec, status) = (&set["spec"], &set["status"]);
    spec["updateStrategy"]["type"] == "OnDelete"
        || (status["updatedAvailableReplicas"] == spec["replicas"]
            && status["currentRevision"] == status["updateRevision"])
}

/// Checks that a set matches its spec, and that its status reports this.
fn check_set(server: &ApiServer, namespace: &str, name: &str) -> Result<(), String> {
    let set = server.podset(namespace, name);
    if set.is_null() {
        return Ok(());
    }
    let (wanted, status) = (&set["spec"]["replicas"], &set["status"]);
    let live = server.live_pods(namespace, name);
    let finished = server.pods(namespace, name).iter().filter(|pod| object::is_finished(pod)).count();
    let ends = |pod: &&Value| object::is_terminating(pod) && !object::is_finished(pod);
    let terminating = server.pods(namespace, name).iter().filter(ends).count();
    let conditions: Vec<&Value> = status["conditions"].as_array().into_iter().flatten().collect();
    let is_ready = matches!(conditions[..], [only] if only["type"] == "Ready" && only["status"] == "True");
    let facts = [
        (wanted.as_u64() == u64::try_from(live.len()).ok(), "the wanted number of pods"),
        (server.ready_pods(namespace, name).len() == live.len(), "only ready pods"),
        (status["podNames"] == json!(live), "the names of its pods in its status"),
        (status["readyReplicas"] == *wanted && status["availableReplicas"] == *wanted, "its replicas in its status"),
        (status["observedGeneration"] == set["metadata"]["generation"], "its generation in its status"),
        (status["terminatingReplicas"] == json!(terminating), "its terminating pods in its status"),
        (is_ready, "the single condition Ready=True"),
        (finished <= 3, "at most 3 finished pods"),
        (is_rolled_out(&set), "its template in all pods"),
    ];
    match facts.iter().find(|(is_so, _)| !is_so) {
        None => Ok(()),
        Some((_, what)) => Err(format!("{namespace}/{name} lacks {what}: {live:?}, spec {}, {status}", set["spec"])),
    }
}
