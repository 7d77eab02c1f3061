//! Samples in, evidence and figures out, on a clock of its own.

use super::*;
use crate::policy::chain::facts::Country;
use crate::policy::tests::with_service;
use dataplane::flow::estimate::{Doubts, Sample};
use dataplane::flow::{Moment, Span};
use dataplane::link::Cell as Numbers;
use dataplane::tables::servers::{Server, Watching};

const KR: Country = Country(*b"KR");

/// Two ISPs; class 0 is of nobody, 1 and 2 are theirs, 3 is the second one's in Korea. Servers 1 to 3 stand at sites 0 to 2.
struct Lab {
    config: Config,
    store: Store,
    start: Instant,
    servers: Servers,
}

fn classes() -> Vec<ClientClass> {
    let of = |isp, country| ClientClass {
        isp,
        country,
        ..ClientClass::default()
    };
    vec![
        of(None, None),
        of(Some(0), None),
        of(Some(1), None),
        of(Some(1), Some(KR)),
    ]
}

fn servers() -> Servers {
    let server = |site: u16| Server {
        address: IpAddr::from([198, 51, 100, 1 + site as u8]),
        len: 32,
        site: Some(site),
    };
    Servers::build((0..3).map(server).collect(), Watching::default()).unwrap()
}

fn lab(change: impl FnOnce(&mut Config)) -> Lab {
    let config = with_service(|config| {
        config.services[0].chain = vec![Metric::Health, Metric::Latency];
        change(config);
    });
    let (start, servers) = (Instant::now(), servers());
    let store = Store::new(&config, start);
    store.learn(&config, &classes(), &servers);
    Lab {
        config,
        store,
        start,
        servers,
    }
}

impl Lab {
    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn sample(&self, class: u16, server: u16, ms: u32, flow: u32) -> LatencySample {
        LatencySample {
            cell: Numbers { class, server },
            numbering: self.servers.numbering(),
            sample: Sample {
                kind: Kind::Response,
                value: Span::millis(ms),
                doubts: Doubts::NONE,
            },
            flow,
            at: Moment(0),
        }
    }

    /// Ten flows with two responses each.
    fn traffic(&self, second: u64, class: u16, server: u16, ms: u32) {
        let samples: Vec<_> = (0..20).map(|n| self.sample(class, server, ms, n % 10)).collect();
        self.store.take(&samples, self.at(second), None);
    }

    fn judge(&self, second: u64) -> HashSet<Clients> {
        self.store.judge(&self.config, self.at(second))
    }

    fn facts(&self, second: u64) -> Facts {
        let mut facts = Facts::none(&self.config);
        self.store.update(&self.config, None, self.at(second), &mut facts);
        facts
    }
}

fn passive(facts: &Facts, clients: Clients, site: usize) -> Option<Evidence> {
    let list = facts.latency.get(&(clients, site))?;
    assert_eq!(list.len(), 1);
    Some(list[0])
}

/// Within 1 %.
fn close(got: Duration, ms: f64) {
    let got = got.as_secs_f64() * 1e3;
    assert!((got / ms - 1.0).abs() <= 0.01, "{got} ms is not {ms} ms");
}

#[test]
fn samples_become_evidence_of_all_that_they_are_of() {
    let lab = lab(|_| {});
    lab.traffic(0, 1, 1, 38);
    lab.traffic(0, 3, 2, 50);
    lab.traffic(0, 0, 1, 70);
    let whose = HashSet::from([
        Clients::Isp(0),
        Clients::Isp(1),
        Clients::IspCountry(1, KR),
        Clients::Country(KR),
    ]);
    assert_eq!(lab.judge(1), whose);
    let facts = lab.facts(14);
    let kt = passive(&facts, Clients::Isp(0), 0).unwrap();
    close(kt.value, 38.0);
    assert_eq!(
        (kt.count, kt.age, kt.source),
        (10, Duration::from_secs(14), Source::Passive)
    );
    for clients in [Clients::Isp(1), Clients::IspCountry(1, KR), Clients::Country(KR)] {
        close(passive(&facts, clients, 1).unwrap().value, 50.0);
    }
    // Those of whom nothing is known are shown, and are nobody's evidence.
    assert_eq!(facts.latency.len(), 4);
    let figures = lab.store.figures(lab.at(14));
    let rows: Vec<String> = figures
        .iter()
        .map(|f| {
            format!(
                "{} {} {}",
                f.clients,
                f.site,
                f.member.map_or_else(String::new, |m| m.to_string())
            )
        })
        .collect();
    let expected = [
        "KR s1 ",
        "one s0 ",
        "one s0 198.51.100.1",
        "others s0 ",
        "others s0 198.51.100.1",
        "two s1 ",
        "two in KR s1 ",
        "two in KR s1 198.51.100.2",
    ];
    assert_eq!(rows, expected);
    assert!(figures[1].handed.is_some() && figures[2].handed.is_none());
    let counts = lab.store.counts();
    assert_eq!(
        (counts.taken, counts.low, counts.unknown, counts.cells),
        (60, 0, 0, 8)
    );
}

#[test]
fn only_what_moved_by_more_than_a_step_is_told() {
    let lab = lab(|config| config.latency.window = Duration::from_secs(6));
    lab.traffic(0, 1, 1, 100);
    lab.traffic(0, 2, 1, 100);
    assert_eq!(lab.judge(1).len(), 2);
    assert_eq!(lab.judge(2), HashSet::new());
    // 4 % more than what was told, then 8 %; the other one stays.
    for (second, ms, whose) in [(10, 104, None), (20, 108, Some(Clients::Isp(0)))] {
        lab.traffic(second, 1, 1, ms);
        lab.traffic(second, 2, 1, 100);
        assert_eq!(lab.judge(second + 1), whose.into_iter().collect(), "{ms} ms");
    }
    close(passive(&lab.facts(21), Clients::Isp(0), 0).unwrap().value, 108.0);
    assert_eq!(lab.store.counts().told, 2);
}

#[test]
fn what_is_too_old_goes() {
    let lab = lab(|_| {});
    lab.traffic(0, 1, 1, 38);
    lab.judge(1);
    assert_eq!(lab.judge(600), HashSet::new());
    assert!(passive(&lab.facts(600), Clients::Isp(0), 0).is_some());
    assert_eq!(lab.judge(601), HashSet::from([Clients::Isp(0)]));
    assert!(lab.facts(601).latency.is_empty());
    assert_eq!(lab.store.counts().cells, 0);
}

#[test]
fn few_flows_say_nothing_of_an_isp_but_of_their_prefix() {
    let lab = lab(|_| {});
    let prefix = "10.1.2.0/24".parse().unwrap();
    let mut classes = classes();
    classes.push(ClientClass {
        measured: Some(prefix),
        ..classes[1].clone()
    });
    lab.store.learn(&lab.config, &classes, &servers());
    // The newer tables know class 4; those of before are still understood.
    let of = |store: &Store, class, flows: u32| {
        let servers = servers();
        store.learn(&lab.config, &classes, &servers);
        let sample = |n: u32| LatencySample {
            numbering: servers.numbering(),
            ..lab.sample(class, 1, 38, n % flows)
        };
        store.take(&(0..20).map(sample).collect::<Vec<_>>(), lab.at(0), None);
    };
    of(&lab.store, 4, 2);
    assert_eq!(lab.judge(1), HashSet::from([Clients::Prefix(prefix)]));
    of(&lab.store, 4, 3);
    assert_eq!(lab.judge(2), HashSet::from([Clients::Isp(0)]));
}

#[test]
fn tables_numbered_anew_lose_nothing() {
    let lab = lab(|_| {});
    lab.traffic(0, 1, 1, 38);
    // The ISPs and sites in another order, so that all numbers are others.
    let mut other = with_service(|_| {});
    other.isps.reverse();
    other.sites.reverse();
    let mut swapped = classes();
    swapped[1].isp = Some(1);
    swapped[2].isp = Some(0);
    let renumbered = servers();
    lab.store.learn(&other, &swapped, &renumbered);
    // Of the old tables still, and of the new: server 3 is the same site now.
    lab.traffic(1, 1, 1, 38);
    let sample = |n| LatencySample {
        numbering: renumbered.numbering(),
        ..lab.sample(1, 3, 38, n)
    };
    lab.store
        .take(&(0..20).map(sample).collect::<Vec<_>>(), lab.at(1), None);
    let figures = lab.store.figures(lab.at(2));
    let site = figures
        .iter()
        .find(|f| f.clients == "one" && &*f.site == "s0" && f.member.is_none());
    assert_eq!(site.unwrap().told.window.count, 60);
    lab.store.judge(&other, lab.at(2));
    let mut facts = Facts::none(&other);
    lab.store.update(&other, None, lab.at(2), &mut facts);
    assert!(passive(&facts, Clients::Isp(1), 2).is_some());
    assert_eq!(facts.latency.len(), 1);
}

#[test]
fn what_cannot_be_told_is_counted() {
    let lab = lab(|_| {});
    let good = lab.sample(1, 1, 38, 0);
    let odd = [
        LatencySample {
            numbering: lab.servers.numbering().wrapping_add(1000),
            ..good
        },
        LatencySample {
            cell: Numbers { class: 9, server: 1 },
            ..good
        },
        LatencySample {
            cell: Numbers { class: 1, server: 0 },
            ..good
        },
        LatencySample {
            cell: Numbers { class: 1, server: 4 },
            ..good
        },
    ];
    lab.store.take(&odd, lab.at(0), None);
    assert_eq!((lab.store.counts().unknown, lab.store.counts().taken), (4, 0));
    // Eight tables are known; the ninth newest is not any more.
    for _ in 0..8 {
        lab.store.take(&[good], lab.at(0), None);
        lab.store.learn(&lab.config, &classes(), &servers());
    }
    lab.store.take(&[good], lab.at(0), None);
    assert_eq!((lab.store.counts().unknown, lab.store.counts().taken), (5, 8));
}

#[test]
fn cells_are_bounded_and_the_least_recently_used_goes() {
    // Each class and server makes a cell for the site and one for the member.
    let lab = lab(|config| config.latency.cells = 4);
    lab.traffic(0, 1, 1, 38);
    lab.traffic(1, 1, 2, 38);
    lab.traffic(2, 1, 1, 38);
    lab.traffic(3, 1, 3, 38);
    let counts = lab.store.counts();
    assert_eq!((counts.cells, counts.cells_max, counts.evicted), (4, 4, 2));
    let figures = lab.store.figures(lab.at(4));
    let sites: HashSet<&str> = figures.iter().map(|f| &*f.site).collect();
    assert_eq!(sites, HashSet::from(["s0", "s2"]));
    let fewer = Config {
        latency: crate::config::model::Latency {
            cells: 2,
            ..lab.config.latency.clone()
        },
        ..with_service(|_| {})
    };
    lab.store.configure(&fewer);
    assert_eq!((lab.store.counts().cells, lab.store.counts().evicted), (2, 4));
}

#[test]
fn evidence_of_others_stays() {
    let lab = lab(|_| {});
    lab.traffic(0, 1, 1, 38);
    lab.traffic(0, 2, 1, 50);
    lab.judge(1);
    let agent = Evidence {
        value: Duration::from_millis(9),
        count: 1,
        age: Duration::ZERO,
        source: Source::Agent,
    };
    let mut facts = Facts::none(&lab.config);
    facts.latency.insert((Clients::Isp(0), 0), vec![agent]);
    let one = HashSet::from([Clients::Isp(0)]);
    for _ in 0..2 {
        lab.store.update(&lab.config, Some(&one), lab.at(2), &mut facts);
        let list = &facts.latency[&(Clients::Isp(0), 0)];
        assert_eq!((list.len(), list[0]), (2, agent));
        assert_eq!(facts.latency.len(), 1, "the other ISP was not asked for");
    }
    assert!(lab.judge(700).contains(&Clients::Isp(0)));
    lab.store.update(&lab.config, None, lab.at(700), &mut facts);
    assert_eq!(
        facts.latency,
        HashMap::from([((Clients::Isp(0), 0), vec![agent])])
    );
}

#[test]
fn a_site_that_was_left_is_told_with_what_was_measured() {
    let lab = lab(|config| config.latency.window = Duration::from_secs(6));
    let both = |second, a, b| {
        lab.traffic(second, 1, 1, a);
        lab.traffic(second, 1, 2, b);
        lab.judge(second);
    };
    both(0, 20, 40);
    both(10, 60, 40);
    both(20, 20, 40);
    let facts = lab.facts(25);
    let told = [0, 1].map(|site| passive(&facts, Clients::Isp(0), site).unwrap().value);
    assert_eq!(told[0], told[1]);
    close(told[0], 40.0);
    let held = facts.held[&(Clients::Isp(0), 0)];
    close(held.measured, 20.0);
    // Left at 10, for two minutes.
    assert_eq!(held.rest, Duration::from_secs(105));
    assert_eq!(facts.held.len(), 1);
    assert_eq!(lab.store.counts().leaders, 1);
}
