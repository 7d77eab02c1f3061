//! One packet of each kind, IPv4 and IPv6, with no to two tags: its one verdict, and the reply.

use crate::frames::{self, Kind};
use crate::lab::{Lab, changes, example};
use dataplane::counters::Counter::{self, *};
use dataplane::io::memory::MemoryConfig;
use dataplane::io::{Shape, WINDOW};
use dataplane::link::LinkSlots;
use domain::base::iana::Rtype;
use std::collections::HashSet;

/// Sends one frame; returns the counters that changed and what was sent.
fn one(lab: &mut Lab, frame: Vec<u8>) -> (Vec<(Counter, u64)>, Vec<Vec<u8>>) {
    let before = lab.counters();
    let sent = lab.exchange(&[frame]);
    (changes(&before, &lab.counters()), sent)
}

/// A frame that is answered: checks the counters, the tags and the layers of the reply.
fn replied(lab: &mut Lab, frame: &[u8], tags: usize, outcome: Option<Counter>) -> Kind {
    let (changed, sent) = one(lab, frame.to_vec());
    let mut want = vec![(Received, 1), (Transmitted, 1), (Replied, 1)];
    want.extend(outcome.map(|c| (c, 1)));
    assert_eq!(changed, want);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][12..frames::l3(tags)], frame[12..frames::l3(tags)], "tags");
    frames::dissect(&sent[0])
}

fn dropped(lab: &mut Lab, frame: Vec<u8>, reason: Counter) {
    assert_eq!(one(lab, frame), (vec![(Received, 1), (reason, 1)], vec![]));
}

/// Every family with every number of tags that is answered.
fn each(mut with: impl FnMut(&mut Lab, bool, usize)) {
    let mut lab = Lab::new(example(192));
    for v6 in [false, true] {
        for tags in 0..=2 {
            with(&mut lab, v6, tags);
        }
    }
}

#[test]
fn a_static_name_is_answered_in_place() {
    each(|lab, v6, tags| {
        let query = frames::message("www.example.com.", Rtype::A, Some(1232));
        let frame = frames::query(v6, tags, &query);
        let Kind::Udp(reply) = replied(lab, &frame, tags, Some(DnsAnswer)) else {
            panic!()
        };
        assert_eq!(frames::addresses(&reply), [[192, 0, 2, 1], [192, 0, 2, 2]]);
        // ID, then QR, AA and RD, NOERROR, one question, two answers, one additional record: OPT.
        assert_eq!(
            reply[..12],
            [0x12, 0x34, 0x85, 0, 0, 1, 0, 2, 0, 0, 0, 1],
            "v6 {v6} tags {tags}"
        );
        let nothing = frames::query(v6, tags, &frames::message("no.example.com.", Rtype::A, None));
        replied(lab, &nothing, tags, Some(DnsNxdomain));
    });
}

#[test]
fn a_service_is_chosen_for_the_client() {
    each(|lab, v6, tags| {
        let query = frames::message("vod.example.com.", Rtype::A, None);
        let mut seen = HashSet::new();
        for _ in 0..4 {
            let Kind::Udp(reply) = replied(lab, &frames::query(v6, tags, &query), tags, Some(DnsAnswer))
            else {
                panic!()
            };
            let addresses = frames::addresses(&reply);
            assert_eq!(addresses.len(), 2);
            seen.extend(addresses);
        }
        // Nobody's client: all four members, in turn.
        assert_eq!(seen, HashSet::from([1, 2, 11, 12].map(|n| [192, 51, 100, n])));
    });
}

#[test]
fn neighbours_are_answered() {
    let mut lab = Lab::new(example(192));
    for tags in 0..=2 {
        let Kind::Arp(body) = replied(&mut lab, &frames::arp(tags, frames::SERVICE_V4), tags, None) else {
            panic!()
        };
        // A reply from us, to the one who asked (RFC 826).
        let want = [
            &[0, 1, 8, 0, 6, 4, 0, 2][..],
            &frames::OUR_MAC,
            &frames::SERVICE_V4,
            &frames::CLIENT_MAC,
            &frames::CLIENT_V4,
        ];
        assert_eq!(body, want.concat());
        dropped(&mut lab, frames::arp(tags, [192, 0, 2, 99]), DropArp);

        let Kind::Icmp(advertisement) = replied(&mut lab, &frames::solicitation(tags), tags, None) else {
            panic!()
        };
        assert_eq!(advertisement[0], 136);
        assert_eq!(advertisement[8..24], frames::SERVICE_V6);
        assert_eq!(advertisement[24..32], [&[2, 1][..], &frames::OUR_MAC].concat());
    }
}

#[test]
fn echo_is_answered_up_to_its_rate() {
    each(|lab, v6, tags| {
        let Kind::Icmp(reply) = replied(lab, &frames::echo(v6, tags), tags, None) else {
            panic!()
        };
        assert_eq!(reply[0], if v6 { 129 } else { 0 });
        assert_eq!(reply[4..], [&[0, 5, 0, 6][..], &[0x61; 24]].concat());
    });
    let mut lab = Lab::new(example(192));
    let before = lab.counters();
    lab.exchange(&vec![frames::echo(false, 0); 250]);
    let after = changes(&before, &lab.counters());
    // 100 at once; the 250 come within 0.1 ms, in which no other is due.
    assert_eq!(
        after,
        [
            (Received, 250),
            (Transmitted, 100),
            (Replied, 100),
            (DropIcmpRate, 150)
        ]
    );
}

#[test]
fn tcp_is_punted_whole_until_the_ring_is_full() {
    let slots = LinkSlots {
        punts: 4,
        ..LinkSlots::default()
    };
    let mut lab = Lab::empty(2, MemoryConfig::default(), slots);
    lab.publish(example(192));
    lab.settle();
    for v6 in [false, true] {
        for tags in 0..=2 {
            let frame = frames::syn(v6, tags);
            assert_eq!(
                one(&mut lab, frame.clone()),
                (vec![(Received, 1), (Punted, 1)], vec![])
            );
            let got = lab.control.punts.receive(|port, bytes| (port, bytes.to_vec()));
            assert_eq!(got, Some((0, frame)));
        }
    }
    let other = frames::udp(false, 1, 7, (40_000, 853), b"not dns");
    assert!(lab.wires[1].inject(&other));
    lab.poll();
    let got = lab.control.punts.receive(|port, bytes| (port, bytes.to_vec()));
    assert_eq!(got, Some((1, other)));

    let before = lab.counters();
    lab.exchange(&vec![frames::syn(false, 0); 7]);
    let after = changes(&before, &lab.counters());
    assert_eq!(after, [(Received, 7), (Punted, 4), (DropPuntFull, 3)]);
    assert!(lab.control.punts.receive(|_, _| ()).is_some());
    assert_eq!(
        one(&mut lab, frames::syn(true, 2)).0,
        [(Received, 1), (Punted, 1)]
    );
}

#[test]
fn what_is_not_ours_is_dropped_with_its_reason() {
    each(|lab, v6, tags| {
        let good = frames::query(v6, tags, &frames::message("www.example.com.", Rtype::A, None));
        let l3 = frames::l3(tags);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = good.clone();
            change(&mut frame);
            frame
        };
        let udp = l3 + if v6 { 40 } else { 20 };
        let foreign = if v6 {
            changed(&|f| f[l3 + 39] ^= 1)
        } else {
            frames::with_ipv4_header(good.clone(), tags, |h| h[19] ^= 1)
        };
        let fragment = if v6 {
            frames::with_fragment_header(&good, tags)
        } else {
            frames::with_ipv4_header(good.clone(), tags, |h| h[6] = 0x20)
        };
        let source = if v6 {
            changed(&|f| f[l3 + 8] = 0xff)
        } else {
            frames::with_ipv4_header(good.clone(), tags, |h| h[12] = 224)
        };
        let header = if v6 { DropIpv6Header } else { DropIpv4Header };
        for (frame, reason) in [
            (changed(&|f| f[5] ^= 1), DropForeignMac),
            (changed(&|f| f.truncate(13)), DropRunt),
            (changed(&|f| f[l3 - 1] ^= 0x11), DropEtherType),
            (foreign, DropForeignAddress),
            (fragment, DropFragment),
            (source, DropSourceAddress),
            (changed(&|f| f.truncate(l3 + 10)), header),
            (changed(&|f| f[udp + 6] ^= 1), DropUdpChecksum),
            (frames::query(v6, 3, &[0; 12]), DropVlanDepth),
            (frames::query(v6, tags, &[0; 11]), DropDnsShort),
            (
                frames::query(v6, tags, &[0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
                DropDnsResponse,
            ),
        ] {
            let text = format!("{reason:?}, v6 {v6}, tags {tags}");
            let (changed, sent) = one(lab, frame);
            assert_eq!(
                (changed, sent),
                (vec![(Received, 1), (reason, 1)], vec![]),
                "{text}"
            );
        }
    });
    let mut lab = Lab::new(example(192));
    let mut bad = frames::query(false, 0, &[0; 12]);
    bad[24] ^= 1;
    dropped(&mut lab, bad, DropIpv4Checksum);
}

#[test]
fn long_and_split_frames_are_dropped_unread() {
    let mut lab = Lab::new(example(192));
    let query = frames::query(false, 0, &frames::message("www.example.com.", Rtype::A, None));
    let mut long = query.clone();
    long.resize(WINDOW + 500, 0);
    for (frame, shape, reason) in [
        (&query, Shape::MultiSegment, DropMultiSegment),
        (&long, Shape::MultiSegment, DropMultiSegment),
        (&long, Shape::Oversized, DropOversized),
    ] {
        let before = lab.counters();
        assert!(lab.wires[0].inject_shaped(frame, shape));
        assert!(lab.exchange(&[]).is_empty());
        assert_eq!(changes(&before, &lab.counters()), [(Received, 1), (reason, 1)]);
    }
    // The longest frame that is read, and the next after a long one is read by its own length.
    let mut padded = query;
    padded.resize(WINDOW, 0x5a);
    replied(&mut lab, &padded, 0, Some(DnsAnswer));
}

#[test]
fn before_the_first_snapshot_everything_is_dropped() {
    let mut lab = Lab::empty(1, MemoryConfig::default(), LinkSlots::default());
    let query = frames::query(false, 0, &frames::message("www.example.com.", Rtype::A, None));
    let all = [query.clone(), frames::syn(true, 1), vec![0; 3]];
    assert!(lab.exchange(&all).is_empty());
    assert_eq!(
        changes(&Default::default(), &lab.counters()),
        [(Received, 3), (DropNoSnapshot, 3)]
    );
    lab.publish(example(192));
    lab.settle();
    replied(&mut lab, &query, 0, Some(DnsAnswer));
    assert_eq!(lab.published.read().get(SnapshotsAdopted), 1);
}

#[test]
fn a_port_that_refuses_turns_replies_into_drops() {
    let mut lab = Lab::new(example(192));
    let query = frames::query(true, 1, &frames::message("www.example.com.", Rtype::A, None));
    let mut burst = vec![query; 10];
    burst.insert(3, frames::syn(false, 0));
    for limit in [0, 1, 4, 9, 10] {
        lab.wires[0].limit_tx(Some(limit));
        let before = lab.counters();
        let sent = lab.exchange(&burst);
        let refused = 10 - limit as u64;
        let want: Vec<_> = [
            (Received, 11),
            (Transmitted, limit as u64),
            (Replied, limit as u64),
            (Punted, 1),
            (DropTxFull, refused),
            (DnsAnswer, 10),
        ]
        .into_iter()
        .filter(|&(_, n)| n > 0)
        .collect();
        assert_eq!(changes(&before, &lab.counters()), want);
        assert_eq!(sent.len(), limit);
        for frame in sent {
            frames::dissect(&frame);
        }
    }
}

#[test]
fn an_empty_pool_holds_packets_back_and_drops_injections() {
    let memory = MemoryConfig {
        buffers: 4,
        ..MemoryConfig::default()
    };
    let mut lab = Lab::empty(1, memory, LinkSlots::default());
    lab.publish(example(192));
    lab.settle();
    let query = frames::query(false, 0, &frames::message("www.example.com.", Rtype::A, None));
    for _ in 0..10 {
        assert!(lab.wires[0].inject(&query));
    }
    assert_eq!([lab.poll(), lab.poll(), lab.poll(), lab.poll()], [4, 4, 2, 0]);
    lab.check();
    assert_eq!(lab.wires[0].take_all().len(), 10);
    assert!(lab.wires[0].pool_empty() > 0);

    let mut none = Lab::empty(1, MemoryConfig { buffers: 0, ..memory }, LinkSlots::default());
    none.control.injections.send(0, &query).unwrap();
    none.housekeep();
    assert_eq!(none.counters().get(InjectionsDropped), 1);
    none.check();
}

#[test]
fn injections_go_out_of_their_port() {
    let mut lab = Lab::empty(2, MemoryConfig::default(), LinkSlots::default());
    for (port, frame) in [(1, &b"first"[..]), (0, b"second"), (2, b"no such port")] {
        lab.control.injections.send(port, frame).unwrap();
    }
    lab.housekeep();
    assert_eq!(lab.wires[0].take_all(), [b"second"]);
    assert_eq!(lab.wires[1].take_all(), [b"first"]);
    assert_eq!(
        changes(&Default::default(), &lab.counters()),
        [(Transmitted, 2), (Injected, 2)]
    );
    assert_eq!(lab.counters().get(InjectionsDropped), 1);
    lab.wires[0].limit_tx(Some(0));
    lab.control.injections.send(0, b"refused").unwrap();
    lab.housekeep();
    assert_eq!(lab.counters().get(InjectionsDropped), 2);
    lab.check();
}
