//! What the process serves: health probes and metrics, each at an address of its own, by one thread ([`Thread`]).
//!
//! In: where to serve, and the values that are shown. Both servers are there before anything else begins and end after all
//! else has ended, so that whoever asks gets an answer for as long as there is a process.

mod auth;
mod connections;
mod listener;
mod log_level;
mod metrics;
mod probes;
mod thread;
mod tls;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use kube::Client;
use tokio::{sync::watch, task::JoinSet};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    cli::RunArgs,
    health::Health,
    telemetry::{logs::Level, metrics::Metrics},
};
use auth::Gate;
use leadership::env::Env;
use listener::Listener;
use tls::Files;

pub use listener::BindError;
pub use thread::Thread;
pub use tls::CertificateError;

/// How many connections may wait to be accepted at the probes. They are served as fast as they come: an answer costs little, and a
/// probe that waits is a restart.
const PROBES_WAITING: i32 = 1024;

/// The same at the metrics: few, so that a scrape does not wait for long behind a flood.
const METRICS_WAITING: i32 = 32;

/// The time between two connections to the metrics: scrapes are seconds apart, and handshakes and metrics cost time.
const METRICS_INTERVAL: Duration = Duration::from_millis(20);

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened at.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is no certificate to serve with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The servers that run.
#[derive(Debug)]
pub struct Servers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    probes: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Servers {
    /// Begins to serve what the flags ask for, until `stop`. `reviews` asks the API server who may see the metrics or set the level
    /// of the log: it needs no leadership, and it must come from this runtime, which drives its connections.
    ///
    /// # Errors
    ///
    /// When an address is taken, or the certificate cannot be used.
    pub async fn start(
        arguments: &RunArgs,
        env: &Env,
        reviews: Client,
        health: &Health,
        shown: (&Metrics, &Level),
        stop: CancellationToken,
    ) -> Result<Self, ServeError> {
        let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
        let address = &arguments.health_probe_bind_address;
        if let Some(listener) = Listener::bind("--health-probe-bind-address", address, PROBES_WAITING).await? {
            info!(address = %listener.address, "serving health probes");
            servers.probes = Some(listener.address);
            servers.serve(listener, None, probes::router(health.clone()), Duration::ZERO);
        }
        servers.start_metrics(arguments, env, reviews, shown).await?;
        Ok(servers)
    }

    async fn start_metrics(
        &mut self,
        arguments: &RunArgs,
        env: &Env,
        reviews: Client,
        (metrics, level): (&Metrics, &Level),
    ) -> Result<(), ServeError> {
        let address = &arguments.metrics_bind_address;
        let Some(listener) = Listener::bind("--metrics-bind-address", address, METRICS_WAITING).await? else {
            return Ok(());
        };
        let tls = match (&arguments.metrics_cert_path, arguments.metrics_secure) {
            (Some(_), false) => {
                warn!("--metrics-cert-path is not used: --metrics-secure=false serves plain HTTP");
                None
            }
            (None, false) => None,
            (Some(folder), true) => {
                let (files, tls) = Files::open(folder)?;
                self.tasks.spawn(files.keep_fresh(self.stop.clone()));
                Some(tls)
            }
            (None, true) => Some(watch::channel(tls::self_signed()?).1),
        };
        info!(address = %listener.address, secure = arguments.metrics_secure, "serving metrics");
        self.metrics = Some(listener.address);
        let gate = |access| Gate::new(access, reviews.clone(), env.clone());
        let mut router = metrics::router(metrics.clone(), tls.as_ref().map(|_| gate(metrics::ACCESS)));
        // Without a gate everybody could drown the log.
        if tls.is_some() {
            router = router.merge(log_level::router(level.clone(), gate(log_level::ACCESS)));
        }
        self.serve(listener, tls, router, METRICS_INTERVAL);
        Ok(())
    }

    fn serve(
        &mut self,
        listener: Listener,
        tls: Option<watch::Receiver<Arc<ServerConfig>>>,
        router: Router,
        interval: Duration,
    ) {
        self.tasks.spawn(connections::serve(listener.socket, tls, router, interval, self.stop.clone()));
    }

    /// Where the health probes are served.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Where the metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Serves until `stop`: from then on no connection is accepted, and those that are open get their answer, in a bounded time.
    ///
    /// # Panics
    ///
    /// When a server panics.
    pub async fn run(self) {
        self.tasks.join_all().await;
        self.stop.cancelled().await;
    }

    /// Ends both, as [`Servers::run`] does at `stop`.
    #[cfg(test)]
    pub async fn end(self) {
        self.stop.cancel();
        self.run().await;
    }
}

#[cfg(test)]
mod tests;
