//! The thread of the servers: a flood of requests takes no turn from the loops of the controllers and of the election.

use std::{io, thread, time::Duration};

use tokio::{runtime, sync::watch};
use tokio_util::sync::CancellationToken;

use super::Servers;

/// The stack of the thread: futures lie on the heap, and what a handshake or an answer puts on the stack is far less.
const STACK: usize = 512 * 1024;

/// How long the end may take: a little longer than the servers themselves allow.
const END: Duration = Duration::from_secs(3);

/// How the thread ended: `None` while it runs, and why it failed.
type End = Option<Result<(), String>>;

/// Servers that run on a thread of their own.
#[derive(Debug)]
pub struct Thread {
    stop: CancellationToken,
    ended: watch::Receiver<End>,
}

impl Thread {
    /// Starts the thread, whose runtime runs `serve` until the token that it gets is cancelled.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started, or `serve` fails.
    pub async fn start<F, E>(serve: impl FnOnce(CancellationToken) -> F + Send + 'static) -> Result<Self, E>
    where
        F: Future<Output = Result<Servers, E>> + Send + 'static,
        E: From<io::Error> + Send + Sync + 'static,
    {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, (started, starts)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
        let (ends, ended) = watch::channel(None);
        let servers = Thread { stop: stop.clone(), ended };
        let serving = async move {
            match serve(stop).await {
                Ok(servers) => {
                    let _ = started.send(Ok(()));
                    servers.run().await;
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        thread::Builder::new().name("servers".to_owned()).stack_size(STACK).spawn(move || {
            let end = runtime.block_on(runtime.spawn(serving));
            runtime.shutdown_background();
            ends.send_replace(Some(end.map_err(|error| error.to_string())));
        })?;
        // Without an answer it panicked, as `failed` says.
        starts.await.unwrap_or(Ok(()))?;
        Ok(servers)
    }

    /// Waits until a server panics, and says how.
    pub async fn failed(&self) -> String {
        match self.ended.clone().wait_for(Option::is_some).await.map(|end| end.clone()) {
            Ok(Some(Err(error))) => error,
            Ok(_) => std::future::pending().await,
            Err(_) => "the thread of the servers is gone".to_owned(),
        }
    }

    /// Ends the servers, as [`Servers::run`] does.
    pub async fn end(mut self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(END, self.ended.wait_for(Option::is_some)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream},
    };

    use jiff::SignedDuration;
    use tokio::task::JoinSet;

    use super::*;
    use crate::{
        env::Env,
        health::Health,
        server::{Rate, ServeError, listener::Listener, probes},
    };

    #[derive(Debug, thiserror::Error)]
    enum Trouble {
        #[error(transparent)]
        Thread(#[from] io::Error),
        #[error(transparent)]
        Serve(#[from] ServeError),
    }

    /// A thread that serves the probes of this health, and where.
    async fn probes_of(health: &Health) -> (Thread, SocketAddr) {
        let (health, (say, address)) = (health.clone(), tokio::sync::oneshot::channel());
        let thread = Thread::start(|stop| async move {
            let at = crate::cli::BindAddress::At { host: "127.0.0.1".to_owned(), port: 0 };
            let listener = Listener::bind("--some-flag", &at, 16).await.map_err(ServeError::from)?.unwrap();
            let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
            say.send(listener.address).unwrap();
            servers.serve(listener, None, probes::router(health), Rate::UNLIMITED);
            Ok::<_, Trouble>(servers)
        });
        (thread.await.unwrap(), address.await.unwrap())
    }

    fn asked(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test]
    async fn the_probes_see_that_the_main_runtime_hangs() {
        let health = Health::new(Env::system());
        health.started();
        let _check = health.judge_runtime(SignedDuration::from_millis(500));
        let (servers, address) = probes_of(&health).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for path in ["/livez", "/readyz"] {
            assert!(asked(address, path).starts_with("HTTP/1.1 200"), "{path}");
            // Nothing in this test's runtime runs meanwhile.
            std::thread::sleep(Duration::from_secs(1));
            let answer = asked(address, path);
            assert!(
                answer.starts_with("HTTP/1.1 500") && answer.contains("[-]main-runtime failed"),
                "{path}: {answer}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        servers.end().await;
        TcpStream::connect(address).expect_err("nobody listens any more");
    }

    #[tokio::test]
    async fn a_panic_of_a_server_is_told() {
        let servers = Thread::start(|stop| async move {
            let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
            servers.tasks.spawn(async { panic!("out of sockets") });
            Ok::<_, Trouble>(servers)
        });
        let failed = servers.await.unwrap().failed().await;
        assert!(failed.contains("out of sockets"), "{failed}");
        let servers = Thread::start(async |_| -> Result<Servers, Trouble> { panic!("at the start") });
        let servers = servers.await.unwrap();
        assert!(servers.failed().await.contains("at the start"));
        servers.end().await;
    }
}
