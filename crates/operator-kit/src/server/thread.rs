//! The thread of the servers, so that a flood of requests does not slow the controllers or the election down.

use std::{io, time::Duration};

use tokio::{
    runtime,
    sync::oneshot,
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// How long the servers may take to end: a little longer than the time that they give to open connections.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Servers that run on a thread of their own.
#[derive(Debug)]
pub struct Thread {
    stop: CancellationToken,
    task: JoinHandle<Result<(), JoinError>>,
}

impl Thread {
    /// Starts the thread. Its runtime runs `serve`, and then the future that `serve` returned, which ends when the token is cancelled.
    ///
    /// # Errors
    ///
    /// When the runtime cannot be started, or `serve` fails.
    pub async fn start<F, S, E>(serve: impl FnOnce(CancellationToken) -> F + Send + 'static) -> Result<Self, E>
    where
        F: Future<Output = Result<S, E>> + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
        E: From<io::Error> + Send + Sync + 'static,
    {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, (started, has_started)) = (CancellationToken::new(), oneshot::channel());
        let serving = serve(stop.clone());
        let serving = async move {
            match serving.await {
                Ok(servers) => {
                    let _ = started.send(Ok(()));
                    servers.await;
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let task = tokio::task::spawn_blocking(move || {
            let end = runtime.block_on(runtime.spawn(serving));
            runtime.shutdown_background();
            end
        });
        // If no message came, `serve` panicked, and `failed` reports the panic.
        has_started.await.unwrap_or(Ok(()))?;
        Ok(Thread { stop, task })
    }

    /// Waits until a server panics, and returns the panic.
    pub async fn failed(&mut self) -> String {
        match (&mut self.task).await {
            Ok(Ok(())) => std::future::pending().await,
            Ok(Err(error)) | Err(error) => error.to_string(),
        }
    }

    /// Cancels the token, and waits a bounded time for the servers to end.
    pub async fn end(self) {
        self.stop.cancel();
        if !self.task.is_finished() {
            let _ = timeout(END_TIMEOUT, self.task).await;
        }
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
        health::Health,
        server::{BindAddress, ServeError, Servers, listener::Listener, probes},
    };
    use leadership::env::Env;

    #[derive(Debug, thiserror::Error)]
    enum Trouble {
        #[error(transparent)]
        Thread(#[from] io::Error),
        #[error(transparent)]
        Serve(#[from] ServeError),
    }

    /// A thread that serves the probes of this health, and its address.
    async fn probes_of(health: &Health) -> (Thread, SocketAddr) {
        let (health, (say, address)) = (health.clone(), tokio::sync::oneshot::channel());
        let thread = Thread::start(|stop| async move {
            let at = BindAddress::At { host: "127.0.0.1".to_owned(), port: 0 };
            let listener = Listener::bind("--some-flag", &at, 16).await.map_err(ServeError::from)?.unwrap();
            let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
            say.send(listener.address).unwrap();
            servers.serve(listener, None, probes::router(health), Duration::ZERO);
            Ok::<_, Trouble>(servers.run())
        });
        (thread.await.unwrap(), address.await.unwrap())
    }

    fn get(address: SocketAddr, path: &str) -> String {
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
        let _check = health.watch_runtime(SignedDuration::from_millis(500));
        let (servers, address) = probes_of(&health).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for path in ["/livez", "/readyz"] {
            assert!(get(address, path).starts_with("HTTP/1.1 200"), "{path}");
            // Blocks the runtime of this test.
            std::thread::sleep(Duration::from_secs(1));
            let answer = get(address, path);
            assert!(
                answer.starts_with("HTTP/1.1 500") && answer.contains("[-]main-runtime failed"),
                "{path}: {answer}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        servers.end().await;
        TcpStream::connect(address).expect_err("the server has ended");
    }

    #[tokio::test]
    async fn a_panic_of_a_server_is_reported() {
        let servers = Thread::start(|stop| async move {
            let mut servers = Servers { stop, tasks: JoinSet::new(), probes: None, metrics: None };
            servers.tasks.spawn(async { panic!("out of sockets") });
            Ok::<_, Trouble>(servers.run())
        });
        let failed = servers.await.unwrap().failed().await;
        assert!(failed.contains("out of sockets"), "{failed}");
        let servers = Thread::start(async |_| -> Result<std::future::Ready<()>, Trouble> { panic!("at the start") });
        let mut servers = servers.await.unwrap();
        assert!(servers.failed().await.contains("at the start"));
        servers.end().await;
    }
}
