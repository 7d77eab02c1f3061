//! Real clients: dig and dnsperf, and what they print as values.
//!
//! Called by tests and demo; owns nothing.

use crate::lab::Host;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// One record as dig prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Owner name, in the case that was received.
    pub name: String,
    /// TTL, seconds.
    pub ttl: u32,
    /// Type mnemonic.
    pub rtype: String,
    /// RDATA in presentation form.
    pub rdata: String,
}

/// A reply that dig received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigReply {
    /// RCODE mnemonic: NOERROR, NXDOMAIN ...
    pub status: String,
    /// Header flags: qr, aa, rd ...
    pub flags: Vec<String>,
    /// Answer section.
    pub answer: Vec<Record>,
    /// Authority section.
    pub authority: Vec<Record>,
    /// The EDNS line ("version: 0, flags:; udp: 1232"), if the reply has OPT.
    pub edns: Option<String>,
    /// The client subnet option as printed ("198.51.100.0/24/20").
    pub client_subnet: Option<String>,
    /// Everything that dig printed.
    pub text: String,
}

impl DigReply {
    /// Reads dig's default output.
    ///
    /// # Errors
    /// When there is no reply in it: a timeout, or a malformed message.
    pub fn parse(text: &str) -> Result<Self> {
        let mut reply = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        let mut section = "";
        for line in text.lines() {
            if let Some(header) = line.strip_prefix(";; ->>HEADER<<- ") {
                let status = header
                    .split("status: ")
                    .nth(1)
                    .and_then(|rest| rest.split(',').next());
                reply.status = status.context("no status in dig's header line")?.to_owned();
            } else if let Some(flags) = line.strip_prefix(";; flags:") {
                let flags = flags.split(';').next().unwrap_or_default();
                reply.flags = flags.split_ascii_whitespace().map(str::to_owned).collect();
            } else if let Some(name) = line.strip_prefix(";; ").and_then(|l| l.strip_suffix(" SECTION:")) {
                section = name;
            } else if let Some(edns) = line.strip_prefix("; EDNS: ") {
                reply.edns = Some(edns.to_owned());
            } else if let Some(subnet) = line.strip_prefix("; CLIENT-SUBNET: ") {
                reply.client_subnet = Some(subnet.to_owned());
            } else if !line.is_empty() && !line.starts_with(';') {
                let into = match section {
                    "ANSWER" => &mut reply.answer,
                    "AUTHORITY" => &mut reply.authority,
                    _ => continue,
                };
                into.push(record(line)?);
            }
        }
        if reply.status.is_empty() {
            bail!("dig got no reply:\n{text}");
        }
        Ok(reply)
    }

    /// The addresses of the answer section, in order.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.answer
            .iter()
            .filter(|record| matches!(record.rtype.as_str(), "A" | "AAAA"))
            .filter_map(|record| record.rdata.parse().ok())
            .collect()
    }

    /// True when the header has this flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }
}

/// `name ttl class type rdata...`
fn record(line: &str) -> Result<Record> {
    let mut words = line.split_ascii_whitespace();
    let (name, ttl, _class, rtype) = (words.next(), words.next(), words.next(), words.next());
    let (Some(name), Some(ttl), Some(rtype)) = (name, ttl, rtype) else {
        bail!("not a record: {line}");
    };
    Ok(Record {
        name: name.to_owned(),
        ttl: ttl.parse().with_context(|| format!("TTL in: {line}"))?,
        rtype: rtype.to_owned(),
        rdata: words.collect::<Vec<_>>().join(" "),
    })
}

/// Asks `server` once by dig over UDP from inside `host`; `query` is dig's further arguments, split
/// at blanks ("vod.example.com A +norec"). One try, 2 s.
///
/// # Errors
/// When no reply comes, or it is malformed (dig says so).
pub fn dig(host: &Host, server: IpAddr, query: &str) -> Result<DigReply> {
    let server = format!("@{server}");
    let mut argv = vec![
        "dig",
        &server,
        "+tries=1",
        "+time=2",
        "+norec",
        "+ignore",
        "+nocookie",
    ];
    argv.extend(query.split_ascii_whitespace());
    let finished = host.run(&argv, Duration::from_secs(10))?;
    let reply = DigReply::parse(&finished.stdout).with_context(|| format!("`{}`", argv.join(" ")))?;
    if finished.stdout.contains("Warning") || finished.stdout.contains("WARNING") {
        bail!("`{}` complains:\n{}", argv.join(" "), finished.stdout);
    }
    Ok(reply)
}

/// What dnsperf reports at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dnsperf {
    /// Queries sent.
    pub sent: u64,
    /// Queries that got a reply.
    pub completed: u64,
    /// Queries that got none within the timeout.
    pub lost: u64,
    /// Replies by RCODE mnemonic.
    pub rcodes: BTreeMap<String, u64>,
    /// Completed queries a second.
    pub rate: f64,
}

impl Dnsperf {
    /// Reads dnsperf's statistics.
    ///
    /// # Errors
    /// When a line of them is missing.
    pub fn parse(text: &str) -> Result<Self> {
        let value = |key: &str| -> Result<&str> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
            Ok(line
                .with_context(|| format!("no \"{key}\" in dnsperf's output:\n{text}"))?
                .trim())
        };
        let count = |key: &str| -> Result<u64> {
            let first = value(key)?.split_ascii_whitespace().next().unwrap_or_default();
            first.parse().with_context(|| format!("{key} {first}"))
        };
        let mut rcodes = BTreeMap::new();
        // "NOERROR 120 (75.00%), NXDOMAIN 40 (25.00%)"; empty when nothing completed.
        for part in value("Response codes:")?
            .split(',')
            .filter(|part| !part.trim().is_empty())
        {
            let mut words = part.split_ascii_whitespace();
            if let (Some(code), Some(n)) = (words.next(), words.next()) {
                rcodes.insert(
                    code.to_owned(),
                    n.parse().with_context(|| format!("count in {part}"))?,
                );
            }
        }
        Ok(Self {
            sent: count("Queries sent:")?,
            completed: count("Queries completed:")?,
            lost: count("Queries lost:")?,
            rate: value("Queries per second:")?.parse()?,
            rcodes,
        })
    }
}

/// Runs dnsperf from inside `host` for `seconds` at `rate` queries a second; `queries` has one
/// `name type` a line.
///
/// # Errors
/// When it cannot be run, or its statistics are incomplete.
pub fn dnsperf(host: &Host, server: IpAddr, queries: &Path, seconds: u32, rate: u32) -> Result<Dnsperf> {
    let (server, seconds_text, rate) = (server.to_string(), seconds.to_string(), rate.to_string());
    let queries = queries.to_string_lossy();
    // 4 clients: several source ports, so that receive-side scaling has something to spread.
    let argv = [
        "dnsperf",
        "-s",
        &server,
        "-d",
        &queries,
        "-l",
        &seconds_text,
        "-Q",
        &rate,
        "-c",
        "4",
        "-t",
        "2",
    ];
    let finished = host.run(&argv, Duration::from_secs(u64::from(seconds) + 20))?;
    Dnsperf::parse(&finished.success()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Printed by dig 9.18 for a query to a public server.
    const DIG: &str = "
; <<>> DiG 9.18.49 <<>> @192.0.2.53 Vod.example.com A +subnet=198.51.100.0/24
; (1 server found)
;; global options: +cmd
;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 47424
;; flags: qr aa; QUERY: 1, ANSWER: 2, AUTHORITY: 1, ADDITIONAL: 1

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 1232
; CLIENT-SUBNET: 198.51.100.0/24/20
;; QUESTION SECTION:
;Vod.example.com.\t\tIN\tA

;; ANSWER SECTION:
Vod.example.com.\t30\tIN\tA\t198.51.100.11
Vod.example.com.\t30\tIN\tA\t203.0.113.11

;; AUTHORITY SECTION:
example.com.\t3600\tIN\tNS\tns1.example.com.

;; Query time: 0 msec
;; MSG SIZE  rcvd: 90
";

    #[test]
    fn dig_output_is_read() {
        let reply = DigReply::parse(DIG).unwrap();
        assert_eq!(
            (reply.status.as_str(), reply.flags.join(" ").as_str()),
            ("NOERROR", "qr aa")
        );
        assert_eq!(
            reply.addresses(),
            ["198.51.100.11", "203.0.113.11"].map(|a| a.parse::<IpAddr>().unwrap())
        );
        assert_eq!(reply.answer[0].name, "Vod.example.com.");
        assert_eq!(
            (reply.answer[0].ttl, reply.authority[0].rdata.as_str()),
            (30, "ns1.example.com.")
        );
        assert_eq!(reply.client_subnet.as_deref(), Some("198.51.100.0/24/20"));
        assert_eq!(reply.edns.as_deref(), Some("version: 0, flags:; udp: 1232"));
    }

    #[test]
    fn no_reply_is_an_error() {
        assert!(DigReply::parse(";; connection timed out; no servers could be reached\n").is_err());
    }

    // Printed by dnsperf 2.10.0.
    const DNSPERF: &str = "Statistics:

  Queries sent:         160
  Queries completed:    158 (98.75%)
  Queries lost:         2 (1.25%)

  Response codes:       NOERROR 118 (74.68%), NXDOMAIN 40 (25.32%)
  Average packet size:  request 33, response 68
  Run time (s):         0.004212
  Queries per second:   37986.704653
";

    #[test]
    fn dnsperf_output_is_read() {
        let got = Dnsperf::parse(DNSPERF).unwrap();
        assert_eq!((got.sent, got.completed, got.lost), (160, 158, 2));
        assert_eq!(
            got.rcodes,
            BTreeMap::from([("NOERROR".into(), 118), ("NXDOMAIN".into(), 40)])
        );
        assert!(Dnsperf::parse("Statistics:").is_err());
    }
}
