//! A1, A8, A10: late creates, strangers' pods with a name of the set, and late deletes.

use super::*;

/// A1: a create gets no response and is repeated. A user deletes its pod, which is replaced. Then the first create lands.
async fn a1(rules: Rules) -> ApiServer {
    let server = server_that_executes_late();
    terminate_slowly(&server, 10);
    let rule = server.fault(Requests::creates("pods").first(1), Fault::ExecuteLate(seconds(40)));
    server.create_podset(NS, "web", 1);
    let _operator = Operator::leader(&server, "a", rules);
    rule.wait_for_hits(1).await;
    if becomes_ready(&server, "web", 1, 5).await {
        let pod = only_pod(&server, "web");
        server.delete_pod(NS, &pod);
    }
    sleep(60).await;
    server
}

/// Rules that forget unanswered creates at once.
fn forgetful() -> Rules {
    cached(CacheRules { quarantine: SignedDuration::ZERO, ..CacheRules::default() })
}

#[tokio::test(start_paused = true)]
async fn a1_a_late_create_makes_no_second_pod() {
    try_both_ways(a1, forgetful()).await;
}

/// A1: a create gets no response and is repeated. Then the first one lands.
async fn a1_repeated(rules: Rules) -> ApiServer {
    let server = server_that_executes_late();
    server.fault(Requests::creates("pods").first(1), Fault::ExecuteUnanswered(seconds(40)));
    server.create_podset(NS, "web", 1);
    let _operator = Operator::leader(&server, "a", rules);
    sleep(60).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a1_a_repeated_create_has_the_same_name() {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    // The name matters only if the unanswered create is forgotten.
    let forgetful = Rules { forgets_unknown: true, ..forgetful() };
    a1_repeated(forgetful).await;
    let name = |set: &str, uid: &str, _: u32| pod_name(set, uid, DRAWN.fetch_add(1, Ordering::Relaxed));
    let server = a1_repeated(Rules { name, ..forgetful }).await;
    assert!(exceeded_bound(&server), "the attack must succeed if a repeated create has another name");
}

/// A1: the watch does not show the pod of an unanswered create for longer than a create may take, and the set is scaled down.
async fn a1_unseen(rules: Rules) -> ApiServer {
    let (server, _operator) = with_set(1, rules).await;
    server.watches().on("pods").stall();
    let lost = server.fault(Requests::creates("pods").first(1), Fault::ExecuteThenCut);
    server.scale(NS, "web", 2);
    lost.wait_for_hits(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.scale(NS, "web", 1);
    sleep(100).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a1_a_read_settles_an_unknown_fate() {
    let server = try_both_ways(a1_unseen, Rules { forgets_unknown: true, ..Rules::default() }).await;
    assert_eq!(server.live_pods(NS, "web").len(), 1, "the pod is found and deleted");
}

#[tokio::test(start_paused = true)]
async fn a1_the_set_converges_however_a_response_is_lost() {
    for fault in [
        Fault::ExecuteThenError(500),
        Fault::ExecuteThenError(503),
        Fault::ExecuteThenError(429),
        Fault::ExecuteThenError(409),
        Fault::ExecuteThenCut,
        Fault::ExecuteThenGarble,
        Fault::CutBefore,
        Fault::ExecuteLate(seconds(20)),
        Fault::ExecuteUnanswered(seconds(20)),
        Fault::Delay(seconds(20)),
    ] {
        let server = server_that_executes_late();
        server.fault(Requests::creates("pods").first(3), fault.clone());
        server.fault(Requests::deletes("pods").first(3), fault);
        server.create_podset(NS, "web", 4);
        let _operator = Operator::leader(&server, "a", Rules::default());
        ready(&server, "web", 4).await;
        server.scale(NS, "web", 2);
        at_rest(&server, "web", 2).await;
    }
}

/// A8: strangers' pods have names that the set would use.
async fn a8(rules: Rules) -> (ApiServer, bool) {
    let server = ApiServer::new(1);
    let uid = server.create_podset(NS, "web", 2);
    let first = pod_name("web", &uid, 0);
    server.create_pod(NS, &first, json!({ "app": "theirs" }));
    let copy = pod_name("web", &uid, 2);
    let labels = json!({ "app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator" });
    server.create_pod(NS, &copy, labels);
    let strangers = [object::uid(&server.pod(NS, &first)).to_owned(), object::uid(&server.pod(NS, &copy)).to_owned()];

    let _operator = Operator::leader(&server, "a", rules);
    let is_ready = becomes_ready(&server, "web", 2, 20).await;
    let left = [object::uid(&server.pod(NS, &first)).to_owned(), object::uid(&server.pod(NS, &copy)).to_owned()];
    assert_eq!(left, strangers, "the strangers' pods are as they were");
    (server, is_ready)
}

#[tokio::test(start_paused = true)]
async fn a8_the_name_of_a_strangers_pod_is_skipped() {
    let (server, is_ready) = a8(Rules::default()).await;
    assert!(is_ready);
    assert_eq!(server.effects(&Requests::creates("pods")), 2);
    assert_eq!(server.count(&Requests::all().verb(Verb::Get).of("podsets")), 1, "the set is read again");
    let (_, is_ready) = a8(Rules { is_ours: |_, _| true, ..Rules::default() }).await;
    assert!(!is_ready, "the attack must succeed if every pod with the name counts as ours");
}

#[tokio::test(start_paused = true)]
async fn no_name_is_skipped_before_the_set_was_read_again() {
    let (server, _operator) = server_and_leader();
    let uid = server.create_podset(NS, "web", 2);
    server.create_pod(NS, &pod_name("web", &uid, 0), json!({ "app": "theirs" }));
    let reads = Requests::all().verb(Verb::Get).of("podsets");
    let failing = server.fault(reads, Fault::Refuse(Status::of_code(503)));
    sleep(20).await;
    assert_eq!(server.effects(&Requests::creates("pods")), 1, "only the free name is used");
    failing.remove();
    ready(&server, "web", 2).await;
}

/// A10: a late delete meets the successor of its pod.
async fn a10(rules: Rules) -> bool {
    let server = server_that_executes_late();
    server.create_podset(NS, "web", 2);
    // With a short quarantine, the name is reused before the late delete lands.
    let cache = CacheRules { quarantine: SignedDuration::from_secs(5), ..CacheRules::default() };
    let _operator = Operator::leader(&server, "a", Rules { cache, ..rules });
    ready(&server, "web", 2).await;
    let rule = server.fault(Requests::deletes("pods").first(1), Fault::ExecuteLate(seconds(30)));
    server.scale(NS, "web", 1);
    rule.wait_for_hits(1).await;
    ready(&server, "web", 1).await;
    sleep(10).await;
    server.scale(NS, "web", 2);
    ready(&server, "web", 2).await;
    let pods = server.live_pods(NS, "web");
    sleep(30).await;
    server.first_violation().is_none() && server.live_pods(NS, "web") == pods
}

#[tokio::test(start_paused = true)]
async fn a10_a_late_delete_does_not_hit_the_pods_successor() {
    assert!(a10(Rules::default()).await);
    let unconditional = Rules { precondition: |_| None, ..Rules::default() };
    assert!(!a10(unconditional).await, "the attack must succeed if deletes have no UID precondition");
}
