//! The operator as a process.

use std::{net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{
    apiserver::{Requests, Verb},
    collector::{Collector, Mode},
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::api::TestServer;

/// The log must not contain this.
pub const SECRET: &str = "top-secret";

/// The time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running operator for the PodSets of one API server. It is killed when this is dropped.
pub struct Operator {
    child: Child,
    folder: TempDir,
}

impl Operator {
    /// Starts an operator with these environment variables, without those of the test.
    pub fn start(api: &TestServer, variables: &[(&str, &str)]) -> Self {
        Operator::start_as(&format!("{{token: {SECRET}}}"), api, variables)
    }

    /// Starts an operator with this user in its kubeconfig.
    pub fn start_as(user: &str, api: &TestServer, variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, \
             clusters: [{{name: a, cluster: {{server: 'http://{}'}}}}], users: [{{name: a, user: {user}}}], \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}",
            api.address
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_podset-operator"))
            .args(["--metrics-bind-address=127.0.0.1:0", "--log-format=json", "--kubeconfig"])
            .arg(kubeconfig)
            .env_clear()
            .env("POD_NAME", "operator-1")
            .env("PODSET_OPERATOR_LEADER_ELECT", "false")
            .env("PODSET_OPERATOR_METRICS_SECURE", "false")
            .env("PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", "0")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Operator { child, folder }
    }

    /// Its standard error output.
    pub fn text(&self) -> String {
        let log: PathBuf = self.folder.path().join("log");
        std::fs::read_to_string(log).unwrap()
    }

    /// Its log: one object per line.
    pub fn log(&self) -> Vec<Value> {
        let text = self.text();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    /// The lines of its log whose body contains `words`.
    pub fn logged(&self, words: &str) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["Body"].as_str().unwrap().contains(words)).collect()
    }

    /// Waits until it watches the sets. Without election, it acts on new sets at once from then on.
    pub async fn works(&self, api: &TestServer) {
        let is_watching = || api.count(&Requests::all().verb(Verb::Watch).of("podsets")) > 0;
        until("a watch of the sets", is_watching).await;
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let id = self.child.id().expect("it runs");
        let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// Whether the process has not exited.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Shuts it down, and returns how long that took. It must exit with code 0.
    pub async fn shut_down(&mut self) -> Duration {
        let began = Instant::now();
        self.terminate();
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it exits").unwrap();
        assert_eq!(status.code(), Some(0), "{:?}", self.log());
        began.elapsed()
    }

    /// Waits until it has exited, and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it exits").unwrap().code()
    }

    /// Its metrics.
    pub async fn metrics(&self) -> String {
        self.get("metrics", "/metrics").await
    }

    /// The address at which it serves this, according to its log.
    pub fn address(&self, what: &str) -> SocketAddr {
        let line = &self.logged(&format!("serving {what}"))[0];
        line["Attributes"]["address"].as_str().unwrap().parse().unwrap()
    }

    /// Its response to a GET at this address.
    pub async fn get(&self, what: &str, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.address(what)).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }
}

/// Starts a trace collector.
pub async fn collector(mode: Mode) -> Collector {
    Collector::start(SocketAddr::from(([127, 0, 0, 1], 0)), mode).await.unwrap()
}

/// Waits until `is_done` returns true. Returns how long that took.
pub async fn until(what: &str, mut is_done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting for {what}");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

/// Starts an operator, its API server, and a collector in this mode.
pub async fn begin(
    protocol: Protocol,
    mode: Mode,
    more: &[(&'static str, &'static str)],
) -> (TestServer, Collector, Operator) {
    let (api, collector) = (TestServer::start().await, collector(mode).await);
    let operator = Operator::start(&api, &with(&protocol.to(&collector), more));
    operator.works(&api).await;
    (api, collector, operator)
}

/// A protocol of OTLP.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP.
    Http,
}

impl Protocol {
    /// Both.
    pub const ALL: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

    /// The environment variables that point to this collector.
    pub fn to(self, collector: &Collector) -> [(&'static str, String); 3] {
        let protocol = match self {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http/protobuf",
        };
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address())),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
        ]
    }
}

/// Combines variables for [`Operator::start`].
pub fn with<'a>(
    variables: &'a [(&'static str, String)],
    more: &[(&'static str, &'a str)],
) -> Vec<(&'static str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied()).collect()
}
