//! Passes the arguments to the manager, and returns its exit code.

use std::process::ExitCode;

use podset_operator::{cli::Cli, manager};

fn main() -> ExitCode {
    manager::main(Cli::from_command_line())
}
