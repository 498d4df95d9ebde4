//! Writes each record to a file as soon as it is measured, so that an interrupted run is not lost.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;

use crate::place::Place;
use crate::records::{Record, Run};

/// The records of this run, and their file.
pub struct Results {
    records: Vec<Record>,
    file: File,
    path: PathBuf,
}

impl Results {
    /// Creates a file in this folder.
    pub fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{}.jsonl", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S")));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { records: Vec::new(), file, path })
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&record)?)?;
        self.records.push(record);
        Ok(())
    }

    /// All records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Their file.
    pub fn path(&self) -> &Path {
        &self.path
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
        kubernetes: place.client().apiserver_version().await?.git_version,
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
