//! One replica of the operator, whatever carries its requests and whoever asks it to end: the controllers and the election.
//!
//! The process makes one of the machine's clock and of connections to a cluster; `tests/simulation` makes several of a
//! virtual clock and of an API server of its own. A further controller is one line in [`Replica::start`].

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::Client;
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::{
    elsewhere::Search,
    tasks::{self, Failure, Tasks},
};
use crate::{
    cli::RunArgs,
    client::Clients,
    controllers::{
        self, Context, Controller,
        mycustomresource::MyCustomResourceController,
        podset::{self, PodSetController},
    },
    health::{Health, Pulse},
    telemetry::metrics::Metrics,
};
use leadership::{Election, LeaderState, Leadership, Setting, TimingError, env::Env};

/// How long the loop of the election may take to turn beyond one operation on the Lease: several times what it takes at most.
const ELECTION_TURNS: SignedDuration = SignedDuration::from_secs(30);

/// How long a replica whose caches are not synced leaves leading to others.
const UNSYNCED: Duration = Duration::from_secs(15);

/// What a replica is made of.
pub struct Parts<'a> {
    /// The flags.
    pub arguments: &'a RunArgs,
    /// Whose name its events bear: the pod's.
    pub instance: String,
    /// Names the process in its Lease, traces and logs: no other process, and no earlier one, is called so.
    pub identity: String,
    /// Time and chance.
    pub env: Env,
    /// For everything but the Lease. The writing one asks the same leadership.
    pub clients: Clients,
    /// Whether it leads.
    pub leadership: Leadership,
    /// How it comes to lead; `None`: it leads from the start.
    pub candidacy: Option<Candidacy>,
    /// The rules that keep the bound.
    pub rules: podset::promise::Rules,
    /// Where is counted and measured what happens.
    pub metrics: Metrics,
    /// Where it says how it feels.
    pub health: Health,
    /// Asks it to end.
    pub stop: CancellationToken,
    /// Whether a kubeconfig leads to the cluster: an installation may run there in another namespace.
    pub is_outside: bool,
}

/// What a replica stands for election with.
pub struct Candidacy {
    /// What it may hold.
    pub leader_state: LeaderState,
    /// A client for the Lease, which needs no leadership and has connections of its own.
    pub client: Client,
    /// The namespace of the Lease, where the flags do not name one.
    pub namespace: String,
    /// The rules of the election.
    pub rules: leadership::promise::Rules,
}

/// A replica that runs. It ends with this value.
pub struct Replica {
    tasks: Tasks,
    _who_leads: AbortOnDropHandle<()>,
}

impl Replica {
    /// Starts the controllers, and stands for election.
    ///
    /// # Errors
    ///
    /// When the times of the election do not fit together.
    pub fn start(parts: Parts<'_>) -> Result<Self, TimingError> {
        let Parts {
            arguments,
            instance,
            identity,
            env,
            clients,
            leadership,
            candidacy,
            rules,
            metrics,
            health,
            stop,
            is_outside,
        } = parts;
        let timing = arguments.timing()?;
        let scopes = arguments.scopes();
        let (flag, name) = (&arguments.leader_elect_resource_namespace, &arguments.leader_elect_resource_name);
        let home = candidacy.as_ref().map(|candidacy| flag.as_ref().unwrap_or(&candidacy.namespace).clone());
        let around = Context {
            env: env.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            at_once: arguments.max_concurrent_reconciles.into(),
            stop: stop.clone(),
        };
        let podset = podset::Parts {
            env: env.clone(),
            clients: clients.clone(),
            rules,
            scopes: scopes.clone(),
            default_image: arguments.default_image.clone(),
            installation: home.as_ref().map_or_else(|| identity.clone(), |home| format!("{home}/{name}")),
            instance,
            metrics: metrics.clone(),
        };
        let sets = PodSetController::new(podset);
        show_sets(&sets, &leadership, &metrics);
        let reader = clients.read.clone();
        let friends = MyCustomResourceController::new(env.clone(), clients, scopes, &metrics);
        let mut tasks = Tasks::new();
        let synced = vec![start(sets, &around, &mut tasks), start(friends, &around, &mut tasks)];
        let search = (is_outside && flag.is_none()).then(|| {
            let search = Search { reader, env: env.clone(), name: name.clone(), home: home.clone(), timing };
            search.start(&mut tasks, stop.clone())
        });
        if let Some((Candidacy { leader_state, client, rules, .. }, namespace)) = candidacy.zip(home) {
            let pulse = Pulse::new(&health, tasks::ELECTION, ELECTION_TURNS + timing.renew_deadline / 2);
            let setting = Setting { client, namespace, name: name.clone(), identity, timing, env, rules };
            let turned = Arc::new(move || pulse.beat());
            let ready = may_stand(synced, search);
            let election = Election::new(setting, leader_state, turned).run(ready, stop, tasks.drained());
            tasks.start_election(election);
        }
        health.started();
        let shown = metrics.leader(name);
        let who_leads = tokio::spawn(show_leadership(leadership, move |leads| shown.set(leads)));
        Ok(Replica { tasks, _who_leads: AbortOnDropHandle::new(who_leads) })
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// At once when a part of it panics, the lease is lost, or another installation leads. The rest ends with it: half a replica must not go on.
    pub async fn ended(self) -> Result<(), Failure> {
        self.tasks.ended().await
    }
}

fn start<C: Controller>(controller: C, around: &Context, tasks: &mut Tasks) -> watch::Receiver<bool> {
    let (name, synced) = (controller.name(), controller.synced().subscribe());
    tasks.start(name, controllers::run(Arc::new(controller), around.clone()));
    synced
}

/// Shows how the sets stand, while this process leads and its caches are whole. A standby counts as well: what it noticed before
/// it leads is not new then.
fn show_sets(sets: &PodSetController, leadership: &Leadership, metrics: &Metrics) {
    let (figures, synced, leadership) = (sets.figures(), sets.synced().subscribe(), leadership.clone());
    metrics.ask_for_sets(move || {
        let figures = (*synced.borrow()).then(|| figures.take());
        figures.filter(|_| leadership.term().is_some())
    });
}

/// Waits until this process may stand for election: its caches are synced, and no other installation was found.
async fn may_stand(synced: Vec<watch::Receiver<bool>>, search: Option<oneshot::Receiver<()>>) {
    all_synced(synced).await;
    if let Some(search) = search
        && search.await.is_err()
    {
        // It was found, and the process ends.
        std::future::pending().await
    }
}

/// Waits until the caches are synced: whoever leads shall have work to do at once.
async fn all_synced(synced: Vec<watch::Receiver<bool>>) {
    let all = futures::future::join_all(synced.into_iter().map(|mut cache| async move {
        // Its sender lives as long as the controller, and without controllers there is no election.
        let _ = cache.wait_for(|synced| *synced).await;
    }));
    // A controller that can never begin, for want of a CRD or of a right, must not keep the others from work.
    if tokio::time::timeout(UNSYNCED, all).await.is_err() {
        warn!("standing for election although not all caches are synced: /readyz?verbose says which");
    }
}

/// Calls `show` whenever this process begins or ceases to lead.
async fn show_leadership(leadership: Leadership, show: impl Fn(bool)) {
    loop {
        let term = leadership.begun().await;
        show(true);
        leadership.ended(term.number).await;
        show(false);
    }
}
