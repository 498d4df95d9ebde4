//! What CI runs: exact figures against limits. Times depend on the machine, and are none of them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::bench::records::{Contestant, Load, Measured, Part, Phase, Record, work};

use crate::book::Book;
use crate::course::Course;
use crate::load::run;
use crate::place::Place;

/// Nothing may be asked for so long.
const REST: Duration = Duration::from_secs(20);

/// Each load, and the most requests for each of its sets in a phase, beside one for each pod: two status patches and an event; more where
/// the set is large, for its pods do not come at once.
const LIMITS: [(Load, usize); 2] = [(Load { sets: 20, pods: 10 }, 3), (Load { sets: 1, pods: 200 }, 10)];

/// The most for each pod that is made up for, where each loss is seen alone: a read of the set, a create, an event and two statuses.
const REPAIR: usize = 5;

/// Measures, and fails with all that is over its limit.
pub async fn short(place: &mut Place, book: &mut Book) -> Result<()> {
    let mut wrong = Vec::new();
    for (load, limit) in LIMITS {
        println!("bench: {load}, {}", Contestant::Operator.title());
        let first = book.records().len();
        let mut course = Course::begin(place, Contestant::Operator, load).await?;
        run(&mut course, Part::Short, 1, &Phase::ALL, REST, book).await?;
        wrong.extend(book.records()[first..].iter().filter_map(|record| judge(record, limit)));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n       "));
    println!("bench: requests, pods at any instant and rest are within their limits");
    Ok(())
}

fn judge(record: &Record, for_each_set: usize) -> Option<String> {
    match record {
        Record::Phase(measured) => {
            let Measured { load, phase, touched, excess, over_deleted, requests, .. } = measured;
            let what = format!("{load}, {}", phase.title());
            let most = most(measured, for_each_set);
            if *excess + *over_deleted > 0 {
                return Some(format!(
                    "{what}: there were {excess} pods too many at some instant, and {over_deleted} too few"
                ));
            }
            let cost = work(requests);
            (cost > most)
                .then(|| format!("{what}: {touched} pods cost {cost} requests where {most} is the limit: {requests:?}"))
        }
        Record::Rest(rest) => {
            let (load, requests) = (rest.load, work(&rest.requests));
            let all = &rest.requests;
            (requests > 0).then(|| format!("{load}: {requests} requests in {:.0} s at rest: {all:?}", rest.seconds))
        }
        _ => None,
    }
}

/// The most requests of a phase.
fn most(measured: &Measured, for_each_set: usize) -> usize {
    let Measured { load, phase, touched, ready, .. } = measured;
    // A status that waits for its pods for longer than five seconds may be told once more in each five: so on a slow machine, where times
    // must not count, a set may cost more. A second is for times that are cut to whole ones.
    let patience = (ready.unwrap_or(0.0) as usize + 1) / 5;
    match phase {
        // The garbage collector does it. At the most the set is read whose pods are seen to go before it is.
        Phase::Delete => load.sets,
        Phase::Repair => touched * REPAIR + load.sets * patience,
        _ => touched + load.sets * (for_each_set + patience),
    }
}
