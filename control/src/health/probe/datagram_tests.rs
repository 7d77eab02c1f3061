//! Checks by datagrams against real sockets on loopback and in a namespace. ICMP needs root.

use super::super::Probe;
use super::*;
use crate::config::model::Grade;
use crate::health::TargetKey;
use crate::health::probe::Outcome;
use crate::netns::tests::Namespace;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio_rustls::rustls::RootCertStore;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const AMPLE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

async fn run(address: IpAddr, port: u16, kind: CheckKind, timeout: Duration, netns: Option<&str>) -> Outcome {
    let check = Check {
        kind,
        port,
        interval: timeout,
        timeout,
        rise: 1,
        fall: 1,
        interface: None,
        netns: netns.map(str::to_owned),
        grade: Grade::default(),
    };
    Probe::with_roots(RootCertStore::empty())
        .run(&TargetKey { address, check })
        .await
}

/// Answers each datagram by `answer`.
async fn serve(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> u16 {
    let socket = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer(&buffer[..len]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    port
}

async fn closed_port() -> u16 {
    UdpSocket::bind((LOOPBACK, 0))
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[tokio::test]
async fn udp_is_asked_and_its_answer_read() {
    let kind = |expect: Option<&str>| CheckKind::Udp {
        payload: b"ping".to_vec(),
        expect: expect.map(|text| text.as_bytes().to_vec()),
    };
    let port = serve(|asked| Some([asked, b"-pong"].concat())).await;
    let ask = |expect| run(LOOPBACK, port, kind(expect), AMPLE, None);
    assert_eq!(ask(None).await, Outcome::Success("9 bytes".into()));
    assert_eq!(ask(Some("ping-po")).await, Outcome::Success("9 bytes".into()));
    let wrong = ask(Some("pang")).await;
    assert!(matches!(&wrong, Outcome::Failure(Fault::Wrong, _)), "{wrong:?}");
    let closed = run(LOOPBACK, closed_port().await, kind(None), AMPLE, None).await;
    assert!(
        matches!(&closed, Outcome::Failure(Fault::Refused, text) if text.contains("refused")),
        "{closed:?}"
    );
    let silent = serve(|_| None).await;
    let silent = run(LOOPBACK, silent, kind(None), SHORT, None).await;
    assert!(
        matches!(&silent, Outcome::Failure(Fault::Timeout, _)),
        "{silent:?}"
    );
}

/// The query as an answer with `rcode` and, if given, one A record of 192.0.2.7, by hand (RFC 1035 section 4.1).
fn dns_answer(asked: &[u8], rcode: u8, with_address: bool) -> Vec<u8> {
    let mut answer = asked.to_vec();
    answer[2] |= 0x80;
    answer[3] = rcode;
    if with_address {
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
    }
    answer
}

#[tokio::test]
async fn dns_is_asked_and_its_answer_read() {
    let kind = |rcode, address: Option<&str>| CheckKind::Dns {
        query: "vod.example.com".parse().unwrap(),
        rtype: 1,
        rcode,
        address: address.map(|a| a.parse().unwrap()),
    };
    let port = serve(|asked| {
        // The question: vod.example.com A IN.
        assert_eq!(&asked[12..], b"\x03vod\x07example\x03com\x00\x00\x01\x00\x01");
        Some(dns_answer(asked, 0, true))
    })
    .await;
    let ask = |rcode, address| run(LOOPBACK, port, kind(rcode, address), AMPLE, None);
    assert_eq!(ask(0, None).await, Outcome::Success("NOERROR".into()));
    let found = ask(0, Some("192.0.2.7")).await;
    assert_eq!(found, Outcome::Success("NOERROR with 192.0.2.7".into()));
    for (rcode, address, text) in [
        (0, Some("192.0.2.8"), "NOERROR without 192.0.2.8"),
        (3, None, "NOERROR, expected NXDOMAIN"),
    ] {
        let wrong = ask(rcode, address).await;
        assert!(
            matches!(&wrong, Outcome::Failure(Fault::Wrong, said) if said.contains(text)),
            "{wrong:?}"
        );
    }
    let ill = serve(|asked| Some(dns_answer(asked, 2, false))).await;
    let ill = run(LOOPBACK, ill, kind(0, None), AMPLE, None).await;
    assert!(
        matches!(&ill, Outcome::Failure(Fault::Error, text) if text.contains("SERVFAIL")),
        "{ill:?}"
    );
    // An answer to another query is not taken for one to ours.
    let stray = serve(|asked| {
        let mut answer = dns_answer(asked, 0, true);
        answer[0] ^= 1;
        Some(answer)
    })
    .await;
    let stray = run(LOOPBACK, stray, kind(0, None), SHORT, None).await;
    assert!(matches!(&stray, Outcome::Failure(Fault::Timeout, _)), "{stray:?}");
}

#[tokio::test]
async fn icmp_echo_over_both_families() {
    for address in [LOOPBACK, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let good = run(address, 0, CheckKind::Icmp, AMPLE, None).await;
        assert_eq!(good, Outcome::Success("echo reply".into()), "{address}");
    }
    // A host that hears and does not answer: a namespace that ignores echoes.
    let namespace = Namespace::new("icmp");
    let ip = |argv: &[&str]| {
        let done = std::process::Command::new("ip").args(argv).status().unwrap();
        assert!(done.success(), "{argv:?}");
    };
    ip(&["-n", &namespace.0, "link", "set", "lo", "up"]);
    let good = run(LOOPBACK, 0, CheckKind::Icmp, AMPLE, Some(&namespace.0)).await;
    assert_eq!(good, Outcome::Success("echo reply".into()));
    ip(&[
        "netns",
        "exec",
        &namespace.0,
        "sysctl",
        "-qw",
        "net.ipv4.icmp_echo_ignore_all=1",
    ]);
    let silent = run(LOOPBACK, 0, CheckKind::Icmp, SHORT, Some(&namespace.0)).await;
    assert!(
        matches!(&silent, Outcome::Failure(Fault::Timeout, _)),
        "{silent:?}"
    );
}
