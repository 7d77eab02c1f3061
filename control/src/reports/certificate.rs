//! The receiver's certificate: from files, or made once and kept in the state folder. Agents pin its fingerprint, the
//! SHA-256 of its DER form, as `openssl x509 -fingerprint -sha256` prints it.

use crate::config::model::{Config, Reports};
use rcgen::{CertificateParams, DnType, KeyPair};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, version};

/// Files in the state folder.
const CERTIFICATE: &str = "reports-cert.pem";
/// See [`CERTIFICATE`].
const KEY: &str = "reports-key.pem";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read as what it is to be.
    #[error("{0}: {1}")]
    Read(PathBuf, pem::Error),
    /// The files hold no certificate.
    #[error("{0}: holds no certificate")]
    Empty(PathBuf),
    /// Certificate and key do not fit.
    #[error("{0} and {1}: {2}")]
    Unfit(PathBuf, PathBuf, rustls::Error),
    /// One of the two files in the state folder is missing.
    #[error(
        "{0} is there and {1} is not: restore it, or remove both to have a new certificate made (agents pin the old one)"
    )]
    Half(PathBuf, PathBuf),
    /// There is no place for one.
    #[error("there is none, and no `state` under [appliance] to keep one in")]
    NoState,
    /// A file cannot be written.
    #[error("{0}: cannot write: {1}; set `state` under [appliance] to a folder that can be written")]
    Write(PathBuf, io::Error),
    /// None could be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// What the receiver shows.
#[derive(Clone)]
pub struct Certificate {
    /// TLS settings with it.
    pub(super) tls: Arc<ServerConfig>,
    /// SHA-256 of the certificate, 64 hexadecimal digits.
    pub fingerprint: String,
    /// Its file.
    pub file: PathBuf,
}

/// SHA-256 of a certificate, 64 hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = Sha256::digest(certificate.as_ref());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Certificate {
    /// Reads the configured certificate, or the one in the state folder, which is made if there is none.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn load(config: &Config, reports: &Reports) -> Result<Self, CertificateError> {
        match &reports.certificate {
            Some((certificate, key)) => Self::read(certificate, key),
            None => match &config.appliance.state {
                Some(state) => Self::kept(state, &config.appliance.name),
                None => Err(CertificateError::NoState),
            },
        }
    }

    /// The one of the state folder.
    fn kept(state: &Path, name: &str) -> Result<Self, CertificateError> {
        let (certificate, key) = (state.join(CERTIFICATE), state.join(KEY));
        match (certificate.exists(), key.exists()) {
            (true, true) => {}
            (true, false) => return Err(CertificateError::Half(certificate, key)),
            (false, true) => return Err(CertificateError::Half(key, certificate)),
            (false, false) => {
                fs::create_dir_all(state)
                    .map_err(|error| CertificateError::Write(state.to_owned(), error))?;
                let pair = KeyPair::generate()?;
                let mut params = CertificateParams::new(vec![name.to_owned()])?;
                params.distinguished_name.push(DnType::CommonName, name);
                let made = params.self_signed(&pair)?;
                // The key first: with it alone the next start says what is missing.
                write(&key, &pair.serialize_pem())?;
                write(&certificate, &made.pem())?;
                tracing::info!(file = %certificate.display(), "made a certificate for the receiver of reports");
            }
        }
        Self::read(&certificate, &key)
    }

    fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let wrong = |file: &Path| {
            let file = file.to_owned();
            |error| CertificateError::Read(file, error)
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(wrong(certificate))?;
        let first = chain
            .first()
            .ok_or_else(|| CertificateError::Empty(certificate.to_owned()))?;
        let fingerprint = fingerprint(first);
        let private = PrivateKeyDer::from_pem_file(key).map_err(wrong(key))?;
        let unfit = |error| CertificateError::Unfit(certificate.to_owned(), key.to_owned(), error);
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(unfit)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            tls: Arc::new(tls),
            fingerprint,
            file: certificate.to_owned(),
        })
    }
}

/// Writes a new file that its owner alone can read, whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), CertificateError> {
    let part = path.with_extension(format!("pem.{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part);
        CertificateError::Write(path.to_owned(), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn one_is_made_once_and_kept_and_openssl_prints_its_fingerprint() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let first = Certificate::kept(&state, "edge-1").expect("made");
        let again = Certificate::kept(&state, "edge-1").expect("read");
        assert_eq!(first.fingerprint, again.fingerprint);
        let mode = |file| {
            fs::metadata(state.join(file))
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode(KEY), mode(CERTIFICATE)), (0o600, 0o600));
        let printed = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
            .arg(&first.file)
            .output()
            .expect("openssl is installed");
        let printed = String::from_utf8(printed.stdout)
            .expect("text")
            .replace(':', "")
            .to_lowercase();
        assert!(
            printed.trim().ends_with(&first.fingerprint),
            "{printed} {}",
            first.fingerprint
        );

        fs::remove_file(state.join(KEY)).expect("removed");
        let error = Certificate::kept(&state, "edge-1")
            .err()
            .expect("half of it")
            .to_string();
        assert!(error.contains(CERTIFICATE) && error.contains("is not"), "{error}");
        fs::write(state.join(KEY), "no key").expect("written");
        let error = Certificate::kept(&state, "edge-1")
            .err()
            .expect("no key")
            .to_string();
        assert!(error.contains(KEY), "{error}");
    }
}
