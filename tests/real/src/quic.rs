//! QUIC by quinn: a server whose answers take as long as the request says, and a closed-loop client, a stream a request.

use crate::timer::Timer;
use crate::user::{Plan, burst, now};
use crate::wires::{CLIENT, SERVER};
use anyhow::{Context, Result};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::{self, RootCertStore, pki_types};
use windrose_tests::lab::Host;
use windrose_tests::stream::inside;
use windrose_traffic::sim::Burst;

/// Port of the server.
pub const PORT: u16 = 443;
/// Largest request or answer.
const MESSAGE_MAX: usize = 1 << 22;

/// A certificate for `server.example` that signs itself.
#[derive(Debug)]
pub struct Certificate {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
    der: pki_types::CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Certificate {
    /// Makes one.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn generate() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["server.example".into()])?;
        Ok(Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
            der: made.cert.der().clone(),
            key_der: made.signing_key.serialize_der(),
        })
    }

    /// What a client needs that trusts it alone.
    ///
    /// # Errors
    /// Never in practice: what rustls says.
    pub fn client(&self, protocol: &[u8]) -> Result<rustls::ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }

    fn server(&self, protocol: &[u8]) -> Result<rustls::ServerConfig> {
        let key = pki_types::PrivatePkcs8KeyDer::from(self.key_der.clone());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key.into())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

/// veth would show what segmentation offload sends as one packet.
fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.enable_segmentation_offload(false);
    transport.max_concurrent_bidi_streams(1000u32.into());
    Arc::new(transport)
}

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct Server(Arc<AtomicBool>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Server {
    /// Listens in `host`.
    ///
    /// # Errors
    /// When it cannot.
    pub fn start(host: &Host, certificate: &Certificate) -> Result<Self> {
        let crypto = QuicServerConfig::try_from(certificate.server(b"windrose")?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport());
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        let socket = inside(host, || Ok(std::net::UdpSocket::bind((SERVER, PORT))?))?;
        std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let kind = quinn::EndpointConfig::default();
                let endpoint = Endpoint::new(kind, Some(config), socket, Arc::new(quinn::TokioRuntime))?;
                let timer = Timer::default();
                while !over.load(Ordering::Relaxed) {
                    let next = tokio::time::timeout(Duration::from_millis(100), endpoint.accept()).await;
                    if let Ok(Some(incoming)) = next {
                        tokio::spawn(serve(incoming, timer.clone()));
                    }
                }
                Ok(())
            })
        });
        Ok(Self(stop))
    }
}

async fn serve(incoming: quinn::Incoming, timer: Timer) -> Result<()> {
    let connection = incoming.await?;
    loop {
        let (send, receive) = connection.accept_bi().await?;
        tokio::spawn(answer(send, receive, timer.clone()));
    }
}

/// A request: microseconds, bytes of the answer, and padding.
async fn answer(mut send: SendStream, mut receive: RecvStream, timer: Timer) -> Result<()> {
    let request = receive.read_to_end(MESSAGE_MAX).await?;
    let word = |at: usize| {
        request
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .map(u32::from_be_bytes)
    };
    let (micros, bytes) = (word(0).context("short")?, word(4).context("short")?);
    let (done, waiting) = tokio::sync::oneshot::channel();
    timer.after(Duration::from_micros(micros.into()), move || {
        let _ = done.send(());
    });
    waiting.await?;
    send.write_all(&vec![b'x'; bytes as usize]).await?;
    send.finish()?;
    Ok(())
}

/// A closed-loop user in `host`; the truth of each burst.
///
/// # Errors
/// When the connection breaks.
pub fn ask(
    host: &Host,
    certificate: &Certificate,
    plan: Plan,
    time: Duration,
    delay: u64,
    seed: u64,
) -> Result<Vec<Burst>> {
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(
        certificate.client(b"windrose")?,
    )?));
    config.transport_config(transport());
    inside(host, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let local: SocketAddr = (CLIENT, 0).into();
            let endpoint = Endpoint::client(local)?;
            let server = (SERVER, PORT).into();
            let connection = endpoint.connect_with(config, server, "server.example")?.await?;
            let bursts = bursts(&connection, plan, time, delay, seed).await?;
            connection.close(0u32.into(), b"");
            endpoint.wait_idle().await;
            Ok(bursts)
        })
    })
}

async fn bursts(
    connection: &Connection,
    plan: Plan,
    time: Duration,
    delay: u64,
    seed: u64,
) -> Result<Vec<Burst>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (over, mut bursts) = (Instant::now() + time, Vec::new());
    // The handshake and its acknowledgments are over.
    tokio::time::sleep(Duration::from_millis(100)).await;
    while Instant::now() < over {
        let sent = now();
        let mut answers = Vec::new();
        for _ in 0..plan.burst {
            let (mut send, mut receive) = connection.open_bi().await?;
            let (micros, bytes) = (plan.service(&mut random) as u32, plan.answer(&mut random) as u32);
            let mut request = [micros.to_be_bytes(), bytes.to_be_bytes()].concat();
            request.resize(200 + plan.body, b'y');
            send.write_all(&request).await?;
            send.finish()?;
            // Else the whole burst goes in one packet.
            tokio::task::yield_now().await;
            answers.push(tokio::spawn(async move {
                receive.read_to_end(MESSAGE_MAX).await.map(|body| body.len())
            }));
        }
        for answer in answers {
            answer.await??;
        }
        bursts.push(burst(sent, delay));
        if plan.think > 0 {
            let (done, waiting) = tokio::sync::oneshot::channel::<()>();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(plan.think));
                let _ = done.send(());
            });
            waiting.await?;
        }
    }
    Ok(bursts)
}
