//! The benchmark: how long users wait for the operator and what it costs, compared with the ReplicaSet and Deployment controllers, a tuned Go
//! operator and bare requests on the same cluster.

mod chart;
mod contestant;
mod judge;
mod place;
mod records;
mod report;
mod round;
mod watcher;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::cluster::guard;
use e2e::signals::end_on_signals;
use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Runtime;

use place::Place;
use records::{Contestant, Kind, Load, Phase, Record, append};
use report::Report;
use round::Round;

/// Pods that fill the API server's watch cache, which starts so small that every burst of events ends the watches of pods.
const WARM_UP: Load = Load { kind: Kind::Replicas, sets: 1, pods: 1_500 };

/// Measures the operator, built-in controllers, a tuned Go operator and bare requests on one local cluster, in turn.
///
/// The records go to target/bench/DATE.jsonl. Other work on the machine spoils the times.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    /// Numbers of sets and of pods in each set. rollout: new templates, next to Deployments. scale: the operator alone, through restarts and
    /// leader changes, then one operator for each of three namespaces, once
    #[arg(
        value_name = "[rollout:|scale:]SETSxPODS",
        default_values = ["100x10", "1x1000", "500x4", "2000x5", "rollout:100x10", "scale:10000x5"]
    )]
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
    /// Write docs/benchmarks.md, its chart and its records, from these records alone
    #[arg(long)]
    write: bool,
}

fn main() -> Result<ExitCode> {
    if let Some(code) = guard::serve() {
        return Ok(code);
    }
    let cli = Cli::parse();
    let file = match &cli.from {
        Some(file) => file.clone(),
        None => Runtime::new()?.block_on(run(&cli))?,
    };
    let records = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    report(&records, cli.write)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures everything on a cluster that ends afterwards. Returns the file that has each record as soon as it is measured.
async fn run(cli: &Cli) -> Result<PathBuf> {
    let binary = std::env::current_exe()?;
    let target = binary.ancestors().nth(2).context("this program is not in a target directory")?;
    let folder = target.join("bench");
    let mut place = Place::prepare(&folder, cli.only.contains(&Contestant::Go)).await?;
    let cluster = place.cluster.clone();
    tokio::spawn(end_on_signals(move || cluster.end()));
    let file = folder.join(format!("{}.jsonl", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S")));
    println!("bench: the records go to {}", file.display());
    let records = File::create(&file)?;
    append(&records, &Record::Run(place.circumstances().await?))?;
    let mut warm_up = Round::begin(&mut place, Contestant::Floor, WARM_UP, 0).await?;
    warm_up.phase(Phase::Create).await?;
    warm_up.end().await?;
    measure(&mut place, cli, &records).await?;
    Ok(file)
}

/// Each load by each contestant. The order changes with each round, so that no contestant always runs first.
async fn measure(place: &mut Place, cli: &Cli, records: &File) -> Result<()> {
    for round in 1..=cli.rounds {
        // The scale run takes as long as all the others.
        let is_due = |load: &Load| load.kind != Kind::Scale || round == cli.rounds;
        for (number, load) in cli.loads.iter().copied().filter(is_due).enumerate() {
            let mut contestants: Vec<_> = cli.only.iter().copied().filter(|one| one.does(load)).collect();
            let first = (round as usize + number) % contestants.len().max(1);
            contestants.rotate_left(first);
            for contestant in contestants {
                println!("bench: round {round} of {}, {load}, {}", cli.rounds, contestant.title());
                let mut at_work = Round::begin(place, contestant, load, round).await?;
                for phase in load.phases() {
                    let measured = at_work.phase(*phase).await?;
                    let (pods, requests) = (measured.pods, measured.work());
                    println!("bench:   {}: pods {pods:.2} s, {requests} requests", phase.title());
                    append(records, &Record::Phase(measured))?;
                }
                at_work.end().await?;
            }
        }
    }
    Ok(())
}

/// Prints the page, or writes it to docs/ with its chart and these records.
fn report(records: &str, write: bool) -> Result<()> {
    let report = Report::of(records)?;
    if !write {
        println!("\n{}", report.page());
        return Ok(());
    }
    let docs = e2e::root().join("docs");
    std::fs::write(docs.join("benchmarks/records.jsonl"), records).context("writing the records")?;
    std::fs::write(docs.join("benchmarks.md"), report.page()).context("writing the page")?;
    if report.has_headline() {
        std::fs::write(docs.join("benchmarks/times.svg"), chart::times(&report)?).context("writing the chart")?;
    }
    println!("bench: wrote docs/benchmarks.md, its chart and its records");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_contestants_are_parsed() {
        let cli = Cli::parse_from(["bench", "20x10", "scale:1x5", "--only", "operator,floor", "--rounds=3"]);
        assert_eq!(cli.only, [Contestant::Operator, Contestant::Floor]);
        assert_eq!((cli.loads.len(), cli.rounds), (2, 3));
        assert!(Cli::try_parse_from(["bench", "10x"]).is_err());
    }
}
