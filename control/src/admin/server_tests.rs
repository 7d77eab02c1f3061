//! The API over real sockets, with an appliance that says always the same.

// LONG: one appliance that says something in every field, and what becomes of it on every way out.

use super::*;
use crate::admin::api::*;
use crate::admin::client::{self, ClientError};
use crate::admin::latency::{LatencyCell, LatencyEvidence, LatencyReport, LatencyStatus, LatencyTimes};
use crate::alerts::{Event, Kind as EventKind, WebhookStatus};
use crate::health::State as Health;
use crate::overrides::Action;
use dataplane::counters::{Counter, Counters, Kind};
use hyper::Method;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A status with something in every field.
/// Two sites as one ISP's clients see them, with what others see.
pub(crate) fn sample_latency() -> LatencyReport {
    let times = |count, [p50, p90, p99]: [f64; 3]| LatencyTimes {
        count,
        p50_ms: Some(p50),
        p90_ms: Some(p90),
        p99_ms: Some(p99),
    };
    let evidence = |value_ms, measured_ms, flows| LatencyEvidence {
        value_ms,
        measured_ms,
        flows,
        age_s: 14.0,
        shared_s: None,
    };
    let seoul = LatencyCell {
        clients: "KT".into(),
        site: "seoul".into(),
        responses: times(1000, [38.1, 58.0, 207.0]),
        flows: 412,
        trend: Some(0.25),
        answers: times(900, [36.0, 50.0, 200.0]),
        handshakes: times(400, [9.5, 12.0, 30.0]),
        retransmitted: 7,
        low: 3,
        confidence: Some("fair".into()),
        doubts: vec!["timing".into()],
        age_s: 14.0,
        ..LatencyCell::default()
    };
    LatencyReport {
        window_s: 30.0,
        status: LatencyStatus {
            samples: 5000,
            low: 9,
            lost: 4,
            unknown: 2,
            cells: 12,
            cells_max: 2000,
            evicted: 1,
            changes: 6,
            leader_changes: 3,
            file: Some((4_990, 8)),
        },
        sites: vec!["seoul".into(), "busan".into()],
        cells: vec![
            LatencyCell {
                clients: "KT".into(),
                site: "busan".into(),
                responses: times(900, [41.0, 61.0, 81.0]),
                flows: 50,
                confidence: Some("high".into()),
                age_s: 0.5,
                evidence: Some(evidence(41.0, 41.0, 50)),
                ..LatencyCell::default()
            },
            LatencyCell {
                evidence: Some(LatencyEvidence {
                    shared_s: Some(90.0),
                    ..evidence(41.0, 38.1, 412)
                }),
                ..seoul.clone()
            },
            LatencyCell {
                member: Some("203.0.113.1".parse().unwrap()),
                ..seoul.clone()
            },
            LatencyCell {
                clients: "others".into(),
                site: "seoul".into(),
                responses: times(5, [12.5, 13.0, 13.0]),
                ..LatencyCell::default()
            },
        ],
    }
}

pub(crate) fn sample_status() -> Status {
    let member =
        |address: &str, state, since_s, last_check_age_s, last_check_ms, weight, reason: &str| MemberStatus {
            address: address.parse().unwrap(),
            site: "seoul".into(),
            state,
            since_s,
            last_check_age_s,
            last_check_ms,
            stale: state == Health::Down,
            reason: reason.into(),
            weight,
            given: state == Health::Up,
            share: if weight == 10 { 8 } else { 16 },
            remark: (weight == 10).then(|| "slow start".into()),
            overridden: None,
            remembered: false,
        };
    let over = Override {
        glob: "seoul/203.*".into(),
        action: Action::Drain,
        comment: Some("works".into()),
        set_at: 1_800_000_060,
        until: Some(1_800_000_100),
    };
    Status {
        appliance: "lab-1".into(),
        version: "0.1.0".into(),
        uptime_s: 3_660,
        generation: 7,
        config_hash: "0123456789abcdef".into(),
        config_loaded_at: 1_800_000_000,
        workers: vec![WorkerStatus {
            index: 0,
            core: 1,
            received: 100,
            replied: 90,
            transmitted: 95,
            dropped: 10,
            dropped_by_reason: BTreeMap::from([("arp".into(), 7), ("runt".into(), 3)]),
            dns_byte_ratio: Some(1.75),
            busy_share: 0.125,
            loop_gap_max_us: 250.0,
            stalled: true,
            generation: 6,
            published: 7,
            adopted: 5,
            superseded: 2,
            retired: 4,
        }],
        tcp: Some(TcpStatus {
            open: 2,
            connections: BTreeMap::from([("accepted".into(), 9), ("refused_client".into(), 4)]),
            replies: BTreeMap::from([("answer".into(), 29), ("refused".into(), 1)]),
            ignored: 7,
            query_bytes: 300,
            reply_bytes: 900,
            punted: BTreeMap::from([("forwarded".into(), 50), ("not_tcp".into(), 5)]),
            sent: BTreeMap::from([("injected".into(), 40), ("unknown_neighbour".into(), 6)]),
        }),
        latency: Some(sample_latency().status),
        ports: vec![PortStatus {
            name: "isp".into(),
            device: "net_af_packet0,iface=e1".into(),
            driver: "net_af_packet".into(),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1500,
            link_up: true,
            link_mbps: 10_000,
            rx_packets: 105,
            tx_packets: 95,
            rx_bytes: 9_000,
            tx_bytes: 12_000,
            imissed: 1,
            ierrors: 2,
            oerrors: 3,
            rx_nombuf: 4,
        }],
        sites: vec![SiteStatus {
            name: "seoul".into(),
            isp: Some("KT".into()),
            members: 2,
            members_up: 1,
            report: Some(SiteReportStatus {
                silent: true,
                on_silence: "avoid".into(),
                age_s: Some(75.0),
                from: Some("192.0.2.9".parse().unwrap()),
                sequence: Some(1_800_000_000),
                taken: 17,
                sessions: Some(400_000),
                bandwidth_bps: Some(900_000_000),
                connections_per_second: Some(120),
                members: (1, 1),
                rtts: 9,
            }),
        }],
        reports: Some(ReportsStatus {
            listen: "192.0.2.1:8853".into(),
            fingerprint: "ab12".into(),
            requests: BTreeMap::from([("taken".into(), 17), ("bad_token".into(), 3)]),
            rtt_prefixes: 12,
            feed_down: true,
        }),
        clients: ClientsStatus {
            classes: 4,
            prefixes: (300, 20),
            measured: 1,
            location_grid: Some(0.1),
            isps: vec![IspStatus {
                name: "KT".into(),
                asns: 2,
                prefixes: (120, 9),
            }],
            databases: vec![DatabaseStatus {
                file: "asn-ipv4.csv".into(),
                kind: "asn".into(),
                rows: 411_961,
                values: 84_159,
                modified_at: 1_799_990_000,
            }],
        },
        services: vec![ServiceStatus {
            name: "vod.example.com".into(),
            members: vec![
                member(
                    "198.51.100.1",
                    Health::Up,
                    Some(125.0),
                    Some(0.4),
                    Some(1.5),
                    10,
                    "HTTP 200",
                ),
                member(
                    "2001:db8::2",
                    Health::Down,
                    Some(12.0),
                    Some(12.5),
                    None,
                    1,
                    "connecting: refused",
                ),
                member("203.0.113.3", Health::Up, None, None, None, 1, "no check").overridden(Some(&over)),
            ],
        }],
        checks: ChecksStatus {
            targets: 2,
            stale: 1,
            oldest_age_s: Some(12.5),
            restarts: 3,
        },
        overrides: vec![over],
        events: 44,
    }
}

/// An explanation with something in every field.
pub(crate) fn sample_explanation() -> Explanation {
    let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    let step = |metric: &str, before: &[&str], after: &[&str], text: &str| Step {
        metric: metric.into(),
        before: texts(before),
        after: texts(after),
        text: text.into(),
        sites: vec![],
    };
    let [a, b, c] = ["198.51.100.1", "192.0.2.1", "198.51.100.9"];
    Explanation {
        question: "vod.example.com. A".into(),
        client: "203.0.113.0/24".into(),
        client_source: ClientSource::Ecs,
        class: "3".into(),
        isp: Some("KT".into()),
        zone: Some("example.com.".into()),
        path: vec![],
        service: Some("vod.example.com.".into()),
        policy: Some("health, isp, static weighted".into()),
        steps: vec![
            step("health", &[a, b, c], &[a, b], "failed checks"),
            step("isp", &[a, b], &[a], "stands in KT"),
        ],
        tiers: vec![texts(&[a]), texts(&[b])],
        explore: None,
        draw: Some("weighted, 1 of 1".into()),
        answer: texts(&[a]),
        authority: vec![],
        rcode: "NOERROR".into(),
        outcome: "answer".into(),
        truncated: false,
        extended_error: None,
        ttl: Some(30),
        scope: Some(24),
        generation: 7,
    }
}

#[derive(Default)]
struct Fake {
    healthy: AtomicBool,
    refuses: AtomicBool,
}

impl Appliance for Fake {
    fn status(&self) -> Status {
        let mut status = sample_status();
        status.workers[0].stalled = !self.healthy.load(Ordering::Relaxed);
        status
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String> {
        if request.rtype != "A" && request.rtype != "AAAA" {
            return Err(format!("{}: no such type", request.rtype));
        }
        let question = format!(
            "{} {} from {} ecs {:?}",
            request.name, request.rtype, request.from, request.ecs
        );
        Ok(Explanation {
            question,
            ..sample_explanation()
        })
    }

    fn reload(&self) -> ReloadFuture<'_> {
        Box::pin(async move {
            if self.refuses.load(Ordering::Relaxed) {
                return Err("w.toml:3:1: unknown key".into());
            }
            Ok(ReloadReport {
                generation: 8,
                config_hash: "ff".into(),
                warnings: vec![],
            })
        })
    }

    fn events(&self) -> Events {
        Events {
            events: vec![Event::new(EventKind::Failover, "vod.example.com", "5xx", "moved")],
            webhooks: vec![WebhookStatus::default()],
        }
    }

    fn latency(&self) -> LatencyReport {
        sample_latency()
    }

    fn overrides(&self) -> Vec<Override> {
        sample_status().overrides
    }

    fn set_override(&self, request: &OverrideRequest) -> Result<OverrideReport, String> {
        if request.action != "weight" {
            return Err(format!("{request:?}"));
        }
        let set = Override {
            glob: request.glob.clone(),
            action: Action::Weight(request.weight.unwrap()),
            comment: request.comment.clone(),
            set_at: 1,
            until: request.for_s.map(|s| 1 + s),
        };
        Ok(OverrideReport { set, members: 2 })
    }

    fn clear_overrides(&self, glob: Option<&str>) -> Result<Vec<Override>, String> {
        match glob {
            None => Ok(sample_status().overrides),
            Some(glob) => Err(format!("no {glob}")),
        }
    }

    fn worker_counters(&self) -> Vec<(usize, Counters)> {
        let mut counters = Counters::default();
        // A value of its own for each counter: 1001, 1002, ...
        for (i, &counter) in Counter::ALL.iter().enumerate() {
            counters.add(counter, 1001 + i as u64);
        }
        vec![(0, counters), (1, Counters::default())]
    }
}

struct Lab {
    fake: Arc<Fake>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
    running: Option<Running>,
    _dir: tempfile::TempDir,
}

impl Lab {
    fn new(token: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("w.sock");
        let listen = token.map(|_| "127.0.0.1:0".parse().unwrap());
        let config = model::Admin {
            socket: socket.clone(),
            listen,
            token: token.map(str::to_owned),
        };
        let bound = Bound::bind(&config).unwrap();
        let tcp = bound.tcp_address();
        let fake = Arc::new(Fake::default());
        let running = bound.serve(fake.clone()).unwrap();
        Self {
            fake,
            socket,
            tcp,
            running: Some(running),
            _dir: dir,
        }
    }

    /// A request as the command line sends it.
    async fn request(&self, method: Method, path: &str) -> Result<Vec<u8>, ClientError> {
        let (socket, path) = (self.socket.clone(), path.to_owned());
        tokio::task::spawn_blocking(move || client::request(&socket, method, &path))
            .await
            .unwrap()
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        client::parse(&self.socket, &self.request(Method::GET, path).await?)
    }

    /// Status code and body of a GET over TCP.
    async fn tcp(&self, path: &str, authorization: &str) -> (u16, String) {
        let mut stream = tokio::net::TcpStream::connect(self.tcp.unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (code, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

#[tokio::test]
async fn status_comes_back_as_it_was_told() {
    let lab = Lab::new(None);
    assert_eq!(lab.get::<Status>("/v1/status").await.unwrap(), sample_status());
}

#[tokio::test]
async fn explain_takes_its_question_from_the_query() {
    let lab = Lab::new(None);
    let full = "/v1/explain?name=a.example&type=AAAA&from=2001:db8::1&ecs=203.0.113.0/24";
    let said: Explanation = lab.get(full).await.unwrap();
    assert_eq!(
        said.question,
        "a.example AAAA from 2001:db8::1 ecs Some(203.0.113.0/24)"
    );
    assert_eq!(said.steps, sample_explanation().steps);
    let short: Explanation = lab
        .get("/v1/explain?name=a.example&from=192.0.2.1")
        .await
        .unwrap();
    assert_eq!(short.question, "a.example A from 192.0.2.1 ecs None");
    for (query, says) in [
        ("name=a.example", "from"),
        ("name=a.example&from=1.2.3", "from"),
        ("name=a.example&from=192.0.2.1&ecs=x", "ecs"),
        ("name=a.example&from=192.0.2.1&esc=192.0.2.0/24", "esc"),
        ("name=a.example&from=192.0.2.1&type=QQ", "QQ: no such type"),
    ] {
        let error = lab
            .get::<Explanation>(&format!("/v1/explain?{query}"))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, ClientError::Refused(text) if text.contains(says)),
            "{query}: {error}"
        );
    }
}

#[tokio::test]
async fn reload_reports_or_says_why_not() {
    let lab = Lab::new(None);
    let body = lab.request(Method::POST, "/v1/reload").await.unwrap();
    let report: ReloadReport = client::parse(&lab.socket, &body).unwrap();
    assert_eq!((report.generation, report.config_hash.as_str()), (8, "ff"));
    lab.fake.refuses.store(true, Ordering::Relaxed);
    let error = lab.request(Method::POST, "/v1/reload").await.unwrap_err();
    assert_eq!(error.to_string(), "w.toml:3:1: unknown key");
    // A reload changes things: no GET does it.
    let error = lab.request(Method::GET, "/v1/reload").await.unwrap_err();
    assert!(error.to_string().contains("405"), "{error}");
    let error = lab.request(Method::GET, "/v1/nothing").await.unwrap_err();
    assert_eq!(error.to_string(), "no such endpoint");
}

#[tokio::test]
async fn overrides_are_set_listed_and_cleared() {
    let lab = Lab::new(None);
    let path = "/v1/overrides?glob=seoul-*%2F%5B12%5D*&action=weight&weight=20&for_s=60&comment=a+b%26c";
    let body = lab.request(Method::POST, path).await.unwrap();
    let report: OverrideReport = client::parse(&lab.socket, &body).unwrap();
    assert_eq!(report.members, 2);
    assert_eq!(report.set.to_string(), "seoul-*/[12]* weight 20% (a b&c)");
    assert_eq!(report.set.until, Some(61));
    let listed: Vec<Override> = lab.get("/v1/overrides").await.unwrap();
    assert_eq!(listed, sample_status().overrides);
    let body = lab.request(Method::DELETE, "/v1/overrides").await.unwrap();
    assert_eq!(
        client::parse::<Vec<Override>>(&lab.socket, &body).unwrap(),
        listed
    );
    for (method, path, says) in [
        (Method::POST, "/v1/overrides?glob=x", "action"),
        (Method::POST, "/v1/overrides?glob=x&action=down&why=y", "why"),
        (Method::POST, "/v1/overrides?glob=x&action=down", "down"),
        (Method::DELETE, "/v1/overrides?glob=x", "no x"),
    ] {
        let error = lab.request(method, path).await.unwrap_err().to_string();
        assert!(error.contains(says), "{path}: {error}");
    }
    let events: Events = lab.get("/v1/events").await.unwrap();
    assert_eq!((events.events.len(), events.webhooks.len()), (1, 1));
}

#[tokio::test]
async fn healthz_names_the_worker_that_stands_still() {
    let lab = Lab::new(None);
    let error = lab.request(Method::GET, "/healthz").await.unwrap_err();
    assert_eq!(error.to_string(), "worker 0 is stalled");
    lab.fake.healthy.store(true, Ordering::Relaxed);
    assert_eq!(lab.request(Method::GET, "/healthz").await.unwrap(), b"ok\n");
}

#[tokio::test]
async fn tcp_wants_the_token_except_for_metrics() {
    let lab = Lab::new(Some("s3cret"));
    for wrong in [
        "",
        "Authorization: Bearer s3cre\r\n",
        "Authorization: Bearer s3cretx\r\n",
        "Authorization: Basic s3cret\r\n",
        "Authorization: s3cret\r\n",
    ] {
        for path in ["/v1/status", "/healthz", "/none", "/metrics/"] {
            let (code, body) = lab.tcp(path, wrong).await;
            assert_eq!(code, 401, "{path} {wrong}");
            assert!(body.contains("Bearer TOKEN"), "{body}");
        }
    }
    assert_eq!(
        lab.tcp("/v1/status", "Authorization: Bearer s3cret\r\n").await.0,
        200
    );
    let (code, body) = lab.tcp("/metrics", "").await;
    assert_eq!(code, 200);
    assert!(body.contains("windrose_info{"));
}

#[tokio::test]
async fn clients_are_told_what_to_do_when_nobody_answers() {
    let mut lab = Lab::new(None);
    let message = |error: ClientError| error.to_string();
    drop(lab.running.take());
    let gone = lab.request(Method::GET, "/v1/status").await.unwrap_err();
    assert!(matches!(gone, ClientError::Missing(_)), "{gone}");
    assert!(message(gone).contains("windrose run -c FILE"));
    drop(std::os::unix::net::UnixListener::bind(&lab.socket).unwrap());
    let dead = lab.request(Method::GET, "/v1/status").await.unwrap_err();
    assert!(matches!(dead, ClientError::Dead(_)), "{dead}");
}

#[test]
fn a_taken_tcp_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = model::Admin {
        socket: dir.path().join("w.sock"),
        listen: Some(address),
        token: Some("t".into()),
    };
    let error = Bound::bind(&config).unwrap_err().to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("[admin]"),
        "{error}"
    );
    assert!(!config.socket.exists(), "the Unix socket was left behind");
}

/// One family of an exposition.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Labels as written, without braces, and value.
    samples: Vec<(String, f64)>,
}

/// Reads the text format 0.0.4 strictly: HELP, TYPE, then the family's samples, each family once,
/// no sample twice, names and labels well formed, counters end in `_total`.
fn read_exposition(text: &str) -> HashMap<String, Family> {
    let is_name = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    assert!(text.ends_with('\n'));
    let mut families: HashMap<String, Family> = HashMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && name.starts_with("windrose_"), "{name}");
            assert!(!help.is_empty(), "{name} has no help");
            let family = Family {
                help: help.to_owned(),
                ..Family::default()
            };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "{name}: HELP twice"
            );
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "TYPE does not follow its HELP");
            let family = families.get_mut(name).unwrap();
            assert!(family.kind.is_empty(), "{name}: TYPE twice");
            assert!(["counter", "gauge"].contains(&kind), "{name}: {kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            family.kind = kind.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let labels = labels.strip_suffix('}').unwrap();
            assert_eq!(name, current, "a sample outside of its family");
            for label in labels.split(',').filter(|l| !l.is_empty()) {
                let (key, quoted) = label.split_once('=').unwrap();
                assert!(is_name(key), "{key}");
                assert!(
                    quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'),
                    "{label}"
                );
            }
            let family = families.get_mut(name).unwrap();
            assert!(!family.kind.is_empty(), "{name}: no TYPE");
            assert!(
                family.samples.iter().all(|(l, _)| l != labels),
                "{name}: {labels} twice"
            );
            family.samples.push((labels.to_owned(), value.parse().unwrap()));
        }
    }
    families
}

#[tokio::test]
async fn metrics_are_valid_and_hold_every_counter() {
    let lab = Lab::new(None);
    let text = String::from_utf8(lab.request(Method::GET, "/metrics").await.unwrap()).unwrap();
    let families = read_exposition(&text);
    let value = |name: &str, labels: &str| {
        let family = families.get(name).unwrap_or_else(|| panic!("no family {name}"));
        let found = family.samples.iter().find(|(l, _)| l == labels);
        found
            .unwrap_or_else(|| panic!("{name} has no {{{labels}}}: {:?}", family.samples))
            .1
    };
    for (i, counter) in Counter::ALL.iter().enumerate() {
        let name = counter.name();
        let (family, labels) = match counter.kind() {
            Kind::Packets => (
                format!("windrose_{name}_packets_total"),
                "worker=\"0\"".to_owned(),
            ),
            Kind::Drop => (
                "windrose_dropped_packets_total".into(),
                format!("worker=\"0\",reason=\"{name}\""),
            ),
            Kind::Dns => (
                "windrose_dns_replies_total".into(),
                format!("worker=\"0\",outcome=\"{name}\""),
            ),
            Kind::Worker if *counter == Counter::LoopGapTicksMax => continue,
            Kind::Worker => (format!("windrose_{name}_total"), "worker=\"0\"".into()),
        };
        assert_eq!(value(&family, &labels), 1001.0 + i as f64, "{counter:?}");
        assert_eq!(
            value(&family, &labels.replace("worker=\"0\"", "worker=\"1\"")),
            0.0
        );
        assert!(
            families[&family].help.contains(counter.help()),
            "{counter:?} is not explained"
        );
    }
    let info = "appliance=\"lab-1\",version=\"0.1.0\",config_hash=\"0123456789abcdef\"";
    let member = |address: &str| format!("service=\"vod.example.com\",address=\"{address}\",site=\"seoul\"");
    let expected = [
        ("windrose_info", info.to_owned(), 1.0),
        ("windrose_uptime_seconds", String::new(), 3660.0),
        ("windrose_snapshot_generation", String::new(), 7.0),
        ("windrose_config_loaded_timestamp_seconds", String::new(), 1.8e9),
        ("windrose_snapshots_published_total", "worker=\"0\"".into(), 7.0),
        ("windrose_snapshots_superseded_total", "worker=\"0\"".into(), 2.0),
        ("windrose_worker_snapshot_generation", "worker=\"0\"".into(), 6.0),
        ("windrose_worker_stalled", "worker=\"0\"".into(), 1.0),
        ("windrose_dns_byte_ratio", "worker=\"0\"".into(), 1.75),
        ("windrose_worker_busy_ratio", "worker=\"0\"".into(), 0.125),
        (
            "windrose_worker_loop_gap_max_seconds",
            "worker=\"0\"".into(),
            0.00025,
        ),
        ("windrose_tcp_connections_open", String::new(), 2.0),
        (
            "windrose_tcp_connections_total",
            "event=\"refused_client\"".into(),
            4.0,
        ),
        ("windrose_tcp_replies_total", "outcome=\"answer\"".into(), 29.0),
        ("windrose_tcp_ignored_total", String::new(), 7.0),
        ("windrose_tcp_query_bytes_total", String::new(), 300.0),
        ("windrose_tcp_reply_bytes_total", String::new(), 900.0),
        (
            "windrose_exception_punted_packets_total",
            "fate=\"not_tcp\"".into(),
            5.0,
        ),
        (
            "windrose_exception_sent_packets_total",
            "fate=\"unknown_neighbour\"".into(),
            6.0,
        ),
        ("windrose_port_rx_packets_total", "port=\"isp\"".into(), 105.0),
        ("windrose_port_tx_packets_total", "port=\"isp\"".into(), 95.0),
        ("windrose_port_rx_bytes_total", "port=\"isp\"".into(), 9000.0),
        ("windrose_port_tx_bytes_total", "port=\"isp\"".into(), 12000.0),
        ("windrose_port_rx_missed_total", "port=\"isp\"".into(), 1.0),
        ("windrose_port_rx_errors_total", "port=\"isp\"".into(), 2.0),
        ("windrose_port_tx_errors_total", "port=\"isp\"".into(), 3.0),
        ("windrose_port_rx_nombuf_total", "port=\"isp\"".into(), 4.0),
        ("windrose_port_link_up", "port=\"isp\"".into(), 1.0),
        (
            "windrose_report_requests_total",
            "outcome=\"bad_token\"".into(),
            3.0,
        ),
        ("windrose_report_feed_down", "".into(), 1.0),
        ("windrose_report_rtt_prefixes", "".into(), 12.0),
        (
            "windrose_latency_seconds",
            "clients=\"KT\",site=\"seoul\",quantile=\"0.99\"".into(),
            0.207,
        ),
        (
            "windrose_latency_responses",
            "clients=\"KT\",site=\"seoul\"".into(),
            1000.0,
        ),
        (
            "windrose_latency_flows",
            "clients=\"KT\",site=\"seoul\"".into(),
            412.0,
        ),
        (
            "windrose_latency_handshake_seconds",
            "clients=\"KT\",site=\"seoul\"".into(),
            0.0095,
        ),
        (
            "windrose_latency_answer_seconds",
            "clients=\"KT\",site=\"seoul\"".into(),
            0.036,
        ),
        (
            "windrose_latency_retransmitted",
            "clients=\"KT\",site=\"seoul\"".into(),
            7.0,
        ),
        (
            "windrose_latency_age_seconds",
            "clients=\"KT\",site=\"seoul\"".into(),
            14.0,
        ),
        (
            "windrose_latency_evidence_seconds",
            "clients=\"KT\",site=\"seoul\"".into(),
            0.041,
        ),
        (
            "windrose_latency_shared",
            "clients=\"KT\",site=\"seoul\"".into(),
            1.0,
        ),
        (
            "windrose_latency_samples_fate_total",
            "fate=\"taken\"".into(),
            4991.0,
        ),
        ("windrose_latency_samples_fate_total", "fate=\"low\"".into(), 9.0),
        (
            "windrose_latency_samples_fate_total",
            "fate=\"unknown\"".into(),
            2.0,
        ),
        ("windrose_latency_samples_fate_total", "fate=\"lost\"".into(), 4.0),
        ("windrose_latency_cells", "".into(), 12.0),
        ("windrose_latency_cells_evicted_total", "".into(), 1.0),
        ("windrose_latency_evidence_changes_total", "".into(), 6.0),
        ("windrose_latency_leader_changes_total", "".into(), 3.0),
        ("windrose_latency_file_rows_total", "fate=\"lost\"".into(), 8.0),
        ("windrose_site_silent", "site=\"seoul\"".into(), 1.0),
        ("windrose_site_reports_total", "site=\"seoul\"".into(), 17.0),
        ("windrose_site_report_age_seconds", "site=\"seoul\"".into(), 75.0),
        ("windrose_site_sessions", "site=\"seoul\"".into(), 400_000.0),
        (
            "windrose_site_bandwidth_bits_per_second",
            "site=\"seoul\"".into(),
            900_000_000.0,
        ),
        (
            "windrose_site_connections_per_second",
            "site=\"seoul\"".into(),
            120.0,
        ),
        ("windrose_site_rtts", "site=\"seoul\"".into(), 9.0),
        ("windrose_site_members", "site=\"seoul\"".into(), 2.0),
        ("windrose_site_members_up", "site=\"seoul\"".into(), 1.0),
        ("windrose_member_up", member("198.51.100.1"), 1.0),
        ("windrose_member_up", member("2001:db8::2"), 0.0),
        ("windrose_member_stale", member("2001:db8::2"), 1.0),
        (
            "windrose_member_last_check_age_seconds",
            member("2001:db8::2"),
            12.5,
        ),
    ];
    for (name, labels, number) in expected {
        assert_eq!(value(name, &labels), number, "{name}");
    }
    assert_eq!(
        families["windrose_member_last_check_age_seconds"].samples.len(),
        2
    );
}
