//! Compiling again what changed: the same cells as a whole compilation, in as few pages as it touches.

use super::cells::{Cells, Changed};
use super::chain::facts::{Clients, Reading};
use super::chain::{ClientClass, Evidence, Facts, SiteFacts, Source};
use super::tests::with_service;
use super::*;
use crate::config::model::Token;
use dataplane::link::WordTarget;
use dataplane::tables::words::site_word;
use proptest::prelude::*;
use std::time::Duration;

/// A chain of these metrics over the three sites of [`with_service`], which can hold 100 sessions each.
fn policy(metrics: &[Metric]) -> PolicyKey {
    let config = with_service(|c| {
        c.services[0].chain = metrics.to_vec();
        c.sites.iter_mut().for_each(|site| site.sessions_max = Some(100));
    });
    PolicyKey::of(&config, &config.services[0])
}

fn class(isp: Option<usize>, measured: Option<u8>) -> ClientClass {
    ClientClass {
        isp,
        measured: measured.map(|net| format!("10.{net}.0.0/16").parse().unwrap()),
        ..ClientClass::default()
    }
}

fn evidence(ms: u64) -> Vec<Evidence> {
    vec![Evidence {
        value: Duration::from_millis(ms),
        count: 3,
        age: Duration::ZERO,
        source: Source::Agent,
    }]
}

fn sessions(value: u64) -> SiteFacts {
    SiteFacts {
        sessions: Some(Reading {
            value,
            age: Duration::ZERO,
        }),
        ..SiteFacts::default()
    }
}

/// All cells, as a list.
fn list(cells: &Cells) -> Vec<plans::Cell> {
    let table = cells.table();
    (0..table.len()).map(|i| *table.get(i).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_touched_comes_out_as_a_whole_compilation(
        changes in prop::collection::vec((0usize..3, 0u8..6, prop::option::of(1u64..200), 0u64..120), 1..20),
    ) {
        let policies = [
            policy(&[Metric::Health, Metric::Capacity, Metric::Isp, Metric::Static]),
            policy(&[Metric::Health, Metric::Latency, Metric::Static]),
            policy(&[Metric::Health, Metric::AvailableSessions, Metric::Latency, Metric::Static]),
            policy(&[Metric::Health, Metric::Static]),
        ];
        // Measured prefixes 0 to 5, in two ISPs and none.
        let mut classes = vec![ClientClass::default(), class(Some(0), None), class(Some(1), None)];
        classes.extend((0..6).map(|net| class([None, Some(0), Some(1)][net as usize % 3], Some(net))));
        let classes = Arc::new(classes);
        let mut facts = Facts { sites: vec![SiteFacts::default(); 3], ..Facts::default() };
        let mut cells = Cells::compile(&policies, classes.clone(), 300, &facts, &[]).unwrap();
        for (site, net, ms, open) in changes {
            let clients = Clients::Prefix(format!("10.{net}.0.0/16").parse().unwrap());
            match ms {
                Some(ms) => facts.latency.insert((clients, site), evidence(ms)),
                None => facts.latency.remove(&(clients, site)),
            };
            facts.sites[site] = sessions(open);
            let changed = Changed { sites: [site].into(), clients: [clients].into() };
            let before = cells.table();
            let others = cells.refresh(&changed, &facts, &[]);
            let whole = Cells::compile(&policies, classes.clone(), 300, &facts, &[]).unwrap();
            prop_assert_eq!(list(&cells), list(&whole));
            prop_assert_eq!(cells.table().pages_unlike(&before) > 0, others > 0);
        }
    }
}

#[test]
fn one_prefix_touches_one_page_of_each_policy_with_latency() {
    let classes: Vec<ClientClass> = std::iter::once(ClientClass::default())
        .chain((0..200).map(|net| class(None, Some(net))))
        .collect();
    let policies = [
        policy(&[Metric::Health, Metric::Latency, Metric::Static]),
        policy(&[Metric::Health, Metric::Isp, Metric::Static]),
        policy(&[
            Metric::Health,
            Metric::Latency,
            Metric::Preference,
            Metric::Static,
        ]),
    ];
    let mut facts = Facts::default();
    let mut cells = Cells::compile(&policies, Arc::new(classes), 1000, &facts, &[]).unwrap();
    let before = cells.table();
    let clients = Clients::Prefix("10.77.0.0/16".parse().unwrap());
    facts.latency.insert((clients, 2), evidence(10));
    facts.latency.insert((clients, 0), evidence(90));
    let changed = Changed {
        clients: [clients].into(),
        ..Changed::default()
    };
    // The usual cell and the one that explores, of two policies.
    assert_eq!(cells.refresh(&changed, &facts, &[]), 4);
    assert_eq!(cells.table().pages_unlike(&before), 2);
    assert_eq!(cells.refresh(&changed, &facts, &[]), 0);
}

#[test]
fn new_classes_are_ranked_and_the_others_left_alone() {
    let policies = [policy(&[
        Metric::Health,
        Metric::Isp,
        Metric::Latency,
        Metric::Static,
    ])];
    let facts = Facts::default();
    let few = Arc::new(vec![ClientClass::default(), class(Some(0), None)]);
    let mut cells = Cells::compile(&policies, few, 10, &facts, &[]).unwrap();
    let more = Arc::new(vec![
        ClientClass::default(),
        class(Some(0), None),
        class(Some(1), Some(3)),
    ]);
    assert_eq!(cells.set_classes(more.clone(), &facts), 2);
    let whole = Cells::compile(&policies, more, 10, &facts, &[]).unwrap();
    assert_eq!(list(&cells), list(&whole));
}

#[test]
fn measured_prefixes_without_room_hold_up_nothing_else() {
    // Nobody reports here, so there is room for no measured prefix.
    let config = Arc::new(with_service(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Latency, Metric::Static];
        c.services[0].ttl_degraded = 7;
    }));
    let mut compiler = Compiler::default();
    let first = compiler
        .compile(config, Vec::new(), |_| Standing::UP, 0)
        .unwrap()
        .snapshot;
    compiler.measured = vec!["10.9.0.0/24".parse().unwrap()];
    let member = Target {
        address: "198.51.100.11".parse().unwrap(),
        check: None,
    };
    let of = |t: &Target| {
        if *t == member {
            Standing::DOWN
        } else {
            Standing::UP
        }
    };
    compiler.slots.lock().unwrap().standing_changed(&member, of);
    let before = first.plans.records_a.to_vec();
    let next = compiler
        .refresh(&Changed::default())
        .unwrap()
        .expect("another snapshot")
        .snapshot;
    assert!(Arc::ptr_eq(&next.classes, &first.classes));
    assert_ne!(next.plans.records_a.to_vec(), before);
}

#[test]
fn ttls_fall_while_a_member_is_down_or_ramps() {
    let config = Arc::new(with_service(|c| {
        (c.services[0].ttl, c.services[0].ttl_degraded) = (60, 7);
    }));
    let mut compiler = Compiler::default();
    let first = compiler
        .compile(config, Vec::new(), |_| Standing::UP, 0)
        .unwrap()
        .snapshot;
    let ttls = |snapshot: &Snapshot| -> HashSet<u32> {
        let records = snapshot.plans.records_a.iter();
        records
            .map(|r| u32::from_be_bytes([r[6], r[7], r[8], r[9]]))
            .collect()
    };
    assert_eq!(ttls(&first), HashSet::from([60]));
    assert!(compiler.refresh(&Changed::default()).unwrap().is_none());
    let member = Target {
        address: "198.51.100.11".parse().unwrap(),
        check: None,
    };
    for (standing, ttl) in [
        (Standing::DOWN, 7),
        (Standing::UP, 60),
        (Standing { up: true, share: 3 }, 7),
        (Standing::UP, 60),
        (Standing { up: true, share: 0 }, 7),
        (Standing::UP, 60),
    ] {
        let of = |t: &Target| if *t == member { standing } else { Standing::UP };
        compiler.slots.lock().unwrap().standing_changed(&member, of);
        let next = compiler.refresh(&Changed::default()).unwrap();
        let next = next.expect("another snapshot").snapshot;
        assert_eq!(ttls(&next), HashSet::from([ttl]), "{standing:?}");
        assert_eq!(next.generation, compiler.generation());
        assert!(Arc::ptr_eq(&next.names, &first.names));
    }
}

#[test]
fn sites_shed_by_capacity_and_silence_where_services_look_at_it() {
    let mut config = with_service(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Capacity, Metric::Static];
        c.sites.iter_mut().for_each(|site| site.sessions_max = Some(100));
        c.sites[0].on_silence = OnSilence::Avoid;
    });
    // The first two report.
    let token = Token("0123456789abcdef".into());
    config.sites[..2]
        .iter_mut()
        .for_each(|site| site.tokens = vec![token.clone()]);
    let mut compiler = Compiler::default();
    compiler
        .compile(Arc::new(config.clone()), Vec::new(), |_| Standing::UP, 0)
        .unwrap();
    let mut facts = Facts::none(&config);
    // Halfway between 90 and 100 of 100; at the limit; nothing known.
    facts.sites = vec![sessions(95), sessions(100), SiteFacts::default()];
    let shares = |facts: &Facts| -> Vec<(u16, bool)> {
        site_shares(&config, facts)
            .iter()
            .map(|s| (s.capacity, s.silent))
            .collect()
    };
    assert_eq!(shares(&facts), [(128, false), (0, false), (256, false)]);
    facts.sites[0].silent = true;
    assert!(shares(&facts)[0].1);
    // With all of those that report silent it is the reports that fail.
    facts.sites[1].silent = true;
    assert!(!shares(&facts)[0].1);
    let mut slots = compiler.slots.lock().unwrap();
    slots.take_changes();
    slots.sites.set(
        "s0",
        Shares {
            capacity: 128,
            silent: true,
        },
    );
    slots.sites.set(
        "s1",
        Shares {
            capacity: 128,
            silent: true,
        },
    );
    let words: HashMap<_, _> = slots.take_changes().into_iter().collect();
    let groups = &compiler.kept.as_ref().unwrap().snapshot.plans.groups;
    let word = |group: usize| words[&WordTarget::Site(groups[group].site.into())];
    assert_eq!(word(0), site_word(0), "avoids silence");
    assert_eq!(word(1), site_word(128), "looks at capacity alone");
}
