//! The certificate of the metrics server: which files are rejected, and that new files are read.

use std::{fs, os::unix::fs::symlink};

use tempfile::TempDir;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{pki_types::ServerName, version::TLS13},
};

use super::*;
use crate::{server::tests::connector, testing::CapturedLogs};

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

/// The certificate that a client sees.
async fn served(current: &watch::Receiver<Arc<ServerConfig>>) -> Vec<CertificateDer<'static>> {
    let (client, server) = tokio::io::duplex(16 * 1024);
    let (acceptor, name) = (TlsAcceptor::from(current.borrow().clone()), ServerName::try_from("localhost").unwrap());
    let (stream, _) = tokio::join!(connector(&TLS13).connect(name, client), acceptor.accept(server));
    let chain = stream.unwrap().get_ref().1.peer_certificates().unwrap().to_vec();
    chain.into_iter().map(CertificateDer::into_owned).collect()
}

pub(crate) fn parsed((certificate, _): &(String, String)) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_unusable_certificate_is_rejected_with_its_flag_and_file() {
    let folder = TempDir::new().unwrap();
    let refused = || {
        let sentence = read(folder.path()).unwrap_err();
        assert!(sentence.starts_with("--metrics-cert-path: "), "{sentence}");
        sentence
    };
    assert!(refused().contains("tls.crt: I/O error: No such file"));
    let (one, other) = (new_pair(), new_pair());
    write(folder.path(), &(one.0.clone(), other.1));
    assert!(refused().contains("cannot be used together"));
    write(folder.path(), &("no certificate".to_owned(), one.1.clone()));
    assert!(refused().contains("tls.crt: no items found; give a folder"));
    write(folder.path(), &(one.0.clone(), String::new()));
    assert!(refused().contains("tls.key: no items found; give a folder"));
    write(folder.path(), &one);
    assert!(read(folder.path()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_read_again() {
    let folder = TempDir::new().unwrap();
    // As a kubelet writes a Secret: files behind a symlink that is replaced atomically.
    let pairs = [new_pair(), new_pair()];
    for (name, pair) in ["first", "second"].iter().zip(&pairs) {
        fs::create_dir(folder.path().join(name)).unwrap();
        write(&folder.path().join(name), pair);
    }
    symlink("first", folder.path().join("data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        symlink(format!("data/{file}"), folder.path().join(file)).unwrap();
    }
    let (sender, current) = watch::channel(read(folder.path()).unwrap());
    assert_eq!(served(&current).await, parsed(&pairs[0]));
    let refreshing = tokio::spawn(keep_fresh(folder.path().to_owned(), sender, CancellationToken::new()));

    symlink("second", folder.path().join("new")).unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("data")).unwrap();
    sleep(RELOAD_INTERVAL + Duration::from_secs(1)).await;
    assert_eq!(served(&current).await, parsed(&pairs[1]));

    let broken = (pairs[0].0.clone(), pairs[1].1.clone());
    write(&folder.path().join("second"), &broken);
    sleep(RELOAD_INTERVAL * 2).await;
    assert_eq!(served(&current).await, parsed(&pairs[1]), "a broken pair changes nothing");

    fs::remove_file(folder.path().join("data")).unwrap();
    sleep(RELOAD_INTERVAL * 2).await;
    assert_eq!(served(&current).await, parsed(&pairs[1]), "missing files change nothing either");

    symlink("first", folder.path().join("data")).unwrap();
    sleep(RELOAD_INTERVAL * 2).await;
    assert_eq!(served(&current).await, parsed(&pairs[0]));
    refreshing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_broken_pair_is_logged_once() {
    let logs = CapturedLogs::start();
    let folder = TempDir::new().unwrap();
    let (one, other) = (new_pair(), new_pair());
    write(folder.path(), &one);
    let (sender, _current) = watch::channel(read(folder.path()).unwrap());
    let refreshing = tokio::spawn(keep_fresh(folder.path().to_owned(), sender, CancellationToken::new()));
    for warnings in 1..=2 {
        write(folder.path(), &(one.0.clone(), other.1.clone()));
        sleep(RELOAD_INTERVAL * 4).await;
        let text = logs.text();
        assert_eq!(text.matches("; keeping the former certificate").count(), warnings, "{text}");
        write(folder.path(), &one);
        sleep(RELOAD_INTERVAL * 2).await;
    }
    refreshing.abort();
}
