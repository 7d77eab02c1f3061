//! `latency`: sites from which the client is as near in time as from the best, less a tolerance, stay.
//!
//! Evidence is compared within one source: response latency and round-trip time are different things. Of the sources
//! in order of precedence, the one that has fresh evidence of most of the sites counts, of equals the first. A site without
//! evidence from it drops out or stays by rule; if no site has any, none drops out.
//!
//! With the rule `explore`, a share of the queries goes by another plan ([`super::rank_explore`]) where this metric
//! prefers what was never measured or not for longest, so that there will be evidence.

use super::tell::{Finding, Says, time};
use super::{Ask, Evidence, Permille, Sites, Source};
use std::cmp::Reverse;
use std::time::Duration;

/// `latency = { sources = ["passive", "agent"], tolerance = "10%", tolerance_time = "5ms", ... }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Sources whose evidence counts, the preferred first.
    pub sources: Vec<Source>,
    /// `tolerance`: share of the best latency by which another may be worse.
    pub relative: Permille,
    /// `tolerance_time`: by which it may always be worse. The larger of the two counts.
    pub absolute: Duration,
    /// Evidence that is older does not count.
    pub max_age: Duration,
    /// What becomes of a site without evidence when others have some.
    pub no_data: NoEvidence,
    /// With [`NoEvidence::Explore`]: the share of the queries that explores.
    pub explore: Permille,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            sources: vec![Source::Passive, Source::Agent],
            relative: Permille(100),
            absolute: Duration::from_millis(5),
            max_age: Duration::from_secs(600),
            no_data: NoEvidence::Explore,
            explore: Permille(50),
        }
    }
}

/// What becomes of a site without evidence when others have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoEvidence {
    /// It drops out, and is tried by a share of the queries.
    Explore,
    /// It stays, as if it were as good as the best.
    Keep,
    /// It drops out.
    Drop,
}

impl Parameters {
    /// Whether a share of the queries explores.
    pub fn explores(&self) -> bool {
        self.no_data == NoEvidence::Explore && self.explore > Permille(0)
    }

    /// The worst latency that is as good as `best`.
    pub(super) fn limit(&self, best: Duration) -> Duration {
        let nanos = u64::try_from(best.as_nanos()).unwrap_or(u64::MAX);
        let relative = Duration::from_nanos(self.relative.of(nanos));
        best.saturating_add(relative.max(self.absolute))
    }
}

/// Fresh evidence of the client at a site.
fn evidence<'a>(ask: &Ask<'a>, i: u8, source: Source) -> Option<&'a Evidence> {
    let max_age = ask.chain.parameters.latency.max_age;
    ask.facts.latency(ask.client, ask.site(i).site, source, max_age)
}

/// The source that the sites of `left` are compared by; `None` without any evidence.
fn source(ask: &Ask<'_>, left: Sites) -> Option<Source> {
    let count = |source: Source| {
        left.iter()
            .filter(|&i| evidence(ask, i, source).is_some())
            .count()
    };
    let counted = ask
        .chain
        .parameters
        .latency
        .sources
        .iter()
        .map(|&s| (count(s), s));
    let best = counted.min_by_key(|(count, _)| Reverse(*count));
    best.filter(|(count, _)| *count > 0).map(|(_, source)| source)
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let p = &ask.chain.parameters.latency;
    let Some(source) = source(ask, left) else {
        return left;
    };
    let value = |i: u8| evidence(ask, i, source).map(|e| e.value);
    let best = left.iter().filter_map(value).min().unwrap_or_default();
    left.filter(|i| match value(i) {
        Some(value) => value <= p.limit(best),
        None => p.no_data == NoEvidence::Keep,
    })
}

/// What stays of `left` in the plan that explores: sites without evidence, else those whose evidence is oldest. Measured
/// counts by the first source that has evidence at all.
pub(super) fn explore(ask: &Ask<'_>, left: Sites) -> Sites {
    let sources = &ask.chain.parameters.latency.sources;
    let has = |s: &&Source| left.iter().any(|i| evidence(ask, i, **s).is_some());
    let Some(&source) = sources.iter().find(has) else {
        return left;
    };
    let unmeasured = left.filter(|i| evidence(ask, i, source).is_none());
    if !unmeasured.is_empty() {
        return unmeasured;
    }
    let age = |i: u8| evidence(ask, i, source).map(|e| e.age);
    let oldest = left.iter().map(age).max().flatten();
    left.filter(|i| age(i) == oldest)
}

/// Why passive evidence is not what was measured, in words.
fn held(ask: &Ask<'_>, i: u8, evidence: &Evidence) -> Option<String> {
    let (site, max_age) = (ask.site(i).site, ask.chain.parameters.latency.max_age);
    let (clients, _) = ask.facts.latency_of(ask.client, site, evidence.source, max_age)?;
    let held = ask
        .facts
        .held
        .get(&(clients, site))
        .filter(|_| evidence.source == Source::Passive)?;
    let (measured, rest) = (
        time(held.measured),
        time(Duration::from_secs(held.rest.as_secs())),
    );
    Some(format!(
        "measured {measured}; clients are shared with the best for {rest} at most"
    ))
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, left: Sites) -> Says {
    let p = &ask.chain.parameters.latency;
    let by = source(ask, left);
    let value = |i: u8| evidence(ask, i, by?);
    let best = left.iter().filter_map(value).map(|e| e.value).min();
    let text = match (by, best) {
        (Some(source), Some(best)) => {
            let by = match source {
                Source::Passive => "response latency of passing traffic",
                Source::Agent => "round-trip time from the sites",
            };
            format!(
                "by {by}: best {}, up to {} is as good",
                time(best),
                time(p.limit(best))
            )
        }
        _ => "nobody has measured these clients: nothing dropped".to_owned(),
    };
    // Whom the queries that explore go to, where that is a measured one.
    let tried = match p.explores() && by.is_some() {
        true => explore(ask, left),
        false => Sites::default(),
    };
    let finding = |i: u8| match value(i) {
        Some(e) => {
            let from = match e.source {
                Source::Passive => "flows",
                Source::Agent => "samples",
            };
            let best = best.unwrap_or(e.value);
            let tolerance = if p.limit(best) - best > p.absolute {
                p.relative.to_string()
            } else {
                time(p.absolute)
            };
            let over = format!("over {} + {tolerance}", time(best));
            let over = (e.value > p.limit(best)).then_some(over);
            let explored = tried.has(i).then(|| "explore".to_owned());
            let why: Vec<String> = [over, held(ask, i, e), explored].into_iter().flatten().collect();
            Finding::new(i, format!("{} from {} {from}", time(e.value), e.count))
                .aged(Some(e.age))
                .why(why.join("; "))
        }
        None => {
            let any = |s: &Source| ask.facts.latency(ask.client, ask.site(i).site, *s, Duration::MAX);
            let old = p.sources.iter().find_map(any).filter(|e| e.age > p.max_age);
            let state = match old {
                Some(_) => format!("older than {}", time(p.max_age)),
                None => "not measured".to_owned(),
            };
            let rule = match p.no_data {
                _ if by.is_none() => "",
                NoEvidence::Explore if p.explores() => ": left to those who explore",
                NoEvidence::Keep => ": stays by rule",
                NoEvidence::Explore | NoEvidence::Drop => ": out by rule",
            };
            Finding::new(i, None).aged(old.map(|e| e.age)).why(state + rule)
        }
    };
    (text, left.iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Clients, Held};
    use super::super::{Candidate, Chain, ClientClass, Facts};
    use super::*;
    use crate::config::model::Metric;

    #[test]
    fn what_is_told_otherwise_than_measured_says_so_and_who_is_explored_too() {
        let client = ClientClass {
            isp: Some(0),
            ..ClientClass::default()
        };
        let sites = [0, 1, 2].map(|site| Candidate {
            site,
            ..Candidate::default()
        });
        let mut facts = Facts::default();
        for (site, ms, count, age) in [(0, 38, 412, 14), (1, 38, 90, 2), (2, 96, 80, 3)] {
            let evidence = Evidence {
                value: Duration::from_millis(ms),
                count,
                age: Duration::from_secs(age),
                source: Source::Passive,
            };
            facts.latency.insert((Clients::Isp(0), site), vec![evidence]);
        }
        let held = Held {
            measured: Duration::from_millis(25),
            rest: Duration::from_millis(90_700),
        };
        facts.held.insert((Clients::Isp(0), 1), held);
        let chain = Chain {
            metrics: vec![Metric::Latency],
            ..Chain::default()
        };
        let ask = Ask {
            chain: &chain,
            all: &sites,
            client: &client,
            facts: &facts,
            down: Sites::default(),
            explore: false,
        };
        let (text, found) = says(&ask, Sites::first(3));
        assert_eq!(
            text,
            "by response latency of passing traffic: best 38 ms, up to 43 ms is as good"
        );
        let told: Vec<_> = found
            .iter()
            .map(|f| (f.value.as_deref().unwrap_or(""), &f.why[..]))
            .collect();
        let expected = [
            ("38 ms from 412 flows", "explore"),
            (
                "38 ms from 90 flows",
                "measured 25 ms; clients are shared with the best for 90 s at most",
            ),
            ("96 ms from 80 flows", "over 38 ms + 5 ms"),
        ];
        assert_eq!(told, expected);
    }
}
