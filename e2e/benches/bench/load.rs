//! The parts that are made of courses: loads in all their phases, and loads that grow.

use std::time::Duration;

use anyhow::Result;
use e2e::bench::arguments::Measure;
use e2e::bench::records::{Contestant, Load, Measured, Part, Phase, Record, work};
use e2e::bench::spread::brief;

use crate::book::Book;
use crate::course::Course;
use crate::place::Place;

/// So long nothing shall happen after the sets were created.
const REST: Duration = Duration::from_secs(10);

/// Pods that are created and deleted to find out how many connections serve bare requests best.
const TRIAL: Load = Load { sets: 1, pods: 1_500 };

/// Gives the API server a history: a fresh one has so short a memory that every burst ends the watches of pods.
pub async fn warm_up(place: &mut Place) -> Result<()> {
    trial(place, 32).await.map(drop)
}

/// Tries bare requests over more and more connections, and keeps to the best numbers of them.
pub async fn calibrate(place: &mut Place) -> Result<()> {
    let mut best = [(0.0, 0); 2];
    for connections in [16, 32, 64, 128] {
        let rates = trial(place, connections).await?;
        println!("bench: {connections} connections create {:.0} pods a second and delete {:.0}", rates[0], rates[1]);
        for (best, rate) in best.iter_mut().zip(rates).filter(|(best, rate)| *rate > best.0) {
            *best = (rate, connections);
        }
    }
    place.connections = (best[0].1, best[1].1);
    Ok(())
}

/// Bare requests over so many connections: pods created in a second, and deleted.
async fn trial(place: &mut Place, connections: usize) -> Result<[f64; 2]> {
    place.connections = (connections, connections);
    let mut course = Course::begin(place, Contestant::Floor, TRIAL).await?;
    let mut rates = [0.0; 2];
    for (rate, phase) in rates.iter_mut().zip([Phase::Create, Phase::Delete]) {
        *rate = TRIAL.all_pods() as f64 / course.phase(Part::Short, 0, phase).await?.pods;
    }
    Ok(rates)
}

/// Each load by each contestant, round by round: another one begins each time, so that none is always the first.
pub async fn loads(place: &mut Place, measure: &Measure, book: &mut Book) -> Result<()> {
    let rounds = measure.rounds.unwrap_or(5);
    for round in 1..=rounds {
        for (number, load) in measure.loads.iter().enumerate() {
            let mut contestants = measure.contestants.clone();
            let all = contestants.len();
            contestants.rotate_left((round + number) % all);
            if round % 2 == 0 {
                contestants[1..].reverse(); // nor has one always the same one before it
            }
            for contestant in contestants {
                println!("bench: round {round} of {rounds}, {load}, {}", contestant.title());
                let mut course = Course::begin(place, contestant, *load).await?;
                run(&mut course, Part::Load, round, &Phase::ALL, REST, book).await?;
            }
        }
    }
    Ok(())
}

/// Sets of ten pods, more and more of them.
pub async fn scale(place: &mut Place, measure: &Measure, book: &mut Book) -> Result<()> {
    for round in 1..=measure.rounds.unwrap_or(1) {
        for pods in [100, 1_000, 10_000, 50_000] {
            let load = Load { sets: pods / 10, pods: 10 };
            for contestant in measure.contestants.iter().filter(|contestant| **contestant != Contestant::Floor) {
                println!("bench: scale, {pods} pods, {}", contestant.title());
                let mut course = Course::begin(place, *contestant, load).await?;
                run(&mut course, Part::Scale, round, &[Phase::Create, Phase::Delete], REST, book).await?;
            }
        }
    }
    Ok(())
}

/// A course through these phases, with a rest after the first one.
pub async fn run(
    course: &mut Course<'_>,
    part: Part,
    round: usize,
    phases: &[Phase],
    rest: Duration,
    book: &mut Book,
) -> Result<()> {
    for phase in phases {
        let measured = course.phase(part, round, *phase).await?;
        println!("bench:   {}", in_a_line(&measured));
        book.note(Record::Phase(measured))?;
        if *phase == Phase::Create
            && let Some(rest) = course.rest(part, round, rest).await?
        {
            println!(
                "bench:   at rest: {} requests in {:.0} s, {} MiB",
                work(&rest.requests),
                rest.seconds,
                brief(rest.resident)
            );
            book.note(Record::Rest(rest))?;
        }
    }
    course.end().await
}

fn in_a_line(measured: &Measured) -> String {
    let Measured { phase, pods, status, ready, peak, excess, over_deleted, gaps, .. } = measured;
    let mut line = format!("{}: pods {} s", phase.title(), brief(*pods));
    for (what, seconds) in [("status", status), ("ready", ready)] {
        line.push_str(&seconds.map(|seconds| format!(", {what} {} s", brief(seconds))).unwrap_or_default());
    }
    line.push_str(&format!("; a pod: {} requests", brief(measured.requests_a_pod())));
    if let Some((cpu, peak)) = measured.cpu_a_pod().zip(*peak) {
        line.push_str(&format!(", {} ms of processor; {} MiB", brief(cpu), brief(peak)));
    }
    if *excess + *over_deleted > 0 {
        line.push_str(&format!("; {excess} PODS TOO MANY, {over_deleted} TOO FEW"));
    }
    if *gaps > 0 {
        line.push_str(&format!("; {gaps} GAPS IN WHAT WAS SEEN"));
    }
    line
}
