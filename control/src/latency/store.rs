//! Everything that is known of response latency on users' traffic: sums samples, makes evidence for the chain and figures
//! for people.
//!
//! Made by the run loop and shared by the collector, the admin API and whoever compiles plans. Every moment is handed in, so that
//! tests have a clock of their own. Cells are bounded: the one that had no sample for longest gives way.

use super::cell::{Cell, Clock, Measured, SLOTS, Told};
use super::file::Row;
use super::hold::{self, Group, Shared};
use super::names::{Indices, Key, Name, Place, Resolver, Who};
use crate::config::model::{Config, Metric};
use crate::policy::chain::facts::{Clients, Evidence, Held, Source};
use crate::policy::chain::latency::Parameters;
use crate::policy::chain::{ClientClass, Facts};
use dataplane::flow::estimate::{Confidence, Kind};
use dataplane::link::LatencySample;
use dataplane::tables::Servers;
use foldhash::fast::RandomState;
use lru::LruCache;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Fewer flows than these say nothing of an ISP or a country, only of themselves.
const FLOWS_MIN: u64 = 3;
/// What is told to the chain follows what is measured when that is off by more than this part of it,
const STEP_PARTS: u32 = 20;
/// and by more than this.
const STEP_MIN: Duration = Duration::from_micros(50);
/// Cells told to people under one lock: about a millisecond.
const CELLS_AT_ONCE: usize = 32;
/// Figures are kept for so long after the last sample, or for the longest `max_age` of the services.
const KEEP_MIN: Duration = Duration::from_secs(600);

/// What became of samples, and how much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that were summed.
    pub taken: u64,
    /// Those of them of low confidence.
    pub low: u64,
    /// Samples of tables that are not known any more, or of servers of no site.
    pub unknown: u64,
    /// Cells in use.
    pub cells: usize,
    /// Cells that there is room for.
    pub cells_max: usize,
    /// Cells that gave way to others.
    pub evicted: u64,
    /// Times that other values were told to the chain.
    pub told: u64,
    /// Times that the clients of a group were sent to another site first, by what was told.
    pub leaders: u64,
}

/// A cell of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Whose, in words.
    pub clients: String,
    /// The site.
    pub site: Arc<str>,
    /// The member; `None`: the site.
    pub member: Option<IpAddr>,
    /// What is known.
    pub told: Told,
    /// What the chain is told, and why that is not what is measured; `None`: nothing.
    pub handed: Option<(Duration, Option<Held>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handed {
    value: Duration,
    shared: Option<Shared>,
    measured: Measured,
}

impl Handed {
    fn held(&self, now: Instant) -> Option<Held> {
        Some(Held {
            measured: self.measured.value,
            rest: self.shared?.until.saturating_duration_since(now),
        })
    }

    /// Whether the chain would notice.
    fn differs(&self, other: &Self) -> bool {
        (self.value, self.shared) != (other.value, other.shared)
    }
}

/// The store.
pub struct Store {
    inner: Mutex<Inner>,
}

struct Inner {
    clock: Clock,
    keep: Duration,
    rules: hold::Rules,
    resolver: Resolver,
    cells: LruCache<Key, Cell, RandomState>,
    groups: HashMap<Who, Group<Name>>,
    /// Values that follow what is measured in steps.
    stepped: HashMap<(Who, Name), Duration>,
    handed: HashMap<(Who, Name), Handed>,
    counts: Counts,
}

/// How long figures are kept.
fn keep(config: &Config) -> Duration {
    let by_latency = config
        .services
        .iter()
        .filter(|service| service.chain.contains(&Metric::Latency));
    let longest = by_latency.map(|service| service.parameters.latency.max_age).max();
    longest.unwrap_or_default().max(KEEP_MIN)
}

fn rules(config: &Config) -> hold::Rules {
    let by_latency = || {
        config
            .services
            .iter()
            .filter(|service| service.chain.contains(&Metric::Latency))
    };
    let tolerance = |p: &Parameters| (p.relative.0, p.absolute);
    let mut tolerances: Vec<(u32, Duration)> =
        by_latency().map(|s| tolerance(&s.parameters.latency)).collect();
    if tolerances.is_empty() {
        tolerances.push(tolerance(&Parameters::default()));
    }
    tolerances.sort_unstable();
    tolerances.dedup();
    let ttl = by_latency().map(|service| service.ttl).max().unwrap_or_default();
    hold::Rules {
        hold: config.latency.hold,
        trial: (config.latency.window + Duration::from_secs(ttl.into())) * 2,
        tolerances,
    }
}

fn room(config: &Config) -> NonZeroUsize {
    NonZeroUsize::new(config.latency.cells).unwrap_or(NonZeroUsize::MIN)
}

impl Store {
    /// An empty one.
    pub fn new(config: &Config, now: Instant) -> Self {
        Self {
            inner: Mutex::new(Inner {
                clock: Clock {
                    start: now,
                    slot: config.latency.window / SLOTS,
                },
                keep: keep(config),
                rules: rules(config),
                resolver: Resolver::default(),
                cells: LruCache::with_hasher(room(config), RandomState::default()),
                groups: HashMap::new(),
                stepped: HashMap::new(),
                handed: HashMap::new(),
                counts: Counts::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked while it held the lock has ended the process already.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes by another configuration. What is known stays, unless the window is another.
    pub fn configure(&self, config: &Config) {
        let mut inner = self.lock();
        (inner.keep, inner.rules) = (keep(config), rules(config));
        let slot = config.latency.window / SLOTS;
        if inner.clock.slot != slot {
            inner.clock.slot = slot;
            inner.cells.clear();
        }
        let room = room(config);
        let over = inner.cells.len().saturating_sub(room.get());
        inner.counts.evicted += over as u64;
        inner.cells.resize(room);
    }

    /// Takes tables that are about to be published: before, so that no sample comes that cannot be told.
    pub fn learn(&self, config: &Config, classes: &[ClientClass], servers: &Servers) {
        self.lock().resolver.learn(config, classes, servers);
    }

    /// Sums samples that came at `now`. A row for each that was taken goes to `rows`.
    pub fn take(&self, samples: &[LatencySample], now: Instant, mut rows: Option<&mut Vec<Row>>) {
        let mut inner = self.lock();
        let Inner {
            clock,
            resolver,
            cells,
            counts,
            ..
        } = &mut *inner;
        for told in samples {
            let Some(of) = resolver.resolve(told) else {
                counts.unknown += 1;
                continue;
            };
            counts.taken += 1;
            let low =
                told.sample.kind == Kind::Response && told.sample.doubts.confidence() == Confidence::Low;
            counts.low += u64::from(low);
            if let Some(rows) = rows.as_deref_mut() {
                rows.push(Row {
                    clients: of.label.clone(),
                    site: resolver.names.get(of.place.site),
                    member: of.place.member,
                    sample: told.sample,
                    flow: told.flow,
                });
            }
            let site = Place {
                member: None,
                ..of.place
            };
            // Members for the narrowest clients alone: all clients of a member are those of its site.
            let keys = of
                .who
                .iter()
                .map(|who| (*who, site))
                .chain(of.who.first().map(|who| (*who, of.place)));
            for key in keys {
                if let Some(cell) = cells.get_mut(&key) {
                    cell.add(told.sample, told.flow, clock, now);
                    continue;
                }
                let mut cell = Cell::new(now);
                cell.add(told.sample, told.flow, clock, now);
                let gone = cells.push(key, cell);
                counts.evicted += u64::from(gone.is_some());
            }
        }
    }

    /// Works out what the chain is to be told at `now`: of whom that is other than before, as the configuration numbers them. To be
    /// called once a second or so: not more often do answers change by it.
    pub fn judge(&self, config: &Config, now: Instant) -> HashSet<Clients> {
        let mut inner = self.lock();
        let handed = inner.hand(now);
        let before = std::mem::replace(&mut inner.handed, handed);
        let handed = &inner.handed;
        let came = handed
            .iter()
            .filter(|(key, value)| before.get(key).is_none_or(|old| old.differs(value)));
        let went = before.keys().filter(|key| !handed.contains_key(key));
        let whose: HashSet<Who> = came.map(|(key, _)| key.0).chain(went.map(|key| key.0)).collect();
        if whose.is_empty() {
            return HashSet::new();
        }
        inner.counts.told += 1;
        let indices = Indices::of(config, &mut inner.resolver.names);
        whose.into_iter().filter_map(|who| indices.clients(who)).collect()
    }

    /// Brings the passive evidence in `facts` up to `now`: of `clients`, or of all.
    pub fn update(
        &self,
        config: &Config,
        clients: Option<&HashSet<Clients>>,
        now: Instant,
        facts: &mut Facts,
    ) {
        let touched = |c: &Clients| clients.is_none_or(|clients| clients.contains(c));
        facts.latency.retain(|(whose, _), list| {
            if touched(whose) {
                list.retain(|evidence| evidence.source != Source::Passive);
            }
            !list.is_empty()
        });
        facts.held.retain(|(whose, _), _| !touched(whose));
        let mut inner = self.lock();
        let indices = Indices::of(config, &mut inner.resolver.names);
        for (&(who, site), handed) in &inner.handed {
            let (Some(whose), Some(site)) = (indices.clients(who), indices.site(site)) else {
                continue;
            };
            let age = now.saturating_duration_since(handed.measured.at);
            if !touched(&whose) || age > inner.keep {
                continue;
            }
            facts.latency.entry((whose, site)).or_default().push(Evidence {
                value: handed.value,
                count: handed.measured.flows,
                age,
                source: Source::Passive,
            });
            if let Some(held) = handed.held(now) {
                facts.held.insert((whose, site), held);
            }
        }
    }

    /// Every cell, by clients, site and member. Others get in between: summing up all cells takes longer than a ring of samples
    /// may have to wait.
    pub fn figures(&self, now: Instant) -> Vec<Figures> {
        let keys: Vec<Key> = self.lock().cells.iter().map(|(key, _)| *key).collect();
        let mut list: Vec<Figures> = Vec::with_capacity(keys.len());
        for some in keys.chunks(CELLS_AT_ONCE) {
            let mut inner = self.lock();
            list.extend(some.iter().filter_map(|key| inner.figures(key, now)));
        }
        list.sort_by(|a, b| (&a.clients, &a.site, a.member).cmp(&(&b.clients, &b.site, b.member)));
        list
    }

    /// What became of samples.
    pub fn counts(&self) -> Counts {
        let inner = self.lock();
        Counts {
            cells: inner.cells.len(),
            cells_max: inner.cells.cap().get(),
            ..inner.counts
        }
    }
}

impl Inner {
    /// One cell, for people.
    fn figures(&mut self, &(who, place): &Key, now: Instant) -> Option<Figures> {
        let cell = self.cells.peek_mut(&(who, place))?;
        let handed = self.handed.get(&(who, place.site));
        let handed = handed.filter(|_| place.member.is_none());
        Some(Figures {
            clients: self.resolver.describe(who),
            site: self.resolver.names.get(place.site),
            member: place.member,
            told: cell.told(&self.clock, self.keep, now),
            handed: handed.map(|handed| (handed.value, handed.held(now))),
        })
    }

    /// What the chain is to be told.
    fn hand(&mut self, now: Instant) -> HashMap<(Who, Name), Handed> {
        while let Some((_, cell)) = self.cells.peek_lru()
            && now.saturating_duration_since(cell.last()) > self.keep
        {
            self.cells.pop_lru();
        }
        let mut measured: HashMap<(Who, Name), Measured> = HashMap::new();
        for (&(who, place), cell) in self
            .cells
            .iter_mut()
            .filter(|((_, place), _)| place.member.is_none())
        {
            let enough = |m: &Measured| matches!(who, Who::Prefix(_)) || m.flows_seen >= FLOWS_MIN;
            if let Some(found) = cell.measured(&self.clock, self.keep, now).filter(enough) {
                measured.insert((who, place.site), found);
            }
        }
        self.stepped.retain(|key, _| measured.contains_key(key));
        let mut groups: BTreeMap<Who, Vec<(Name, Duration)>> = BTreeMap::new();
        for (&(who, site), found) in &measured {
            let stepped = self.stepped.entry((who, site)).or_insert(found.value);
            if stepped.abs_diff(found.value) > (*stepped / STEP_PARTS).max(STEP_MIN) {
                *stepped = found.value;
            }
            groups.entry(who).or_default().push((site, *stepped));
        }
        self.groups.retain(|who, _| groups.contains_key(who));
        let mut handed = HashMap::with_capacity(measured.len());
        for (who, mut sites) in groups {
            sites.sort_unstable();
            let group = self.groups.entry(who).or_default();
            let before = group.changes();
            for told in group.tell(&sites, &self.rules, now) {
                let key = (who, told.site);
                if let Some(&measured) = measured.get(&key) {
                    handed.insert(
                        key,
                        Handed {
                            value: told.value,
                            shared: told.shared,
                            measured,
                        },
                    );
                }
            }
            self.counts.leaders += group.changes() - before;
        }
        handed
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
