//! Reads the API server's audit log from where it was read before.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use e2e::audit::Requests;

pub struct Tail {
    log: File,
    /// The beginning of the next line, if it was half written.
    unread: Vec<u8>,
}

impl Tail {
    /// Starts at the end of the log.
    pub fn follow(log: &Path) -> Result<Self> {
        let mut log = File::open(log).with_context(|| format!("reading {}", log.display()))?;
        log.seek(SeekFrom::End(0))?;
        Ok(Self { log, unread: Vec::new() })
    }

    /// The requests since the last call. A half written line is left for the next call.
    pub fn since_last(&mut self) -> Result<Requests> {
        self.log.read_to_end(&mut self.unread)?;
        let end = self.unread.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<_> = self.unread.drain(..end).collect();
        Requests::parse(std::str::from_utf8(&lines)?)
    }
}
