//! What the simulation, `tests/tracing` and the end-to-end tests share, so that each is written once. It does not use the operator's code.
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
