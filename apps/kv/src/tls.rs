//! TLS of the store: its arguments, with the names that Redis has for them, and what they make.

use clap::{Args, ValueEnum};
use laneway_kinds::Failure;
use laneway_tls::{ClientCertificates, PemFiles, Settings};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The options of TLS.
#[derive(Args, Debug)]
pub struct TlsArguments {
    /// Where it listens for TLS, separated by commas; without --listen nothing is plain then
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    pub(crate) tls_listen: Vec<SocketAddr>,
    /// The server's certificate, and those of its issuers behind it, as PEM
    #[arg(long, value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, value_name = "PATH")]
    tls_key_file: Option<PathBuf>,
    /// The issuers of the clients' certificates, as PEM
    #[arg(long, value_name = "PATH")]
    tls_ca_cert_file: Option<PathBuf>,
    /// Whether a client needs a certificate of an issuer in --tls-ca-cert-file [default: yes]
    #[arg(long, value_name = "yes|no|optional")]
    tls_auth_clients: Option<AuthClients>,
}

/// Whether clients need certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AuthClients {
    Yes,
    No,
    Optional,
}

/// What a client is answered that speaks no TLS where nothing else is spoken.
const NOT_PLAIN: &[u8] =
    b"-ERR TLS alone is spoken at this port: connect with it, such as redis-cli --tls\r\n";

/// TLS of a run, checked.
#[derive(Clone, Debug)]
pub struct TlsRun {
    /// What the connections are made with.
    pub settings: Settings,
    /// `--tls-auth-clients`, as CONFIG GET shows it.
    pub auth_clients: &'static str,
}

impl TlsArguments {
    /// TLS from the lane's port `first_port` on, if it is asked for.
    pub(crate) fn check(&self, first_port: usize) -> Result<Option<TlsRun>, Failure> {
        let unused = [
            (self.tls_cert_file.is_some(), "--tls-cert-file"),
            (self.tls_key_file.is_some(), "--tls-key-file"),
            (self.tls_ca_cert_file.is_some(), "--tls-ca-cert-file"),
            (self.tls_auth_clients.is_some(), "--tls-auth-clients"),
        ];
        if self.tls_listen.is_empty() {
            return match unused.iter().find(|(is_given, _)| *is_given) {
                Some((_, flag)) => Err(Failure::input(format!(
                    "{flag}: for which port? Give --tls-listen ADDR:PORT, such as 127.0.0.1:6380"
                ))),
                None => Ok(None),
            };
        }
        let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) else {
            return Err(Failure::input(
                "--tls-listen needs a certificate and its key: give --tls-cert-file PATH and --tls-key-file PATH",
            ));
        };
        let (auth_clients, clients) = match (self.tls_auth_clients, &self.tls_ca_cert_file) {
            (Some(AuthClients::No), None) => ("no", ClientCertificates::Unasked),
            (Some(AuthClients::No), Some(path)) => {
                return Err(Failure::input(format!(
                    "--tls-ca-cert-file {}: no client is asked for a certificate; say --tls-auth-clients yes or \
                     optional, or leave the file out",
                    path.display()
                )));
            }
            (Some(AuthClients::Optional), Some(path)) => {
                ("optional", ClientCertificates::Optional(path.clone()))
            }
            (Some(AuthClients::Yes) | None, Some(path)) => {
                ("yes", ClientCertificates::Required(path.clone()))
            }
            (_, None) => {
                return Err(Failure::input(
                    "whose certificates may clients have? Give --tls-ca-cert-file PATH, or say \
                     --tls-auth-clients no",
                ));
            }
        };
        let files = PemFiles { certificate: certificate.clone(), key: key.clone(), clients };
        let first_port = u32::try_from(first_port).unwrap_or(u32::MAX);
        let mut settings = Settings::read(&files, first_port)
            .map_err(|error| Failure::input(error.to_string()))?;
        settings.answer_to_plain = NOT_PLAIN;
        Ok(Some(TlsRun { settings, auth_clients }))
    }
}
