//! The operator's binary, built from this workspace.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use tokio::process::Command;

use crate::process::printed;

/// The variable that names a binary to take in place of one built from this workspace.
pub const BINARY: &str = "E2E_OPERATOR_BINARY";

/// How the operator is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Profile {
    /// In little time, with checks.
    Debug,
    /// As it is shipped.
    Release,
}

/// Builds the operator and answers where its binary is: `cargo test` of this crate builds no other package's. A binary
/// named by `E2E_OPERATOR_BINARY` is taken as it is.
pub async fn build(profile: Profile) -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os(BINARY) {
        return Ok(binary.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "podset-operator", "--bin", "podset-operator"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo says of this package to its tests would make build scripts of others run again, each time.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    let messages = printed(command).await.context("the operator does not compile")?;
    executable(&messages).context("cargo built the operator and does not say where")
}

fn executable(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable).next_back()
}
