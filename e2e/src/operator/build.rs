//! Builds the operator.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::process::Command;

use crate::process::printed;

/// Names a binary to test instead of building one.
pub const BINARY: &str = "E2E_OPERATOR_BINARY";

/// Builds the operator with these flags of cargo and returns its binary, or the one that `E2E_OPERATOR_BINARY` names.
pub async fn build(flags: &[&str]) -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os(BINARY) {
        return Ok(crate::root().join(binary));
    }
    built(["--package", "podset-operator", "--bin", "podset-operator"].iter().chain(flags).copied()).await
}

/// Builds a program with cargo and returns its binary.
pub async fn built(arguments: impl IntoIterator<Item = &str>) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .arg("build")
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // Cargo's variables for this package would make build scripts of others run again each time.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    let messages = printed(command).await.context("it does not compile")?;
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let binary = artifacts.filter_map(|artifact| Some(artifact["executable"].as_str()?.into())).next_back();
    binary.context("cargo does not print where the binary is")
}
