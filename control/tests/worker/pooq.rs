//! A broadcaster's video service in 2013 (Pooq, the programmes of SBS): 27 servers in 6 data centres of 6 ISPs, two
//! addresses an answer, of which players take the first. 45,668 queries from one ISP's line were answered as if nobody
//! had asked: each server came first 1,472 to 1,891 times, 1,691 in the mean.
//!
//! Here the resolvers of each ISP ask the whole dataplane that often.

use crate::frames::{self, Kind, OUR_MAC, SERVICE_V4, SERVICE_V6};
use crate::lab::{Lab, base, name, zone};
use control::config::model::*;
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const QUERIES: u32 = 45_668;
const ISPS: [&str; 6] = ["KT", "SKB", "LGU", "SEJONG", "DREAMLINE", "HCN"];
/// Servers in the data centre of each ISP.
const SERVERS: [u8; 6] = [9, 6, 5, 4, 2, 1];
const ALL: u8 = 27;

/// Server `n` of the data centre `isp`.
fn server(isp: usize, n: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(203, 0, isp as u8, 1 + n).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0x100, isp as u16, 0, 0, 0, 1 + u16::from(n)).into(),
    }
}

/// The ISP of a server.
fn isp_of(server: IpAddr) -> usize {
    match server {
        IpAddr::V4(a) => usize::from(a.octets()[2]),
        IpAddr::V6(a) => usize::from(a.segments()[3]),
    }
}

/// ISP `n` has 10.N.0.0/16 and 2001:db8:N::/48; `preferences` are those of its data centres.
fn config(chain: &[Metric], preferences: [u8; 6]) -> Config {
    let mut config = base(vec![zone("pooq.example.", vec![])]);
    let isp = |n: usize| Isp {
        name: ISPS[n].into(),
        prefixes: [format!("10.{n}.0.0/16"), format!("2001:db8:{n}::/48")]
            .map(|prefix| prefix.parse().unwrap())
            .to_vec(),
        ..Isp::default()
    };
    config.isps = (0..6).map(isp).collect();
    let site = |n: usize| Site {
        name: format!("idc-{}", ISPS[n]),
        isp: Some(n),
        preference: preferences[n],
        ..Site::default()
    };
    config.sites = (0..6).map(site).collect();
    let mut service = Service {
        name: name("vod.pooq.example."),
        answers: 2,
        chain: chain.to_vec(),
        spread: Spread::Weighted,
        ..Service::default()
    };
    for (site, count) in SERVERS.into_iter().enumerate() {
        for n in 0..count {
            let members = [false, true].map(|v6| Member {
                address: server(site, n, v6),
                site,
                weight: 1,
            });
            service.members.extend(members);
        }
    }
    config.services = vec![service];
    config
}

/// Asks from one of the two resolvers of an ISP, in turn; how often each server came first.
fn ask(lab: &mut Lab, isp: usize, v6: bool, count: u32) -> BTreeMap<IpAddr, u32> {
    let rtype = if v6 { Rtype::AAAA } else { Rtype::A };
    let message = frames::message("vod.pooq.example.", rtype, None);
    let resolver = |last: u8| {
        let mut body = Vec::new();
        let written = if v6 {
            let source = Ipv6Addr::new(0x2001, 0xdb8, isp as u16, 0, 0, 0, 0, last.into());
            let packet = PacketBuilder::ipv6(source.octets(), SERVICE_V6, 60).udp(40_000, 53);
            packet.write(&mut body, &message)
        } else {
            let packet = PacketBuilder::ipv4([10, isp as u8, 0, last], SERVICE_V4, 60).udp(40_000, 53);
            packet.write(&mut body, &message)
        };
        written.unwrap();
        frames::ethernet(OUR_MAC, 0, if v6 { 0x86dd } else { 0x0800 }, &body)
    };
    let pair = [resolver(1), resolver(2)];
    let mut first = BTreeMap::new();
    let mut left = count;
    while left > 0 {
        let burst = left.min(64);
        let queries: Vec<Vec<u8>> = pair.iter().cycle().take(burst as usize).cloned().collect();
        let replies = lab.exchange(&queries);
        assert_eq!(replies.len(), queries.len());
        for reply in replies {
            let Kind::Udp(reply) = frames::dissect(&reply) else {
                panic!("no datagram")
            };
            let addresses = addresses(&reply, v6);
            assert_eq!(
                HashSet::<&IpAddr>::from_iter(&addresses).len(),
                2.min(addresses.len())
            );
            *first.entry(addresses[0]).or_default() += 1;
        }
        left -= burst;
    }
    first
}

/// The addresses of a reply, in order.
fn addresses(reply: &[u8], v6: bool) -> Vec<IpAddr> {
    if !v6 {
        return frames::addresses(reply).into_iter().map(IpAddr::from).collect();
    }
    let message = domain::base::Message::from_octets(reply).unwrap();
    let records = message.answer().unwrap().limit_to::<domain::rdata::Aaaa>();
    records.map(|r| IpAddr::V6(r.unwrap().data().addr())).collect()
}

/// That `n` of so many draws with chance `1/of` lies within 5 standard deviations of its mean: one in 1.7 million does
/// not.
fn assert_binomial(n: u32, draws: u32, of: u32, what: &str) {
    let (draws, chance) = (f64::from(draws), 1.0 / f64::from(of));
    let sigma = (draws * chance * (1.0 - chance)).sqrt();
    let off = (f64::from(n) - draws * chance).abs();
    assert!(
        off <= 5.0 * sigma,
        "{what}: {n}, expected {:.0} +- {:.0}",
        draws * chance,
        5.0 * sigma
    );
}

/// By `static` alone each server gets 1,691 whoever asks: five of six answers leave the network, or more.
#[test]
fn nobody_looks_who_asks() {
    let mut lab = Lab::new(config(&[Metric::Health, Metric::Static], [128; 6]));
    for (isp, v6) in [(2, false), (2, true), (5, false)] {
        let first = ask(&mut lab, isp, v6, QUERIES);
        assert_eq!(first.len(), usize::from(ALL));
        assert_eq!(first.values().sum::<u32>(), QUERIES);
        for (server, n) in first {
            assert_binomial(n, QUERIES, ALL.into(), &format!("{server} for {}", ISPS[isp]));
        }
    }
}

/// With `isp` first, every answer stays in its network, spread evenly over its servers.
#[test]
fn each_isp_is_served_in_its_network() {
    let chain = [Metric::Health, Metric::Isp, Metric::Preference, Metric::Static];
    let mut lab = Lab::new(config(&chain, [128; 6]));
    for isp in 0..6 {
        for v6 in [false, true] {
            let first = ask(&mut lab, isp, v6, QUERIES);
            assert_eq!(first.len(), usize::from(SERVERS[isp]), "{}", ISPS[isp]);
            for (server, n) in first {
                assert_eq!(isp_of(server), isp, "{server} for {}", ISPS[isp]);
                assert_binomial(
                    n,
                    QUERIES,
                    SERVERS[isp].into(),
                    &format!("{server} for {}", ISPS[isp]),
                );
            }
        }
    }
}

/// A data centre dies: its ISP's clients spread over those that the next metric says, everybody else stays at home. Then
/// it is back.
#[test]
fn a_dead_data_centre_hands_over_by_the_next_metric() {
    let chain = [Metric::Health, Metric::Isp, Metric::Preference, Metric::Static];
    // Of the others, KT's and SEJONG's are preferred: 9 and 4 servers.
    let mut lab = Lab::new(config(&chain, [200, 128, 128, 200, 128, 1]));
    let dead = |v6s: &[bool]| -> HashSet<IpAddr> {
        let of = |&v6: &bool| (0..SERVERS[1]).map(move |n| server(1, n, v6));
        v6s.iter().flat_map(of).collect()
    };
    lab.set_dead(dead(&[false, true]));
    for v6 in [false, true] {
        let first = ask(&mut lab, 1, v6, QUERIES);
        assert_eq!(first.len(), 13);
        for (server, n) in first {
            assert!([0, 3].contains(&isp_of(server)), "{server}");
            assert_binomial(n, QUERIES, 13, &format!("{server} for {}", ISPS[1]));
        }
        for isp in [0, 2, 3, 4, 5] {
            let first = ask(&mut lab, isp, v6, 2000);
            assert!(first.keys().all(|server| isp_of(*server) == isp), "{}", ISPS[isp]);
        }
    }
    // A and AAAA are judged apart.
    lab.set_dead(dead(&[true]));
    assert!(
        ask(&mut lab, 1, false, 2000)
            .keys()
            .all(|server| isp_of(*server) == 1)
    );
    assert!(
        ask(&mut lab, 1, true, 2000)
            .keys()
            .all(|server| isp_of(*server) != 1)
    );
    lab.set_dead(HashSet::new());
    assert!(
        ask(&mut lab, 1, true, 2000)
            .keys()
            .all(|server| isp_of(*server) == 1)
    );
}

/// All down: what is given meanwhile still goes by ISP.
#[test]
fn all_down_keeps_to_the_isps() {
    let chain = [Metric::Health, Metric::Isp, Metric::Static];
    let mut config = config(&chain, [128; 6]);
    config.services[0].when_all_down = AllDown::Open;
    let mut lab = Lab::down(config);
    for (isp, name) in ISPS.into_iter().enumerate() {
        for v6 in [false, true] {
            let first = ask(&mut lab, isp, v6, 1000);
            assert!(first.keys().all(|server| isp_of(*server) == isp), "{name}");
        }
    }
}
