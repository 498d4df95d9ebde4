//! The simulated API server, on a port and in real time. Tests create one PodSet, `shop/web`.

use std::{ops::Deref, time::Duration};

use serde_json::json;
use testkit::{
    apiserver::{self, Fault, FaultRule, LEASES, PodScript, Requests},
    object,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// The namespace and the name of the PodSet.
const SET: (&str, &str) = ("shop", "web");

/// A running server. When it is dropped, it accepts no more connections and checks the promises.
pub struct TestServer {
    /// Host and port.
    pub address: String,
    server: apiserver::ApiServer,
    listening: JoinHandle<()>,
}

impl TestServer {
    /// Starts a server without PodSets, at a free local port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = apiserver::ApiServer::new(1);
        server.set_pod_script(PodScript::gone_after(Duration::ZERO));
        let connection = server.connection("operator");
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connection.serve(stream).unwrap();
            }
        });
        TestServer { address, server, listening }
    }

    /// Creates the PodSet, or changes its spec.
    pub fn scale(&self, replicas: i64) {
        if self.podset(SET.0, SET.1).is_null() {
            self.create_podset(SET.0, SET.1, replicas);
        } else {
            self.server.scale(SET.0, SET.1, replicas);
        }
    }

    /// Rejects creates of pods from now on, by a quota.
    pub fn reject_pods(&self) {
        self.set_quota(SET.0, 0);
    }

    /// Holds the responses to creates of pods from now on.
    pub fn hold_pods(&self) -> FaultRule {
        self.fault(Requests::creates("pods"), Fault::HoldAnswer)
    }

    /// Gives the Lease to another holder.
    pub fn take_lease(&self) {
        let holder = json!({ "spec": { "holderIdentity": "somebody else" } });
        self.patch(&LEASES, "default", "podset-operator", holder);
    }

    /// How many live pods there are.
    pub fn live_pod_count(&self) -> usize {
        self.live_pods(SET.0, SET.1).len()
    }

    /// Whether the stored status has observed this generation, and its condition Ready is True.
    pub fn is_ready(&self, generation: u64) -> bool {
        let set = self.podset(SET.0, SET.1);
        set["status"]["observedGeneration"] == generation && object::is_ready(&set)
    }

    /// The `traceparent` headers of these requests, in order; empty where there is none.
    pub fn traceparents(&self, which: &Requests) -> Vec<String> {
        self.requests(which).iter().map(|entry| entry.request.header("traceparent").to_owned()).collect()
    }
}

impl Deref for TestServer {
    type Target = apiserver::ApiServer;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
