//! The benchmark: how long users wait for the operator and what it costs, compared with the ReplicaSet and Deployment controllers, a tuned Go
//! operator and bare requests on the same cluster.

mod chart;
mod contestant;
mod judge;
mod load;
mod place;
mod records;
mod report;
mod round;
mod spread;
mod watcher;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::cluster::guard;
use e2e::signals::end_on_signals;
use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Runtime;

use place::Place;
use records::{Contestant, Load, Record, Results, read};
use report::Report;

/// Measures the operator, built-in controllers, a tuned Go operator and bare requests on one local cluster, in turn.
///
/// The records go to target/bench/DATE.jsonl. Other work on the machine spoils the times.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    /// Numbers of sets and of pods in each set; rollout: new templates for 100x10
    #[arg(value_name = "SETSxPODS|rollout", default_values = ["100x10", "1x1000", "500x4", "2000x5", "rollout"])]
    loads: Vec<Load>,
    /// Repetitions of each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Contestants to measure, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = ["operator", "replicaset", "go", "floor", "deployment"])]
    only: Vec<Contestant>,
    /// Measure nothing, and take the records of an earlier run: target/bench/DATE.jsonl
    #[arg(long, value_name = "FILE", conflicts_with_all = ["loads", "rounds", "only"])]
    from: Option<PathBuf>,
    /// Replace these loads in docs/benchmarks.md, its chart and its records
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    if let Some(code) = guard::serve() {
        return code;
    }
    let cli = Cli::parse();
    let records = match &cli.from {
        Some(file) => read(file),
        None => Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(&cli))),
    };
    match records.and_then(|records| report(records, cli.write)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything on a cluster that ends afterwards.
async fn run(cli: &Cli) -> Result<Vec<Record>> {
    let binary = std::env::current_exe()?;
    let target = binary.ancestors().nth(2).context("this program is not in a target directory")?;
    let folder = target.join("bench");
    let mut place = Place::prepare(&folder, cli.only.contains(&Contestant::Go)).await?;
    let cluster = place.cluster.clone();
    tokio::spawn(end_on_signals(move || cluster.end()));
    let path = folder.join(format!("{}.jsonl", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S")));
    println!("bench: the records go to {}", path.display());
    let mut results = Results { records: Vec::new(), path };
    load::calibrate(&mut place).await?;
    results.add(Record::Run(place.circumstances().await?))?;
    load::measure(&mut place, cli, &mut results).await?;
    Ok(results.records)
}

/// Prints the page, or replaces these loads on the one in docs/, with its chart and its records.
fn report(mut records: Vec<Record>, write: bool) -> Result<()> {
    if !write {
        println!("\n{}", Report::of(&records).page());
        return Ok(());
    }
    let docs = e2e::root().join("docs");
    let loads = Report::of(&records).loads();
    let stored = docs.join("benchmarks/records.jsonl");
    let mut kept = read(&stored)?;
    kept.retain(|record| !matches!(record, Record::Phase(measured) if loads.contains(&measured.load)));
    kept.append(&mut records);
    // Of two runs in a row, nothing of the first is left.
    kept.reverse();
    kept.dedup_by(|former, run| matches!((former, run), (Record::Run(_), Record::Run(_))));
    kept.reverse();
    records::write(&stored, &kept)?;
    let report = Report::of(&kept);
    std::fs::write(docs.join("benchmarks.md"), report.page()).context("writing the page")?;
    if let Some(load) = report.headline() {
        std::fs::write(docs.join("benchmarks/times.svg"), chart::times(&report, load)?).context("writing the chart")?;
    }
    println!("bench: wrote docs/benchmarks.md, its chart and its records");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["bench", "20x10", "1x5", "--only", "operator,floor", "--rounds=3"]);
        assert_eq!(cli.only, [Contestant::Operator, Contestant::Floor]);
        assert_eq!((cli.loads.len(), cli.rounds), (2, 3));
        assert!(Cli::try_parse_from(["bench", "10x"]).is_err());
        assert!(Cli::try_parse_from(["bench", "--from", "x.jsonl", "--write"]).is_ok());
    }
}
