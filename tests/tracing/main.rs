//! Tests of the operator as a process. They check its traces over both protocols, its shutdown and its commands. A broken
//! collector does not slow it.

mod api;
mod ending;
mod flood;
mod logs;
mod plugin;
mod process;
mod story;
mod trouble;
