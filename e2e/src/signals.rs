//! Ctrl-C and SIGTERM: what was started is ended before this process is.

use std::io::Write as _;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for one of them, calls `end`, and ends this process. A second signal ends it at once, and the clusters' guards do the rest.
pub async fn end_on_signals(end: impl FnOnce() + Send + 'static) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        eprintln!("e2e: cannot listen for signals; what was started still ends with this process");
        return;
    };
    let code = tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    };
    // Whoever read it may have been ended by the same signal: `eprintln!` would panic then, and end nothing.
    let _ = writeln!(std::io::stderr(), "e2e: interrupted: ending what was started");
    let ended = tokio::task::spawn_blocking(end);
    tokio::select! {
        _ = ended => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    std::process::exit(code);
}
