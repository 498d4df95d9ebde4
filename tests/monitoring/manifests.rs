//! The monitoring files under `config` match each other.

use std::{fs, path::Path};

use clap::CommandFactory;
use serde_json::Value;

/// An alert of config/prometheus/rules.yaml.
pub struct Alert {
    pub name: String,
    pub expr: String,
    pub severity: String,
}

/// A file of the project.
pub fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The alerts.
pub fn alerts() -> Vec<Alert> {
    let rules = yaml("config/prometheus/rules.yaml");
    let groups = rules["spec"]["groups"].as_array().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    rules
        .map(|rule| Alert {
            name: text(&rule["alert"]),
            expr: text(&rule["expr"]),
            severity: text(&rule["labels"]["severity"]),
        })
        .collect()
}

/// The dashboard.
pub fn dashboard() -> Value {
    serde_json::from_str(&read("config/grafana/podset-operator.json")).expect("the dashboard is JSON")
}

#[test]
fn the_monitor_selects_the_service_and_the_service_the_pods() {
    let monitor = yaml("config/prometheus/monitor.yaml");
    let service = yaml("config/manager/metrics_service.yaml");
    let deployment = yaml("config/manager/manager.yaml");
    let has_all = |labels: &Value, wanted: &Value| {
        let wanted = wanted.as_object().expect("a selector");
        !wanted.is_empty() && wanted.iter().all(|(label, value)| labels[label] == *value)
    };
    assert!(has_all(&service["metadata"]["labels"], &monitor["spec"]["selector"]["matchLabels"]));
    assert!(has_all(&deployment["spec"]["template"]["metadata"]["labels"], &service["spec"]["selector"]));

    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!((&endpoint["scheme"], &endpoint["path"]), (&"https".into(), &"/metrics".into()));
    let named = |ports: &Value, name: &Value| {
        let ports = ports.as_array().expect("ports");
        ports.iter().find(|port| port["name"] == *name).cloned().unwrap_or_else(|| panic!("no port is called {name}"))
    };
    let port = named(&service["spec"]["ports"], &endpoint["port"]);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    // The Deployment keeps the default of --metrics-bind-address.
    let command = podset_operator::cli::Cli::command();
    let run = command.find_subcommand("run").expect("there is `run`");
    let flag = run.get_arguments().find(|flag| flag.get_long() == Some("metrics-bind-address")).expect("the flag");
    let listens_at = named(&container["ports"], &port["targetPort"])["containerPort"].to_string();
    assert_eq!(flag.get_default_values(), [format!(":{listens_at}").as_str()]);
    for (object, what) in
        [(&monitor, "monitor"), (&service, "service"), (&yaml("config/prometheus/rules.yaml"), "rules")]
    {
        assert_eq!(object["metadata"]["namespace"], deployment["metadata"]["namespace"], "{what}");
    }
}

/// The job has the name of the Service.
#[test]
fn every_selector_of_an_alert_selects_the_job() {
    let service = yaml("config/manager/metrics_service.yaml");
    let job = format!("job={}", service["metadata"]["name"]);
    for Alert { name, expr, .. } in alerts() {
        let selectors = expr.matches('{').count();
        assert!(selectors > 0 && expr.matches(&job).count() == selectors, "{name}: each selector needs {job}: {expr}");
    }
}

#[test]
fn kustomizations_name_every_file() {
    for folder in [
        "config/manager",
        "config/network-policy",
        "config/rbac",
        "config/policy",
        "config/prometheus",
        "config/prometheus/verified",
    ] {
        let kustomization = yaml(&format!("{folder}/kustomization.yaml"));
        let resources = kustomization["resources"].as_array().into_iter().flatten();
        let patches = kustomization["patches"].as_array().into_iter().flatten().map(|patch| &patch["path"]);
        let named: Vec<_> = resources.chain(patches).collect();
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("the folder is there");
        let files = entries.map(|entry| entry.expect("an entry")).filter(|entry| entry.path().is_file());
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        for name in names.filter(|name| name != "kustomization.yaml") {
            assert!(named.contains(&&name.as_str().into()), "{folder} leaves out {name}");
        }
    }
}

/// hack/prometheus/check extracts the rules and the queries of the dashboard line by line.
#[test]
fn files_have_the_line_format_that_the_check_needs() {
    let rules = read("config/prometheus/rules.yaml");
    let (_, spec) = rules.split_once("\nspec:\n").expect("a line spec:");
    assert!(spec.lines().all(|line| line.is_empty() || line.starts_with("  ")), "spec is not the last key");
    let lines = read("config/grafana/podset-operator.json");
    let whole_lines = lines.lines().filter(|line| line.trim_start().starts_with("\"expr\": \"")).count();
    assert_eq!(whole_lines, lines.matches("\"expr\"").count());
}

/// All panels use one data source, which is a variable. Their IDs are unique, and each has a description.
#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: std::collections::BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_i64()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        assert!(
            panel["description"].as_str().is_some_and(|text| !text.is_empty()),
            "{} has no description",
            panel["title"]
        );
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<_> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
    assert_eq!(names, ["datasource", "namespace", "job"]);
}

/// Otherwise a panel shows an old value after all replicas have ended.
#[test]
fn panels_with_one_number_show_the_current_one() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] == "stat");
    let targets: Vec<&Value> = panels.flat_map(|panel| panel["targets"].as_array().expect("targets")).collect();
    assert!(!targets.is_empty());
    for target in targets {
        assert_eq!((&target["instant"], &target["range"]), (&true.into(), &false.into()), "{target}");
    }
}
