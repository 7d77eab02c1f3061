//! Response latency in `/metrics`. Called by [`super::metrics`].

use super::api::Status;
use super::latency::{LatencyCell, LatencyReport, LatencyStatus};
use super::metrics::{BARE, Families};
use std::fmt;

type Labels<'a> = [(&'static str, &'a str); 2];

/// Writes the families; none where no port measures.
pub(super) fn encode(status: &Status, report: &LatencyReport, families: &mut Families<'_>) -> fmt::Result {
    let Some(status) = &status.latency else {
        return Ok(());
    };
    samples(status, families)?;
    // Members would be many, and are in `windrose latency`.
    let cells = || report.cells.iter().filter(|cell| cell.member.is_none());
    fn labels(cell: &LatencyCell) -> Labels<'_> {
        [("clients", &cell.clients), ("site", &cell.site)]
    }
    families.gauge(
        "latency_seconds",
        "Response latency of clients at a site in the window, by quantile.",
        cells().flat_map(|cell| {
            let r = &cell.responses;
            let quantiles = [("0.5", r.p50_ms), ("0.9", r.p90_ms), ("0.99", r.p99_ms)];
            let [clients, site] = labels(cell);
            quantiles
                .into_iter()
                .filter_map(move |(q, ms)| Some(([clients, site, ("quantile", q)], ms? / 1e3)))
        }),
    )?;
    type Value = fn(&LatencyCell) -> Option<f64>;
    let gauges: [(&str, &str, Value); 7] = [
        (
            "latency_responses",
            "Responses of clients at a site in the window.",
            |cell| Some(cell.responses.count as f64),
        ),
        (
            "latency_flows",
            "Flows of clients at a site in the window, about.",
            |cell| Some(cell.flows as f64),
        ),
        (
            "latency_handshake_seconds",
            "Median time of TCP handshakes of clients at a site, over the last minutes.",
            |cell| Some(cell.handshakes.p50_ms? / 1e3),
        ),
        (
            "latency_answer_seconds",
            "Median response latency without think time, where that can be told, over the last minutes.",
            |cell| Some(cell.answers.p50_ms? / 1e3),
        ),
        (
            "latency_retransmitted",
            "Packets that clients sent again to a site, over the last minutes.",
            |cell| Some(cell.retransmitted as f64),
        ),
        (
            "latency_age_seconds",
            "Seconds since the newest sample of clients at a site.",
            |cell| Some(cell.age_s),
        ),
        (
            "latency_evidence_seconds",
            "Response latency that answers go by; none where too little is known.",
            |cell| Some(cell.evidence.as_ref()?.value_ms / 1e3),
        ),
    ];
    for (name, help, value) in gauges {
        families.gauge(
            name,
            help,
            cells().filter_map(|cell| Some((labels(cell), value(cell)?))),
        )?;
    }
    families.gauge(
        "latency_shared",
        "1: the site counts the same as the best, whatever is measured, so that clients do not go back and forth.",
        cells().filter_map(|cell| {
            let evidence = cell.evidence.as_ref()?;
            Some((labels(cell), u64::from(evidence.shared_s.is_some())))
        }),
    )
}

fn samples(status: &LatencyStatus, families: &mut Families<'_>) -> fmt::Result {
    let fates = [
        ("taken", status.samples.saturating_sub(status.low)),
        ("low", status.low),
        ("unknown", status.unknown),
        ("lost", status.lost),
    ];
    families.counter(
        "latency_samples_fate",
        "What becomes of latency samples. taken: Summed. low: Of low confidence: counted, and never counted on. unknown: Of \
         tables that are not known any more, or of servers of no site. lost: Dropped by workers, since control did not keep up.",
        fates.map(|(fate, count)| ([("fate", fate)], count)),
    )?;
    families.gauge(
        "latency_cells",
        "Clients and places that figures of latency are kept of.",
        [(BARE, status.cells as u64)],
    )?;
    families.counter(
        "latency_cells_evicted",
        "Clients and places that gave way to others.",
        [(BARE, status.evicted)],
    )?;
    families.counter(
        "latency_evidence_changes",
        "Times that answers went by other latencies than before.",
        [(BARE, status.changes)],
    )?;
    families.counter(
        "latency_leader_changes",
        "Times that the clients of a group were sent to another site first.",
        [(BARE, status.leader_changes)],
    )?;
    let rows = status
        .file
        .map(|(written, lost)| [("written", written), ("lost", lost)]);
    families.counter(
        "latency_file_rows",
        "Rows of the file of samples: written, or lost since the disk was too slow or full.",
        rows.into_iter()
            .flatten()
            .map(|(fate, count)| ([("fate", fate)], count)),
    )
}
