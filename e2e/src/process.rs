//! Runs programs, reads the ends of files, and retries.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// Runs a program and returns its output. Its error output is shown while it runs.
pub async fn printed(mut command: Command) -> Result<String> {
    let what = format!("{:?}", command.as_std());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let running = command.spawn().with_context(|| format!("starting {what}"))?;
    let output = running.wait_with_output().await.with_context(|| format!("running {what}"))?;
    ensure!(output.status.success(), "{what} failed ({}), for the reason above", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The last lines of a file, or why it cannot be read.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| format!("{}: {error}", file.display()));
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Tries again and again until it succeeds. After `limit` it fails with the last error.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + limit;
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("waited {} s for {what}", limit.as_secs())));
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}
