//! The loop closed, on a clock of its own: clients follow answers, latency follows load, answers follow latency.

use super::Store;
use crate::config::model::{Config, Metric};
use crate::policy::PolicyKey;
use crate::policy::chain::facts::Clients;
use crate::policy::chain::{ClientClass, Facts, Sites, rank, rank_explore};
use crate::policy::tests::with_service;
use dataplane::flow::estimate::{Doubts, Kind, Sample};
use dataplane::flow::{Moment, Span};
use dataplane::link::{Cell, LatencySample};
use dataplane::tables::servers::{Server, Servers, Watching};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Requests a second of one ISP.
const REQUESTS: f64 = 300.0;
/// Part of the queries that explores: 5 %, as by default.
const EXPLORE: f64 = 0.05;

/// One ISP's clients and two sites. Time goes in seconds.
struct World {
    config: Config,
    store: Store,
    servers: Servers,
    class: ClientClass,
    key: PolicyKey,
    facts: Facts,
    start: Instant,
    /// Share of the clients that goes to each site.
    at: [f64; 2],
    random: fastrand::Rng,
    /// First choices over time: when they changed, and to what.
    moves: Vec<(u64, Vec<u8>)>,
    /// Sum over seconds of the mean latency, milliseconds.
    felt: f64,
}

impl World {
    fn new(hold: Duration) -> Self {
        let config = with_service(|config| {
            config.services[0].chain = vec![Metric::Health, Metric::Latency];
            config.services[0].members.truncate(4);
            config.latency.hold = hold;
        });
        let class = ClientClass {
            isp: Some(0),
            ..ClientClass::default()
        };
        let server = |site: u16| Server {
            address: std::net::IpAddr::from([198, 51, 100, site as u8]),
            len: 32,
            site: Some(site),
        };
        let servers = Servers::build((0..2).map(server).collect(), Watching::default()).unwrap();
        let start = Instant::now();
        let store = Store::new(&config, start);
        store.learn(&config, &[ClientClass::default(), class.clone()], &servers);
        Self {
            key: PolicyKey::of(&config, &config.services[0]),
            facts: Facts::none(&config),
            store,
            servers,
            class,
            start,
            at: [0.5, 0.5],
            random: fastrand::Rng::with_seed(7),
            moves: Vec::new(),
            felt: 0.0,
            config,
        }
    }

    /// One second in which the sites take `latency` milliseconds, given the share of the clients at each.
    fn second(&mut self, second: u64, latency: impl Fn(usize, f64) -> f64) {
        let now = self.start + Duration::from_secs(second);
        let mut samples = Vec::new();
        for site in 0..2 {
            let ms = latency(site, self.at[site]);
            self.felt += ms * self.at[site];
            for request in 0..(REQUESTS * self.at[site]) as u32 {
                // A tail like that of real services: from 0.7 to 2.2 times, the median as it is.
                let u = self.random.f64();
                let factor = if u < 0.5 {
                    0.7 + 0.6 * u
                } else {
                    1.0 + 2.4 * (u - 0.5)
                };
                samples.push(LatencySample {
                    cell: Cell {
                        class: 1,
                        server: site as u16 + 1,
                    },
                    numbering: self.servers.numbering(),
                    sample: Sample {
                        kind: Kind::Response,
                        value: Span::micros((ms * factor * 1000.0) as u32),
                        doubts: Doubts::NONE,
                    },
                    flow: self.random.u32(..),
                    at: Moment(request),
                });
            }
        }
        self.store.take(&samples, now, None);
        // As the appliance does: what changed, and everything every ten seconds.
        let changed: HashSet<Clients> = self.store.judge(&self.config, now);
        match second.is_multiple_of(10) {
            true => self.store.update(&self.config, None, now, &mut self.facts),
            false => self
                .store
                .update(&self.config, Some(&changed), now, &mut self.facts),
        }
        let (chain, sites) = (&self.key.chain, &self.key.sites);
        let first = rank(chain, sites, &self.class, &self.facts, Sites::default()).swap_remove(0);
        let explored = rank_explore(chain, sites, &self.class, &self.facts, Sites::default()).swap_remove(0);
        let share = |tier: &[u8], site: usize| match tier.contains(&(site as u8)) {
            true => 1.0 / tier.len() as f64,
            false => 0.0,
        };
        // Each client asks again once in a TTL.
        let ttl = f64::from(self.config.services[0].ttl);
        for site in 0..2 {
            let goes = (1.0 - EXPLORE) * share(&first, site) + EXPLORE * share(&explored, site);
            self.at[site] += (goes - self.at[site]) / ttl;
        }
        if self.moves.last().is_none_or(|(_, last)| *last != first) {
            self.moves.push((second, first));
        }
    }

    fn first(&self) -> &[u8] {
        &self.moves.last().expect("there was a second").1
    }
}

/// Ten minutes in which site 0 takes 20 ms and site 1 `far`, and `load` more when all clients of the ISP are there: how often first
/// choices changed, and the mean that clients felt.
fn ten_minutes(hold: Duration, far: f64, load: f64) -> (usize, f64) {
    let mut world = World::new(hold);
    for second in 0..600 {
        world.second(second, |site, share| [20.0, far][site] + load * share);
    }
    // The first is no change.
    (world.moves.len() - 1, world.felt / 600.0)
}

#[test]
fn answers_do_not_swing_when_latency_depends_on_load() {
    for (far, load) in [(28.0, 40.0), (45.0, 80.0)] {
        let (held, felt_held) = ten_minutes(Duration::from_secs(120), far, load);
        let (free, felt_free) = ten_minutes(Duration::ZERO, far, load);
        eprintln!(
            "far {far} ms, load {load} ms: {held} changes of the first choice in ten minutes, {felt_held:.1} ms felt"
        );
        eprintln!("     without a hold {free} changes, {felt_free:.1} ms felt");
        assert!(held <= 10, "{held} changes");
        assert!(free >= 2 * held, "{free} changes without a hold, {held} with it");
        assert!(
            felt_held < felt_free * 1.02,
            "{felt_held} ms, and {felt_free} ms without"
        );
    }
}

#[test]
fn what_has_nothing_to_do_with_load_moves_everybody_there_and_back() {
    let mut world = World::new(Duration::from_secs(120));
    let latency = |second: u64| {
        move |site: usize, _: f64| match site {
            0 if (100..400).contains(&second) => 60.0,
            0 => 30.0,
            _ => 40.0,
        }
    };
    for second in 0..600 {
        world.second(second, latency(second));
    }
    let moves: Vec<(u64, &[u8])> = world
        .moves
        .iter()
        .map(|(second, to)| (*second, &to[..]))
        .collect();
    // The median passes where both are good on its way.
    let [(0, [0]), (_, [0, 1]), (away, [1]), (_, [0, 1]), (back, [0])] = moves[..] else {
        panic!("{moves:?}")
    };
    // A window, and a second.
    assert!((100..=131).contains(&away), "{away}");
    // Explorers alone tell of it: 15 requests a second are enough for a window.
    assert!((400..=431).contains(&back), "{back}");
}

#[test]
fn who_recovers_soon_gets_half_of_the_clients_then_all() {
    let mut world = World::new(Duration::from_secs(120));
    let latency = |second: u64| {
        move |site: usize, _: f64| match site {
            0 if (100..150).contains(&second) => 60.0,
            0 => 30.0,
            _ => 40.0,
        }
    };
    for second in 0..600 {
        world.second(second, latency(second));
    }
    let last: Vec<(u64, &[u8])> = world
        .moves
        .iter()
        .skip(2)
        .map(|(second, to)| (*second, &to[..]))
        .collect();
    let [(away, [1]), (shared, [0, 1]), (back, [0])] = last[..] else {
        panic!("{last:?}")
    };
    assert!((100..=131).contains(&away), "{away}");
    assert!((150..=181).contains(&shared), "{shared}");
    // Two windows of 30 s and two TTLs of 30 s later, which is before the hold ends only if it began early.
    assert!(
        back >= away + 120 || back == shared + 120,
        "{away} {shared} {back}"
    );
    assert!(back <= shared + 121, "{shared} {back}");
}

#[test]
fn an_even_start_stays_even() {
    let mut world = World::new(Duration::from_secs(120));
    for second in 0..600 {
        world.second(second, |_, share| 20.0 + 40.0 * share);
    }
    assert_eq!(world.moves.len(), 1, "{:?}", world.moves);
    assert_eq!(world.first(), [0, 1]);
}
