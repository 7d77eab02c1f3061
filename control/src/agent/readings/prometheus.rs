//! Numbers from an exporter in the Prometheus text format (version 0.0.4): the sum over a metric's samples with given
//! labels. Plain HTTP: exporters stand on the host or beside it.

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use tokio::net::TcpStream;

/// Most that is read, bytes.
const BYTES_MAX: usize = 64 << 20;

/// The text at `http://host:port/path`.
pub(super) async fn fetch(host: &str, port: u16, path: &str) -> Result<String, String> {
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| format!("connecting: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let shown = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let request = Request::get(path)
        .header(header::HOST, format!("{shown}:{port}"))
        .header(header::ACCEPT, "text/plain;version=0.0.4")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("HTTP {}", response.status()));
        }
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("its body: {error}"))?.to_bytes();
        String::from_utf8(body.to_vec()).map_err(|_| "its body is not UTF-8".to_owned())
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// The sum over the samples of `metric` that have all of `labels`.
pub(super) fn sum(text: &str, metric: &str, labels: &BTreeMap<String, String>) -> Result<f64, String> {
    let mut total = None;
    for line in text.lines() {
        let Some(rest) = line.trim_start().strip_prefix(metric) else {
            continue;
        };
        // Another metric whose name begins alike.
        if !rest.starts_with(['{', ' ', '\t']) {
            continue;
        }
        let wrong = || {
            format!(
                "this line of it is no sample: {}",
                line.chars().take(120).collect::<String>()
            )
        };
        let (found, rest) = match rest.trim_start().strip_prefix('{') {
            Some(rest) => parse_labels(rest).ok_or_else(wrong)?,
            None => (Vec::new(), rest),
        };
        let has = |(name, value): (&String, &String)| found.iter().any(|(n, v)| n == name && v == value);
        if !labels.iter().all(has) {
            continue;
        }
        let value = rest.split_ascii_whitespace().next().ok_or_else(wrong)?;
        let value: f64 = value.parse().map_err(|_| wrong())?;
        if !value.is_finite() {
            return Err(format!("{metric} is {value}"));
        }
        *total.get_or_insert(0.0) += value;
    }
    total.ok_or_else(|| {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        format!("it has no sample {metric}{{{}}}", labels.join(","))
    })
}

/// Labels up to the closing brace, and what follows it.
fn parse_labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let mut chars = after.trim_start().strip_prefix('"')?.char_indices();
        let inner = after.trim_start().get(1..)?;
        let mut value = String::new();
        loop {
            let (at, c) = chars.next()?;
            match c {
                '"' => {
                    rest = inner.get(at + 1..)?;
                    break;
                }
                '\\' => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        labels.push((name.trim().to_owned(), value));
    }
}
