//! One replica of the operator: the controllers and the election.
//!
//! The process runs one with the machine's clock and a cluster. `tests/simulation` runs several with a virtual clock and an API server of its
//! own. A further controller is two lines in [`Replica::start`].

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::Client;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    elsewhere::Search,
    tasks::{self, Failure, Tasks},
};
use crate::{
    cli::RunArgs,
    mycustomresource::MyCustomResourceController,
    podset::{self, PodSetController, fleet_metrics},
};
use leadership::{Candidate, Election, LeaderState, Leadership, Timing};
use operator_kit::{
    client::Clients,
    health::Pulse,
    runner::{Context, Controller},
    telemetry::metrics::Metrics,
};

/// How long one turn of the election loop may take, beyond one operation on the Lease: several times its longest turn.
const ELECTION_TURNS: SignedDuration = SignedDuration::from_secs(30);

/// How long a replica without synced caches waits before it takes part in the election.
const UNSYNCED: Duration = Duration::from_secs(15);

/// What a replica is made of.
pub struct Parts<'a> {
    /// The flags.
    pub arguments: &'a RunArgs,
    /// Name of the pod, which its events carry.
    pub instance: String,
    /// Name of the process in its Lease, traces and logs; unique over all processes.
    pub identity: String,
    /// What its controllers get. The writer checks the same leadership.
    pub context: Context,
    /// Clients for everything but the Lease.
    pub clients: Clients,
    /// The times of the election.
    pub timing: Timing,
    /// How it takes part in the election, with a client for the Lease, which needs no leadership; `None`: it leads from the start.
    pub candidacy: Option<(Candidate, Client, LeaderState)>,
    /// The rules that keep the promise.
    pub rules: podset::promise::Rules,
    /// Whether it runs outside the cluster. Then an installation may use another namespace than the kubeconfig's.
    pub is_outside: bool,
}

/// A running replica. It ends when this value drops.
pub struct Replica {
    tasks: Tasks,
}

impl Replica {
    /// Starts the controllers and the election.
    pub fn start(parts: Parts<'_>) -> Self {
        let Parts { arguments, context, clients, timing, candidacy, .. } = parts;
        let Context { env, metrics, health, stop, .. } = context.clone();
        let scopes = arguments.scopes();
        let (flag, name) = (&arguments.leader_elect_resource_namespace, &arguments.leader_elect_resource_name);
        let home = candidacy.as_ref().map(|(candidate, ..)| candidate.namespace.clone());
        let podset = podset::Parts {
            env: env.clone(),
            clients: clients.clone(),
            rules: parts.rules,
            scopes: scopes.clone(),
            default_image: arguments.default_image.clone(),
            installation: home.as_ref().map_or_else(|| parts.identity, |home| format!("{home}/{name}")),
            instance: parts.instance,
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let sets = PodSetController::new(podset);
        show_sets(&sets, &context.leadership, &metrics);
        let resources = MyCustomResourceController::new(env.clone(), clients.clone(), scopes, &metrics);
        let mut tasks = Tasks::default();
        let synced = vec![start(sets, &context, &mut tasks), start(resources, &context, &mut tasks)];
        let search = (parts.is_outside && flag.is_none()).then(|| {
            let search =
                Search { reader: clients.read, env: env.clone(), name: name.clone(), home: home.clone(), timing };
            start_search(search, &mut tasks, stop.clone())
        });
        metrics.leader(name, context.leadership);
        if let Some((candidate, client, leader_state)) = candidacy {
            let pulse = Pulse::new(&health, tasks::ELECTION, ELECTION_TURNS + timing.renew_deadline() / 2);
            let candidate = Candidate { turned: Arc::new(move || pulse.beat()), ..candidate };
            let election = Election::new(candidate, client, leader_state);
            let election = election.run_in_order(may_stand(synced, search), stop, tasks.drained());
            tasks.start_fallible(tasks::ELECTION, async { election.await.map_err(Failure::Lost) });
        }
        health.started();
        Replica { tasks }
    }

    /// Waits until it has ended. For the errors, see [`Tasks::ended`].
    pub async fn ended(self) -> Result<(), Failure> {
        self.tasks.ended().await
    }
}

fn start<C: Controller>(controller: C, context: &Context, tasks: &mut Tasks) -> watch::Receiver<bool> {
    let (name, synced) = (controller.name(), controller.synced().subscribe());
    tasks.start(name, operator_kit::run(Arc::new(controller), context.clone()));
    synced
}

/// Starts the search as a task. If it finds another installation, the task fails, or only warns if there is no own Lease. Otherwise it
/// sends a message.
fn start_search(search: Search, tasks: &mut Tasks, stop: CancellationToken) -> oneshot::Receiver<()> {
    let (alone, is_alone) = oneshot::channel();
    let home = search.home.clone();
    tasks.start_fallible(tasks::SEARCH, async move {
        let Some(found) = stop.run_until_cancelled(search.run()).await else {
            return Ok(());
        };
        match (found, home) {
            (Some(other), Some(home)) => return Err(Failure::Beside { other, home }),
            (Some(other), None) => {
                warn!("{other}, so two installations write: this process runs without leader election")
            }
            // Without election nothing waits for this message.
            (None, _) => drop(alone.send(())),
        }
        Ok(())
    });
    is_alone
}

/// Registers the metrics of all sets, exported only while this process leads and its caches are synced. A standby computes them too, so
/// that they are right from the start when it leads. Pods of a namespace that cannot be listed count as missing.
fn show_sets(sets: &PodSetController, leadership: &Leadership, metrics: &Metrics) {
    let (fleet, synced, leadership) = (sets.fleet_metrics(), sets.synced().subscribe(), leadership.clone());
    fleet_metrics::register(metrics, move || {
        let figures = (*synced.borrow()).then(|| fleet.take());
        figures.filter(|_| leadership.term().is_some())
    });
}

/// Waits until this process may take part in the election: its caches are synced, so that a new leader can work at once, and no other
/// installation was found.
async fn may_stand(synced: Vec<watch::Receiver<bool>>, search: Option<oneshot::Receiver<()>>) {
    let all = futures::future::join_all(synced.into_iter().map(|mut cache| async move {
        // This fails only if the controller has ended.
        let _ = cache.wait_for(|synced| *synced).await;
    }));
    // A controller that never syncs, because a CRD or a permission is missing, must not block the others.
    if tokio::time::timeout(UNSYNCED, all).await.is_err() {
        warn!("some caches have not synced; joining the election anyway; see /readyz?verbose");
    }
    if let Some(search) = search
        && search.await.is_err()
    {
        // Another installation was found, and the process ends.
        std::future::pending().await
    }
}
