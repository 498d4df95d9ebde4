//! Reads the API server's audit log from where it was read before.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use e2e::audit::Requests;

pub struct Tail {
    log: File,
    /// Where the next line begins.
    read: u64,
}

impl Tail {
    /// Starts at the end of the log.
    pub fn follow(log: &Path) -> Result<Self> {
        let mut log = File::open(log).with_context(|| format!("reading {}", log.display()))?;
        let read = log.seek(SeekFrom::End(0))?;
        Ok(Self { log, read })
    }

    /// The requests of these users since the last call. A half written line is left for the next call.
    pub fn since_last(&mut self, users: &[String]) -> Result<Requests> {
        let mut text = Vec::new();
        self.log.seek(SeekFrom::Start(self.read))?;
        self.log.read_to_end(&mut text)?;
        text.truncate(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        self.read += text.len() as u64;
        Requests::of_users(std::str::from_utf8(&text)?, users)
    }
}
