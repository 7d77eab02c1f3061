//! Worked examples of each metric, most of them Netmanias' and ServerIron's: figures and results are theirs.
//!
//! Korea is site 0 with balancer 1.1.1.1 (servers 1 and 2), the United States site 1 with 2.2.2.2 (servers 3 and 4).
// LONG: one table of examples, metric after metric; each is a few lines.

use super::facts::{Clients, Reading};
use super::geo::{Level, biased_m, distance_m};
use super::latency::NoEvidence;
use super::preference::Bound;
use super::*;
use crate::config::model::Site;
use std::time::Duration;

/// The metrics that drop sites by what is known.
const JUDGES: [Metric; 8] = [
    Metric::Health,
    Metric::Capacity,
    Metric::Isp,
    Metric::Latency,
    Metric::Geo,
    Metric::ConnectionLoad,
    Metric::AvailableSessions,
    Metric::Preference,
];

/// Two sites and a client of whom nothing is known but what an example says.
#[derive(Clone)]
struct World {
    sites: Vec<Candidate>,
    client: ClientClass,
    facts: Facts,
    parameters: Parameters,
    up: Vec<bool>,
}

impl World {
    fn new(count: usize) -> Self {
        let site = |site| Candidate {
            site,
            preference: 128,
            ..Candidate::default()
        };
        Self {
            sites: (0..count).map(site).collect(),
            client: ClientClass::default(),
            facts: Facts {
                sites: vec![SiteFacts::default(); count],
                ..Facts::default()
            },
            parameters: Parameters::default(),
            up: vec![true; count],
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// What is left by the chain.
    fn left(&self, metrics: &[Metric]) -> Vec<u8> {
        let chain = Chain {
            metrics: metrics.to_vec(),
            parameters: self.parameters.clone(),
        };
        let up = |i: u8| self.up[usize::from(i)];
        let steps = evaluate(&chain, &self.sites, &self.client, &self.facts, &up);
        steps.last().expect("a chain has metrics").after.iter().collect()
    }

    /// That every order of all metrics leaves `expected`.
    fn always_leaves(&self, expected: &[u8]) {
        orders(&JUDGES, |order| {
            let mut chain = order.to_vec();
            chain.extend([Metric::LeastSelected, Metric::Static]);
            assert_eq!(self.left(&chain), expected, "{order:?}");
        });
    }

    fn measured(&mut self, source: Source, millis: &[(usize, u64)]) {
        self.client.isp = Some(0);
        for &(site, ms) in millis {
            self.facts
                .latency
                .entry((Clients::Isp(0), site))
                .or_default()
                .push(Evidence {
                    value: Duration::from_millis(ms),
                    count: 10,
                    age: Duration::from_secs(14),
                    source,
                });
        }
    }
}

fn reading(value: u64) -> Option<Reading> {
    Some(Reading {
        value,
        age: Duration::from_secs(1),
    })
}

fn korea() -> Location {
    place(37.57, 126.98)
}

fn place(latitude: f64, longitude: f64) -> Location {
    Location {
        latitude: (latitude * 1e4) as i32,
        longitude: (longitude * 1e4) as i32,
    }
}

/// Every order of `items` (Heap's algorithm).
fn orders(items: &[Metric], mut each: impl FnMut(&[Metric])) {
    let mut items = items.to_vec();
    let mut counts = vec![0; items.len()];
    each(&items);
    let mut i = 1;
    while i < items.len() {
        if counts[i] < i {
            items.swap(if i % 2 == 0 { 0 } else { counts[i] }, i);
            each(&items);
            counts[i] += 1;
            i = 1;
        } else {
            counts[i] = 0;
            i += 1;
        }
    }
}

#[test]
fn servers_3_and_4_are_down() {
    World::new(2).with(|w| w.up[1] = false).always_leaves(&[0]);
}

#[test]
fn us_sessions_are_at_their_threshold() {
    // A balancer's sessions are the sum over its servers.
    let korea_sessions = 300_000 + 100_000;
    let sessions = |us| {
        World::new(2).with(|w| {
            for site in &mut w.sites {
                site.limits.sessions = Some(900_000);
            }
            w.facts.sites[0].sessions = reading(korea_sessions);
            w.facts.sites[1].sessions = reading(us);
        })
    };
    let chain = [Metric::Capacity, Metric::Static];
    assert_eq!(sessions(900_000).left(&chain), [0]);
    assert_eq!(sessions(1_200_000).left(&chain), [0]);
    assert_eq!(sessions(899_999).left(&chain), [0, 1]);
    // Free sessions say the same: 500,000 and none.
    sessions(900_000).always_leaves(&[0]);
    // Both at the threshold: a metric that would drop all drops none.
    let both = sessions(900_000).with(|w| w.facts.sites[0].sessions = reading(900_000));
    both.always_leaves(&[0, 1]);
}

#[test]
fn us_bandwidth_is_at_its_threshold() {
    let world = World::new(2).with(|w| {
        for site in &mut w.sites {
            site.limits.bandwidth_bps = Some(900_000_000);
        }
        w.facts.sites[0].bandwidth_bps = reading(400_000_000);
        w.facts.sites[1].bandwidth_bps = reading(900_000_000);
    });
    world.always_leaves(&[0]);
}

#[test]
fn between_the_marks_a_site_is_shed_in_proportion() {
    let site = Site {
        sessions_max: Some(1_000_000),
        bandwidth_max_bps: Some(1_000),
        ..Site::default()
    };
    let share = |sessions: Option<Reading>, bandwidth_bps: Option<Reading>| {
        let facts = SiteFacts {
            sessions,
            bandwidth_bps,
            ..SiteFacts::default()
        };
        capacity::site_share(&facts, &site, &capacity::Parameters::default())
    };
    // Marks at 90 % and 100 %.
    assert_eq!(share(reading(0), None), 256);
    assert_eq!(share(reading(900_000), None), 256);
    assert_eq!(share(reading(925_000), None), 192);
    assert_eq!(share(reading(950_000), None), 128);
    assert_eq!(share(reading(999_999), None), 1);
    assert_eq!(share(reading(1_000_000), None), 0);
    assert_eq!(share(reading(u64::MAX), None), 0);
    // The fuller of the two.
    assert_eq!(share(reading(950_000), reading(975)), 64);
    assert_eq!(share(reading(950_000), reading(10)), 128);
    // No reading, and one that is too old.
    assert_eq!(share(None, None), 256);
    let old = Reading {
        value: 1_000_000,
        age: Duration::from_secs(61),
    };
    assert_eq!(share(Some(old), None), 256);
}

#[test]
fn round_trip_times_of_200_and_30_ms() {
    let world = World::new(2).with(|w| w.measured(Source::Agent, &[(0, 200), (1, 30)]));
    world.always_leaves(&[1]);
    // A resolver that ignores ICMP, and times that are alike: on to the next metric.
    World::new(2).always_leaves(&[0, 1]);
    World::new(2)
        .with(|w| w.measured(Source::Agent, &[(0, 33), (1, 30)]))
        .always_leaves(&[0, 1]);
}

#[test]
fn latency_tolerates_a_share_or_a_time() {
    let left = |a, b, relative, absolute| {
        let world = World::new(2).with(|w| {
            w.measured(Source::Agent, &[(0, a), (1, b)]);
            w.parameters.latency.relative = Permille(relative);
            w.parameters.latency.absolute = Duration::from_millis(absolute);
        });
        world.left(&[Metric::Latency])
    };
    assert_eq!(left(100, 110, 100, 0), [0, 1]);
    assert_eq!(left(100, 111, 100, 0), [0]);
    assert_eq!(left(10, 15, 100, 5), [0, 1]);
    assert_eq!(left(10, 16, 100, 5), [0]);
    // The larger of the two: 10 ms, not 5.
    assert_eq!(left(100, 110, 100, 5), [0, 1]);
}

#[test]
fn latency_is_compared_within_one_source() {
    let left = |passive: &[(usize, u64)], agent: &[(usize, u64)]| {
        let world = World::new(3).with(|w| {
            w.measured(Source::Passive, passive);
            w.measured(Source::Agent, agent);
        });
        world.left(&[Metric::Latency])
    };
    // All have both: the preferred one counts, though the other says otherwise.
    let (passive, agent) = ([(0, 90), (1, 40), (2, 90)], [(0, 5), (1, 30), (2, 30)]);
    assert_eq!(left(&passive, &agent), [1]);
    // The preferred one knows one site, the other all.
    assert_eq!(left(&passive[1..2], &agent), [0]);
    assert_eq!(left(&[], &agent), [0]);
}

#[test]
fn who_is_not_measured_drops_out_or_stays_by_rule() {
    let world = |rule| {
        World::new(3).with(|w| {
            w.measured(Source::Agent, &[(0, 30), (1, 200)]);
            w.parameters.latency.no_data = rule;
        })
    };
    let chain = [Metric::Latency, Metric::Static];
    assert_eq!(world(NoEvidence::Explore).left(&chain), [0]);
    assert_eq!(world(NoEvidence::Drop).left(&chain), [0]);
    assert_eq!(world(NoEvidence::Keep).left(&chain), [0, 2]);
    // Old evidence is none, and when all is old nobody drops out.
    let aged = |w: &mut World, site| {
        let evidence = w.facts.latency.get_mut(&(Clients::Isp(0), site)).unwrap();
        evidence[0].age = Duration::from_secs(601);
    };
    let one_old = world(NoEvidence::Drop).with(|w| aged(w, 0));
    assert_eq!(one_old.left(&chain), [1]);
    let all_old = one_old.with(|w| aged(w, 1));
    assert_eq!(all_old.left(&chain), [0, 1, 2]);
}

#[test]
fn the_narrowest_clients_evidence_counts() {
    let kr = Country(*b"KR");
    let prefix = "192.0.2.0/24".parse().unwrap();
    let mut world = World::new(2);
    world.client = ClientClass {
        isp: Some(0),
        country: Some(kr),
        measured: Some(prefix),
        ..ClientClass::default()
    };
    let mut say = |clients, fast: usize| {
        for site in 0..2 {
            let e = Evidence {
                value: Duration::from_millis(if site == fast { 10 } else { 90 }),
                count: 1,
                age: Duration::ZERO,
                source: Source::Passive,
            };
            world.facts.latency.insert((clients, site), vec![e]);
        }
        world.left(&[Metric::Latency])
    };
    // Each is narrower than the one before it and says the contrary.
    assert_eq!(say(Clients::Country(kr), 0), [0]);
    assert_eq!(say(Clients::Isp(0), 1), [1]);
    assert_eq!(say(Clients::IspCountry(0, kr), 0), [0]);
    assert_eq!(say(Clients::Prefix(prefix), 1), [1]);
    assert_eq!(say(Clients::Isp(1), 0), [1]);
}

#[test]
fn exploring_goes_where_least_is_known() {
    let explored = |world: &World| {
        let chain = Chain {
            metrics: vec![Metric::Health, Metric::Latency, Metric::Static],
            parameters: world.parameters.clone(),
        };
        assert_eq!(chain.explores(), Some(Permille(50)));
        rank_explore(
            &chain,
            &world.sites,
            &world.client,
            &world.facts,
            Sites::default(),
        )
    };
    let world = World::new(4).with(|w| w.measured(Source::Passive, &[(0, 30), (1, 200)]));
    let world = world.with(|w| {
        let evidence = w.facts.latency.get_mut(&(Clients::Isp(0), 0)).unwrap();
        evidence[0].age = Duration::from_secs(20);
    });
    // The two without evidence, then the oldest, then the freshest.
    assert_eq!(explored(&world), [vec![2, 3], vec![0], vec![1]]);
    assert_eq!(explored(&World::new(2)), [vec![0, 1]]);
    // What stands before it in the chain holds for those who explore too.
    let chain = Chain {
        metrics: vec![
            Metric::Health,
            Metric::Preference,
            Metric::Latency,
            Metric::Static,
        ],
        parameters: Parameters::default(),
    };
    let preferred = world.with(|w| w.sites[1].preference = 200);
    let tiers = rank_explore(
        &chain,
        &preferred.sites,
        &preferred.client,
        &preferred.facts,
        Sites::default(),
    );
    assert_eq!(tiers, [vec![1], vec![2, 3], vec![0]]);
}

#[test]
fn a_resolver_in_hong_kong_goes_to_korea() {
    // 11.1.1.1 lies in Hong Kong; Asia belongs to the Korean site.
    let world = World::new(2).with(|w| {
        w.client.country = Some(Country(*b"HK"));
        w.client.continent = Some(Continent::Asia);
        (w.sites[0].country, w.sites[0].continent) = (Some(Country(*b"KR")), Some(Continent::Asia));
        (w.sites[1].country, w.sites[1].continent) = (Some(Country(*b"US")), Some(Continent::NorthAmerica));
    });
    world.always_leaves(&[0]);
    // By distance alone as well: 2,100 km against 11,100 km.
    let by_distance = World::new(2).with(|w| {
        w.client.location = Some(place(22.32, 114.17));
        w.sites[0].location = Some(korea());
        w.sites[1].location = Some(place(37.77, -122.42));
    });
    by_distance.always_leaves(&[0]);
    // An operator's table comes first: Hong Kong's resolvers belong to the United States there.
    let table = world.with(|w| {
        w.client.named = vec![3];
        w.sites[1].serves = vec![3];
    });
    table.always_leaves(&[1]);
    // A client of whom nothing is known: nobody drops out.
    let unknown = table.with(|w| w.client = ClientClass::default());
    unknown.always_leaves(&[0, 1]);
}

#[test]
fn country_before_continent_before_distance() {
    let client = ClientClass {
        country: Some(Country(*b"JP")),
        continent: Some(Continent::Asia),
        location: Some(place(35.68, 139.69)),
        ..ClientClass::default()
    };
    // Sites: Korea, Japan (Okinawa, which is farther from Tokyo than Seoul), Guam in Oceania, one of unknown place.
    let mut world = World::new(4).with(|w| w.client = client);
    let places = [
        (b"KR", Continent::Asia, korea()),
        (b"JP", Continent::Asia, place(26.21, 127.68)),
        (b"GU", Continent::Oceania, place(13.44, 144.79)),
    ];
    for (site, (country, continent, location)) in world.sites.iter_mut().zip(places) {
        site.country = Some(Country(*country));
        site.continent = Some(continent);
        site.location = Some(location);
    }
    let mut by = |levels: &[Level], no_data| {
        world.parameters.geo.by = levels.to_vec();
        world.parameters.geo.no_data = no_data;
        world.left(&[Metric::Geo])
    };
    use NoData::{Drop, Keep};
    assert_eq!(by(&Level::ALL, Drop), [1]);
    assert_eq!(by(&Level::ALL, Keep), [1, 3]);
    // Seoul is 1,160 km away, Okinawa 1,560 km.
    assert_eq!(by(&[Level::Continent, Level::Distance], Drop), [0]);
    assert_eq!(by(&[Level::Continent], Drop), [0, 1]);
    assert_eq!(by(&[Level::Distance], Keep), [0, 3]);
    world.parameters.geo.tolerance_m = 500_000;
    assert_eq!(world.left(&[Metric::Geo]), [0, 1, 3]);
    // Okinawa with bias 50 seems 780 km away, Seoul with -50 2,320 km.
    world.parameters.geo.tolerance_m = 0;
    world.sites[1].bias = 50;
    assert_eq!(world.left(&[Metric::Geo]), [1, 3]);
    world.sites[1].bias = 0;
    world.sites[0].bias = -50;
    assert_eq!(world.left(&[Metric::Geo]), [1, 3]);
}

#[test]
fn distances_over_the_globe() {
    // Great-circle distances as published for these city pairs, to half a percent.
    for (a, b, km) in [
        ((51.5074, -0.1278), (40.7128, -74.0060), 5570),
        ((37.57, 126.98), (35.68, 139.69), 1157),
        ((-33.87, 151.21), (-33.45, -70.67), 11_340),
    ] {
        let (a, b) = (place(a.0, a.1), place(b.0, b.1));
        let metres = distance_m(a, b);
        assert!(
            metres.abs_diff(km * 1000) * 200 < km * 1000,
            "{metres} for {km} km"
        );
        assert_eq!(metres, distance_m(b, a));
        assert_eq!(distance_m(a, a), 0);
    }
    // Half way round.
    assert_eq!(distance_m(place(0.0, 0.0), place(0.0, 180.0)) / 1000, 20_015);
    // Above 0: distance x (1 - b/100); below: distance / (1 + b/100).
    for (bias, expected) in [
        (0, 1000),
        (50, 500),
        (99, 10),
        (-50, 2000),
        (-99, 100_000),
        (-20, 1250),
    ] {
        assert_eq!(biased_m(1000, bias), expected, "bias {bias}");
    }
}

#[test]
fn connection_load_drops_who_is_over_and_ranks_nobody() {
    let left = |rates: [Option<Reading>; 3], limit: Option<u64>| {
        let world = World::new(3).with(|w| {
            w.parameters.connection_load.limit = limit;
            for (facts, rate) in w.facts.sites.iter_mut().zip(rates) {
                facts.connections_per_second = rate;
            }
        });
        world.left(&[Metric::ConnectionLoad])
    };
    let rates = [reading(5000), reading(5001), reading(1)];
    assert_eq!(left(rates, Some(5000)), [0, 2]);
    // No default limit: setting one turns the metric on.
    assert_eq!(left(rates, None), [0, 1, 2]);
    assert_eq!(left([reading(5000), None, reading(9999)], Some(5000)), [0, 1]);
    assert_eq!(left([reading(6000); 3], Some(5000)), [0, 1, 2]);
    // A site's own limit.
    let own = World::new(2).with(|w| {
        w.parameters.connection_load.limit = Some(10);
        w.sites[1].connections_max = Some(100);
        w.facts.sites[0].connections_per_second = reading(50);
        w.facts.sites[1].connections_per_second = reading(50);
    });
    own.always_leaves(&[1]);
}

#[test]
fn a_million_free_sessions_against_800_000_and_950_000() {
    let free = |a: u64, b: u64| {
        World::new(3).with(|w| {
            for (site, free) in [a, b].into_iter().enumerate() {
                w.sites[site].limits.sessions = Some(2_000_000);
                w.facts.sites[site].sessions = reading(2_000_000 - free);
            }
        })
    };
    let chain = [Metric::AvailableSessions, Metric::Static];
    // The third has no reading: it is not ranked, and stays by the usual rule.
    assert_eq!(free(1_000_000, 800_000).left(&chain), [0, 2]);
    assert_eq!(free(1_000_000, 950_000).left(&chain), [0, 1, 2]);
    assert_eq!(free(1_000_000, 900_000).left(&chain), [0, 1, 2]);
    assert_eq!(free(1_000_000, 899_999).left(&chain), [0, 2]);
    let dropping = |a, b| free(a, b).with(|w| w.parameters.available_sessions.no_data = NoData::Drop);
    assert_eq!(dropping(1_000_000, 800_000).left(&chain), [0]);
    dropping(1_000_000, 800_000).always_leaves(&[0]);
}

#[test]
fn the_highest_preference_wins_and_0_is_out() {
    let preferences = |a, b| {
        World::new(2).with(|w| {
            w.sites[0].preference = a;
            w.sites[1].preference = b;
        })
    };
    preferences(128, 255).always_leaves(&[1]);
    preferences(128, 128).always_leaves(&[0, 1]);
    preferences(1, 0).always_leaves(&[0]);
}

#[test]
fn this_source_always_to_that_site() {
    let kt = |preference| Bound {
        isp: Some(7),
        country: None,
        named: None,
        preference,
    };
    let bound = |w: &mut World, site: usize, bound| w.sites[site].bound.push(bound);
    let world = World::new(4).with(|w| {
        w.sites[3].preference = 255;
        bound(w, 0, kt(None));
        let country = Some(Country(*b"HK"));
        bound(
            w,
            1,
            Bound {
                isp: None,
                country,
                ..kt(None)
            },
        );
        bound(
            w,
            2,
            Bound {
                isp: None,
                named: Some(4),
                ..kt(None)
            },
        );
    });
    let tiers = |isp, country: Option<&[u8; 2]>, named: &[u32]| {
        let chain = Chain {
            metrics: vec![Metric::Health, Metric::Preference, Metric::Static],
            parameters: Parameters::default(),
        };
        let client = ClientClass {
            isp,
            country: country.map(|c| Country(*c)),
            named: named.to_vec(),
            ..ClientClass::default()
        };
        rank(&chain, &world.sites, &client, &Facts::default(), Sites::default()).concat()[..2].to_vec()
    };
    // Nobody's client goes by the number; those of an entry to its site, the rest behind it.
    assert_eq!(tiers(None, None, &[]), [3, 0]);
    assert_eq!(tiers(Some(7), None, &[]), [0, 3]);
    assert_eq!(tiers(None, Some(b"HK"), &[]), [1, 3]);
    assert_eq!(tiers(None, None, &[9, 4]), [2, 3]);
    // The most specific first: prefixes, then the ISP, then the country.
    assert_eq!(tiers(Some(7), Some(b"HK"), &[]), [0, 1]);
    assert_eq!(tiers(Some(7), Some(b"HK"), &[4]), [2, 0]);
    // With a number it is that, and 0 takes the site out for these clients alone.
    let numbered = World::new(2).with(|w| {
        bound(w, 0, kt(Some(0)));
        bound(w, 1, kt(Some(5)));
    });
    let out = numbered.clone().with(|w| w.client.isp = Some(7));
    out.always_leaves(&[1]);
    numbered.always_leaves(&[0, 1]);
}

#[test]
fn the_narrowest_prefixes_win() {
    let named = |named| Bound {
        isp: None,
        country: None,
        named: Some(named),
        preference: None,
    };
    let world = World::new(2).with(|w| {
        w.sites[0].bound.push(named(1));
        w.sites[1].bound.push(named(2));
    });
    let with = |list: &[u32]| world.clone().with(|w| w.client.named = list.to_vec());
    with(&[1, 2]).always_leaves(&[0]);
    with(&[2, 1]).always_leaves(&[1]);
    // Of regions too.
    let regions = World::new(2).with(|w| {
        w.sites[0].serves = vec![1];
        w.sites[1].serves = vec![2];
        w.client.named = vec![2, 1];
    });
    regions.always_leaves(&[1]);
}

/// Two sites of which every metric favours one: the first metric of the chain decides, in every order.
#[test]
fn the_first_metric_decides_in_every_order() {
    /// Sets what makes `metric` drop the other site.
    fn favour(w: &mut World, metric: Metric, site: usize) {
        let other = 1 - site;
        match metric {
            Metric::Health => w.up[other] = false,
            Metric::Capacity => {
                w.sites[other].limits.bandwidth_bps = Some(900_000_000);
                w.facts.sites[other].bandwidth_bps = reading(900_000_000);
            }
            Metric::Isp => w.sites[site].isp = Some(0),
            Metric::Latency => {
                w.measured(Source::Agent, &[(site, 30), (other, 200)]);
            }
            Metric::Geo => {
                w.client.country = Some(Country(*b"KR"));
                w.sites[site].country = Some(Country(*b"KR"));
            }
            Metric::ConnectionLoad => {
                w.sites[other].connections_max = Some(5000);
                w.facts.sites[other].connections_per_second = reading(6000);
            }
            Metric::AvailableSessions => {
                for (i, used) in [(site, 0), (other, 200_000)] {
                    w.sites[i].limits.sessions = Some(1_000_000);
                    w.facts.sites[i].sessions = reading(used);
                }
            }
            Metric::Preference => w.sites[site].preference = 200,
            Metric::LeastSelected | Metric::Static => {}
        }
    }
    let mut number = 0u32;
    orders(&JUDGES, |order| {
        // Another choice of favours each time: multiplying spreads the bits.
        number += 1;
        let bits = number.wrapping_mul(0x9e37_79b9) >> 24;
        let favours = |metric: Metric| {
            let place = JUDGES.iter().position(|m| *m == metric).expect("one of them");
            (bits >> place & 1) as usize
        };
        let mut world = World::new(2);
        world.client.isp = Some(0);
        for &metric in order {
            favour(&mut world, metric, favours(metric));
        }
        let first = favours(order[0]) as u8;
        let expected: &[u8] = match world.up[usize::from(first)] {
            true => &[first],
            // What stands before health narrows for good.
            false => &[],
        };
        assert_eq!(world.left(order), expected, "{order:?} with {bits:08b}");
    });
}
