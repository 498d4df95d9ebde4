//! Links with anchors, make targets, flags and paths in the documentation exist. The tests look up everything in the
//! Markdown files that looks like one of these. The lists below have the exceptions. (The crate lychee-lib brings 140 more
//! crates, and checks the links only.)

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use clap::CommandFactory;
use podset_operator::cli::Cli;

/// Flags of other programs that the documentation names.
const FLAGS_OF_OTHERS: &[&str] = &[
    "--all",
    "--all-namespaces",
    "--as",
    "--bundle",
    "--call-graph",
    "--cascade",
    "--certificate-identity",
    "--certificate-oidc-issuer",
    "--clusterrole",
    "--config",
    "--context",
    "--create-namespace",
    "--data",
    "--data-urlencode",
    "--decode",
    "--deny-self-hosted-runners",
    "--disable-qps-limits",
    "--dry-run",
    "--enable-crds",
    "--enable-distributed-tracing",
    "--example",
    "--field-manager",
    "--field-selector",
    "--filename",
    "--for",
    "--force",
    "--force-conflicts",
    "--format",
    "--from",
    "--get",
    "--grace-period",
    "--ignore-not-found",
    "--image",
    "--insecure",
    "--kube-audit-policy",
    "--label-columns",
    "--lib",
    "--list",
    "--locked",
    "--manifest-url",
    "--namespace",
    "--oauth2-bearer",
    "--only",
    "--open",
    "--output",
    "--patch",
    "--path",
    "--precise",
    "--prefix",
    "--previous",
    "--replicas",
    "--repo",
    "--request",
    "--reset-then-reuse-values",
    "--resource",
    "--retry",
    "--retry-connrefused",
    "--reuse-values",
    "--revision",
    "--role",
    "--rounds",
    "--selector",
    "--server-side",
    "--serviceaccount",
    "--set",
    "--show-events",
    "--show-managed-fields",
    "--signer-workflow",
    "--sort-by",
    "--source-ref",
    "--subresource",
    "--tail",
    "--take-ownership",
    "--template",
    "--test",
    "--test-threads",
    "--timeout",
    "--to-revision",
    "--tracing-config-file",
    "--type",
    "--use",
    "--user",
    "--verb",
    "--wait",
    "--watch",
    "--workspace",
    "--write",
];

/// Paths that a program or the reader creates.
const CREATED_PATHS: &[&str] = &[
    "config/crd/bases/poc.test.domain_tallies.yaml",
    "dist/NOTES.md",
    "dist/bundle",
    "dist/catalog",
    "dist/install.yaml",
    "docs/reference/tally.md",
    "src/api/tally.rs",
    "target/",
    "target/bench",
    "target/debug/podset-operator",
    "target/e2e",
    "target/e2e/SCENARIO/",
];

/// A Markdown file.
struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    /// The folder to which its links are relative.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Its lines without code blocks, with line numbers.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut in_code = false;
        self.text.lines().enumerate().filter_map(move |(number, line)| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            (!in_code && !is_fence).then_some((number + 1, line))
        })
    }

    /// The anchors of its headings.
    fn anchors(&self) -> BTreeSet<String> {
        self.prose().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line)).collect()
    }

    /// The line numbers and targets of its links.
    fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            for part in line.split("](").skip(1) {
                links.push((number, part.split(')').next().unwrap_or_default().to_owned()));
            }
        }
        links
    }

    /// All words, also in code, with line numbers and without quotes and punctuation.
    fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let split = |character: char| character.is_whitespace() || "`'\"()[]{},;|".contains(character);
        self.text.lines().enumerate().flat_map(move |(number, line)| {
            line.split(split).filter(|word| !word.is_empty()).map(move |word| (number + 1, word))
        })
    }
}

/// The anchor of a heading, as on GitHub.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || "- _".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    collect(Path::new(""), &mut pages);
    assert!(pages.len() > 10, "only {} pages were found", pages.len());
    pages
}

fn collect(folder: &Path, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(root().join(folder)).expect("a folder of the repository can be read") {
        let entry = entry.expect("an entry can be read");
        let path = folder.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            if !matches!(name.as_str(), "target" | "dist" | ".git" | "node_modules") {
                collect(&path, pages);
            }
        } else if name.ends_with(".md") {
            let text = fs::read_to_string(entry.path()).expect("a page can be read");
            pages.push(Page { path, text });
        }
    }
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Fails with all errors, not only the first.
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_and_anchors_exist() {
    let pages = pages();
    let mut wrong = Vec::new();
    for page in &pages {
        for (line, link) in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.path.clone() } else { plain(&page.folder().join(file)) };
            let there = root().join(&target).exists();
            let on = pages.iter().find(|other| other.path == target);
            if !there || !anchor.is_empty() && on.is_none_or(|on| !on.anchors().contains(anchor)) {
                wrong.push(format!("{}:{line}: {link} does not exist", page.path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn make_targets_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile can be read");
    let is_target =
        |word: &str| makefile.lines().any(|line| line.split(':').next() == Some(word) && line.contains(':'));
    let mut wrong = Vec::new();
    for page in pages() {
        let prose: BTreeSet<usize> = page.prose().map(|(number, _)| number).collect();
        let words: Vec<_> = page.words().collect();
        for pair in words.windows(2) {
            let [(line, "make"), (next, target)] = *pair else { continue };
            // In prose, "make" is a target only in code.
            let text = page.text.lines().nth(line - 1).unwrap_or_default();
            let typed = !prose.contains(&line) || text.contains(&format!("`make {target}"));
            if line == next && typed && !is_target(target) {
                wrong.push(format!("{}:{line}: there is no `make {target}`", page.path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn flags_exist() {
    let command = Cli::command();
    let run = command.find_subcommand("run").expect("there is `run`");
    let own: BTreeSet<String> =
        run.get_arguments().filter_map(|flag| flag.get_long()).map(|f| format!("--{f}")).collect();
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<&str> = FLAGS_OF_OTHERS.iter().copied().collect();
    for page in pages() {
        for (line, word) in page.words().filter(|(_, word)| word.starts_with("--")) {
            let flag = word.split('=').next().unwrap_or_default().trim_end_matches(['.', ':']);
            unused.remove(flag);
            let known =
                own.contains(flag) || ["--help", "--version"].contains(&flag) || FLAGS_OF_OTHERS.contains(&flag);
            if !known && flag[2..].starts_with(char::is_alphabetic) {
                wrong.push(format!("{}:{line}: there is no flag {flag}", page.path.display()));
            }
        }
    }
    wrong.extend(unused.iter().map(|flag| format!("tests/docs.rs: no page names {flag}")));
    assert_none(&wrong);
}

/// An invalid variable is an error only if it takes effect.
#[test]
fn a_flag_takes_precedence_over_its_variable() {
    let variable = ("PODSET_OPERATOR_MAX_CONCURRENT_RECONCILES", "none of these");
    for (arguments, code, message) in [
        (&["run"][..], 2, variable.1),
        (&[], 2, variable.1),
        (&["crd"], 0, ""),
        (&["run", "--max-concurrent-reconciles=8", "--kubeconfig=/nowhere"], 2, "/nowhere"),
        (&["--max-concurrent-reconciles=8", "--kubeconfig=/nowhere"], 2, "/nowhere"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podset-operator"));
        let output = command.args(arguments).env(variable.0, variable.1).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
}

#[test]
fn paths_exist() {
    let tops = [
        "src/", "tests/", "config/", "docs/", "hack/", "bench/", "e2e/", "charts/", "dist/", "target/", ".github/",
        ".ci/",
    ];
    let mut wrong = Vec::new();
    for page in pages() {
        for (line, word) in page.words() {
            let path =
                word.trim_start_matches("../").trim_end_matches(['.', ':']).split(['#', '*', '$']).next().unwrap_or("");
            if !tops.iter().any(|top| path.starts_with(top)) || CREATED_PATHS.contains(&path) {
                continue;
            }
            // A path can be relative to the folder of the page.
            let beside = root().join(page.folder()).join(path);
            if !root().join(path).exists() && !beside.exists() {
                wrong.push(format!("{}:{line}: there is no {path}", page.path.display()));
            }
        }
    }
    assert_none(&wrong);
}

/// All builds use the oldest supported Rust, so every build checks `rust-version`.
#[test]
fn all_builds_use_the_oldest_supported_rust() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let between = |text: &str, before: &str, after: &str| {
        let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("there is no {before}"));
        rest.split(after).next().unwrap_or_default().to_owned()
    };
    let toolchain = between(&read("rust-toolchain.toml"), "channel = \"", "\"");
    let oldest = between(&read("Cargo.toml"), "rust-version = \"", "\"");
    let image = between(&read("Dockerfile"), "library/rust:", "-");
    assert_eq!(image, toolchain);
    assert!(toolchain.starts_with(&oldest), "the toolchain is {toolchain}, but rust-version is {oldest}");
}

/// A test that is not found does not fail: `cargo test -- --exact a::b` then runs none.
#[test]
fn tests_that_the_makefile_names_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile can be read");
    let named: Vec<_> = makefile.split("--exact ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    assert!(named.len() >= 4, "{named:?}");
    for path in named {
        let (module, test) = path.rsplit_once("::").expect("a module and a test");
        let file = root().join("tests/simulation").join(module.replace("::", "/"));
        let text =
            [file.with_extension("rs"), file.join("mod.rs")].into_iter().find_map(|file| fs::read_to_string(file).ok());
        assert!(text.is_some_and(|text| text.contains(&format!("fn {test}("))), "there is no test {path}");
    }
}
