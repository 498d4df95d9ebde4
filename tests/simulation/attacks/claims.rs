//! A11: a pod in another namespace has an owner reference to the set. The tests call such a pod a claim.

use super::*;
use crate::apiserver::pod;

const ELSEWHERE: &str = "elsewhere";

fn claim(uid: &str) -> Value {
    json!([object::owner_reference("web", uid)])
}

/// Creates a pod in another namespace with the watched label and these owner references. Its deletion cost is high, so the operator would
/// delete any other pod first.
fn create_elsewhere(server: &ApiServer, name: &str, owners: &Value) {
    let labels = json!({ "app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator" });
    let annotations = json!({ "controller.kubernetes.io/pod-deletion-cost": "100" });
    let metadata = json!({ "name": name, "labels": labels, "annotations": annotations, "ownerReferences": owners });
    server.create(&PODS, ELSEWHERE, pod(metadata));
}

/// A11: claims appear, some on pods that are already ready, and disappear again. Returns whether the set and its own pods are unaffected.
async fn a11(rules: Rules) -> (ApiServer, bool) {
    let server = ApiServer::new(1);
    let uid = server.create_podset(NS, "web", 3);
    // Otherwise, a successful attack would replace the claims for their template.
    server.patch(&PODSETS, NS, "web", json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }));
    let _operator = Operator::leader(&server, "a", rules);
    ready(&server, "web", 3).await;
    sleep(10).await;
    let uids =
        |server: &ApiServer| server.pods(NS, "web").iter().map(object::uid).map(str::to_owned).collect::<Vec<_>>();
    let (before, patches) = (uids(&server), server.count(&Requests::status_patches("podsets")));
    for round in 0..3 {
        let name = format!("claim-{round}");
        create_elsewhere(&server, &name, &json!([]));
        server.wait_until(|s| object::is_ready(&s.pod(ELSEWHERE, &name)), seconds(60)).await;
        server.patch(&PODS, ELSEWHERE, &name, json!({ "metadata": { "ownerReferences": claim(&uid) } }));
        sleep(5).await;
        create_elsewhere(&server, &format!("born-{round}"), &claim(&uid));
        sleep(5).await;
        match round {
            0 => server.strip_owner(ELSEWHERE, &name),
            1 => server.kill_pod(ELSEWHERE, &name),
            _ => server.strip_label(ELSEWHERE, &name),
        }
        sleep(5).await;
    }
    let is_untouched = uids(&server) == before && server.count(&Requests::status_patches("podsets")) == patches;
    // Claims do not count as pods that the set lacks.
    server.scale(NS, "web", 4);
    let grows = becomes_ready(&server, "web", 4, 20).await;
    server.scale(NS, "web", 2);
    let shrinks = becomes_ready(&server, "web", 2, 20).await;
    (server, is_untouched && grows && shrinks)
}

#[tokio::test(start_paused = true)]
async fn a11_an_owner_reference_from_another_namespace_is_ignored() {
    let (server, is_untouched) = a11(Rules::default()).await;
    assert!(is_untouched);
    let theirs = server.all(&PODS, ELSEWHERE);
    assert!(theirs.len() == 5 && theirs.iter().all(object::is_live), "{theirs:?}");
    let requests = server.count(&Requests::all().in_namespace(ELSEWHERE));
    assert_eq!(requests, 0, "no request is sent for them");
    let (server, is_untouched) = a11(cached(CacheRules { home: |_| "anywhere".into(), ..CacheRules::default() })).await;
    assert!(exceeded_bound(&server) || !is_untouched, "the attack must succeed if the UID alone counts");
}
