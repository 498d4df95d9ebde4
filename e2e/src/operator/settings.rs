//! How an operator is started: what differs between one scenario and another.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;

use crate::proxy::Proxy;

/// How an operator is started. What is not asked for is off: election, probes, metrics.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespaces that it watches; none are all, with the ServiceAccount that `config/rbac` installs.
    pub namespaces: Vec<String>,
    /// The API server as it finds it, where that is not the cluster's own.
    pub server: Option<Value>,
    /// Its part in an election.
    pub election: Option<Election>,
    /// How many seconds its clock of the day is ahead; and what makes it so.
    pub ahead: Option<(i64, PathBuf)>,
    /// Whether it serves probes and metrics, at free ports.
    pub serves: bool,
    /// Where it sends traces. The API server continues them, as for a caller that it trusts.
    pub traces: Option<SocketAddr>,
    /// What it logs, where that is not what it logs by default.
    pub log_level: Option<&'static str>,
}

/// The times of a leader election, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Election {
    /// How long a Lease lasts that nobody renews.
    pub lease_duration: u64,
    /// How long a leader goes on without a renewal.
    pub renew_deadline: u64,
    /// How often it is renewed, and how often others try to take it.
    pub retry_period: u64,
}

impl Election {
    /// What an operator does that is not told otherwise.
    pub const DEFAULT: Election = Election { lease_duration: 15, renew_deadline: 10, retry_period: 2 };
    /// For scenarios that wait for the end of a Lease.
    pub const SHORT: Election = Election { lease_duration: 6, renew_deadline: 4, retry_period: 1 };

    fn flags(&self) -> Vec<String> {
        if *self == Self::DEFAULT {
            return Vec::new(); // so that the defaults themselves are tested
        }
        let Election { lease_duration, renew_deadline, retry_period } = self;
        vec![
            format!("--leader-elect-lease-duration={lease_duration}s"),
            format!("--leader-elect-renew-deadline={renew_deadline}s"),
            format!("--leader-elect-retry-period={retry_period}s"),
        ]
    }
}

impl Settings {
    /// For this namespace.
    pub fn of(namespace: &str) -> Self {
        Self { namespaces: vec![namespace.to_owned()], ..Self::default() }
    }

    /// The API server is where this proxy is.
    pub fn behind(mut self, proxy: &Proxy) -> Self {
        self.server = Some(proxy.server());
        self
    }

    /// It takes part in an election.
    pub fn elected(mut self, election: Election) -> Self {
        self.election = Some(election);
        self
    }

    /// It serves probes and metrics, at free ports of this machine alone.
    pub fn serving(mut self) -> Self {
        self.serves = true;
        self
    }

    /// It sends its traces there, at once.
    pub fn traced(mut self, collector: SocketAddr) -> Self {
        self.traces = Some(collector);
        self
    }

    /// The flags of an operator whose Lease, if it has one, is in the namespace `home`.
    pub fn flags(&self, home: &str) -> Vec<String> {
        let address = if self.serves { "127.0.0.1:0" } else { "0" };
        let mut flags = vec![
            format!("--leader-elect={}", self.election.is_some()),
            format!("--health-probe-bind-address={address}"),
            format!("--metrics-bind-address={address}"),
            // Also where the tests themselves run in a pod.
            "--log-format=text".to_owned(),
        ];
        if let Some(election) = self.election {
            flags.push(format!("--leader-elect-resource-namespace={home}"));
            flags.extend(election.flags());
        }
        flags.extend(self.log_level.map(|level| format!("--log-level={level}")));
        flags.extend(self.namespaces.iter().map(|namespace| format!("--watch-namespace={namespace}")));
        flags
    }

    /// The environment by which its clock of the day is ahead, and its traces find their way.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = Vec::new();
        if let Some((seconds, library)) = &self.ahead {
            environment.push(("LD_PRELOAD", library.display().to_string()));
            environment.push(("WALL_CLOCK_AHEAD", seconds.to_string()));
        }
        if let Some(collector) = self.traces {
            environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}")));
            environment.push(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()));
            environment.push(("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()));
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_times_are_left_to_the_operator() {
        let flags = |election| Settings::of("here").elected(election).flags("home").join(" ");
        assert_eq!(
            flags(Election::DEFAULT),
            "--leader-elect=true --health-probe-bind-address=0 --metrics-bind-address=0 --log-format=text \
             --leader-elect-resource-namespace=home --watch-namespace=here"
        );
        assert!(flags(Election::SHORT).contains("--leader-elect-lease-duration=6s"));
    }
}
