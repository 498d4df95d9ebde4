//! Programs that the harness runs to their end.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// What a program prints. Its error output is for people and passed on to them, while it runs.
pub async fn printed(mut command: Command) -> Result<String> {
    let what = format!("{:?}", command.as_std());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let running = command.spawn().with_context(|| format!("starting {what}"))?;
    let output = running.wait_with_output().await.with_context(|| format!("running {what}"))?;
    ensure!(output.status.success(), "{what} failed ({}), for the reason above", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
