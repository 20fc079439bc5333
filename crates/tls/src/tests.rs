//! TLS between a client by rustls and an app: on a lane that records, with everything that can be wrong, and on real
//! sockets, where the connection must keep the whole contract of a lane of streams.

mod behaviour;
mod conformance;

use crate::{ClientCertificates, PemFiles, Settings, SettingsError};
use laneway_testkit::{Authority, Issued};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("no folder has that name");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is left to do about a folder that cannot be removed.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The certificates and authorities of a test.
struct Trust {
    folder: Folder,
    authority: Authority,
}

const NAME: &str = "laneway.test";

impl Trust {
    fn new() -> Trust {
        Trust { folder: Folder::new(), authority: Authority::new("tests of laneway") }
    }

    /// A server with a certificate of ours; clients as given.
    fn files(&self, clients: impl FnOnce(PathBuf) -> ClientCertificates) -> PemFiles {
        let (certificate, key) =
            self.authority.issue(NAME, &[NAME]).write(&self.folder.0, "server");
        let issuers = self.authority.write(&self.folder.0, "issuer");
        PemFiles { certificate, key, clients: clients(issuers) }
    }

    fn settings(&self, clients: impl FnOnce(PathBuf) -> ClientCertificates) -> Settings {
        let read: Result<Settings, SettingsError> = Settings::read(&self.files(clients), 0);
        let mut settings = read.unwrap_or_else(|error| panic!("{error}"));
        settings.answer_to_plain = b"-ERR TLS is spoken here\r\n";
        // What comes of the server behind the handshake is the app's alone.
        let config = Arc::get_mut(&mut settings.config).expect("it has no other owner yet");
        config.send_tls13_tickets = 0;
        settings
    }

    fn client(
        &self,
        own: Option<&Issued>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let issuer = CertificateDer::from_pem_slice(self.authority.certificate_pem.as_bytes());
        roots.add(issuer.expect("PEM")).expect("an issuer");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("ring has suites for both")
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::from_pem_slice(own.certificate_pem.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes());
                let made =
                    builder.with_client_auth_cert(vec![chain.expect("PEM")], key.expect("PEM"));
                made.expect("they fit")
            }
        };
        let name = ServerName::try_from(NAME).expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a client")
    }
}
