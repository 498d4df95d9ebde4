//! Requests to the API server.

use std::{ffi::OsString, path::PathBuf, pin::pin, time::Duration};

use futures::{StreamExt, stream};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    client::{AuthError, Body, ClientBuilder, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;
use tower::{buffer::BufferLayer, retry::RetryLayer};

use crate::{
    objects::{self, PodSet},
    rollout,
    why::Seen,
};

/// The pause before each try to read the PodSet again after a watch has ended.
const REREAD_PAUSE: Duration = Duration::from_secs(1);

/// The timeout of a watch, after which the API server ends it.
const WATCH_SECONDS: u32 = 60;

/// A connection that receives nothing for this time counts as lost. It is longer than the timeout of a watch, and than the API server's
/// time limit for other requests (60 s).
const READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", explained(.0))]
    Api(#[from] kube::Error),
    #[error("error: cannot use the kubeconfig: {}", first_line(.0))]
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
    let status = match error {
        kube::Error::Api(status) => status,
        kube::Error::SerdeError(_) => {
            return format!("error: cannot read the answer of the API server: {}", root(error));
        }
        kube::Error::BuildRequest(_) => return format!("error: cannot make the request: {}", root(error)),
        _ => return format!("error: cannot reach the cluster: {}", root(error)),
    };
    match (status.code, status.reason.as_str()) {
        (401, _) => "error: You must be logged in to the server (Unauthorized)".to_owned(),
        // A 404 with another reason means that the API server does not know the path, not that an object is missing.
        (404, reason) if reason != "NotFound" => {
            "error: the server doesn't have a resource type \"podsets\": install the CRDs of podset-operator".to_owned()
        }
        (_, reason) => {
            let advice = match reason {
                "NotFound" => "\nList the PodSets of a namespace with: kubectl get podsets --namespace NAMESPACE",
                "Forbidden" => {
                    "\nYou need get, list and watch on podsets, pods, events and controllerrevisions. Changing a rollout also needs patch on podsets."
                }
                _ => "",
            };
            format!("Error from server ({reason}): {}{advice}", status.message)
        }
    }
}

/// Merges these kubeconfig files. Like kubectl, it skips files that do not exist, and ignores an empty current-context.
fn merged(paths: Vec<PathBuf>) -> Result<Kubeconfig, KubeconfigError> {
    let (mut found, mut missing) = (None, KubeconfigError::FindPath);
    for path in paths {
        match Kubeconfig::read_from(path) {
            Err(error) if is_missing(&error) => missing = error,
            read => {
                let mut read = read?;
                read.current_context = read.current_context.filter(|name| !name.is_empty());
                found = Some(found.unwrap_or_else(Kubeconfig::default).merge(read)?);
            }
        }
    }
    found.ok_or(missing)
}

/// The kubeconfig files to use without `--kubeconfig`: those in `named`, the value of $KUBECONFIG, or else
/// `~/.kube/config`.
fn default_paths(named: Option<OsString>) -> Vec<PathBuf> {
    let named: Vec<_> = named.iter().flat_map(std::env::split_paths).filter(|path| path != "").collect();
    if !named.is_empty() {
        return named;
    }
    std::env::home_dir().into_iter().map(|home| home.join(".kube/config")).collect()
}

/// Whether there is no kubeconfig.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        error => matches!(error, KubeconfigError::FindPath),
    }
}

/// The error of a kubeconfig, without the lines that the parser quotes: they may hold a token.
fn first_line(error: &KubeconfigError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Whether to connect without this proxy: it comes from the environment, and the API server is on this machine or in `NO_PROXY`.
fn is_bypassed(proxy: &Uri, server: &Uri, variable: impl Fn(&str) -> Option<String>) -> bool {
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_lowercase()));
    let is_from_environment = either("HTTPS_PROXY").is_some_and(|url| url.parse().is_ok_and(|url: Uri| url == *proxy));
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let port = format!(":{port}");
    // As in Go, an entry may have a port or begin with `*.`, and `*` also matches addresses.
    let host = |entry: &str| match entry.trim() {
        "*" => "*,0.0.0.0/0,::/0".to_owned(),
        entry => entry.trim_end_matches(&port).trim_start_matches("*.").replace(['[', ']'], ""),
    };
    let hosts: Vec<String> = either("NO_PROXY").unwrap_or_default().split(',').map(host).collect();
    let hosts = format!("localhost,127.0.0.0/8,::1,{}", hosts.join(","));
    // The proxy does not matter here, only the hosts do.
    let matcher = Matcher::builder().all("http://proxy").no(hosts).build();
    is_from_environment && matcher.intercept(server).is_none()
}

/// Adds the proxy settings of the environment and the limits of the plugin to a configuration.
fn adjusted(mut config: Config, variable: impl Fn(&str) -> Option<String>) -> Config {
    let proxy = config.proxy_url.filter(|proxy| !is_bypassed(proxy, &config.cluster_url, variable));
    config.proxy_url = proxy.map(|proxy| match proxy.scheme() {
        Some(_) => proxy,
        None => format!("http://{proxy}").parse().unwrap_or(proxy),
    });
    config.read_timeout = Some(READ_TIMEOUT);
    // kube's default retries last for minutes, without a message. `retries` replaces them.
    config.default_retry = false;
    config
}

/// Retries a request that the API server answers with 429, 503 or 504, for about 7 seconds. kubectl does so if the answer has a
/// Retry-After, up to 10 times. A request that is sent twice changes nothing the second time, but a repeated `undo` may report a failure.
fn retries() -> (RetryLayer<RetryPolicy>, BufferLayer<http::Request<Body>>) {
    (RetryLayer::new(RetryPolicy::default()), BufferLayer::new(1))
}

/// The innermost cause of an error. kube's errors of exec plugins contain their arguments, variables and output, which may be secret.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    // The URL of a proxy may have a password.
    if let Some(kube::Error::ProxyProtocolUnsupported { .. }) = error.downcast_ref() {
        return "the proxy must begin with http://, https:// or socks5://".to_owned();
    }
    match error.downcast_ref() {
        Some(AuthError::AuthExecRun { status, .. }) => format!("the exec plugin of the kubeconfig failed ({status})"),
        Some(AuthError::AuthExecParse(_)) => {
            "the output of the kubeconfig's exec plugin is no ExecCredential".to_owned()
        }
        Some(AuthError::AuthExec(_)) => "the kubeconfig's exec plugin or auth provider gave no credentials".to_owned(),
        _ => error.source().map_or_else(|| error.to_string(), root),
    }
}

/// Whether the same request may succeed a moment later. Missing credentials are not transient: an exec plugin may ask the user each time.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        kube::Error::SerdeError(_) => false,
        error => !std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
            .any(|error| error.is::<AuthError>()),
    }
}

/// If the user may not list the objects, prints a warning and returns none.
fn without<T>(error: Error) -> Result<Vec<T>, Error> {
    match &error {
        Error::Api(kube::Error::Api(status)) if status.code == 403 => {
            crate::warn(&error.to_string());
            Ok(Vec::new())
        }
        _ => Err(error),
    }
}

/// The API server, and a namespace.
pub struct Cluster {
    client: Client,
    namespace: String,
    sets: Api<PodSet>,
}

/// Where the PodSets are.
#[derive(clap::Args)]
pub struct Location {
    /// Path of the kubeconfig file. The default is $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// The name of the kubeconfig context to use.
    #[arg(long, global = true)]
    context: Option<String>,
    /// The namespace of the PodSets. The default is that of the context.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
}

impl Cluster {
    /// The cluster of a kubeconfig.
    pub async fn new(location: Location) -> Result<Self, Error> {
        let options = KubeConfigOptions { context: location.context, ..KubeConfigOptions::default() };
        let named = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
        let is_named = location.kubeconfig.is_some() || options.context.is_some() || named.is_some();
        let paths = location.kubeconfig.map_or_else(|| default_paths(named), |path| vec![path]);
        let config = match merged(paths) {
            // Without a kubeconfig, use the pod's ServiceAccount, like kubectl.
            Err(error) if !is_named && is_missing(&error) => Config::incluster().map_err(|_| error)?,
            kubeconfig => Config::from_custom_kubeconfig(kubeconfig?, &options).await?,
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let config = adjusted(config, variable);
        let namespaces = [location.namespace, Some(config.default_namespace.clone())];
        let namespace = namespaces.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or("default".to_owned());
        let client = ClientBuilder::try_from(config)?.with_layer(&retries()).build();
        let sets = Api::namespaced_with(client.clone(), &namespace, &objects::resource());
        Ok(Cluster { client, namespace, sets })
    }

    /// The set with this name.
    pub async fn get(&self, name: &str) -> Result<PodSet, Error> {
        Ok(self.sets.get(name).await?)
    }

    /// The names of the sets with these labels.
    pub async fn find(&self, selector: &str) -> Result<Vec<String>, Error> {
        let found = self.sets.list(&ListParams::default().labels(selector)).await?.items;
        if found.is_empty() {
            crate::warn(&format!("No resources found in {} namespace.", self.namespace));
        }
        Ok(found.into_iter().filter_map(|set| set.metadata.name).collect())
    }

    /// The pods or the revisions of a set, which have the labels that the operator gives them.
    pub async fn owned<K>(&self, set: &PodSet) -> Result<Vec<K>, Error>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let selector = format!("app={},app.kubernetes.io/managed-by=podset-operator", objects::name(&set.metadata));
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut found = api.list(&ListParams::default().labels(&selector)).await?.items;
        found.retain(|object| objects::is_owned(object.meta(), set.metadata.uid.as_ref()));
        Ok(found)
    }

    /// Sends a patch, if there is one: a JSON patch if it is a list, otherwise a merge patch. Returns the whole set as it is then.
    pub async fn patch(&self, set: &PodSet, patch: Option<&Value>, is_dry_run: bool) -> Result<Value, Error> {
        let path = format!("{}/{}", self.sets.resource_url(), objects::name(&set.metadata));
        let dry_run = if is_dry_run { "&dryRun=All" } else { "" };
        let request = match patch {
            None => http::Request::get(path),
            Some(patch) => {
                let type_ = if patch.is_array() { "json-patch" } else { "merge-patch" };
                http::Request::patch(format!("{path}?fieldManager=kubectl-rollout{dry_run}"))
                    .header(http::header::CONTENT_TYPE, format!("application/{type_}+json"))
            }
        };
        let body = patch.map_or_else(Vec::new, |patch| patch.to_string().into_bytes());
        Ok(self.client.request(request.body(body).map_err(kube::Error::HttpError)?).await?)
    }

    /// Prints the progress of the rollout until it completes, and returns the last line; without `watch`, returns the first line. If
    /// `pinned` is not 0, fails when another revision is rolled out.
    pub async fn follow(&self, set: PodSet, pinned: i64, watch: bool) -> Result<String, Error> {
        let (uid, name) = (set.metadata.uid.clone(), objects::name(&set.metadata).to_owned());
        let (mut read, mut told, mut failure) = (Ok(set), String::new(), String::new());
        loop {
            let followed = match read {
                Ok(set) if set.metadata.uid != uid => Err(Error::Refused("object has been deleted".to_owned())),
                Ok(set) => self.follow_once(set, pinned, watch, &mut told).await,
                Err(error) => Err(error),
            };
            match followed {
                Ok(Some(last)) => return Ok(last),
                Ok(None) => failure.clear(),
                Err(Error::Api(error)) if watch && is_transient(&error) => {
                    let text = explained(&error);
                    if text != failure {
                        crate::warn(&format!("{text}; trying again"));
                        failure = text;
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(REREAD_PAUSE).await;
            read = self.get(&name).await;
        }
    }

    /// Follows the rollout until it completes, and returns the last line; `None` if the watch ends first.
    async fn follow_once(
        &self,
        set: PodSet,
        pinned: i64,
        watch: bool,
        told: &mut String,
    ) -> Result<Option<String>, Error> {
        if let Some(last) = self.tell(&set, pinned, watch, told).await? {
            return Ok(Some(last));
        }
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let params = params.fields(&format!("metadata.name={}", objects::name(&set.metadata)));
        let version = set.metadata.resource_version.unwrap_or_default();
        // The watch may end at any time, and the version may have expired. Without permission to watch, the caller polls the set.
        let events = self.sets.watch(&params, &version).await;
        let mut events = pin!(stream::iter(events).flatten());
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(set) | WatchEvent::Modified(set) => {
                    if let Some(last) = self.tell(&set, pinned, watch, told).await? {
                        return Ok(Some(last));
                    }
                }
                WatchEvent::Deleted(_) => return Err(Error::Refused("object has been deleted".to_owned())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => break,
            }
        }
        Ok(None)
    }

    /// Prints how far the rollout is, unless it was `told` just before; returns the last line instead.
    async fn tell(&self, set: &PodSet, pinned: i64, watch: bool, told: &mut String) -> Result<Option<String>, Error> {
        let progress = rollout::progress(set);
        if pinned > 0 {
            let update = set.status.as_ref().and_then(|status| status.update_revision.as_deref()).unwrap_or_default();
            let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
            let stored = revisions.get_opt(&format!("{}-{update}", objects::name(&set.metadata))).await?;
            let is_over = progress.as_ref().is_ok_and(|(_, is_over)| *is_over);
            if let Some(other) = rollout::other_revision(set, stored.as_ref(), pinned, is_over) {
                return Err(other.into());
            }
        }
        let (text, is_over) = progress?;
        if is_over || !watch {
            return Ok(Some(text));
        }
        if text != *told {
            crate::print(&text);
            *told = text;
        }
        Ok(None)
    }

    /// The events of the type Warning in the namespace. Skips events that cannot be decoded: another client may have written a time
    /// that this plugin does not support.
    async fn warnings(&self) -> Result<Vec<Event>, Error> {
        let (client, type_) = (self.client.clone(), ApiResource::erase::<Event>(&()));
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.namespace, &type_);
        let listed = api.list(&ListParams::default().fields("type=Warning")).await?.items.into_iter();
        Ok(listed.filter_map(|event| serde_json::from_value(serde_json::to_value(event).ok()?).ok()).collect())
    }

    /// What explains the state of the set.
    pub async fn look(&self, set: PodSet) -> Result<Seen, Error> {
        let pods = self.owned::<Pod>(&set).await?;
        let revisions = self.owned(&set).await.or_else(without)?;
        let mut events = self.warnings().await.or_else(without)?;
        let uids: Vec<_> = pods.iter().map(|pod| &pod.metadata.uid).chain([&set.metadata.uid]).collect();
        events.retain(|event| uids.contains(&&event.involved_object.uid));
        Ok(Seen { set, pods, revisions, events, now: Timestamp::now() })
    }
}

#[cfg(test)]
mod tests;
