//! Some of the watched namespaces cannot be listed.

use super::*;

const LOST: &str = "lost";

fn start(server: &ApiServer, name: &str) -> Replica {
    let flags = &["--default-image=example.com/default", "--watch-namespace=default,lost"];
    Replica::start(server, name, Model { flags, ..Model::default() })
}

/// The API server rejects all requests in one namespace, or it rejects or delays only the lists of pods there. In the last two cases, the
/// operator knows the sets but not their pods.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_listed_does_not_stop_the_others() {
    let lists = || Requests::all().verb(Verb::List).of("pods");
    let forbidden = || Fault::Refuse(Status::of_code(403));
    for (lost, fault, why) in [
        (lists(), forbidden(), "cannot watch pods: forbidden"),
        (Requests::all(), forbidden(), "cannot watch pods: forbidden"),
        (lists(), Fault::Delay(seconds(11)), "cannot watch pods: "),
    ] {
        let server = ApiServer::new(1);
        for namespace in [NS, LOST] {
            server.create_podset(namespace, "web", 2);
        }
        let are_live = |s: &ApiServer, namespace, set, n| s.live_pods(namespace, set).len() == n;
        let first = start(&server, "a");
        server.wait_until(|s| are_live(s, NS, "web", 2) && are_live(s, LOST, "web", 2), seconds(10)).await;
        first.end().await.unwrap();

        let fault = server.fault(lost.in_namespace(LOST), fault);
        for namespace in [NS, LOST] {
            server.scale(namespace, "web", 3);
        }
        server.create_mycustomresource(NS, "one", "joe");
        let second = start(&server, "b");
        server.wait_until(|s| are_live(s, NS, "web", 3), seconds(30)).await;
        server.create_podset(LOST, "new", 2);
        sleep(seconds(60)).await;
        assert!(are_live(&server, LOST, "web", 2) && are_live(&server, LOST, "new", 0), "its pods are not known");
        let one = |s: &ApiServer| s.get(&MYCUSTOMRESOURCES, NS, "one")["status"]["Healthy"].clone();
        assert_eq!(one(&server), Value::Null, "the pod may be in the other namespace");
        let verdict = second.context.health.readiness()["podset-caches"].clone().unwrap_err();
        assert!(verdict.contains(why), "{verdict}");

        fault.remove();
        server.wait_until(|s| are_live(s, LOST, "web", 3) && are_live(s, LOST, "new", 2), seconds(30)).await;
        server.wait_until(|s| one(s) == json!(false), seconds(30)).await;
        assert_eq!(second.context.health.readiness()["podset-caches"], Ok(()));
    }
}
