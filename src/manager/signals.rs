//! The signals that end the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use operator_kit::health::Health;

/// The signals that end the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen. Returns an error if the system does not allow it.
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

    /// Ends everything in order at the first signal. Returns the exit code at the second one, which ends the process at once.
    pub async fn obeyed(&mut self, health: &Health, stop: &CancellationToken) -> u8 {
        let (_, signal) = self.next().await;
        info!(signal, "shutting down: no new work starts");
        health.ending();
        stop.cancel();
        let (number, signal) = self.next().await;
        warn!(signal, "second signal: exiting at once");
        128 + number
    }
}
