//! What the tests of several modules need: the log.

use std::{fs, sync::Arc};

use tempfile::NamedTempFile;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default, set_global_default};

/// What the current thread logs, until this is dropped.
pub struct CapturedLogs {
    file: NamedTempFile,
    _guard: DefaultGuard,
}

impl CapturedLogs {
    /// Captures what the current thread logs from now on.
    pub fn start() -> Self {
        // With a single subscriber, tracing asks only the current thread which events to log. A test on another thread that changes a
        // log level would then turn off the events of this one. With a second subscriber, tracing asks all of them.
        let _ = set_global_default(NoSubscriber::new());
        let file = NamedTempFile::new().unwrap();
        let writer = Arc::new(file.reopen().unwrap());
        let _guard = set_default(tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish());
        CapturedLogs { file, _guard }
    }

    /// The lines so far.
    pub fn text(&self) -> String {
        fs::read_to_string(self.file.path()).unwrap()
    }
}
