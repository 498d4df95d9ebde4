//! Checks and helpers shared by the simulation, `tests/tracing` and the end-to-end tests. They do not use the operator's code.
//!
//! - [`bound`] checks "never more than N"; [`watches`] does so from what two watches show
//! - [`lease`] checks "one writer": each write took effect while its sender held the Lease
//! - [`collector`] receives traces by OTLP
//! - [`object`] reads objects that are JSON

pub mod bound;
pub mod collector;
pub mod lease;
pub mod object;
pub mod watches;
