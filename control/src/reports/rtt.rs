//! Round-trip times by prefix and site, and which prefixes are to be measured next. Owned by the store; time is
//! handed in.
//!
//! A prefix is here because the configuration names it, a client in it was seen, or somebody asked about it. Their number
//! is bounded: the least recently used goes for a new one, those of the configuration stay. A site is asked to
//! measure a prefix at most once in `every`, what it never measured first.

use super::report::{Method, Rtt, Wanted};
use crate::config::model::Reports;
use ipnet::IpNet;
use lru::LruCache;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Prefixes in one answer to a report at most.
pub const WANTED_MAX: usize = 128;
/// A prefix that gave no reply is tried again after so many times the usual period.
const SILENT_FACTOR: u32 = 5;

/// The whole table is looked through no more often: readers judge ages themselves.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);

/// Number of a site in the store.
pub(super) type SiteId = u32;

/// A round-trip time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The median.
    pub value: Duration,
    /// Samples that it is of.
    pub samples: u32,
    /// How.
    pub method: Method,
    /// When.
    pub at: Instant,
}

/// What is known of a prefix at a site.
#[derive(Debug, Default)]
struct AtSite {
    measured: Option<Measured>,
    /// When the site said last that it gave no reply.
    silent: Option<Instant>,
    /// When the site was asked last to measure it.
    asked: Option<Instant>,
}

#[derive(Debug)]
struct Prefix {
    /// An address in it that was heard of.
    address: Option<IpAddr>,
    used: Instant,
    sites: HashMap<SiteId, AtSite>,
}

impl Prefix {
    fn new(now: Instant) -> Self {
        Self {
            address: None,
            used: now,
            sites: HashMap::new(),
        }
    }

    fn is_measured(&self) -> bool {
        self.sites.values().any(|at| at.measured.is_some())
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct RttTable {
    /// Those that the configuration names.
    fixed: HashMap<IpNet, Prefix>,
    /// The others, by use; `None`: the configuration's fill it.
    seen: Option<LruCache<IpNet, Prefix>>,
    every: Duration,
    max_age: Duration,
    lengths: (u8, u8),
    expired: Instant,
}

impl RttTable {
    pub(super) fn new(config: &Reports, now: Instant) -> Self {
        let fixed = config.measure.iter().map(|&prefix| (prefix, Prefix::new(now)));
        let fixed: HashMap<_, _> = fixed.collect();
        let room = config.rtt_prefixes.saturating_sub(fixed.len());
        Self {
            fixed,
            seen: NonZeroUsize::new(room).map(LruCache::new),
            every: config.rtt_every,
            max_age: config.rtt_max_age,
            lengths: (config.rtt_prefix_v4, config.rtt_prefix_v6),
            expired: now,
        }
    }

    /// Another configuration; what is known and still wanted stays. `sites`: who still reports. Prefixes whose evidence
    /// went go to `gone`.
    pub(super) fn configure(
        &mut self,
        config: &Reports,
        sites: &HashSet<SiteId>,
        now: Instant,
        gone: &mut HashSet<IpNet>,
    ) {
        let mut old = std::mem::replace(self, Self::new(config, now));
        let mut keep = |table: &mut Self, prefix: IpNet, mut entry: Prefix| {
            let before = entry.is_measured();
            let count = entry.sites.len();
            entry.sites.retain(|site, _| sites.contains(site));
            if before && entry.sites.len() < count {
                gone.insert(prefix);
            }
            match table.fixed.get_mut(&prefix) {
                Some(place) => *place = entry,
                None => table.push(prefix, entry, gone),
            }
        };
        // From the least to the most recently used, so that their order stays.
        while let Some((prefix, entry)) = old.seen.as_mut().and_then(LruCache::pop_lru) {
            keep(self, prefix, entry);
        }
        for (prefix, entry) in old.fixed {
            keep(self, prefix, entry);
        }
    }

    /// Puts a prefix in the place of the least recently used.
    fn push(&mut self, prefix: IpNet, entry: Prefix, gone: &mut HashSet<IpNet>) {
        let evicted = match &mut self.seen {
            Some(seen) => seen.push(prefix, entry),
            None => Some((prefix, entry)),
        };
        if let Some((prefix, entry)) = evicted
            && entry.is_measured()
        {
            gone.insert(prefix);
        }
    }

    /// The prefix that a client's RTTs are kept under: the longest of the configuration that holds it, or its own of
    /// the configured length.
    pub(super) fn prefix_of(&self, client: IpAddr) -> IpNet {
        let (longest, length) = match client {
            IpAddr::V4(_) => (32, self.lengths.0),
            IpAddr::V6(_) => (128, self.lengths.1),
        };
        let of = |length| IpNet::new(client, length).map_or_else(|_| client.into(), |net| net.trunc());
        let mut fixed = (0..=longest).rev().map(of);
        fixed
            .find(|prefix| self.fixed.contains_key(prefix))
            .unwrap_or_else(|| of(length))
    }

    /// Notes that `prefix` is wanted, and an address in it if one is known. Prefixes that lose their evidence for it go
    /// to `gone`.
    pub(super) fn ask(
        &mut self,
        prefix: IpNet,
        address: Option<IpAddr>,
        now: Instant,
        gone: &mut HashSet<IpNet>,
    ) {
        let prefix = prefix.trunc();
        let found = match self.fixed.get_mut(&prefix) {
            Some(entry) => Some(entry),
            None => self.seen.as_mut().and_then(|seen| seen.get_mut(&prefix)),
        };
        if let Some(entry) = found {
            entry.used = now;
            entry.address = address.or(entry.address);
            return;
        }
        let mut entry = Prefix::new(now);
        entry.address = address;
        self.push(prefix, entry, gone);
    }

    /// The place of a prefix, without counting as a use.
    fn entry(&mut self, prefix: &IpNet) -> Option<&mut Prefix> {
        match self.fixed.get_mut(prefix) {
            Some(entry) => Some(entry),
            None => self.seen.as_mut()?.peek_mut(prefix),
        }
    }

    /// Takes what `site` measured at `at`. A prefix that nobody asked for is taken while there is room: false if not.
    pub(super) fn take(&mut self, site: SiteId, rtt: &Rtt, at: Instant, now: Instant) -> bool {
        let max_age = self.max_age;
        if self.entry(&rtt.prefix).is_none()
            && let Some(seen) = self.seen.as_mut().filter(|seen| seen.len() < seen.cap().get())
        {
            seen.push(rtt.prefix, Prefix::new(now));
        }
        let Some(entry) = self.entry(&rtt.prefix) else {
            return false;
        };
        let place = entry.sites.entry(site).or_default();
        place.silent = None;
        let newer = place.measured.as_ref().is_none_or(|old| old.at <= at);
        if newer && now.saturating_duration_since(at) <= max_age {
            place.measured = Some(Measured {
                value: Duration::from_micros(rtt.rtt_us),
                samples: rtt.samples,
                method: rtt.method,
                at,
            });
        }
        true
    }

    /// Notes that `prefix` gave `site` no reply. What was measured before stays until it is too old.
    pub(super) fn take_silent(&mut self, site: SiteId, prefix: &IpNet, now: Instant) {
        if let Some(entry) = self.entry(prefix) {
            entry.sites.entry(site).or_default().silent = Some(now);
        }
    }

    /// What `site` is to measure now, never measured ones first, then by age; they count as asked for.
    pub(super) fn wanted(&mut self, site: SiteId, now: Instant) -> Vec<Wanted> {
        let every = self.every;
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        // The least time since anything was tried; `None`: never.
        let due = |entry: &Prefix| -> Option<Option<Duration>> {
            let Some(at) = entry.sites.get(&site) else {
                return Some(None);
            };
            let measured = since(at.measured.as_ref().map(|m| m.at));
            let (asked, silent) = (since(at.asked), since(at.silent));
            let tried = [measured, asked, silent].into_iter().flatten().min();
            let silent_lately = silent.is_some_and(|silent| silent < every * SILENT_FACTOR);
            (!silent_lately && tried.is_none_or(|tried| tried >= every)).then_some(tried)
        };
        let seen = self.seen.iter().flat_map(LruCache::iter);
        let mut list: Vec<(Duration, IpNet)> = self
            .fixed
            .iter()
            .chain(seen)
            .filter_map(|(prefix, entry)| Some((due(entry)?.unwrap_or(Duration::MAX), *prefix)))
            .collect();
        list.sort_unstable_by_key(|&(tried, prefix)| (std::cmp::Reverse(tried), prefix));
        list.truncate(WANTED_MAX);
        list.into_iter()
            .filter_map(|(_, prefix)| {
                let entry = self.entry(&prefix)?;
                entry.sites.entry(site).or_default().asked = Some(now);
                let address = entry.address;
                Some(Wanted { prefix, address })
            })
            .collect()
    }

    /// Forgets what is too old; prefixes that lost evidence go to `gone`.
    pub(super) fn expire(&mut self, now: Instant, gone: &mut HashSet<IpNet>) {
        if now.saturating_duration_since(self.expired) < EXPIRE_EVERY {
            return;
        }
        self.expired = now;
        let max_age = self.max_age;
        let old = |at: Instant| now.saturating_duration_since(at) > max_age;
        let mut forget = |prefix: &IpNet, entry: &mut Prefix| {
            for at in entry.sites.values_mut() {
                if at.measured.as_ref().is_some_and(|measured| old(measured.at)) {
                    at.measured = None;
                    gone.insert(*prefix);
                }
            }
        };
        self.fixed.iter_mut().for_each(|(p, entry)| forget(p, entry));
        let Some(seen) = &mut self.seen else { return };
        seen.iter_mut().for_each(|(p, entry)| forget(p, entry));
        // Ordered by use: from the end until one was used lately.
        while seen.peek_lru().is_some_and(|(_, entry)| old(entry.used)) {
            if let Some((prefix, entry)) = seen.pop_lru()
                && entry.is_measured()
            {
                gone.insert(prefix);
            }
        }
    }

    /// What is known of `prefix`, by site, and is not too old.
    pub(super) fn of(&self, prefix: &IpNet, now: Instant) -> Vec<(SiteId, Measured)> {
        let entry = match self.fixed.get(prefix) {
            Some(entry) => Some(entry),
            None => self.seen.as_ref().and_then(|seen| seen.peek(prefix)),
        };
        let sites = entry.into_iter().flat_map(|entry| &entry.sites);
        sites
            .filter_map(|(site, at)| Some((*site, at.measured.clone()?)))
            .filter(|(_, measured)| now.saturating_duration_since(measured.at) <= self.max_age)
            .collect()
    }

    /// Every prefix.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        let seen = self
            .seen
            .iter()
            .flat_map(LruCache::iter)
            .map(|(prefix, _)| prefix);
        self.fixed.keys().chain(seen)
    }

    /// How many prefixes `site` has an RTT of.
    pub(super) fn count(&self, site: SiteId) -> usize {
        let seen = self.seen.iter().flat_map(LruCache::iter).map(|(_, entry)| entry);
        let entries = self.fixed.values().chain(seen);
        entries
            .filter(|entry| entry.sites.get(&site).is_some_and(|at| at.measured.is_some()))
            .count()
    }
}

#[cfg(test)]
#[path = "rtt_tests.rs"]
mod tests;
