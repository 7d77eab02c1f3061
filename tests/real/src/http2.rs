//! A closed-loop user of HTTP/2 over TLS, a stream a request.

use crate::quic::Certificate;
use crate::user::{Plan, burst, now};
use crate::wires::SERVER;
use anyhow::{Context, Result};
use h2::client::{Builder, SendRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use windrose_tests::lab::Host;
use windrose_tests::stream::inside;
use windrose_traffic::sim::Burst;

/// Asks nginx for `time` from `host`; the truth of each burst. `window`: bytes of a stream and of the connection that may be
/// under way.
///
/// # Errors
/// When the connection breaks.
pub fn ask(
    host: &Host,
    certificate: &Certificate,
    plan: Plan,
    window: u32,
    time: Duration,
    delay: u64,
    seed: u64,
) -> Result<Vec<Burst>> {
    let tls = TlsConnector::from(Arc::new(certificate.client(b"h2")?));
    inside(host, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect((SERVER, 8443)).await?;
            stream.set_nodelay(true)?;
            let stream = tls
                .connect(ServerName::try_from("server.example")?, stream)
                .await?;
            let mut builder = Builder::new();
            builder
                .initial_window_size(window)
                .initial_connection_window_size(window);
            let (sender, connection) = builder.handshake::<_, &[u8]>(stream).await?;
            tokio::spawn(connection);
            let mut sender = sender.ready().await?;
            let mut random = fastrand::Rng::with_seed(seed);
            let (over, mut bursts) = (Instant::now() + time, Vec::new());
            while Instant::now() < over {
                let sent = now();
                let mut answers = Vec::new();
                for _ in 0..plan.burst {
                    answers.push(request(&mut sender, &plan, &mut random)?);
                }
                for answer in answers {
                    answer.await??;
                }
                bursts.push(burst(sent, delay));
            }
            Ok(bursts)
        })
    })
}

type Answer = tokio::task::JoinHandle<Result<()>>;

fn request(
    sender: &mut SendRequest<&'static [u8]>,
    plan: &Plan,
    random: &mut fastrand::Rng,
) -> Result<Answer> {
    let path = format!(
        "https://server.example/{}/{}",
        plan.service(random),
        plan.answer(random)
    );
    let request = http::Request::get(path).body(()).context("request")?;
    let (answer, _) = sender.send_request(request, true)?;
    Ok(tokio::spawn(async move {
        let mut body = answer.await?.into_body();
        while let Some(piece) = body.data().await {
            body.flow_control().release_capacity(piece?.len())?;
        }
        Ok(())
    }))
}
