//! `windrose latency` without a capture: the matrix of clients and sites of a running appliance, then its figures line by line.

use super::status::{Table, seconds};
use super::{print_json, report};
use crate::admin::client;
use crate::admin::latency::{LatencyCell, LatencyReport};
use hyper::Method;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Asks the appliance behind `socket` and prints what it says.
pub(super) fn show(socket: &Path, members: bool, json: bool) -> ExitCode {
    let answer = client::request(socket, Method::GET, "/v1/latency");
    report(answer.and_then(|body| {
        if json {
            return print_json(socket, &body);
        }
        let text = render(&client::parse(socket, &body)?, members);
        // A closed pipe is no reason to end badly.
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
        Ok(())
    }))
}

fn render(report: &LatencyReport, members: bool) -> String {
    let mut out = String::new();
    if report.cells.is_empty() {
        out.push_str(
            "nothing is measured: no client's traffic to a member of a service came by a mirror or bridge port lately\n",
        );
        return out;
    }
    matrix(&mut out, report);
    details(&mut out, report, members);
    out
}

/// What answers go by, or else what was measured: milliseconds, one row for each group of clients, one column for each site.
fn matrix(out: &mut String, report: &LatencyReport) {
    let cells = || report.cells.iter().filter(|cell| cell.member.is_none());
    let clients: BTreeSet<&str> = cells().map(|cell| cell.clients.as_str()).collect();
    // Sites of the configuration first, then those that were in it.
    let mut sites: Vec<&str> = report.sites.iter().map(String::as_str).collect();
    for cell in cells() {
        if !sites.contains(&cell.site.as_str()) {
            sites.push(&cell.site);
        }
    }
    let cell = |clients: &str, site: &str| {
        let found = cells().find(|cell| cell.clients == clients && cell.site == site);
        found.map_or_else(|| "-".to_owned(), brief)
    };
    let mut rows = vec![vec![format!("MS, LAST {}", seconds(report.window_s))]];
    rows[0].extend(sites.iter().map(|site| (*site).to_owned()));
    for clients in clients {
        let mut row = vec![clients.to_owned()];
        row.extend(sites.iter().map(|site| cell(clients, site)));
        rows.push(row);
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=sites.len()).map(width).collect();
    for row in &rows {
        let _ = write!(out, "{:<width$}", row[0], width = widths[0]);
        for (text, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(out, "  {text:>width$}");
        }
        out.push('\n');
    }
}

/// "38.1", "38.1 shared" where answers do not go by what was measured, "(38.1)" where they go by nothing.
fn brief(cell: &LatencyCell) -> String {
    match (&cell.evidence, cell.responses.p50_ms.or(cell.low_p50_ms)) {
        (Some(evidence), _) => {
            let shared = evidence.shared_s.map_or("", |_| " shared");
            format!("{:.1}{shared}", evidence.measured_ms)
        }
        (None, Some(ms)) => format!("({ms:.1})"),
        (None, None) => "-".into(),
    }
}

fn details(out: &mut String, report: &LatencyReport, members: bool) {
    let mut table = Table::new(&[
        "CLIENTS",
        "SITE",
        ">RESPONSES",
        ">FLOWS",
        ">P50",
        ">P90",
        ">P99",
        ">TREND",
        ">ANSWER",
        ">HANDSHAKE",
        ">AGAIN",
        ">LOW",
        "TRUST",
        ">AGE",
        "ANSWERS GO BY",
    ]);
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    for cell in report
        .cells
        .iter()
        .filter(|cell| members || cell.member.is_none())
    {
        let place = match cell.member {
            Some(member) => format!("  {member}"),
            None => cell.site.clone(),
        };
        let trust = cell.confidence.clone().unwrap_or_else(|| "-".into());
        let doubts = cell.doubts.join(", ");
        table.row([
            cell.clients.clone(),
            place,
            cell.responses.count.to_string(),
            cell.flows.to_string(),
            ms(cell.responses.p50_ms),
            ms(cell.responses.p90_ms),
            ms(cell.responses.p99_ms),
            cell.trend
                .map_or_else(|| "-".into(), |trend| format!("{:+.0}%", trend * 100.0)),
            ms(cell.answers.p50_ms),
            ms(cell.handshakes.p50_ms),
            cell.retransmitted.to_string(),
            cell.low.to_string(),
            if doubts.is_empty() {
                trust
            } else {
                format!("{trust} ({doubts})")
            },
            seconds(cell.age_s),
            goes_by(cell),
        ]);
    }
    table.print(out);
}

fn goes_by(cell: &LatencyCell) -> String {
    let Some(evidence) = &cell.evidence else {
        return "-".into();
    };
    let mut text = format!("{:.1} ms from {} flows", evidence.value_ms, evidence.flows);
    if let Some(rest) = evidence.shared_s {
        let _ = write!(text, ", shared for {} at most", seconds(rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::server::tests::sample_latency;

    #[test]
    fn a_screen_for_people() {
        let expected = "\
MS, LAST 30s        seoul  busan
KT            38.1 shared   41.0
others             (12.5)      -

CLIENTS  SITE           RESPONSES  FLOWS   P50   P90    P99  TREND  ANSWER  HANDSHAKE  AGAIN  LOW  TRUST           AGE  ANSWERS GO BY
KT       busan                900     50  41.0  61.0   81.0      -       -          -      0    0  high           0.5s  41.0 ms from 50 flows
KT       seoul               1000    412  38.1  58.0  207.0   +25%    36.0        9.5      7    3  fair (timing)   14s  41.0 ms from 412 flows, shared for 1m30s at most
KT         203.0.113.1       1000    412  38.1  58.0  207.0   +25%    36.0        9.5      7    3  fair (timing)   14s  -
";
        let text = render(&sample_latency(), true);
        assert!(text.starts_with(expected), "{text}");
        assert!(!render(&sample_latency(), false).contains("203.0.113.1"));
        assert!(render(&LatencyReport::default(), false).starts_with("nothing is measured"));
    }
}
