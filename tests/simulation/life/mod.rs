//! PodSets and MyCustomResources over time: how many requests they cost, what users see, and that nothing is sent at rest.

mod events;
mod fairness;
mod large;
mod namespaces;
mod takeover;
mod told;
mod unwell;

use std::time::Duration;

use podset_operator::podset::promise::Rules;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    NS,
    apiserver::{ApiServer, Fault, MYCUSTOMRESOURCES, PODS, PODSETS, PodScript, Requests, Status, Verb, object},
    assert_silent, condition,
    operator::Operator,
    replica::{Model, Replica},
    seconds, server_and_leader, with_set,
};

async fn settled(server: &ApiServer, set: &str, n: usize) {
    let is_settled = |s: &ApiServer| {
        let status = &s.podset(NS, set)["status"];
        let counts = ["readyReplicas", "availableReplicas", "terminatingReplicas"].map(|count| status[count].clone());
        counts == [json!(n), json!(n), json!(0)] && ready_reason(s, set) == "AllPodsReady"
    };
    server.wait_until(is_settled, seconds(60)).await;
}

fn ready_reason(server: &ApiServer, set: &str) -> String {
    let set = server.podset(NS, set);
    object::condition(&set, "Ready").map_or_else(String::new, |held| held["reason"].as_str().unwrap().to_owned())
}

/// Creates are slow, for example because of a webhook: each takes longer than the 4 s in which a pass may begin requests.
#[tokio::test(start_paused = true)]
async fn slow_creates_run_in_growing_batches() {
    let (server, _operator) = server_and_leader();
    server.fault(Requests::creates("pods"), Fault::Delay(seconds(5)));
    server.create_podset(NS, "web", 10);
    // One, two, four, and the other three.
    server.wait_until(|s| s.live_pods(NS, "web").len() == 10, seconds(21)).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_removes_annotations_does_not_end_the_backoff() {
    // The watch is faster than the response, or slower.
    for answer_latency in [0, 200] {
        let (server, _operator) = server_and_leader();
        server.settings(|settings| settings.answer_latency = Duration::from_millis(answer_latency));
        server.change_new_pods(|pod| _ = pod["metadata"].as_object_mut().unwrap().remove("annotations"));
        server.set_pod_script(PodScript::fails_after(seconds(1)));
        server.create_podset(NS, "web", 1);
        sleep(seconds(300)).await;
        let creates = server.count(&Requests::creates("pods"));
        assert!((7..=11).contains(&creates), "one pod after each wait of 0, 1, 2, 4, … s: {creates}");
    }
}

/// The watch of the pods may show the deletions before the watch of the sets shows the reason.
#[tokio::test(start_paused = true)]
async fn a_deleted_set_gets_no_new_pods() {
    for delete in [ApiServer::delete_podset, ApiServer::delete_podset_in_foreground] {
        for lag in [0, 10] {
            let (server, _operator) = with_set(3, Rules::default()).await;
            let creates = server.count(&Requests::creates("pods"));
            server.watches().on("podsets").delay(seconds(lag));
            delete(&server, NS, "web");
            server.wait_until(|s| s.podset(NS, "web").is_null() && s.all(&PODS, NS).is_empty(), seconds(60)).await;
            sleep(seconds(lag)).await;
            assert_silent(&server, 600).await;
            assert_eq!(server.count(&Requests::creates("pods")), creates);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_does_not_decode_blocks_no_other_and_its_fix_is_tried_at_once() {
    let (server, _operator) = server_and_leader();
    let odd = json!({ "metadata": { "name": "odd" }, "spec": { "replicas": 2, "template": { "metadata": "odd" } } });
    server.create(&PODSETS, NS, odd);
    // Nested deeper than serde_json decodes, and small enough to be kept in memory: the set is stored, its template is passed on unchanged, and its pods are rejected.
    let nested = (0..150).fold(json!("end"), |within, _| json!({ "a": within }));
    let deep = json!({ "metadata": { "name": "deep" }, "spec": { "replicas": 2, "template": { "spec": nested } } });
    server.create(&PODSETS, NS, deep);
    server.create_podset(NS, "web", 2);
    settled(&server, "web", 2).await;
    for name in ["odd", "deep"] {
        assert_eq!(ready_reason(&server, name), "InvalidTemplate");
        assert_eq!(server.pods(NS, name).len(), 0);
    }
    let mark = server.mark();
    sleep(seconds(600)).await;
    let lines: Vec<String> = server.requests_since(mark).iter().map(|entry| entry.line()).collect();
    assert!(lines.len() < 25 && lines.iter().all(|line| line.contains("controllerrevisions/deep-")), "{lines:#?}");
    for name in ["odd", "deep"] {
        server.patch(&PODSETS, NS, name, json!({ "spec": { "template": null } }));
        server.wait_until(|s| s.live_pods(NS, name).len() == 2, seconds(3)).await;
    }
    assert!(server.has_broken("Cannot create pods: error decoding body"), "observers see no request without a body");
}

#[tokio::test(start_paused = true)]
async fn a_friend_is_reported_at_once() {
    let (server, _operator) = server_and_leader();
    server.create_mycustomresource(NS, "one", "joe");
    let healthy = |s: &ApiServer| s.get(&MYCUSTOMRESOURCES, NS, "one")["status"]["Healthy"].clone();
    server.wait_until(|s| healthy(s) == json!(false), seconds(5)).await;
    server.create_pod("elsewhere", "joe", json!({}));
    server.wait_until(|s| healthy(s) == json!(true), seconds(1)).await;
    let of_all = Requests::all().verb(Verb::Watch).of("pods").when(|request| request.query("labelSelector").is_empty());
    let of_metadata = of_all.clone().when(|request| request.header("accept").contains("PartialObjectMetadata"));
    assert_eq!(server.count(&of_metadata), 1, "only metadata is requested");
    assert_eq!(server.count(&of_all), 1);
    server.watches().of("a").replay(10);
    server.watches().of("a").gone();
    sleep(seconds(30)).await;
    assert_eq!(healthy(&server), json!(true));
    assert_eq!(server.count(&Requests::status_patches("mycustomresources")), 2);
    server.set_pod_script(PodScript::gone_after(seconds(30)));
    server.delete_pod("elsewhere", "joe");
    sleep(seconds(20)).await;
    assert_eq!(healthy(&server), json!(true), "it exists until it has terminated");
    sleep(seconds(9)).await;
    server.wait_until(|s| healthy(s) == json!(false), seconds(2)).await;
    let status = &server.get(&MYCUSTOMRESOURCES, NS, "one")["status"];
    assert_eq!(status["conditions"][0]["reason"], "FriendMissing");
    assert_silent(&server, 600).await;
}
