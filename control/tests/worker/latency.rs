//! What sites measure moves answers: through compiler, ring and worker, without a reload. [`passive`]: what users' traffic shows.

mod passive;

use crate::frames::{self, Kind, OUR_MAC, SERVICE_V4};
use crate::lab::{Lab, base, name, zone};
use control::config::model::*;
use control::policy::cells::Changed;
use control::policy::chain::Permille;
use control::policy::chain::facts::{Clients, Evidence, Source};
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Korea and the United States, two servers each, as in the worked example of an enterprise's GSLB.
fn config() -> Config {
    let mut config = base(vec![zone("example.com.", vec![])]);
    let site = |name: &str| Site {
        name: name.into(),
        ..Site::default()
    };
    config.sites = vec![site("korea"), site("us")];
    config.reports = Some(Reports {
        listen: "127.0.0.1:1".parse().unwrap(),
        certificate: None,
        interval: Duration::from_secs(5),
        silent_after: Duration::from_secs(20),
        measure: vec![],
        rtt_prefixes: 16,
        rtt_every: Duration::from_secs(60),
        rtt_max_age: Duration::from_secs(600),
        rtt_prefix_v4: 24,
        rtt_prefix_v6: 48,
    });
    let member = |last: u8, site| Member {
        address: IpAddr::from([203, 0, 113, last]),
        site,
        weight: 1,
    };
    config.services = vec![Service {
        name: name("www.example.com."),
        chain: vec![Metric::Health, Metric::Latency, Metric::Static],
        members: vec![member(1, 0), member(2, 0), member(3, 1), member(4, 1)],
        ..Service::default()
    }];
    config
}

/// Answers of 2,000 queries with different IDs from `client`: how many are of each site, which have two members each.
fn ask(lab: &mut Lab, client: [u8; 4]) -> [u32; 2] {
    let [a, b, c, d] = by_member(lab, client);
    [a + b, c + d]
}

/// How many are of each member.
fn by_member<const M: usize>(lab: &mut Lab, client: [u8; 4]) -> [u32; M] {
    let mut members = [0; M];
    for ids in (0..2_000u16).collect::<Vec<_>>().chunks(32) {
        let query = |id: &u16| {
            let mut message = frames::message("www.example.com.", Rtype::A, None);
            message[..2].copy_from_slice(&id.wrapping_mul(31).to_be_bytes());
            let mut body = Vec::new();
            let packet = PacketBuilder::ipv4(client, SERVICE_V4, 60).udp(40_000, 53);
            packet.write(&mut body, &message).unwrap();
            frames::ethernet(OUR_MAC, 0, 0x0800, &body)
        };
        let queries: Vec<Vec<u8>> = ids.iter().map(query).collect();
        for reply in lab.exchange(&queries) {
            let Kind::Udp(reply) = frames::dissect(&reply) else {
                panic!("no datagram")
            };
            let [[203, 0, 113, last]] = frames::addresses(&reply)[..] else {
                panic!("not one of ours")
            };
            members[usize::from(last) - 1] += 1;
        }
    }
    members
}

fn evidence(ms: u64, age: u64) -> Vec<Evidence> {
    vec![Evidence {
        value: Duration::from_millis(ms),
        count: 5,
        age: Duration::from_secs(age),
        source: Source::Agent,
    }]
}

#[test]
fn a_resolver_goes_to_the_site_that_is_near_it_as_soon_as_that_is_known() {
    let mut lab = Lab::new(config());
    let (measured, other) = ([10, 1, 2, 53], [10, 1, 3, 53]);
    assert_eq!(ask(&mut lab, measured), [1000, 1000]);
    let prefix = "10.1.2.0/24".parse().unwrap();
    // Korea 200 ms, the United States 30 ms.
    for (korea, us, near) in [(200, 30, 1), (20, 180, 0)] {
        lab.refresh(|compiler| {
            let facts = Arc::make_mut(&mut compiler.facts);
            facts.latency = HashMap::from([
                ((Clients::Prefix(prefix), 0), evidence(korea, 9)),
                ((Clients::Prefix(prefix), 1), evidence(us, 9)),
            ]);
            compiler.measured = vec![prefix];
            Changed {
                clients: HashSet::from([Clients::Prefix(prefix)]),
                ..Changed::default()
            }
        });
        let sites = ask(&mut lab, measured);
        // One in twenty explores, which takes both sites alike here: 50 of 2,000, and five standard deviations.
        let far = sites[1 - near];
        assert!((15..=85).contains(&far), "{sites:?}");
        assert_eq!(ask(&mut lab, other), [1000, 1000], "of whom nothing is known");
    }
}

/// Three sites at 10, 12 and 14 ms; 20 % more than the best is as good. Who is as good as the best is asked of those that are up:
/// without the first, the third is as good as the second.
#[test]
fn sites_are_compared_with_the_best_that_is_up() {
    let mut config = config();
    config.sites.push(Site {
        name: "japan".into(),
        ..Site::default()
    });
    let service = &mut config.services[0];
    let address = |site: u8| IpAddr::from([203, 0, 113, 1 + site]);
    service.members = (0..3u8)
        .map(|site| Member {
            address: address(site),
            site: site.into(),
            weight: 1,
        })
        .collect();
    let latency = &mut service.parameters.latency;
    (latency.relative, latency.absolute) = (Permille(200), Duration::ZERO);
    latency.explore = Permille(0);

    let mut lab = Lab::new(config);
    let prefix = "10.1.2.0/24".parse().unwrap();
    lab.refresh(|compiler| {
        let facts = Arc::make_mut(&mut compiler.facts);
        let measured = [10, 12, 14].into_iter().enumerate();
        facts.latency = measured
            .map(|(site, ms)| ((Clients::Prefix(prefix), site), evidence(ms, 9)))
            .collect();
        compiler.measured = vec![prefix];
        Changed {
            clients: HashSet::from([Clients::Prefix(prefix)]),
            ..Changed::default()
        }
    });
    let client = [10, 1, 2, 53];
    assert_eq!(by_member(&mut lab, client), [1000, 1000, 0]);
    // Words alone: the next site that the plan has, until the plan is made anew.
    lab.set_dead(HashSet::from([address(0)]));
    assert_eq!(by_member(&mut lab, client), [0, 2000, 0]);
    lab.refresh(|_| Changed::default());
    assert_eq!(by_member(&mut lab, client), [0, 1000, 1000]);
    lab.set_dead(HashSet::new());
    lab.refresh(|_| Changed::default());
    assert_eq!(by_member(&mut lab, client), [1000, 1000, 0]);
}

#[test]
fn control_hears_of_clients_that_services_chose_for() {
    let mut lab = Lab::new(config());
    let clients = [[10, 1, 2, 53], [10, 9, 9, 9]];
    let mut seen = HashSet::new();
    for client in clients {
        ask(&mut lab, client);
        lab.settle();
        seen.extend(std::iter::from_fn(|| lab.control.clients.receive()));
    }
    assert_eq!(seen, clients.map(IpAddr::from).into());
    // Nobody asked since.
    lab.settle();
    assert_eq!(lab.control.clients.receive(), None);
}

#[test]
fn classes_that_change_make_a_new_numbering_and_other_evidence_does_not() {
    let mut lab = Lab::new(config());
    let first = lab.compile(config());
    let prefix = "10.1.2.0/24".parse().unwrap();
    let mut refreshed = |korea, us| {
        let facts = Arc::make_mut(&mut lab.compiler.facts);
        facts.latency = HashMap::from([
            ((Clients::Prefix(prefix), 0), evidence(korea, 9)),
            ((Clients::Prefix(prefix), 1), evidence(us, 9)),
        ]);
        lab.compiler.measured = vec![prefix];
        let changed = Changed {
            clients: HashSet::from([Clients::Prefix(prefix)]),
            ..Changed::default()
        };
        lab.compiler
            .refresh(&changed)
            .unwrap()
            .expect("another snapshot")
            .snapshot
    };
    // The prefix is a class now; then its answers are others.
    let (class, answers) = (refreshed(200, 30), refreshed(20, 180));
    assert_ne!(class.servers.numbering(), first.servers.numbering());
    assert_eq!(answers.servers.numbering(), class.servers.numbering());
    assert_eq!(class.servers.list(), first.servers.list());
}
