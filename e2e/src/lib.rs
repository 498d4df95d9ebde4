//! The harness of the end-to-end tests. It does not use the operator's code.
//!
//! - [`suite`] runs the scenarios of `tests/e2e` and starts [clusters](cluster)
//! - [`scene`] is the environment of one scenario
//! - [`observe`] watches its namespace, and checks that no set ever has too many pods
//! - [`audit`] reads the requests of operators, and checks that one replica at a time writes
//! - [`operator`] is the process under test, [`fleet`] are several replicas, and [`proxy`] injects faults in front of the API server

// A test harness: a comment is there where a name does not say everything.
#![allow(missing_docs)]

pub mod account;
pub mod audit;
pub mod cluster;
pub mod fleet;
pub mod install;
pub mod kubectl;
pub mod observe;
pub mod operator;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod scene;
pub mod signals;
pub mod suite;
pub mod types;
mod verbs;

use std::path::PathBuf;

pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
