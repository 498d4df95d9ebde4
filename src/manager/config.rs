//! The kubeconfig, and the name of this process.

use std::{ffi::OsStr, path::PathBuf};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{api, cli::RunArgs};
use operator_kit::text::in_full;

/// Why there is no cluster to work on.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{by}: {why}")]
    Kubeconfig { by: String, why: String },
    #[error("--context {0}: the kubeconfig has no context of that name")]
    Context(String),
    #[error("no cluster to work on: give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    NoCluster(String),
    #[error("the pod's ServiceAccount cannot be used: {0}; is automountServiceAccountToken false?")]
    Pod(String),
}

/// The cluster to work on, and whether it comes from a kubeconfig. If not, this process runs in a pod of it.
///
/// # Errors
///
/// When none can be found, the kubeconfig cannot be read, or it has no such context.
pub async fn config(arguments: &RunArgs) -> Result<(Config, bool), ConfigError> {
    if let Some(named) = Named::read(arguments, &std::env::var_os("KUBECONFIG").unwrap_or_default())? {
        return Ok((named.config(arguments.context.clone()).await?, true));
    }
    match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
        Ok(config) => Ok((config, true)),
        Err(kubeconfig) => match Config::incluster() {
            Ok(config) => Ok((config, false)),
            Err(in_cluster) if operator_kit::is_in_pod() => Err(ConfigError::Pod(in_full(&in_cluster))),
            Err(_) => Err(ConfigError::NoCluster(shown(&kubeconfig))),
        },
    }
}

/// A kubeconfig that the user named: if it cannot be used, no other one is tried.
struct Named {
    /// The flag or variable that names it.
    by: String,
    kubeconfig: Kubeconfig,
}

impl Named {
    /// The kubeconfig that the flags or KUBECONFIG (`variable`) name, if they name one.
    fn read(arguments: &RunArgs, variable: &OsStr) -> Result<Option<Self>, ConfigError> {
        let files: Vec<PathBuf> = std::env::split_paths(variable).filter(|file| !file.as_os_str().is_empty()).collect();
        let (by, kubeconfig) = if let Some(file) = &arguments.kubeconfig {
            (format!("--kubeconfig {}", file.display()), Kubeconfig::read_from(file))
        } else if !files.is_empty() {
            let merged = |all: Kubeconfig, file: &PathBuf| all.merge(Kubeconfig::read_from(file)?);
            let kubeconfig = files.iter().try_fold(Kubeconfig::default(), merged);
            (format!("KUBECONFIG={}", variable.to_string_lossy()), kubeconfig)
        } else if arguments.context.is_some() {
            ("--context: ~/.kube/config".to_owned(), Kubeconfig::read())
        } else {
            return Ok(None);
        };
        match kubeconfig {
            Ok(kubeconfig) => Ok(Some(Named { by, kubeconfig })),
            Err(error) => Err(ConfigError::Kubeconfig { by, why: shown(&error) }),
        }
    }

    async fn config(self, context: Option<String>) -> Result<Config, ConfigError> {
        let Named { by, kubeconfig } = self;
        let is_there = |context: &String| kubeconfig.contexts.iter().any(|known| known.name == *context);
        if let Some(context) = context.as_ref().filter(|context| !is_there(context)) {
            return Err(ConfigError::Context(context.clone()));
        }
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(|error| ConfigError::Kubeconfig { by, why: shown(&error) })
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
        manager::StartError,
    };

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// The API server from these flags and this value of KUBECONFIG; `None` if they give no kubeconfig.
    async fn found(flags: &[&str], variable: &str) -> Result<Option<String>, ConfigError> {
        let Command::Run(arguments) = Cli::read(["podset-operator"].iter().chain(flags)).unwrap().into_command() else {
            unreachable!("the flags are those of run")
        };
        match Named::read(&arguments, OsStr::new(variable))? {
            Some(named) => {
                let config = named.config(arguments.context.clone()).await?;
                Ok(config.cluster_url.host().map(str::to_owned))
            }
            None => Ok(None),
        }
    }

    #[tokio::test]
    async fn the_kubeconfig_of_the_flag_or_variable_is_used_or_rejected() {
        let two = "{apiVersion: v1, kind: Config, current-context: a, users: [], \
                   clusters: [{name: a, cluster: {server: 'http://a'}}, {name: b, cluster: {server: 'http://b'}}], \
                   contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]}";
        let files = [file(two), file("clusters: 3")];
        let [good, bad] = files.each_ref().map(|file| file.path().to_str().unwrap());
        let [by_flag, bad_by_flag] = [good, bad].map(|file| format!("--kubeconfig={file}"));
        for (flags, variable, expected) in [
            (&["--context=b"][..], good, Some("b")),
            (&[], good, Some("a")),
            (&[&*by_flag], bad, Some("a")),
            (&[&*by_flag, "--context=b"], "", Some("b")),
            (&[], "", None),
            (&[], ":", None),
        ] {
            assert_eq!(found(flags, variable).await.unwrap().as_deref(), expected, "{flags:?} {variable}");
        }
        for (flags, variable, named) in [
            (&["--kubeconfig=/nowhere/config"][..], good, "--kubeconfig /nowhere/config: "),
            (&[&*bad_by_flag], good, "--kubeconfig "),
            (&[], "/nowhere/config", "KUBECONFIG=/nowhere/config: "),
            (&[], bad, "KUBECONFIG="),
            (&["--context=typo"], good, "--context typo: the kubeconfig has no context of that name"),
            (&[&*by_flag, "--context=typo"], "", "--context typo: the kubeconfig has no context of that name"),
        ] {
            let error = found(flags, variable).await.unwrap_err();
            assert!(error.to_string().starts_with(named), "{flags:?} {variable}: {error}");
            assert_eq!(StartError::from(error).exit_code(), 2);
        }
        let broken = file("users: [{user: {token: top-secret}}]\nclusters: [\ncontexts: []");
        let flag = format!("--kubeconfig={}", broken.path().display());
        let error = in_full(&found(&[&*flag], "").await.unwrap_err());
        assert!(error.contains("line ") && !error.contains("top-secret"), "{error}");
    }
}
