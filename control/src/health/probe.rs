//! One check over the network: TCP connect, HTTP/1.1 GET, the same over TLS. Called by the prober's
//! tasks; owns the TLS settings and nothing else, each check has a connection of its own.
//!
//! The timeout bounds the whole of it: socket, connect, TLS handshake, response headers. The body is
//! not read; closing is all that a check does with it. What this host could not do (no socket left,
//! no such namespace) is [`Outcome::NotRun`], which says nothing about the member.

mod datagram;

use super::TargetKey;
use crate::config::model::{Check, CheckKind};
use crate::netns;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};

/// Bytes of response headers that are read at most; longer ones fail the check. Origins send well
/// below 8 KiB (nginx's own limit for upstream headers is 4 or 8 KiB).
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Header lines in a response at most.
const HEADER_LINES_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The member answered as expected.
    Success(String),
    /// It did not, in time. The text says what happened and in which phase.
    Failure(Fault, String),
    /// The check could not be carried out for a reason of this host's own.
    NotRun(String),
}

/// How a check failed: what tells a server that is gone from one in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody is there: connection refused or reset, no route, port unreachable.
    Refused,
    /// No answer in time.
    Timeout,
    /// It answers that it cannot: HTTP 5xx or 429, DNS SERVFAIL.
    Error,
    /// It answers, and not what is expected.
    Wrong,
}

impl Outcome {
    /// The text.
    pub fn reason(&self) -> &str {
        let (Outcome::Success(text) | Outcome::Failure(_, text) | Outcome::NotRun(text)) = self;
        text
    }
}

/// Runs checks; cheap to clone.
#[derive(Clone)]
pub struct Probe {
    verifying: Arc<ClientConfig>,
    trusting: Arc<ClientConfig>,
    roots: usize,
}

impl Probe {
    /// With the certificate authorities that this machine trusts (or those of `SSL_CERT_FILE`).
    pub fn new() -> Self {
        Self::with_roots(native_roots())
    }

    /// With the given certificate authorities.
    pub fn with_roots(roots: RootCertStore) -> Self {
        let count = roots.len();
        let provider = Arc::new(ring::default_provider());
        let trusting = tls_builder(&provider)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider.clone())))
            .with_no_client_auth();
        let verifying = tls_builder(&provider)
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            verifying: finish_tls(verifying),
            trusting: finish_tls(trusting),
            roots: count,
        }
    }

    /// Carries out one check. Done within its timeout (and the runtime's own delays).
    pub async fn run(&self, target: &TargetKey) -> Outcome {
        let mut phase = "opening a socket";
        let timeout = target.check.timeout;
        match tokio::time::timeout(timeout, self.attempt(target, &mut phase)).await {
            Ok(Ok(text)) => Outcome::Success(text),
            Ok(Err(Stop::Failure(fault, text))) => Outcome::Failure(fault, format!("{phase}: {text}")),
            Ok(Err(Stop::NotRun(text))) => Outcome::NotRun(format!("{phase}: {text}")),
            Err(_) => Outcome::Failure(Fault::Timeout, format!("{phase}: no answer within {timeout:?}")),
        }
    }

    async fn attempt(&self, target: &TargetKey, phase: &mut &'static str) -> Result<String, Stop> {
        let TargetKey { address, check } = target;
        if let CheckKind::Icmp | CheckKind::Udp { .. } | CheckKind::Dns { .. } = &check.kind {
            return datagram::attempt(*address, check, phase).await;
        }
        let socket = open_socket(*address, check).await.map_err(Stop::not_run)?;
        *phase = "connecting";
        let stream = socket
            .connect(SocketAddr::new(*address, check.port))
            .await
            .map_err(connect_stop)?;
        let CheckKind::Http {
            tls,
            verify,
            path,
            host,
            expect,
        } = &check.kind
        else {
            return Ok("connected".into());
        };
        let request = request(*address, check.port, *tls, path, host.as_deref())?;
        let status = if *tls {
            *phase = "TLS handshake";
            let stream = self.handshake(stream, *address, *verify, host.as_deref()).await?;
            *phase = "waiting for the HTTP response";
            exchange(stream, request).await?
        } else {
            *phase = "waiting for the HTTP response";
            exchange(stream, request).await?
        };
        *phase = "HTTP response";
        if (expect.0..=expect.1).contains(&status.as_u16()) {
            Ok(format!("HTTP {}", status.as_u16()))
        } else {
            let (low, high) = expect;
            let fault = match status {
                StatusCode::TOO_MANY_REQUESTS => Fault::Error,
                status if status.is_server_error() => Fault::Error,
                _ => Fault::Wrong,
            };
            let text = format!("status {}, expected {low} to {high}", status.as_u16());
            Err(Stop::Failure(fault, text))
        }
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        address: IpAddr,
        verify: bool,
        host: Option<&str>,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Stop> {
        if verify && self.roots == 0 {
            return Err(Stop::NotRun(
                "this host trusts no certificate authority; install ca-certificates or set verify = false"
                    .into(),
            ));
        }
        let name = match host {
            Some(host) => ServerName::try_from(without_port(host).to_owned())
                .map_err(|e| Stop::NotRun(format!("host {host:?} is no TLS server name: {e}")))?,
            None => ServerName::from(address),
        };
        let config = if verify { &self.verifying } else { &self.trusting };
        TlsConnector::from(config.clone())
            .connect(name, stream)
            .await
            .map_err(|e| Stop::failure(&e))
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a check ended early.
pub(super) enum Stop {
    Failure(Fault, String),
    NotRun(String),
}

impl Stop {
    /// The peer's doing. A connection that broke is told from one over which something wrong was said.
    pub(super) fn failure(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        let mut fault = Fault::Wrong;
        while let Some(inner) = cause {
            fault = match inner.downcast_ref::<io::Error>().map(io::Error::kind) {
                None | Some(io::ErrorKind::InvalidData) => fault,
                Some(io::ErrorKind::TimedOut) => Fault::Timeout,
                Some(_) => Fault::Refused,
            };
            cause = inner.source();
        }
        Stop::Failure(fault, with_causes(error))
    }

    pub(super) fn not_run(error: impl Error) -> Self {
        Stop::NotRun(with_causes(&error))
    }
}

/// The error's text and, after colons, those of its causes that say more.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// A connect that failed: the member's doing, unless this host ran out of local ports or memory.
pub(super) fn connect_stop(error: io::Error) -> Stop {
    match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => {
            Stop::not_run(error)
        }
        _ => Stop::failure(&error),
    }
}

/// A socket of the target's family, in its namespace and on its interface.
async fn open_socket(address: IpAddr, check: &Check) -> io::Result<TcpSocket> {
    let interface = check.interface.clone();
    let open = move || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        if let Some(name) = &interface {
            socket
                .bind_device(Some(name.as_bytes()))
                .map_err(|e| io::Error::new(e.kind(), format!("interface {name}: {e}")))?;
        }
        Ok(socket)
    };
    match check.netns.clone() {
        None => open(),
        Some(name) => tokio::task::spawn_blocking(move || netns::within(&name, open)?).await?,
    }
}

/// The GET request. The port is left out of `Host` where it is the scheme's own (RFC 9110 section 7.2).
fn request(
    address: IpAddr,
    port: u16,
    tls: bool,
    path: &str,
    host: Option<&str>,
) -> Result<Request<Empty<Bytes>>, Stop> {
    let host = match (host, port) {
        (Some(host), _) => host.to_owned(),
        (None, 80) if !tls => bracketed(address),
        (None, 443) if tls => bracketed(address),
        (None, port) => SocketAddr::new(address, port).to_string(),
    };
    Request::get(path)
        .header(header::HOST, host)
        .header(
            header::USER_AGENT,
            concat!("windrose/", env!("CARGO_PKG_VERSION")),
        )
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(|e| Stop::NotRun(format!("path {path:?} or host: {e}")))
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// The host of `host:port`; IPv6 literals lose their brackets.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

/// Sends the request and waits for the response's headers.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Empty<Bytes>>,
) -> Result<StatusCode, Stop> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| Stop::failure(&e))?;
    let response = sender.send_request(request);
    tokio::pin!(response);
    // The connection moves the bytes; when it ends first, the response future knows why.
    let response = tokio::select! {
        response = &mut response => response,
        _ = connection => response.await,
    };
    response.map(|r| r.status()).map_err(|e| Stop::failure(&e))
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "could not read a trusted certificate");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

/// TLS for other requests of the appliance's: HTTP/1.1, certificates verified as those of checks are. Read once.
pub(crate) fn client_tls() -> Arc<ClientConfig> {
    static CLIENT: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let provider = Arc::new(ring::default_provider());
        finish_tls(
            tls_builder(&provider)
                .with_root_certificates(native_roots())
                .with_no_client_auth(),
        )
    };
    CLIENT.get_or_init(make).clone()
}

fn tls_builder(provider: &Arc<CryptoProvider>) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("ring's provider has suites for TLS 1.2 and 1.3")
}

fn finish_tls(mut config: ClientConfig) -> Arc<ClientConfig> {
    // Every check shakes hands in full: a resumed session would not show an expired certificate.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// `verify = false`: any certificate will do, but its key must sign the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
