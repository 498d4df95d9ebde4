//! Pods that go are made up for: what is told of it, and when it must not be done.

use std::time::Duration;

use podset_operator::controllers::podset::locks::Locks;
use tokio::time::sleep;

use super::{NS, seconds, settled};
use crate::{
    apiserver::{ApiServer, Fault, PODS, PodScript, Requests, Status, Verb},
    operator::Operator,
};

/// The pods' watch shows that they go before the sets' watch shows why, and the stored status still says that one is missing.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_deleted_out_of_sight_after_a_loss_gets_no_new_pods() {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    server.create_podset(NS, "web", 5);
    settled(&server, "web", 5).await;
    sleep(seconds(60)).await;
    server.pods_live(PodScript::never_ready());
    let refused = server.fault(Requests::creates("pods").first(1), Fault::Refuse(Status::of_code(403)));
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    server.wait_until(|s| s.live_pods(NS, "web").len() == 5, seconds(3)).await;
    refused.remove();
    assert_eq!(server.podset(NS, "web")["status"]["availableReplicas"], 4);
    let creates = server.count(&Requests::creates("pods"));
    server.watches().on("podsets").delay(seconds(10));
    server.delete_podset(NS, "web");
    server.wait_until(|s| s.podset(NS, "web").is_null() && s.all(&PODS, NS).is_empty(), seconds(60)).await;
    sleep(seconds(20)).await;
    assert_eq!(server.count(&Requests::creates("pods")), creates);
    operator.end().await;
}

/// As above, while the operator writes statuses of another set: that they are answered does not prove what the watch has shown.
#[tokio::test(start_paused = true)]
async fn statuses_of_other_sets_prove_nothing_until_the_watch_shows_them() {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    server.create_podset(NS, "web", 5);
    server.create_podset(NS, "other", 1);
    settled(&server, "web", 5).await;
    settled(&server, "other", 1).await;
    sleep(seconds(60)).await;
    // What is known of the other set stands still as well, but for what its own statuses are answered.
    server.pods_live(PodScript::never_ready());
    server.watches().on("podsets").delay(seconds(20));
    let reads = server.fault(Requests::all().verb(Verb::Get).of("podsets").first(2), Fault::CutBefore);
    server.delete_podset(NS, "web");
    server.kill_pod(NS, &server.live_pods(NS, "other")[0]);
    sleep(seconds(10)).await;
    assert_eq!(reads.hits(), 2);
    assert!(server.count(&Requests::status_patches("podsets").named("other")) > 1);
    assert_eq!(server.count(&Requests::creates("pods")), 5 + 1 + 1, "the other one's alone");
    operator.end().await;
}

/// More sets than are worked on at once.
#[tokio::test(start_paused = true)]
async fn where_many_sets_lose_pods_their_statuses_prove_that_those_that_wait_are_wanted() {
    const SETS: usize = 300;
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    let names: Vec<String> = (0..SETS).map(|n| format!("web-{n}")).collect();
    for name in &names {
        server.create_podset(NS, name, 2);
    }
    for name in &names {
        settled(&server, name, 2).await;
    }
    sleep(seconds(60)).await;
    server.settings(|settings| settings.answer_latency = Duration::from_millis(100));
    for name in &names {
        server.kill_pod(NS, &server.live_pods(NS, name)[0]);
    }
    for name in &names {
        server.wait_until(|s| s.live_pods(NS, name).len() == 2, seconds(10)).await;
    }
    let reads = server.count(&Requests::all().verb(Verb::Get).of("podsets"));
    assert!((64..SETS / 2).contains(&reads), "those that are worked on first are read: {reads}");
    server.check();
    operator.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_went_while_nobody_led_is_no_scale() {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    server.create_podset(NS, "web", 5);
    settled(&server, "web", 5).await;
    operator.end().await;
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    let operator = Operator::leader(&server, "b", Locks::default());
    sleep(seconds(2)).await;
    settled(&server, "web", 5).await;
    let told = ["ScaledUp", "PodsReplaced"].map(|reason| server.events(NS, reason).len());
    assert_eq!(told, [1, 1]);
    operator.end().await;
}
