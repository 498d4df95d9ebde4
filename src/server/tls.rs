//! The certificate of the metrics: made at the start, or read from files and read again when they change.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem, pem::PemObject},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};
use tracing::{info, warn};

use crate::telemetry::log_once::LogOnce;

/// How often the files are looked at. A Secret that changes reaches a pod a minute later anyway.
const LOOK: Duration = Duration::from_secs(10);

/// The files of a folder, as in a Secret of type kubernetes.io/tls.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("--metrics-cert-path: cannot read {}: {source}; give a folder with tls.crt and tls.key", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("--metrics-cert-path: {} is not in PEM format: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it is.
        source: pem::Error,
    },
    /// The certificate and the key are no pair, or of a kind that is not supported.
    #[error("--metrics-cert-path: tls.crt and tls.key in {} cannot be used together: {source}", folder.display())]
    Pair {
        /// Where they are.
        folder: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate for the metrics: {0}; give one with --metrics-cert-path")]
    SelfSigned(#[from] rcgen::Error),
    /// TLS cannot be set up with it.
    #[error("cannot serve the metrics by TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// What the files of a folder hold.
type Contents = [Vec<u8>; 2];

/// The certificate that is served now.
#[derive(Debug)]
pub struct Certificate {
    current: Arc<Current>,
    folder: Option<PathBuf>,
    /// What was read last, whether it could be used or not.
    read: Option<Contents>,
}

impl Certificate {
    /// A certificate that nobody vouches for, good for this process.
    ///
    /// # Errors
    ///
    /// When none can be made.
    pub fn self_signed() -> Result<Self, CertificateError> {
        let names = ["podset-operator", "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut made = rcgen::CertificateParams::new(names)?;
        made.distinguished_name.push(rcgen::DnType::CommonName, "podset-operator");
        let key = rcgen::KeyPair::generate()?;
        let certificate = made.self_signed(&key)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let pair = CertifiedKey::from_der(vec![certificate.der().clone()], key, &ring::default_provider())?;
        Ok(Certificate { current: Arc::new(Current::new(pair)), folder: None, read: None })
    }

    /// The certificate of a folder.
    ///
    /// # Errors
    ///
    /// When its files cannot be read or used.
    pub fn from_folder(folder: &Path) -> Result<Self, CertificateError> {
        let contents = read(folder)?;
        let current = Arc::new(Current::new(pair(folder, &contents)?));
        Ok(Certificate { current, folder: Some(folder.to_owned()), read: Some(contents) })
    }

    /// What turns connections into TLS connections, always with the certificate of the moment.
    ///
    /// # Errors
    ///
    /// When TLS cannot be set up.
    pub fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Takes over what changes in the files, for ever. What cannot be used is warned of, once, and changes nothing.
    pub async fn keep_fresh(mut self) {
        let Some(folder) = self.folder.clone() else {
            return std::future::pending().await;
        };
        let mut said = LogOnce::default();
        loop {
            tokio::time::sleep(LOOK).await;
            let from = folder.clone();
            let contents = tokio::task::spawn_blocking(move || read(&from)).await;
            let contents = match contents {
                Ok(contents) => contents,
                Err(_) => continue,
            };
            let refreshed = contents.and_then(|contents| {
                said.forget();
                self.refresh(&folder, contents)
            });
            match refreshed {
                Ok(false) => {}
                Ok(true) => info!(folder = %folder.display(), "the certificate of the metrics was read again"),
                Err(error) => {
                    let sentence = error.to_string();
                    if said.note(&sentence) {
                        warn!("{sentence}; the former certificate is kept");
                    }
                }
            }
        }
    }

    /// Takes over what was read, if it is new. Whether it was.
    fn refresh(&mut self, folder: &Path, contents: Contents) -> Result<bool, CertificateError> {
        if self.read.as_ref() == Some(&contents) {
            return Ok(false);
        }
        let pair = pair(folder, &contents);
        self.read = Some(contents);
        self.current.replace(pair?);
        Ok(true)
    }
}

fn read(folder: &Path) -> Result<Contents, CertificateError> {
    let [certificate, key] = FILES.map(|file| {
        let path = folder.join(file);
        fs::read(&path).map_err(|source| CertificateError::Read { path, source })
    });
    Ok([certificate?, key?])
}

/// The certificate and the key, if they fit each other.
fn pair(folder: &Path, [certificate, key]: &Contents) -> Result<CertifiedKey, CertificateError> {
    let no_pem = |file: &str, source| CertificateError::Pem { path: folder.join(file), source };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .and_then(|chain: Vec<_>| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
        .map_err(|source| no_pem(FILES[0], source))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| no_pem(FILES[1], source))?;
    let provider: CryptoProvider = ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .map_err(|source| CertificateError::Pair { folder: folder.to_owned(), source })
}

/// What each handshake asks for.
struct Current(RwLock<Arc<CertifiedKey>>);

impl Current {
    fn new(pair: CertifiedKey) -> Self {
        Current(RwLock::new(Arc::new(pair)))
    }

    fn replace(&self, pair: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
    }

    fn get(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

#[cfg(test)]
pub(super) mod tests;
