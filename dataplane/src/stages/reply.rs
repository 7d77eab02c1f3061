//! Turns an answered UDP query into its reply frame, in place. Called after `dns_answer` wrote its
//! payload behind the query's headers.
//!
//! What a reply looks like, whatever the query carried: MAC addresses, IP addresses and ports
//! swapped; tags kept; IPv4 with a plain 20-byte header, TOS 0, ID 0 with DF (RFC 6864), TTL 64; IPv6
//! without extension headers, traffic class and flow label 0, hop limit 64. Options and extension
//! headers of the query are closed up by moving the datagram: rare, and many networks drop them.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use super::classify::TAGS_MAX;
use super::{Family, Layers};
use crate::io::{ChecksumOffload, Window};
use crate::wire::checksum::{self, Sum};
use crate::wire::{at_mut, eth, ipv4, ipv6, load_4, load_8, store, udp, vlan};

/// TTL and hop limit of every reply: the value that IANA recommends (RFC 1700).
pub const HOP_LIMIT: u8 = 64;

const UDP: u64 = ipv4::PROTOCOL_UDP as u64;
/// Version 4, IHL 5, TOS 0, total length to be added, ID 0, DF.
const V4_FIRST: u64 = 0x4500_0000_0000_4000;
/// TTL and protocol.
const V4_TTL: u16 = u16::from_be_bytes([HOP_LIMIT, ipv4::PROTOCOL_UDP]);
/// Version 6, traffic class and flow label 0, payload length to be added, next header, hop limit.
const V6_FIRST: u64 = 0x6000_0000_0000_0000 | UDP << 8 | HOP_LIMIT as u64;

/// UDP payload of a reply at most, bytes: more than any answer, little enough for every header before it.
pub const PAYLOAD_MAX: usize = 1800;
const _: () = assert!(L3_MAX + V6_LEN + PAYLOAD_MAX + checksum::ROOM <= crate::io::WINDOW);
/// Where the IP header starts at the latest: Ethernet and the tags that are answered.
const L3_MAX: usize = eth::HEADER_LEN + TAGS_MAX * vlan::TAG_LEN;

/// Writes the headers of the reply whose UDP payload is the `payload_len` bytes after the query's UDP
/// header at `layers.l4`. Returns the frame length, or `None` when the payload is longer than
/// [`PAYLOAD_MAX`] or the layers are not those of a query.
///
/// With `offload` the IPv4 checksum is left zero and the UDP checksum holds the pseudo-header's sum, as
/// [`checksum_offload`] asks of the port.
#[inline(never)]
pub fn finish_udp(window: &mut Window, layers: &Layers, payload_len: usize, offload: bool) -> Option<usize> {
    // The one test that bounds every access below.
    if payload_len > PAYLOAD_MAX || usize::from(layers.l3) > L3_MAX {
        return None;
    }
    match layers.family {
        Family::V4 => finish::<V4_LEN>(window, layers, payload_len, offload, write_v4),
        Family::V6 => finish::<V6_LEN>(window, layers, payload_len, offload, write_v6),
    }
}

/// As [`finish_udp`] for a query that `classify` calls plain. The engine's replies over UDP are no longer than [`PAYLOAD_MAX`].
#[inline(always)]
pub fn finish_plain(window: &mut Window, payload_len: usize, offload: bool) -> Option<usize> {
    debug_assert!(payload_len <= PAYLOAD_MAX);
    finish::<V4_LEN>(window, &Layers::plain(0), payload_len, offload, write_v4)
}

/// `LEN`: IP and UDP header of the reply, which `write` writes.
#[inline(always)]
fn finish<const LEN: usize>(
    window: &mut Window,
    layers: &Layers,
    payload_len: usize,
    offload: bool,
    write: impl FnOnce(&mut [u8; LEN], u16, Sum, bool),
) -> Option<usize> {
    let l3 = usize::from(layers.l3);
    let l4 = l3 + LEN - udp::HEADER_LEN;
    let udp_len = udp::HEADER_LEN + payload_len;
    if usize::from(layers.l4) != l4 {
        close_gap(window, l4, usize::from(layers.l4), udp_len)?;
    }
    let payload = if offload {
        Sum::ZERO
    } else {
        Sum::of_end(window, l3 + LEN, payload_len)?
    };
    write(at_mut(window, l3)?, udp_len as u16, payload, offload);
    swap_macs(window);
    Some(l4 + udp_len)
}

/// What a port is asked for after [`finish_udp`] with `offload`.
#[inline]
pub fn checksum_offload(layers: &Layers) -> ChecksumOffload {
    ChecksumOffload {
        l2_len: layers.l3 as u8,
        l3_len: header_len(layers.family) as u16,
        ipv4: layers.family == Family::V4,
    }
}

/// Length of a reply's IP header.
#[inline(always)]
pub(super) const fn header_len(family: Family) -> usize {
    match family {
        Family::V4 => ipv4::HEADER_LEN,
        Family::V6 => ipv6::HEADER_LEN,
    }
}

/// Swaps source and destination MAC address.
#[inline(always)]
pub(super) fn swap_macs(window: &mut Window) {
    if let Some(macs) = window.first_chunk_mut::<12>() {
        // Two words that overlap by four bytes hold all twelve.
        let head = u64::from_le(load_8::<0, 12>(macs));
        let tail = u64::from_le(load_8::<4, 12>(macs));
        store::<0, 12, 8>(macs, (tail >> 16 | head << 48).to_le_bytes());
        store::<4, 12, 8>(macs, (tail >> 48 | head << 16).to_le_bytes());
    }
}

/// Moves `len` bytes from `from` down to `to`, over the options between.
#[cold]
#[inline(never)]
pub(super) fn close_gap(window: &mut Window, to: usize, from: usize, len: usize) -> Option<()> {
    let gap = from.checked_sub(to)?;
    let area = window.get_mut(to..from.checked_add(len)?)?;
    if gap <= area.len() {
        area.copy_within(gap.., 0);
    }
    Some(())
}

/// Length of a reply's IPv4 and UDP header.
const V4_LEN: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Length of a reply's IPv6 and UDP header.
const V6_LEN: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;

/// The IPv4 and UDP headers. Written from registers alone: nothing just stored is loaded again.
#[inline(always)]
fn write_v4(b: &mut [u8; V4_LEN], udp_len: u16, payload: Sum, offload: bool) {
    // The words that never change: version to TOS, flags, TTL and protocol.
    const FIXED: u64 = (0x4500u16.to_be() as u64) + (ipv4::FLAG_DF.to_be() as u64) + (V4_TTL.to_be() as u64);
    let total_len = udp_len + ipv4::HEADER_LEN as u16;
    let addresses = load_8::<12, V4_LEN>(b);
    let ports = load_4::<20, V4_LEN>(b);
    // At most 2^33: small words add up without a carry.
    let addresses_sum = (addresses & 0xffff_ffff) + (addresses >> 32);
    let header = Sum::of_words(FIXED + u64::from(total_len.to_be()) + addresses_sum);
    let first = V4_FIRST | u64::from(total_len) << 32;
    store::<0, V4_LEN, 8>(b, first.to_be_bytes());
    store::<8, V4_LEN, 2>(b, V4_TTL.to_be_bytes());
    store::<10, V4_LEN, 2>(b, if offload { [0, 0] } else { header.checksum() });
    // Swapped: the halves change places.
    store::<12, V4_LEN, 8>(b, addresses.rotate_left(32).to_ne_bytes());
    store::<20, V4_LEN, 4>(b, ports.rotate_left(16).to_ne_bytes());
    store::<24, V4_LEN, 2>(b, udp_len.to_be_bytes());
    store::<26, V4_LEN, 2>(b, udp_checksum(ports, udp_len, addresses_sum, payload, offload));
}

/// The IPv6 and UDP headers.
#[inline(always)]
fn write_v6(b: &mut [u8; V6_LEN], udp_len: u16, payload: Sum, offload: bool) {
    let [s0, s1] = [load_8::<8, V6_LEN>(b), load_8::<16, V6_LEN>(b)];
    let [d0, d1] = [load_8::<24, V6_LEN>(b), load_8::<32, V6_LEN>(b)];
    let ports = load_4::<40, V6_LEN>(b);
    let (sum, carry) = s0.carrying_add(s1, false);
    let (sum, carry) = sum.carrying_add(d0, carry);
    let (sum, carry) = sum.carrying_add(d1, carry);
    let addresses_sum = (sum & 0xffff_ffff) + (sum >> 32) + u64::from(carry);
    let first = V6_FIRST | u64::from(udp_len) << 16;
    store::<0, V6_LEN, 8>(b, first.to_be_bytes());
    store::<8, V6_LEN, 8>(b, d0.to_ne_bytes());
    store::<16, V6_LEN, 8>(b, d1.to_ne_bytes());
    store::<24, V6_LEN, 8>(b, s0.to_ne_bytes());
    store::<32, V6_LEN, 8>(b, s1.to_ne_bytes());
    store::<40, V6_LEN, 4>(b, ports.rotate_left(16).to_ne_bytes());
    store::<44, V6_LEN, 2>(b, udp_len.to_be_bytes());
    store::<46, V6_LEN, 2>(b, udp_checksum(ports, udp_len, addresses_sum, payload, offload));
}

/// The UDP checksum field. `addresses`: both summed, at most 34 bits.
#[inline(always)]
fn udp_checksum(ports: u32, udp_len: u16, addresses: u64, payload: Sum, offload: bool) -> [u8; 2] {
    let len = u64::from(udp_len.to_be());
    let pseudo = addresses + u64::from((UDP as u16).to_be()) + len;
    if offload {
        Sum::of_words(pseudo).pseudo_checksum()
    } else {
        Sum::of_words(pseudo + len + u64::from(ports))
            .plus(payload)
            .udp_checksum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::*;
    use crate::io::{Shape, WINDOW};
    use crate::stages::Lane;
    use crate::stages::classify::classify;
    use crate::stages::testkit::{self, Ip, Packet, plain_sum};
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    /// Classifies a query, puts `answer` in its payload and finishes it.
    fn reply_to(query: &Packet, answer: &[u8], offload: bool) -> Vec<u8> {
        let (mut window, len) = query.window();
        let (layers, lane) = classify(&mut window, len, Shape::Whole, &testkit::port());
        assert_eq!(lane, Lane::DnsAnswer);
        let payload = usize::from(layers.l4) + udp::HEADER_LEN;
        window[payload..payload + answer.len()].copy_from_slice(answer);
        let len = finish_udp(&mut window, &layers, answer.len(), offload).unwrap();
        window[..len].to_vec()
    }

    /// Everything that a receiver would check, by etherparse and plain sums.
    fn check(query: &Packet, answer: &[u8], frame: &[u8]) {
        let tags: Vec<u8> = query
            .tags
            .iter()
            .flat_map(|&(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat())
            .collect();
        assert_eq!(frame[..6], query.mac_src);
        assert_eq!(frame[6..12], query.mac_dst);
        assert_eq!(frame[12..12 + tags.len()], tags);
        let l3 = 14 + tags.len();
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let pseudo = match (sliced.net.unwrap(), &query.ip) {
            (NetSlice::Ipv4(got), &Ip::V4 { src, dst, .. }) => {
                let h = got.header();
                assert_eq!((h.source(), h.destination()), (dst, src));
                assert_eq!((h.ihl(), h.dcp().value(), h.ecn().value()), (5, 0, 0));
                assert_eq!(usize::from(h.total_len()), frame.len() - l3);
                assert_eq!((h.identification(), h.dont_fragment(), h.ttl()), (0, true, 64));
                assert!(!h.more_fragments() && h.fragments_offset().value() == 0);
                assert_eq!(plain_sum(&frame[l3..l3 + 20]), 0, "IPv4 header checksum");
                [
                    &dst[..],
                    &src,
                    &[0, 17],
                    &((frame.len() - l3 - 20) as u16).to_be_bytes(),
                ]
                .concat()
            }
            (NetSlice::Ipv6(got), &Ip::V6 { src, dst, .. }) => {
                let h = got.header();
                assert_eq!((h.source(), h.destination()), (dst, src));
                assert_eq!(
                    (h.traffic_class(), h.flow_label().value(), h.hop_limit()),
                    (0, 0, 64)
                );
                assert_eq!(usize::from(h.payload_length()), frame.len() - l3 - 40);
                assert!(got.extensions().is_empty());
                [
                    &dst[..],
                    &src,
                    &[0, 17],
                    &((frame.len() - l3 - 40) as u16).to_be_bytes(),
                ]
                .concat()
            }
            other => panic!("another family: {other:?}"),
        };
        let Some(TransportSlice::Udp(got)) = sliced.transport else {
            panic!("not UDP")
        };
        assert_eq!((got.source_port(), got.destination_port()), (53, 40000));
        assert_eq!(got.payload(), answer);
        assert_eq!(usize::from(got.length()), 8 + answer.len());
        assert_ne!(got.checksum(), 0, "no checksum");
        assert_eq!(plain_sum(&[&pseudo[..], got.slice()].concat()), 0, "UDP checksum");
    }

    fn queries() -> Vec<Packet> {
        let mut all = Vec::new();
        for tags in [vec![], vec![(0x8100, 0x6007)], vec![(0x88a8, 100), (0x8100, 0)]] {
            for base in [Packet::query_v4(), Packet::query_v6()] {
                all.push(Packet {
                    tags: tags.clone(),
                    ..base
                });
            }
        }
        all
    }

    #[test]
    fn every_length_both_families_and_all_tags_are_right() {
        let mut answer = Vec::new();
        for len in 12..=1400usize {
            answer.resize(len, (len as u8).wrapping_mul(37) ^ 0xa5);
            for query in queries() {
                check(&query, &answer, &reply_to(&query, &answer, false));
            }
        }
    }

    #[test]
    fn a_computed_checksum_of_zero_is_sent_as_all_ones() {
        for query in [Packet::query_v4(), Packet::query_v6()] {
            let mut answer = vec![0u8; 40];
            let frame = reply_to(&query, &answer, false);
            // The complement makes the sum come out as ffff, the checksum as 0.
            let udp = frame.len() - 48;
            answer[..2].copy_from_slice(&frame[udp + 6..udp + 8]);
            let frame = reply_to(&query, &answer, false);
            assert_eq!(frame[udp + 6..udp + 8], [0xff, 0xff]);
            check(&query, &answer, &frame);
        }
    }

    #[test]
    fn options_and_extension_headers_are_closed_up() {
        let mut with_options = Packet::query_v4();
        let mut with_headers = Packet::query_v6();
        for words in 1..=10 {
            if let Ip::V4 { options, .. } = &mut with_options.ip {
                *options = vec![1; words * 4];
            }
            let answer = vec![7u8; 300];
            check(&with_options, &answer, &reply_to(&with_options, &answer, false));
        }
        if let Ip::V6 { extensions, .. } = &mut with_headers.ip {
            *extensions = vec![
                (0, vec![17, 0, 5, 2, 0, 0, 1, 0]),
                (60, vec![17, 0, 1, 4, 0, 0, 0, 0]),
            ];
        }
        check(&with_headers, &[9; 99], &reply_to(&with_headers, &[9; 99], false));
    }

    #[test]
    fn traffic_class_and_flow_label_of_the_query_do_not_come_back() {
        // ECT(0) and a full label: bits of one must not end in the other.
        let mut query = Packet::query_v6();
        if let Ip::V6 { class_and_label, .. } = &mut query.ip {
            *class_and_label = 0x02a_bcde;
        }
        check(&query, &[1; 50], &reply_to(&query, &[1; 50], false));
    }

    #[test]
    fn with_offload_the_port_finds_the_pseudo_header_sum() {
        let v4 = reply_to(&Packet::query_v4(), &[3; 33], true);
        assert_eq!(v4[24..26], [0, 0], "IPv4 checksum is the port's");
        let pseudo = [&v4[26..34], &[0, 17, 0, 41]].concat();
        assert_eq!(v4[40..42], (!plain_sum(&pseudo)).to_be_bytes());
        let v6 = reply_to(&Packet::query_v6(), &[3; 33], true);
        let pseudo = [&v6[22..54], &[0, 17, 0, 41]].concat();
        assert_eq!(v6[60..62], (!plain_sum(&pseudo)).to_be_bytes());
        let layers = Layers {
            family: Family::V6,
            l3: 18,
            l4: 58,
            end: 100,
        };
        assert_eq!(
            checksum_offload(&layers),
            ChecksumOffload {
                l2_len: 18,
                l3_len: 40,
                ipv4: false
            }
        );
        let layers = Layers {
            family: Family::V4,
            l3: 14,
            l4: 58,
            end: 100,
        };
        assert_eq!(
            checksum_offload(&layers),
            ChecksumOffload {
                l2_len: 14,
                l3_len: 20,
                ipv4: true
            }
        );
    }

    proptest! {
        #[test]
        fn any_layers_and_length_stay_in_the_window(
            bytes in proptest::collection::vec(any::<u8>(), WINDOW),
            v6: bool, l3: u16, l4: u16, end: u16, offload: bool,
            payload_len in prop_oneof![0usize..3000, Just(usize::MAX)],
        ) {
            let mut window: Window = bytes.try_into().unwrap();
            let family = if v6 { Family::V6 } else { Family::V4 };
            for layers in [Layers { family, l3, l4, end }, Layers { family, l3: l3 % 64, l4: l4 % 128, end: end % 1600 }] {
                if let Some(len) = finish_udp(&mut window, &layers, payload_len, offload) {
                    prop_assert!(len <= WINDOW);
                }
            }
        }

        #[test]
        fn any_payload_is_right(
            answer in proptest::collection::vec(any::<u8>(), 12..1400), which in any::<proptest::sample::Index>(),
        ) {
            let queries = queries();
            let query = &queries[which.index(queries.len())];
            check(query, &answer, &reply_to(query, &answer, false));
        }
    }
}
