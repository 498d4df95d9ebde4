//! Looks for an installation with a Lease of the same name in another namespace: both would write. Only a process outside the cluster does
//! this, because the namespace of its kubeconfig may differ from the installation's.
//!
//! It lists the Leases of that name in all namespaces until the result is clear. It compares no clocks: a Lease is live if its holder renews
//! it meanwhile.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Resource,
    api::ListParams,
    core::{ObjectList, Request, response::reason},
};
use tracing::{info, warn};

use leadership::{Timing, env::Env};
use operator_kit::{
    client::{ReadError, Reader},
    failures::{Failures, Waits},
    text::in_full,
};

/// The flag that names the namespace of the Lease, and with it the installation that this process belongs to.
pub const FLAG: &str = "--leader-elect-resource-namespace";

/// Time between two lists.
const PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// The first and the longest wait after a failed list.
const RETRY: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(15));

/// The longest lease duration, in seconds, that counts for another Lease. Anyone may write a Lease in a namespace of their own.
const LONGEST_DURATION: i32 = 300;

/// A Lease in another namespace.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("another installation uses the Lease {namespace}/{name} (holder {holder})")]
pub struct Elsewhere {
    pub namespace: String,
    pub name: String,
    pub holder: String,
}

/// The result of a list.
#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    /// No other installation leads.
    Alone,
    /// Another installation uses its Lease.
    Live(Elsewhere),
    /// No other Lease has been renewed, but one was not observed for long enough.
    Unclear(Elsewhere),
}

/// A search for other installations.
pub struct Search {
    pub reader: Reader,
    pub env: Env,
    pub name: String,
    /// The namespace of the own Lease; `None`: there is none.
    pub home: Option<String>,
    pub timing: Timing,
}

impl Search {
    /// Returns another installation that leads; `None`: there is none, or the list is not permitted.
    pub async fn run(self) -> Option<Elsewhere> {
        let (mut seen, mut failures, mut is_logged) = (HashMap::new(), Failures::default(), false);
        loop {
            let leases = self.list().await;
            let now = self.env.now();
            let wait = match leases.map(|leases| self.judge(&mut seen, leases, now)) {
                Ok(Verdict::Alone) => return None,
                Ok(Verdict::Live(other)) => return Some(other),
                Ok(Verdict::Unclear(Elsewhere { namespace, name, holder })) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        info!(
                            "found the Lease {namespace}/{name} (holder {holder}), which another installation may use; waiting to see whether it is renewed; set {FLAG} to skip this check"
                        );
                    }
                    PERIOD
                }
                Err(error) if is_forbidden(&error) => {
                    let error = in_full(&error);
                    warn!(
                        error,
                        "not allowed to look for other installations: make sure that none writes the same PodSets; set {FLAG} to skip this check"
                    );
                    return None;
                }
                Err(error) => {
                    // If the API server was away, no holder could renew its Lease: watch again from the start.
                    seen.clear();
                    let error = in_full(&error);
                    let (wait, is_news) = failures.note(&error, RETRY);
                    if is_news {
                        warn!(
                            error,
                            "cannot look for other installations yet; trying again; set {FLAG} to skip this check"
                        );
                    }
                    wait
                }
            };
            self.env.sleep_until(now + wait).await;
        }
    }

    async fn list(&self) -> Result<Vec<Lease>, ReadError> {
        let these = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let request = Request::new(Lease::url_path(&(), None)).list(&these).map_err(kube::Error::BuildRequest)?;
        Ok(self.reader.read::<ObjectList<Lease>>(request, usize::MAX).await?.0.items)
    }

    /// Judges these Leases at `now`. `seen` keeps the first state of each, and its time, by namespace.
    fn judge(&self, seen: &mut HashMap<String, (LeaseSpec, Timestamp)>, leases: Vec<Lease>, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::Alone;
        for Lease { metadata, spec } in leases {
            let (namespace, spec) = (metadata.namespace.unwrap_or_default(), spec.unwrap_or_default());
            if self.home.as_ref() == Some(&namespace) {
                continue;
            }
            let held_by = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
            let is_released = held_by.is_none();
            let holder = held_by.unwrap_or_else(|| "none".to_owned());
            let patience = self.patience(&spec);
            let other = Elsewhere { namespace: namespace.clone(), name: self.name.clone(), holder };
            let (first, since) = seen.entry(namespace).or_insert_with(|| (spec.clone(), now));
            if *first != spec && is_released {
                // It was released: for good, or the next leader is starting.
                (*first, *since) = (spec, now);
            } else if *first != spec {
                return Verdict::Live(other);
            }
            if now.duration_since(*since) < patience && verdict == Verdict::Alone {
                verdict = Verdict::Unclear(other);
            }
        }
        verdict
    }

    /// The longest time that the Lease of a living installation stays unchanged: until a standby takes it after the death of its holder.
    fn patience(&self, spec: &LeaseSpec) -> SignedDuration {
        let written = spec.lease_duration_seconds.unwrap_or_default().min(LONGEST_DURATION);
        let written = SignedDuration::from_secs(written.into());
        written.max(self.timing.lease_duration()) + self.timing.retry_period() * 2
    }
}

/// Whether the API server forbids the list. A proxy in front of it may also answer 403, but not with this reason.
fn is_forbidden(error: &ReadError) -> bool {
    matches!(error, ReadError::Api(kube::Error::Api(status)) if status.code == 403 && status.reason == reason::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Response, StatusCode};
    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;
    use crate::manager::tasks::Failure;
    use leadership::env::testing::virtual_env;

    /// The search of a process whose own Lease is in `home`, with an API server that never responds.
    fn search(home: Option<&str>) -> Search {
        search_at(home, |_| std::future::pending())
    }

    fn search_at<F>(home: Option<&str>, answer: impl Fn(usize) -> F + Send + 'static) -> Search
    where
        F: Future<Output = Result<Response<Body>, http::Error>> + Send + 'static,
    {
        let mut asked = 0;
        let service = tower::service_fn(move |_: http::Request<Body>| {
            asked += 1;
            answer(asked)
        });
        Search {
            reader: Reader::new(Client::new(service, "default"), &http::Uri::default()),
            env: virtual_env(),
            name: "podset-operator".to_owned(),
            home: home.map(str::to_owned),
            timing: Timing::default(),
        }
    }

    /// The Lease of this namespace: its holder, its duration, and how many times it was renewed.
    fn lease((namespace, holder, duration, renewals): (&str, &str, i32, i32)) -> Lease {
        let renewed = format!("2001-01-01T00:00:{renewals:02}.000000Z");
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": "podset-operator" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": renewed },
        }))
        .unwrap()
    }

    type Look<'a> = (i64, &'a [(&'static str, &'static str, i32, i32)], &'a str);

    #[tokio::test(start_paused = true)]
    async fn a_lease_elsewhere_is_live_if_it_changes_during_the_search() {
        // Each look has a second, the Leases and the verdict.
        let cases: [(&str, Option<&str>, &[Look]); 10] = [
            ("no Lease", Some("default"), &[(0, &[], "alone")]),
            ("our own", Some("default"), &[(0, &[("default", "a", 15, 0)], "alone")]),
            (
                "released, and taken by the next leader",
                Some("default"),
                &[(0, &[("ops", "", 1, 0)], "unclear"), (4, &[("ops", "b", 15, 0)], "live")],
            ),
            ("released", Some("default"), &[(0, &[("ops", "", 1, 0)], "unclear"), (19, &[("ops", "", 1, 0)], "alone")]),
            (
                "renewed",
                Some("default"),
                &[(0, &[("ops", "a", 15, 0)], "unclear"), (2, &[("ops", "a", 15, 1)], "live")],
            ),
            (
                "another holder",
                Some("default"),
                &[(0, &[("ops", "a", 15, 0)], "unclear"), (17, &[("ops", "b", 15, 0)], "live")],
            ),
            (
                "abandoned",
                Some("default"),
                &[
                    (0, &[("ops", "a", 15, 0)], "unclear"),
                    (18, &[("ops", "a", 15, 0)], "unclear"),
                    (19, &[("ops", "a", 15, 0)], "alone"),
                ],
            ),
            (
                "abandoned with a long duration",
                Some("default"),
                &[
                    (0, &[("ops", "a", 60, 0)], "unclear"),
                    (63, &[("ops", "a", 60, 0)], "unclear"),
                    (64, &[("ops", "a", 60, 0)], "alone"),
                ],
            ),
            (
                "released during the search",
                Some("default"),
                &[
                    (0, &[("ops", "a", 15, 0)], "unclear"),
                    (5, &[("ops", "", 1, 0)], "unclear"),
                    (23, &[("ops", "", 1, 0)], "unclear"),
                    (24, &[("ops", "", 1, 0)], "alone"),
                ],
            ),
            (
                "no own Lease",
                None,
                &[(0, &[("default", "a", 15, 0)], "unclear"), (1, &[("default", "a", 15, 1)], "live")],
            ),
        ];
        for (case, home, looks) in cases {
            let (search, mut seen) = (search(home), HashMap::new());
            for (second, leases, expected) in looks {
                let leases = leases.iter().copied().map(lease).collect();
                let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(*second);
                let verdict = match search.judge(&mut seen, leases, now) {
                    Verdict::Alone => "alone",
                    Verdict::Live(_) => "live",
                    Verdict::Unclear(_) => "unclear",
                };
                assert_eq!(verdict, *expected, "{case}, second {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_live_lease_is_found_among_others() {
        let (search, mut seen) = (search(Some("default")), HashMap::new());
        let leases = |renewals| [("dead", "a", 15, 0), ("ops", "b", 15, renewals)].map(lease).to_vec();
        search.judge(&mut seen, leases(0), Timestamp::UNIX_EPOCH);
        let Verdict::Live(other) = search.judge(&mut seen, leases(1), Timestamp::UNIX_EPOCH) else {
            panic!("it is live")
        };
        assert_eq!(other.to_string(), "another installation uses the Lease ops/podset-operator (holder b)");
        let failure = Failure::Beside { other, home: "default".to_owned() };
        assert_eq!(failure.exit_code(), 2);
        for flag in ["--leader-elect-resource-namespace=ops", "--leader-elect-resource-namespace=default"] {
            assert!(failure.to_string().contains(flag), "{failure}");
        }
    }

    fn answer(code: u16, body: serde_json::Value) -> Result<Response<Body>, http::Error> {
        Response::builder().status(StatusCode::from_u16(code).unwrap()).body(Body::from(body.to_string().into_bytes()))
    }

    fn failure(code: u16, reason: &str) -> Result<Response<Body>, http::Error> {
        answer(code, json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason }))
    }

    fn list(items: &[Lease]) -> Result<Response<Body>, http::Error> {
        answer(200, json!({ "metadata": {}, "items": items }))
    }

    #[tokio::test(start_paused = true)]
    async fn the_search_retries_until_the_api_server_answers_or_forbids_it() {
        for last in [200, 403] {
            let search = search_at(Some("default"), move |asked| {
                let last = if last == 200 { list(&[]) } else { failure(403, reason::FORBIDDEN) };
                std::future::ready(match asked {
                    0..5 => failure(503, "A"),
                    // A proxy.
                    5..10 => failure(403, "403 Forbidden"),
                    _ => last,
                })
            });
            let began = tokio::time::Instant::now();
            let found = tokio::time::timeout(Duration::from_secs(300), search.run()).await;
            assert_eq!(found, Ok(None), "{last}");
            assert!(began.elapsed() > Duration::from_secs(60), "nine looks without a list");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_responses_does_not_make_a_lease_abandoned() {
        let search = search_at(Some("default"), |asked| {
            std::future::ready(match asked {
                2..=6 => failure(503, "A"),
                8 => list(&[lease(("ops", "a", 15, 1))]),
                _ => list(&[lease(("ops", "a", 15, 0))]),
            })
        });
        let found = search.run().await.map(|other| other.namespace);
        assert_eq!(found.as_deref(), Some("ops"), "half a minute without a list proves nothing");
    }
}
