//! The cases: who asks whom over which line, what has to be reached, and one run of them.

use crate::http2;
use crate::link::Impairment;
use crate::origin::Origin;
use crate::programs::{self, WireGuard};
use crate::quic::{self, Certificate};
use crate::user::{self, Language, PLAIN, Plan};
use crate::wires::{SERVER, Wires};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};
use windrose_tests::lab::Host;
use windrose_tests::process::eventually;
use windrose_tests::stream::inside;
use windrose_traffic::cases::Gate;
use windrose_traffic::sim::Burst;

/// Who serves, over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Our own, over TCP.
    Tcp,
    /// nginx, HTTP/1.1.
    Nginx,
    /// nginx, HTTP/1.1 over TLS.
    NginxTls,
    /// nginx, HTTP/2 over TLS, with so large a window.
    Http2(u32),
    /// memcached.
    Memcached,
    /// quinn.
    Quic,
    /// Our own, over TCP in WireGuard, by so many connections.
    WireGuard(usize),
}

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// Who serves.
    pub server: Server,
    /// What the user does.
    pub plan: Plan,
    /// The client's line.
    pub line: Impairment,
    /// What has to be reached; none: reported alone.
    pub gate: Option<Gate>,
}

/// Errors are summed over bursts of 2 ms and more alone, as in the measurements that the gates stem from; memcached's are shorter.
pub const FLOOR: u64 = 2_000_000;

const fn gate(median: f64, within: f64, bursts: f64) -> Option<Gate> {
    Some(Gate {
        median,
        within,
        bursts,
    })
}

/// All cases, in the order of the table.
pub fn cases() -> Vec<Case> {
    use Server::{Http2, Memcached, Nginx, NginxTls, Quic, Tcp, WireGuard};
    const WIDE: u32 = 1 << 24;
    let burst = Plan { burst: 4, ..PLAIN };
    let long = Plan {
        answer: (1_000, 43_000),
        ..burst
    };
    let hits = Plan { hits: 0.7, ..PLAIN };
    let loss = |loss| Impairment {
        loss,
        ..Impairment::NONE
    };
    let late = Impairment {
        late: (0.25, 100),
        ..Impairment::NONE
    };
    let far = Impairment {
        delay: 20_000,
        ..Impairment::NONE
    };
    let (clean, hidden, tunnel) = (
        gate(0.5, 98.0, 98.0),
        gate(0.5, 98.0, 98.0),
        gate(1.5, 93.0, 94.0),
    );
    let none = Impairment::NONE;
    let case = |name, server, plan, line, gate| Case {
        name,
        server,
        plan,
        line,
        gate,
    };
    vec![
        case("TCP, single in flight", Tcp, PLAIN, none, clean),
        case("TCP, burst of 4", Tcp, burst, none, clean),
        case("TCP, burst of 16", Tcp, Plan { burst: 16, ..PLAIN }, none, clean),
        case("TCP, burst of 4, answers of 1-30 packets", Tcp, long, none, clean),
        case("TCP, burst of 4, 20 ms away", Tcp, burst, far, clean),
        case(
            "TCP, burst of 4, 1 % loss",
            Tcp,
            burst,
            loss(0.01),
            gate(2.0, 93.0, 93.0),
        ),
        case(
            "TCP, burst of 4, 25 % late by 100 us",
            Tcp,
            burst,
            late,
            gate(2.0, 93.0, 93.0),
        ),
        case(
            "TCP, burst of 4, 5 % loss",
            Tcp,
            burst,
            loss(0.05),
            gate(2.0, 88.0, 0.0),
        ),
        case(
            "TCP, upload of 100 KB",
            Tcp,
            Plan {
                body: 100_000,
                ..PLAIN
            },
            none,
            gate(1.0, 95.0, 95.0),
        ),
        case(
            "TCP, 70 % cache hits, single",
            Tcp,
            hits,
            none,
            gate(1.0, 95.0, 95.0),
        ),
        case(
            "TCP, 70 % cache hits, burst of 4",
            Tcp,
            Plan { burst: 4, ..hits },
            none,
            gate(1.0, 95.0, 95.0),
        ),
        case(
            "TCP, think 300 us, 1-30 packets",
            Tcp,
            Plan {
                think: 300,
                burst: 1,
                ..long
            },
            none,
            None,
        ),
        case(
            "TCP, window of 4 that slides",
            Tcp,
            Plan {
                window: true,
                ..burst
            },
            none,
            None,
        ),
        case("nginx, HTTP/1.1 keep-alive", Nginx, PLAIN, none, clean),
        case("nginx, HTTPS", NginxTls, PLAIN, none, clean),
        case("nginx, HTTP/2, burst of 4", Http2(WIDE), long, none, clean),
        case(
            "nginx, HTTP/2, window of 64 KB",
            Http2(65_535),
            Plan {
                answer: (200_000, 400_000),
                ..PLAIN
            },
            none,
            None,
        ),
        // Far enough that what the forwarder adds, now more and now less, is small beside it.
        case(
            "memcached, 5 ms away",
            Memcached,
            Plan {
                answer: (40, 10_000),
                ..PLAIN
            },
            Impairment { delay: 5_000, ..none },
            clean,
        ),
        case(
            "memcached, near",
            Memcached,
            Plan {
                answer: (40, 10_000),
                ..PLAIN
            },
            none,
            None,
        ),
        case("QUIC, single in flight", Quic, PLAIN, none, hidden),
        case("QUIC, burst of 4, 1-30 packets", Quic, long, none, hidden),
        case(
            "QUIC, upload of 20 KB",
            Quic,
            Plan {
                body: 20_000,
                ..PLAIN
            },
            none,
            hidden,
        ),
        case("QUIC, 70 % cache hits, single", Quic, hits, none, hidden),
        case(
            "QUIC, 70 % cache hits, burst of 4",
            Quic,
            Plan { burst: 4, ..hits },
            none,
            gate(0.5, 88.0, 95.0),
        ),
        case(
            "QUIC, single, 1 % loss",
            Quic,
            PLAIN,
            loss(0.01),
            gate(2.0, 91.0, 91.0),
        ),
        case(
            "QUIC, burst of 4, 1 % loss",
            Quic,
            long,
            loss(0.01),
            gate(2.0, 70.0, 80.0),
        ),
        case(
            "QUIC, burst of 4, 25 % late by 100 us",
            Quic,
            burst,
            late,
            gate(3.0, 75.0, 83.0),
        ),
        case("WireGuard, single in flight", WireGuard(1), PLAIN, none, tunnel),
        case(
            "WireGuard, burst of 4, 1-30 packets",
            WireGuard(1),
            long,
            none,
            tunnel,
        ),
        case("WireGuard, two connections", WireGuard(2), PLAIN, none, None),
    ]
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The truth.
    pub bursts: Vec<Burst>,
    /// What passed the vantage point.
    pub capture: PathBuf,
    /// Owns the folder of the capture.
    pub wires: Wires,
}

/// Runs a case for `time`. `watch` is started in the vantage point's namespace before any traffic, and dropped behind it.
///
/// # Errors
/// When a program does not start, or a connection breaks.
pub fn run<W>(
    case: &Case,
    seed: u64,
    time: Duration,
    slower: Duration,
    watch: impl FnOnce(&Wires) -> Result<W>,
) -> Result<(Run, W)> {
    let wires = Wires::build(case.line, seed)?;
    let certificate = Certificate::generate()?;
    let in_tunnel = Ipv4Addr::new(10, 99, 0, 2);
    let near = SocketAddr::from(([127, 0, 0, 1], 9000));
    let at = |address: Ipv4Addr, port| SocketAddr::new(IpAddr::from(address), port);
    let capture = wires.lab.folder().join("vantage.pcap");
    let mut recorder = programs::record(&wires, &capture)?;
    let watched = watch(&wires)?;
    let asked = |to, language| tcp(&wires.client, to, language, None, case, time, seed);
    let bursts = match case.server {
        Server::Tcp => {
            let _origin = Origin::start(&wires.server, at(SERVER, 9000), slower)?;
            asked(at(SERVER, 9000), Language::Http)?
        }
        Server::Memcached => {
            let _memcached = programs::memcached(&wires)?;
            asked(at(SERVER, 11211), Language::Memcached)?
        }
        Server::Nginx | Server::NginxTls | Server::Http2(_) => {
            let _origin = Origin::start(&wires.server, near, slower)?;
            let _nginx = programs::nginx(&wires, &certificate.certificate, &certificate.key)?;
            match case.server {
                Server::Nginx => asked(at(SERVER, 8080), Language::Http)?,
                Server::Http2(window) => http2::ask(
                    &wires.client,
                    &certificate,
                    case.plan,
                    window,
                    time,
                    case.line.delay,
                    seed,
                )?,
                _ => tcp(
                    &wires.client,
                    at(SERVER, 8443),
                    Language::Http,
                    Some(&certificate),
                    case,
                    time,
                    seed,
                )?,
            }
        }
        Server::Quic => {
            let _server = quic::Server::start(&wires.server, &certificate)?;
            quic::ask(
                &wires.client,
                &certificate,
                case.plan,
                time,
                case.line.delay,
                seed,
            )?
        }
        Server::WireGuard(connections) => {
            let _tunnel = WireGuard::start(&wires)?;
            let _origin = Origin::start(&wires.server, at(in_tunnel, 9000), slower)?;
            let to = at(in_tunnel, 9000);
            let client = &wires.client;
            let each: Result<Vec<Vec<Burst>>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..connections as u64)
                    .map(|n| {
                        scope.spawn(move || tcp(client, to, Language::Http, None, case, time, seed + 100 * n))
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|t| t.join().map_err(|_| anyhow::anyhow!("a user panicked"))?)
                    .collect()
            });
            let mut all = each?.concat();
            all.sort_by_key(|burst| burst.at);
            all
        }
    };
    // What is on its way arrives, and tcpdump, which is handed packets once a second, has them all.
    std::thread::sleep(Duration::from_millis(1300));
    recorder.signal(Signal::SIGINT)?;
    let recorded = recorder.wait(Duration::from_secs(10))?;
    ensure!(
        recorded.stderr.contains("0 packets dropped by kernel"),
        "tcpdump lost packets:\n{}",
        recorded.stderr
    );
    Ok((
        Run {
            bursts,
            capture,
            wires,
        },
        watched,
    ))
}

fn tcp(
    host: &Host,
    to: SocketAddr,
    language: Language,
    tls: Option<&Certificate>,
    case: &Case,
    time: Duration,
    seed: u64,
) -> Result<Vec<Burst>> {
    let (plan, delay) = (case.plan, case.line.delay);
    let tls = tls
        .map(|certificate| certificate.client(b"http/1.1"))
        .transpose()?;
    inside(host, move || {
        let mut made = None;
        eventually("a connection", Duration::from_secs(10), || {
            made = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok();
            Ok(made.is_some())
        })?;
        let mut stream = made.context("no connection")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        match tls {
            None => user::ask(&mut stream, language, &plan, time, delay, seed),
            Some(config) => {
                let mut session =
                    ClientConnection::new(Arc::new(config), ServerName::try_from("server.example")?)?;
                // The handshake is no burst.
                session.complete_io(&mut stream)?;
                user::ask(
                    &mut StreamOwned::new(session, stream),
                    language,
                    &plan,
                    time,
                    delay,
                    seed,
                )
            }
        }
    })
}
