//! Arguments → manager → exit code; nothing else.

use std::process::ExitCode;

use clap::Parser;
use podset_operator::{cli::Cli, manager};

fn main() -> ExitCode {
    manager::main(Cli::parse())
}
