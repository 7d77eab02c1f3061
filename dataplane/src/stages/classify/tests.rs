//! Described packets and their lanes; faults seen in other data planes as named cases; and the
//! property that the fast path never disagrees with the whole judgement.
// LONG: one table of described packets, each case a few lines.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::counters::{Counter, Kind};
use crate::io::WINDOW;
use crate::stages::testkit::*;
use crate::stages::{Family, Verdict};
use proptest::prelude::*;

fn lane_of(packet: &Packet) -> Lane {
    judge(&packet.build()).1
}

fn judge(frame: &[u8]) -> (Layers, Lane) {
    let (mut window, len) = window_of(frame);
    classify(&mut window, len, Shape::Whole, &port())
}

fn drop(reason: Counter) -> Lane {
    Lane::Done(Verdict::Drop(reason))
}

/// Both families of a query, changed by `change`.
fn both(change: impl Fn(&mut Packet)) -> [Packet; 2] {
    [Packet::query_v4(), Packet::query_v6()].map(|mut packet| {
        change(&mut packet);
        packet
    })
}

fn v4(change: impl Fn(&mut [u8; 4], &mut [u8; 4], &mut u16, &mut Vec<u8>)) -> Packet {
    let mut packet = Packet::query_v4();
    if let Ip::V4 {
        src,
        dst,
        flags_fragment,
        options,
    } = &mut packet.ip
    {
        change(src, dst, flags_fragment, options);
    }
    packet
}

fn v6_with(chain: Vec<(u8, Vec<u8>)>) -> Packet {
    let mut packet = Packet::query_v6();
    if let Ip::V6 { extensions, .. } = &mut packet.ip {
        *extensions = chain;
    }
    packet
}

fn v6_from(address: [u8; 16]) -> Packet {
    let mut packet = Packet::query_v6();
    if let Ip::V6 { src, .. } = &mut packet.ip {
        *src = address;
    }
    packet
}

#[test]
fn a_query_has_its_layers_in_both_families_with_and_without_tags() {
    for tags in [vec![], vec![(0x8100, 7)], vec![(0x88a8, 7), (0x8100, 8)]] {
        let l3 = 14 + 4 * tags.len() as u16;
        for (packet, family, header) in [
            (Packet::query_v4(), Family::V4, 20),
            (Packet::query_v6(), Family::V6, 40),
        ] {
            let packet = Packet {
                tags: tags.clone(),
                ..packet
            };
            let want = Layers {
                family,
                l3,
                l4: l3 + header,
                end: l3 + header + 8 + 29,
            };
            assert_eq!(judge(&packet.build()), (want, Lane::DnsAnswer));
        }
    }
}

#[test]
fn plain_queries_take_the_fast_paths() {
    let (mut window, len) = Packet::query_v4().window();
    let mut last = LastAddress::NONE;
    assert!(plain(&mut window, len, Shape::Whole, &port(), &mut last).is_some());
    let tagged = both(|p| p.tags = vec![(0x8100, 5)]);
    for packet in [&Packet::query_v6(), &tagged[0], &tagged[1]] {
        let (mut window, len) = packet.window();
        assert!(fast::tagged_or_v6(&mut window, len, Shape::Whole, &port()).is_some());
    }
}

// Ethernet and tags.

#[test]
fn a_query_padded_to_the_minimum_frame_ends_where_udp_ends() {
    // A root NS query without EDNS: 17 bytes of DNS, the smallest there is, in a 60-byte frame.
    let root = *b"\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";
    let mut packet = Packet::query_v4().with(17, udp(40000, 53, &root));
    packet.padding = 1;
    let frame = packet.build();
    assert_eq!(frame.len(), 60);
    let (layers, lane) = judge(&frame);
    assert_eq!((lane, layers.end), (Lane::DnsAnswer, 59));
}

#[test]
fn frames_that_end_inside_ethernet_or_a_tag_are_runts() {
    let frame = Packet {
        tags: vec![(0x8100, 1), (0x8100, 2)],
        ..Packet::query_v4()
    }
    .build();
    for len in 0..22 {
        assert_eq!(judge(&frame[..len]).1, drop(Counter::DropRunt), "{len}");
    }
}

#[test]
fn split_and_oversized_frames_are_dropped_by_their_shape() {
    let (window, len) = Packet::query_v4().window();
    let of = |shape, len| classify(&mut window.clone(), len, shape, &port()).1;
    assert_eq!(of(Shape::MultiSegment, len), drop(Counter::DropMultiSegment));
    assert_eq!(of(Shape::Oversized, len), drop(Counter::DropOversized));
}

#[test]
fn only_our_mac_is_served() {
    for packet in both(|p| p.mac_dst = [2, 0, 0, 0, 0, 0x54]) {
        assert_eq!(lane_of(&packet), drop(Counter::DropForeignMac));
    }
    // IP in a broadcast or multicast frame is not answered.
    for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]] {
        for packet in both(|p| p.mac_dst = mac) {
            assert_eq!(lane_of(&packet), drop(Counter::DropForeignMac), "{mac:?}");
        }
    }
    for packet in both(|p| p.mac_src = [3, 0, 0, 0, 0, 1]) {
        assert_eq!(lane_of(&packet), drop(Counter::DropSourceAddress));
    }
}

#[test]
fn every_stack_of_two_tags_is_answered_and_three_are_counted() {
    for outer in [0x8100, 0x88a8, 0x9100] {
        // VID 0 is a priority tag.
        for packet in both(|p| p.tags = vec![(outer, 0xe000)]) {
            assert_eq!(lane_of(&packet), Lane::DnsAnswer);
        }
        for inner in [0x8100, 0x88a8, 0x9100] {
            for packet in both(|p| p.tags = vec![(outer, 100), (inner, 200)]) {
                assert_eq!(lane_of(&packet), Lane::DnsAnswer);
            }
        }
        for packet in both(|p| p.tags = vec![(outer, 1), (0x8100, 2), (0x8100, 3)]) {
            assert_eq!(lane_of(&packet), drop(Counter::DropVlanDepth));
        }
    }
}

#[test]
fn another_ether_type_is_dropped_behind_any_tags() {
    for tags in [vec![], vec![(0x8100, 7)]] {
        let mut frame = Packet {
            tags,
            ..Packet::query_v4()
        }
        .build();
        let place = frame.len() - QUERY.len() - 8 - 20 - 2;
        // LLDP.
        frame[place..place + 2].copy_from_slice(&[0x88, 0xcc]);
        assert_eq!(judge(&frame).1, drop(Counter::DropEtherType));
    }
}

#[test]
fn arp_is_taken_for_us_and_for_broadcast_when_whole() {
    for tags in [&[][..], &[0x81, 0, 0, 7]] {
        for mac in [OUR_MAC, [0xff; 6]] {
            let frame = [&mac[..], &CLIENT_MAC, tags, &[8, 6], &[0; 28]].concat();
            assert_eq!(judge(&frame).1, Lane::Neighbour);
            assert_eq!(judge(&frame[..frame.len() - 1]).1, drop(Counter::DropArp));
        }
    }
}

// IPv4.

#[test]
fn ipv4_options_shift_the_query_and_are_not_read_as_udp() {
    for words in 1..=10u16 {
        // Router alert first, then no-operations.
        let packet = v4(|_, _, _, options| {
            *options = vec![1; usize::from(words) * 4];
            options[..4].copy_from_slice(&[148, 4, 0, 0]);
        });
        let (layers, lane) = judge(&packet.build());
        assert_eq!((lane, layers.l4), (Lane::DnsAnswer, 34 + words * 4));
    }
}

#[test]
fn an_ipv4_header_longer_than_the_frame_is_not_read() {
    // IHL 15 in a 34-byte frame.
    let mut frame = Packet::query_v4().build();
    frame.truncate(34);
    frame[14] = 0x4f;
    assert_eq!(judge(&frame).1, drop(Counter::DropIpv4Header));
}

#[test]
fn malformed_ipv4_headers_are_dropped() {
    let good = Packet::query_v4().build();
    for (place, value) in [
        (14, 0x44),
        (14, 0x55),
        (14, 0x65),
        (16, 1),
        (17, 19),
        (17, good.len() as u8 - 13),
    ] {
        let mut frame = good.clone();
        frame[place] = value;
        assert_eq!(
            judge(&frame).1,
            drop(Counter::DropIpv4Header),
            "byte {place} = {value}"
        );
    }
    for len in 14..good.len() {
        assert_eq!(judge(&good[..len]).1, drop(Counter::DropIpv4Header), "{len}");
    }
}

#[test]
fn a_wrong_ipv4_checksum_is_dropped() {
    for place in [15, 18, 22, 24, 25] {
        let mut frame = Packet::query_v4().build();
        frame[place] ^= 0x40;
        assert_eq!(judge(&frame).1, drop(Counter::DropIpv4Checksum), "byte {place}");
    }
}

#[test]
fn no_fragment_is_answered() {
    // The first fragment of a query, which looks whole; a later one whose bytes look like a query; the
    // reserved flag. DF alone is no fragment.
    for (value, lane) in [
        (0x2000, drop(Counter::DropFragment)),
        (0x0001, drop(Counter::DropFragment)),
        (0x2001, drop(Counter::DropFragment)),
        (0x6000, drop(Counter::DropFragment)),
        (0x8000, drop(Counter::DropFragment)),
        (0x4000, Lane::DnsAnswer),
    ] {
        assert_eq!(lane_of(&v4(|_, _, flags, _| *flags = value)), lane, "{value:04x}");
    }
}

#[test]
fn only_the_service_addresses_of_this_port_are_answered() {
    assert_eq!(
        lane_of(&v4(|_, dst, _, _| *dst = [192, 0, 2, 54])),
        Lane::DnsAnswer
    );
    for address in [[192, 0, 2, 55], [255; 4], [224, 0, 0, 1], [0; 4]] {
        assert_eq!(
            lane_of(&v4(|_, dst, _, _| *dst = address)),
            drop(Counter::DropForeignAddress),
            "{address:?}"
        );
    }
    let mut packet = Packet::query_v6();
    if let Ip::V6 { dst, .. } = &mut packet.ip {
        dst[15] ^= 1;
    }
    assert_eq!(lane_of(&packet), drop(Counter::DropForeignAddress));
}

#[test]
fn sources_that_cannot_be_answered_are_dropped() {
    for address in [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [239, 255, 255, 255],
        [255; 4],
        SERVICE_V4,
    ] {
        assert_eq!(
            lane_of(&v4(|src, _, _, _| *src = address)),
            drop(Counter::DropSourceAddress),
            "{address:?}"
        );
    }
    // Reserved, but in use inside networks.
    assert_eq!(
        lane_of(&v4(|src, _, _, _| *src = [240, 0, 0, 1])),
        Lane::DnsAnswer
    );
    let mut loopback = [0; 16];
    loopback[15] = 1;
    // ::ffff:198.51.100.7
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 7];
    for address in [[0; 16], loopback, mapped, [0xff; 16], SERVICE_V6] {
        assert_eq!(
            lane_of(&v6_from(address)),
            drop(Counter::DropSourceAddress),
            "{address:?}"
        );
    }
    // Link-local clients are answered.
    assert_eq!(
        lane_of(&v6_from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])),
        Lane::DnsAnswer
    );
}

// IPv6.

#[test]
fn malformed_ipv6_headers_are_dropped() {
    let good = Packet::query_v6().build();
    for len in 14..good.len() {
        assert_eq!(judge(&good[..len]).1, drop(Counter::DropIpv6Header), "{len}");
    }
    let mut frame = good;
    frame[14] = 0x40;
    assert_eq!(judge(&frame).1, drop(Counter::DropIpv6Header));
}

#[test]
fn options_headers_and_the_atomic_fragment_are_walked() {
    let pad = vec![0, 0, 1, 4, 0, 0, 0, 0];
    let packet = v6_with(vec![(0, pad.clone()), (60, pad), (44, vec![0; 8])]);
    let (layers, lane) = judge(&packet.build());
    assert_eq!((lane, layers.l4), (Lane::DnsAnswer, 14 + 40 + 24));
}

#[test]
fn other_extension_headers_are_counted() {
    for kind in [43, 50, 51, 59, 135] {
        assert_eq!(
            lane_of(&v6_with(vec![(kind, vec![0; 8])])),
            drop(Counter::DropIpv6Extension),
            "{kind}"
        );
    }
    for more in [[0, 1], [0, 8]] {
        let bytes = [&[0, 0][..], &more, &[0; 4]].concat();
        assert_eq!(lane_of(&v6_with(vec![(44, bytes)])), drop(Counter::DropFragment));
    }
}

// UDP.

#[test]
fn udp_length_must_be_that_of_the_ip_payload() {
    for padding in [0, 10] {
        for len in [0u16, 7, 8, 36, 38, 47, 0xffff] {
            for mut packet in both(|p| p.padding = padding) {
                packet.l4[4..6].copy_from_slice(&len.to_be_bytes());
                assert_eq!(lane_of(&packet), drop(Counter::DropUdpHeader), "{len}");
            }
        }
    }
    for len in 0..8 {
        for packet in both(|p| p.l4.truncate(len)) {
            assert_eq!(lane_of(&packet), drop(Counter::DropUdpHeader), "{len}");
        }
    }
}

#[test]
fn source_port_zero_is_dropped() {
    for packet in both(|p| p.l4[..2].fill(0)) {
        assert_eq!(lane_of(&packet), drop(Counter::DropUdpHeader));
    }
}

#[test]
fn a_wrong_udp_checksum_is_dropped_unless_the_port_says_not_to_look() {
    for mut packet in both(|_| {}) {
        let mut frame = packet.build();
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert_eq!(judge(&frame).1, drop(Counter::DropUdpChecksum));
        let (mut window, len) = window_of(&frame);
        let blind = PortView {
            verify_udp_checksum: false,
            ..port()
        };
        assert_eq!(
            classify(&mut window, len, Shape::Whole, &blind).1,
            Lane::DnsAnswer
        );
        packet.padding = 3;
        assert_eq!(lane_of(&packet), Lane::DnsAnswer, "padding is not summed");
    }
}

#[test]
fn no_udp_checksum_is_accepted_over_ipv4_only() {
    let [v4, v6] = both(|p| p.fill_checksum = false);
    assert_eq!(lane_of(&v4), Lane::DnsAnswer);
    assert_eq!(lane_of(&v6), drop(Counter::DropUdpChecksum));
    // All ones is what a sender computes as zero.
    let mut zero = Packet::query_v4();
    zero.l4[8..10].fill(0);
    let frame = zero.build();
    zero.l4[8..10].copy_from_slice(&frame[40..42]);
    let frame = zero.build();
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(judge(&frame).1, Lane::DnsAnswer);
}

// Other traffic for a service address.

#[test]
fn what_is_not_dns_goes_to_the_exception_path() {
    for port in [54, 5353, 853] {
        for packet in both(|p| p.l4 = udp(40000, port, b"x")) {
            assert_eq!(lane_of(&packet), Lane::Punt, "{port}");
        }
    }
    for protocol in [6, 47, 132] {
        for packet in both(|p| (p.protocol, p.l4) = (protocol, vec![0; 20])) {
            assert_eq!(lane_of(&packet), Lane::Punt, "{protocol}");
        }
    }
    // Fragmentation needed, with 8 bytes of the quoted datagram; packet too big.
    assert_eq!(
        lane_of(&Packet::query_v4().with(1, [&[3, 4][..], &[0; 34]].concat())),
        Lane::Punt
    );
    assert_eq!(
        lane_of(&Packet::query_v6().with(58, [&[2, 0][..], &[0; 54]].concat())),
        Lane::Punt
    );
    assert_eq!(
        lane_of(&Packet::query_v4().with(1, vec![8; 7])),
        drop(Counter::DropIcmp)
    );
    assert_eq!(
        lane_of(&Packet::query_v6().with(58, vec![128; 7])),
        drop(Counter::DropIcmp)
    );
}

#[test]
fn echo_requests_are_the_neighbour_stages() {
    assert_eq!(
        lane_of(&Packet::query_v4().with(1, vec![8, 0, 0, 0, 1, 2, 3, 4, 5])),
        Lane::Neighbour
    );
    assert_eq!(
        lane_of(&Packet::query_v6().with(58, vec![128, 0, 0, 0, 1, 2, 3, 4, 5])),
        Lane::Neighbour
    );
}

fn discovery(kind: u8, mac: [u8; 6], address: [u8; 16]) -> Packet {
    let mut packet = v6_from([0; 16]).with(58, [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &SERVICE_V6].concat());
    packet.mac_dst = mac;
    if let Ip::V6 { dst, .. } = &mut packet.ip {
        *dst = address;
    }
    packet
}

#[test]
fn discovery_is_taken_for_our_address_its_group_and_all_nodes() {
    let group = |tail: u8| [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, tail];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let group_mac = [0x33, 0x33, 0xff, 0, 0, 0x53];
    let foreign = drop(Counter::DropForeignAddress);
    for (kind, mac, address, lane) in [
        (135, OUR_MAC, SERVICE_V6, Lane::Neighbour),
        (135, group_mac, group(0x53), Lane::Neighbour),
        (136, [0x33, 0x33, 0, 0, 0, 1], all_nodes, Lane::Neighbour),
        (136, OUR_MAC, SERVICE_V6, Lane::Neighbour),
        // The group of another address, even in a frame for us; solicitation by all-nodes.
        (135, [0x33, 0x33, 0xff, 0, 0, 0x54], group(0x54), foreign),
        (135, OUR_MAC, group(0x54), foreign),
        (135, [0x33, 0x33, 0, 0, 0, 1], all_nodes, foreign),
        (136, group_mac, group(0x53), foreign),
        // A router advertisement; echo to a group.
        (134, [0x33, 0x33, 0, 0, 0, 1], all_nodes, foreign),
        (128, group_mac, group(0x53), foreign),
        // A group MAC address that is not the address's.
        (
            135,
            [0x33, 0x33, 0xff, 0, 0, 0x54],
            group(0x53),
            drop(Counter::DropForeignMac),
        ),
        (135, group_mac, SERVICE_V6, drop(Counter::DropForeignMac)),
    ] {
        assert_eq!(
            lane_of(&discovery(kind, mac, address)),
            lane,
            "{kind} {mac:02x?} {address:02x?}"
        );
    }
}

// Any input.

/// A query of either family, some of its bytes changed, cut or grown: close to every branch.
fn near_queries() -> impl Strategy<Value = Vec<u8>> {
    let base = prop_oneof![
        4 => Just(Packet::query_v4()),
        2 => Just(Packet::query_v6()),
        1 => Just(Packet { tags: vec![(0x8100, 5)], ..Packet::query_v4() }),
        1 => Just(Packet { tags: vec![(0x88a8, 5)], ..Packet::query_v6() }),
        1 => Just(v4(|_, _, _, options| *options = vec![1; 8])),
        1 => Just(v6_with(vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0]), (44, vec![0; 8])])),
        1 => Just(discovery(135, OUR_MAC, SERVICE_V6)),
    ];
    let changes = proptest::collection::vec((0usize..90, any::<u8>()), 0..3);
    (base, changes, -3isize..10, any::<bool>()).prop_map(|(packet, changes, growth, mend)| {
        let mut frame = packet.build();
        for (place, value) in changes {
            if let Some(byte) = frame.get_mut(place) {
                *byte = value;
            }
        }
        if mend && frame.len() >= 34 {
            // So that changed headers get past the checksum.
            frame[24..26].fill(0);
            let sum = plain_sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame.resize(frame.len().saturating_add_signed(growth), 0);
        frame
    })
}

/// The same packet again, to the address that was just looked up.
fn plain_again(window: &Window, len: usize, shape: Shape, port: &PortView, last: &mut LastAddress) -> bool {
    plain(&mut window.clone(), len, shape, port, last).is_some()
}

fn hold(window: &Window, len: usize, shape: Shape) -> Result<(), TestCaseError> {
    for verify_udp_checksum in [true, false] {
        let port = PortView {
            verify_udp_checksum,
            ..port()
        };
        let whole = slow::classify(window, len, shape, &port);
        let mut scratch = *window;
        let mut last = LastAddress::NONE;
        let plain = plain(&mut scratch, len, shape, &port, &mut last);
        let tagged_or_v6 = fast::tagged_or_v6(&mut scratch, len, shape, &port);
        for layers in [plain.map(Layers::plain), tagged_or_v6] {
            prop_assert!(
                layers.is_none_or(|layers| whole == (layers, Lane::DnsAnswer)),
                "{:?} {:?}",
                layers,
                whole
            );
        }
        // What is behind a datagram may be cleared, and is no part of the judgement; nothing else is.
        prop_assert_eq!(slow::classify(&scratch, len, shape, &port), whole);
        let end = whole.0.end as usize;
        let kept = if scratch == *window { WINDOW } else { end };
        prop_assert_eq!(&scratch[..kept], &window[..kept]);
        prop_assert_eq!(
            plain.is_some(),
            plain_again(&scratch, len, shape, &port, &mut last)
        );
        prop_assert_eq!(classify(&mut scratch, len, shape, &port), whole);
        let (layers, lane) = whole;
        match lane {
            Lane::Done(verdict) => {
                prop_assert!(matches!(verdict, Verdict::Drop(reason) if reason.kind() == Kind::Drop));
            }
            _ => {
                prop_assert!(14 <= layers.l3 && layers.l3 <= layers.l4 && layers.l4 < layers.end);
                prop_assert!(usize::from(layers.end) <= len);
            }
        }
        if lane == Lane::DnsAnswer {
            prop_assert!(layers.l4 + 8 <= layers.end);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn fast_and_whole_judgement_agree_near_queries(frame in near_queries()) {
        let (window, len) = window_of(&frame);
        hold(&window, len, Shape::Whole)?;
    }
}

proptest! {
    #[test]
    fn any_bytes_of_any_length_and_shape_get_one_lane(
        bytes in proptest::collection::vec(any::<u8>(), WINDOW),
        ours: bool,
        ether_type in prop_oneof![Just(0x0800u16), Just(0x0806), Just(0x86dd), Just(0x8100), any::<u16>()],
        len in prop_oneof![0usize..100, 0usize..=2 * WINDOW],
        shape in prop_oneof![3 => Just(Shape::Whole), 1 => Just(Shape::MultiSegment), 1 => Just(Shape::Oversized)],
    ) {
        let mut window: Window = bytes.try_into().unwrap();
        if ours {
            window[..6].copy_from_slice(&OUR_MAC);
        }
        window[12..14].copy_from_slice(&ether_type.to_be_bytes());
        hold(&window, len, shape)?;
    }
}
