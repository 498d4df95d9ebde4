//! Exec plugins of a kubeconfig: their output reaches neither the log nor the traces.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use testkit::collector::Mode;

use crate::{
    api::TestServer,
    process::{Operator, Protocol, SECRET, collector, until, with},
};

/// A user of a kubeconfig that gets its credentials from this script.
fn user(folder: &TempDir, script: &str) -> String {
    let plugin = folder.path().join("get-token");
    std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&plugin, PermissionsExt::from_mode(0o700)).unwrap();
    format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: {}, \
         args: [{SECRET}], env: [{{name: KEY, value: {SECRET}}}]}}}}",
        plugin.display()
    )
}

#[tokio::test]
async fn the_output_of_a_failing_plugin_is_not_logged() {
    let garbage = format!("echo {SECRET} >&2; echo 'kind: [{SECRET}'");
    for (script, expected) in [
        (
            format!("echo {SECRET}; echo {SECRET} >&2; exit 3"),
            "the exec plugin of the kubeconfig failed (exit status: 3)",
        ),
        (garbage, "the exec plugin of the kubeconfig printed no usable credentials"),
        (format!("echo '{{\"status\": {{\"expirationTimestamp\": \"{SECRET}\"}}}}'"), "no usable credentials"),
        (
            format!(
                "printf '{{\"status\": {{\"clientCertificateData\": \"-----BEGIN {SECRET}\", \
                 \"clientKeyData\": \"-----BEGIN {SECRET}\"}}}}'"
            ),
            "the client certificate of the kubeconfig, or of its exec plugin, is not valid",
        ),
    ] {
        let (api, folder) = (TestServer::start().await, TempDir::new().unwrap());
        let mut operator = Operator::start_as(&user(&folder, &script), &api, &[]);
        assert_eq!(operator.exit_code().await, Some(2), "{script}: {}", operator.text());
        assert_eq!(operator.logged(expected).len(), 1, "{script}: {}", operator.text());
        assert!(!operator.text().contains(SECRET), "{script}: {}", operator.text());
    }
}

#[tokio::test]
async fn the_output_of_a_plugin_that_fails_later_is_neither_logged_nor_traced() {
    let (api, collector, folder) = (TestServer::start().await, collector(Mode::Good).await, TempDir::new().unwrap());
    let failing = folder.path().join("fails");
    let credentials = r#"{"status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}}"#;
    let script = format!(
        "if [ -e {} ]; then echo {SECRET}; echo {SECRET} >&2; exit 1; fi; echo '{credentials}'",
        failing.display()
    );
    let variables = Protocol::Grpc.to(&collector);
    let more = [("PODSET_OPERATOR_LOG_LEVEL", "debug")];
    let mut operator = Operator::start_as(&user(&folder, &script), &api, &with(&variables, &more));
    operator.works(&api).await;
    std::fs::write(&failing, "").unwrap();
    api.scale(1);
    let failed = "the exec plugin of the kubeconfig failed (exit status: 1)";
    let is_traced = || collector.spans().iter().any(|span| format!("{span:?}").contains(failed));
    until("a span with the error", is_traced).await;
    assert!(!collector.spans().iter().any(|span| format!("{span:?}").contains(SECRET)));
    operator.shut_down().await;
    assert!(operator.text().contains(failed) && !operator.text().contains(SECRET), "{}", operator.text());
}
