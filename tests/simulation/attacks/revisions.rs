//! The former templates of a set, stored as ControllerRevisions.

use super::{rollouts::*, *};

/// The former template is lost during the rollout of a broken one, and a pod that dies gets the newest.
#[tokio::test(start_paused = true)]
async fn if_the_former_template_is_not_stored_or_unreadable_the_newest_is_used() {
    for is_stored in [false, true] {
        let (server, _operator) = running(3, json!({})).await;
        changed_to(&server, "broken", 60, "a a broken").await;
        for revision in server.all(&REVISIONS, NS) {
            let name = object::name(&revision);
            match is_stored {
                true => server.patch(&REVISIONS, NS, name, json!({ "data": { "template": 7 } })),
                false => server.delete(&REVISIONS, NS, name, &Value::Null),
            }
        }
        delete_one(&server, "a");
        sleep(60).await;
        assert_eq!(versions(&server), "a broken broken");
        change_template(&server, "c");
        rolled_out(&server, "c", 3).await;
        assert_eq!(server.has_broken("have a broken template"), is_stored, "the observers do not see why");
    }
}

/// They also reject the create of a ControllerRevision that exists.
#[tokio::test(start_paused = true)]
async fn a_policy_or_a_webhook_does_not_stop_a_change_back_to_a_stored_template() {
    for rejection in [Status::invalid(&REVISIONS, "web", "", "", "the history is frozen"), webhook_failed()] {
        let (server, operator) = running(3, json!({})).await;
        changed_to(&server, "broken", 60, "a a broken").await;
        server.fault(Requests::mutating().of("controllerrevisions"), Fault::Refuse(rejection));
        operator.end().await;
        let _operator = Operator::leader(&server, "b", Rules::default());
        change_template(&server, "a");
        completed(&server, "a", 3).await;
    }
}

/// Somebody changed the stored template of a set. A new leader notices when it replaces a pod.
#[tokio::test(start_paused = true)]
async fn a_collision_does_not_delay_a_replacement() {
    let (server, operator) = running(3, json!({})).await;
    drop(operator);
    for revision in server.all(&REVISIONS, NS) {
        server.patch(&REVISIONS, NS, object::name(&revision), json!({ "data": { "template": 7 } }));
    }
    terminate_slowly(&server, 3600);
    let _operator = Operator::leader(&server, "b", Rules::default());
    sleep(10).await;
    server.watches().of("b").on("podsets").delay(seconds(1));
    delete_one(&server, "a");
    assert!(becomes_ready(&server, "web", 3, 60).await);
    assert_eq!(server.podset(NS, "web")["status"]["collisionCount"], 1);
    assert!(server.has_broken("Started updating pods"), "an observer cannot know of the collision");
}

/// The API server allows such a template only before the set waits for terminations.
#[tokio::test(start_paused = true)]
async fn a_former_template_without_a_grace_period_is_not_used_if_the_set_waits_for_terminations() {
    let (server, _operator) = running(2, json!({})).await;
    let mut graceless = template("a");
    graceless["spec"]["terminationGracePeriodSeconds"] = json!(0);
    change(&server, json!({ "template": graceless }));
    sleep(60).await;
    change(&server, json!({ "template": template("b"), "podReplacementPolicy": "TerminationComplete" }));
    change(&server, partition(1));
    server.wait_until(|s| versions(s) == "a b", seconds(60)).await;
    delete_one(&server, "a");
    sleep(60).await;
    assert_eq!(versions(&server), "b b");
}

#[tokio::test(start_paused = true)]
async fn a_revision_has_the_cause_of_its_change() {
    let (server, _operator) = running(1, json!({})).await;
    for (version, cause) in [("b", json!("two")), ("c", Value::Null), ("a", json!("back"))] {
        let metadata = json!({ "annotations": { "kubernetes.io/change-cause": cause } });
        let spec = json!({ "template": template(version) });
        server.patch(&PODSETS, NS, "web", json!({ "metadata": metadata, "spec": spec }));
        sleep(30).await;
    }
    let mut revisions = server.all(&REVISIONS, NS);
    revisions.sort_by_key(|stored| stored["revision"].as_i64());
    let causes: Vec<&Value> =
        revisions.iter().map(|stored| &stored["metadata"]["annotations"]["kubernetes.io/change-cause"]).collect();
    assert_eq!(causes, [&json!("two"), &Value::Null, &json!("back")]);
}

/// A lower limit takes effect with the next change, even if that change restores a stored template.
#[tokio::test(start_paused = true)]
async fn old_revisions_are_deleted() {
    let (server, _operator) = running(1, json!({})).await;
    for number in 0..4 {
        change_template(&server, &format!("v{number}"));
        sleep(30).await;
    }
    assert_eq!(server.all(&REVISIONS, NS).len(), 5);
    change(&server, json!({ "revisionHistoryLimit": 1, "template": template("v1") }));
    rolled_out(&server, "v1", 1).await;
    let revisions = server.all(&REVISIONS, NS);
    let mut stored: Vec<&str> = revisions.iter().map(|stored| version(&stored["data"]["template"])).collect();
    stored.sort_unstable();
    assert_eq!(stored, ["v1", "v2", "v3"], "the current one, the one before, and one more");

    change(&server, json!({ "revisionHistoryLimit": 2 }));
    for number in 4..12 {
        change_template(&server, &format!("v{number}"));
        sleep(30).await;
    }
    rolled_out(&server, "v11", 1).await;
    assert_eq!(server.all(&REVISIONS, NS).len(), 4, "the current one, the one before the last change, and two more");
    let lists = server.requests(&Requests::all().verb(Verb::List).of("controllerrevisions"));
    assert!(!lists.is_empty() && lists.iter().all(|list| list.request.query("labelSelector") == "app=web"));
}

/// The creates of ControllerRevisions fail for some time. The first template is stored later, and before it becomes the former one.
#[tokio::test(start_paused = true)]
async fn only_the_first_template_of_a_set_reaches_pods_before_it_is_stored() {
    let (server, _operator) = server_and_leader();
    let rule = server.fault(Requests::creates("controllerrevisions"), Fault::CutBefore);
    let spec = json!({ "replicas": 3, "template": template("a") });
    server.create(&PODSETS, NS, json!({ "metadata": { "name": "web" }, "spec": spec }));
    ready(&server, "web", 3).await;
    rule.remove();
    rolled_out(&server, "a", 3).await;
    assert_eq!(server.all(&REVISIONS, NS).len(), 1);
    let rejection = Status::forbidden(&REVISIONS, "web", "exceeded quota");
    let rule = server.fault(Requests::creates("controllerrevisions"), Fault::Refuse(rejection));
    change_template(&server, "b");
    sleep(5).await;
    delete_one(&server, "a");
    sleep(60).await;
    assert_eq!(versions(&server), "a a a");
    rule.remove();
    rolled_out(&server, "b", 3).await;
}

/// The garbage collector has not yet deleted the ControllerRevision of the former set with this name, or has orphaned it.
#[tokio::test(start_paused = true)]
async fn a_recreated_set_creates_each_pod_once() {
    for leave in [ApiServer::delete_podset, ApiServer::orphan_podset] {
        let (server, _operator) = running(3, json!({})).await;
        server.settings(|settings| settings.collect_after = seconds(20));
        leave(&server, NS, "web");
        server.wait_until(|s| s.all(&PODSETS, NS).is_empty(), seconds(60)).await;
        let spec = json!({ "replicas": 3, "template": template("a") });
        server.create(&PODSETS, NS, json!({ "metadata": { "name": "web" }, "spec": spec }));
        rolled_out(&server, "a", 3).await;
        let (set, stored) = (server.podset(NS, "web"), server.all(&REVISIONS, NS));
        let creates = server.count(&Requests::creates("pods")) - 3;
        assert_eq!((creates, &set["status"]["collisionCount"], stored.len()), (3, &Value::Null, 1));
        assert_eq!(stored[0]["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    }
}

/// `kubectl podset rollout undo` takes the newest revision that is not current, so a restored template must become the newest.
#[tokio::test(start_paused = true)]
async fn a_template_that_is_restored_becomes_the_newest_revision() {
    for spec in [json!({}), json!({ "updateStrategy": { "type": "OnDelete" } })] {
        let (server, _operator) = running(2, spec).await;
        let invalid = Status::invalid(&PODS, "web-pod", "spec.containers[0].image", "FieldValueRequired", "empty");
        let dry_runs = Requests::all().when(|r| r.query("dryRun") == "All" && version(&r.body) == "b");
        server.fault(dry_runs, Fault::Refuse(invalid));
        changed_to(&server, "b", 30, "a a").await;
        changed_to(&server, "a", 30, "a a").await;
        assert_eq!(newest(&server), "a");
    }
    // The leader that reports the revision dies before it is stored.
    let (server, operator) = running(2, json!({})).await;
    change_template(&server, "b");
    rolled_out(&server, "b", 2).await;
    let unstored = server.fault(Requests::mutating().of("controllerrevisions"), Fault::Refuse(Status::of_code(500)));
    change_template(&server, "a");
    sleep(5).await;
    drop(operator);
    unstored.remove();
    let _operator = Operator::leader(&server, "b", Rules::default());
    rolled_out(&server, "a", 2).await;
    assert_eq!(newest(&server), "a");
}

/// The second change comes while the first template is being stored.
#[tokio::test(start_paused = true)]
async fn a_template_that_follows_at_once_is_stored_too() {
    for (strategy, last, count) in [("OnDelete", "c", 3), ("RollingUpdate", "a", 2)] {
        let (server, _operator) = running(2, json!({ "updateStrategy": { "type": strategy } })).await;
        server.fault(Requests::creates("controllerrevisions"), Fault::Delay(seconds(1)));
        change_template(&server, "b");
        server.wait_until(|s| s.count(&Requests::creates("controllerrevisions")) == 2, seconds(60)).await;
        change_template(&server, last);
        sleep(60).await;
        assert_eq!((newest(&server).as_str(), server.all(&REVISIONS, NS).len()), (last, count));
    }
}

/// The template with the highest revision.
fn newest(server: &ApiServer) -> String {
    let stored = server.all(&REVISIONS, NS);
    let newest = stored.iter().max_by_key(|stored| stored["revision"].as_i64()).unwrap();
    version(&newest["data"]["template"]).to_owned()
}
