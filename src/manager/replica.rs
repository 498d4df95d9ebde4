//! One replica of the operator: the controllers and the election.
//!
//! The process runs one with the machine's clock and a cluster. `tests/simulation` runs several with a virtual clock and an API server of its
//! own. A further controller is two lines in [`start`].

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, TryFutureExt};
use jiff::SignedDuration;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    elsewhere::Search,
    tasks::{self, Failure, Tasks},
};
use crate::{
    cli::RunArgs,
    mycustomresource::MyCustomResourceController,
    podset::{self, PodSetController},
};
use leadership::{Candidate, Election, LeaderState, Timing};
use operator_kit::{
    client::Clients,
    health::Pulse,
    runner::{Context, Controller},
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

/// Starts the controllers and the election. They end when the returned tasks drop.
pub fn start(parts: Parts<'_>) -> Tasks {
    let Parts { arguments, context, clients, timing, candidacy, .. } = parts;
    let Context { env, metrics, health, stop, .. } = context.clone();
    let scopes = arguments.scopes();
    let (flag, name) = (&arguments.leader_elect_resource_namespace, &arguments.leader_elect_resource_name);
    let home = candidacy.as_ref().map(|(candidate, ..)| candidate.namespace.clone());
    let podset = podset::Parts {
        clients: clients.clone(),
        rules: parts.rules,
        scopes: scopes.clone(),
        default_image: arguments.default_image.clone(),
        installation: home.as_ref().map_or_else(|| parts.identity, |home| format!("{home}/{name}")),
        instance: parts.instance,
    };
    let sets = PodSetController::new(&context, podset);
    let resources = MyCustomResourceController::new(env.clone(), clients.clone(), scopes, &metrics);
    let mut tasks = Tasks::default();
    let synced = vec![run(sets, &context, &mut tasks), run(resources, &context, &mut tasks)];
    let is_alone = CancellationToken::new();
    if parts.is_outside && flag.is_none() {
        let search = Search { reader: clients.read, env, name: name.clone(), home, timing };
        tasks.start(tasks::SEARCH, look_for_others(search, stop.clone(), is_alone.clone()));
    } else {
        is_alone.cancel();
    }
    metrics.leader(name, context.leadership);
    if let Some((candidate, client, leader_state)) = candidacy {
        let pulse = Pulse::new(&health, tasks::ELECTION, ELECTION_TURNS + timing.renew_deadline() / 2);
        let candidate = Candidate { heartbeat: Arc::new(move || pulse.beat()), ..candidate };
        let election = Election::new(candidate, client, leader_state);
        let election = election.run_in_order(may_stand(synced, is_alone), stop, tasks.drained.clone());
        tasks.start(tasks::ELECTION, election.map_err(Failure::Lost));
    }
    health.started();
    tasks
}

fn run<C: Controller>(controller: C, context: &Context, tasks: &mut Tasks) -> watch::Receiver<bool> {
    let (name, synced) = (controller.name(), controller.synced().subscribe());
    tasks.start(name, operator_kit::run(Arc::new(controller), context.clone()).map(Ok));
    synced
}

/// Searches for another installation. If there is one, this fails, or only warns if there is no own Lease. Otherwise it cancels `is_alone`.
async fn look_for_others(search: Search, stop: CancellationToken, is_alone: CancellationToken) -> Result<(), Failure> {
    let home = search.home.clone();
    match (stop.run_until_cancelled(search.run()).await, home) {
        (Some(Some(other)), Some(home)) => return Err(Failure::Beside { other, home }),
        (Some(Some(other)), None) => {
            warn!(
                "{other}, and this process runs without leader election, so both may write the same PodSets: stop one of them"
            )
        }
        (Some(None), _) => is_alone.cancel(),
        (None, _) => {}
    }
    Ok(())
}

/// Waits until this process may take part in the election: its caches are synced, so that a new leader can work at once, and no other
/// installation was found.
async fn may_stand(synced: Vec<watch::Receiver<bool>>, is_alone: CancellationToken) {
    let all = futures::future::join_all(synced.into_iter().map(|mut cache| async move {
        // This fails only if the controller has ended.
        let _ = cache.wait_for(|synced| *synced).await;
    }));
    // A controller that never syncs, because a CRD or a permission is missing, must not block the others.
    if tokio::time::timeout(UNSYNCED, all).await.is_err() {
        warn!("some caches have not synced; joining the election anyway; see /readyz?verbose");
    }
    is_alone.cancelled().await;
}
