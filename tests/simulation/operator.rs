//! Instances of the operator on the API server of the simulation, without an election: the test says when they lead.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use leadership::{
    Ends, LeaderState,
    env::{Clock, Env, testing::virtual_env},
};
use operator_kit::runner::Context;
use podset_operator::{
    manager::{
        Failure,
        replica::{self, Parts},
    },
    podset::promise::Rules,
};
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    apiserver::{ApiServer, Ice},
    replica::{Model, wired},
};

pub struct Operator {
    pub context: Context,
    leader_state: LeaderState,
    life: JoinHandle<Result<(), Failure>>,
}

impl Operator {
    /// An instance that does not lead. `name` is the name of its client.
    pub fn standby(server: &ApiServer, name: &str, rules: Rules) -> Self {
        Self::start(server, name, rules, true)
    }

    pub fn leader(server: &ApiServer, name: &str, rules: Rules) -> Self {
        let mut operator = Self::standby(server, name, rules);
        operator.lead();
        operator
    }

    /// An instance that does not lead. If it is not gated, it writes all the same: without the rule of the write gate.
    pub fn start(server: &ApiServer, name: &str, rules: Rules, is_gated: bool) -> Self {
        let clock = Arc::new(VirtualClock::new(server, 0, Ice::default()));
        let env = Env { clock, random: virtual_env().random };
        let leader_state = LeaderState::vacant(env.clone());
        let model = Model { podset: rules, is_bounded: is_gated, ..Model::default() };
        let (context, clients) = wired(server, name, &model, &env, leader_state.leadership(), &Ice::default());
        let arguments = model.flags();
        let tasks = replica::start(Parts {
            arguments: &arguments,
            instance: name.to_owned(),
            identity: "default/podset-operator".to_owned(),
            context: context.clone(),
            clients,
            timing: arguments.timing().expect("the default times fit together"),
            candidacy: None,
            rules,
            is_outside: false,
        });
        Operator { context, leader_state, life: tokio::spawn(tasks.ended()) }
    }

    pub fn lead(&mut self) {
        self.leader_state.begin(None);
    }

    /// Leads for this time. Writes end with the term.
    pub fn lead_for(&mut self, term: Duration) {
        let end = self.context.env.now() + SignedDuration::try_from(term).expect("a test is not that long");
        self.leader_state.begin(Some(Ends { gate: end, writes: end }));
    }

    pub fn resign(&mut self) {
        self.leader_state.resign();
    }

    pub async fn end(mut self) {
        assert!(!self.life.is_finished(), "it has ended by itself");
        self.context.stop.cancel();
        (&mut self.life).await.expect("only its drop aborts it").expect("no controller panics");
    }
}

/// An instance that is dropped ends like a killed process: no more requests, and its memory is lost. If a controller has panicked, the test
/// fails, whatever it checks.
impl Drop for Operator {
    fn drop(&mut self) {
        self.life.abort();
        let has_ended = self.life.is_finished() && !self.context.stop.is_cancelled();
        assert!(!has_ended || std::thread::panicking(), "it has ended by itself");
    }
}

/// The clock of a replica: the server's time plus an offset. It stops while the replica is frozen.
#[derive(Debug)]
pub struct VirtualClock {
    epoch: Timestamp,
    origin: Instant,
    ice: Ice,
}

impl VirtualClock {
    /// A clock that is off by this many seconds.
    pub fn new(server: &ApiServer, wall_offset: i64, ice: Ice) -> Self {
        let epoch = server.with(|state| state.clock.now()) + SignedDuration::from_secs(wall_offset);
        VirtualClock { epoch, origin: Instant::now(), ice }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let now = self.ice.frozen().map_or_else(Instant::now, |frozen| frozen.since);
        self.epoch + SignedDuration::try_from(now - self.origin).expect("a test is not that long")
    }

    fn wall(&self) -> Timestamp {
        self.now()
    }
}
