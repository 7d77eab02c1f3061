//! `connection-load`: sites that get more new connections a second than the limit drop out; the rest is not ranked.
//!
//! The limit is the site's own (`connections_per_second_max`) or that of the metric. Without one, without a reading or
//! with one that is too old, the site stays.

use super::tell::{Finding, Says, count, time};
use super::{Ask, Sites};
use std::time::Duration;

/// `connection_load = { limit = 5000, max_age = "1m" }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// New connections a second of a site that has no limit of its own; `None`: it has none.
    pub limit: Option<u64>,
    /// Readings that are older do not count.
    pub max_age: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            limit: None,
            max_age: Duration::from_secs(60),
        }
    }
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let p = &ask.chain.parameters.connection_load;
    left.filter(|i| {
        let limit = ask.site(i).connections_max.or(p.limit);
        let reading = ask.facts_of(i).connections_per_second;
        match (limit, reading.filter(|r| r.age <= p.max_age)) {
            (Some(limit), Some(reading)) => reading.value <= limit,
            _ => true,
        }
    })
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, left: Sites) -> Says {
    let p = &ask.chain.parameters.connection_load;
    let finding = |i: u8| {
        let limit = ask.site(i).connections_max.or(p.limit);
        let reading = ask.facts_of(i).connections_per_second;
        let of = limit.map_or(String::new(), |limit| format!(" of {}", count(limit)));
        let why = match (reading, limit) {
            (_, None) => "no limit set".to_owned(),
            (None, _) => "nothing reported: stays".to_owned(),
            (Some(r), _) if r.age > p.max_age => format!("older than {}: stays", time(p.max_age)),
            (Some(r), Some(limit)) if r.value > limit => "over its limit".to_owned(),
            _ => String::new(),
        };
        let value = reading.map(|r| format!("{}{of} new connections/s", count(r.value)));
        Finding::new(i, value).aged(reading.map(|r| r.age)).why(why)
    };
    let text = "sites over their limit of new connections drop out".to_owned();
    (text, left.iter().map(finding).collect())
}
