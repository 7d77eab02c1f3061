//! Checks against real servers on loopback, good and bad.

use super::*;
use crate::netns::tests::Namespace;
use rcgen::{CertificateParams, Issuer, KeyPair};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// For checks that must end before it.
const AMPLE: Duration = Duration::from_secs(30);
/// For checks that must end by it.
const SHORT: Duration = Duration::from_millis(500);

fn http() -> CheckKind {
    CheckKind::Http {
        tls: false,
        verify: true,
        path: "/healthz".into(),
        host: None,
        expect: (200, 399),
    }
}

fn https(verify: bool, host: &str) -> CheckKind {
    CheckKind::Http {
        tls: true,
        verify,
        path: "/".into(),
        host: Some(host.into()),
        expect: (200, 399),
    }
}

fn target(address: IpAddr, port: u16, kind: CheckKind, timeout: Duration) -> TargetKey {
    let interval = timeout;
    let check = Check {
        kind,
        port,
        interval,
        timeout,
        rise: 2,
        fall: 2,
        interface: None,
        netns: None,
        grade: crate::config::model::Grade::default(),
    };
    TargetKey { address, check }
}

async fn run(port: u16, kind: CheckKind, timeout: Duration) -> Outcome {
    Probe::with_roots(RootCertStore::empty())
        .run(&target(LOOPBACK, port, kind, timeout))
        .await
}

#[track_caller]
fn assert_success(outcome: Outcome, text: &str) {
    assert_eq!(outcome, Outcome::Success(text.into()));
}

#[track_caller]
fn assert_failure(outcome: Outcome, texts: &[&str]) {
    let Outcome::Failure(_, text) = &outcome else {
        panic!("expected a failure: {outcome:?}")
    };
    assert!(
        texts.iter().all(|part| text.contains(part)),
        "{text:?} lacks one of {texts:?}"
    );
}

/// Serves each connection by `handler` after its request headers were read; tells the headers.
async fn serve<F>(handler: impl Fn(TcpStream) -> F + Send + 'static) -> (u16, mpsc::UnboundedReceiver<String>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = requests.send(read_head(&mut stream).await);
            handler(stream).await;
        }
    });
    (port, receiver)
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

async fn serve_text(text: &'static str) -> (u16, mpsc::UnboundedReceiver<String>) {
    serve(move |mut stream| async move {
        let _ = stream.write_all(text.as_bytes()).await;
    })
    .await
}

#[tokio::test]
async fn status_decides() {
    let (ok, _) = serve_text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_success(run(ok, http(), AMPLE).await, "HTTP 200");
    let (moved, _) = serve_text("HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\n").await;
    assert_success(run(moved, http(), AMPLE).await, "HTTP 302");
    let (down, _) = serve_text("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await;
    assert_failure(
        run(down, http(), AMPLE).await,
        &["status 503", "expected 200 to 399"],
    );
    let wants_503 = CheckKind::Http {
        tls: false,
        verify: true,
        path: "/".into(),
        host: None,
        expect: (503, 503),
    };
    assert_success(run(down, wants_503.clone(), AMPLE).await, "HTTP 503");
    assert_failure(
        run(ok, wants_503, AMPLE).await,
        &["status 200", "expected 503 to 503"],
    );
}

#[tokio::test]
async fn an_interim_response_is_not_the_answer() {
    let (port, _) = serve_text("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 500 No\r\n\r\n").await;
    assert_failure(run(port, http(), AMPLE).await, &["status 500"]);
}

#[tokio::test]
async fn the_request_is_plain_http_1_1() {
    let (port, mut requests) = serve_text("HTTP/1.1 200 OK\r\n\r\n").await;
    let path = "/healthz?deep=1".to_owned();
    let kind = CheckKind::Http {
        tls: false,
        verify: true,
        path,
        host: Some("vod.example.com".into()),
        expect: (200, 200),
    };
    assert_success(run(port, kind, AMPLE).await, "HTTP 200");
    let head = requests.recv().await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("get /healthz?deep=1 http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: vod.example.com\r\n"), "{head}");
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");

    assert_success(run(port, http(), AMPLE).await, "HTTP 200");
    let head = requests.recv().await.unwrap().to_ascii_lowercase();
    assert!(
        head.contains(&format!("\r\nhost: 127.0.0.1:{port}\r\n")),
        "{head}"
    );
}

#[tokio::test]
async fn ipv6_members_are_checked_too() {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        head
    });
    let probe = Probe::with_roots(RootCertStore::empty());
    let outcome = probe
        .run(&target(Ipv6Addr::LOCALHOST.into(), port, http(), AMPLE))
        .await;
    assert_success(outcome, "HTTP 204");
    let head = server.await.unwrap().to_ascii_lowercase();
    assert!(head.contains(&format!("\r\nhost: [::1]:{port}\r\n")), "{head}");
}

/// What a stopped process looks like: the kernel accepts, nobody answers.
#[tokio::test]
async fn a_hung_server_fails_http_by_timeout_and_passes_tcp() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_failure(
        run(port, http(), SHORT).await,
        &["waiting for the HTTP response", "no answer within 500ms"],
    );
    assert_failure(
        run(port, https(false, "a.example"), SHORT).await,
        &["TLS handshake", "no answer within 500ms"],
    );
    assert_success(run(port, CheckKind::Tcp, AMPLE).await, "connected");
}

#[tokio::test]
async fn a_closed_port_fails_at_once() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for kind in [CheckKind::Tcp, http()] {
        assert_failure(run(port, kind, AMPLE).await, &["connecting", "refused"]);
    }
}

#[tokio::test]
async fn resets_and_silent_closes_fail() {
    let (reset, _) = serve(|stream| async move { stream.set_zero_linger().unwrap() }).await;
    assert_failure(
        run(reset, http(), AMPLE).await,
        &["waiting for the HTTP response"],
    );
    let (close, _) = serve(|_| async {}).await;
    assert_failure(
        run(close, http(), AMPLE).await,
        &["waiting for the HTTP response"],
    );
}

#[tokio::test]
async fn dripping_headers_do_not_outlive_the_timeout() {
    let (port, _) = serve(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_failure(run(port, http(), SHORT).await, &["no answer within 500ms"]);
}

#[tokio::test]
async fn garbage_fails() {
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\0\0\0\0\0\0\0\0\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "<html>200 OK</html>\r\n\r\n",
    ] {
        let (port, _) = serve_text(text).await;
        assert_failure(run(port, http(), AMPLE).await, &["waiting for the HTTP response"]);
    }
}

#[tokio::test]
async fn huge_headers_fail_within_a_bound() {
    let (sent, mut total) = mpsc::unbounded_channel();
    let (port, _) = serve(move |mut stream| {
        let sent = sent.clone();
        async move {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ").await;
            let mut bytes = 0_usize;
            while let Ok(n) = stream.write(&[b'x'; 4096]).await {
                bytes += n;
                assert!(bytes < 1 << 28, "the check reads without end");
            }
            let _ = sent.send(bytes);
        }
    })
    .await;
    assert_failure(run(port, http(), AMPLE).await, &["too large"]);
    assert!(total.recv().await.is_some(), "the server was not let go");
}

#[tokio::test]
async fn an_endless_body_is_not_waited_for() {
    let (port, _) = serve(|mut stream| async move {
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        while stream.write_all(b"4\r\nbody\r\n").await.is_ok() {}
    })
    .await;
    assert_success(run(port, http(), AMPLE).await, "HTTP 200");
}

/// A TLS server for `name`, and the certificate authority that signed it.
async fn serve_tls(name: &str) -> (u16, RootCertStore) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca_params = CertificateParams::new(Vec::new()).unwrap();
    ca_params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = ca_params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::from_params(&ca_params, &ca_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();

    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                read_head(&mut stream).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (port, roots)
}

#[tokio::test]
async fn https_verifies_the_certificate_for_the_host() {
    let (port, roots) = serve_tls("vod.example.com").await;
    let trusted = Probe::with_roots(roots);
    let check = |kind| target(LOOPBACK, port, kind, AMPLE);
    assert_success(
        trusted.run(&check(https(true, "vod.example.com"))).await,
        "HTTP 200",
    );
    assert_success(
        trusted.run(&check(https(true, "vod.example.com:8443"))).await,
        "HTTP 200",
    );
    assert_failure(
        trusted.run(&check(https(true, "other.example.com"))).await,
        &["TLS handshake", "certificate"],
    );

    let (_, other_roots) = serve_tls("vod.example.com").await;
    let stranger = Probe::with_roots(other_roots);
    assert_failure(
        stranger.run(&check(https(true, "vod.example.com"))).await,
        &["TLS handshake", "certificate"],
    );
    assert_success(
        stranger.run(&check(https(false, "anything.example"))).await,
        "HTTP 200",
    );

    let without = Probe::with_roots(RootCertStore::empty());
    let outcome = without.run(&check(https(true, "vod.example.com"))).await;
    assert!(
        matches!(&outcome, Outcome::NotRun(text) if text.contains("ca-certificates")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_server_without_tls_fails_https() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 1];
        stream.read_exact(&mut hello).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let outcome = run(port, https(false, "a.example"), AMPLE).await;
    assert_failure(outcome.clone(), &["TLS handshake"]);
    assert!(!outcome.reason().contains("no answer"), "{outcome:?}");
}

#[tokio::test]
async fn checks_leave_by_the_named_interface() {
    let (port, _) = serve_text("HTTP/1.1 200 OK\r\n\r\n").await;
    let mut on = target(LOOPBACK, port, http(), AMPLE);
    let probe = Probe::with_roots(RootCertStore::empty());
    on.check.interface = Some("lo".into());
    assert_success(probe.run(&on).await, "HTTP 200");
    on.check.interface = Some("nosuchif0".into());
    let outcome = probe.run(&on).await;
    assert!(
        matches!(&outcome, Outcome::NotRun(text) if text.contains("interface nosuchif0")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn checks_run_in_the_named_namespace() {
    let namespace = Namespace::new("probe");
    let listener = netns::within(&namespace.0, || {
        std::net::TcpListener::bind((LOOPBACK, 0)).unwrap()
    })
    .unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = Probe::with_roots(RootCertStore::empty());
    let mut inside = target(LOOPBACK, port, CheckKind::Tcp, AMPLE);
    inside.check.netns = Some(namespace.0.clone());
    assert_success(probe.run(&inside).await, "connected");
    drop(listener);
    assert_failure(probe.run(&inside).await, &["refused"]);
    inside.check.netns = Some("no-such-namespace".into());
    let outcome = probe.run(&inside).await;
    assert!(
        matches!(&outcome, Outcome::NotRun(text) if text.contains("/run/netns/no-such-namespace")),
        "{outcome:?}"
    );
}
