//! Runs the loads, contestant by contestant and round by round.

use anyhow::Result;

use crate::Cli;
use crate::place::Place;
use crate::records::{Contestant, Load, Phase, Record, Results};
use crate::round::Round;
use crate::spread::brief;

/// Bare requests that show how many connections are fastest.
const TRIAL: Load = Load::new(1, 1_500);

/// Finds the numbers of connections with which bare requests create and delete pods fastest.
pub async fn calibrate(place: &mut Place) -> Result<()> {
    let mut best = [(0.0, 0); 2];
    // The first trial fills the API server's watch cache, which starts so small that every burst of events ends the watches of pods.
    for connections in [32, 16, 32, 64, 128] {
        place.connections = (connections, connections);
        let mut round = Round::begin(place, Contestant::Floor, TRIAL, 0).await?;
        for (best, phase) in best.iter_mut().zip([Phase::Create, Phase::Delete]) {
            let rate = TRIAL.all_pods() as f64 / round.phase(phase).await?.pods;
            println!("bench: {connections} connections, {}: {rate:.0} pods per second", phase.title());
            if rate > best.0 {
                *best = (rate, connections);
            }
        }
    }
    place.connections = (best[0].1, best[1].1);
    Ok(())
}

/// Each load by each contestant. The order changes with each round, so that no contestant always runs first or after the same one.
pub async fn measure(place: &mut Place, cli: &Cli, results: &mut Results) -> Result<()> {
    for round in 1..=cli.rounds {
        for (number, load) in cli.loads.iter().enumerate() {
            let mut contestants: Vec<_> = cli.only.iter().copied().filter(|one| one.does(*load)).collect();
            let all = contestants.len();
            contestants.rotate_left((round as usize + number) % all.max(1));
            if round % 2 == 0 && all > 0 {
                contestants[1..].reverse();
            }
            for contestant in contestants {
                println!("bench: round {round} of {}, {load}, {}", cli.rounds, contestant.title());
                run(Round::begin(place, contestant, *load, round).await?, results).await?;
            }
        }
    }
    Ok(())
}

async fn run(mut round: Round<'_>, results: &mut Results) -> Result<()> {
    let load = round.load;
    for phase in Phase::ALL.into_iter().filter(|phase| phase.is_of(load)) {
        let measured = round.phase(phase).await?;
        let (pods, cost) = (brief(measured.pods), brief(measured.requests_per_pod()));
        println!("bench:   {}: pods {pods} s, {cost} requests per pod, excess {}", phase.title(), measured.excess);
        results.add(Record::Phase(measured))?;
    }
    round.end().await
}
