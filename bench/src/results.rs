//! The records of a run, and its circumstances.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;

use crate::place::Place;
use crate::records::{Record, Run, write};

/// The records of this run, and their file, which has each as soon as it is measured.
pub struct Results {
    pub records: Vec<Record>,
    pub path: PathBuf,
}

impl Results {
    /// Adds a record.
    pub fn add(&mut self, record: Record) -> Result<()> {
        self.records.push(record);
        write(&self.path, &self.records)
    }
}

/// The machine, the cluster and the revision of the operator.
pub async fn circumstances(place: &Place) -> Result<Run> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let model = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    // A commit to docs or tests does not change the operator.
    let sources = ["--", "src", "crates", "Cargo.toml", "Cargo.lock"];
    let changed = !output("git", &[&["status", "--porcelain"], &sources[..]].concat())?.is_empty();
    let revision = output("git", &[&["log", "-1", "--abbrev=10", "--format=%h"], &sources[..]].concat())?;
    Ok(Run {
        date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
        processor: model.map_or(std::env::consts::ARCH, |(_, model)| model).to_owned(),
        cores: std::thread::available_parallelism()?.get(),
        kubernetes: place.cluster.client.apiserver_version().await?.git_version,
        revision: match std::env::var_os(e2e::operator::BINARY) {
            Some(binary) => format!("of {}", Path::new(&binary).display()),
            None => revision + if changed { ", changed" } else { "" },
        },
        connections: place.connections,
        remark: None,
    })
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(e2e::root()).output();
    let output = output.with_context(|| format!("running {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
