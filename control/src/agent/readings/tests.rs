//! Commands, exporters, and how sources come together.

use super::*;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn shell(script: &str) -> Reading {
    Reading {
        from: From::Command(vec!["/bin/sh".into(), "-c".into(), script.into()]),
        timeout: Duration::from_secs(20),
    }
}

async fn one(reading: Reading) -> Result<Numbers, String> {
    let mut sources = Sources::new(&[reading], Vec::new());
    sources.list[0].read(&[]).await
}

#[tokio::test]
async fn a_program_prints_lines_or_json() {
    let lines = one(shell(
        "echo '# now'; echo sessions=42; echo connections_per_second = 7",
    ))
    .await
    .expect("read");
    assert_eq!(
        (lines.sessions, lines.connections, lines.bandwidth),
        (Some(42), Some(7), None)
    );
    let json = r#"echo '{"bandwidth_bps": 900000000, "members": {"203.0.113.1": {"error_rate": 0.3, "sessions": 5}}}'"#;
    let json = one(shell(json)).await.expect("read");
    assert_eq!(json.bandwidth, Some(900_000_000));
    let member = &json.members[&"203.0.113.1".parse::<IpAddr>().expect("an address")];
    assert_eq!((member.error_rate, member.sessions), (Some(0.3), Some(5)));
}

#[tokio::test]
async fn what_a_program_does_wrong_is_named() {
    let mut slow = shell("sleep 30");
    slow.timeout = Duration::from_millis(50);
    let cases = [
        (shell("echo oh no >&2; exit 3"), "exit status: 3: oh no"),
        (shell("true"), "printed nothing"),
        (shell("echo sesions=4"), "`sesions=4`: keys are"),
        (shell("echo sessions=4.5"), "not a whole number"),
        (shell("echo '{\"sesions\": 4}'"), "sesions"),
        (
            shell("echo '{\"members\": {\"192.0.2.1\": {\"error_rate\": 2}}}'"),
            "192.0.2.1",
        ),
        (slow, "nothing within 50ms"),
        (
            Reading {
                from: From::Command(vec!["/nonexistent/program".into()]),
                timeout: Duration::from_secs(1),
            },
            "/nonexistent/program",
        ),
    ];
    for (reading, part) in cases {
        let error = one(reading).await.expect_err(part);
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

const EXPORTER: &str = r#"# HELP haproxy_backend_current_sessions Current number of active sessions.
# TYPE haproxy_backend_current_sessions gauge
haproxy_backend_current_sessions{proxy="vod",zone="a\"},b"} 300000
haproxy_backend_current_sessions{proxy="vod",zone="c"} 1e+05 1800000000000
haproxy_backend_current_sessions{proxy="api"} 7
haproxy_backend_current_sessions_max{proxy="vod"} 999
plain_total 12.5
odd NaN
"#;

#[test]
fn samples_with_the_labels_are_added_up() {
    let sum = |metric: &str, labels: &[(&str, &str)]| {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        prometheus::sum(EXPORTER, metric, &labels)
    };
    let sessions = "haproxy_backend_current_sessions";
    assert_eq!(sum(sessions, &[("proxy", "vod")]), Ok(400_000.0));
    assert_eq!(sum(sessions, &[]), Ok(400_007.0));
    assert_eq!(
        sum(sessions, &[("proxy", "vod"), ("zone", "a\"},b")]),
        Ok(300_000.0)
    );
    assert_eq!(sum("plain_total", &[]), Ok(12.5));
    assert!(sum(sessions, &[("proxy", "x")]).is_err_and(|e| e.contains("proxy=\"x\"")));
    assert!(sum("odd", &[]).is_err_and(|e| e.contains("NaN")));
    assert!(sum("haproxy_backend", &[]).is_err());
}

#[tokio::test]
async fn an_exporter_is_asked_and_a_counter_becomes_a_rate() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        for bytes in [1_000_000, 1_500_000] {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut head = [0; 1024];
            let len = stream.read(&mut head).await.expect("read");
            assert!(head[..len].starts_with(b"GET /metrics HTTP/1.1"));
            let body = format!("tx_bytes{{if=\"eth0\"}} {bytes}\n");
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).await.expect("sent");
        }
    });
    let reading = Reading {
        from: From::Prometheus {
            host: "127.0.0.1".into(),
            port,
            path: "/metrics".into(),
            metric: "tx_bytes".into(),
            labels: BTreeMap::new(),
            gives: Quantity::Bandwidth,
            rate: true,
            scale: 8.0,
        },
        timeout: Duration::from_secs(20),
    };
    let mut sources = Sources::new(&[reading, shell("echo bandwidth_bps=1")], Vec::new());
    assert_eq!(
        sources.read().await.bandwidth,
        Some(1),
        "a counter says nothing the first time"
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    // 500,000 bytes in 0.1 s or a little more: at most 40 Mb/s; the first source in the file counts.
    let rate = sources.read().await.bandwidth.expect("a rate");
    assert!((400_000..=40_000_000).contains(&rate), "{rate}");
    assert_eq!(sources.read().await.bandwidth, Some(1), "the exporter is gone");
}

#[test]
fn a_reset_counter_gives_nothing_once() {
    let mut growth = Growth::default();
    let start = Instant::now();
    let at = |s| start + Duration::from_secs(s);
    assert_eq!(growth.take(at(0), 100.0), None);
    assert_eq!(growth.take(at(5), 600.0), Some(100.0));
    assert_eq!(growth.take(at(10), 50.0), None);
    assert_eq!(growth.take(at(15), 60.0), Some(2.0));
    assert_eq!((whole(-1.0), whole(f64::NAN), whole(2.6)), (None, None, Some(3)));
}
