//! A clock of the day that is wrong, for one operator.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::process::printed;

/// Builds what makes a process read another time of the day, into a folder. The C compiler is there: Rust links with it.
pub async fn build_wall_clock(folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/operator/wall_clock.c");
    let library = folder.join("wall_clock.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    printed(compile).await.context("the C compiler cannot build the clock of the day")?;
    Ok(library)
}
