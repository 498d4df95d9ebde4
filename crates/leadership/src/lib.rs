//! Safe leader election: only one of several replicas writes, and never two, not even for a moment.
//!
//! **What it is for.** A Kubernetes operator with several replicas whose writes must not overlap. Usual leader election stops the *work* of
//! a leader that lost its lease; requests that it has already sent, or that a frozen process is about to send, can still take effect after
//! the next leader has begun. This crate also stops these *requests*: each write has a timeout that ends before the lease does, and the
//! connections for writes check leadership just before bytes leave the process. [`promise`] states the promise, its rules and their tests.
//!
//! **What it may do.** It reads, watches and writes one Lease, and it opens connections for writes. It knows no
//! controllers, metrics or flags.
//!
//! **Where to start.** [`Election::run`] stands for election and holds the lease. Controllers see the result as a [`Leadership`]: they wait
//! for [`Leadership::begun`] and stop at [`Leadership::ended`]. A write begins with [`Leadership::begin_write`], carries its
//! [`WritePermit`] as an extension of the request, and is sent through a [`Pool`] of connections made by a [`GatedConnector`].
//!
//! `examples/elect.rs` is a small program that stands for election.
//!
//! | module | what it holds |
//! |---|---|
//! | [`promise`] | the promise, and each rule as a value that a test can replace |
//! | `election` | the loop: stand by, lead, release the lease |
//! | `operation` | one read and write of the Lease by `kube-leader-election`, made safe by a layer around its client |
//! | `watch` | the watch of the Lease |
//! | `observation` | what this process has seen of the Lease: whether it is free, and whether it is ours; pure |
//! | `term` | leadership as a value: whether this process may write, and for how long |
//! | `timing` | the durations, and how they must relate |
//! | `gate`, `pool` | the connections for writes |
//! | [`budget`], [`answer`], [`text`], [`mod@env`], [`log_once`], [`lock()`] | small parts that operators can also use |

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod answer;
pub mod budget;
mod election;
pub mod env;
mod gate;
mod lease;
mod lock;
pub mod log_once;
mod observation;
mod operation;
mod pool;
pub mod promise;
mod term;
pub mod text;
mod timing;
mod watch;

pub use self::{
    election::{Election, Lost},
    gate::GatedConnector,
    lock::lock,
    observation::{Observation, WentBack},
    operation::Setting,
    pool::{IDLE, Pool},
    term::{Ends, LeaderState, Leadership, MAY_LAND, Term, WRITE_TIMEOUT, Write, WritePermit},
    timing::{Timing, TimingError},
};
