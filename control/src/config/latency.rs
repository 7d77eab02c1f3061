//! `[latency]` and what ports are for: how response latency is measured on users' traffic. Read by `config::load`.

use super::reader::{Report, Table};
use super::sections::PlacedPort;
use dataplane::tables::servers::QUIC_PORTS;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[latency]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// `flows = 1000000`: flows that each worker can keep, 95 bytes each.
    pub flows: u32,
    /// `idle = "60s"`: a flow for which nothing came for that long is forgotten.
    pub idle: Duration,
    /// `cutoff = "1s"`: what takes that long is a pause and no answer.
    pub cutoff: Duration,
    /// `epoch = "1s"`: time over which a flow's mean is taken.
    pub epoch: Duration,
    /// `quic_ports = [443]`: UDP ports of QUIC.
    pub quic_ports: Vec<u16>,
    /// `quic_id = 8`: bytes of a connection id that tell QUIC flows apart; no more than the servers' ids are long.
    pub quic_id: u8,
    /// `window = "30s"`: figures and evidence are of that time.
    pub window: Duration,
    /// `hold = "2m"`: the best site and one that comes near to it share the clients for that long; zero: not at all.
    pub hold: Duration,
    /// `cells = 2000`: clients and sites that figures are kept of.
    pub cells: usize,
    /// `file`: where samples are written to, if anywhere.
    pub file: Option<PathBuf>,
    /// `file_size = "64MB"`: a file that would get longer is turned over.
    pub file_size: u64,
    /// `file_keep = 4`: files that are kept, with the one in use.
    pub file_keep: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            flows: 1_000_000,
            idle: Duration::from_secs(60),
            cutoff: Duration::from_secs(1),
            epoch: Duration::from_secs(1),
            quic_ports: vec![443],
            quic_id: 8,
            window: Duration::from_secs(30),
            hold: Duration::from_secs(120),
            cells: 2000,
            file: None,
            file_size: 64 << 20,
            file_keep: 4,
        }
    }
}

/// What a port is for: `role` of `[[port]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Its addresses are answered.
    #[default]
    Service,
    /// It gets copies of users' traffic; its addresses, if any, are where GRE and ERSPAN copies are sent to.
    Mirror,
    /// Traffic passes between it and the port of that name.
    Bridge(String),
}

/// `[latency]`. A relative file is taken from the folder `base`, where the TOML file lies.
pub(crate) fn latency(table: &Table<'_>, base: &Path) -> Latency {
    let plain = Latency::default();
    let duration = |key, range, limits, default| {
        let value = table.get(key).and_then(|value| value.duration(range, limits));
        value.unwrap_or(default)
    };
    let millis = Duration::from_millis;
    let mut quic_ports = plain.quic_ports;
    if let Some(value) = table.get("quic_ports") {
        let items = value.items().unwrap_or_default();
        if items.len() > QUIC_PORTS {
            let _: Option<()> = value.wrong(format!(
                "`quic_ports` takes {QUIC_PORTS} ports at most, not {}",
                items.len()
            ));
        }
        quic_ports = items.iter().filter_map(|item| item.integer(1..=65_535)).collect();
    }
    Latency {
        flows: table
            .get("flows")
            .and_then(|value| value.integer(1_000..=100_000_000))
            .unwrap_or(plain.flows),
        idle: duration(
            "idle",
            millis(5_000)..=millis(240_000),
            "from 5s to 4m",
            plain.idle,
        ),
        cutoff: duration(
            "cutoff",
            millis(10)..=millis(10_000),
            "from 10ms to 10s",
            plain.cutoff,
        ),
        epoch: duration(
            "epoch",
            millis(10)..=millis(60_000),
            "from 10ms to 1m",
            plain.epoch,
        ),
        quic_ports,
        quic_id: table
            .get("quic_id")
            .and_then(|value| value.integer(0..=8))
            .unwrap_or(plain.quic_id),
        window: duration(
            "window",
            millis(1_000)..=millis(300_000),
            "from 1s to 5m",
            plain.window,
        ),
        hold: duration("hold", millis(0)..=millis(3_600_000), "from 0s to 1h", plain.hold),
        cells: table
            .get("cells")
            .and_then(|value| value.integer::<u32>(1..=1_000_000))
            .map_or(plain.cells, |cells| cells as usize),
        file: table
            .get("file")
            .and_then(|value| Some(base.join(value.string()?))),
        file_size: table
            .get("file_size")
            .and_then(|value| value.size(1_000..=1 << 40, "from 1kB to 1TB"))
            .unwrap_or(plain.file_size),
        file_keep: table
            .get("file_keep")
            .and_then(|value| value.integer(1..=1000))
            .unwrap_or(plain.file_keep),
    }
}

/// The role of a port; service where it is wrong.
pub(crate) fn role(table: &Table<'_>) -> Role {
    let pair = table.get("pair");
    let pair_name = pair
        .as_ref()
        .and_then(|value| value.word(super::sections::NAME_MAX));
    let roles = [("service", 0), ("mirror", 1), ("bridge", 2)];
    let role = table.get("role").and_then(|value| value.choice(&roles));
    if role != Some(2)
        && let Some(value) = pair
    {
        let _: Option<()> = value.wrong("`pair` is for ports with `role = \"bridge\"`");
    }
    match (role, pair_name) {
        (Some(1), _) => Role::Mirror,
        (Some(2), Some(pair)) => Role::Bridge(pair.to_owned()),
        (Some(2), None) => {
            let help = Some("name the port that traffic goes on to".to_owned());
            table
                .report
                .error_help(table.span.clone(), "a bridge port needs `pair`", help);
            Role::Service
        }
        _ => Role::Service,
    }
}

/// Bridge ports are each other's pair.
pub(crate) fn pairs(report: &Report, ports: &[PlacedPort]) {
    for port in ports {
        let Role::Bridge(pair) = &port.port.role else {
            continue;
        };
        let other = ports.iter().find(|other| other.port.name == *pair);
        let name = &port.port.name;
        let (message, help) = match other.map(|other| &other.port) {
            None => (
                format!("port `{name}`: there is no port `{pair}`"),
                "`pair` names another [[port]]",
            ),
            Some(_) if pair == name => (
                format!("port `{name}` is its own pair"),
                "`pair` names another [[port]]",
            ),
            Some(other) if other.role != Role::Bridge(name.clone()) => (
                format!("port `{pair}` is not a bridge port whose pair is `{name}`"),
                "both need `role = \"bridge\"`, and each the other's name as `pair`",
            ),
            Some(_) => continue,
        };
        report.error_help(port.span.clone(), message, Some(help.into()));
    }
}
