//! `windrose latency`: what a running appliance measures (`latency_matrix`); with `--pcap` what it would measure on a capture,
//! flow by flow, with the same stage.
//!
//! Exit code 0; 1 when the capture cannot be read or the appliance refuses; 2 when none answers.

use super::latency_matrix;
use crate::admin::client;
use crate::capture;
use crate::config::units;
use crate::policy::servers::span;
use anyhow::{Context, Result};
use dataplane::arch::TickRate;
use dataplane::flow::estimate::{Confidence, Doubts, Kind, Rules};
use dataplane::flow::{Key, Moment};
use dataplane::io::Window;
use dataplane::link::LatencySample;
use dataplane::stages::flow_latency::sight::Sight;
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables, Taken};
use dataplane::tables::Classes;
use dataplane::tables::servers::{Server, Servers, Watching};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Frames between two looks at idle flows.
const AGEING: u64 = 64;

/// Show the response latency of users' traffic, by clients and site: of a running appliance, or flow by flow of a capture.
///
/// One direction of the traffic is enough. p50, p90 and p99 are of the responses, from a request to the next one that its answer
/// caused, in the window that [latency] names, and the trend compares their median with that of the minutes before; `answer` is
/// without think time, `handshake` that of TCP. Responses of low confidence are counted apart and steer nothing.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Admin socket of the appliance.
    #[arg(long, value_name = "PATH", default_value = client::DEFAULT_SOCKET, conflicts_with = "pcap")]
    socket: PathBuf,
    /// Show members too, not only sites.
    #[arg(long, conflicts_with = "pcap")]
    members: bool,
    /// Measure this capture instead: pcap or pcapng.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// With --pcap: measure these servers alone, such as 203.0.113.0/24; may be given several times. Without, whatever a SYN was sent to or,
    /// where none was seen, the side with the lower port.
    #[arg(long, value_name = "PREFIX")]
    server: Vec<IpNet>,
    /// With --pcap: what takes that long is a pause of the client, and no answer.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    cutoff: Duration,
    /// With --pcap: UDP ports of QUIC, four at most.
    #[arg(long, value_name = "PORT", default_value = "443")]
    quic_port: Vec<u16>,
    /// With --pcap: bytes of a connection id that tell QUIC flows apart, 0 to 8.
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u8).range(0..=8))]
    quic_id: u8,
    /// With --pcap: flows shown, those with most responses.
    #[arg(long, value_name = "N", default_value_t = 20)]
    flows: usize,
    /// Print JSON, with all there is.
    #[arg(long)]
    json: bool,
}

/// Samples of one flow, or of one server.
#[derive(Default)]
struct Figures {
    packets: u64,
    flows: u64,
    /// Microseconds, by kind.
    responses: Vec<u32>,
    answers: Vec<u32>,
    handshakes: Vec<u32>,
    retransmitted: u64,
    /// Responses by confidence.
    low: u64,
    fair: u64,
    doubts: Doubts,
}

/// A flow of the capture.
struct Flow {
    client: SocketAddr,
    server: SocketAddr,
    protocol: u8,
    figures: Figures,
}

/// What a capture gave.
struct Measured {
    flows: Vec<Flow>,
    servers: BTreeMap<IpAddr, Figures>,
    packets: u64,
    unmeasured: u64,
    unknown: u64,
    refused: u64,
    took: Duration,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let Some(pcap) = &self.pcap else {
            return latency_matrix::show(&self.socket, self.members, self.json);
        };
        match self.measure(pcap) {
            Ok(measured) => {
                let text = if self.json {
                    format!("{:#}\n", measured.json())
                } else {
                    measured.text(self.flows)
                };
                // A closed pipe is no reason to end badly.
                let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("windrose: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn measure(&self, pcap: &Path) -> Result<Measured> {
        let list = self.server.iter().map(|net| Server {
            address: net.network(),
            len: net.prefix_len(),
            site: None,
        });
        let mut watching = Watching {
            rules: Rules {
                cutoff: span(self.cutoff),
                ..Rules::default()
            },
            quic_id: self.quic_id,
            quic_ports: [0; 4],
            all: self.server.is_empty(),
        };
        for (to, from) in watching.quic_ports.iter_mut().zip(&self.quic_port) {
            *to = *from;
        }
        let servers = Servers::build(list.collect(), watching)?;
        let classes = Classes::build(vec![], vec![], 1)?;
        let tables = Tables {
            classes: &classes,
            servers: &servers,
        };
        let limits = FlowLimits::default();
        let mut stage = FlowLatency::new(limits, fastrand::u64(..), TickRate::from_hz(1_000_000_000))
            .context("no memory for the flow table")?;
        let mut flows: HashMap<Key, Flow> = HashMap::new();
        let mut told: Vec<LatencySample> = Vec::new();
        let (mut packets, mut unmeasured) = (0u64, 0);
        let begun = Instant::now();
        let unknown = capture::read(pcap, |frame| {
            let now = Moment::from_nanos(frame.at);
            packets += 1;
            if packets.is_multiple_of(AGEING) {
                stage.age(now);
            }
            let (sight, taken) =
                stage.frame(frame.window, frame.len, now, tables, |sample| told.push(sample));
            if taken == Taken::Not {
                unmeasured += 1;
                return;
            }
            // A flow that aged out and came back is the same to who reads this.
            let flow = flows
                .entry(sight.key)
                .or_insert_with(|| Flow::of(&sight, frame.window));
            flow.figures.packets += 1;
            for sample in told.drain(..) {
                flow.figures.add(&sample);
            }
        })?;
        let took = begun.elapsed();
        let mut flows: Vec<Flow> = flows.into_values().collect();
        flows.sort_by_key(|f| (std::cmp::Reverse(f.figures.responses.len()), f.client, f.server));
        let mut by_server: BTreeMap<IpAddr, Figures> = BTreeMap::new();
        for flow in &mut flows {
            flow.figures.sort();
            by_server
                .entry(flow.server.ip())
                .or_default()
                .merge(&flow.figures);
        }
        by_server.values_mut().for_each(Figures::sort);
        let refused = stage.table().tallies().refused + stage.table().tallies().evicted;
        Ok(Measured {
            flows,
            servers: by_server,
            packets,
            unmeasured,
            unknown,
            refused,
            took,
        })
    }
}

impl Flow {
    fn of(sight: &Sight, window: &Window) -> Self {
        let (l3, l4) = (sight.l3(), sight.l4());
        let v4 = |at: usize| {
            IpAddr::from(
                window
                    .get(at..)
                    .and_then(|b| b.first_chunk::<4>())
                    .copied()
                    .unwrap_or_default(),
            )
        };
        let v6 = |at: usize| -> IpAddr {
            let octets = window
                .get(at..)
                .and_then(|b| b.first_chunk::<16>())
                .copied()
                .unwrap_or_default();
            Ipv6Addr::from(octets).into()
        };
        let (client, server) = if sight.v6() {
            (v6(l3 + 8), v6(l3 + 24))
        } else {
            (v4(l3 + 12), v4(l3 + 16))
        };
        let port = |at: usize| match sight.protocol() {
            6 | 17 => window
                .get(at..)
                .and_then(|b| b.first_chunk())
                .map_or(0, |b| u16::from_be_bytes(*b)),
            _ => 0,
        };
        Self {
            client: SocketAddr::new(client, port(l4)),
            server: SocketAddr::new(server, port(l4 + 2)),
            protocol: sight.protocol(),
            figures: Figures {
                flows: 1,
                ..Figures::default()
            },
        }
    }

    fn protocol(&self) -> String {
        match self.protocol {
            6 => "tcp".into(),
            17 => "udp".into(),
            47 => "gre".into(),
            50 => "esp".into(),
            other => other.to_string(),
        }
    }

    fn json(&self) -> Value {
        let mut value = self.figures.json();
        value["client"] = json!(self.client);
        value["server"] = json!(self.server);
        value["protocol"] = json!(self.protocol());
        value
    }
}

impl Figures {
    fn add(&mut self, told: &LatencySample) {
        let sample = told.sample;
        let micros = sample.value.0 / dataplane::flow::Span::PER_MICRO;
        match sample.kind {
            Kind::Response => {
                self.responses.push(micros);
                self.low += u64::from(sample.doubts.confidence() == Confidence::Low);
                self.fair += u64::from(sample.doubts.confidence() == Confidence::Fair);
                self.doubts = self.doubts.and(sample.doubts);
            }
            Kind::Answer => self.answers.push(micros),
            Kind::Handshake => self.handshakes.push(micros),
            Kind::Retransmitted => self.retransmitted += u64::from(sample.value.0),
            Kind::Epoch => {}
        }
    }

    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.flows += other.flows;
        self.responses.extend(&other.responses);
        self.answers.extend(&other.answers);
        self.handshakes.extend(&other.handshakes);
        self.retransmitted += other.retransmitted;
        self.low += other.low;
        self.fair += other.fair;
        self.doubts = self.doubts.and(other.doubts);
    }

    fn sort(&mut self) {
        for list in [&mut self.responses, &mut self.answers, &mut self.handshakes] {
            list.sort_unstable();
        }
    }

    /// "low" when most responses are, as are those of a flow of which nothing else is known.
    fn confidence(&self) -> Confidence {
        let responses = self.responses.len() as u64;
        if self.low * 2 > responses {
            Confidence::Low
        } else if (self.low + self.fair) * 2 > responses {
            Confidence::Fair
        } else {
            Confidence::High
        }
    }

    fn json(&self) -> Value {
        let quantiles = |list: &[u32]| {
            json!({
                "count": list.len(),
                "p50_us": quantile(list, 50),
                "p90_us": quantile(list, 90),
                "p99_us": quantile(list, 99),
            })
        };
        json!({
            "packets": self.packets,
            "response": quantiles(&self.responses),
            "answer": quantiles(&self.answers),
            "handshake": quantiles(&self.handshakes),
            "retransmitted": self.retransmitted,
            "low_confidence": self.low,
            "confidence": self.confidence().name(),
            "doubts": self.doubts.names().collect::<Vec<_>>(),
        })
    }

    /// The columns of the table.
    fn row(&self) -> String {
        let time = |list: &[u32], per_cent| quantile(list, per_cent).map_or("-".to_owned(), milliseconds);
        let doubts: Vec<&str> = self.doubts.names().collect();
        format!(
            "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}  {:<5} {}",
            self.packets,
            self.responses.len(),
            time(&self.responses, 50),
            time(&self.responses, 90),
            time(&self.responses, 99),
            time(&self.answers, 50),
            time(&self.handshakes, 50),
            self.retransmitted,
            if self.responses.is_empty() {
                "-"
            } else {
                self.confidence().name()
            },
            doubts.join(", "),
        )
    }
}

/// What `row` has.
const COLUMNS: &str =
    "  packets responses    p50 ms    p90 ms    p99 ms    answer handshake   again  trust doubts";

/// Of a sorted list.
fn quantile(sorted: &[u32], per_cent: usize) -> Option<u32> {
    let at = (sorted.len() * per_cent / 100).min(sorted.len().checked_sub(1)?);
    sorted.get(at).copied()
}

fn milliseconds(micros: u32) -> String {
    format!("{:.3}", f64::from(micros) / 1000.0)
}

impl Measured {
    fn rate(&self) -> f64 {
        self.packets as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn json(&self) -> Value {
        let servers = self.servers.iter().map(|(address, figures)| {
            let mut value = figures.json();
            value["server"] = json!(address);
            value["flows"] = json!(figures.flows);
            value
        });
        json!({
            "packets": self.packets,
            "packets_per_second": self.rate() as u64,
            "unmeasured": self.unmeasured,
            "unknown_link_type": self.unknown,
            "flows_without_room": self.refused,
            "servers": servers.collect::<Vec<_>>(),
            "flows": self.flows.iter().map(Flow::json).collect::<Vec<_>>(),
        })
    }

    fn text(&self, shown: usize) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} packets in {:.2} s ({:.2} M/s); {} of {} flows; {} packets to no server",
            self.packets,
            self.took.as_secs_f64(),
            self.rate() / 1e6,
            self.packets - self.unmeasured,
            self.flows.len(),
            self.unmeasured,
        );
        if self.unknown > 0 {
            let _ = writeln!(out, "{} frames of a link type that is not known", self.unknown);
        }
        if self.refused > 0 {
            let _ = writeln!(out, "{} flows found no room or lost it", self.refused);
        }
        let _ = writeln!(out, "\n{:<46}{COLUMNS}", "server");
        for (address, figures) in &self.servers {
            let name = format!("{address} ({} flows)", figures.flows);
            let _ = writeln!(out, "{name:<46}{}", figures.row());
        }
        let _ = writeln!(out, "\n{:<46}{COLUMNS}", "flow");
        for flow in self.flows.iter().take(shown) {
            let name = format!("{} {} > {}", flow.protocol(), flow.client, flow.server);
            let _ = writeln!(out, "{name:<46}{}", flow.figures.row());
        }
        if self.flows.len() > shown {
            let _ = writeln!(out, "... {} more: --flows N", self.flows.len() - shown);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn measure(name: &str, more: &[&str]) -> Value {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures");
        let path = folder.join(name).to_string_lossy().into_owned();
        let args = [&["latency", "--pcap", &path][..], more].concat();
        let args = Line::parse_from(args).args;
        args.measure(args.pcap.as_deref().unwrap()).unwrap().json()
    }

    /// A page fetched once, in frames with a priority tag. By the stamps of the capture: SYN .869344, ACK .939378; request
    /// .939527, last acknowledgment of the answer 70.360 ms later; then FIN.
    #[test]
    fn a_real_page_is_measured_to_its_last_acknowledgment() {
        for server in [&[][..], &["--server", "192.150.187.43/32"]] {
            let got = measure("vlan-priority-tag.pcap", server);
            assert_eq!(got["packets"], 14);
            let flow = &got["flows"][0];
            assert_eq!(flow["client"], "141.142.228.5:59856");
            assert_eq!(flow["server"], "192.150.187.43:80");
            assert_eq!(flow["packets"], 7);
            assert_eq!(flow["handshake"]["p50_us"], 70_034);
            assert_eq!(flow["answer"]["p50_us"], 70_360);
            assert_eq!(flow["response"]["count"], 0);
            assert_eq!(got["flows"].as_array().unwrap().len(), 1);
        }
        assert_eq!(
            measure("vlan-priority-tag.pcap", &["--server", "192.0.2.0/24"])["unmeasured"],
            14
        );
    }

    #[test]
    fn what_is_no_capture_is_said() {
        let args = Line::parse_from([
            "latency",
            "--pcap",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .args;
        let error = args.measure(args.pcap.as_deref().unwrap()).err().unwrap();
        assert!(
            error.to_string().contains("neither a pcap nor a pcapng file"),
            "{error}"
        );
    }
}
