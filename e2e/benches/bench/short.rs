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

/// The most for a pod that is made up for, where each loss is seen alone: a read of the set, a create, an event and two statuses.
const REPAIR: f64 = 5.0;

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
            let (what, cost) = (format!("{load}, {}", phase.title()), measured.requests_a_pod());
            let limit = match phase {
                Phase::Delete => 0.0, // the garbage collector does that
                Phase::Repair => REPAIR + patience(measured),
                _ => 1.0 + (load.sets * for_each_set) as f64 / *touched as f64 + patience(measured),
            };
            if *excess + *over_deleted > 0 {
                return Some(format!(
                    "{what}: there were {excess} pods too many at some instant, and {over_deleted} too few"
                ));
            }
            (cost > limit)
                .then(|| format!("{what}: a pod costs {cost:.3} requests where {limit:.3} is the limit: {requests:?}"))
        }
        Record::Rest(rest) => {
            let (load, requests) = (rest.load, work(&rest.requests));
            let all = &rest.requests;
            (requests > 0).then(|| format!("{load}: {requests} requests in {:.0} s at rest: {all:?}", rest.seconds))
        }
        _ => None,
    }
}

/// A status that waits for its pods for longer than five seconds may be told once more in each five: so on a slow machine, where times
/// must not count, a pod may cost more. A second is for times that are cut to whole ones.
fn patience(measured: &Measured) -> f64 {
    let more = ((measured.ready.unwrap_or(0.0) + 1.0) / 5.0).floor();
    more * measured.load.sets as f64 / measured.touched as f64
}
