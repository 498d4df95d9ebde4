//! Serves health probes and metrics, each at its own address.
//!
//! Both servers start before the controllers and end after them.

mod auth;
mod connections;
mod listener;
pub mod log_level;
mod metrics;
mod probes;
mod tls;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use kube::Client;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    health::Health,
    telemetry::{logs::Level, metrics::Metrics},
};
use auth::Authorizer;
use leadership::env::Env;
use listener::{BindAddress, bind};

/// The listen queue of the probes. They are served as fast as they come: a response is cheap, and a failed probe restarts the pod.
const PROBES_WAITING: i32 = 1024;

/// The listen queue of the metrics: short, so that a scrape does not wait for long behind a flood.
const METRICS_WAITING: i32 = 32;

/// The shortest time between two connections to the metrics. Scrapes are seconds apart, and handshakes and metrics cost CPU time.
const METRICS_INTERVAL: Duration = Duration::from_millis(20);

/// What to serve, and where.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Address of the health probes; port 0 picks a free port and logs it; `0` alone turns them off
    #[arg(long = "health-probe-bind-address", env = "PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081",
        value_parser = BindAddress::read, value_name = "HOST:PORT")]
    probes: BindAddress,

    /// Address of the metrics; port 0 picks a free port and logs it; `0` alone turns them off
    #[arg(long = "metrics-bind-address", env = "PODSET_OPERATOR_METRICS_BIND_ADDRESS", default_value = ":8443",
        value_parser = BindAddress::read, value_name = "HOST:PORT")]
    metrics: BindAddress,

    /// Serve the metrics over HTTPS, to users with permission to `get` the path /metrics; `false` serves plain HTTP to everyone
    #[arg(long = "metrics-secure", env = "PODSET_OPERATOR_METRICS_SECURE", default_value_t = true, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    is_secure: bool,

    /// Folder with tls.crt and tls.key for the metrics, reloaded when they change [default: a self-signed certificate]
    #[arg(long = "metrics-cert-path", env = "PODSET_OPERATOR_METRICS_CERT_PATH", value_name = "FOLDER")]
    certificate: Option<PathBuf>,
}

/// Why the servers cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Listening on an address failed.
    #[error("{0}")]
    Bind(String),
    /// There is no usable certificate.
    #[error("{0}")]
    Certificate(String),
}

/// Running servers.
#[derive(Debug)]
pub struct Servers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    /// The address of the health probes.
    pub probes: Option<SocketAddr>,
    /// The address of the metrics.
    pub metrics: Option<SocketAddr>,
}

impl Servers {
    /// Starts to serve until `stop`. `reviews` asks the API server which users may see the metrics or set the log level. It needs no
    /// leadership. A flood of requests must not slow the controllers or the election down, so this must run on a runtime of its own, on
    /// which `reviews` was made as well.
    ///
    /// # Errors
    ///
    /// When an address is taken, or the certificate cannot be used.
    pub async fn start(
        options: Options,
        env: Env,
        reviews: Client,
        health: Health,
        metrics: Metrics,
        level: Level,
        stop: CancellationToken,
    ) -> Result<Self, ServeError> {
        let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
        let probes = bind("--health-probe-bind-address", &options.probes, PROBES_WAITING).await?;
        if let Some((listener, address)) = probes {
            info!(%address, "serving health probes");
            servers.probes = Some(address);
            let serving =
                connections::serve(listener, None, probes::router(health), Duration::ZERO, servers.stop.clone());
            servers.tasks.spawn(serving);
        }
        let Some((listener, address)) = bind("--metrics-bind-address", &options.metrics, METRICS_WAITING).await? else {
            return Ok(servers);
        };
        let tls = match (&options.certificate, options.is_secure) {
            (Some(_), false) => {
                warn!("--metrics-cert-path is not used: --metrics-secure=false serves plain HTTP");
                None
            }
            (None, false) => None,
            (Some(folder), true) => {
                let (current, tls) = watch::channel(tls::read(folder).map_err(ServeError::Certificate)?);
                servers.tasks.spawn(tls::keep_fresh(folder.clone(), current, servers.stop.clone()));
                Some(tls)
            }
            (None, true) => Some(watch::channel(tls::self_signed().map_err(ServeError::Certificate)?).1),
        };
        info!(%address, secure = options.is_secure, "serving metrics");
        servers.metrics = Some(address);
        let authorizer = tls.as_ref().map(|_| Authorizer::new(metrics::ACCESS, reviews.clone(), env.clone()));
        let mut router = metrics::router(metrics, authorizer);
        // Not without authentication: anyone could flood the log.
        if tls.is_some() {
            router = router.merge(log_level::router(level, reviews, env));
        }
        servers.tasks.spawn(connections::serve(listener, tls, router, METRICS_INTERVAL, servers.stop.clone()));
        Ok(servers)
    }

    /// Serves until `stop`. Then accepts no more connections, and finishes open ones within a bounded time.
    ///
    /// # Panics
    ///
    /// When a server panics.
    pub async fn run(self) {
        self.tasks.join_all().await;
        self.stop.cancelled().await;
    }
}

#[cfg(test)]
mod tests;
