//! The certificate of the metrics: what is refused, and that a new one is taken.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A new pair: certificate and key, as PEM.
pub(crate) fn new_pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (pem("CERTIFICATE", made.cert.der().to_vec()), pem("PRIVATE KEY", made.signing_key.serialize_der()))
}

fn pem(label: &str, der: Vec<u8>) -> String {
    let base64 = serde_json::to_value(k8s_openapi::ByteString(der)).unwrap();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64.as_str().unwrap())
}

pub(crate) fn write(folder: &Path, (certificate, key): &(String, String)) {
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
}

/// The certificate that is served, as it stands in a file.
fn served(current: &Current) -> Vec<CertificateDer<'static>> {
    current.get().cert.clone()
}

pub(crate) fn parsed((certificate, _): &(String, String)) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().unwrap()
}

#[test]
fn what_cannot_be_served_is_refused_with_the_flag_and_the_file() {
    let folder = TempDir::new().unwrap();
    let refused = || {
        let sentence = Certificate::from_folder(folder.path()).unwrap_err().to_string();
        assert!(sentence.starts_with("--metrics-cert-path: "), "{sentence}");
        sentence
    };
    assert!(refused().contains("tls.crt: No such file"));
    let (one, other) = (new_pair(), new_pair());
    write(folder.path(), &(one.0.clone(), other.1));
    assert!(refused().contains("cannot be used together"));
    write(folder.path(), &("no certificate".to_owned(), one.1.clone()));
    assert!(refused().contains("tls.crt is not in PEM format"));
    write(folder.path(), &(one.0.clone(), String::new()));
    assert!(refused().contains("tls.key is not in PEM format"));
    write(folder.path(), &one);
    assert!(Certificate::from_folder(folder.path()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_read_again() {
    let folder = TempDir::new().unwrap();
    // As a kubelet writes a Secret: files behind a link that is turned at once.
    let pairs = [new_pair(), new_pair()];
    for (name, pair) in ["first", "second"].iter().zip(&pairs) {
        fs::create_dir(folder.path().join(name)).unwrap();
        write(&folder.path().join(name), pair);
    }
    symlink("first", folder.path().join("data")).unwrap();
    for file in FILES {
        symlink(format!("data/{file}"), folder.path().join(file)).unwrap();
    }
    let certificate = Certificate::from_folder(folder.path()).unwrap();
    let current = certificate.current.clone();
    assert_eq!(served(&current), parsed(&pairs[0]));
    let refreshing = tokio::spawn(certificate.keep_fresh());

    symlink("second", folder.path().join("new")).unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("data")).unwrap();
    tokio::time::sleep(LOOK + Duration::from_secs(1)).await;
    assert_eq!(served(&current), parsed(&pairs[1]));

    let broken = (pairs[0].0.clone(), pairs[1].1.clone());
    write(&folder.path().join("second"), &broken);
    tokio::time::sleep(LOOK * 2).await;
    assert_eq!(served(&current), parsed(&pairs[1]), "a broken pair changes nothing");

    fs::remove_file(folder.path().join("data")).unwrap();
    tokio::time::sleep(LOOK * 2).await;
    assert_eq!(served(&current), parsed(&pairs[1]), "nor do files that are gone");

    symlink("first", folder.path().join("data")).unwrap();
    tokio::time::sleep(LOOK * 2).await;
    assert_eq!(served(&current), parsed(&pairs[0]));
    refreshing.abort();
}

#[test]
fn a_broken_pair_is_complained_of_once() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (new_pair(), new_pair());
    write(folder.path(), &one);
    let mut certificate = Certificate::from_folder(folder.path()).unwrap();
    let contents = || read(folder.path()).unwrap();
    assert!(!certificate.refresh(folder.path(), contents()).unwrap(), "nothing is new");
    write(folder.path(), &(one.0, other.1));
    assert!(certificate.refresh(folder.path(), contents()).is_err());
    assert!(!certificate.refresh(folder.path(), contents()).unwrap(), "nothing is new");
}
