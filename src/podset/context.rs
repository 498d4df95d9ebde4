//! What all stages of the pipeline share: the clients, the caches, the queue, and the remembered state of each set.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Pod as PodResource;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{
    busy::BusyNamespaces,
    observe::{Caches, Effects, Set, Sets},
    others::Others,
    pod,
    promise::Rules,
    recorder::Recorder,
    set_state::SetState,
};
use crate::api::{self, PodSet};
use leadership::env::Env;
use operator_kit::{
    ObjectKey, budget,
    client::Clients,
    fair::FairSemaphore,
    listwatch::{Scope, Source},
    lock,
    meta::Uid,
    queue::{self, Queue},
    runner,
};

/// The name of the controller in logs and metrics.
pub const NAME: &str = "podset";

/// The parts of a controller. A test can replace them.
#[derive(Clone)]
pub struct Parts {
    /// The API server.
    pub clients: Clients,
    /// The rules behind the promise.
    pub rules: Rules,
    /// The namespaces to watch; `[None]` is all of them.
    pub scopes: Vec<Scope>,
    /// The image of the default pod.
    pub default_image: String,
    /// The name of the process in events.
    pub instance: String,
    /// The name of this installation in `status.writtenBy`: namespace and name of its Lease.
    pub installation: String,
}

/// What all stages of the pipeline share.
pub struct Context {
    pub env: Env,
    pub clients: Clients,
    pub rules: Rules,
    pub scopes: Vec<Scope>,
    pub default_spec: Box<RawValue>,
    pub recorder: Recorder,
    pub others: Others,
    pub observed: Arc<Mutex<Caches>>,
    pub queue: Queue,
    /// Bounds the memory for templates and for the pods created from them, if a set needs more than [`budget::SMALL`]: each byte is a place.
    pub templates: FairSemaphore,
    /// The namespaces in which the operator works on pods.
    pub busy: BusyNamespaces,
    pub stop: CancellationToken,
    /// The state of each set that no worker reconciles now.
    pub states: Mutex<HashMap<Uid, Box<SetState>>>,
}

impl Context {
    /// A context that has seen nothing yet.
    pub fn new(shared: &runner::Context, parts: Parts) -> Self {
        let runner::Context { env, metrics, stop, .. } = shared;
        let Parts { clients, rules, scopes, default_image, instance, installation } = parts;
        Context {
            queue: Queue::new(env.clone(), metrics.controller(NAME).queue),
            recorder: Recorder::new(env.clone(), clients.write.clone(), instance),
            others: Others::new(installation, metrics),
            observed: Arc::new(Mutex::new(Caches::new(rules.cache))),
            default_spec: pod::default_spec(&default_image),
            templates: FairSemaphore::new(budget::TOTAL),
            states: Mutex::default(),
            env: env.clone(),
            stop: stop.clone(),
            busy: BusyNamespaces::default(),
            clients,
            rules,
            scopes,
        }
    }

    /// The watch of PodSets.
    pub fn set_source(&self, scope: &Scope) -> Source {
        let is_stale = self.rules.cache.is_stale;
        Source { is_stale, ..Source::new::<PodSet>("podsets.app.example.com", scope) }
    }

    /// The watch of the pods of PodSets, by their label.
    pub fn pod_source(&self, scope: &Scope) -> Source {
        let labels = Some(api::WATCHED_PODS.to_owned());
        let is_stale = self.rules.cache.is_stale;
        Source { labels, is_stale, ..Source::new::<PodResource>("pods", scope) }
    }

    /// Changes the cache of pods, and queues every affected set, except the one that is being reconciled.
    pub fn change_pods(&self, working_on: Option<&ObjectKey>, change: impl FnOnce(&mut Caches)) {
        let touched = {
            let mut caches = lock(&self.observed);
            change(&mut caches);
            caches.take_touched(working_on)
        };
        for (key, is_urgent) in touched {
            match is_urgent {
                true => self.queue.add(key, queue::POD),
                false => self.queue.add_paced(key, queue::POD),
            }
        }
    }

    /// Applies the answer to a request for this set; `None`: it is gone.
    pub fn set_answered(&self, set: &Set, found: Option<Set>) {
        self.change_sets(|cache| cache.answered(&set.uid, found));
    }

    /// Changes the cache of sets, forgets those that are gone, and queues the affected ones.
    pub fn change_sets(&self, change: impl FnOnce(&mut Sets) -> Effects) {
        let mut caches = lock(&self.observed);
        let effects = change(&mut caches.sets);
        for owner in &effects.gone {
            caches.pods.forget_set(owner, self.env.now());
        }
        drop(caches);
        for (_, uid) in &effects.gone {
            lock(&self.states).remove(uid);
        }
        for writer in effects.writers {
            self.others.has_written(writer);
        }
        for (key, trigger) in effects.wake {
            self.queue.add(key, trigger);
        }
    }
}
