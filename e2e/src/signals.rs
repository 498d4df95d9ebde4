//! On Ctrl-C and SIGTERM, ends what was started before this process.

use std::io::Write as _;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for a signal, calls `end`, and exits. A second signal exits at once, and the guards do the rest.
pub async fn end_on_signals(end: impl FnOnce() + Send + 'static) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        eprintln!("e2e: cannot listen for signals; what was started ends with this process");
        return;
    };
    let code = tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    };
    // Without a panic: the reader may be gone by the same signal.
    let _ = writeln!(std::io::stderr(), "e2e: interrupted: ending what was started");
    let ended = tokio::task::spawn_blocking(end);
    tokio::select! {
        _ = ended => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    std::process::exit(code);
}
