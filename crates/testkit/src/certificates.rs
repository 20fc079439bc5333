//! Certificates for tests of TLS: an issuer that exists for one test, and what it issues. Nothing else trusts it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// An issuer of certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, as PEM.
    pub certificate_pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate_pem: String,
    /// The key.
    pub key_pem: String,
}

fn named(name: &str, subjects: &[&str]) -> CertificateParams {
    let subjects: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(subjects).expect("names and addresses");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    /// An issuer of that name, with a key of its own.
    pub fn new(name: &str) -> Authority {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key on P-256");
        let certificate_pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate_pem }
    }

    /// A certificate for a server or client that is known by these names and addresses.
    pub fn issue(&self, name: &str, subjects: &[&str]) -> Issued {
        let mut params = named(name, subjects);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key on P-256");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// Writes its certificate into `folder`, as `name.crt`.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(format!("{name}.crt"));
        fs::write(&path, &self.certificate_pem).expect("the folder is the test's own");
        path
    }
}

impl Issued {
    /// Writes both into `folder`, as `name.crt` and `name.key`: where they are.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let [certificate, key] = ["crt", "key"].map(|end| folder.join(format!("{name}.{end}")));
        fs::write(&certificate, &self.certificate_pem).expect("the folder is the test's own");
        fs::write(&key, &self.key_pem).expect("the folder is the test's own");
        (certificate, key)
    }
}
