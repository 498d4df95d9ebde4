//! The controllers, and what they share.
//!
//! A further controller is one folder that implements [`Controller`] and one line in `manager::replica`.

pub mod compact_time;
pub mod failures;
pub mod interner;
pub mod meta;
pub mod mycustomresource;
pub mod object_key;
pub mod pace;
pub mod podset;
pub mod queue;
pub mod requests;
pub mod runner;
pub mod statuses;

pub use object_key::{ObjectKey, in_scope};
pub use runner::{Context, Controller, Next, run};
