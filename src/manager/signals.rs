//! The signals that ask the process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::health::Health;

/// The signals that ask the process to end.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    ///
    /// When the system does not allow it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal: its number and its name.
    async fn next(&mut self) -> (u8, &'static str) {
        tokio::select! {
            _ = self.terminate.recv() => (15, "SIGTERM"),
            _ = self.interrupt.recv() => (2, "SIGINT"),
        }
    }

    /// The first signal asks everything to end; a second one ends it at once.
    /// The exit code says so.
    pub async fn obeyed(&mut self, health: &Health, stop: &CancellationToken) -> u8 {
        let (_, signal) = self.next().await;
        info!(signal, "ending: no new work is begun");
        health.ending();
        stop.cancel();
        let (number, signal) = self.next().await;
        warn!(signal, "a second signal: ending at once");
        128 + number
    }
}
