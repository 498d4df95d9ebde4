//! podset-operator: a Kubernetes operator that keeps N identical pods running, and never more than N.
//!
//! Start reading at [`manager`], which runs the process, or at [`podset`], the pipeline. [`podset::promise`] explains why there are never
//! more than N pods. `CONTRIBUTING.md` says where to find what, and `docs/adding-a-controller.md` what another controller needs.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api;
pub mod cli;
pub mod manager;
pub mod mycustomresource;
pub mod podset;
