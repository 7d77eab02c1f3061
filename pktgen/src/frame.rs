//! Frames as the generator reads and writes them: offsets, checksums, and what arrived. Every read
//! is bounded by the frame; anything malformed is [`Received::Other`] or a named fault.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an Ethernet header without tags.
pub(crate) const ETHERNET: usize = 14;
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const ICMP: u8 = 1;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// Adds `bytes` as big-endian 16-bit words to a ones' complement sum; an odd last byte is padded
/// with zero (RFC 1071). Bounded by the frame size, the sum cannot overflow.
#[inline]
pub(crate) fn sum(bytes: &[u8], mut acc: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    for word in words {
        acc += u32::from(u16::from_be_bytes(*word));
    }
    match rest.first() {
        Some(&last) => acc + (u32::from(last) << 8),
        None => acc,
    }
}

/// Folds a sum to 16 bits.
#[inline]
pub(crate) fn fold(acc: u32) -> u16 {
    let once = (acc & 0xffff) + (acc >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The sum of the pseudo-header of UDP or ICMPv6 (RFC 768, RFC 8200 section 8.1).
pub(crate) fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u32 {
    let addresses = match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => sum(&d.octets(), sum(&s.octets(), 0)),
        (s, d) => sum(&to_v6(d).octets(), sum(&to_v6(s).octets(), 0)),
    };
    addresses + u32::from(protocol) + len as u32
}

fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// Copies `bytes` to `at`; nothing when they do not fit.
#[inline(always)]
pub(crate) fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// `N` bytes from `at` on.
#[inline]
pub(crate) fn take<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

#[inline]
pub(crate) fn be16(frame: &[u8], at: usize) -> Option<u16> {
    take(frame, at).map(u16::from_be_bytes)
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// An ARP body at this offset.
    Arp(usize),
    /// ICMP or ICMPv6 with a right checksum.
    Icmp {
        source: IpAddr,
        destination: IpAddr,
        l3: usize,
        l4: usize,
        message: &'a [u8],
    },
    /// A UDP datagram; `sound` tells whether lengths and checksums are right.
    Udp(Datagram<'a>),
    /// Anything else: not ours to look at.
    Other,
}

/// A UDP datagram, and its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) payload: &'a [u8],
    /// The IPv4 header and UDP checksums are right (UDP's may be absent over IPv4).
    pub(crate) checksum_right: bool,
}

/// Reads a frame; `vlan` is the tag that it must carry, none when `None`.
pub(crate) fn read(frame: &[u8], vlan: Option<u16>) -> Received<'_> {
    try_read(frame, vlan).unwrap_or(Received::Other)
}

fn try_read(frame: &[u8], vlan: Option<u16>) -> Option<Received<'_>> {
    let (l3, ethertype) = match (be16(frame, 12)?, vlan) {
        (ETHERTYPE_VLAN, Some(id)) if be16(frame, 14)? & 0x0fff == id => (ETHERNET + 4, be16(frame, 16)?),
        (ETHERTYPE_VLAN, _) | (_, Some(_)) => return None,
        (ethertype, None) => (ETHERNET, ethertype),
    };
    match ethertype {
        ETHERTYPE_ARP => Some(Received::Arp(l3)),
        ETHERTYPE_IPV4 => {
            let header_len = usize::from(frame.get(l3)? & 0x0f) * 4;
            let end = l3 + usize::from(be16(frame, l3 + 2)?);
            let l4 = l3 + header_len;
            let fragment = be16(frame, l3 + 6)? & 0x3fff != 0;
            if frame.get(l3)? >> 4 != 4 || header_len < 20 || fragment {
                return None;
            }
            let header_right = fold(sum(frame.get(l3..l4)?, 0)) == 0xffff;
            let source = IpAddr::V4(Ipv4Addr::from(take::<4>(frame, l3 + 12)?));
            let destination = IpAddr::V4(Ipv4Addr::from(take::<4>(frame, l3 + 16)?));
            layer4(
                frame,
                [l3, l4, end],
                *frame.get(l3 + 9)?,
                source,
                destination,
                header_right,
            )
        }
        ETHERTYPE_IPV6 => {
            let l4 = l3 + 40;
            let end = l4 + usize::from(be16(frame, l3 + 4)?);
            if frame.get(l3)? >> 4 != 6 {
                return None;
            }
            let source = IpAddr::V6(Ipv6Addr::from(take::<16>(frame, l3 + 8)?));
            let destination = IpAddr::V6(Ipv6Addr::from(take::<16>(frame, l3 + 24)?));
            layer4(
                frame,
                [l3, l4, end],
                *frame.get(l3 + 6)?,
                source,
                destination,
                true,
            )
        }
        _ => None,
    }
}

fn layer4(
    frame: &[u8],
    [l3, l4, end]: [usize; 3],
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    header_right: bool,
) -> Option<Received<'_>> {
    let message = frame.get(l4..end)?;
    match protocol {
        ICMP | ICMPV6 => {
            let pseudo = if protocol == ICMP {
                0
            } else {
                pseudo_header(source, destination, ICMPV6, message.len())
            };
            let right = header_right && fold(sum(message, pseudo)) == 0xffff;
            right.then_some(Received::Icmp {
                source,
                destination,
                l3,
                l4,
                message,
            })
        }
        UDP => {
            if usize::from(be16(message, 4)?) != message.len() || message.len() < 8 {
                return None;
            }
            let absent = be16(message, 6)? == 0;
            let right = if absent {
                source.is_ipv4()
            } else {
                fold(sum(
                    message,
                    pseudo_header(source, destination, UDP, message.len()),
                )) == 0xffff
            };
            Some(Received::Udp(Datagram {
                source,
                destination,
                source_port: be16(message, 0)?,
                destination_port: be16(message, 2)?,
                payload: message.get(8..)?,
                checksum_right: header_right && right,
            }))
        }
        _ => None,
    }
}
