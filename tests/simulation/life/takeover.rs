//! A new leader lists each namespace before its first write there, and no namespace waits for another. It writes nothing if there is nothing
//! to do.

use super::*;

/// A server without a leader. Each namespace has four sets with two pods.
async fn without_leader(namespaces: &[impl AsRef<str>]) -> ApiServer {
    let server = ApiServer::new(1);
    for namespace in namespaces {
        for set in sets() {
            server.create_podset(namespace.as_ref(), &set, 2);
        }
    }
    let first = Operator::leader(&server, "a", Rules::default());
    sleep(seconds(10)).await;
    first.end().await;
    server
}

/// Starts a standby, `b`, on a server without a leader. Each namespace has four sets that need a third pod.
async fn standby(namespaces: &[impl AsRef<str>]) -> (ApiServer, Operator) {
    let server = without_leader(namespaces).await;
    let standby = Operator::standby(&server, "b", Rules::default());
    for namespace in namespaces {
        for set in sets() {
            server.scale(namespace.as_ref(), &set, 3);
        }
    }
    sleep(seconds(5)).await;
    (server, standby)
}

fn sets() -> impl Iterator<Item = String> {
    (0..4).map(|number| format!("web-{number}"))
}

fn are_written(server: &ApiServer, namespace: &str) -> bool {
    sets().all(|set| server.live_pods(namespace, &set).len() == 3)
}

fn lists() -> Requests {
    Requests::all().from("b").verb(Verb::List)
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing_if_there_is_nothing_to_do() {
    let server = ApiServer::new(1);
    let first = Operator::leader(&server, "a", Rules::default());
    server.create_podset(NS, "web", 3);
    server.create_mycustomresource(NS, "one", "joe");
    settled(&server, "web", 3).await;
    first.end().await;
    let _second = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(30)).await;
    assert_eq!(server.count(&Requests::mutating().from("b")), 0);
    assert_silent(&server, 1_500).await;
}

/// A namespace is listed for one set that begins to wait for terminations. Its other sets need no second list, also after another namespace
/// was listed.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_read_for_one_set_is_not_read_again() {
    let server = without_leader(&["amber", "blue"]).await;
    let _second = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(5)).await;
    for namespace in ["amber", "blue"] {
        server.wait_for_termination(namespace, "web-0");
        sleep(seconds(5)).await;
    }
    let amber = || server.count(&lists().in_namespace("amber"));
    assert_eq!(amber(), 2, "its sets and its pods");
    for set in sets() {
        server.kill_pod("amber", &server.live_pods("amber", &set)[0]);
    }
    sleep(seconds(5)).await;
    assert!(sets().all(|set| server.live_pods("amber", &set).len() == 2));
    assert_eq!(amber(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lists_a_namespace_ends_at_once() {
    let (server, mut operator) = standby(&["amber"]).await;
    let list = server.fault(lists().of("pods").in_namespace("amber"), Fault::HoldAnswer);
    operator.lead();
    server.wait_until(|_| list.hits() > 0, seconds(5)).await;
    let start = Instant::now();
    operator.end().await;
    assert!(start.elapsed() < seconds(1), "{:?}", start.elapsed());
}

/// Each switch needs a read that begins later.
#[tokio::test(start_paused = true)]
async fn sets_that_begin_to_wait_one_after_the_other_do_not_stop_the_others() {
    let (server, mut operator) = standby(&["amber"]).await;
    let more: Vec<String> = (0..20).map(|number| format!("more-{number}")).collect();
    for name in &more {
        server.create_podset("amber", name, 1);
    }
    operator.lead();
    sleep(seconds(10)).await;
    server.fault(lists().in_namespace("amber"), Fault::Delay(seconds(3)));
    for (number, name) in more.iter().enumerate() {
        server.wait_for_termination("amber", name);
        sleep(seconds(1)).await;
        if number == 3 {
            server.kill_pod("amber", &server.live_pods("amber", "web-0")[0]);
        }
        assert!(number < 6 || server.live_pods("amber", "web-0").len() == 3, "it waits for the others");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_fail_midway_delay_only_their_own_namespace() {
    let (server, mut operator) = standby(&["amber", "blue", "green"]).await;
    server.settings(|settings| settings.page = 5);
    // The second page of the pods of one namespace fails.
    let second = lists().of("pods").in_namespace("amber").when(|request| !request.query("continue").is_empty());
    let amber = server.fault(second, Fault::Refuse(Status::of_code(403)));
    operator.lead();
    server.wait_until(|s| are_written(s, "green") && are_written(s, "blue"), seconds(1)).await;
    sleep(seconds(20)).await;
    assert!(sets().all(|set| server.live_pods("amber", &set).len() == 2), "its pods are not known yet");
    assert!(amber.hits() >= 4, "{}", amber.hits());
    amber.remove();
    server.wait_until(|s| are_written(s, "amber"), seconds(9)).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_of_ten_namespaces_delay_no_other() {
    let namespaces: Vec<String> =
        (0..10).map(|number| format!("a-hangs-{number}")).chain(["well".to_owned()]).collect();
    let hanging = &namespaces[..10];
    let (server, mut operator) = standby(&namespaces).await;
    let hang = lists().when(|request| request.namespace.starts_with("a-hangs"));
    let hang = server.fault(hang, Fault::Delay(seconds(30)));
    operator.lead();
    server.wait_until(|s| are_written(s, "well"), seconds(4)).await;
    sleep(seconds(60)).await;
    assert!(!hanging.iter().any(|namespace| are_written(&server, namespace)));
    hang.remove();
    server.wait_until(|s| hanging.iter().all(|namespace| are_written(s, namespace)), seconds(30)).await;
}

fn teams() -> Vec<String> {
    (0..30).map(|number| format!("team-{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_with_much_to_do_reads_each_namespace_once() {
    let (server, mut operator) = standby(&teams()).await;
    let before = server.count(&lists());
    let listed = || server.count(&lists()) - before;
    operator.lead();
    sleep(seconds(1)).await;
    assert!(teams().iter().all(|team| are_written(&server, team)));
    assert_eq!(listed(), 60, "sets and pods of each namespace");
    for set in sets() {
        server.scale("team-0", &set, 4);
    }
    server.create_podset("new", "web", 2);
    server.wait_until(|s| s.live_pods("new", "web").len() == 2, seconds(1)).await;
    sleep(seconds(10)).await;
    assert_eq!(listed(), 62, "each namespace is listed once, also a new one");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_that_cannot_list_retries_with_backoff() {
    let (server, mut operator) = standby(&teams()).await;
    let failing = server.fault(lists(), Fault::Refuse(Status::of_code(503)));
    operator.lead();
    sleep(seconds(10)).await;
    assert_eq!(failing.hits(), 30 * 4, "after 0, 1, 3, 7 s for each namespace");
    failing.remove();
    sleep(seconds(8)).await;
    assert!(teams().iter().all(|team| are_written(&server, team)));
}
