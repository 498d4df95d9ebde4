//! A new leader reads each namespace before its first write there, and no namespace waits for another.

use podset_operator::podset::promise::Rules;
use tokio::time::sleep;

use super::seconds;
use crate::{
    apiserver::{ApiServer, Fault, Requests, Status, Verb},
    operator::Operator,
};

/// Sets that want a third pod, four in each of these namespaces, and a standby, "b". Pages are short.
async fn standby(namespaces: &[&str]) -> (ApiServer, Operator) {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.page = 5);
    for namespace in namespaces {
        for set in sets() {
            server.create_podset(namespace, &set, 2);
        }
    }
    let first = Operator::leader(&server, "a", Rules::default());
    sleep(seconds(10)).await;
    first.end().await;
    let standby = Operator::standby(&server, "b", Rules::default());
    for namespace in namespaces {
        for set in sets() {
            server.scale(namespace, &set, 3);
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
async fn lists_that_fail_midway_hold_up_their_namespace_alone() {
    let (server, mut operator) = standby(&["amber", "blue", "green"]).await;
    // The second page of the pods of one namespace, and of everything.
    let second = |requests: Requests| requests.when(|request| !request.query("continue").is_empty());
    let amber = server.fault(second(lists().of("pods").in_namespace("amber")), Fault::Refuse(Status::of_code(503)));
    let all = server.fault(second(lists().in_namespace("")), Fault::Refuse(Status::of_code(503)));
    operator.lead();
    server.wait_until(|s| are_written(s, "green") && are_written(s, "blue"), seconds(1)).await;
    sleep(seconds(20)).await;
    assert!(sets().all(|set| server.live_pods("amber", &set).len() == 2), "it is not known what is there");
    assert!(amber.hits() >= 4 && all.hits() >= 4, "{} and {}", amber.hits(), all.hits());
    amber.remove();
    server.wait_until(|s| are_written(s, "amber"), seconds(9)).await;
    server.check();
}

#[tokio::test(start_paused = true)]
async fn namespaces_whose_lists_hang_hold_up_no_other() {
    let hanging: Vec<String> = (0..10).map(|number| format!("a-hangs-{number}")).collect();
    let mut namespaces: Vec<&str> = hanging.iter().map(String::as_str).collect();
    namespaces.push("well");
    let (server, mut operator) = standby(&namespaces).await;
    let hang = lists().when(|request| request.namespace.starts_with("a-hangs"));
    let hang = server.fault(hang, Fault::Delay(seconds(30)));
    operator.lead();
    server.wait_until(|s| are_written(s, "well"), seconds(4)).await;
    sleep(seconds(60)).await;
    assert!(!hanging.iter().any(|namespace| are_written(&server, namespace)));
    hang.remove();
    server.wait_until(|s| hanging.iter().all(|namespace| are_written(s, namespace)), seconds(30)).await;
    server.check();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_read_once_and_a_set_of_the_term_needs_no_read() {
    let (server, mut operator) = standby(&["amber"]).await;
    let fine = || lists().in_namespace("amber");
    operator.lead();
    server.wait_until(|s| are_written(s, "amber"), seconds(1)).await;
    let pages = server.count(&fine());
    for set in sets() {
        server.scale("amber", &set, 4);
    }
    server.create_podset("new", "web", 2);
    server.wait_until(|s| s.live_pods("new", "web").len() == 2, seconds(1)).await;
    sleep(seconds(10)).await;
    assert_eq!(server.count(&fine()), pages);
    assert_eq!(server.count(&lists().in_namespace("new")), 0);
}
