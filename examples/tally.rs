//! A third controller, complete: a `Tally` counts the words of `spec.text`. docs/adding-a-controller.md explains it step by step.
//!
//! ```sh
//! cargo run --example tally -- crd | kubectl apply --filename -
//! cargo run --example tally
//! ```

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt, future::BoxFuture};
use jiff::SignedDuration;
use kube::{Config, CustomResource, CustomResourceExt};
use leadership::{Leadership, env::Env};
use operator_kit::{
    ObjectKey,
    client::Clients,
    health::Health,
    in_scope,
    listwatch::{self, Change, Scope, Source, Watched, synced::Synced},
    meta::{Meta, Uid},
    queue::{self, Queue, Trigger},
    runner::{Context, Controller, Next},
    statuses::{self, Applied},
    telemetry::metrics::Metrics,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

// 1. The type.

/// A Tally counts the words of a text.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[kube(group = "poc.test.domain", version = "v1", kind = "Tally", plural = "tallies", namespaced)]
#[kube(doc = "A Tally counts the words of a text.")]
#[kube(status = "TallyStatus", printcolumn(name = "Words", type_ = "integer", json_path = ".status.words"))]
struct TallySpec {
    /// The text.
    text: String,
}

/// The state of a Tally, as the controller last saw it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct TallyStatus {
    /// The number of words in the text.
    words: i64,
    /// The generation of the spec that this status is for.
    observed_generation: i64,
}

// 2. The decision: pure, so that a table tests it.

fn status(spec: &TallySpec, generation: i64) -> TallyStatus {
    let words = spec.text.split_whitespace().count();
    TallyStatus { words: i64::try_from(words).unwrap_or(i64::MAX), observed_generation: generation }
}

// 3. The cache: what the watch has brought.

/// A Tally as the API server sends it, without the fields that the controller does not need.
#[derive(Clone, Debug, Deserialize)]
struct Known {
    metadata: Meta,
    spec: TallySpec,
    #[serde(default)]
    status: TallyStatus,
}

impl Watched for Known {
    fn version(&self) -> u64 {
        self.metadata.version()
    }
}

#[derive(Debug, Default)]
struct Cache(HashMap<ObjectKey, Known>);

impl Cache {
    /// Applies a change. Returns the keys to reconcile.
    fn apply(&mut self, scope: &Scope, change: Change<Known>) -> Vec<ObjectKey> {
        match change {
            // A list is complete: an object of its scope that it lacks is gone, unless the cache has it from a later answer.
            Change::Snapshot { items, version } => {
                self.0.retain(|key, known| !in_scope(scope, key) || known.version() > version);
                items.into_iter().filter_map(|tally| self.upsert(tally)).collect()
            }
            Change::Applied(tally) => self.upsert(tally).into_iter().collect(),
            Change::Deleted(tally) => {
                self.0.remove(&tally.metadata.key());
                Vec::new()
            }
            Change::Progress(_) => Vec::new(),
        }
    }

    /// Stores a state, unless a newer one is known. Returns its key if it was stored.
    fn upsert(&mut self, tally: Known) -> Option<ObjectKey> {
        let key = tally.metadata.key();
        let is_newer = self.0.get(&key).is_none_or(|known| known.version() < tally.version());
        is_newer.then(|| {
            self.0.insert(key.clone(), tally);
            key
        })
    }
}

// 4. The controller: the only part that does I/O.

struct TallyController {
    env: Env,
    clients: Clients,
    scopes: Vec<Scope>,
    cache: Mutex<Cache>,
    queue: Queue,
    synced: Synced,
}

impl TallyController {
    fn new(env: Env, clients: Clients, scopes: Vec<Scope>, metrics: &Metrics) -> Self {
        let (queue, synced) = (Queue::new(env.clone(), metrics.controller("tally").queue), Synced::default());
        TallyController { env, clients, scopes, cache: Mutex::default(), queue, synced }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for TallyController {
    fn name(&self) -> &'static str {
        "tally"
    }

    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let watch = |scope: &Scope| {
            let source = Source::new::<Tally>("tallies.poc.test.domain", scope);
            let (controller, of, listing) = (self.clone(), scope.clone(), self.synced.register(source.what, scope));
            let sink = move |change| {
                for key in controller.cache().apply(&of, change) {
                    controller.queue.add(key, queue::SPEC);
                }
            };
            listwatch::run(self.clients.read.clone(), source, self.env.clone(), listing, sink).boxed()
        };
        self.scopes.iter().map(watch).collect()
    }

    fn synced(&self) -> &Synced {
        &self.synced
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.cache().0.keys().cloned().collect()
    }

    async fn reconcile(&self, key: &ObjectKey, _: Trigger) -> Next {
        let Some(tally) = self.cache().0.get(key).cloned() else { return Next::Never };
        let new = status(&tally.spec, tally.metadata.generation);
        if new == tally.status {
            return Next::Resync;
        }
        let (uid, retry) = (Uid::from(tally.metadata.uid.clone()), SignedDuration::from_secs(5));
        match statuses::apply::<Tally, Known>(&self.clients, key, &uid, Some(tally.version()), &new).await {
            Applied::Written(stored) => {
                self.cache().upsert(stored);
                info!(tally = %key, words = new.words, "counted the words");
                Next::Resync
            }
            Applied::Outdated(_) => Next::At(self.env.now() + statuses::OUTDATED_RETRY),
            Applied::Failed(error) => {
                // The operator's own controllers wait longer each time: `operator_kit::pace`.
                warn!(tally = %key, error, "cannot write the status; trying again");
                Next::Retry(self.env.now() + self.env.jittered(retry, 0.1))
            }
            // This process no longer leads. The next leader reconciles every object.
            Applied::NotLeading => Next::Resync,
        }
    }
}

// 5. The process. In the operator, `replica::start` does this for all controllers, with leader election.

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        println!("{}", serde_json::to_string_pretty(&Tally::crd())?);
        return Ok(());
    }
    let env = Env::system();
    let (metrics, leadership) = (Metrics::new(env.clone()), Leadership::always(env.clone()));
    let timeout = std::time::Duration::from_secs(1);
    let clients = Clients::connect(&Config::infer().await?, leadership.clone(), timeout, &metrics.requests())?;
    let controller = TallyController::new(env.clone(), clients, vec![None], &metrics);
    let health = Health::new(env.clone());
    let context = Context { env, leadership, metrics, health, max_concurrent: 4, stop: CancellationToken::new() };
    operator_kit::run(Arc::new(controller), context).await;
    Ok(())
}
