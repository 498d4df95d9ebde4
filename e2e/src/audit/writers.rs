//! Checks with the audit log that one replica at a time wrote, and that none took the Lease early ([`testkit::lease`]).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use k8s_openapi::jiff::SignedDuration;
use testkit::lease::{Change, History, Judgement, Write};

use super::{Request, entries, read};

/// A ServiceAccount in the log. Operators have some, and in some clusters the controllers of Kubernetes.
const ACCOUNT: &str = r#""username":"system:serviceaccount:"#;

/// Writes of the election itself, and creates that change nothing.
const NO_WRITES: [&str; 5] =
    ["leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// The duration in seconds of a released Lease.
const RELEASED: i64 = 1;

/// Fails if an operator wrote in this namespace without holding the Lease there, or if none wrote. Returns the numbers of writes and of
/// those that were sent before the sender knew of an edit by hand.
pub fn one_writer(log: &Path, namespace: &str, lease: &str) -> Result<(usize, usize)> {
    let history = history(log, namespace, lease)?;
    let mut writes = entries(&read(log)?, namespace, |line| line.contains(ACCOUNT))?;
    writes.retain(|write| is_operator(write.user()) && write.took_effect() && !NO_WRITES.contains(&write.resource()));
    let (mut exempt, mut violations) = (0, history.thefts());
    for write in &writes {
        let (received, answered) = (write.received, write.answered);
        match history.judge(Write { by: write.user(), version: write.version(), received, answered }) {
            Judgement::Right => {}
            Judgement::Exempt => exempt += 1,
            Judgement::Wrong(why) => violations.push(format!("{write}: {why}")),
        }
    }
    let first = violations.first().map_or("", String::as_str);
    ensure!(violations.is_empty(), "TWO WRITERS: {} of {} writes, first {first}", violations.len(), writes.len());
    ensure!(!writes.is_empty(), "no operator wrote");
    Ok((writes.len(), exempt))
}

/// The history of a Lease.
pub fn history(log: &Path, namespace: &str, name: &str) -> Result<History> {
    let mut writes = entries(&read(log)?, namespace, |line| line.contains(r#""resource":"leases""#))?;
    writes.retain(|write| write.took_effect() && write.name() == name);
    // Each operator has its own user and identity: the holder that a user wrote is that user.
    let wrote = writes.iter().filter(|write| is_operator(write.user())).map(|write| (write.lease().0, write.user()));
    let users: BTreeMap<&str, &str> = wrote.filter(|(holder, _)| !holder.is_empty()).collect();
    let mut history = History::default();
    in_order(&writes).into_iter().map(|write| change(write, &users)).for_each(|change| history.push(change));
    Ok(history)
}

/// The order in which these writes of a Lease took effect.
fn in_order(writes: &[Request]) -> Vec<&Request> {
    let (deletions, mut order): (Vec<_>, Vec<_>) = writes.iter().partition(|write| write.verb == "delete");
    order.sort_by_key(|write| write.version());
    // A deletion has no resourceVersion, but the Lease cannot be created again before it.
    for deletion in deletions {
        let makes_it_again = |write: &&Request| write.verb == "create" && write.answered > deletion.received;
        order.insert(order.iter().position(makes_it_again).unwrap_or(order.len()), deletion);
    }
    order
}

fn change(write: &Request, users: &BTreeMap<&str, &str>) -> Change {
    let is_there = write.verb != "delete";
    let (holder, seconds) = write.lease();
    Change {
        version: write.version().filter(|_| is_there),
        leader: users.get(holder).filter(|_| is_there).map(|user| user.to_string()),
        lasts: SignedDuration::from_secs(seconds),
        is_release: (holder, seconds) == ("", RELEASED),
        received: write.received,
        answered: write.answered,
        by: write.user().to_owned(),
        is_by_hand: !is_operator(write.user()),
    }
}

fn is_operator(user: &str) -> bool {
    user.strip_prefix("system:serviceaccount:").is_some_and(|account| !account.starts_with("kube-system:"))
}
