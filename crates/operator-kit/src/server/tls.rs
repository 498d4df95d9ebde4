//! The TLS certificate of the metrics: self-signed, or from files that are read again every 10 s.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, time::sleep};
use tokio_rustls::rustls::{
    self, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::log_once::{LogOnce, warn_once};

/// How often the files are read. A kubelet updates a mounted Secret about once a minute.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the files of a Secret of type kubernetes.io/tls.
pub fn read(folder: &Path) -> Result<Arc<ServerConfig>, String> {
    let unusable = |path: &Path, error| {
        let path = path.display();
        format!("--metrics-cert-path: cannot use {path}: {error}; give a folder with tls.crt and tls.key in PEM format")
    };
    let path = folder.join("tls.crt");
    let chain = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err(pem::Error::NoItemsFound),
        chain => chain,
    };
    let chain = chain.map_err(|error| unusable(&path, error))?;
    let path = folder.join("tls.key");
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| unusable(&path, error))?;
    config(chain, key).map_err(|error| {
        let folder = folder.display();
        format!("--metrics-cert-path: tls.crt and tls.key in {folder} cannot be used together: {error}")
    })
}

pub fn self_signed() -> Result<Arc<ServerConfig>, String> {
    let generate = || -> Result<_, BoxError> {
        let names = ["podset-operator", "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(names)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, "podset-operator");
        let key = rcgen::KeyPair::generate()?;
        let chain = vec![params.self_signed(&key)?.der().clone()];
        Ok(config(chain, key.into())?)
    };
    generate().map_err(|error| {
        format!("cannot generate a certificate for the metrics: {error}; give one with --metrics-cert-path")
    })
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Reloads the files in a folder at an interval until `stop`. Unusable files change nothing, and are logged once.
pub async fn keep_fresh(folder: PathBuf, current: watch::Sender<Arc<ServerConfig>>, stop: CancellationToken) {
    let mut logged = LogOnce::default();
    while stop.run_until_cancelled(sleep(RELOAD_INTERVAL)).await.is_some() {
        let folder = folder.clone();
        // A hanging file system must not block the servers.
        let read = tokio::task::spawn_blocking(move || read(&folder));
        let Some(Ok(read)) = stop.run_until_cancelled(read).await else { continue };
        match read {
            Ok(config) => {
                logged.forget();
                current.send_replace(config);
            }
            Err(error) => warn_once!(logged.note(&error), "{error}; keeping the former certificate"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
