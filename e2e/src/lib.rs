//! The operator against a real API server, from the outside: nothing here knows the operator's code.
//!
//! `tests/e2e` holds the scenarios, which read as stories; this library is what they are told with:
//! - [`suite`] runs them: builds the operator, starts [clusters](cluster), ends everything
//! - [`scene`] is the place of one scenario, with [`verbs`] for what people do there and [`kubectl`] for how
//! - [`observe`] are its eyes: waits by watch, and the check that no set ever has too many pods
//! - [`audit`] counts the operator's requests, and judges that one replica at a time writes
//! - [`collector`] takes the traces that the operator and its API server send
//! - [`operator`] is the process under test, with an [`account`] and [`rights`] of its own; [`fleet`] are several replicas
//!   of it, [`proxy`] is what stands between it and its API server to torment it

pub mod account;
pub mod audit;
pub mod cluster;
pub mod collector;
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
pub mod usage;
mod verbs;

use std::path::PathBuf;

/// The folder of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
