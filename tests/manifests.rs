//! What is committed under `config/crd/bases`, and in the chart, is what the types say. `make manifests` runs this with
//! `UPDATE_MANIFESTS=1`, which writes the files instead of comparing them.

use std::{fs, path::Path};

use podset_operator::api;

/// Client-side `kubectl apply` keeps the whole manifest in an annotation, as JSON, which may have 256 KiB.
const LARGEST: usize = 200_000;

/// Where the CRDs are: for kustomize, and for the chart, which can hold nothing from outside its folder.
const FOLDERS: [&str; 2] = ["config/crd/bases", "charts/podset-operator/files/crds"];

#[test]
fn committed_crds_are_current() {
    for (file, crd) in api::crds() {
        let current = api::yaml(&crd).expect("a CRD can be written as YAML");
        let json = serde_json::to_value(&crd).expect("a CRD can be written as JSON");
        for size in [current.len(), json.to_string().len()] {
            assert!(size < LARGEST, "{file} has {size} bytes: too many for kubectl apply");
        }
        assert!(
            serde_saphyr::from_str::<serde_json::Value>(&current).expect("YAML") == json,
            "{file} says something else"
        );
        for folder in FOLDERS {
            is_current(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), file, &current);
        }
    }
}

fn is_current(folder: &Path, file: &str, current: &str) {
    let path = folder.join(file);
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        fs::create_dir_all(folder).expect("the folder can be made");
        fs::write(&path, current).expect("the CRD can be written");
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == current, "{} is not what the types say: run `make manifests`", path.display());
}
