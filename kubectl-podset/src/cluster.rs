//! Requests to the API server.

use std::{path::PathBuf, pin::pin, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;

use crate::{
    objects::{self, PodSet},
    rollout::{self, Progress},
    why::Seen,
};

/// How long it waits before it watches again.
const RETRY: Duration = Duration::from_secs(1);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", explained(.0))]
    Api(#[from] kube::Error),
    #[error("error: cannot use the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("error: {0}")]
    Refused(String),
}

impl From<String> for Error {
    fn from(why: String) -> Self {
        Error::Refused(why)
    }
}

/// An error of the API server in kubectl's words, and what helps.
fn explained(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { return format!("error: cannot reach the cluster: {}", root(error)) };
    match (status.code, status.reason.as_str()) {
        (401, _) => "error: You must be logged in to the server (Unauthorized)".to_owned(),
        // A path that the API server does not know is no object that is not found.
        (404, reason) if reason != "NotFound" => {
            "error: the server doesn't have a resource type \"podsets\": install the CRDs of podset-operator".to_owned()
        }
        (_, reason) => {
            let advice = match reason {
                "NotFound" => "\nList the PodSets of a namespace with: kubectl get podsets --namespace NAMESPACE",
                "Forbidden" => {
                    "\nYou need get, list and watch on podsets, pods, events and controllerrevisions, and patch on podsets."
                }
                _ => "",
            };
            format!("Error from server ({reason}): {}{advice}", status.message)
        }
    }
}

/// The innermost cause of an error.
fn root(error: &dyn std::error::Error) -> &dyn std::error::Error {
    error.source().map_or(error, root)
}

/// The PodSet that a command is about.
pub struct Target {
    client: Client,
    namespace: String,
    name: String,
    sets: Api<PodSet>,
}

/// Where the PodSet is.
#[derive(clap::Args)]
pub struct Location {
    /// Path of the kubeconfig file. The default is $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// The name of the kubeconfig context to use.
    #[arg(long, global = true)]
    context: Option<String>,
    /// The namespace of the PodSet. The default is that of the context.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
}

impl Target {
    /// The PodSet of this name.
    pub async fn new(location: Location, name: String) -> Result<Self, Error> {
        let options = KubeConfigOptions { context: location.context, ..KubeConfigOptions::default() };
        let config = match location.kubeconfig {
            Some(path) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
            None => Config::from_kubeconfig(&options).await?,
        };
        let namespace = location.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)?;
        let sets = Api::namespaced_with(client.clone(), &namespace, &objects::resource());
        Ok(Target { client, namespace, name, sets })
    }

    pub async fn get(&self) -> Result<PodSet, Error> {
        Ok(self.sets.get(&self.name).await?)
    }

    /// The revisions of a set.
    pub async fn revisions(&self, set: &PodSet) -> Result<Vec<ControllerRevision>, Error> {
        let mut revisions = self.labelled::<ControllerRevision>().await?;
        revisions.retain(|stored| objects::is_owned(&stored.metadata, set.metadata.uid.as_ref()));
        Ok(revisions)
    }

    /// The objects with the labels that the operator gives them.
    async fn labelled<K>(&self) -> Result<Vec<K>, Error>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let selector = format!("app={},app.kubernetes.io/managed-by=podset-operator", self.name);
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(&ListParams::default().labels(&selector)).await?.items)
    }

    /// Sends a merge patch.
    pub async fn merge(&self, patch: &Value) -> Result<(), Error> {
        let params = PatchParams { field_manager: Some("kubectl-rollout".to_owned()), ..PatchParams::default() };
        self.sets.patch(&self.name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sends a JSON patch.
    pub async fn patch(&self, patch: &Value) -> Result<(), Error> {
        let path = format!("{}/{}?fieldManager=kubectl-rollout", self.sets.resource_url(), self.name);
        let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/json-patch+json");
        let request = request.body(patch.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Prints how far the rollout is, until it is over. `pinned`: the only revision to wait for; 0: any.
    pub async fn follow(&self, pinned: i64, watch: bool) -> Result<(), Error> {
        let mut set = self.get().await?;
        let uid = set.metadata.uid.clone();
        let mut told = String::new();
        loop {
            if self.tell(&set, pinned, &mut told).await? || !watch {
                return Ok(());
            }
            let params = WatchParams::default().fields(&format!("metadata.name={}", self.name));
            let version = set.metadata.resource_version.clone().unwrap_or_default();
            // It may end at any time, or no longer know this version. Without the right to watch, the loop reads the set again and again.
            let events = self.sets.watch(&params, &version).await;
            let mut events = pin!(stream::iter(events).flatten());
            while let Some(Ok(event)) = events.next().await {
                match event {
                    WatchEvent::Added(new) | WatchEvent::Modified(new) => {
                        set = new;
                        if self.tell(&set, pinned, &mut told).await? {
                            return Ok(());
                        }
                    }
                    WatchEvent::Deleted(_) => return Err(Error::Refused("object has been deleted".to_owned())),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => break,
                }
            }
            set = loop {
                tokio::time::sleep(RETRY).await;
                match self.sets.get(&self.name).await {
                    Err(error) if !matches!(error, kube::Error::Api(_)) => {}
                    read => break read?,
                }
            };
            if set.metadata.uid != uid {
                return Err(Error::Refused("object has been deleted".to_owned()));
            }
        }
    }

    /// Prints how far the rollout is, unless it was `told` just before; returns whether it is over.
    async fn tell(&self, set: &PodSet, pinned: i64, told: &mut String) -> Result<bool, Error> {
        let progress = rollout::progress(set);
        let update = set.status.as_ref().and_then(|status| status.update_revision.as_ref());
        if let Some(update) = update.filter(|_| pinned > 0) {
            let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
            let stored = revisions.get_opt(&format!("{}-{update}", self.name)).await?;
            if let Some(running) = stored.map(|stored| stored.revision).filter(|running| *running != pinned) {
                let other = format!("desired revision ({pinned}) is different from the running revision ({running})");
                return Err(other.into());
            }
        }
        let (text, is_over) = match progress? {
            Progress::Waiting(text) => (text, false),
            Progress::Done(text) => (text, true),
        };
        if text != *told {
            crate::print(&text);
            *told = text;
        }
        Ok(is_over)
    }

    /// What explains the state of the set.
    pub async fn look(&self) -> Result<Seen, Error> {
        let set = self.get().await?;
        let mut pods = self.labelled::<Pod>().await?;
        pods.retain(|pod| objects::is_owned(&pod.metadata, set.metadata.uid.as_ref()));
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut events = Vec::new();
        for uid in pods.iter().map(|pod| &pod.metadata.uid).chain([&set.metadata.uid]).flatten() {
            let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
            events.extend(api.list(&about).await?.items);
        }
        Ok(Seen { set, pods, events, now: Timestamp::now() })
    }
}
