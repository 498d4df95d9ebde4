#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod answer;
mod candidate;
pub mod connect;
mod election;
pub mod env;
mod failures;
mod gate;
mod lease;
mod observation;
mod operation;
mod pool;
pub mod promise;
mod store;
mod term;
mod timing;
mod watch;
mod write;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::{
    candidate::{Candidate, identity},
    connect::ConnectError,
    election::Election,
    failures::with_causes,
    observation::{Observation, WentBack},
    operation::Lost,
    store::Store,
    term::{Ends, LeaderState, Leadership, MAY_LAND, Term},
    timing::{Timing, TimingError},
    write::{Unanswered, WRITE_TIMEOUT, Write, WriteError, WritePermit, fenced},
};

/// Locks a mutex, even if another thread panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
