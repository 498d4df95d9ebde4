//! Arguments → manager → exit code; nothing else.

use std::process::ExitCode;

use podset_operator::{cli::Cli, manager};

fn main() -> ExitCode {
    manager::main(Cli::of_process())
}
