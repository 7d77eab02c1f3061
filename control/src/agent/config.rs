//! The agent's own TOML file: what it is told. Read with the same readers and diagnostics as the appliance's.

use crate::config::check::check as read_check;
use crate::config::model::{Check, Token};
use crate::config::reader::{Table, Value};
use crate::config::sections::NAME_MAX;
use crate::config::{self, Diagnostics, reports};
use crate::health::TargetKey;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Port of an appliance's receiver unless its address says another.
const PORT: u16 = 8853;

/// Everything that an agent is told.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `site = "seoul-kt"`: its name in the appliances' configurations.
    pub site: String,
    /// What `token_file` holds first.
    pub token: Token,
    /// `[[appliance]]`: whom it reports to, each by itself.
    pub appliances: Vec<Appliance>,
    /// `[[member]]`.
    pub members: Vec<Member>,
    /// `[[reading]]`: where numbers come from.
    pub readings: Vec<Reading>,
    /// `[rtt]`.
    pub rtt: Rtt,
}

/// `[[appliance]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appliance {
    /// `address = "192.0.2.1:8853"`: host, without the brackets of IPv6.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whom to believe that it is that appliance.
    pub trust: Trust,
}

/// How an appliance is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// `fingerprint = "..."`: SHA-256 of its certificate.
    Fingerprint([u8; 32]),
    /// `ca = "ca.pem"`: an authority signed its certificate for `server_name`.
    Authority {
        /// PEM file of authorities.
        file: PathBuf,
        /// The name; the host by default.
        name: String,
    },
}

/// `[[member]]`: an address of this site that appliances hand out.
#[derive(Clone, Debug)]
pub struct Member {
    /// The address.
    pub address: IpAddr,
    /// How it is checked; `None`: nothing is said of its health.
    pub check: Option<Check>,
}

impl Member {
    /// What the prober knows it by.
    pub fn target(&self) -> Option<TargetKey> {
        Some(TargetKey {
            address: self.address,
            check: self.check.clone()?,
        })
    }
}

/// A number of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// Sessions open.
    Sessions,
    /// Bits per second.
    Bandwidth,
    /// New connections per second.
    Connections,
}

/// `[[reading]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Where numbers come from.
    pub from: From,
    /// `timeout = "2s"`.
    pub timeout: Duration,
}

/// Where numbers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    /// `from = "command"`: what a program prints, JSON or `key=value` lines.
    Command(Vec<String>),
    /// `from = "prometheus"`.
    Prometheus {
        /// `url = "http://127.0.0.1:9100/metrics"`: host, port and path.
        host: String,
        /// See `host`.
        port: u16,
        /// See `host`.
        path: String,
        /// `metric = "..."`: name of the samples, which are added up.
        metric: String,
        /// `labels = { ... }`: those that samples must have.
        labels: BTreeMap<String, String>,
        /// `gives = "sessions"`.
        gives: Quantity,
        /// `rate = true`: it is a counter, and what it grows by a second is wanted.
        rate: bool,
        /// `scale = 8`: multiplies the number.
        scale: f64,
    },
    /// `from = "ipvs"`: the kernel's balancer.
    Ipvs,
    /// `from = "conntrack"`: the kernel's connection tracking.
    Conntrack,
    /// `from = "tcp"`: TCP connections of this host.
    Tcp,
    /// `from = "interface"`: bandwidth of a network interface.
    Interface {
        /// `interface = "eth0"`.
        name: String,
        /// `direction = "out"`: what it sends; else what it receives.
        out: bool,
    },
}

impl From {
    /// How it is called in the log.
    pub fn name(&self) -> String {
        match self {
            Self::Command(argv) => format!("command {}", argv.join(" ")),
            Self::Prometheus {
                host, port, metric, ..
            } => format!("prometheus {host}:{port} {metric}"),
            Self::Ipvs => "ipvs".into(),
            Self::Conntrack => "conntrack".into(),
            Self::Tcp => "tcp".into(),
            Self::Interface { name, .. } => format!("interface {name}"),
        }
    }
}

/// `[rtt]`: how round-trip times are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// `enabled = true`.
    pub enabled: bool,
    /// `samples = 3`: the median of so many.
    pub samples: u32,
    /// `per_second = 20`: probes that are sent at most, over all prefixes.
    pub per_second: u32,
    /// `timeout = "900ms"`: a probe without a reply for so long is lost. Below a second, so that a SYN that the kernel
    /// sends again does not count.
    pub timeout: Duration,
    /// `tcp_ports = [53, 443, 80]`: tried in turn when ICMP gets no reply.
    pub tcp_ports: Vec<u16>,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            enabled: true,
            samples: 3,
            per_second: 20,
            timeout: Duration::from_millis(900),
            tcp_ports: vec![53, 443, 80],
        }
    }
}

/// Loads an agent's configuration; warnings beside it.
///
/// # Errors
/// Everything that is wrong, in the order of the file.
pub fn load(path: &Path) -> Result<(AgentConfig, Diagnostics), Diagnostics> {
    let base = path.parent().unwrap_or(Path::new(""));
    config::read_other(path, |document| agent(document, base))
}

fn agent(document: &Table<'_>, base: &Path) -> Option<AgentConfig> {
    let site = document.need("site").and_then(|value| value.word(NAME_MAX));
    let token = document.need("token_file");
    let token = token.and_then(|value| reports::tokens(&value, base).into_iter().next());
    let check = document
        .get("check")
        .and_then(|value| value.table("[check]"))
        .and_then(|table| table.read(read_check));
    let appliance = |table: &Table<'_>| appliance(table, base);
    let appliances = document.tables("appliance", "[[appliance]]", appliance);
    if appliances.is_empty() && document.get("appliance").is_none() {
        let help = Some("add one with `address` and `fingerprint`".into());
        document
            .report
            .error_help(0..0, "there is no [[appliance]] to report to", help);
    }
    let members = document.tables("member", "[[member]]", |table| member(table, check.as_ref()));
    let members: Vec<_> = members.into_iter().flatten().collect();
    let mut seen = HashSet::new();
    for (member, value) in &members {
        if !seen.insert(member.address) {
            value.wrong::<()>(format!("member {} is there twice", member.address));
        }
    }
    let readings = document.tables("reading", "[[reading]]", reading);
    let rtt = match document.get("rtt").and_then(|value| value.table("[rtt]")) {
        Some(table) => table.read(rtt),
        None => Rtt::default(),
    };
    Some(AgentConfig {
        site: site?.to_owned(),
        token: token?,
        appliances: appliances.into_iter().flatten().collect(),
        members: members.into_iter().map(|(member, _)| member).collect(),
        readings: readings.into_iter().flatten().collect(),
        rtt,
    })
}

/// `[[appliance]]`.
fn appliance(table: &Table<'_>, base: &Path) -> Option<Appliance> {
    let address = table.need("address").and_then(|value| {
        let text = value.word(253 + 6)?;
        host_and_port(text).or_else(|| {
            value.wrong(format!(
                "`{text}` is not a host or HOST:PORT such as 192.0.2.1:8853"
            ))
        })
    });
    let (fingerprint, ca, name) = (
        table.get("fingerprint"),
        table.get("ca"),
        table.get("server_name"),
    );
    let trust = match (&fingerprint, &ca) {
        (Some(value), None) => {
            if let Some(name) = &name {
                name.wrong::<()>(
                    "`server_name` goes with `ca`: a fingerprint is of one certificate, whatever its name",
                );
            }
            fingerprint_of(value).map(Trust::Fingerprint)
        }
        (None, Some(value)) => value.string().map(|file| Trust::Authority {
            file: base.join(file),
            name: String::new(),
        }),
        (Some(value), Some(_)) => value.wrong("either `fingerprint` or `ca`, not both"),
        (None, None) => {
            let message =
                "[[appliance]] has neither `fingerprint` nor `ca`: anybody could answer in its name";
            let help =
                "the appliance's log and `windrose status` show its fingerprint: add `fingerprint = \"...\"`";
            table
                .report
                .error_help(table.span.clone(), message, Some(help.into()));
            None
        }
    };
    let (host, port) = address?;
    let trust = match trust? {
        Trust::Authority { file, .. } => Trust::Authority {
            file,
            name: name.and_then(|value| value.word(253)).unwrap_or(&host).to_owned(),
        },
        pinned => pinned,
    };
    Some(Appliance { host, port, trust })
}

/// Host and port of `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address.to_string(), PORT));
    }
    if let Ok(both) = text.parse::<std::net::SocketAddr>() {
        return Some((both.ip().to_string(), both.port())).filter(|(_, port)| *port > 0);
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (text, PORT),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (!host.is_empty() && host.chars().all(good)).then(|| (host.to_owned(), port))
}

/// 64 hexadecimal digits, with or without colons.
fn fingerprint_of(value: &Value<'_>) -> Option<[u8; 32]> {
    let text: String = value.string()?.chars().filter(|c| *c != ':').collect();
    let digits: Option<Vec<u8>> = text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let bytes: Option<[u8; 32]> = digits.and_then(|digits| {
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |a, d| a << 4 | d))
            .collect();
        if digits.len() == 64 {
            bytes.try_into().ok()
        } else {
            None
        }
    });
    bytes.or_else(|| value.wrong("`fingerprint` is the SHA-256 of a certificate: 64 hexadecimal digits"))
}

/// `[[member]]`, and its address to point at.
fn member<'a>(table: &Table<'a>, usual: Option<&Check>) -> Option<(Member, Value<'a>)> {
    let value = table.need("address");
    let address = value.as_ref().and_then(Value::address);
    let check = match table.get("check") {
        Some(value) => value
            .table("check = { ... }")
            .and_then(|table| table.read(read_check)),
        None => usual.cloned(),
    };
    Some((
        Member {
            address: address?,
            check,
        },
        value?,
    ))
}

/// `[[reading]]`.
fn reading(table: &Table<'_>) -> Option<Reading> {
    const KINDS: [&str; 6] = ["command", "prometheus", "ipvs", "conntrack", "tcp", "interface"];
    let kind = table
        .need("from")
        .and_then(|value| value.choice(&KINDS.map(|kind| (kind, kind))));
    let timeout = table.get("timeout").and_then(|value| {
        value.duration(
            Duration::from_millis(10)..=Duration::from_secs(60),
            "from 10ms to 1m",
        )
    });
    let from = match kind? {
        "command" => table.need("command").and_then(|value| command(&value)),
        "prometheus" => prometheus(table),
        "ipvs" => Some(From::Ipvs),
        "conntrack" => Some(From::Conntrack),
        "tcp" => Some(From::Tcp),
        _ => {
            let name = table.need("interface").and_then(|value| value.word(15));
            let out = table
                .get("direction")
                .and_then(|v| v.choice(&[("out", true), ("in", false)]));
            Some(From::Interface {
                name: name?.to_owned(),
                out: out.unwrap_or(true),
            })
        }
    };
    Some(Reading {
        from: from?,
        timeout: timeout.unwrap_or(Duration::from_secs(2)),
    })
}

fn command(value: &Value<'_>) -> Option<From> {
    let items = value.some_items("name the program, then its arguments");
    let argv: Vec<String> = items
        .iter()
        .filter_map(|item| {
            let text = item.string()?;
            if text.contains('\0') {
                return item.wrong("an argument cannot hold a NUL byte");
            }
            Some(text.to_owned())
        })
        .collect();
    (!argv.is_empty() && argv.len() == items.len()).then_some(From::Command(argv))
}

fn prometheus(table: &Table<'_>) -> Option<From> {
    let url = table.need("url").and_then(|value| {
        let text = value.word(1024)?;
        let parts = text.strip_prefix("http://").and_then(|rest| {
            let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            let (host, port) = match host_and_port(host)? {
                (host, PORT) if !rest.contains(&format!(":{PORT}")) => (host, 80),
                both => both,
            };
            Some((host, port, path.to_owned()))
        });
        parts.or_else(|| {
            value.wrong(format!(
                "`{text}` is not http://HOST:PORT/PATH; over TLS use a command"
            ))
        })
    });
    let metric = table
        .need("metric")
        .and_then(|value| value.word(256))
        .map(str::to_owned);
    let mut labels = BTreeMap::new();
    if let Some(given) = table
        .get("labels")
        .and_then(|value| value.table("labels = { NAME = \"VALUE\" }"))
    {
        for (name, value) in given.pairs() {
            if let Some(text) = value.string() {
                labels.insert(name.value.to_owned(), text.to_owned());
            }
        }
    }
    let quantities = [
        ("sessions", Quantity::Sessions),
        ("bandwidth", Quantity::Bandwidth),
        ("connections-per-second", Quantity::Connections),
    ];
    let gives = table.need("gives").and_then(|value| value.choice(&quantities));
    let rate = table
        .get("rate")
        .and_then(|value| value.boolean())
        .unwrap_or(false);
    let scale = table.get("scale").and_then(|value| {
        let scale = value.number()?;
        if !(scale > 0.0 && scale.is_finite()) {
            return value.wrong("`scale` must be above 0");
        }
        Some(scale)
    });
    let (host, port, path) = url?;
    Some(From::Prometheus {
        host,
        port,
        path,
        metric: metric?,
        labels,
        gives: gives?,
        rate,
        scale: scale.unwrap_or(1.0),
    })
}

/// `[rtt]`.
fn rtt(table: &Table<'_>) -> Rtt {
    let usual = Rtt::default();
    let number = |key, range| table.get(key).and_then(|value| value.integer::<u32>(range));
    let timeout = table.get("timeout").and_then(|value| {
        value.duration(
            Duration::from_millis(10)..=Duration::from_millis(990),
            "from 10ms to 990ms",
        )
    });
    let ports = table.get("tcp_ports").and_then(|value| value.items());
    let ports = ports.map(|items| items.iter().filter_map(|item| item.integer(1..=65535)).collect());
    Rtt {
        enabled: table
            .get("enabled")
            .and_then(|value| value.boolean())
            .unwrap_or(usual.enabled),
        samples: number("samples", 1..=20).unwrap_or(usual.samples),
        per_second: number("per_second", 1..=10_000).unwrap_or(usual.per_second),
        timeout: timeout.unwrap_or(usual.timeout),
        tcp_ports: ports.unwrap_or(usual.tcp_ports),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
