//! Leader election: of several replicas one writes, and never two.
//!
//! | file | what it holds |
//! |---|---|
//! | `promise` | the promise, its rules, and each rule as a value that a test can exchange |
//! | `term` | leadership as a value: who may write, and for how long |
//! | `timing` | the durations, and what follows from them |
//! | `lease` | what a Lease says |
//! | `observation` | what this process has seen of the Lease, and what follows from it: pure |
//! | `operation` | one read and write of the Lease by `kube-leader-election`, made safe by a layer around its client |
//! | `election` | the loop around it: stand by, lead, give back |
//!
//! `kube-leader-election` reads and writes the Lease; it decides nothing (`operation` says how).

mod election;
mod lease;
mod observation;
mod operation;
pub mod promise;
mod term;
mod timing;

pub use self::{
    election::{Election, Lost},
    observation::{Observation, WentBack},
    operation::Setting,
    term::{Ends, LeaderState, Leadership, MAY_LAND, Term, WRITE_TIMEOUT, Write, WritePermit},
    timing::{Timing, TimingError},
};
