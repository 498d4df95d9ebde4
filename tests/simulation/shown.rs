//! The probes of an instance in various situations.

use podset_operator::podset::promise::Rules;
use tokio::time::sleep;

use crate::{NS, apiserver::ApiServer, assert_ok, operator::Operator, ready, seconds, server_and_leader};

#[tokio::test(start_paused = true)]
async fn an_unready_replica_names_what_it_waits_for() {
    let server = ApiServer::new(1);
    server.settings(|settings| {
        settings.unserved.insert("podsets");
    });
    let mut operator = Operator::standby(&server, "a", Rules::default());
    sleep(seconds(60)).await;
    let readiness = operator.context.health.readiness();
    let why = readiness["podset-caches"].clone().unwrap_err();
    assert!(why.contains("podsets.app.example.com") && why.contains("kubectl apply -k config/crd"), "{why}");
    assert_eq!(readiness["mycustomresource-caches"], Ok(()), "its own CRD is there");

    operator.lead();
    sleep(seconds(60)).await;
    server.settings(|settings| settings.unserved.clear());
    sleep(seconds(5)).await;
    assert_eq!(operator.context.health.readiness()["podset-caches"], Ok(()));
    server.create_podset(NS, "web", 2);
    ready(&server, "web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_stay_live_while_the_api_server_is_away() {
    let (server, operator) = server_and_leader();
    server.partition("a");
    for _ in 0..60 {
        sleep(seconds(60)).await;
        assert_ok(&operator.context.health.liveness());
    }
    let why = operator.context.health.readiness()["podset-caches"].clone().unwrap_err();
    assert!(why.contains("cannot watch pods: the API server cannot be reached; see the log"), "{why}");
    server.heal();
    sleep(seconds(60)).await;
    assert_ok(&operator.context.health.readiness());
}
