//! What a server's TLS is made of: its certificate and key, whose clients it takes, its limits.

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// A file of certificates or a key is no longer than this, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whose certificates are asked for in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Every client may come.
    Unasked,
    /// A client that has one must have it from an issuer in this file.
    Optional(PathBuf),
    /// A client without one from an issuer in this file is refused.
    Required(PathBuf),
}

/// The files of a server, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFiles {
    /// The server's certificate first, then those of its issuers.
    pub certificate: PathBuf,
    /// The key of the first certificate.
    pub key: PathBuf,
    /// Whose certificates are asked for.
    pub clients: ClientCertificates,
}

/// Why files make no server.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("{}: {why}; it should be a PEM file that this user may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A file is longer than any of its kind.
    #[error("{}: longer than {FILE_BYTES_MAX} bytes; give the PEM file of one server", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing of that kind in it, or what is there is damaged.
    #[error("{}: no {wanted} in PEM form ({why}); is it another file's name?", path.display())]
    Without {
        /// The file.
        path: PathBuf,
        /// A certificate, or a key.
        wanted: &'static str,
        /// What was found.
        why: PemError,
    },
    /// Certificate and key do not fit, or one is of a kind that cannot be used.
    #[error(
        "certificate {} with key {}: {why}; give the key that the certificate was made for",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        why: rustls::Error,
    },
    /// An issuer cannot be used.
    #[error("{}: {why}; give the certificates of the issuers of your clients", path.display())]
    Issuers {
        /// The file.
        path: PathBuf,
        /// What rustls says.
        why: String,
    },
}

/// Bounds of what strangers may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Handshakes of one worker at a time; one more is reset.
    pub handshakes_max: usize,
    /// From the first turn of a connection until its handshake is done, ns.
    pub handshake_ns: u64,
    /// A peer that takes nothing for so long of what is left to send behind a close is reset, ns.
    pub closing_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { handshakes_max: 1024, handshake_ns: 10_000_000_000, closing_ns: 30_000_000_000 }
    }
}

/// TLS of a server: the same for all workers.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) config: Arc<ServerConfig>,
    /// Ports from this one on speak TLS, those before do not.
    pub first_port: u32,
    /// What strangers may cost.
    pub limits: Limits,
    /// What a peer is answered, in the clear, whose first bytes are no TLS: a sentence in the app's own protocol.
    pub answer_to_plain: &'static [u8],
}

impl Settings {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(files: &PemFiles, first_port: u32) -> Result<Settings, SettingsError> {
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has suites for both versions");
        let builder = match &files.clients {
            ClientCertificates::Unasked => builder.with_no_client_auth(),
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
                let failed = |why: String| SettingsError::Issuers { path: path.clone(), why };
                let mut issuers = RootCertStore::empty();
                for issuer in certificates(path)? {
                    issuers.add(issuer).map_err(|why| failed(why.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(issuers), provider);
                let verifier = match &files.clients {
                    ClientCertificates::Optional(_) => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|why| failed(why.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (certificate, key) = (&files.certificate, &files.key);
        let chain = certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_slice(&text(key)?).map_err(|why| {
            SettingsError::Without { path: key.clone(), wanted: "private key", why }
        })?;
        let config = builder.with_single_cert(chain, secret).map_err(|why| {
            SettingsError::Pair { certificate: certificate.clone(), key: key.clone(), why }
        })?;
        let config = Arc::new(config);
        Ok(Settings { config, first_port, limits: Limits::default(), answer_to_plain: b"" })
    }
}

fn text(path: &Path) -> Result<Vec<u8>, SettingsError> {
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|why| SettingsError::Unreadable { path: path.to_owned(), why })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(SettingsError::Long { path: path.to_owned() });
    }
    Ok(text)
}

/// The certificates of a file; one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let without =
        |why| SettingsError::Without { path: path.to_owned(), wanted: "certificate", why };
    let text = text(path)?;
    let found: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(without(PemError::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(why) => Err(without(why)),
    }
}
