//! The settings of an operator.

use std::net::SocketAddr;

use serde_json::Value;

use crate::proxy::Proxy;

/// The settings of an operator. By default, election, probes, metrics and traces are off.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespaces that it watches; all if there are none, with the ServiceAccount of `config/rbac`.
    pub namespaces: Vec<String>,
    /// Another API server than the cluster's, as in the `clusters` of a kubeconfig.
    pub server: Option<Value>,
    pub election: Option<Times>,
    /// Whether it serves probes and metrics, on free ports.
    pub serves: bool,
    pub traces: Option<SocketAddr>,
}

/// The times of a leader election, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub lease_duration: u64,
    pub renew_deadline: u64,
    pub retry_period: u64,
}

impl Times {
    pub const DEFAULT: Times = Times { lease_duration: 15, renew_deadline: 10, retry_period: 2 };
    /// For scenarios that wait until a Lease expires.
    pub const SHORT: Times = Times { lease_duration: 6, renew_deadline: 4, retry_period: 1 };
}

impl Settings {
    /// For these namespaces; all if there are none.
    pub fn of(namespaces: &[&str]) -> Self {
        Self { namespaces: namespaces.iter().map(|namespace| namespace.to_string()).collect(), ..Self::default() }
    }

    pub fn behind(mut self, proxy: &Proxy) -> Self {
        self.server = Some(proxy.server());
        self
    }

    pub fn elected(mut self, election: Times) -> Self {
        self.election = Some(election);
        self
    }

    /// The flags. The Lease is in the namespace `home`.
    pub fn flags(&self, home: &str) -> Vec<String> {
        let address = if self.serves { "127.0.0.1:0" } else { "0" };
        let mut flags = vec![
            format!("--leader-elect={}", self.election.is_some()),
            format!("--health-probe-bind-address={address}"),
            format!("--metrics-bind-address={address}"),
            "--log-format=text".to_owned(),
        ];
        if let Some(election) = self.election {
            flags.push(format!("--leader-elect-resource-namespace={home}"));
            // The defaults are left to the operator.
            if election != Times::DEFAULT {
                flags.push(format!("--leader-elect-lease-duration={}s", election.lease_duration));
                flags.push(format!("--leader-elect-renew-deadline={}s", election.renew_deadline));
                flags.push(format!("--leader-elect-retry-period={}s", election.retry_period));
            }
        }
        flags.extend(self.namespaces.iter().map(|namespace| format!("--watch-namespace={namespace}")));
        flags
    }

    /// The environment by which its traces find the collector.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(collector) = self.traces else { return Vec::new() };
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}")),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
        ]
    }
}
