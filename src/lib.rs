//! podset-operator: a Kubernetes operator that keeps N identical pods, and never more than N, not for a moment.
//!
//! Start reading at [`manager`], the life of the process, or at [`controllers::podset`], the pipeline. Why there are never
//! more than N stands in [`controllers::podset::promise`].

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api;
pub mod cli;
pub mod client;
pub mod controllers;
pub mod fair;
pub mod health;
pub mod listwatch;
pub mod manager;
pub mod server;
pub mod telemetry;
pub mod token_bucket;
