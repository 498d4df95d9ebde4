//! The kubeconfig, and the name of this process.

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{api, cli::RunArgs};
use operator_kit::text::in_full;

/// The cluster to work on, and whether it comes from a kubeconfig. If not, this process runs in a pod of it. Returns an error if none can
/// be used.
pub async fn config(arguments: &RunArgs) -> Result<(Config, bool), String> {
    let context = arguments.context.as_ref();
    // If a kubeconfig that the user named cannot be used, no other one is tried.
    let (by, kubeconfig) = if let Some(file) = &arguments.kubeconfig {
        (Some(format!("--kubeconfig {}", file.display())), Kubeconfig::read_from(file))
    } else if let Some(kubeconfig) = Kubeconfig::from_env().transpose() {
        (Some(format!("KUBECONFIG={}", std::env::var("KUBECONFIG").unwrap_or_default())), kubeconfig)
    } else {
        (context.map(|_| "--context: ~/.kube/config".to_owned()), Kubeconfig::read())
    };
    let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
    let config = async { Config::from_custom_kubeconfig(kubeconfig?, &options).await };
    match (config.await, by) {
        (Ok(config), by) if config.cluster_url.scheme().is_none() => {
            let (by, server) = (by.unwrap_or_else(|| "~/.kube/config".to_owned()), config.cluster_url.to_string());
            Err(format!("{by}: the server {server:?} must begin with https:// or http://"))
        }
        (Ok(mut config), _) => {
            // As in kubectl.
            if config.default_namespace.is_empty() {
                config.default_namespace = "default".to_owned();
            }
            Ok((config, true))
        }
        (Err(KubeconfigError::LoadContext(name)), _) if context.is_some() => {
            Err(format!("--context {name}: the kubeconfig has no context of that name"))
        }
        (Err(error), Some(by)) => Err(format!("{by}: {}", shown(&error))),
        (Err(error), None) => match Config::incluster() {
            Ok(config) => Ok((config, false)),
            Err(in_cluster) if operator_kit::is_in_pod() => {
                let why = in_full(&in_cluster);
                Err(format!("the pod's ServiceAccount cannot be used: {why}; is automountServiceAccountToken false?"))
            }
            Err(_) => {
                let why = shown(&error);
                Err(format!("no cluster to work on: give --kubeconfig, set KUBECONFIG, or run in a pod: {why}"))
            }
        },
    }
}

/// The error of a kubeconfig, without the lines that the parser quotes: they may hold a token.
fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    in_full(error).lines().next().unwrap_or_default().to_owned()
}

/// The name of this process among its replicas.
pub fn instance() -> String {
    let from_env = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    from_env
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| api::MANAGER.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::{
        cli::{Cli, Command},
        manager::Failure,
    };

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// The host and the namespace that these flags lead to.
    async fn found(flags: &[&str]) -> Result<(String, String), String> {
        let Command::Run(arguments) = Cli::read(["podset-operator"].iter().chain(flags)).unwrap().into_command() else {
            unreachable!("the flags are those of run")
        };
        let (found, _) = config(&arguments).await?;
        Ok((found.cluster_url.host().unwrap().to_owned(), found.default_namespace))
    }

    /// That of KUBECONFIG is in tests/tracing/ending.rs.
    #[tokio::test]
    async fn the_kubeconfig_of_the_flag_or_variable_is_used_or_rejected() {
        let two = "{apiVersion: v1, kind: Config, current-context: a, users: [], \
                   clusters: [{name: a, cluster: {server: 'http://a'}}, {name: b, cluster: {server: 'http://b'}}], \
                   contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b, namespace: ''}}]}";
        let files = [file(two), file("clusters: 3"), file(&two.replace("'http://a'", "'10.0.0.1:6443'"))];
        let [good, bad, no_scheme] = files.each_ref().map(|file| format!("--kubeconfig={}", file.path().display()));
        let found_at = |host: &str| (host.to_owned(), "default".to_owned());
        assert_eq!(found(&[&good]).await.unwrap(), found_at("a"));
        assert_eq!(found(&[&good, "--context=b"]).await.unwrap(), found_at("b"));
        for (flags, named) in [
            (&["--kubeconfig=/nowhere/config"][..], "--kubeconfig /nowhere/config: "),
            (&[&bad], &*format!("--kubeconfig {}: ", files[1].path().display())),
            (&[&no_scheme], &*format!("--kubeconfig {}: ", files[2].path().display())),
            (&[&good, "--context=typo"], "--context typo: the kubeconfig has no context of that name"),
        ] {
            let error = found(flags).await.unwrap_err();
            assert!(error.starts_with(named), "{flags:?}: {error}");
            assert_eq!(Failure::Config(error).exit_code(), 2);
        }
        let broken = file("users: [{user: {token: top-secret}}]\nclusters: [\ncontexts: []");
        let flag = format!("--kubeconfig={}", broken.path().display());
        let error = found(&[&flag]).await.unwrap_err();
        assert!(error.contains("line ") && !error.contains("top-secret"), "{error}");
    }
}
