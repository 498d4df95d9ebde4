//! What the simulation, `tests/tracing` and the end-to-end tests share. It does not use the operator's code.
//!
//! - [`apiserver`] is an API server in the process of the test, which injects faults and checks every change
//! - [`bound`] checks "never more than N"; [`watches`] does so from the events of two watches
//! - [`lease`] checks "one writer": each write took effect while its sender held the Lease
//! - [`collector`] receives traces over OTLP
//! - [`object`] reads and builds JSON objects

#![expect(missing_docs, reason = "the names of many small helpers say what they do")]

pub mod apiserver;
pub mod bound;
pub mod collector;
pub mod lease;
pub mod object;
pub mod watches;
