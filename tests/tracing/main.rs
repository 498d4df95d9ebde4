//! The operator as a process, with a trace collector and an API server in the process of the test: its traces, by both
//! protocols, and that a bad collector does not slow it down. Also the shutdown and the commands of the process.

mod api;
mod ending;
mod flood;
mod logs;
mod plugin;
mod process;
mod story;
mod trouble;
