//! The parameters of an election, and the way from a `kube::Config` to it.

use std::sync::Arc;

use kube::{Client, Config};

use crate::{ConnectError, Election, LeaderState, Store, Timing, connect, env::Env, promise::Rules, write::fenced};

/// The longest identity that the API server accepts, since `kube-leader-election` makes it the field manager of the Lease.
const LONGEST_IDENTITY: usize = 128;

/// The parameters of an election.
#[derive(Clone)]
pub struct Candidate {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease, the same for all replicas.
    pub name: String,
    /// The holder identity of this process, see [`identity`].
    pub identity: String,
    /// The lease duration, the renew deadline and the retry period.
    pub timing: Timing,
    /// The library that writes the Lease.
    pub store: Store,
    /// The election calls this for a liveness check, at least every 5 s, plus half of the renew deadline while an operation on the Lease
    /// runs. It must not block. By default it does nothing.
    pub heartbeat: Arc<dyn Fn() + Send + Sync>,
    /// Time and randomness.
    pub env: Env,
    /// The rules that keep the promise. Only a test changes them.
    pub rules: Rules,
}

impl Candidate {
    /// A candidate for the Lease of this namespace and name, with default durations. `instance` is the name of this process among its
    /// replicas, such as the pod name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, instance: &str) -> Self {
        let env = Env::system();
        Candidate {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity(instance, &env),
            timing: Timing::default(),
            store: Store::default(),
            heartbeat: Arc::new(|| {}),
            env,
            rules: Rules::default(),
        }
    }

    /// The election, and a [`fenced`] client for controllers. The Lease, reads and writes use separate connections. Reads are retried as in
    /// kube's own client, except through a proxy.
    ///
    /// # Errors
    ///
    /// If the credentials, headers, certificates or proxy of the configuration cannot be used.
    pub fn connect(self, config: &Config) -> Result<(Election, Client), ConnectError> {
        let connector = connect::connector(config, Some(self.timing.user_timeout()))?;
        let lease = connect::client(config, connect::ungated(config, connector.clone())?)?;
        let writes = connect::client(config, connect::gated(config, connector, self.rules.may_leave)?)?;
        let leader_state = LeaderState::vacant(self.env.clone());
        let reads = match config.proxy_url {
            None => Client::try_from(config.clone())?,
            // kube's own client knows fewer proxies.
            Some(_) => connect::client(config, connect::ungated(config, connect::connector(config, None)?)?)?,
        };
        let client = fenced(reads, writes, leader_state.leadership());
        Ok((Election::new(self, lease, leader_state), client))
    }
}

/// The holder identity of a process: the name of its instance, and a random part. A restarted container has the same pod name, and must not
/// take the Lease of its predecessor for its own.
pub fn identity(instance: &str, env: &Env) -> String {
    let token = env.token();
    let name = instance.chars().filter(char::is_ascii_graphic).take(LONGEST_IDENTITY - 1 - token.len());
    name.chain(['_']).chain(token.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_unique_and_not_too_long() {
        let env = Env::system();
        assert_eq!(identity(&"x".repeat(300), &env).len(), 128);
        let (first, second) = (identity("web-1", &env), identity("web-1", &env));
        assert!(first.starts_with("web-1_") && first != second, "{first} {second}");
    }
}
