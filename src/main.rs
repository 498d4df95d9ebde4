//! Arguments → manager → exit code; nothing else.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use podset_operator::{cli::Cli, manager};

fn main() -> ExitCode {
    manager::main(Cli::parse())
}
