//! The receiver over real TLS on loopback, asked by curl as another system would.

use super::*;
use crate::config::model::Token;
use crate::policy::tests::with_service;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const TOKEN: &str = "token-of-site-zero";

struct Lab {
    folder: tempfile::TempDir,
    store: Arc<ReportStore>,
    receiver: Receiver,
}

impl Lab {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = with_service(|config| {
            config.appliance.state = Some(folder.path().join("state"));
            config.reports = Some(Reports {
                listen: ([127, 0, 0, 1], 0).into(),
                certificate: None,
                interval: Duration::from_secs(5),
                silent_after: Duration::from_secs(20),
                measure: vec!["192.0.2.53/32".parse().expect("a prefix")],
                rtt_prefixes: 16,
                rtt_every: Duration::from_secs(60),
                rtt_max_age: Duration::from_secs(600),
                rtt_prefix_v4: 24,
                rtt_prefix_v6: 48,
            });
            config.sites[0].tokens = vec![Token(TOKEN.into())];
            config.sites[1].tokens = vec![Token("token-of-site-one-".into())];
        });
        let store = Arc::new(ReportStore::new(&config, Instant::now()));
        let bound = Bound::bind(&config).expect("bound").expect("configured");
        let receiver = bound.serve(store.clone()).expect("served");
        Self {
            folder,
            store,
            receiver,
        }
    }

    /// Status and body of what curl gets.
    async fn curl(&self, args: &[&str], body: &str) -> (String, String) {
        let url = format!("https://edge.example:{}{PATH}", self.receiver.address.port());
        let resolve = format!("edge.example:{}:127.0.0.1", self.receiver.address.port());
        let mut command = Command::new("curl");
        command
            .args([
                "-sS",
                "-k",
                "--max-time",
                "20",
                "--resolve",
                &resolve,
                "-w",
                "\n%{http_code}",
            ])
            .args(["-H", "Expect:", "--data-binary", "@-"])
            .args(args)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let body = body.to_owned();
        let output = tokio::task::spawn_blocking(move || -> io::Result<Output> {
            let mut child = command.spawn()?;
            // A server that refuses early does not read all of it.
            let _ = child.stdin.take().expect("piped").write_all(body.as_bytes());
            child.wait_with_output()
        });
        let output = output.await.expect("joined").expect("curl is installed");
        let text = String::from_utf8(output.stdout).expect("text");
        let (body, status) = text.rsplit_once('\n').expect("a status line");
        assert_ne!(status, "000", "{}", String::from_utf8_lossy(&output.stderr));
        (status.to_owned(), body.to_owned())
    }

    async fn post(&self, token: &str, body: &str) -> (String, String) {
        let header = format!("Authorization: Bearer {token}");
        self.curl(&["-H", &header], body).await
    }

    fn count(&self, what: Received) -> u64 {
        self.receiver.counters()[what.name()]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_by_curl_is_taken_and_told_what_to_measure() {
    let lab = Lab::new().await;
    let body = r#"{"version":1,"site":"s0","sequence":1,"totals":{"sessions":42}}"#;
    let (status, answer) = lab.post(TOKEN, body).await;
    assert_eq!(status, "200", "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let expected = serde_json::json!({
        "interval_ms": 5000, "silent_after_ms": 20000, "measure": [{"prefix": "192.0.2.53/32"}],
    });
    assert_eq!(answer, expected);
    let known = lab.store.status(Instant::now());
    assert_eq!(
        known[0].last.as_ref().and_then(|(report, _)| report.sessions()),
        Some(42)
    );
    assert_eq!(known[0].from, Some(IpAddr::from([127, 0, 0, 1])));
    assert_eq!(lab.count(Received::Taken), 1);
    assert!(lab.folder.path().join("state/reports-key.pem").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_told_counted_and_changes_nothing() {
    let lab = Lab::new().await;
    let good = r#"{"version":1,"site":"s0","sequence":1}"#;
    let other = r#"{"version":1,"site":"s1","sequence":1}"#;
    let large = " ".repeat(BYTES_MAX + 1);
    let cases = [
        (
            "not-the-token-of-any",
            good,
            "401",
            "Bearer TOKEN",
            Received::BadToken,
        ),
        (TOKEN, other, "403", "s1", Received::OtherSite),
        (TOKEN, "{", "400", "EOF", Received::BadReport),
        (
            TOKEN,
            r#"{"version":9,"site":"s0","sequence":1}"#,
            "400",
            "version 9",
            Received::BadReport,
        ),
        (TOKEN, &large, "413", "larger than", Received::TooLarge),
    ];
    for (token, body, status, part, counted) in cases {
        let before = lab.count(counted);
        let (got, text) = lab.post(token, body).await;
        assert_eq!(got, status, "{text}");
        assert!(text.contains(part), "{text} lacks {part}");
        assert_eq!(lab.count(counted), before + 1, "{part}");
    }
    let (status, _) = lab.curl(&[], good).await;
    assert_eq!(status, "401", "without a token");
    let (status, _) = lab
        .curl(
            &["-X", "PUT", "-H", &format!("Authorization: Bearer {TOKEN}")],
            good,
        )
        .await;
    assert_eq!((status.as_str(), lab.count(Received::OtherRequest)), ("405", 1));
    assert!(
        lab.store
            .status(Instant::now())
            .iter()
            .all(|site| site.last.is_none())
    );
    assert_eq!(lab.post(TOKEN, good).await.0, "200");
    let (status, text) = lab.post(TOKEN, good).await;
    assert_eq!(
        (status.as_str(), lab.count(Received::OldSequence)),
        ("409", 1),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_is_no_handshake_and_a_flood_is_held_off() {
    let lab = Lab::new().await;
    let address = lab.receiver.address;
    let mut plain = TcpStream::connect(address).await.expect("connected");
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("sent");
    let mut rest = Vec::new();
    // A TLS alert, then the end.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut rest).await;
    assert_eq!(lab.count(Received::BadHandshake), 1);

    // Those that say nothing are held; the one too many is closed at once.
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS_PER_SOURCE_MAX {
        open.push(TcpStream::connect(address).await.expect("connected"));
    }
    let mut late = TcpStream::connect(address).await.expect("connected");
    let end = tokio::io::AsyncReadExt::read(&mut late, &mut [0; 1]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert_eq!(lab.count(Received::TooManyConnections), 1);
    drop(open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_one_site_are_bounded_and_do_not_touch_the_other() {
    let lab = Lab::new().await;
    {
        let now = Instant::now();
        let mut state = lab.receiver.desk.lock();
        while state.sites.take("s0".into(), now) {}
    }
    let (status, text) = lab.post(TOKEN, r#"{"version":1,"site":"s0","sequence":1}"#).await;
    assert_eq!(
        (status.as_str(), lab.count(Received::TooMany)),
        ("429", 1),
        "{text}"
    );
    let (status, _) = lab
        .post("token-of-site-one-", r#"{"version":1,"site":"s1","sequence":1}"#)
        .await;
    assert_eq!(status, "200");
}
