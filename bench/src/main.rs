//! The benchmark: how long users wait for the operator and what it costs, compared with the ReplicaSet and Deployment controllers, a tuned Go
//! operator and bare requests on the same cluster.

mod chart;
mod contestant;
mod judge;
mod load;
mod place;
mod records;
mod report;
mod requests;
mod results;
mod round;
mod spread;
mod watcher;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use e2e::cluster::guard;
use e2e::signals::end_on_signals;
use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Runtime;

use place::Place;
use records::{Contestant, Load, Record, read};
use report::Report;
use results::Results;

/// Measures the operator, built-in controllers, a tuned Go operator and bare requests on one local cluster, in turn.
///
/// The records go to target/bench/DATE.jsonl. Other work on the machine spoils the times.
#[derive(Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Command {
    /// Make the page from the records of an earlier run
    Report {
        /// The records, target/bench/DATE.jsonl
        file: PathBuf,
        /// Replace these loads in docs/benchmarks.md, its chart and its records
        #[arg(long)]
        write: bool,
    },
}

/// What to measure.
#[derive(Args)]
struct Measure {
    /// Numbers of sets and of pods in each set; rollout: new templates for 100x10
    #[arg(value_name = "SETSxPODS|rollout", default_values = ["100x10", "1x1000", "500x4", "2000x5", "rollout"])]
    loads: Vec<Load>,
    /// Repetitions of each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Contestants to measure, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = ["operator", "replicaset", "go", "floor", "deployment"])]
    only: Vec<Contestant>,
    /// Replace these loads in docs/benchmarks.md, its chart and its records
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    if let Some(code) = guard::serve() {
        return code;
    }
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Report { file, write }) => read(&file).and_then(|records| report(records, write)),
        None => Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(cli.measure))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(measure: Measure) -> Result<()> {
    let binary = std::env::current_exe()?;
    let target = binary.ancestors().nth(2).context("this program is not in a target directory")?;
    let folder = target.join("bench");
    let mut place = Place::prepare(&folder, measure.only.contains(&Contestant::Go)).await?;
    let cluster = place.cluster.clone();
    tokio::spawn(end_on_signals(move || cluster.end()));
    let path = folder.join(format!("{}.jsonl", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S")));
    let mut results = Results { records: Vec::new(), path };
    let measured = measure_all(&mut place, &measure, &mut results).await;
    place.cluster.end();
    println!("bench: the records are in {}", results.path.display());
    measured?;
    report(results.records, measure.write)
}

async fn measure_all(place: &mut Place, measure: &Measure, results: &mut Results) -> Result<()> {
    load::calibrate(place).await?;
    results.add(Record::Run(results::circumstances(place).await?))?;
    load::measure(place, measure, results).await
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
        assert_eq!(cli.measure.only, [Contestant::Operator, Contestant::Floor]);
        assert_eq!((cli.measure.loads.len(), cli.measure.rounds), (2, 3));
        assert!(Cli::try_parse_from(["bench", "10x"]).is_err());
    }
}
