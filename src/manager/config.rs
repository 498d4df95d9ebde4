//! What the process is told and what it is called: the kubeconfig, its own name.

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::StartError;
use crate::{api, cli::RunArgs, client::in_full, env::Env};

/// The cluster to work on.
///
/// # Errors
///
/// When none can be found, or the kubeconfig cannot be read.
pub async fn config(arguments: &RunArgs) -> Result<Config, StartError> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    match &arguments.kubeconfig {
        Some(file) => {
            let named = |source| StartError::Kubeconfig { file: file.display().to_string(), source };
            let kubeconfig = Kubeconfig::read_from(file).map_err(named)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(named)
        }
        None if arguments.context.is_some() => {
            Config::from_kubeconfig(&options).await.map_err(|error| StartError::NoCluster(in_full(&error)))
        }
        None => Config::infer().await.map_err(no_cluster),
    }
}

/// Outside a cluster only what is wrong with the kubeconfig is of interest.
fn no_cluster(error: kube::config::InferConfigError) -> StartError {
    let kubeconfig = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    StartError::NoCluster(kubeconfig)
}

/// The name of this process among its replicas.
pub fn instance() -> String {
    let from_env = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    from_env
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| api::MANAGER.to_owned())
}

/// Who this process is for the Lease, in traces and in the log. A part of it is chance: a container that is started again
/// has the same name, and must not take its predecessor's lease for its own.
pub fn identity(instance: &str, env: &Env) -> String {
    /// The longest that the API server accepts, since it is also the field manager of the lease.
    const LONGEST: usize = 128;
    let token = env.token();
    let name = instance.chars().filter(char::is_ascii_graphic).take(LONGEST - 1 - token.len());
    name.chain(['_']).chain(token.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_short_enough_and_never_the_same_twice() {
        let env = Env::system();
        let long = identity(&"x".repeat(300), &env);
        assert_eq!(long.len(), 128);
        let (first, second) = (identity("web-1", &env), identity("web-1", &env));
        assert!(first.starts_with("web-1_") && first != second, "{first} {second}");
    }
}
