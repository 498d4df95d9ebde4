//! Passes the arguments to the manager, and returns its exit code. If they are wrong, the process exits with code 2.

use std::{env, process::ExitCode};

use podset_operator::{cli::Cli, manager};

fn main() -> ExitCode {
    manager::main(Cli::read(env::args_os()).unwrap_or_else(|error| error.exit()))
}
