//! Accepts plain DNS queries, or nothing. Called by `classify` before the whole judgement in `slow`,
//! to which every doubt is left: a header test here may be too strict, never too lax.
//!
//! Words are in the machine's order, as loaded; tests are merged by xor and or into one branch. `L3`
//! is where the IP header starts: 14, or 18 behind one tag.

use super::{DNS_PORT, LastAddress, PortView};
use crate::io::{Shape, WINDOW, Window};
use crate::stages::{Family, Layers};
use crate::wire::checksum::Sum;
use crate::wire::{at, eth, ipv4, ipv6, load_4, load_8, udp, vlan};

const UNTAGGED: usize = eth::HEADER_LEN;
const TAGGED: usize = eth::HEADER_LEN + vlan::TAG_LEN;

/// The destination MAC, and the group bit of the source: as [`PortView::mac_word`] in a frame from a station to us.
const LINK_MASK: u64 = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0]);
/// EtherType, version and IHL.
const V4_TYPE_MASK: u32 = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);
const V4_TYPE_WANT: u32 = u32::from_ne_bytes([0x08, 0x00, 0x45, 0]);
/// Total length to protocol: not a fragment (DF is ignored), and UDP.
const V4_REST_MASK: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0xbf, 0xff, 0, 0xff]);
const V4_REST_WANT: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, ipv4::PROTOCOL_UDP]);
/// EtherType and version.
const V6_TYPE_MASK: u32 = u32::from_ne_bytes([0xff, 0xff, 0xf0, 0]);
const V6_TYPE_WANT: u32 = u32::from_ne_bytes([0x86, 0xdd, 0x60, 0]);
/// Payload length, next header, hop limit.
const V6_REST_MASK: u32 = u32::from_ne_bytes([0, 0, 0xff, 0]);
const V6_REST_WANT: u32 = u32::from_ne_bytes([0, 0, ipv4::PROTOCOL_UDP, 0]);
/// The UDP header: destination port, source port, checksum.
const PORT_MASK: u64 = u64::from_ne_bytes([0, 0, 0xff, 0xff, 0, 0, 0, 0]);
const PORT_WANT: u64 = u64::from_ne_bytes([0, 0, 0, DNS_PORT as u8, 0, 0, 0, 0]);
const SOURCE_PORT_MASK: u64 = u64::from_ne_bytes([0xff, 0xff, 0, 0, 0, 0, 0, 0]);
const CHECKSUM_MASK: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0xff, 0xff]);

const V4_LEN: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
const V6_LEN: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;

/// IPv6, or either family behind one tag.
#[inline(always)]
pub(super) fn tagged_or_v6(window: &mut Window, len: usize, shape: Shape, port: &PortView) -> Option<Layers> {
    let outer = u16::from_be_bytes(*at(window, UNTAGGED - 2)?);
    let inner = u16::from_be_bytes(*at(window, TAGGED - 2)?);
    match (outer, inner) {
        (eth::ETHER_TYPE_IPV6, _) => v6::<UNTAGGED>(window, len, shape, port),
        (tag, eth::ETHER_TYPE_IPV4) if vlan::is_tpid(tag) => {
            v4::<TAGGED>(window, len, shape, port, &mut LastAddress::NONE.clone()).map(|end| Layers {
                l3: TAGGED as u16,
                l4: (TAGGED + ipv4::HEADER_LEN) as u16,
                ..Layers::plain(end)
            })
        }
        (tag, eth::ETHER_TYPE_IPV6) if vlan::is_tpid(tag) => v6::<TAGGED>(window, len, shape, port),
        _ => None,
    }
}

/// IPv4 without options; where the datagram ends.
#[inline(always)]
pub(super) fn v4<const L3: usize>(
    window: &mut Window,
    len: usize,
    shape: Shape,
    port: &PortView,
    last: &mut LastAddress,
) -> Option<u16> {
    let ip: &[u8; V4_LEN] = at(window, L3)?;
    let udp_word = load_8::<{ ipv4::HEADER_LEN }, V4_LEN>(ip);
    let total_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let udp_len = usize::from(u16::from_be_bytes([ip[24], ip[25]]));
    let differs = (load_8::<0, WINDOW>(window) & LINK_MASK) ^ port.mac_word
        | u64::from((type_word::<L3>(window)? ^ V4_TYPE_WANT) & V4_TYPE_MASK)
        | ((load_8::<2, V4_LEN>(ip) ^ V4_REST_WANT) & V4_REST_MASK)
        | ((udp_word ^ PORT_WANT) & PORT_MASK)
        | (total_len ^ (udp_len + ipv4::HEADER_LEN)) as u64;
    if differs != 0 || udp_word & SOURCE_PORT_MASK == 0 {
        return None;
    }
    let end = L3 + ipv4::HEADER_LEN + udp_len;
    if shape != Shape::Whole || !fits(len, end, udp_len) {
        return None;
    }

    let src = load_4::<12, V4_LEN>(ip).to_ne_bytes();
    if port.addresses.is_odd_source_v4(src) {
        return None;
    }
    let dst = load_4::<16, V4_LEN>(ip);
    if u64::from(dst) != last.0 {
        port.addresses.lookup_v4(dst.to_ne_bytes())?;
        last.0 = dst.into();
    }

    if !Sum::of_20(ip.first_chunk()?).verifies() {
        return None;
    }
    if udp_word & CHECKSUM_MASK != 0 && port.verify_udp_checksum {
        // The addresses stand right before the UDP header, so one pass takes both.
        let sum = Sum::of_end(window, L3 + 12, udp_len + 8)?;
        if !sum.plus(pseudo(udp_len)).verifies() {
            return None;
        }
    }
    Some(end as u16)
}

/// IPv6 without extension headers.
#[inline(always)]
fn v6<const L3: usize>(window: &Window, len: usize, shape: Shape, port: &PortView) -> Option<Layers> {
    let ip: &[u8; V6_LEN] = at(window, L3)?;
    let udp_word = load_8::<{ ipv6::HEADER_LEN }, V6_LEN>(ip);
    let payload_len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let udp_len = usize::from(u16::from_be_bytes([ip[44], ip[45]]));
    let differs = (load_8::<0, WINDOW>(window) & LINK_MASK) ^ port.mac_word
        | u64::from((type_word::<L3>(window)? ^ V6_TYPE_WANT) & V6_TYPE_MASK)
        | u64::from((load_4::<4, V6_LEN>(ip) ^ V6_REST_WANT) & V6_REST_MASK)
        | ((udp_word ^ PORT_WANT) & PORT_MASK)
        | (payload_len ^ udp_len) as u64;
    if differs != 0 || udp_word & SOURCE_PORT_MASK == 0 || udp_word & CHECKSUM_MASK == 0 {
        return None;
    }
    let end = L3 + ipv6::HEADER_LEN + udp_len;
    if shape != Shape::Whole || !fits(len, end, udp_len) {
        return None;
    }

    let src: [u8; 16] = *ip.get(8..)?.first_chunk()?;
    // Multicast and all of ::/64 are looked at twice.
    if src[0] == 0xff || load_8::<8, V6_LEN>(ip) == 0 || port.addresses.holds_v6(src) {
        return None;
    }
    port.addresses.lookup_v6(*ip.get(24..)?.first_chunk()?)?;

    if port.verify_udp_checksum {
        let sum = Sum::of_part(window, L3 + 8, udp_len + 32);
        if !sum.plus(pseudo(udp_len)).verifies() {
            return None;
        }
    }
    Some(Layers {
        family: Family::V6,
        l3: L3 as u16,
        l4: (L3 + ipv6::HEADER_LEN) as u16,
        end: end as u16,
    })
}

/// The EtherType before `L3` and the first two bytes of the IP header.
#[inline(always)]
fn type_word<const L3: usize>(window: &Window) -> Option<u32> {
    Some(u32::from_ne_bytes(*at(window, L3 - 2)?))
}

/// True when the UDP datagram has its header and ends inside the frame.
#[inline(always)]
fn fits(len: usize, end: usize, udp_len: usize) -> bool {
    // Negative when one of the two does not fit; a whole frame fits its window.
    let room = (len as isize - end as isize) | (udp_len as isize - udp::HEADER_LEN as isize);
    room >= 0
}

/// What the pseudo-header adds to the addresses.
#[inline(always)]
fn pseudo(udp_len: usize) -> Sum {
    let protocol = u64::from(u16::from(ipv4::PROTOCOL_UDP).to_be());
    Sum::of_words(protocol + u64::from((udp_len as u16).to_be()))
}
