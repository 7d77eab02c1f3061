//! Requests as described packets, replies byte by byte; faults seen elsewhere as named cases.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::counters::Counter;
use crate::io::{Shape, WINDOW};
use crate::stages::Lane;
use crate::stages::classify::classify;
use crate::stages::testkit::*;
use proptest::prelude::*;

/// ff02::1:ff00:53
const GROUP: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0x53];
const GROUP_MAC: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 0x53];
/// ff02::1
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const OUTER_AND_INNER: [u8; 8] = [0x88, 0xa8, 0, 9, 0x81, 0, 0x60, 8];

fn stage() -> Neighbour {
    Neighbour::new(RateLimit::new(1000, 2, 1_000_000))
}

/// The verdict, the reply if there is one, and the conflicts counted. Panics when classify sends the
/// frame elsewhere.
fn answer(frame: &[u8]) -> (Verdict, Vec<u8>, u64) {
    let (mut window, len) = window_of(frame);
    let port = port();
    let (layers, lane) = classify(&mut window.clone(), len, Shape::Whole, &port);
    assert_eq!(lane, Lane::Neighbour);
    let mut counters = Counters::default();
    let (verdict, len) = stage().process(&mut window, &layers, &port, Ticks(1), &mut counters);
    (
        verdict,
        window[..len].to_vec(),
        counters.get(Counter::AddressConflicts),
    )
}

fn refused(frame: &[u8]) -> (Counter, u64) {
    match answer(frame) {
        (Verdict::Drop(reason), reply, conflicts) if reply.is_empty() => (reason, conflicts),
        other => panic!("not dropped: {other:?}"),
    }
}

/// An ARP request from the client for our first address, broadcast; the ARP body may be changed.
fn arp(tags: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut body = [
        &[0, 1, 8, 0, 6, 4, 0, 1][..],
        &CLIENT_MAC,
        &CLIENT_V4,
        &[0; 6],
        &SERVICE_V4,
    ]
    .concat();
    change(&mut body);
    [&[0xff; 6][..], &CLIENT_MAC, tags, &[8, 6], &body, &[0; 18]].concat()
}

#[test]
fn an_arp_request_gets_a_unicast_reply_with_its_tags() {
    for tags in [&[][..], &[0x81, 0, 0xe0, 0], &OUTER_AND_INNER] {
        let (verdict, reply, conflicts) = answer(&arp(tags, |_| ()));
        let body = [
            &[0, 1, 8, 0, 6, 4, 0, 2][..],
            &OUR_MAC,
            &SERVICE_V4,
            &CLIENT_MAC,
            &CLIENT_V4,
        ]
        .concat();
        assert_eq!((verdict, conflicts), (Verdict::Reply, 0));
        assert_eq!(reply, [&CLIENT_MAC[..], &OUR_MAC, tags, &[8, 6], &body].concat());
    }
}

#[test]
fn an_arp_probe_is_answered() {
    let (verdict, reply, conflicts) = answer(&arp(&[], |body| body[14..18].fill(0)));
    assert_eq!((verdict, conflicts), (Verdict::Reply, 0));
    assert_eq!(reply[14 + 18..], [&CLIENT_MAC[..], &[0; 4]].concat());
}

#[test]
fn arp_for_an_address_of_another_port_is_not_answered() {
    assert_eq!(refused(&arp(&[], |body| body[27] = 55)), (Counter::DropArp, 0));
}

#[test]
fn arp_of_other_types_lengths_and_operations_is_ignored() {
    for (place, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 2), (7, 3), (7, 9), (6, 1)] {
        assert_eq!(
            refused(&arp(&[], |body| body[place] = value)),
            (Counter::DropArp, 0),
            "{place} = {value}"
        );
    }
}

#[test]
fn arp_from_a_sender_that_cannot_be_answered_is_ignored() {
    for sender in [[127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        assert_eq!(
            refused(&arp(&[], |body| body[14..18].copy_from_slice(&sender))),
            (Counter::DropArp, 0)
        );
    }
    for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        assert_eq!(
            refused(&arp(&[], |body| body[8..14].copy_from_slice(&mac))),
            (Counter::DropArp, 0)
        );
    }
}

#[test]
fn another_claim_of_our_address_by_arp_is_a_conflict() {
    for operation in [1, 2] {
        let gratuitous = arp(&[], |body| {
            body[7] = operation;
            body[14..18].copy_from_slice(&SERVICE_V4);
        });
        assert_eq!(refused(&gratuitous), (Counter::DropArp, 1));
    }
    let ours_come_back = arp(&[], |body| {
        body[8..14].copy_from_slice(&OUR_MAC);
        body[14..18].copy_from_slice(&SERVICE_V4);
    });
    assert_eq!(refused(&ours_come_back), (Counter::DropArp, 0));
}

/// A solicitation for our address from the client to the solicited-node group.
fn solicitation(options: &[u8]) -> Packet {
    let mut packet = Packet::query_v6().with(
        58,
        [&[135, 0, 0, 0, 0, 0, 0, 0][..], &SERVICE_V6, options].concat(),
    );
    packet.mac_dst = GROUP_MAC;
    if let Ip::V6 { dst, hop_limit, .. } = &mut packet.ip {
        (*dst, *hop_limit) = (GROUP, 255);
    }
    packet
}

fn source_link() -> Vec<u8> {
    [&[1, 1][..], &CLIENT_MAC].concat()
}

fn change_v6(packet: &mut Packet, change: impl Fn(&mut [u8; 16], &mut [u8; 16], &mut u8)) {
    if let Ip::V6 {
        src, dst, hop_limit, ..
    } = &mut packet.ip
    {
        change(src, dst, hop_limit);
    }
}

/// An advertisement of our address as RFC 4861 section 4.4 draws it, checksum by a plain sum.
fn advertisement(mac: [u8; 6], tags: &[u8], dst: [u8; 16], flags: u8) -> Vec<u8> {
    let mut message = [
        &[136, 0, 0, 0, flags, 0, 0, 0][..],
        &SERVICE_V6,
        &[2, 1],
        &OUR_MAC,
    ]
    .concat();
    let pseudo = [&SERVICE_V6[..], &dst, &[0, 0, 0, 32, 0, 0, 0, 58]].concat();
    let sum = plain_sum(&[&pseudo[..], &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip = [&[0x60, 0, 0, 0, 0, 32, 58, 255][..], &SERVICE_V6, &dst].concat();
    [&mac[..], &OUR_MAC, tags, &[0x86, 0xdd], &ip, &message].concat()
}

#[test]
fn a_solicitation_to_the_group_or_to_us_gets_a_solicited_advertisement() {
    let want = advertisement(CLIENT_MAC, &[], CLIENT_V6, 0x60);
    let mut packet = solicitation(&source_link());
    assert_eq!(answer(&packet.build()), (Verdict::Reply, want.clone(), 0));
    // Reachability probe: unicast, without options.
    packet = solicitation(&[]);
    packet.mac_dst = OUR_MAC;
    change_v6(&mut packet, |_, dst, _| *dst = SERVICE_V6);
    assert_eq!(answer(&packet.build()), (Verdict::Reply, want, 0));
    packet.tags = vec![(0x88a8, 9), (0x8100, 0x6008)];
    let want = advertisement(CLIENT_MAC, &OUTER_AND_INNER, CLIENT_V6, 0x60);
    assert_eq!(answer(&packet.build()), (Verdict::Reply, want, 0));
}

#[test]
fn duplicate_address_detection_is_answered_to_all_nodes() {
    let mut packet = solicitation(&[]);
    change_v6(&mut packet, |src, _, _| *src = [0; 16]);
    let want = advertisement([0x33, 0x33, 0, 0, 0, 1], &[], ALL_NODES, 0x20);
    assert_eq!(answer(&packet.build()), (Verdict::Reply, want, 0));
    // Not to a unicast address, and not with a source link-layer address.
    change_v6(&mut packet, |_, dst, _| *dst = SERVICE_V6);
    packet.mac_dst = OUR_MAC;
    assert_eq!(refused(&packet.build()), (Counter::DropNeighbour, 0));
    let mut packet = solicitation(&source_link());
    change_v6(&mut packet, |src, _, _| *src = [0; 16]);
    assert_eq!(refused(&packet.build()), (Counter::DropNeighbour, 0));
}

#[test]
fn a_solicitation_that_fails_a_check_is_dropped() {
    let drop = (Counter::DropNeighbour, 0);
    let mut packet = solicitation(&source_link());
    change_v6(&mut packet, |_, _, hop_limit| *hop_limit = 254);
    assert_eq!(refused(&packet.build()), drop, "hop limit");
    for (place, value, what) in [
        (1, 1, "code"),
        (23, 0x54, "target"),
        (8, 0xff, "multicast target"),
    ] {
        let mut packet = solicitation(&source_link());
        packet.l4[place] = value;
        assert_eq!(refused(&packet.build()), drop, "{what}");
    }
    for options in [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &[14, 0],
        &[1, 2, 0, 0, 0, 0, 0, 0],
        &[1],
    ] {
        assert_eq!(
            refused(&solicitation(options).build()),
            drop,
            "options {options:?}"
        );
    }
    let mut packet = solicitation(&[]);
    packet.l4.truncate(23);
    assert_eq!(refused(&packet.build()), drop, "short");
    let mut frame = solicitation(&source_link()).build();
    *frame.last_mut().unwrap() ^= 1;
    assert_eq!(refused(&frame), drop, "checksum");
    let mut packet = solicitation(&source_link());
    if let Ip::V6 { extensions, .. } = &mut packet.ip {
        *extensions = vec![(44, vec![0; 8])];
    }
    assert_eq!(refused(&packet.build()), drop, "fragment header");
    for source in [ALL_NODES, 1u128.to_be_bytes()] {
        let mut packet = solicitation(&[]);
        change_v6(&mut packet, |src, _, _| *src = source);
        assert_eq!(refused(&packet.build()), drop, "source {source:?}");
    }
}

#[test]
fn another_claim_of_our_address_by_discovery_is_a_conflict() {
    let mut claim = solicitation(&[]);
    claim.l4[0] = 136;
    claim.mac_dst = [0x33, 0x33, 0, 0, 0, 1];
    change_v6(&mut claim, |src, dst, _| (*src, *dst) = (SERVICE_V6, ALL_NODES));
    assert_eq!(refused(&claim.build()), (Counter::DropNeighbour, 1));
    let ours_come_back = Packet {
        mac_src: OUR_MAC,
        ..claim.clone()
    };
    assert_eq!(refused(&ours_come_back.build()), (Counter::DropNeighbour, 0));
    change_v6(&mut claim, |_, _, hop_limit| *hop_limit = 64);
    assert_eq!(
        refused(&claim.build()),
        (Counter::DropNeighbour, 0),
        "from elsewhere"
    );
    let mut asks_as_us = solicitation(&[]);
    change_v6(&mut asks_as_us, |src, _, _| *src = SERVICE_V6);
    assert_eq!(refused(&asks_as_us.build()), (Counter::DropNeighbour, 1));
}

/// Echo requests of both families with `data` behind identifier and sequence number.
fn pings(data: &[u8]) -> [Packet; 2] {
    let message = |kind| [&[kind, 0, 0, 0, 0x12, 0x34, 0, 7][..], data].concat();
    [
        Packet::query_v4().with(1, message(8)),
        Packet::query_v6().with(58, message(128)),
    ]
}

fn check_echo(request: &Packet, data: &[u8], reply: &[u8]) {
    let l3 = 14 + 4 * request.tags.len();
    let (header, kind, pseudo) = match request.ip {
        Ip::V4 { src, dst, .. } => {
            let len = (28 + data.len()) as u16;
            assert_eq!(
                reply[l3..l3 + 10],
                [&[0x45, 0][..], &len.to_be_bytes(), &[0, 0, 0x40, 0, 64, 1]].concat()
            );
            assert_eq!(reply[l3 + 12..l3 + 20], [dst, src].concat());
            assert_eq!(plain_sum(&reply[l3..l3 + 20]), 0);
            (20, 0, vec![])
        }
        Ip::V6 { src, dst, .. } => {
            let len = (8 + data.len()) as u16;
            assert_eq!(
                reply[l3..l3 + 8],
                [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[58, 64]].concat()
            );
            assert_eq!(reply[l3 + 8..l3 + 40], [dst, src].concat());
            (40, 129, [&dst[..], &src, &[0, 58], &len.to_be_bytes()].concat())
        }
    };
    let message = &reply[l3 + header..];
    assert_eq!(message[..2], [kind, 0]);
    assert_eq!(message[4..], [&[0x12, 0x34, 0, 7], data].concat());
    assert_eq!(plain_sum(&[&pseudo[..], message].concat()), 0);
    assert_eq!(reply[..12], [request.mac_src, request.mac_dst].concat());
}

#[test]
fn echo_keeps_its_data_at_every_length() {
    let data: Vec<u8> = (0..1472).map(|n| (n * 7) as u8).collect();
    for len in (0..100).chain([1471, 1472]) {
        for mut request in pings(&data[..len]) {
            request.tags = vec![(0x8100, 5); len % 3];
            request.padding = len % 5;
            let (verdict, reply, _) = answer(&request.build());
            assert_eq!(verdict, Verdict::Reply);
            check_echo(&request, &data[..len], &reply);
        }
    }
}

#[test]
fn echo_comes_back_without_options_and_extension_headers() {
    let [mut v4, mut v6] = pings(b"odd");
    if let Ip::V4 { options, .. } = &mut v4.ip {
        *options = vec![1; 12];
    }
    if let Ip::V6 { extensions, .. } = &mut v6.ip {
        *extensions = vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    }
    check_echo(&v4, b"odd", &answer(&v4.build()).1);
    check_echo(&v6, b"odd", &answer(&v6.build()).1);
}

#[test]
fn echo_with_a_wrong_checksum_or_code_is_dropped() {
    for mut request in pings(b"12345") {
        let mut frame = request.build();
        *frame.last_mut().unwrap() ^= 0x10;
        assert_eq!(refused(&frame), (Counter::DropIcmp, 0));
        request.l4[1] = 1;
        assert_eq!(refused(&request.build()), (Counter::DropIcmp, 0));
    }
}

#[test]
fn echo_stops_at_the_rate_limit_and_nothing_else_does() {
    let port = port();
    let mut counters = Counters::default();
    let mut stage = stage();
    let mut send = |frame: &[u8], now| {
        let (mut window, len) = window_of(frame);
        let (layers, _) = classify(&mut window.clone(), len, Shape::Whole, &port);
        stage
            .process(&mut window, &layers, &port, Ticks(now), &mut counters)
            .0
    };
    let [v4, v6] = pings(b"").map(|packet| packet.build());
    // Two at once, then one a thousand ticks.
    let limited = Verdict::Drop(Counter::DropIcmpRate);
    let verdicts = [
        send(&v4, 5000),
        send(&v6, 5000),
        send(&v4, 5999),
        send(&v6, 6000),
        send(&v4, 6001),
    ];
    assert_eq!(
        verdicts,
        [Verdict::Reply, Verdict::Reply, limited, Verdict::Reply, limited]
    );
    for _ in 0..100 {
        assert_eq!(send(&arp(&[], |_| ()), 6001), Verdict::Reply);
        assert_eq!(send(&solicitation(&[]).build(), 6001), Verdict::Reply);
    }
}

#[test]
fn announcements_are_those_of_the_rfcs() {
    let mut window = [0xee; WINDOW];
    let len = announce(&mut window, OUR_MAC, SERVICE_V4.into());
    let body = [
        &[0, 1, 8, 0, 6, 4, 0, 1][..],
        &OUR_MAC,
        &SERVICE_V4,
        &[0; 6],
        &SERVICE_V4,
    ]
    .concat();
    assert_eq!(window[..len], [&[0xff; 6][..], &OUR_MAC, &[8, 6], &body].concat());
    let len = announce(&mut window, OUR_MAC, SERVICE_V6.into());
    assert_eq!(
        window[..len],
        advertisement([0x33, 0x33, 0, 0, 0, 1], &[], ALL_NODES, 0x20)
    );
}

proptest! {
    #[test]
    fn any_bytes_and_layers_get_one_verdict_inside_the_window(
        bytes in proptest::collection::vec(any::<u8>(), WINDOW),
        l3 in prop_oneof![Just(14u16), any::<u16>()], l4 in prop_oneof![Just(34u16), Just(54), Just(14), any::<u16>()],
        end: u16, v6: bool, kind in prop_oneof![Just(8u8), Just(128), Just(135), Just(136), any::<u8>()],
    ) {
        let mut window: Window = bytes.try_into().unwrap();
        if let Some(byte) = window.get_mut(usize::from(l4)) {
            *byte = kind;
        }
        let family = if v6 { Family::V6 } else { Family::V4 };
        let layers = Layers { family, l3, l4, end };
        let (verdict, len) = stage().process(&mut window, &layers, &port(), Ticks(0), &mut Counters::default());
        match verdict {
            Verdict::Reply => prop_assert!(0 < len && len <= WINDOW),
            Verdict::Drop(_) => prop_assert_eq!(len, 0),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn changed_requests_get_one_verdict(
        which in 0usize..5, changes in proptest::collection::vec((12usize..90, any::<u8>()), 0..4), cut in 0usize..8,
    ) {
        let [v4, v6] = pings(b"data");
        let all = [arp(&[], |_| ()), solicitation(&source_link()).build(), v4.build(), v6.build(), arp(&OUTER_AND_INNER, |_| ())];
        let mut frame = all[which].clone();
        for (place, value) in changes {
            if let Some(byte) = frame.get_mut(place) {
                *byte = value;
            }
        }
        frame.truncate(frame.len() - cut);
        let (mut window, len) = window_of(&frame);
        let (layers, lane) = classify(&mut window.clone(), len, Shape::Whole, &port());
        if lane == Lane::Neighbour {
            let (verdict, len) = stage().process(&mut window, &layers, &port(), Ticks(0), &mut Counters::default());
            prop_assert!(matches!((verdict, len), (Verdict::Reply, 42..=WINDOW) | (Verdict::Drop(_), 0)));
        }
    }
}
