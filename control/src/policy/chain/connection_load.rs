//! `connection-load`: sites that get more new connections a second than the limit drop out; the rest is not ranked.
//!
//! The limit is the site's own (`connections_per_second_max`) or that of the metric. Without one, without a reading or
//! with one that is too old, the site stays.

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
