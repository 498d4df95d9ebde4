//! Runs the loads, contestant by contestant and round by round.

use anyhow::Result;

use crate::Measure;
use crate::place::Place;
use crate::records::{Contestant, Load, Measured, Phase, Record};
use crate::results::Results;
use crate::round::Round;
use crate::spread::brief;

/// Bare requests that show how many connections are fastest.
const TRIAL: Load = Load { sets: 1, pods: 1_500 };

/// Fills the API server's watch cache, which starts so small that every burst of events ends the watches of pods.
pub async fn warm_up(place: &mut Place) -> Result<()> {
    trial(place, 32).await.map(drop)
}

/// Finds the number of connections with which bare requests are fastest.
pub async fn calibrate(place: &mut Place) -> Result<()> {
    let mut best = [(0.0, 0); 2];
    for connections in [16, 32, 64, 128] {
        let rates = trial(place, connections).await?;
        println!("bench: {connections} connections: {:.0} creates and {:.0} deletes per second", rates[0], rates[1]);
        for (best, rate) in best.iter_mut().zip(rates).filter(|(best, rate)| *rate > best.0) {
            *best = (rate, connections);
        }
    }
    place.connections = (best[0].1, best[1].1);
    Ok(())
}

/// Pods per second that bare requests create and delete over this number of connections.
async fn trial(place: &mut Place, connections: usize) -> Result<[f64; 2]> {
    place.connections = (connections, connections);
    let mut round = Round::begin(place, Contestant::Floor, TRIAL, 0).await?;
    let mut rates = [0.0; 2];
    for (rate, phase) in rates.iter_mut().zip([Phase::Create, Phase::Delete]) {
        *rate = TRIAL.all_pods() as f64 / round.phase(phase).await?.pods;
    }
    Ok(rates)
}

/// Each load by each contestant. The order changes with each round, so that no contestant always runs first or after the same one.
pub async fn measure(place: &mut Place, measure: &Measure, results: &mut Results) -> Result<()> {
    for round in 1..=measure.rounds {
        for (number, load) in measure.loads.iter().enumerate() {
            let mut contestants = measure.only.clone();
            let all = contestants.len();
            contestants.rotate_left((round as usize + number) % all);
            if round % 2 == 0 {
                contestants[1..].reverse();
            }
            for contestant in contestants {
                println!("bench: round {round} of {}, {load}, {}", measure.rounds, contestant.title());
                run(Round::begin(place, contestant, *load, round).await?, results).await?;
            }
        }
    }
    Ok(())
}

async fn run(mut round: Round<'_>, results: &mut Results) -> Result<()> {
    for phase in Phase::ALL {
        let measured = round.phase(phase).await?;
        println!("bench:   {}", summary(&measured));
        results.add(Record::Phase(measured))?;
    }
    round.end().await
}

fn summary(measured: &Measured) -> String {
    let Measured { phase, pods, status, ready, peak, excess, gaps, .. } = measured;
    let mut line = format!("{}: pods {} s", phase.title(), brief(*pods));
    for (what, seconds) in [("status", status), ("ready", ready)] {
        line.push_str(&seconds.map(|seconds| format!(", {what} {} s", brief(seconds))).unwrap_or_default());
    }
    line.push_str(&format!("; {} requests per pod", brief(measured.requests_per_pod())));
    if let Some((cpu, peak)) = measured.cpu_per_pod().zip(*peak) {
        line.push_str(&format!(", {} ms CPU per pod, {} MiB", brief(cpu), brief(peak)));
    }
    if *excess + *gaps > 0 {
        line.push_str(&format!("; EXCESS PODS {excess}, GAPS IN THE WATCH {gaps}"));
    }
    line
}
