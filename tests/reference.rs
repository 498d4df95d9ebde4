//! The pages under `docs/reference` match the custom resources, the flags and the metrics. `make manifests` runs this with
//! `UPDATE_REFERENCE=1`, which writes the pages first.

#[path = "monitoring/leader.rs"]
mod leader;

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use clap::CommandFactory;
use operator_kit::telemetry::metrics::Format;
use podset_operator::{api, cli::Cli};
use serde_json::Value;

/// The schema of a PodSpec has hundreds of fields, which Kubernetes documents.
const NOT_EXPANDED: &str = "spec.template.spec";

/// Compares a page with the committed one. With `UPDATE_REFERENCE`, writes it first.
fn is_current(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(page);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, text).expect("the page can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "{} is out of date: run `make manifests`", path.display());
}

/// The head of a page.
fn head(title: &str, guide: &str) -> String {
    format!("<!-- `make manifests` writes this page. Do not edit it. -->\n\n# {title}\n\n{guide}\n")
}

fn table<const N: usize>(columns: [&str; N], rows: &[[String; N]]) -> String {
    let mut text = format!("\n| {} |\n|{}\n", columns.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.each_ref().map(|cell| cell.replace('\n', " ").replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).expect("a row can be written");
    }
    text
}

/// A text as code; an empty text stays empty.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn custom_resources() {
    for (_, crd) in api::crds() {
        let crd = serde_json::to_value(&crd).expect("a CRD can be written as JSON");
        let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
        let schema = &version["schema"]["openAPIV3Schema"];
        let names = &spec["names"];
        let guide = format!(
            "{}\n\n`apiVersion: {}/{}`, `kind: {}`. The [user guide](../user-guide.md) explains the fields.",
            text(&schema["description"]),
            text(&spec["group"]),
            text(&version["name"]),
            text(&names["kind"]),
        );
        let mut page = head(&format!("{} reference", text(&names["kind"])), &guide);
        let (mut fields, mut rules) = (Vec::new(), Vec::new());
        walk(schema, "", &mut fields, &mut rules);
        page += "\n## Fields\n";
        page += &table(["field", "type", "default", "description"], &fields);
        page += "\n## Rules\n\nThe API server rejects an object that breaks a rule, with this message:\n";
        page += &table(["field", "message"], &rules);
        page += "\n## Columns of `kubectl get`\n";
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        let columns: Vec<_> = columns
            .map(|column| {
                let wide = if column["priority"] == 1 { ", with `--output=wide`" } else { "" };
                [text(&column["name"]).to_uppercase() + wide, code(text(&column["jsonPath"]))]
            })
            .collect();
        page += &table(["column", "field"], &columns);
        is_current(&format!("{}.md", text(&names["singular"])), &page);
    }
}

/// Collects the fields below a path, and the rules of the path and below it.
fn walk(schema: &Value, path: &str, fields: &mut Vec<[String; 4]>, rules: &mut Vec<[String; 2]>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let field = format!("{path}{}", text(&rule["fieldPath"]));
        rules.push([code(field.trim_start_matches('.')), text(&rule["message"]).to_owned()]);
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let path = path.trim_start_matches('.');
        if path == "metadata" {
            continue;
        }
        let default =
            if required.contains(&name.as_str()) { "required".to_owned() } else { default(&field["default"]) };
        let mut description = text(&field["description"]).to_owned();
        if path == NOT_EXPANDED {
            description += &format!(" `kubectl explain podset.{NOT_EXPANDED}` shows its fields.");
        }
        // `spec` and `status` themselves need no row.
        if path.contains('.') {
            fields.push([code(path), type_of(field), default, description]);
        }
        if path != NOT_EXPANDED {
            walk(field, path, fields, rules);
        }
    }
}

/// The default of a field. Defaults of objects and lists are left out, because their fields have them.
fn default(value: &Value) -> String {
    match value {
        Value::Null | Value::Object(_) | Value::Array(_) => String::new(),
        Value::String(text) => code(text),
        scalar => code(&scalar.to_string()),
    }
}

/// The type of a field, and its bounds.
fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or percentage".to_owned();
    }
    if let Some(values) = field["enum"].as_array() {
        return values.iter().map(|value| code(text(value))).collect::<Vec<_>>().join(" or ");
    }
    let mut type_ = match text(&field["type"]) {
        "array" => format!("list of {}s", text(&field["items"]["type"])),
        "object" if !field["additionalProperties"].is_null() => "map of strings".to_owned(),
        other => other.to_owned(),
    };
    match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) if most < f64::from(i32::MAX) => write!(type_, ", {least} to {most}"),
        (Some(least), _) => write!(type_, ", at least {least}"),
        _ => Ok(()),
    }
    .expect("bounds can be written");
    if let Some(most) = field["maxLength"].as_u64() {
        type_ += &format!(", at most {most} characters");
    }
    type_
}

#[test]
fn flags() {
    let command = Cli::command();
    let run = command.find_subcommand("run").expect("there is `run`");
    let guide = "`podset-operator run` takes these flags; `podset-operator crd`, which prints the CRDs, takes none. A flag takes precedence over its\n\
                 environment variable. [Operating](../operating.md#flags) explains them.";
    let mut page = head("Flags", guide);
    let flags: Vec<_> = run.get_arguments().filter(|flag| flag.get_env().is_some()).collect();
    let mut headings: Vec<_> = flags.iter().filter_map(|flag| flag.get_help_heading()).collect();
    headings.dedup();
    for heading in headings {
        let rows = flags.iter().filter(|flag| flag.get_help_heading() == Some(heading)).map(|flag| {
            let help = flag.get_help().expect("a flag has a help text").to_string();
            let (help, default) = help.split_once(" [default: ").unwrap_or((&help, ""));
            let default = match flag.get_default_values() {
                [default] => code(&default.to_string_lossy()),
                _ => default.trim_end_matches(']').to_owned(),
            };
            let (name, value) = (flag.get_long().expect("a flag has a name"), flag.get_value_names());
            let value = value.and_then(<[_]>::first).expect("a flag has a value");
            let variable = flag.get_env().expect("filtered").to_string_lossy();
            [code(&format!("--{name}={value}")), code(&variable), default, help.to_owned()]
        });
        write!(
            page,
            "\n## {heading}\n{}",
            table(["flag", "environment variable", "default", "description"], &rows.collect::<Vec<_>>())
        )
        .expect("a table can be written");
    }
    is_current("flags.md", &page);
}

#[test]
fn metrics() {
    let exposed = leader::exposes(Format::Classic);
    let lines = |start: &'static str| exposed.lines().filter_map(move |line| line.strip_prefix(start)?.split_once(' '));
    let row = |(name, help): (&str, &str)| {
        let type_ = lines("# TYPE ").find(|(other, _)| *other == name).map_or("", |(_, type_)| type_);
        let is_own = |line: &&str| {
            let series = line.split(['{', ' ']).next().unwrap_or_default();
            series == name || type_ == "histogram" && series.strip_suffix("_bucket") == Some(name)
        };
        let labels = exposed.lines().filter(is_own).filter_map(|line| line.split_once('{')?.1.split_once('}'));
        let labels =
            labels.flat_map(|(labels, _)| labels.split(',')).filter_map(|label| Some(label.split_once('=')?.0));
        let labels: BTreeSet<String> = labels.filter(|label| *label != "le").map(code).collect();
        let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
        [code(name), type_.to_owned(), labels, help.trim_end_matches('.').to_owned()]
    };
    let mut rows: Vec<_> = lines("# HELP ").map(row).collect();
    rows.sort();
    let (own, common): (Vec<_>, Vec<_>) = rows.into_iter().partition(|[name, ..]| name.starts_with("`podset_"));
    let guide =
        "`/metrics` serves these metrics. [Monitoring](../observability.md#metrics) explains them and has queries.";
    let mut page = head("Metrics", guide);
    let columns = ["metric", "type", "labels", "description"];
    page += &format!("\n## PodSets\n{}", table(columns, &own));
    page += "\n## Controllers, leader election, requests and the process\n\nNames and labels are those of controller-runtime.\n";
    page += &table(columns, &common);
    is_current("metrics.md", &page);
}
