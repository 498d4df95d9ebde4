//! What a new leader does before its first write, and what it leaves alone.

use podset_operator::podset::promise::Rules;
use tokio::time::sleep;

use super::{NS, is_silent, seconds, settled};
use crate::{
    apiserver::{ApiServer, Fault, Requests, Status, Verb},
    operator::Operator,
};

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing_where_nothing_is_to_be_done() {
    let server = ApiServer::new(1);
    let first = Operator::leader(&server, "a", Rules::default());
    server.create_podset(NS, "web", 3);
    server.create_mycustomresource(NS, "one", "joe");
    settled(&server, "web", 3).await;
    first.end().await;
    let _second = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(30)).await;
    assert_eq!(server.count(&Requests::mutating().from("b")), 0);
    is_silent(&server, 1_500).await;
}

/// A set in each of thirty namespaces, which wants a second pod while nobody leads, and a standby, "b".
async fn thirty_sets_that_wait() -> (ApiServer, Operator) {
    let server = ApiServer::new(1);
    let first = Operator::leader(&server, "a", Rules::default());
    for namespace in thirty_namespaces() {
        server.create_namespace(&namespace);
        server.create_podset(&namespace, "web", 1);
    }
    sleep(seconds(30)).await;
    first.end().await;
    let second = Operator::standby(&server, "b", Rules::default());
    for namespace in thirty_namespaces() {
        server.scale(&namespace, "web", 2);
    }
    sleep(seconds(5)).await;
    (server, second)
}

fn thirty_namespaces() -> impl Iterator<Item = String> {
    (0..30).map(|number| format!("team-{number}"))
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_with_much_to_do_reads_each_namespace_once() {
    let (server, mut operator) = thirty_sets_that_wait().await;
    let lists = || server.count(&Requests::all().from("b").verb(Verb::List));
    let before = lists();
    operator.lead();
    sleep(seconds(1)).await;
    for namespace in thirty_namespaces() {
        assert_eq!(server.live_pods(&namespace, "web").len(), 2, "{namespace}");
    }
    assert_eq!(lists() - before, 61, "the sets and pods of each, and the sets that are older than the term");
    server.check();
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_that_cannot_read_does_not_ask_again_and_again() {
    let (server, mut operator) = thirty_sets_that_wait().await;
    let lists = || Requests::all().from("b").verb(Verb::List);
    let refused = server.fault(lists(), Fault::Refuse(Status::of_code(503)));
    let before = server.count(&lists());
    operator.lead();
    sleep(seconds(10)).await;
    let tried = server.count(&lists()) - before;
    assert_eq!(tried, 31 * 4, "after 0, 1, 3, 7 s for each namespace, and for the term");
    refused.remove();
    sleep(seconds(8)).await;
    for namespace in thirty_namespaces() {
        assert_eq!(server.live_pods(&namespace, "web").len(), 2, "{namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_read_holds_up_no_other() {
    let server = ApiServer::new(1);
    server.create_podset("a-first", "web", 2);
    server.create_podset("b-second", "web", 2);
    let mut operator = Operator::standby(&server, "b", Rules::default());
    sleep(seconds(1)).await;
    server.fault(Requests::all().verb(Verb::List).in_namespace("a-first"), Fault::Refuse(Status::of_code(403)));
    operator.lead();
    sleep(seconds(12)).await;
    assert_eq!(server.live_pods("b-second", "web").len(), 2);
    assert_eq!(server.live_pods("a-first", "web").len(), 0, "what was there before the term is not known");
    server.check();
}
