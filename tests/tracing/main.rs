//! The operator as a process, with a collector of traces and an API server in the process of the test: what of its work is
//! told, by which protocol, and that a bad collector is never felt. Beside that, what only a process shows: how it ends.

mod api;
mod ending;
mod flood;
mod logs;
mod plugin;
mod process;
mod story;
mod trouble;
