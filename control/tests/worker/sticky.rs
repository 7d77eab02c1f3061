//! `spread = consistent-hash` over the whole dataplane: which clients move when weights and members change. Those that
//! must, and nobody else.

use crate::frames::{self, Kind, OUR_MAC, SERVICE_V4, SERVICE_V6};
use crate::lab::{Lab, base, name, zone};
use control::config::model::*;
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefixes of clients: so many /24s and /48s.
const CLIENTS: u32 = 4096;

fn address(n: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(203, 0, 113, n).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, n.into()).into(),
    }
}

/// One service at one site; its members by the last byte of their addresses, with their weights.
fn config(members: &[(u8, u16)]) -> Config {
    let mut config = base(vec![zone("example.com.", vec![])]);
    config.sites = vec![Site {
        name: "ams".into(),
        ..Site::default()
    }];
    let both = |&(n, weight): &(u8, u16)| {
        [false, true].map(|v6| Member {
            address: address(n, v6),
            site: 0,
            weight,
        })
    };
    config.services = vec![Service {
        name: name("vod.example.com."),
        chain: vec![Metric::Health, Metric::Static],
        spread: Spread::ConsistentHash {
            prefix_v4: 24,
            prefix_v6: 48,
        },
        members: members.iter().flat_map(both).collect(),
        ..Service::default()
    }];
    config
}

/// Who answers each client prefix; `host` is which of its addresses asks.
fn map(lab: &mut Lab, v6: bool, host: u8) -> Vec<u8> {
    let rtype = if v6 { Rtype::AAAA } else { Rtype::A };
    let message = frames::message("vod.example.com.", rtype, None);
    let query = |client: u32| {
        let [_, _, high, low] = client.to_be_bytes();
        let mut body = Vec::new();
        let written = if v6 {
            let source = Ipv6Addr::new(0x2001, 0xdb8, client as u16, 0, 0, 0, 0, host.into());
            let packet = PacketBuilder::ipv6(source.octets(), SERVICE_V6, 60).udp(40_000, 53);
            packet.write(&mut body, &message)
        } else {
            let packet = PacketBuilder::ipv4([10, high, low, host], SERVICE_V4, 60).udp(40_000, 53);
            packet.write(&mut body, &message)
        };
        written.unwrap();
        frames::ethernet(OUR_MAC, 0, if v6 { 0x86dd } else { 0x0800 }, &body)
    };
    let queries: Vec<Vec<u8>> = (0..CLIENTS).map(query).collect();
    let mut given = Vec::new();
    for burst in queries.chunks(64) {
        for reply in lab.exchange(burst) {
            let Kind::Udp(reply) = frames::dissect(&reply) else {
                panic!("no datagram")
            };
            // One answer, whose address ends in the member's number and the reply with the address.
            given.push(*reply.last().unwrap());
        }
    }
    assert_eq!(given.len(), CLIENTS as usize);
    given
}

/// That `count` of all clients are as many as a chance of `share` gives, within 5 standard deviations.
fn assert_share(count: usize, share: f64, what: &str) {
    let n = f64::from(CLIENTS);
    let (mean, sigma) = (n * share, (n * share * (1.0 - share)).sqrt());
    assert!(
        (count as f64 - mean).abs() <= 5.0 * sigma,
        "{what}: {count}, expected {mean:.0} +- {:.0}",
        5.0 * sigma
    );
}

const TEN: [(u8, u16); 10] = [
    (1, 10),
    (2, 10),
    (3, 10),
    (4, 10),
    (5, 10),
    (6, 10),
    (7, 10),
    (8, 10),
    (9, 10),
    (10, 10),
];

/// Ten members of weight 10; then one has another weight, or is gone, or there is one more.
#[test]
fn a_change_moves_only_those_that_must_move() {
    for v6 in [false, true] {
        let mut lab = Lab::new(config(&TEN));
        let before = map(&mut lab, v6, 1);
        assert_eq!(before, map(&mut lab, v6, 77), "hosts of one prefix differ");
        for n in 1..=10 {
            let count = before.iter().filter(|&&m| m == n).count();
            assert_share(count, 0.1, &format!("member {n}"));
        }
        let mut change = |members: &[(u8, u16)]| -> Vec<(u8, u8)> {
            lab.publish(config(members));
            lab.settle();
            let after = map(&mut lab, v6, 1);
            lab.publish(config(&TEN));
            lab.settle();
            assert_eq!(before, map(&mut lab, v6, 1), "not as before");
            let pairs = before.iter().copied().zip(after);
            pairs.filter(|(old, new)| old != new).collect()
        };

        // Member 3 doubles: of 110 parts it has 20 instead of 10 of 100. Whoever moves, moves to it.
        let mut doubled = TEN;
        doubled[2].1 = 20;
        let moved = change(&doubled);
        assert!(moved.iter().all(|(_, new)| *new == 3));
        assert_share(moved.len(), 20.0 / 110.0 - 0.1, "moved to the doubled one");

        // It halves: 5 of 95. Whoever moves, moves away from it.
        let mut halved = TEN;
        halved[2].1 = 5;
        let moved = change(&halved);
        assert!(moved.iter().all(|(old, _)| *old == 3));
        assert_share(moved.len(), 0.1 - 5.0 / 95.0, "moved from the halved one");

        // It is gone, and the rest stand in another order in the file.
        let mut gone: Vec<(u8, u16)> = TEN.into_iter().filter(|(n, _)| *n != 3).collect();
        gone.reverse();
        let moved = change(&gone);
        assert!(moved.iter().all(|(old, _)| *old == 3));
        assert_eq!(moved.len(), before.iter().filter(|&&m| m == 3).count());

        // One more, first in the file.
        let more: Vec<(u8, u16)> = [(11, 10)].into_iter().chain(TEN).collect();
        let moved = change(&more);
        assert!(moved.iter().all(|(_, new)| *new == 11));
        assert_share(moved.len(), 1.0 / 11.0, "moved to the new one");
        lab.check();
    }
}
