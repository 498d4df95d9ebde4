//! The shutdown of the process, and the output of its other commands.

use std::{process::Stdio, time::Duration};

use podset_operator::api::crds;
use tokio::{process::Command, time::sleep};

use crate::{
    api::TestServer,
    process::{Operator, until},
};

#[tokio::test]
async fn shutdown_waits_for_pending_requests_live_but_not_ready() {
    let api = TestServer::start().await;
    let mut operator = Operator::start(&api, &[("PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0")]);
    operator.works(&api).await;
    let held = api.hold_pods();
    api.scale(1);
    sleep(Duration::from_millis(200)).await;
    assert!(operator.get("health probes", "/readyz").await.starts_with("HTTP/1.1 200"));
    operator.terminate();
    until("the shutdown", || !operator.logged("shutting down: no new work starts").is_empty()).await;
    assert!(operator.get("health probes", "/readyz").await.starts_with("HTTP/1.1 500"));
    assert!(operator.get("health probes", "/livez").await.starts_with("HTTP/1.1 200"));
    assert_eq!(held.hits(), 1, "a create is pending");
    sleep(Duration::from_millis(300)).await;
    assert!(operator.is_running(), "it waits for the answer: {:?}", operator.log());
    held.release();
    assert_eq!(operator.exit_code().await, Some(0), "{:?}", operator.log());
}

#[tokio::test]
async fn a_second_signal_exits_at_once() {
    let api = TestServer::start().await;
    let mut operator = Operator::start(&api, &[]);
    operator.works(&api).await;
    let _held = api.hold_pods();
    api.scale(1);
    sleep(Duration::from_millis(200)).await;
    operator.terminate();
    until("the shutdown", || !operator.logged("shutting down: no new work starts").is_empty()).await;
    operator.terminate();
    assert_eq!(operator.exit_code().await, Some(143), "{:?}", operator.log());
}

#[tokio::test]
async fn a_port_in_use_exits_with_code_1() {
    let api = TestServer::start().await;
    let mut operator = Operator::start(&api, &[("PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", &api.address)]);
    assert_eq!(operator.exit_code().await, Some(1), "{:?}", operator.log());
    assert_eq!(operator.logged("--health-probe-bind-address: cannot listen on 127.0.0.1:").len(), 1);
}

/// Its exit code with these variables and flags, and the last line of its log.
async fn exit(variables: &[(&str, &str)], flags: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podset-operator"));
    command.env_clear().envs(variables.iter().copied()).args(flags).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), log.lines().last().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_unusable_kubeconfig_that_is_named_is_an_error() {
    let home = tempfile::TempDir::new().unwrap();
    let [good, bad] = [".kube/config", "bad"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    let text = "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'http://a'}}], \
                contexts: [{name: a, context: {cluster: a}}]}";
    std::fs::write(&good, text).unwrap();
    std::fs::write(&bad, "users: [{user: {token: top-secret}}]\nclusters: [").unwrap();
    let home = home.path().to_str().unwrap();
    for (kubeconfig, flags, words) in [
        (
            "/nowhere/config",
            &[][..],
            "KUBECONFIG=/nowhere/config: failed to read kubeconfig from '\"/nowhere/config\"'",
        ),
        (&*bad, &[], "/bad: failed to parse kubeconfig YAML"),
        (&*good, &["--context=typo"], "--context typo: the kubeconfig has no context of that name"),
        ("", &["--context=typo"], "--context typo: the kubeconfig has no context of that name"),
        (":", &["--context=typo"], "--context typo: the kubeconfig has no context of that name"),
    ] {
        let (code, line) = exit(&[("HOME", home), ("KUBECONFIG", kubeconfig)], flags).await;
        assert!(
            code == Some(2) && line.contains(words) && !line.contains("top-secret"),
            "{kubeconfig}: {code:?} {line}"
        );
    }
    let (code, line) = exit(&[("HOME", "/nowhere")], &["--context=a"]).await;
    assert!(
        code == Some(2) && line.contains("--context: ~/.kube/config: failed to read kubeconfig"),
        "{code:?} {line}"
    );
    let (code, line) = exit(&[("HOME", "/nowhere")], &[]).await;
    assert!(code == Some(2) && line.contains("no cluster to work on: give --kubeconfig"), "{code:?} {line}");
}

async fn output(argument: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podset-operator"));
    let output = command.arg(argument).env_clear().stdin(Stdio::null()).output().await.unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn commands_print_the_version_and_the_crds() {
    assert_eq!(output("--version").await, concat!("podset-operator ", env!("CARGO_PKG_VERSION"), "\n"));
    let text = |file| std::fs::read_to_string(format!("config/crd/bases/{file}")).unwrap();
    let all: String = crds().iter().map(|(file, _)| format!("---\n{}", text(file))).collect();
    assert_eq!(all.matches("\nkind: CustomResourceDefinition\n").count(), crds().len());
    assert_eq!(output("crd").await, all);
}

#[tokio::test]
async fn a_full_disk_does_not_change_the_exit_code() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (flags, expected) in [(&["crd"][..], 1), (&["--kubeconfig=/nowhere"], 2), (&["--typo"], 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podset-operator"));
        command.args(flags).env_clear().stdin(Stdio::null()).stdout(full()).stderr(full());
        assert_eq!(command.status().await.unwrap().code(), Some(expected), "{flags:?}");
    }
}
