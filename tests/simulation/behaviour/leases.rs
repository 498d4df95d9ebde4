//! Leases: the optimistic concurrency that leader election stands on.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{from, refusal};
use crate::apiserver::ApiServer;

fn leases(server: &ApiServer, instance: &str) -> Api<Lease> {
    Api::namespaced(server.client(instance), "default")
}

fn lease(holder: &str) -> Lease {
    from(json!({
        "metadata": { "name": "podset-operator" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 },
    }))
}

#[tokio::test(start_paused = true)]
async fn of_two_that_saw_the_same_version_one_wins() {
    let server = ApiServer::new(1);
    let (a, b) = (leases(&server, "a"), leases(&server, "b"));
    let made = a.create(&PostParams::default(), &lease("a")).await.expect("created");
    let second = refusal(b.create(&PostParams::default(), &lease("b")).await);
    assert_eq!(second.reason, "AlreadyExists");

    let take = |holder: &str, version: Value| {
        let metadata = json!({ "resourceVersion": version });
        Patch::Merge(json!({ "metadata": metadata, "spec": { "holderIdentity": holder } }))
    };
    let seen = json!(made.resource_version());
    let params = PatchParams::default();
    b.patch("podset-operator", &params, &take("b", seen.clone())).await.expect("first");
    let late = refusal(a.patch("podset-operator", &params, &take("a", seen)).await);
    assert_eq!((late.code, late.reason.as_str()), (409, "Conflict"));
    let listed = a.list(&ListParams::default().fields("metadata.name=podset-operator")).await;
    let spec = listed.expect("listed").items[0].spec.clone().expect("a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    // Without a version anyone overwrites: that is what makes a careless lock unsafe.
    let blind = Patch::Merge(json!({ "spec": { "holderIdentity": "a" } }));
    a.patch("podset-operator", &params, &blind).await.expect("overwritten");
    let erased = refusal(a.patch("podset-operator", &params, &take("a", Value::Null)).await);
    assert_eq!(erased.code, 422);
}
