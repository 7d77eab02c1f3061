//! Response latency in the admin API: types of `GET /v1/latency` and of the status, made from the store's own figures.

use crate::latency::cell::{Quantiles, Told};
use crate::latency::store::{Counts, Figures};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What becomes of samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// Samples that were summed.
    pub samples: u64,
    /// Those of them of low confidence: shown, and never counted on.
    pub low: u64,
    /// Samples that workers dropped, since control did not keep up.
    pub lost: u64,
    /// Samples of tables that are not known any more, or of servers of no site.
    pub unknown: u64,
    /// Clients and places that figures are kept of.
    pub cells: usize,
    /// How many there is room for.
    pub cells_max: usize,
    /// Those that gave way to others.
    pub evicted: u64,
    /// How often answers went by other figures than before.
    pub changes: u64,
    /// How often clients of a group were sent to another site first.
    pub leader_changes: u64,
    /// Rows written to the file of samples, and rows lost; `None`: there is no such file.
    pub file: Option<(u64, u64)>,
}

impl LatencyStatus {
    /// From the store's counts. `lost`: what workers dropped; `file`: rows written and lost.
    pub fn new(counts: &Counts, lost: u64, file: Option<(u64, u64)>) -> Self {
        Self {
            samples: counts.taken,
            low: counts.low,
            lost,
            unknown: counts.unknown,
            cells: counts.cells,
            cells_max: counts.cells_max,
            evicted: counts.evicted,
            changes: counts.told,
            leader_changes: counts.leaders,
            file,
        }
    }
}

/// The matrix of clients and sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Length of the window, seconds.
    pub window_s: f64,
    /// What becomes of samples.
    pub status: LatencyStatus,
    /// Sites, in the order of the configuration.
    pub sites: Vec<String>,
    /// Every clients and place of whom something is known, by clients, site and member.
    pub cells: Vec<LatencyCell>,
}

/// Median and tail of some times, milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyTimes {
    /// How many.
    pub count: u64,
    /// Half are below; `None` without any.
    pub p50_ms: Option<f64>,
    /// Nine in ten are below.
    pub p90_ms: Option<f64>,
    /// 99 in a hundred are below.
    pub p99_ms: Option<f64>,
}

impl From<Quantiles> for LatencyTimes {
    fn from(times: Quantiles) -> Self {
        Self {
            count: times.count,
            p50_ms: times.median.map(ms),
            p90_ms: times.p90.map(ms),
            p99_ms: times.p99.map(ms),
        }
    }
}

/// What is known of some clients at a site, or at one of its members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyCell {
    /// Whose: "KT in KR", "KT", "KR", a prefix, "others".
    pub clients: String,
    /// The site.
    pub site: String,
    /// The member; `None`: the whole site.
    pub member: Option<IpAddr>,
    /// Responses in the window, from request to the next request that it caused.
    pub responses: LatencyTimes,
    /// Distinct flows among them, about.
    pub flows: u64,
    /// The same of the five to ten minutes before.
    pub before: LatencyTimes,
    /// By how much the median of the window is over that, as a share of it; `None` where there is too little to say so.
    pub trend: Option<f64>,
    /// Without think time, where that can be told: window and before.
    pub answers: LatencyTimes,
    /// Handshakes: window and before.
    pub handshakes: LatencyTimes,
    /// Packets that clients sent again: window and before.
    pub retransmitted: u64,
    /// Responses of low confidence, which are in none of the above: window and before.
    pub low: u64,
    /// Median of the newest of them, milliseconds.
    pub low_p50_ms: Option<f64>,
    /// `high`, `fair` or `low`; `None` without responses.
    pub confidence: Option<String>,
    /// What speaks against samples.
    pub doubts: Vec<String>,
    /// Seconds since the newest sample.
    pub age_s: f64,
    /// What answers go by; `None`: too little is known, or a member's row.
    pub evidence: Option<LatencyEvidence>,
}

/// What answers go by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyEvidence {
    /// The value, milliseconds.
    pub value_ms: f64,
    /// Median that was measured, milliseconds: of the window, or of the newest samples where these are few.
    pub measured_ms: f64,
    /// Distinct flows that it rests on.
    pub flows: u64,
    /// Seconds since the newest of its samples.
    pub age_s: f64,
    /// For so many seconds more at most it counts the same as the best, so that clients do not go back and forth; `None`: as measured.
    pub shared_s: Option<f64>,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl LatencyCell {
    /// From the store's figures.
    pub fn new(figures: &Figures, now: Instant) -> Self {
        let told: &Told = &figures.told;
        let since = |at| now.saturating_duration_since(at).as_secs_f64();
        let evidence = figures
            .handed
            .zip(told.measured)
            .map(|((value, held), measured)| LatencyEvidence {
                value_ms: ms(value),
                measured_ms: ms(measured.value),
                flows: measured.flows,
                age_s: since(measured.at),
                shared_s: held.map(|held| held.rest.as_secs_f64()),
            });
        Self {
            clients: figures.clients.clone(),
            site: figures.site.to_string(),
            member: figures.member,
            responses: told.window.into(),
            flows: told.flows,
            before: told.before.into(),
            trend: told.trend(),
            answers: told.answers.into(),
            handshakes: told.handshakes.into(),
            retransmitted: told.retransmitted,
            low: told.low,
            low_p50_ms: told.low_median.map(ms),
            confidence: told.confidence().map(|c| c.name().to_owned()),
            doubts: told.doubts.names().map(str::to_owned).collect(),
            age_s: since(told.last),
            evidence,
        }
    }
}
