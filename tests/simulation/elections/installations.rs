//! Several installations in one cluster, each with its own Lease. A process outside the cluster looks for other installations before it stands
//! for election. Installations that write the same PodSets notice each other.

use super::*;

const COUNT: &str = "podset_writes_by_other_installations_total";

/// A replica whose Lease is in the namespace `ops`.
fn in_ops() -> Model {
    Model { flags: &["--leader-elect-resource-namespace=ops"], ..Model::default() }
}

/// A replica outside the cluster, whose kubeconfig names the namespace `default`.
fn outside() -> Model {
    Model { is_outside: true, ..Model::default() }
}

#[tokio::test(start_paused = true)]
async fn a_process_outside_the_cluster_does_not_lead_beside_an_installation() {
    let server = cluster();
    server.create_namespace("ops");
    let installed = Replica::start(&server, "a", in_ops());
    leads(&installed, seconds(1)).await;
    let began = Instant::now();
    // The clock of the process does not matter.
    for wall_offset in [-600, 0, 600] {
        let outside = Replica::start(&server, "b", Model { wall_offset, ..outside() });
        let failure = timeout(seconds(60), outside.ended()).await.expect("it exits").unwrap_err();
        let Failure::Beside { other, home } = &failure else { panic!("{failure}") };
        let found = [other.namespace.as_str(), other.name.as_str(), home.as_str()];
        assert_eq!(found, ["ops", "podset-operator", "default"]);
        assert!(other.holder.starts_with("a_"), "{failure}");
    }
    assert!(began.elapsed() < seconds(12), "a holder renews its Lease every two seconds: {:?}", began.elapsed());
    assert_eq!(server.count(&Requests::mutating().from("b")), 0);
    assert!(server.get(&LEASES, NS, "podset-operator").is_null(), "it did not stand for election");
}

#[tokio::test(start_paused = true)]
async fn a_process_outside_the_cluster_joins_by_flag_or_kubeconfig() {
    for (installed, joining) in [(in_ops(), Model { is_outside: true, ..in_ops() }), (Model::default(), outside())] {
        let server = cluster();
        server.create_namespace("ops");
        let installed = Replica::start(&server, "a", installed);
        leads(&installed, seconds(1)).await;
        let joining = Replica::start(&server, "b", joining);
        sleep(seconds(60)).await;
        assert!(installed.leads() && !joining.leads() && !joining.has_ended());
        installed.end().await.expect("an orderly end");
        leads(&joining, seconds(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_outside_the_cluster_waits_for_the_api_server_or_a_stop() {
    let server = cluster();
    server.partition("b");
    server.partition("c");
    let (b, c) = (Replica::start(&server, "b", outside()), Replica::start(&server, "c", outside()));
    sleep(seconds(120)).await;
    timeout(seconds(30), c.end()).await.expect("it exits at once").expect("an orderly end");
    assert!(!b.has_ended());
    assert_ok(&b.context.health.liveness());
    server.heal();
    leads(&b, seconds(35)).await;
    converged(&server).await;
}

#[tokio::test(start_paused = true)]
async fn installations_that_write_the_same_sets_notice_each_other() {
    let server = cluster();
    server.create_namespace("ops");
    let (a, b) = (Replica::start(&server, "a", Model::default()), Replica::start(&server, "b", in_ops()));
    leads(&a, seconds(1)).await;
    leads(&b, seconds(1)).await;
    for replicas in [5, 10, 5, 10] {
        server.scale(NS, "web", replicas);
        sleep(seconds(20)).await;
    }
    let noticed = [&a, &b].map(|replica| replica.shows(COUNT).expect("a count"));
    assert!(noticed.iter().sum::<f64>() >= 4.0, "one of them writes the status, and the other sees it: {noticed:?}");
    let writer = server.podset(NS, "web")["status"]["writtenBy"].clone();
    assert!(["default/podset-operator", "ops/podset-operator"].map(Into::into).contains(&writer), "{writer}");
    assert!(server.has_broken("written by a replica that is not the leader"), "for each Lease, the other one writes");
}

/// For example after the Lease was moved, or after an update from a version that does not name the writer.
#[tokio::test(start_paused = true)]
async fn a_status_is_not_rewritten_only_to_change_its_writer() {
    let server = cluster();
    let a = Replica::start(&server, "a", Model::default());
    converged(&server).await;
    sleep(seconds(10)).await;
    a.end().await.expect("an orderly end");
    for writer in [json!("before/podset-operator"), json!(null)] {
        server.edit(&PODSETS, NS, "web", "status", |set| set["status"]["writtenBy"] = writer);
        let next = Replica::start(&server, "next", Model::default());
        leads(&next, seconds(2)).await;
        sleep(seconds(30)).await;
        assert_eq!(server.count(&Requests::all().of("podsets").verb(Verb::Patch).from("next")), 0);
        assert_eq!(next.shows(COUNT), Some(0.0), "no other installation has written it since");
        next.end().await.expect("an orderly end");
    }
}
