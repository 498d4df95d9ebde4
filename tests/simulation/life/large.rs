//! Sets whose templates are too large to be kept in memory.

use super::*;

fn template(bytes: usize) -> Value {
    json!({ "spec": { "containers": [{ "name": "c", "image": "i", "workingDir": "x".repeat(bytes) }] } })
}

fn create(server: &ApiServer, name: &str, replicas: usize, bytes: usize) {
    let spec = json!({ "replicas": replicas, "template": template(bytes) });
    server.create(&PODSETS, NS, json!({ "metadata": { "name": name }, "spec": spec }));
}

/// The number of bytes of text in each pod of a set.
fn bytes(server: &ApiServer, set: &str) -> Vec<usize> {
    let pods = server.live_pods(NS, set).into_iter().map(|name| server.pod(NS, &name));
    pods.map(|pod| pod["spec"]["containers"][0]["workingDir"].as_str().map_or(0, str::len)).collect()
}

/// One pod of this size is created at a time, also from the former template.
#[tokio::test(start_paused = true)]
async fn pods_of_a_large_former_template_are_created_one_by_one() {
    let (server, _operator) = server_and_leader();
    create(&server, "web", 1, 600_000);
    settled(&server, "web", 1).await;
    let update = json!({ "rollingUpdate": { "partition": "100%" } });
    let spec = json!({ "template": template(1), "updateStrategy": update, "replicas": 8 });
    server.fault(Requests::creates("pods"), Fault::Delay(seconds(1)));
    let before = server.count(&Requests::creates("pods"));
    server.patch(&PODSETS, NS, "web", json!({ "spec": spec }));
    sleep(seconds(5) / 2).await;
    assert!((2..4).contains(&(server.count(&Requests::creates("pods")) - before)));
    server.wait_until(|s| bytes(s, "web") == [600_000; 8], seconds(20)).await;
}

#[tokio::test(start_paused = true)]
async fn sets_with_large_templates_take_turns_and_others_do_not_wait() {
    const SETS: usize = 70;
    let (server, _operator) = server_and_leader();
    server.fault(Requests::creates("pods"), Fault::Delay(seconds(1)));
    let names: Vec<String> = (0..SETS).map(|number| format!("large-{number}")).collect();
    for name in &names {
        create(&server, name, 1, 150_000);
    }
    sleep(seconds(1) / 2).await;
    // Each takes room for its template and a pod; one namespace has 6 of 8 MiB.
    assert_eq!(server.count(&Requests::creates("pods")), 20);
    server.create_podset(NS, "small", 2);
    server.wait_until(|s| s.live_pods(NS, "small").len() == 2, seconds(3)).await;
    let are_all_created = |s: &ApiServer| names.iter().all(|name| s.live_pods(NS, name).len() == 1);
    server.wait_until(are_all_created, seconds(20)).await;
    assert_eq!(bytes(&server, &names[SETS - 1]), [150_000]);
}
