//! Numbers from a program of the operator's: one JSON object, or `key=value` lines. The program is killed when it takes
//! too long.

use super::{MemberNumbers, Numbers};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::process::Stdio;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// Most that is read of what it prints, bytes.
const OUTPUT_MAX: u64 = 1 << 20;
/// Most that is shown of its standard error, characters.
const SHOWN_MAX: usize = 200;

/// What it prints as JSON. The names are those of a report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    sessions: Option<u64>,
    bandwidth_bps: Option<u64>,
    connections_per_second: Option<u64>,
    #[serde(default)]
    members: HashMap<IpAddr, PrintedMember>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrintedMember {
    up: Option<bool>,
    error_rate: Option<f64>,
    latency_us: Option<u64>,
    sessions: Option<u64>,
}

/// Runs it and reads what it prints.
pub(super) async fn read(argv: &[String]) -> Result<Numbers, String> {
    let (program, args) = argv.split_first().ok_or("there is no program")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let (mut out, mut err) = (String::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_out = async {
        match stdout {
            Some(pipe) => pipe.take(OUTPUT_MAX).read_to_string(&mut out).await,
            None => Ok(0),
        }
    };
    let read_err = async {
        match stderr {
            Some(pipe) => pipe.take(OUTPUT_MAX).read_to_end(&mut err).await,
            None => Ok(0),
        }
    };
    let (read, _) = tokio::join!(read_out, read_err);
    read.map_err(|error| format!("what it prints: {error}"))?;
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        let shown: String = String::from_utf8_lossy(&err)
            .trim()
            .chars()
            .take(SHOWN_MAX)
            .collect();
        return Err(format!("{status}: {shown}"));
    }
    parse(&out)
}

/// Reads what was printed.
pub(super) fn parse(text: &str) -> Result<Numbers, String> {
    let text = text.trim();
    if text.starts_with('{') {
        let printed: Printed = serde_json::from_str(text).map_err(|error| format!("its JSON: {error}"))?;
        let member = |(address, m): (IpAddr, PrintedMember)| {
            if m.error_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
                return Err(format!("error_rate of {address} is not from 0 to 1"));
            }
            let numbers = MemberNumbers {
                up: m.up,
                error_rate: m.error_rate,
                latency_us: m.latency_us,
                sessions: m.sessions,
            };
            Ok((address, numbers))
        };
        return Ok(Numbers {
            sessions: printed.sessions,
            bandwidth: printed.bandwidth_bps,
            connections: printed.connections_per_second,
            members: printed
                .members
                .into_iter()
                .map(member)
                .collect::<Result<_, _>>()?,
        });
    }
    let mut numbers = Numbers::default();
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut any = false;
    for line in lines {
        any = true;
        let wrong = |what: &str| {
            format!(
                "line `{}`: {what}",
                line.chars().take(SHOWN_MAX).collect::<String>()
            )
        };
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("neither KEY=VALUE nor JSON"))?;
        let value: u64 = value
            .trim()
            .parse()
            .map_err(|_| wrong("the value is not a whole number"))?;
        match key.trim() {
            "sessions" => numbers.sessions = Some(value),
            "bandwidth_bps" => numbers.bandwidth = Some(value),
            "connections_per_second" => numbers.connections = Some(value),
            _ => return Err(wrong("keys are sessions, bandwidth_bps, connections_per_second")),
        }
    }
    if any {
        Ok(numbers)
    } else {
        Err("it printed nothing".into())
    }
}
