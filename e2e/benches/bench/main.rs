//! The benchmark: how long people wait for the operator, and what it costs, beside the ReplicaSet controller, a tuned Go operator and bare
//! requests.
//!
//! `cargo bench -p e2e -- --help` tells how to ask; what is judged and reported without a cluster is in the library, `e2e::bench`.

mod book;
mod contestant;
mod course;
mod eyes;
mod hands;
mod idle;
mod load;
mod place;
mod short;
mod start;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use e2e::bench::arguments::{HELP, Measure, Orders};
use e2e::bench::records::{Contestant, Part, Record, merged, read};
use e2e::bench::{plot, report::Records};
use e2e::cluster::guard;
use e2e::signals::end_on_signals;
use tokio::runtime::Runtime;

use book::Book;
use place::Place;

/// The records of which the page is made, in docs/.
const KEPT: &str = "benchmarks/loads.jsonl";

fn main() -> ExitCode {
    if let Some(code) = guard::serve() {
        return code;
    }
    let done = match Orders::read(std::env::args().skip(1)) {
        Ok(Orders::Help) => {
            println!("{HELP}");
            Ok(())
        }
        Ok(Orders::Report { files, write }) => report(&files, write),
        Ok(Orders::Measure(measure)) => {
            Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(measure)))
        }
        Err(sentence) => {
            eprintln!("bench: {sentence}");
            return ExitCode::from(2);
        }
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
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
    let compares = measure.parts.contains(&Part::Load) || measure.parts.contains(&Part::Scale);
    let with_go = compares && measure.contestants.contains(&Contestant::Go);
    let mut place = Place::prepare(&folder, with_go).await?;
    let cluster = place.cluster.clone();
    tokio::spawn(end_on_signals(move || cluster.end()));
    let mut book = Book::open(&folder)?;
    let measured = parts(&mut place, &measure, &mut book).await;
    place.cluster.end();
    println!("bench: what was measured is in {}", book.path().display());
    measured?;
    tell(book.into_records(), measure.write)
}

async fn parts(place: &mut Place, measure: &Measure, book: &mut Book) -> Result<()> {
    load::warm_up(place).await?;
    if measure.parts.contains(&Part::Short) {
        short::short(place, book).await?;
    }
    if measure.parts.iter().all(|part| *part == Part::Short) {
        return Ok(());
    }
    load::calibrate(place).await?;
    book.note(Record::Run(book::circumstances(place).await?))?;
    // In this order: the last of them leaves behind what would disturb the others.
    for part in &measure.parts {
        match part {
            Part::Load => load::loads(place, measure, book).await?,
            Part::Scale => load::scale(place, measure, book).await?,
            Part::Start => start::starts(place, measure, book).await?,
            Part::Idle => idle::idle(place, book).await?,
            Part::Short => {}
        }
    }
    Ok(())
}

fn report(files: &[PathBuf], write: bool) -> Result<()> {
    tell(files.iter().try_fold(Vec::new(), |before, file| Ok::<_, anyhow::Error>(merged(before, read(file)?)))?, write)
}

/// Prints the page of what was measured; or keeps it beside what was measured of other things, and writes the page of all with its
/// pictures to docs/.
fn tell(measured: Vec<Record>, write: bool) -> Result<()> {
    if !write {
        println!("\n{}", Records::of(&measured).page());
        return Ok(());
    }
    let docs = e2e::root().join("docs");
    let all = merged(read(&docs.join(KEPT))?, measured);
    let records = Records::of(&all);
    let put = |file: &str, text: String| {
        let file = docs.join(file);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    };
    put(
        KEPT,
        all.iter().map(|record| serde_json::to_string(record).map(|line| line + "\n")).collect::<Result<_, _>>()?,
    )?;
    put("benchmarks.md", records.page())?;
    if records.has(Part::Load) {
        put("benchmarks/times.svg", plot::times(&records.measured))?;
        put("benchmarks/costs.svg", plot::costs(&records.measured))?;
    }
    if records.has(Part::Scale) {
        put("benchmarks/scale.svg", plot::scale(&records.measured))?;
    }
    println!("bench: written: docs/benchmarks.md, and its pictures and records to docs/benchmarks/");
    Ok(())
}
