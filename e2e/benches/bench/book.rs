//! Where what was measured is written down: a line for each record, at once, so that a benchmark that is broken off has not been in vain.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use e2e::bench::records::{Record, Run};
use k8s_openapi::jiff::Timestamp;

use crate::place::Place;

/// The records of this run, and their file.
pub struct Book {
    records: Vec<Record>,
    file: File,
    path: PathBuf,
}

impl Book {
    /// A new one in this folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{}.jsonl", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S")));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { records: Vec::new(), file, path })
    }

    /// Writes one down.
    pub fn note(&mut self, record: Record) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&record)?)?;
        self.records.push(record);
        Ok(())
    }

    /// All of them.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// All of them, to be told.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// Their file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where and with what is measured.
pub async fn circumstances(place: &Place) -> Result<Run> {
    let read = |file: &str| std::fs::read_to_string(file).with_context(|| format!("reading {file}"));
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo")?, "MemTotal").context("/proc/meminfo without MemTotal")?;
    let kibibytes: f64 = memory.trim_end_matches(" kB").parse()?;
    // What the operator is built from: a commit of pages or tests makes no other operator.
    let built_from = ["--", "src", "Cargo.toml", "Cargo.lock"];
    let changed = !said("git", &[&["status", "--porcelain"], &built_from[..]].concat())?.is_empty();
    let revision = said("git", &[&["log", "-1", "--abbrev=10", "--format=%h"], &built_from[..]].concat())?;
    Ok(Run {
        date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
        processor: field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism()?.get(),
        memory: kibibytes / 1_048_576.0,
        kubernetes: place.client().apiserver_version().await?.git_version,
        revision: match std::env::var(e2e::operator::BINARY) {
            Ok(binary) => {
                format!("of {}", Path::new(&binary).file_name().unwrap_or_default().to_string_lossy())
            }
            Err(_) if changed => format!("{revision}, changed"),
            Err(_) => revision,
        },
        rust: said("rustc", &["--version"])?.split_whitespace().nth(1).unwrap_or_default().to_owned(),
        connections: place.connections,
        remark: None,
    })
}

fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(e2e::root()).output();
    let output = output.with_context(|| format!("running {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
