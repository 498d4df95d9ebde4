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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_half_written_line_is_read_when_it_is_whole() {
        let user = "system:serviceaccount:a:one";
        let line = format!(
            r#"{{"verb":"get","requestURI":"/x","user":{{"username":"{user}"}},"requestReceivedTimestamp":"2026-01-01T00:00:00Z","stageTimestamp":"2026-01-01T00:00:01Z"}}"#
        );
        let file = std::env::temp_dir().join(format!("tail-{}.log", std::process::id()));
        std::fs::write(&file, format!("{line}\n")).unwrap();
        let (mut tail, users) = (Tail::follow(&file).unwrap(), [user.to_owned()]);
        let mut log = File::options().append(true).open(&file).unwrap();
        let (start, end) = line.split_at(20);
        for (written, requests) in [("", 0), (&*format!("{line}\n{start}"), 1), (&format!("{end}\n"), 1)] {
            log.write_all(written.as_bytes()).unwrap();
            assert_eq!(tail.since_last(&users).unwrap().0.len(), requests);
        }
        std::fs::remove_file(&file).unwrap();
    }
}
