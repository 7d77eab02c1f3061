//! `windrose status`: the state of a running appliance as tables, or as the API's JSON.
//!
//! Exit code 0; 1 when the appliance refuses; 2 when none answers.

use super::{print_json, report};
use crate::admin::api::{
    ClientsStatus, MemberStatus, ReportsStatus, ServiceStatus, SiteReportStatus, Status, TcpStatus,
    WorkerStatus,
};
use crate::admin::client;
use crate::admin::latency::LatencyStatus;
use crate::health::Standing;
use crate::overrides::Override;
use hyper::Method;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Show ports, workers, sites and services of a running appliance.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Admin socket of the appliance.
    #[arg(long, value_name = "PATH", default_value = client::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let answer = client::request(&self.socket, Method::GET, "/v1/status");
        let shown = answer.and_then(|body| {
            if self.json {
                return print_json(&self.socket, &body);
            }
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs());
            print!("{}", render(&client::parse(&self.socket, &body)?, now));
            Ok(())
        });
        report(shown)
    }
}

/// The status as text. `now`: Unix time in seconds.
fn render(status: &Status, now: u64) -> String {
    let mut out = String::new();
    let loaded = seconds(now.saturating_sub(status.config_loaded_at) as f64);
    let _ = writeln!(
        out,
        "{} (windrose {}), up {}\nconfiguration {}, generation {}, loaded {loaded} ago",
        status.appliance,
        status.version,
        seconds(status.uptime_s as f64),
        status.config_hash.get(..12).unwrap_or(&status.config_hash),
        status.generation,
    );
    let checks = &status.checks;
    if checks.stale > 0 {
        let _ = writeln!(
            out,
            "CHECKS ARE STALE: {} of {} targets, the oldest result is {} old",
            checks.stale,
            checks.targets,
            checks.oldest_age_s.map_or_else(|| "-".into(), seconds)
        );
    }
    ports(&mut out, status);
    workers(&mut out, &status.workers);
    if let Some(status) = &status.tcp {
        tcp(&mut out, status);
    }
    sites(&mut out, status);
    if let Some(status) = &status.reports {
        reports(&mut out, status);
    }
    if let Some(status) = &status.latency {
        latency(&mut out, status);
    }
    clients(&mut out, &status.clients, now);
    for service in &status.services {
        members(&mut out, service);
    }
    overrides(&mut out, status, now);
    out
}

fn ports(out: &mut String, status: &Status) {
    let mut table = Table::new(&[
        "PORT", "DEVICE", "DRIVER", "MAC", "MTU", "LINK", ">RX", ">TX", ">MISSED", ">ERRORS", ">NO MBUF",
    ]);
    for port in &status.ports {
        let link = match (port.link_up, port.link_mbps) {
            (false, _) => "down".to_owned(),
            (true, 0) => "up".to_owned(),
            (true, mbps) => format!("up {mbps} Mb/s"),
        };
        table.row([
            port.name.clone(),
            port.device.clone(),
            port.driver.clone(),
            port.mac.clone(),
            port.mtu.to_string(),
            link,
            port.rx_packets.to_string(),
            port.tx_packets.to_string(),
            port.imissed.to_string(),
            (port.ierrors + port.oerrors).to_string(),
            port.rx_nombuf.to_string(),
        ]);
    }
    table.print(out);
}

fn workers(out: &mut String, workers: &[WorkerStatus]) {
    let mut table = Table::new(&[
        "WORKER",
        ">CPU",
        ">RECEIVED",
        ">REPLIED",
        ">DROPPED",
        ">BYTES OUT/IN",
        ">BUSY",
        ">MAX GAP",
        "STATE",
        ">GENERATION",
        ">PUBLISHED",
        ">ADOPTED",
        ">SUPERSEDED",
        ">RETIRED",
    ]);
    for worker in workers {
        table.row([
            worker.index.to_string(),
            worker.core.to_string(),
            worker.received.to_string(),
            worker.replied.to_string(),
            worker.dropped.to_string(),
            worker
                .dns_byte_ratio
                .map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            format!("{:.1}%", worker.busy_share * 100.0),
            format!("{:.0} us", worker.loop_gap_max_us),
            if worker.stalled {
                "STALLED".into()
            } else {
                "running".into()
            },
            worker.generation.to_string(),
            worker.published.to_string(),
            worker.adopted.to_string(),
            worker.superseded.to_string(),
            worker.retired.to_string(),
        ]);
    }
    table.print(out);
    for worker in workers {
        if worker.dropped_by_reason.is_empty() {
            continue;
        }
        let mut reasons: Vec<_> = worker.dropped_by_reason.iter().collect();
        reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let _ = writeln!(out, "worker {} dropped: {}", worker.index, reasons.join(", "));
    }
}

/// One line, and one more for what was refused or dropped, if anything was.
fn tcp(out: &mut String, status: &TcpStatus) {
    let of = |name: &str| status.connections.get(name).copied().unwrap_or(0);
    let _ = writeln!(
        out,
        "\nDNS over TCP: {} connections open, {} since start; {} replies",
        status.open,
        of("accepted"),
        status.replies.values().sum::<u64>(),
    );
    // What goes as it should is in the line above.
    let fine = ["accepted", "closed_by_client", "idle", "forwarded", "injected"];
    let families = [
        ("", &status.connections),
        ("punted ", &status.punted),
        ("sent ", &status.sent),
    ];
    let odd: Vec<String> = families
        .into_iter()
        .flat_map(|(side, family)| family.iter().map(move |(name, count)| (side, name, *count)))
        .filter(|(_, name, count)| *count > 0 && !fine.contains(&name.as_str()))
        .map(|(side, name, count)| format!("{side}{name} {count}"))
        .collect();
    if !odd.is_empty() {
        let _ = writeln!(out, "refused or dropped: {}", odd.join(", "));
    }
}

fn sites(out: &mut String, status: &Status) {
    let mut table = Table::new(&[
        "SITE",
        "ISP",
        ">UP",
        "REPORT",
        ">AGE",
        ">SESSIONS",
        ">BANDWIDTH",
        ">CONN/S",
        ">RTTS",
    ]);
    let number = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    for site in &status.sites {
        let isp = site.isp.clone().unwrap_or_else(|| "-".into());
        let none = SiteReportStatus::default();
        let report = site.report.as_ref().unwrap_or(&none);
        let state = match &site.report {
            None => "-".into(),
            Some(report) if report.silent => format!("SILENT ({})", report.on_silence),
            Some(report) if report.age_s.is_none() => "awaited".into(),
            Some(_) => "ok".into(),
        };
        table.row([
            site.name.clone(),
            isp,
            format!("{}/{}", site.members_up, site.members),
            state,
            report.age_s.map_or_else(|| "-".into(), seconds),
            number(report.sessions),
            report.bandwidth_bps.map_or_else(|| "-".into(), bits),
            number(report.connections_per_second),
            site.report
                .as_ref()
                .map_or_else(|| "-".into(), |report| report.rtts.to_string()),
        ]);
    }
    table.print(out);
}

/// One line, and one more for what was refused, if anything was.
fn reports(out: &mut String, status: &ReportsStatus) {
    let feed = if status.feed_down {
        "; ALL SILENT: none is avoided for it"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "\nreports on {}, certificate {}; {} prefixes for RTTs{feed}",
        status.listen, status.fingerprint, status.rtt_prefixes,
    );
    let odd: Vec<String> = status
        .requests
        .iter()
        .filter(|(name, count)| **count > 0 && *name != "taken")
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !odd.is_empty() {
        let _ = writeln!(out, "reports refused: {}", odd.join(", "));
    }
}

/// One line, and one more for what was lost, if anything was.
fn latency(out: &mut String, status: &LatencyStatus) {
    let _ = writeln!(
        out,
        "\nresponse latency: {} samples, {} of them of low confidence; {} of {} cells; answers changed by it {} times",
        status.samples, status.low, status.cells, status.cells_max, status.changes,
    );
    let (_, file) = status.file.unwrap_or_default();
    let odd: Vec<String> = [
        ("samples dropped by workers", status.lost),
        ("samples of unknown tables", status.unknown),
        ("cells that gave way", status.evicted),
        ("rows lost on the way to the file", file),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{what} {count}"))
    .collect();
    if !odd.is_empty() {
        let _ = writeln!(out, "LATENCY IS LOST: {}", odd.join(", "));
    }
}

/// Bits per second in the largest unit that leaves a whole part.
fn bits(bps: u64) -> String {
    let units = [(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1000, "kb/s")];
    match units.into_iter().find(|(unit, _)| bps >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bps as f64 / unit as f64),
        None => format!("{bps} b/s"),
    }
}

/// What client classes are made of, and how many there are.
fn clients(out: &mut String, status: &ClientsStatus, now: u64) {
    let (v4, v6) = status.prefixes;
    let measured = match status.measured {
        0 => String::new(),
        n => format!(", {n} measured"),
    };
    let coarse = status.location_grid.map_or(String::new(), |degrees| {
        format!("; locations rounded to {degrees} degrees")
    });
    let _ = writeln!(
        out,
        "\nclient classes {} by {v4} IPv4 and {v6} IPv6 prefixes{measured}{coarse}",
        status.classes
    );
    let mut table = Table::new(&["ISP", ">ASNS", ">IPV4 PREFIXES", ">IPV6 PREFIXES"]);
    for isp in &status.isps {
        let (v4, v6) = isp.prefixes;
        table.row([
            isp.name.clone(),
            isp.asns.to_string(),
            v4.to_string(),
            v6.to_string(),
        ]);
    }
    table.print(out);
    let mut table = Table::new(&["DATABASE", "OF", ">ROWS", ">VALUES", ">AGE"]);
    for database in &status.databases {
        table.row([
            database.file.clone(),
            database.kind.clone(),
            database.rows.to_string(),
            database.values.to_string(),
            seconds(now.saturating_sub(database.modified_at) as f64),
        ]);
    }
    table.print(out);
}

fn members(out: &mut String, service: &ServiceStatus) {
    let _ = writeln!(out, "\nservice {}", service.name);
    let mut table = Table::new(&[
        "ADDRESS",
        "SITE",
        "STATE",
        ">FOR",
        ">LAST CHECK",
        ">TOOK",
        ">WEIGHT",
        ">SHARE",
        "REASON",
    ]);
    table.heading_gap = false;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for member in &service.members {
        table.row([
            member.address.to_string(),
            member.site.clone(),
            match (member.stale, member.remembered) {
                (true, _) => format!("{} STALE", member.state),
                (false, true) => format!("{} (before)", member.state),
                (false, false) => member.state.to_string(),
            },
            or_dash(member.since_s.map(seconds)),
            or_dash(member.last_check_age_s.map(|age| format!("{} ago", seconds(age)))),
            or_dash(member.last_check_ms.map(|ms| format!("{ms:.1} ms"))),
            member.weight.to_string(),
            if member.given {
                format!("{}/{}", member.share, Standing::WHOLE)
            } else {
                "-".into()
            },
            reason(member),
        ]);
    }
    table.print(out);
}

/// The override, what bears on the share, what the last check found.
fn reason(member: &MemberStatus) -> String {
    let over = member.overridden.as_ref().map(|text| format!("OVERRIDE {text}"));
    let parts = [over, member.remark.clone(), Some(member.reason.clone())];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn overrides(out: &mut String, status: &Status, now: u64) {
    let mut table = Table::new(&["OVERRIDE", "ACTION", ">SET", ">ENDS", "COMMENT"]);
    override_rows(&mut table, &status.overrides, now);
    table.print(out);
}

/// A row for each override, in the order in which they count.
pub(super) fn override_rows(table: &mut Table<5>, overrides: &[Override], now: u64) {
    for over in overrides {
        let ends = over
            .until
            .map(|at| format!("in {}", seconds(at.saturating_sub(now) as f64)));
        table.row([
            over.glob.clone(),
            over.action.to_string(),
            format!("{} ago", seconds(now.saturating_sub(over.set_at) as f64)),
            ends.unwrap_or_else(|| "never".into()),
            over.comment.clone().unwrap_or_default(),
        ]);
    }
}

/// A length of time in at most two units.
pub(super) fn seconds(s: f64) -> String {
    let whole = s as u64;
    match whole {
        0..10 => format!("{s:.1}s"),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

/// Rows under headings, in columns as wide as their widest cell.
pub(super) struct Table<const N: usize> {
    headings: [&'static str; N],
    right: [bool; N],
    rows: Vec<[String; N]>,
    pub(super) heading_gap: bool,
}

impl<const N: usize> Table<N> {
    /// A heading that starts with `>` aligns its column to the right.
    pub(super) fn new(headings: &[&'static str; N]) -> Self {
        Self {
            headings: headings.map(|h| h.trim_start_matches('>')),
            right: headings.map(|h| h.starts_with('>')),
            rows: Vec::new(),
            heading_gap: true,
        }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub(super) fn print(self, out: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        let mut widths = self.headings.map(|h| h.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if self.heading_gap {
            out.push('\n');
        }
        let headings = self.headings.map(str::to_owned);
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(widths).zip(self.right) {
                let _ = if right {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::server::tests::sample_status;

    #[test]
    fn a_screen_for_people() {
        let text = render(&sample_status(), 1_800_000_090);
        let expected = "\
lab-1 (windrose 0.1.0), up 1h01m
configuration 0123456789ab, generation 7, loaded 1m30s ago
CHECKS ARE STALE: 1 of 2 targets, the oldest result is 12s old

PORT  DEVICE                   DRIVER         MAC                MTU   LINK            RX  TX  MISSED  ERRORS  NO MBUF
isp   net_af_packet0,iface=e1  net_af_packet  02:00:00:00:00:01  1500  up 10000 Mb/s  105  95       1       5        4

WORKER  CPU  RECEIVED  REPLIED  DROPPED  BYTES OUT/IN   BUSY  MAX GAP  STATE    GENERATION  PUBLISHED  ADOPTED  SUPERSEDED  RETIRED
0         1       100       90       10          1.75  12.5%   250 us  STALLED           6          7        5           2        4
worker 0 dropped: arp 7, runt 3

DNS over TCP: 2 connections open, 9 since start; 30 replies
refused or dropped: refused_client 4, punted not_tcp 5, sent unknown_neighbour 6

SITE   ISP   UP  REPORT            AGE  SESSIONS   BANDWIDTH  CONN/S  RTTS
seoul  KT   1/2  SILENT (avoid)  1m15s    400000  900.0 Mb/s     120     9

reports on 192.0.2.1:8853, certificate ab12; 12 prefixes for RTTs; ALL SILENT: none is avoided for it
reports refused: bad_token 3

response latency: 5000 samples, 9 of them of low confidence; 12 of 2000 cells; answers changed by it 6 times
LATENCY IS LOST: samples dropped by workers 4, samples of unknown tables 2, cells that gave way 1, rows lost on the way to the file 8

client classes 4 by 300 IPv4 and 20 IPv6 prefixes, 1 measured; locations rounded to 0.1 degrees

ISP  ASNS  IPV4 PREFIXES  IPV6 PREFIXES
KT      2            120              9

DATABASE      OF     ROWS  VALUES    AGE
asn-ipv4.csv  asn  411961   84159  2h48m

service vod.example.com
ADDRESS       SITE   STATE         FOR  LAST CHECK    TOOK  WEIGHT  SHARE  REASON
198.51.100.1  seoul  up          2m05s    0.4s ago  1.5 ms      10   8/16  slow start; HTTP 200
2001:db8::2   seoul  down STALE    12s     12s ago       -       1      -  connecting: refused
203.0.113.3   seoul  up              -           -       -       1   0/16  OVERRIDE seoul/203.* drain (works); no check

OVERRIDE     ACTION      SET    ENDS  COMMENT
seoul/203.*  drain   30s ago  in 10s  works
";
        assert_eq!(text, expected);
    }

    #[test]
    fn times_have_two_units() {
        let cases = [
            (0.04, "0.0s"),
            (9.5, "9.5s"),
            (59.9, "59s"),
            (60.0, "1m00s"),
            (3_725.0, "1h02m"),
            (90_000.0, "1d01h"),
        ];
        for (s, text) in cases {
            assert_eq!(seconds(s), text);
        }
    }
}
