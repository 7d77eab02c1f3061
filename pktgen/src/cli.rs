//! The command line of `pktgen`, checked into [`Settings`].

use crate::clock::Idle;
use crate::dns::Settings;
use crate::dns::expect::Expect;
use crate::dns::names::{self, Mix, Queries};
use crate::dns::schedule::{Limit, Pace};
use crate::dns::template::Ecs;
use clap::{ArgGroup, Args, Parser, Subcommand};
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::PathBuf;

/// Packet generator of Windrose: DNS load over raw frames, on any DPDK port.
#[derive(Debug, Parser)]
#[command(name = "pktgen", version, about, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `pktgen` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a DNS server with queries and judge its replies
    Dns(Box<DnsArgs>),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  more was lost or wrong than --max-loss allows
  2  the command line is wrong, or the run could not begin";

const DNS_HELP: &str = "\
Examples:
  1,000 q/s for 10 s over a veth interface, addresses 192.0.2.2 to 192.0.2.254:
    pktgen dns --port net_af_packet0,iface=veth0 --server 192.0.2.1 --source 192.0.2.0/24 \\
        --name 'host{0-999}.example.com' --rate 1000

  What a port can send, nobody answering (compare dpdk-testpmd --forward-mode=txonly):
    pktgen dns --port net_null0,no-rx=1 --server 192.0.2.1 --server-mac 02:00:00:00:00:02 \\
        --source 10.0.0.0/8 --name 'host{0-9999}.example.com' --flat-out --duration 5s

  Names from a file of dnsperf, clients of many networks told by ECS, JSON, fail on any loss:
    pktgen dns --port 0000:01:00.0 --server 198.51.100.53 --gateway 192.0.2.1 --source 192.0.2.128/25 \\
        --names queries.txt --rate 2M --ecs 10.0.0.0/8 --json --max-loss 0

The load is open loop: a query is due when the rate says so, whether or not earlier ones were answered, and its latency
counts from then, not from when the port took it. A server or port that stalls is charged with the whole stall.

Source addresses are drawn from --source. pktgen answers ARP, neighbour solicitations and echo for all of them. A kernel
keeps a neighbour entry for each, 1,024 at most by default: for wider prefixes give it a route to the prefix by one of its
addresses (ip route add PREFIX via ADDRESS). No IP address may be set on the interface that an af_packet port uses.

JSON: sent = answered + lost; replies = answered + wrong + duplicates + late. Times of latency_us are microseconds.

Exit codes:
  0  done
  1  more was lost or wrong than --max-loss allows
  2  the command line is wrong, or the run could not begin";

/// Options of `pktgen dns`.
#[derive(Debug, Args)]
#[command(after_help = DNS_HELP, group = ArgGroup::new("what").required(true).args(["name", "names"]), group = ArgGroup::new("pace").required(true).args(["rate", "flat_out"]))]
pub struct DnsArgs {
    /// DPDK port: a PCI address, or a virtual device with its arguments
    #[arg(long, value_name = "DEVARGS", help_heading = "Port and addresses")]
    pub port: String,
    /// Address of the DNS server
    #[arg(long, value_name = "IP", help_heading = "Port and addresses")]
    pub server: IpAddr,
    /// Its MAC address [default: asked by ARP or neighbour discovery]
    #[arg(long, value_name = "MAC", value_parser = mac, help_heading = "Port and addresses")]
    pub server_mac: Option<Mac>,
    /// Prefix that source addresses are drawn from
    #[arg(long, value_name = "PREFIX", value_parser = prefix, help_heading = "Port and addresses")]
    pub source: IpNet,
    /// Router to the server, when that is not on the link
    #[arg(
        long,
        value_name = "IP",
        conflicts_with = "server_mac",
        help_heading = "Port and addresses"
    )]
    pub gateway: Option<IpAddr>,
    /// 802.1Q tag of all frames
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094), help_heading = "Port and addresses")]
    pub vlan: Option<u16>,

    /// Queries per second, such as 5000, 200k or 1.5M
    #[arg(long, value_name = "QPS", value_parser = rate, help_heading = "Load")]
    pub rate: Option<u64>,
    /// As fast as the port takes queries
    #[arg(long, help_heading = "Load")]
    pub flat_out: bool,
    /// How long to send, such as 500ms, 10s or 2m [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "count", help_heading = "Load")]
    pub duration: Option<u64>,
    /// How many queries to send
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Load")]
    pub count: Option<u64>,
    /// Longest wait for a reply
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s", help_heading = "Load")]
    pub timeout: u64,

    /// File of lines 'name type', as dnsperf reads; or of names alone, with --types. Asked in order, over and over
    #[arg(long, value_name = "FILE", help_heading = "Queries")]
    pub names: Option<PathBuf>,
    /// A name, with ranges such as host{0-999}.example.com
    #[arg(long, value_name = "PATTERN", help_heading = "Queries")]
    pub name: Option<String>,
    /// Types with weights, such as A:3,AAAA:1, drawn per query [default: A]
    #[arg(long, value_name = "MIX", help_heading = "Queries")]
    pub types: Option<Mix>,
    /// Add an OPT record with this UDP payload size [default with --ecs or --dnssec-ok: 1232]
    #[arg(long, value_name = "SIZE", help_heading = "Queries")]
    pub edns: Option<u16>,
    /// Add EDNS client subnet: a random /24 (IPv4) or /56 (IPv6) of this prefix per query
    #[arg(long, value_name = "PREFIX", value_parser = prefix, help_heading = "Queries")]
    pub ecs: Option<IpNet>,
    /// Set the DO bit
    #[arg(long, help_heading = "Queries")]
    pub dnssec_ok: bool,
    /// Names in random letter case, which replies must echo ("0x20")
    #[arg(long, help_heading = "Queries")]
    pub mixed_case: bool,
    /// Seed of all random choices [default: from the system]
    #[arg(long, value_name = "N", help_heading = "Queries")]
    pub seed: Option<u64>,

    /// Judge answers: file of lines 'name address...'; only these may be given for A and AAAA of that name
    #[arg(long, value_name = "FILE", help_heading = "Judging and reporting")]
    pub verify: Option<PathBuf>,
    /// Percent of queries that may be lost, wrong or unexpected before the exit code is 1 [default: not judged]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Judging and reporting")]
    pub max_loss: Option<f64>,
    /// The report as JSON
    #[arg(long, help_heading = "Judging and reporting")]
    pub json: bool,
    /// Progress on standard error, every so often
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Judging and reporting")]
    pub interval: Option<u64>,

    /// Pin the polling thread to this core
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub core: Option<usize>,
    /// What to do when there is nothing to do
    #[arg(long, value_enum, default_value_t, help_heading = "Machine")]
    pub idle: Idle,
}

/// A MAC address.
pub type Mac = [u8; 6];

impl DnsArgs {
    /// Reads files and checks what depends on one another.
    pub fn settings(&self) -> Result<Settings, String> {
        let queries = self.queries()?;
        let expect = match &self.verify {
            Some(path) => Some(Expect::from_file(path, &queries.queries)?),
            None => None,
        };
        let ecs = match self.ecs {
            Some(net) => Some(Ecs::new(net).ok_or_else(|| {
                format!("--ecs {net} is longer than one client subnet; give at most /24 (IPv4) or /56 (IPv6)")
            })?),
            None => None,
        };
        let needs_edns = ecs.is_some() || self.dnssec_ok;
        let settings = Settings {
            server: self.server,
            server_mac: self.server_mac,
            gateway: self.gateway,
            source: self.source,
            vlan: self.vlan,
            pace: self.rate.map_or(Pace::FlatOut, Pace::Rate),
            limit: match (self.count, self.duration) {
                (Some(count), _) => Limit::Count(count),
                (None, duration) => Limit::Duration(duration.unwrap_or(10_000_000_000)),
            },
            queries,
            expect,
            edns: self.edns.or(needs_edns.then_some(1232)),
            dnssec_ok: self.dnssec_ok,
            ecs,
            mixed_case: self.mixed_case,
            timeout: self.timeout,
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
        };
        settings.clients().map_err(|e| e.to_string())?;
        Ok(settings)
    }

    fn queries(&self) -> Result<Queries, String> {
        match (&self.names, &self.name) {
            (Some(path), _) => names::from_file(path, self.types.clone()).map_err(|e| format!("--names {e}")),
            (None, Some(pattern)) => {
                let mix = self.types.clone().map_or_else(|| "A".parse(), Ok)?;
                names::from_pattern(pattern, mix).map_err(|e| format!("--name {e}"))
            }
            (None, None) => Err("give --name or --names".into()),
        }
    }
}

fn mac(text: &str) -> Result<Mac, String> {
    let bad = || format!("'{text}' is not a MAC address such as 02:00:00:00:00:01");
    let mut out = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut out {
        let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
    }
    match parts.next() {
        None if out[0] & 1 == 0 => Ok(out),
        None => Err(format!(
            "'{text}' is a group address; a server has one of its own"
        )),
        Some(_) => Err(bad()),
    }
}

fn prefix(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map(|net| net.trunc())
        .map_err(|_| format!("'{text}' is not a prefix such as 192.0.2.0/24"))
}

/// A number with an optional unit: value times the unit's factor, rounded.
fn scaled(text: &str, units: &[(&str, f64)], bad: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| bad.to_owned())?;
    let factor = units.iter().find(|u| u.0 == unit).map(|u| u.1).ok_or(bad)?;
    match (number * factor).round() {
        value if (1.0..1e18).contains(&value) => Ok(value as u64),
        _ => Err(bad.to_owned()),
    }
}

/// Most queries a second: beyond it two of them are due in one nanosecond.
const RATE_MAX: u64 = 1_000_000_000;

fn rate(text: &str) -> Result<u64, String> {
    let units = [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6)];
    let bad = format!("'{text}' is not a rate such as 5000, 200k or 1.5M (1 to 1000M)");
    scaled(text, &units, &bad).and_then(|rate| if rate <= RATE_MAX { Ok(rate) } else { Err(bad) })
}

/// Longest time that may be given: a day.
const TIME_MAX: u64 = 86_400_000_000_000;

fn duration(text: &str) -> Result<u64, String> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];
    let bad = format!("'{text}' is not a time such as 500ms, 10s or 2m (1 us to 24h)");
    scaled(text, &units, &bad).and_then(|ns| if ns <= TIME_MAX { Ok(ns) } else { Err(bad) })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const BASE: [&str; 10] = [
        "pktgen",
        "dns",
        "--port",
        "net_null0",
        "--server",
        "192.0.2.1",
        "--source",
        "192.0.2.0/24",
        "--name",
        "a{0-9}.example",
    ];

    fn parse(more: &[&str]) -> Result<Settings, String> {
        let Command::Dns(args) = Cli::try_parse_from(BASE.iter().chain(more))
            .map_err(|e| e.to_string())?
            .command;
        args.settings()
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn units() {
        assert_eq!(
            ["7", "200k", "1.5M"].map(rate),
            [Ok(7), Ok(200_000), Ok(1_500_000)]
        );
        assert_eq!(
            ["500ms", "10s", "2m"].map(duration),
            [Ok(500_000_000), Ok(10_000_000_000), Ok(120_000_000_000)]
        );
        for bad in ["", "0", "5x", "-1", "1.2.3", "1001M"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        for bad in ["", "10", "0s", "25h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(mac("02:0a:00:00:00:ff"), Ok([2, 10, 0, 0, 0, 255]));
        for bad in [
            "",
            "02:0a:00:00:00",
            "02:0a:00:00:00:ff:00",
            "2:a:0:0:0:f",
            "ff:ff:ff:ff:ff:ff",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_from_arguments() {
        let s = parse(&[
            "--rate",
            "10k",
            "--count",
            "50",
            "--types",
            "A:3,AAAA",
            "--ecs",
            "10.0.0.0/8",
        ])
        .unwrap();
        assert_eq!(
            (s.pace, s.limit, s.queries.queries.len()),
            (Pace::Rate(10_000), Limit::Count(50), 20)
        );
        assert_eq!((s.edns, s.timeout), (Some(1232), 2_000_000_000));
        let s = parse(&["--flat-out"]).unwrap();
        assert_eq!(
            (s.pace, s.limit, s.edns),
            (Pace::FlatOut, Limit::Duration(10_000_000_000), None)
        );
    }

    #[test]
    fn clear_errors() {
        for (arguments, part) in [
            (&["--rate", "1", "--flat-out"][..], "cannot be used with"),
            (&[], "--rate <QPS>"),
            (&["--rate", "1", "--names", "x"], "cannot be used with"),
            (&["--rate", "1", "--ecs", "10.0.0.0/25"], "at most /24"),
            (
                &["--rate", "1", "--gateway", "2001:db8::1"],
                "different address families",
            ),
            (&["--rate", "1", "--vlan", "4095"], "4094"),
            (
                &["--rate", "1", "--count", "1", "--duration", "1s"],
                "cannot be used with",
            ),
            (
                &["--rate", "1", "--verify", "/nonexistent"],
                "/nonexistent: No such file",
            ),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
