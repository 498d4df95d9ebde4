//! What is committed under `config/crd/bases` is what the types say. `make manifests` runs this with
//! `UPDATE_MANIFESTS=1`, which writes the files instead of comparing them.

use std::{fs, path::Path};

use podset_operator::api;

/// Client-side `kubectl apply` keeps the whole manifest in an annotation, which may have 256 KiB.
const LARGEST: usize = 200_000;

#[test]
fn committed_crds_are_current() {
    let bases = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd/bases");
    for (file, crd) in api::crds() {
        let path = bases.join(file);
        let current = api::yaml(&crd).expect("a CRD can be written as YAML");
        assert!(current.len() < LARGEST, "{file} has {} bytes: too many for kubectl apply", current.len());
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            fs::create_dir_all(&bases).expect("config/crd/bases can be made");
            fs::write(&path, current).expect("the CRD can be written");
            continue;
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == current, "{} is not what the types say: run `make manifests`", path.display());
    }
}
