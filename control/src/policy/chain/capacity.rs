//! `capacity`: sites at their limit of sessions or bandwidth drop out; near to it they are shed in proportion.
//!
//! Below the low mark of what a site can do it is used as ever; at the high mark or above it drops out; in between its
//! share of the draws falls from all to none, in every plan at once, by a word to the workers. What counts is the
//! fuller of the two. No limit configured, no reading, or one that is too old: the site is used as ever.

use super::facts::Reading;
use super::tell::{Finding, Says, bandwidth, count, time};
use super::{Ask, Permille, SiteFacts, Sites};
use crate::config::model::Site;
use std::time::Duration;

/// `capacity = { low = "90%", high = "100%", max_age = "1m" }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Share of the limit from which on a site is shed.
    pub low: Permille,
    /// Share of the limit at which it is out. Not below `low`.
    pub high: Permille,
    /// Readings that are older do not count.
    pub max_age: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            low: Permille(900),
            high: Permille(1000),
            max_age: Duration::from_secs(60),
        }
    }
}

/// What a site can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Sessions.
    pub sessions: Option<u64>,
    /// Bits per second.
    pub bandwidth_bps: Option<u64>,
}

/// A site in full use of its share, as [`site_share`] says it.
pub const WHOLE: u16 = 256;

/// How often a site is a candidate when it could be, in 256ths: 0 (only when no other is left) to [`WHOLE`].
pub fn site_share(facts: &SiteFacts, site: &Site, parameters: &Parameters) -> u16 {
    let limits = Limits {
        sessions: site.sessions_max,
        bandwidth_bps: site.bandwidth_max_bps,
    };
    share(facts, &limits, parameters)
}

/// As [`site_share`], of what the site can do.
fn share(facts: &SiteFacts, limits: &Limits, parameters: &Parameters) -> u16 {
    let sessions = of(facts.sessions, limits.sessions, parameters);
    let bandwidth = of(facts.bandwidth_bps, limits.bandwidth_bps, parameters);
    sessions.min(bandwidth)
}

/// By one of the two.
fn of(reading: Option<Reading>, limit: Option<u64>, p: &Parameters) -> u16 {
    let (Some(reading), Some(limit)) = (reading.filter(|r| r.age <= p.max_age), limit) else {
        return WHOLE;
    };
    // In thousandths of the limit, so that nothing is rounded before the marks are compared.
    let value = u128::from(reading.value) * 1000;
    let [low, high] = [p.low, p.high].map(|mark| u128::from(limit) * u128::from(mark.0));
    if value >= high {
        return 0;
    }
    if value <= low {
        return WHOLE;
    }
    // low < value < high, so this is less than all; a site that is not out keeps some.
    let part = (high - value) * u128::from(WHOLE) / (high - low);
    u16::try_from(part.max(1)).unwrap_or(WHOLE)
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let p = &ask.chain.parameters.capacity;
    left.filter(|i| share(ask.facts_of(i), &ask.site(i).limits, p) > 0)
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, left: Sites) -> Says {
    let p = &ask.chain.parameters.capacity;
    let text = format!("shed from {} of a limit on, out at {}", p.low, p.high);
    let finding = |i: u8| {
        let (facts, limits) = (ask.facts_of(i), &ask.site(i).limits);
        let (mut values, mut age, mut old) = (Vec::new(), None, false);
        let both = [
            (
                "sessions",
                facts.sessions,
                limits.sessions,
                count as fn(u64) -> String,
            ),
            ("bandwidth", facts.bandwidth_bps, limits.bandwidth_bps, bandwidth),
        ];
        for (what, reading, limit, shown) in both {
            let (Some(reading), Some(limit)) = (reading, limit) else {
                continue;
            };
            let percent = u128::from(reading.value) * 100 / u128::from(limit.max(1));
            values.push(format!(
                "{what} {} of {} ({percent}%)",
                shown(reading.value),
                shown(limit)
            ));
            age = age.max(Some(reading.age));
            old |= reading.age > p.max_age;
        }
        let why = match share(facts, limits, p) {
            0 => "at its limit".to_owned(),
            WHOLE if limits.sessions.is_none() && limits.bandwidth_bps.is_none() => "no limit set".to_owned(),
            WHOLE if values.is_empty() => "nothing reported: used as ever".to_owned(),
            WHOLE if old => format!("older than {}: used as ever", time(p.max_age)),
            WHOLE => String::new(),
            share => format!(
                "shed: given {}% as often",
                u32::from(share) * 100 / u32::from(WHOLE)
            ),
        };
        let value = (!values.is_empty()).then(|| values.join(", "));
        Finding::new(i, value).aged(age).why(why)
    };
    (text, left.iter().map(finding).collect())
}
