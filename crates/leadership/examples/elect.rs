//! Stands for election, works while this process leads, and exits when it is done or the lease is lost.
//!
//! `cargo run -p leadership --example elect` uses the current context of the kubeconfig.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::Client;
use leadership::{Election, LeaderState, Setting, Timing, env::Env, promise::Rules};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (client, env) = (Client::try_default().await?, Env::system());
    let [lease, deadline, period] = [15, 10, 2].map(SignedDuration::from_secs);
    let setting = Setting {
        namespace: client.default_namespace().to_owned(),
        client,
        name: "elect-example".to_owned(),
        identity: format!("example_{}", env.token()),
        timing: Timing::new(lease, deadline, period)?,
        env: env.clone(),
        rules: Rules::default(),
    };
    let leader_state = LeaderState::vacant(env);
    let leadership = leader_state.leadership();
    // `stop` ends a candidacy. A leader cancels `drained` when its work has ended, and the election then releases the lease.
    let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
    let election = Election::new(setting, leader_state, Arc::new(|| {}));
    let election = election.run(std::future::ready(()), stop.clone(), drained.clone());
    let work = async {
        tokio::select! {
            term = leadership.begun() => {
                println!("this process leads");
                // Controllers run here. An operator sends their writes through a `Pool`, see `Leadership::begin_write`.
                tokio::select! {
                    () = leadership.ended(term.number) => println!("this process no longer leads"),
                    _ = tokio::signal::ctrl_c() => println!("shutting down"),
                }
            }
            _ = tokio::signal::ctrl_c() => println!("shutting down"),
        }
        stop.cancel();
        drained.cancel();
    };
    // A lost lease ends the process with an error.
    Ok(tokio::try_join!(election, async {
        work.await;
        Ok(())
    })
    .map(drop)?)
}
