//! The way to one appliance: a TLS connection that is kept from report to report, to a certificate that is known by its
//! fingerprint or by its authority. Owned by a reporter; one request at a time.

use super::config::{Appliance, Trust};
use crate::admin::api::ErrorBody;
use crate::reports::certificate::fingerprint;
use crate::reports::report::{Answer, PATH, Report};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};

/// Connecting and shaking hands take no longer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// An answer takes no longer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Largest answer, bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why a report did not get there, or was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// No connection.
    #[error("{0}: {1}")]
    Way(&'static str, String),
    /// The appliance said no.
    #[error("refused with {0}: {1}")]
    Refused(StatusCode, String),
}

/// The way to one appliance.
pub(super) struct Link {
    appliance: Appliance,
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
    token: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Link {
    /// Not connected yet.
    ///
    /// # Errors
    /// The file of authorities cannot be used: which, and why.
    pub(super) fn new(appliance: &Appliance, token: &str) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|error| error.to_string())?;
        let (mut tls, name) = match &appliance.trust {
            Trust::Fingerprint(pin) => {
                let verifier = Pinned { pin: *pin, provider };
                let tls = builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier));
                (tls.with_no_client_auth(), appliance.host.as_str())
            }
            Trust::Authority { file, name } => {
                let shown = file.display();
                let mut roots = RootCertStore::empty();
                let read =
                    CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let read = read.map_err(|error| format!("{shown}: {error}"))?;
                let (taken, _) = roots.add_parsable_certificates(read);
                if taken == 0 {
                    return Err(format!("{shown}: holds no certificate of an authority"));
                }
                (
                    builder.with_root_certificates(roots).with_no_client_auth(),
                    name.as_str(),
                )
            }
        };
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = match name.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(name.to_owned())
                .map_err(|error| format!("{name} is no TLS server name: {error}"))?,
        };
        Ok(Self {
            appliance: appliance.clone(),
            tls: Arc::new(tls),
            name,
            token: token.to_owned(),
            sender: None,
        })
    }

    /// Sends a report and waits for what comes of it.
    ///
    /// # Errors
    /// See [`LinkError`]; the next one is sent over a new connection then.
    pub(super) async fn send(&mut self, report: &Report) -> Result<Answer, LinkError> {
        let body =
            serde_json::to_vec(report).map_err(|e| LinkError::Way("writing the report", e.to_string()))?;
        let body = Bytes::from(body);
        if let Some(mut kept) = self.sender.take() {
            // The appliance may have closed it meanwhile: that is no failure.
            if let Ok(answer) = self.exchange(&mut kept, body.clone()).await {
                self.sender = Some(kept);
                return judge(answer);
            }
        }
        let mut fresh = self.connect().await?;
        let answer = self.exchange(&mut fresh, body).await?;
        self.sender = Some(fresh);
        judge(answer)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, LinkError> {
        let Appliance { host, port, .. } = &self.appliance;
        let connect = async {
            let stream = TcpStream::connect((host.as_str(), *port))
                .await
                .map_err(|error| LinkError::Way("connecting", error.to_string()))?;
            let _ = stream.set_nodelay(true);
            TlsConnector::from(self.tls.clone())
                .connect(self.name.clone(), stream)
                .await
                .map_err(|error| LinkError::Way("TLS handshake", error.to_string()))
        };
        let late = |_| LinkError::Way("connecting", format!("nothing within {CONNECT_MAX:?}"));
        let stream = tokio::time::timeout(CONNECT_MAX, connect).await.map_err(late)??;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| LinkError::Way("connecting", error.to_string()))?;
        // Ends with the sender, or when the appliance closes it.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), LinkError> {
        let wrong = |error: String| LinkError::Way("sending", error);
        let request = Request::post(PATH)
            .header(header::HOST, host_header(&self.appliance))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("windrose-agent/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(body))
            .map_err(|error| wrong(error.to_string()))?;
        let exchange = async {
            sender.ready().await.map_err(|error| wrong(error.to_string()))?;
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| wrong(error.to_string()))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await;
            let body = body.map_err(|error| LinkError::Way("reading the answer", error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let late = |_| LinkError::Way("waiting for the answer", format!("nothing within {ANSWER_MAX:?}"));
        tokio::time::timeout(ANSWER_MAX, exchange).await.map_err(late)?
    }
}

fn host_header(appliance: &Appliance) -> String {
    match appliance.host.contains(':') {
        true => format!("[{}]:{}", appliance.host, appliance.port),
        false => format!("{}:{}", appliance.host, appliance.port),
    }
}

/// What an answer says.
fn judge((status, body): (StatusCode, Bytes)) -> Result<Answer, LinkError> {
    if status != StatusCode::OK {
        let said = serde_json::from_slice::<ErrorBody>(&body).map(|body| body.error);
        return Err(LinkError::Refused(status, said.unwrap_or_default()));
    }
    serde_json::from_slice(&body).map_err(|error| LinkError::Way("reading the answer", error.to_string()))
}

/// Takes one certificate, whatever its name and date; its key must sign the handshake.
#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Sha256::digest(end_entity.as_ref())[..] == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        let found = fingerprint(end_entity);
        Err(rustls::Error::General(format!(
            "the certificate has fingerprint {found}, not the one of `fingerprint`"
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
