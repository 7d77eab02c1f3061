//! The chain once more, slow and plain, from what is documented of each metric; and properties on random policies, data
//! and clients: plans equal it, rank every site once, and what is not known drops no site but by the stated rule.

use super::facts::{Clients, Reading};
use super::geo::{Level, biased_m, distance_m};
use super::latency::NoEvidence;
use super::preference::Bound;
use super::*;
use proptest::prelude::*;
use std::time::Duration;

/// Everything that a decision goes by.
#[derive(Clone, Debug)]
struct World {
    chain: Chain,
    sites: Vec<Candidate>,
    client: ClientClass,
    facts: Facts,
}

/// Evidence of a site from a source, of the narrowest clients, not too old.
fn evidence(w: &World, site: usize, source: Source) -> Option<Evidence> {
    let c = &w.client;
    let mut lists = Vec::new();
    if let Some(prefix) = c.measured {
        lists.push(Clients::Prefix(prefix));
    }
    if let (Some(isp), Some(country)) = (c.isp, c.country) {
        lists.push(Clients::IspCountry(isp, country));
    }
    if let Some(isp) = c.isp {
        lists.push(Clients::Isp(isp));
    }
    if let Some(country) = c.country {
        lists.push(Clients::Country(country));
    }
    for clients in lists {
        for e in w
            .facts
            .latency
            .get(&(clients, w.sites[site].site))
            .into_iter()
            .flatten()
        {
            if e.source == source && e.age <= w.chain.parameters.latency.max_age {
                return Some(*e);
            }
        }
    }
    None
}

/// Preference of a site for the client, as something to compare: (bound without number, how narrow, number).
fn preference(w: &World, site: usize) -> (bool, usize, u8) {
    let mut best: Option<(usize, Option<u8>)> = None;
    for b in &w.sites[site].bound {
        if b.isp.is_some() && b.isp != w.client.isp || b.country.is_some() && b.country != w.client.country {
            continue;
        }
        let mut narrow = 0;
        if let Some(named) = b.named {
            match w.client.named.iter().position(|n| *n == named) {
                Some(place) => narrow += 100 * (w.client.named.len() - place),
                None => continue,
            }
        }
        narrow += if b.isp.is_some() { 20 } else { 0 } + if b.country.is_some() { 10 } else { 0 };
        if best.is_none_or(|(n, _)| narrow > n) {
            best = Some((narrow, b.preference));
        }
    }
    match best {
        Some((narrow, None)) => (true, narrow, 0),
        Some((_, Some(number))) => (false, 0, number),
        None => (false, 0, w.sites[site].preference),
    }
}

/// Whether a use of a limit is at or over its high mark.
fn full(reading: Option<Reading>, limit: Option<u64>, p: &capacity::Parameters) -> bool {
    match (reading, limit) {
        (Some(r), Some(limit)) if r.age <= p.max_age => {
            r.value as f64 / limit as f64 >= f64::from(p.high.0) / 1000.0
        }
        _ => false,
    }
}

/// What one metric keeps of `left`.
fn one(w: &World, metric: Metric, left: &[usize], explore: bool) -> Vec<usize> {
    let facts = |i: usize| &w.facts.sites[w.sites[i].site];
    let p = &w.chain.parameters;
    let keep = |f: &dyn Fn(usize) -> bool| left.iter().copied().filter(|&i| f(i)).collect::<Vec<_>>();
    match metric {
        Metric::Health | Metric::LeastSelected | Metric::Static => left.to_vec(),
        Metric::Capacity => keep(&|i| {
            let limits = w.sites[i].limits;
            !full(facts(i).sessions, limits.sessions, &p.capacity)
                && !full(facts(i).bandwidth_bps, limits.bandwidth_bps, &p.capacity)
        }),
        Metric::Isp => keep(&|i| w.client.isp.is_none() || w.sites[i].isp == w.client.isp),
        Metric::Latency => {
            let count = |s: Source| left.iter().filter(|&&i| evidence(w, i, s).is_some()).count();
            let sources = &p.latency.sources;
            if explore {
                let Some(&s) = sources.iter().find(|&&s| count(s) > 0) else {
                    return left.to_vec();
                };
                if count(s) < left.len() {
                    return keep(&|i| evidence(w, i, s).is_none());
                }
                let oldest = left.iter().map(|&i| evidence(w, i, s).unwrap().age).max();
                return keep(&|i| Some(evidence(w, i, s).unwrap().age) == oldest);
            }
            let most = sources.iter().map(|&s| count(s)).max().unwrap_or(0);
            if most == 0 {
                return left.to_vec();
            }
            let s = *sources.iter().find(|&&s| count(s) == most).unwrap();
            let nanos = |i: usize| evidence(w, i, s).map(|e| e.value.as_nanos());
            let best = left.iter().filter_map(|&i| nanos(i)).min().unwrap();
            keep(&|i| match nanos(i) {
                Some(v) => {
                    (v - best) * 1000 <= best * u128::from(p.latency.relative.0)
                        || v - best <= p.latency.absolute.as_nanos()
                }
                None => p.latency.no_data == NoEvidence::Keep,
            })
        }
        Metric::Geo => {
            let mut now = left.to_vec();
            for level in &p.geo.by {
                // Of each site: `None` if nothing is known, else whether it matches.
                let of = |i: usize| -> Option<bool> {
                    let (c, s) = (&w.client, &w.sites[i]);
                    match level {
                        Level::Clients => {
                            let served = |n: &&u32| now.iter().any(|&j| w.sites[j].serves.contains(n));
                            let first = c.named.iter().find(served);
                            Some(first.is_some_and(|n| s.serves.contains(n)))
                        }
                        Level::Country => Some(s.country? == c.country?),
                        Level::Continent => Some(s.continent? == c.continent?),
                        Level::Distance => {
                            let far = |j: usize| {
                                let (a, b) = (c.location?, w.sites[j].location?);
                                Some(biased_m(distance_m(a, b), w.sites[j].bias))
                            };
                            let nearest = now.iter().filter_map(|&j| far(j)).min()?;
                            Some(far(i)? - nearest <= p.geo.tolerance_m)
                        }
                    }
                };
                if now.iter().any(|&i| of(i) == Some(true)) {
                    let keep = p.geo.no_data == NoData::Keep;
                    now = now.iter().copied().filter(|&i| of(i).unwrap_or(keep)).collect();
                    if *level == Level::Clients || *level == Level::Country {
                        break;
                    }
                }
            }
            now
        }
        Metric::ConnectionLoad => keep(&|i| {
            let limit = w.sites[i].connections_max.or(p.connection_load.limit);
            match (facts(i).connections_per_second, limit) {
                (Some(r), Some(limit)) => r.age > p.connection_load.max_age || r.value <= limit,
                _ => true,
            }
        }),
        Metric::AvailableSessions => {
            let free = |i: usize| {
                let r = facts(i)
                    .sessions
                    .filter(|r| r.age <= p.available_sessions.max_age)?;
                Some(w.sites[i].limits.sessions?.saturating_sub(r.value))
            };
            let Some(most) = left.iter().filter_map(|&i| free(i)).max() else {
                return left.to_vec();
            };
            keep(&|i| match free(i) {
                Some(f) => {
                    u128::from(most - f) * 1000
                        <= u128::from(most) * u128::from(p.available_sessions.tolerance.0)
                }
                None => p.available_sessions.no_data == NoData::Keep,
            })
        }
        Metric::Preference => {
            let best = left.iter().map(|&i| preference(w, i)).max();
            keep(&|i| Some(preference(w, i)) == best)
        }
    }
}

/// The whole chain over `left`.
fn chain(w: &World, metrics: &[Metric], left: &[usize], explore: bool) -> Vec<usize> {
    let mut left = left.to_vec();
    for &metric in metrics {
        let kept = one(w, metric, &left, explore);
        if !kept.is_empty() {
            left = kept;
        }
    }
    left
}

fn considered(w: &World) -> Vec<usize> {
    let out = |i: &usize| w.chain.metrics.contains(&Metric::Preference) && preference(w, *i) == (false, 0, 0);
    (0..w.sites.len()).filter(|i| !out(i)).collect()
}

/// The tiers: of sites that are up, then, if health counts, of those that are down.
fn tiers(w: &World, down: Sites, explore: bool) -> Vec<Vec<u8>> {
    let metrics = &w.chain.metrics;
    let health = metrics.iter().position(|m| *m == Metric::Health);
    let is_down = |i: &usize| health.is_some() && down.has(*i as u8);
    let (before, after) = metrics.split_at(health.unwrap_or(0));
    let all = chain(w, before, &considered(w), explore);
    let mut out = Vec::new();
    for which in [false, true] {
        let mut rest: Vec<usize> = all.iter().copied().filter(|i| is_down(i) == which).collect();
        while !rest.is_empty() {
            let tier = chain(w, after, &rest, explore);
            rest.retain(|i| !tier.contains(i));
            out.push(tier.into_iter().map(|i| i as u8).collect());
        }
    }
    out
}

const COUNTRIES: [Country; 3] = [Country(*b"KR"), Country(*b"HK"), Country(*b"US")];
const CONTINENTS: [Continent; 2] = [Continent::Asia, Continent::NorthAmerica];

fn some<T: Clone + std::fmt::Debug + 'static>(items: Vec<T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.7, proptest::sample::select(items))
}

fn location() -> impl Strategy<Value = Location> {
    // A coarse grid, so that distances tie and lie within tolerances.
    (-8i32..=8, -17i32..=17).prop_map(|(a, b)| Location {
        latitude: a * 100_000,
        longitude: b * 100_000,
    })
}

fn reading() -> impl Strategy<Value = Option<Reading>> {
    let ages = proptest::sample::select(vec![0u64, 59, 60, 61]);
    proptest::option::weighted(0.7, (0u64..12, ages)).prop_map(|r| {
        r.map(|(value, age)| Reading {
            value: value * 100,
            age: Duration::from_secs(age),
        })
    })
}

fn bound() -> impl Strategy<Value = Bound> {
    let preference = proptest::option::of(0u8..3);
    (
        some(vec![0usize, 1]),
        some(COUNTRIES.to_vec()),
        some(vec![0u32, 1, 2]),
        preference,
    )
        .prop_map(|(isp, country, named, preference)| Bound {
            isp,
            country,
            named,
            preference,
        })
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let limit = || proptest::option::weighted(0.7, 5u64..12);
    (
        (
            some(vec![0usize, 1]),
            0u8..4,
            proptest::collection::vec(bound(), 0..3),
        ),
        (
            some(COUNTRIES.to_vec()),
            some(CONTINENTS.to_vec()),
            proptest::option::weighted(0.7, location()),
        ),
        (
            proptest::sample::select(vec![0i8, 50, -50]),
            proptest::collection::vec(0u32..3, 0..2),
        ),
        (limit(), limit(), limit()),
    )
        .prop_map(
            |((isp, preference, bound), (country, continent, location), (bias, serves), limits)| Candidate {
                site: 0,
                isp,
                preference,
                bound,
                country,
                continent,
                location,
                bias,
                serves,
                limits: capacity::Limits {
                    sessions: limits.0.map(|l| l * 100),
                    bandwidth_bps: limits.1.map(|l| l * 100),
                },
                connections_max: limits.2.map(|l| l * 100),
            },
        )
}

fn client() -> impl Strategy<Value = ClientClass> {
    let named = Just(vec![0u32, 1, 2]).prop_shuffle();
    (
        (
            some(vec![0usize, 1]),
            some(COUNTRIES.to_vec()),
            some(CONTINENTS.to_vec()),
        ),
        (
            proptest::option::weighted(0.7, location()),
            named,
            0usize..4,
            any::<bool>(),
        ),
    )
        .prop_map(
            |((isp, country, continent), (location, named, count, measured))| ClientClass {
                isp,
                country,
                continent,
                location,
                named: named[..count].to_vec(),
                measured: measured.then(|| "2001:db8::/48".parse().expect("a prefix")),
            },
        )
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let no_data = || proptest::sample::select(vec![NoData::Keep, NoData::Drop]);
    let permille = || proptest::sample::select(vec![0u32, 100, 250]).prop_map(Permille);
    let rules = proptest::sample::select(vec![NoEvidence::Explore, NoEvidence::Keep, NoEvidence::Drop]);
    let sources = proptest::sample::select(vec![
        vec![Source::Passive, Source::Agent],
        vec![Source::Agent, Source::Passive],
        vec![Source::Agent],
    ]);
    let by = proptest::sample::subsequence(Level::ALL.to_vec(), 1..=4).prop_shuffle();
    (
        (permille(), permille(), 0u64..30, rules, sources),
        (by, proptest::sample::select(vec![0u64, 2_000_000]), no_data()),
        (
            proptest::option::of(3u64..9),
            no_data(),
            proptest::sample::select(vec![500u32, 900, 1000]),
        ),
    )
        .prop_map(|(latency, geo, (limit, no_data, high))| {
            let mut p = Parameters::default();
            p.latency.relative = latency.0;
            p.available_sessions.tolerance = latency.1;
            p.latency.absolute = Duration::from_millis(latency.2);
            p.latency.no_data = latency.3;
            p.latency.sources = latency.4;
            (p.geo.by, p.geo.tolerance_m, p.geo.no_data) = geo;
            p.connection_load.limit = limit.map(|l| l * 100);
            p.available_sessions.no_data = no_data;
            p.capacity.high = Permille(high);
            p
        })
}

/// Evidence: of whom, at which site, from whom, milliseconds, age.
type Measured = Vec<(usize, usize, bool, u64, u64)>;

fn world() -> impl Strategy<Value = World> {
    let metrics = proptest::sample::subsequence(Metric::ALL.to_vec(), 0..=Metric::ALL.len()).prop_shuffle();
    let facts = proptest::collection::vec((reading(), reading(), reading()), 8);
    let ages = proptest::sample::select(vec![0u64, 300, 600, 601]);
    let measured = proptest::collection::vec((0usize..4, 0usize..8, any::<bool>(), 1u64..12, ages), 0..40);
    (
        metrics,
        parameters(),
        proptest::collection::vec(candidate(), 1..8),
        client(),
        facts,
        measured,
    )
        .prop_map(|(metrics, parameters, mut sites, client, facts, measured)| {
            for (i, site) in sites.iter_mut().enumerate() {
                // Not the same as their index among the candidates.
                site.site = 7 - i;
            }
            let mut known = Facts::default();
            for (sessions, bandwidth_bps, connections_per_second) in facts {
                known.sites.push(SiteFacts {
                    sessions,
                    bandwidth_bps,
                    connections_per_second,
                    silent: false,
                });
            }
            known.latency = latencies(measured);
            World {
                chain: Chain { metrics, parameters },
                sites,
                client,
                facts: known,
            }
        })
}

fn latencies(measured: Measured) -> std::collections::HashMap<(Clients, usize), Vec<Evidence>> {
    let mut out: std::collections::HashMap<_, Vec<Evidence>> = Default::default();
    for (clients, site, passive, ms, age) in measured {
        let clients = [
            Clients::Prefix("2001:db8::/48".parse().expect("a prefix")),
            Clients::IspCountry(0, COUNTRIES[0]),
            Clients::Isp(0),
            Clients::Country(COUNTRIES[0]),
        ][clients];
        let source = if passive { Source::Passive } else { Source::Agent };
        let list = out.entry((clients, site)).or_default();
        if list.iter().all(|e| e.source != source) {
            list.push(Evidence {
                value: Duration::from_millis(ms * 10),
                count: 1,
                age: Duration::from_secs(age),
                source,
            });
        }
    }
    out
}

/// The world without whatever is known of one site.
fn forget(w: &World, site: usize) -> World {
    let mut w = w.clone();
    let index = w.sites[site].site;
    w.facts.sites[index] = SiteFacts::default();
    w.facts.latency.retain(|(_, s), _| *s != index);
    let s = &mut w.sites[site];
    (s.country, s.continent, s.location) = (None, None, None);
    w
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Plans, and those of who explores, equal the plain evaluation.
    #[test]
    fn plans_equal_the_plain_evaluation(w in world(), down in any::<u8>()) {
        let down = Sites::first(8).filter(|i| down >> i & 1 == 1);
        let got = rank(&w.chain, &w.sites, &w.client, &w.facts, down);
        prop_assert_eq!(got, tiers(&w, down, false));
        let got = rank_explore(&w.chain, &w.sites, &w.client, &w.facts, down);
        prop_assert_eq!(got, tiers(&w, down, true));
    }

    /// Whichever sites are down, who answers is what the chain leaves when it is read metric by metric. A policy that
    /// need not know who is down has the same without knowing.
    #[test]
    fn who_answers_is_what_the_chain_leaves(w in world(), down in any::<u8>()) {
        prop_assume!(!w.chain.metrics.is_empty());
        let down = Sites::first(8).filter(|i| down >> i & 1 == 1);
        let steps = evaluate(&w.chain, &w.sites, &w.client, &w.facts, &|i| !down.has(i));
        let left: Vec<u8> = steps.last().map_or(Vec::new(), |step| step.after.iter().collect());
        let down = if w.chain.has(Metric::Health) { down } else { Sites::default() };
        let known = match Needs::of(&w.chain, &w.sites).down {
            true => down,
            false => Sites::default(),
        };
        let plan = rank(&w.chain, &w.sites, &w.client, &w.facts, known);
        let up = |tier: &Vec<u8>| -> Vec<u8> { tier.iter().copied().filter(|i| !down.has(*i)).collect() };
        prop_assert_eq!(plan.iter().map(up).find(|tier| !tier.is_empty()).unwrap_or_default(), left);
    }

    /// Each site that is considered is in one tier, once; only what stands before health can leave some out.
    #[test]
    fn tiers_rank_each_site_once(w in world()) {
        let mut ranked = rank(&w.chain, &w.sites, &w.client, &w.facts, Sites::default()).concat();
        let count = ranked.len();
        ranked.sort_unstable();
        ranked.dedup();
        prop_assert_eq!(count, ranked.len());
        let considered: Vec<u8> = considered(&w).iter().map(|&i| i as u8).collect();
        prop_assert!(ranked.iter().all(|i| considered.contains(i)));
        prop_assert_eq!(ranked.is_empty(), considered.is_empty());
        if w.chain.metrics.iter().position(|m| *m == Metric::Health).unwrap_or(0) == 0 {
            prop_assert_eq!(ranked, considered);
        }
    }

    /// A site of which nothing is known is kept by every metric whose rule is to keep, and always by those of limits.
    #[test]
    fn what_is_not_known_drops_a_site_by_its_rule_alone(w in world(), site in any::<proptest::sample::Index>()) {
        let site = site.index(w.sites.len());
        let mut w = forget(&w, site);
        w.chain.parameters.latency.no_data = NoEvidence::Keep;
        w.chain.parameters.geo.no_data = NoData::Keep;
        w.chain.parameters.geo.by.retain(|level| *level != Level::Clients);
        w.chain.parameters.available_sessions.no_data = NoData::Keep;
        for metric in [
            Metric::Capacity,
            Metric::Latency,
            Metric::Geo,
            Metric::ConnectionLoad,
            Metric::AvailableSessions,
        ] {
            let chain = Chain { metrics: vec![metric], parameters: w.chain.parameters.clone() };
            let tiers = rank(&chain, &w.sites, &w.client, &w.facts, Sites::default());
            prop_assert!(tiers[0].contains(&(site as u8)), "{metric:?}: {tiers:?}");
            // And nobody else drops out for want of it when nobody has data.
            let blank = (0..w.sites.len()).fold(w.clone(), |w, i| forget(&w, i));
            let all = rank(&chain, &blank.sites, &blank.client, &blank.facts, Sites::default());
            prop_assert_eq!(all.len(), 1);
        }
    }

    /// Classes that are equal in what a policy needs have equal plans; what it does not need changes nothing.
    #[test]
    fn needs_are_all_that_a_plan_depends_on(w in world()) {
        let needs = Needs::of(&w.chain, &w.sites);
        let seen = needs.seen(&w.client);
        let plan = rank(&w.chain, &w.sites, &w.client, &w.facts, Sites::default());
        prop_assert_eq!(&rank(&w.chain, &w.sites, &seen, &w.facts, Sites::default()), &plan);
        let mut facts = w.facts.clone();
        for site in &mut facts.sites {
            site.sessions = site.sessions.filter(|_| needs.sessions);
            site.bandwidth_bps = site.bandwidth_bps.filter(|_| needs.bandwidth);
            site.connections_per_second = site.connections_per_second.filter(|_| needs.connections);
        }
        if !needs.latency {
            facts.latency.clear();
        }
        prop_assert_eq!(&rank(&w.chain, &w.sites, &w.client, &facts, Sites::default()), &plan);
        let used = Chain {
            metrics: w.chain.metrics.clone(),
            parameters: w.chain.parameters.used_by(&w.chain.metrics),
        };
        prop_assert_eq!(&rank(&used, &w.sites, &w.client, &w.facts, Sites::default()), &plan);
    }

    /// Every evaluation can be told, and the words are about what was decided.
    #[test]
    fn every_decision_can_be_told(w in world(), up in any::<u8>()) {
        let config = crate::policy::tests::with_service(|_| ());
        let up = |i: u8| up >> i & 1 == 1;
        let steps = evaluate(&w.chain, &w.sites, &w.client, &w.facts, &up);
        let told = tell::tell(&config, (&w.chain, &w.sites), &w.client, &w.facts, &up, &|_| "up".into());
        prop_assert_eq!(steps.len(), told.len());
        for (step, told) in steps.iter().zip(&told) {
            prop_assert_eq!((step.metric, step.before, step.after), (told.metric, told.before, told.after));
            for finding in &told.sites {
                prop_assert_eq!(finding.kept, step.after.has(finding.site));
            }
            for dropped in step.before.without(step.after).iter() {
                prop_assert!(told.sites.iter().any(|f| f.site == dropped), "{told:?} is silent on {dropped}");
            }
        }
    }
}
