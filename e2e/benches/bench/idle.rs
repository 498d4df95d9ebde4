//! The operator with much to watch and nothing to do.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::bench::records::{Contestant, Idle, Load, Part, Past, Phase, Record};
use e2e::bench::spread::brief;
use e2e::scene::make_namespace;
use http::Method;
use serde_json::{Value, json};

use crate::book::Book;
use crate::contestant::pod;
use crate::course::Course;
use crate::hands::{Deed, send_all};
use crate::place::Place;

const SETS: Load = Load { sets: 10_000, pods: 1 };
const STRANGERS: usize = 100_000;
const SEEKERS: usize = 100;
const REST: Duration = Duration::from_secs(60);

/// Where the strangers are.
const AWAY: &str = "strangers";

/// Makes them all, and leaves them there: the cluster ends with it.
pub async fn idle(place: &mut Place, book: &mut Book) -> Result<()> {
    println!("bench: idle: making {STRANGERS} pods of others");
    make_namespace(&place.cluster, AWAY).await?;
    let width = place.connections.0;
    send_all(place.client(), width, (0..STRANGERS).map(stranger)).await?;
    send_all(place.client(), width, (0..SEEKERS).map(seeker)).await?;
    println!("bench: idle: making {} sets", SETS.sets);
    let mut course = Course::begin(place, Contestant::Operator, SETS).await?;
    let made = course.phase(Part::Idle, 1, Phase::Create).await?;
    for past in [Past::Made, Past::Started, Past::Standby] {
        let peak = match past {
            Past::Made => made.peak,
            Past::Started => {
                course.end().await?;
                course.start().await?;
                // Its caches, and whatever it finds that it has to do.
                tokio::time::sleep(REST / 4).await;
                course.comes_to_rest().await?;
                course.usage()?.map(|usage| usage.peak)
            }
            Past::Standby => None,
        };
        let rest = match past {
            Past::Standby => course.rest_of_standby(Part::Idle, REST).await?,
            _ => course.rest(Part::Idle, 1, REST).await?.context("it has no process")?,
        };
        let idle = Idle {
            past,
            sets: SETS.sets,
            strangers: STRANGERS,
            seekers: SEEKERS,
            seconds: rest.seconds,
            requests: rest.requests,
            cpu: rest.cpu,
            resident: rest.resident,
            peak,
        };
        println!("bench:   {past:?}: {} MiB, {} ms in a minute", brief(idle.resident), brief(idle.cpu));
        book.note(Record::Idle(idle))?;
    }
    course.end().await
}

/// A pod of somebody else's, which no scheduler looks at: it costs its bytes and nothing else.
fn stranger(number: usize) -> Deed {
    let mut manifest = pod("stranger", &format!("stranger-{number}"));
    manifest["metadata"]["labels"] = json!({"app": "stranger"});
    manifest["spec"]["schedulerName"] = json!("nobody");
    post("/api/v1", "pods", manifest)
}

/// A MyCustomResource that looks for one of them.
fn seeker(number: usize) -> Deed {
    let manifest = json!({
        "apiVersion": "poc.test.domain/v1", "kind": "MyCustomResource", "metadata": {"name": format!("seeker-{number}")},
        "spec": {"name": format!("stranger-{number}")}
    });
    post("/apis/poc.test.domain/v1", "mycustomresources", manifest)
}

fn post(api: &str, kind: &str, manifest: Value) -> Deed {
    (Method::POST, format!("{api}/namespaces/{AWAY}/{kind}"), Some(manifest))
}
