//! What the benchmark (`benches/bench`) is told with and judged by, without a cluster: no I/O but in [`usage`], no clock.
//!
//! - [`arguments`] reads its command line
//! - [`judge`] says, after each event, whether all is as wanted, and whether a set has too many or too few pods
//! - [`usage`] reads what a process has cost
//! - [`records`] is what was measured, one JSON object a line, and [`spread`] what several rounds of it come to
//! - [`report`] makes the page of it, and [`plot`] the pictures

pub mod arguments;
pub mod judge;
pub mod plot;
pub mod records;
pub mod report;
pub mod spread;
pub mod usage;
