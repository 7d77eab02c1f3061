//! `available-sessions`: sites with as many free sessions as the one that has most, less a tolerance, stay.
//!
//! Free are the sessions that a site can hold (`sessions_max`) less those that it reports. A site without a limit, a
//! reading or a fresh one is not ranked: it stays, or drops out, by `no_data`. If no site has them, none drops out.

use super::tell::{Finding, Says, count, time};
use super::{Ask, NoData, Permille, Sites};
use std::time::Duration;

/// `available_sessions = { tolerance = "10%", no_data = "keep", max_age = "1m" }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Who has less than the most by more than this share of it drops out.
    pub tolerance: Permille,
    /// What becomes of who cannot be ranked.
    pub no_data: NoData,
    /// Readings that are older do not count.
    pub max_age: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            tolerance: Permille(100),
            no_data: NoData::Keep,
            max_age: Duration::from_secs(60),
        }
    }
}

/// The free sessions of a site, if they are known.
fn free(ask: &Ask<'_>, i: u8) -> Option<u64> {
    let reading = ask.facts_of(i).sessions?;
    let limit = ask.site(i).limits.sessions?;
    let fresh = reading.age <= ask.chain.parameters.available_sessions.max_age;
    fresh.then_some(limit.saturating_sub(reading.value))
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let p = &ask.chain.parameters.available_sessions;
    let Some(most) = left.iter().filter_map(|i| free(ask, i)).max() else {
        return left;
    };
    let least = most - p.tolerance.of(most).min(most);
    left.filter(|i| match free(ask, i) {
        Some(free) => free >= least,
        None => p.no_data == NoData::Keep,
    })
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, left: Sites) -> Says {
    let p = &ask.chain.parameters.available_sessions;
    let most = left.iter().filter_map(|i| free(ask, i)).max();
    let text = match most {
        Some(most) => format!(
            "most free sessions {}, {} less is as good",
            count(most),
            p.tolerance
        ),
        None => "no site's free sessions are known: nothing dropped".to_owned(),
    };
    let finding = |i: u8| {
        let (reading, limit) = (ask.facts_of(i).sessions, ask.site(i).limits.sessions);
        let why = match (free(ask, i), reading, limit) {
            (Some(free), ..) if most.is_some_and(|most| free < most - p.tolerance.of(most).min(most)) => {
                format!("under {} - {}", count(most.unwrap_or(0)), p.tolerance)
            }
            (Some(_), ..) => String::new(),
            (None, _, None) => "no limit set".to_owned(),
            (None, None, _) => "nothing reported".to_owned(),
            (None, Some(_), _) => format!("older than {}", time(p.max_age)),
        };
        let shown = |free: u64| format!("{} free", count(free));
        Finding::new(i, free(ask, i).map(shown))
            .aged(reading.map(|r| r.age))
            .why(why)
    };
    (text, left.iter().map(finding).collect())
}
