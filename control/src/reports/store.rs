//! The newest report of each site, and what follows from it. Made by the run loop, shared with the receiver; every
//! moment is handed in, so that tests have a clock of their own.
//!
//! Ages count from when a report came in, by the monotonic clock, plus what the report itself says. A site that is to
//! report (it has a token) and did not for `silent_after` is silent: its values are missing data from then on.
//! Whoever compiles plans waits for [`ReportStore::changed`] and takes what changed by [`ReportStore::take_changes`].

use super::report::{Answer, MemberReport, Report};
use super::rtt::{RttTable, SiteId};
use crate::config::model::{Config, Reports, Token};
use crate::policy::chain::Facts;
use crate::policy::chain::facts::{Clients, Evidence, Reading, SiteFacts, Source};
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Notify;

/// Samples that new connections per second are averaged over.
const RATE_SAMPLES: usize = 5;
/// Changed prefixes that are told apart; beyond, everything is said to have changed.
const CHANGES_MAX: usize = 1 << 17;

/// What changed since it was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Too much to be listed.
    pub everything: bool,
    /// Sites whose values changed, that fell silent or report again, by name.
    pub sites: BTreeSet<String>,
    /// Prefixes whose round-trip times changed, came or went.
    pub prefixes: HashSet<IpNet>,
}

/// Why a report was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its site does not report here.
    #[error("site {0} does not report here")]
    UnknownSite(String),
    /// A newer one, or the same, was taken before.
    #[error(
        "sequence {got} does not follow {last}: it rises from report to report; begin with the Unix time"
    )]
    Old {
        /// Of the last report that was taken.
        last: u64,
        /// Of this one.
        got: u64,
    },
}

/// A site as the store knows it, for status and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteStatus {
    /// Its name.
    pub site: String,
    /// It is to report and has not for too long.
    pub silent: bool,
    /// Reports taken since start.
    pub taken: u64,
    /// The newest report and its age; `None` before the first.
    pub last: Option<(Report, Duration)>,
    /// Where that came from.
    pub from: Option<IpAddr>,
    /// New connections per second, averaged.
    pub connections_per_second: Option<u64>,
    /// Prefixes with a round-trip time from it.
    pub rtts: usize,
}

/// The reports of all sites.
#[derive(Debug)]
pub struct ReportStore {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    settings: Reports,
    /// Of the sites that are to report.
    sites: HashMap<String, Entry>,
    last_id: SiteId,
    rtts: RttTable,
    changes: Changes,
    feed_down: bool,
}

#[derive(Debug)]
struct Entry {
    id: SiteId,
    tokens: Vec<Token>,
    /// Since when it is to report.
    since: Instant,
    last: Option<Last>,
    /// New connections per second of the last reports in a row that had them.
    rates: VecDeque<u64>,
    /// What was said of it last; what holds is found out anew each time.
    said_silent: bool,
    taken: u64,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    from: IpAddr,
    /// Without its RTTs.
    report: Report,
}

impl Entry {
    fn new(id: SiteId, now: Instant) -> Self {
        Self {
            id,
            tokens: Vec::new(),
            since: now,
            last: None,
            rates: VecDeque::with_capacity(RATE_SAMPLES),
            said_silent: false,
            taken: 0,
        }
    }

    fn age(&self, now: Instant) -> Duration {
        let heard = self.last.as_ref().map_or(self.since, |last| last.at);
        now.saturating_duration_since(heard)
    }

    fn is_silent(&self, settings: &Reports, now: Instant) -> bool {
        self.age(now) > settings.silent_after
    }

    fn rate(&self) -> Option<u64> {
        let count = self.rates.len() as u64;
        let sum = self
            .rates
            .iter()
            .fold(0_u64, |sum, rate| sum.saturating_add(*rate));
        sum.checked_div(count)
    }

    fn facts(&self, settings: &Reports, now: Instant) -> SiteFacts {
        if self.is_silent(settings, now) {
            return SiteFacts {
                silent: true,
                ..SiteFacts::default()
            };
        }
        let Some(last) = &self.last else {
            return SiteFacts::default();
        };
        let totals = &last.report.totals;
        let age = self.age(now) + Duration::from_millis(totals.age_ms);
        let reading = |value: Option<u64>| Some(Reading { value: value?, age });
        SiteFacts {
            sessions: reading(last.report.sessions()),
            bandwidth_bps: reading(totals.bandwidth_bps),
            connections_per_second: reading(self.rate()),
            silent: false,
        }
    }
}

/// The configuration's settings; without [reports] nobody reports, whatever stands here.
fn settings_of(config: &Config) -> Reports {
    config.reports.clone().unwrap_or_else(|| Reports {
        listen: ([127, 0, 0, 1], 0).into(),
        certificate: None,
        interval: Duration::from_secs(5),
        silent_after: Duration::from_secs(20),
        measure: Vec::new(),
        rtt_prefixes: 1,
        rtt_every: Duration::from_secs(60),
        rtt_max_age: Duration::from_secs(600),
        rtt_prefix_v4: 24,
        rtt_prefix_v6: 48,
    })
}

impl ReportStore {
    /// An empty one: each site that is to report has `silent_after` from `now` on.
    pub fn new(config: &Config, now: Instant) -> Self {
        let settings = settings_of(config);
        let store = Self {
            inner: Mutex::new(Inner {
                rtts: RttTable::new(&settings, now),
                settings,
                sites: HashMap::new(),
                last_id: 0,
                changes: Changes::default(),
                feed_down: false,
            }),
            changed: Notify::new(),
        };
        store.configure(config, now);
        store
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked while it held the lock has ended the process already.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes by another configuration; what is known of sites that stay is kept.
    pub fn configure(&self, config: &Config, now: Instant) {
        let mut inner = self.lock();
        inner.settings = settings_of(config);
        let mut old = std::mem::take(&mut inner.sites);
        for site in config.sites.iter().filter(|site| !site.tokens.is_empty()) {
            if config.reports.is_none() {
                break;
            }
            let mut entry = old.remove(&site.name).unwrap_or_else(|| {
                inner.last_id += 1;
                Entry::new(inner.last_id, now)
            });
            entry.tokens = site.tokens.clone();
            inner.sites.insert(site.name.clone(), entry);
        }
        inner.changes.sites.extend(old.into_keys());
        let ids: HashSet<SiteId> = inner.sites.values().map(|entry| entry.id).collect();
        let Inner {
            rtts,
            settings,
            changes,
            ..
        } = &mut *inner;
        rtts.configure(settings, &ids, now, &mut changes.prefixes);
        self.tell(&mut inner);
    }

    /// Whose token it is. Takes the same time for any token of a length.
    pub fn site_of(&self, token: &[u8]) -> Option<String> {
        let inner = self.lock();
        let mut found = None;
        for (name, entry) in &inner.sites {
            let mut same = Choice::from(0);
            for known in &entry.tokens {
                same |= known.0.as_bytes().ct_eq(token);
            }
            if bool::from(same) {
                found = Some(name.clone());
            }
        }
        found
    }

    /// Takes a report that was received at `now` and has passed [`Report::check`]; what its sender is told.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn take(&self, mut report: Report, from: IpAddr, now: Instant) -> Result<Answer, Refusal> {
        let mut inner = self.lock();
        let Inner {
            settings,
            sites,
            rtts,
            changes,
            ..
        } = &mut *inner;
        let Some(entry) = sites.get_mut(&report.site) else {
            return Err(Refusal::UnknownSite(report.site));
        };
        let silent = entry.is_silent(settings, now);
        // A silent site may begin anew: its clock may have been set back.
        if let Some(last) = entry
            .last
            .as_ref()
            .filter(|last| !silent && last.report.sequence >= report.sequence)
        {
            return Err(Refusal::Old {
                last: last.report.sequence,
                got: report.sequence,
            });
        }
        let before = entry.facts(settings, now);
        match report.totals.connections_per_second {
            Some(rate) => {
                if silent {
                    entry.rates.clear();
                }
                if entry.rates.len() == RATE_SAMPLES {
                    entry.rates.pop_front();
                }
                entry.rates.push_back(rate);
            }
            None => entry.rates.clear(),
        }
        let id = entry.id;
        for rtt in std::mem::take(&mut report.rtts) {
            let at = now.checked_sub(Duration::from_millis(rtt.age_ms));
            if at.is_some_and(|at| rtts.take(id, &rtt, at, now)) {
                changes.prefixes.insert(rtt.prefix);
            }
        }
        for prefix in std::mem::take(&mut report.silent_prefixes) {
            rtts.take_silent(id, &prefix, now);
        }
        let members_changed = entry
            .last
            .as_ref()
            .is_none_or(|last| last.report.members != report.members);
        let site = report.site.clone();
        entry.last = Some(Last {
            at: now,
            from,
            report,
        });
        entry.taken += 1;
        if members_changed || !same_values(&before, &entry.facts(settings, now)) {
            changes.sites.insert(site);
        }
        let answer = Answer {
            interval_ms: settings.interval.as_millis() as u64,
            silent_after_ms: settings.silent_after.as_millis() as u64,
            measure: rtts.wanted(id, now),
        };
        self.judge(&mut inner, now);
        self.tell(&mut inner);
        Ok(answer)
    }

    /// Finds out who fell silent and what is too old. To be called a few times in each `silent_after`.
    pub fn tick(&self, now: Instant) {
        let mut inner = self.lock();
        self.judge(&mut inner, now);
        let Inner { rtts, changes, .. } = &mut *inner;
        rtts.expire(now, &mut changes.prefixes);
        self.tell(&mut inner);
    }

    /// Notes and logs who fell silent and who reports again.
    fn judge(&self, inner: &mut Inner, now: Instant) {
        let Inner {
            settings,
            sites,
            changes,
            feed_down,
            ..
        } = inner;
        for (site, entry) in sites.iter_mut() {
            let silent = entry.is_silent(settings, now);
            if silent == std::mem::replace(&mut entry.said_silent, silent) {
                continue;
            }
            changes.sites.insert(site.clone());
            let heard = entry.last.is_some();
            let age_s = entry.age(now).as_secs_f64();
            match silent {
                true if heard => {
                    tracing::warn!(site, age_s, "site is silent: its reports do not come any more")
                }
                true => tracing::warn!(site, age_s, "site is silent: no report of it has come yet"),
                false => tracing::info!(site, "site reports again"),
            }
        }
        let down = !sites.is_empty() && sites.values().all(|entry| entry.said_silent);
        if down != std::mem::replace(feed_down, down) {
            // The rule for silent sites is off or on again for all of them.
            changes.sites.extend(sites.keys().cloned());
            if down {
                let sites = sites.len();
                tracing::error!(
                    sites,
                    "no site reports any more: none is avoided for it, local checks decide"
                );
            } else {
                tracing::info!("sites report again: those that do not may be avoided");
            }
        }
    }

    fn tell(&self, inner: &mut Inner) {
        let changes = &mut inner.changes;
        if changes.prefixes.len() > CHANGES_MAX {
            *changes = Changes {
                everything: true,
                ..Changes::default()
            };
        }
        if *changes != Changes::default() {
            self.changed.notify_one();
        }
    }

    /// Waits until something changed that was not taken yet. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What changed since this was last called.
    pub fn take_changes(&self) -> Changes {
        std::mem::take(&mut self.lock().changes)
    }

    /// A client was seen: its prefix is to be measured, at its address if it is a resolver's.
    pub fn see(&self, client: IpAddr, now: Instant) {
        let mut inner = self.lock();
        let prefix = inner.rtts.prefix_of(client);
        let Inner { rtts, changes, .. } = &mut *inner;
        rtts.ask(prefix, Some(client), now, &mut changes.prefixes);
        self.tell(&mut inner);
    }

    /// A prefix was asked about: it is to be measured.
    pub fn ask(&self, prefix: IpNet, now: Instant) {
        let mut inner = self.lock();
        let Inner { rtts, changes, .. } = &mut *inner;
        rtts.ask(prefix, None, now, &mut changes.prefixes);
        self.tell(&mut inner);
    }

    /// What a site said of a member last, with its age; `None` while it is silent or never spoke of it.
    pub fn member(&self, site: &str, address: IpAddr, now: Instant) -> Option<(MemberReport, Duration)> {
        let inner = self.lock();
        let entry = inner.sites.get(site)?;
        if entry.is_silent(&inner.settings, now) {
            return None;
        }
        let members = &entry.last.as_ref()?.report.members;
        let member = members.iter().find(|member| member.address == address)?;
        Some((member.clone(), entry.age(now)))
    }

    /// Everything as of `now`. Sites are those of `config`, which may be newer than the store's own.
    pub fn facts(&self, config: &Config, now: Instant) -> Facts {
        let inner = self.lock();
        let mut facts = Facts::none(config);
        let places = inner.places(config);
        for (site, facts) in config.sites.iter().zip(&mut facts.sites) {
            *facts = inner.site(&site.name, now);
        }
        for prefix in inner.rtts.prefixes() {
            inner.evidence(prefix, &places, now, &mut facts.latency);
        }
        facts
    }

    /// Brings `facts`, made for the same configuration, up to `now` for what changed alone.
    pub fn update(&self, config: &Config, now: Instant, changes: &Changes, facts: &mut Facts) {
        if changes.everything || facts.sites.len() != config.sites.len() {
            let old = std::mem::replace(facts, self.facts(config, now));
            // Evidence of other sources is not the store's.
            for (key, list) in old.latency {
                let others = list
                    .into_iter()
                    .filter(|evidence| evidence.source != Source::Agent);
                facts.latency.entry(key).or_default().extend(others);
            }
            facts.latency.retain(|_, list| !list.is_empty());
            return;
        }
        let inner = self.lock();
        for (site, facts) in config.sites.iter().zip(&mut facts.sites) {
            if changes.sites.contains(&site.name) {
                *facts = inner.site(&site.name, now);
            }
        }
        let places = inner.places(config);
        for prefix in &changes.prefixes {
            for site in 0..config.sites.len() {
                let key = (Clients::Prefix(*prefix), site);
                if let Some(list) = facts.latency.get_mut(&key) {
                    list.retain(|evidence| evidence.source != Source::Agent);
                    if list.is_empty() {
                        facts.latency.remove(&key);
                    }
                }
            }
            inner.evidence(prefix, &places, now, &mut facts.latency);
        }
    }

    /// Every site that is to report, by name.
    pub fn status(&self, now: Instant) -> Vec<SiteStatus> {
        let inner = self.lock();
        let mut list: Vec<SiteStatus> = inner
            .sites
            .iter()
            .map(|(site, entry)| SiteStatus {
                site: site.clone(),
                silent: entry.is_silent(&inner.settings, now),
                taken: entry.taken,
                last: entry
                    .last
                    .as_ref()
                    .map(|last| (last.report.clone(), entry.age(now))),
                from: entry.last.as_ref().map(|last| last.from),
                connections_per_second: entry.rate(),
                rtts: inner.rtts.count(entry.id),
            })
            .collect();
        list.sort_by(|a, b| a.site.cmp(&b.site));
        list
    }

    /// Prefixes that are measured or to be measured.
    pub fn prefixes(&self) -> Vec<IpNet> {
        self.lock().rtts.prefixes().copied().collect()
    }
}

impl Inner {
    fn site(&self, name: &str, now: Instant) -> SiteFacts {
        let entry = self.sites.get(name);
        entry.map_or_else(SiteFacts::default, |entry| entry.facts(&self.settings, now))
    }

    /// Index in the configuration of each site, by the store's number.
    fn places(&self, config: &Config) -> HashMap<SiteId, usize> {
        let place = |(index, site): (usize, &crate::config::model::Site)| {
            Some((self.sites.get(&site.name)?.id, index))
        };
        config.sites.iter().enumerate().filter_map(place).collect()
    }

    /// Adds what agents measured of `prefix`.
    fn evidence(
        &self,
        prefix: &IpNet,
        places: &HashMap<SiteId, usize>,
        now: Instant,
        into: &mut HashMap<(Clients, usize), Vec<Evidence>>,
    ) {
        for (id, measured) in self.rtts.of(prefix, now) {
            let Some(&site) = places.get(&id) else { continue };
            let evidence = Evidence {
                value: measured.value,
                count: u64::from(measured.samples),
                age: now.saturating_duration_since(measured.at),
                source: Source::Agent,
            };
            into.entry((Clients::Prefix(*prefix), site))
                .or_default()
                .push(evidence);
        }
    }
}

/// Equal but for ages.
fn same_values(a: &SiteFacts, b: &SiteFacts) -> bool {
    let values = |facts: &SiteFacts| {
        let readings = [facts.sessions, facts.bandwidth_bps, facts.connections_per_second];
        (readings.map(|reading| reading.map(|r| r.value)), facts.silent)
    };
    values(a) == values(b)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
