//! How a chain is told to people: what each metric read, how old that is, what it dropped and why. For `explain`; the
//! words of a metric stand in its own file.

use super::{
    Ask, Candidate, Chain, ClientClass, Facts, Sites, available_sessions, capacity, connection_load, geo,
    isp, latency, preference,
};
use crate::config::model::{Config, Metric};
use std::time::Duration;

/// One metric of an evaluation, told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The metric.
    pub metric: Metric,
    /// Sites before it.
    pub before: Sites,
    /// Sites after it.
    pub after: Sites,
    /// What it went by.
    pub text: String,
    /// What it found of each site, and of those that are out from the start.
    pub sites: Vec<Finding>,
}

/// What a metric found of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Index among the candidates.
    pub site: u8,
    /// What it read; `None`: there was nothing to read.
    pub value: Option<String>,
    /// How old that is.
    pub age: Option<Duration>,
    /// Whether the site stays.
    pub kept: bool,
    /// What it made of it; empty if there is nothing to say.
    pub why: String,
}

impl Finding {
    /// Of a site, what was read.
    pub(super) fn new(site: u8, value: impl Into<Option<String>>) -> Self {
        Self {
            site,
            value: value.into(),
            age: None,
            kept: true,
            why: String::new(),
        }
    }

    pub(super) fn aged(self, age: Option<Duration>) -> Self {
        Self { age, ..self }
    }

    pub(super) fn why(self, why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            ..self
        }
    }
}

/// What a metric says: what it goes by, and its findings.
pub(super) type Says = (String, Vec<Finding>);

/// The chain as it reads, told: as [`super::evaluate`], with words. `health` says of a site how its members are.
pub fn tell(
    config: &Config,
    (chain, candidates): (&Chain, &[Candidate]),
    client: &ClientClass,
    facts: &Facts,
    up: &dyn Fn(u8) -> bool,
    health: &dyn Fn(u8) -> String,
) -> Vec<Told> {
    let ask = Ask {
        chain,
        all: candidates,
        client,
        facts,
        down: Sites::default(),
        explore: false,
    };
    let told = |step: super::Step| {
        let (mut text, mut sites) = says(&ask, config, step.metric, step.before, health);
        if step.before.len() < 2 && step.metric != Metric::Health {
            let left = if step.before.is_empty() {
                "no site is"
            } else {
                "one site is"
            };
            text = format!("not asked: {left} left");
            sites = Vec::new();
        } else if step.before == step.after && ask.judge(step.metric, step.before, up).is_empty() {
            text += ": that would drop all, so none is dropped";
        }
        for finding in &mut sites {
            finding.kept = step.after.has(finding.site);
        }
        Told {
            metric: step.metric,
            before: step.before,
            after: step.after,
            text,
            sites,
        }
    };
    super::evaluate(chain, candidates, client, facts, up)
        .into_iter()
        .map(told)
        .collect()
}

fn says(ask: &Ask<'_>, config: &Config, metric: Metric, left: Sites, health: &dyn Fn(u8) -> String) -> Says {
    match metric {
        Metric::Health => {
            let findings = left.iter().map(|i| Finding::new(i, health(i)));
            ("by members that are up".into(), findings.collect())
        }
        Metric::Capacity => capacity::says(ask, left),
        Metric::Isp => isp::says(ask, config, left),
        Metric::Latency => latency::says(ask, left),
        Metric::Geo => geo::says(ask, config, left),
        Metric::ConnectionLoad => connection_load::says(ask, left),
        Metric::AvailableSessions => available_sessions::says(ask, left),
        Metric::Preference => preference::says(ask, config, left),
        Metric::LeastSelected => {
            let window = time(ask.chain.parameters.least_selected.window);
            let text = format!("the worker gives those that it gave least often in the last {window}");
            (text, Vec::new())
        }
        Metric::Static => (String::new(), Vec::new()),
    }
}

/// "1,234,567".
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// "38 ms", "1.5 ms", "14 s", "5 min", "2 h", "3 d".
pub fn time(d: Duration) -> String {
    let (ms, s) = (d.as_secs_f64() * 1e3, d.as_secs());
    match s {
        _ if d.is_zero() => "0 s".into(),
        0 if ms < 10.0 && ms.fract() != 0.0 => format!("{ms:.1} ms"),
        0 => format!("{ms:.0} ms"),
        1..60 if d.subsec_millis() != 0 && s < 10 => format!("{:.1} s", d.as_secs_f64()),
        1..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// "900 Mbps".
pub(super) fn bandwidth(bps: u64) -> String {
    let units = [
        (1_000_000_000_000, "Tbps"),
        (1_000_000_000, "Gbps"),
        (1_000_000, "Mbps"),
        (1_000, "kbps"),
    ];
    match units.into_iter().find(|(unit, _)| bps >= *unit) {
        Some((unit, name)) if bps.is_multiple_of(unit) => format!("{} {name}", bps / unit),
        Some((unit, name)) => format!("{:.1} {name}", bps as f64 / unit as f64),
        None => format!("{bps} bps"),
    }
}

/// "1,152 km", "800 m".
pub(super) fn distance(metres: u64) -> String {
    if metres < 1000 {
        format!("{metres} m")
    } else {
        format!("{} km", count(metres / 1000))
    }
}
