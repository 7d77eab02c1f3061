//! The whole judgement of a frame, layer by layer. Called by `classify` for whatever its fast path
//! does not take: tags, options, IPv6, ARP, errors. Defines what each drop reason means.

use super::{DNS_PORT, PortView, TAGS_MAX};
use crate::counters::Counter;
use crate::io::{Shape, Window};
use crate::stages::{Family, Lane, Layers, Verdict};
use crate::wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::wire::ipv6_ext::{self, Walk};
use crate::wire::{arp, at, eth, icmp, ipv4, ipv6, udp, vlan};

type Judged = Result<Lane, Counter>;

#[inline(never)]
pub(super) fn classify(window: &Window, len: usize, shape: Shape, port: &PortView) -> (Layers, Lane) {
    let mut layers = Layers {
        family: Family::V4,
        l3: 0,
        l4: 0,
        end: 0,
    };
    let lane = match ethernet(window, len, shape, port, &mut layers) {
        Ok(lane) => lane,
        Err(reason) => Lane::Done(Verdict::Drop(reason)),
    };
    (layers, lane)
}

fn ethernet(window: &Window, len: usize, shape: Shape, port: &PortView, layers: &mut Layers) -> Judged {
    match shape {
        Shape::MultiSegment => return Err(Counter::DropMultiSegment),
        Shape::Oversized => return Err(Counter::DropOversized),
        Shape::Whole if len > window.len() => return Err(Counter::DropOversized),
        Shape::Whole => {}
    }
    let header = match window.first_chunk() {
        Some(bytes) if len >= eth::HEADER_LEN => eth::Header::read(bytes),
        _ => return Err(Counter::DropRunt),
    };
    let ours = header.dst == port.mac;
    let broadcast = header.dst == eth::BROADCAST;
    let ipv6_group = header.dst.starts_with(&[0x33, 0x33]);
    if !(ours || broadcast || ipv6_group) {
        return Err(Counter::DropForeignMac);
    }
    if eth::is_group(header.src) {
        return Err(Counter::DropSourceAddress);
    }
    let (ether_type, l3) = skip_tags(window, len, header.ether_type)?;
    layers.l3 = l3 as u16;
    match ether_type {
        eth::ETHER_TYPE_IPV4 if ours => ipv4(window, len, port, layers),
        eth::ETHER_TYPE_IPV6 if ours || ipv6_group => ipv6(window, len, port, layers, header.dst),
        eth::ETHER_TYPE_ARP if ours || broadcast => {
            if len < l3 + arp::PACKET_LEN {
                return Err(Counter::DropArp);
            }
            (layers.l4, layers.end) = (l3 as u16, (l3 + arp::PACKET_LEN) as u16);
            Ok(Lane::Neighbour)
        }
        // A group address is served for ARP and neighbour discovery alone.
        _ if !ours => Err(Counter::DropForeignMac),
        _ => Err(Counter::DropEtherType),
    }
}

/// The EtherType behind at most two tags, and where its layer starts.
fn skip_tags(window: &Window, len: usize, mut ether_type: u16) -> Result<(u16, usize), Counter> {
    let mut l3 = eth::HEADER_LEN;
    for tags in 0.. {
        if !vlan::is_tpid(ether_type) {
            break;
        }
        if tags == TAGS_MAX {
            return Err(Counter::DropVlanDepth);
        }
        // The TCI, then the next EtherType.
        let Some(&[_, _, a, b]) = at(window, l3) else {
            return Err(Counter::DropRunt);
        };
        l3 += vlan::TAG_LEN;
        if len < l3 {
            return Err(Counter::DropRunt);
        }
        ether_type = u16::from_be_bytes([a, b]);
    }
    Ok((ether_type, l3))
}

fn ipv4(window: &Window, len: usize, port: &PortView, layers: &mut Layers) -> Judged {
    let l3 = usize::from(layers.l3);
    let header = match at(window, l3) {
        Some(bytes) if len >= l3 + ipv4::HEADER_LEN => ipv4::Header::read(bytes),
        _ => return Err(Counter::DropIpv4Header),
    };
    let total_len = usize::from(header.total_len);
    let (l4, end) = (l3 + header.header_len(), l3 + total_len);
    if header.version != 4 || header.ihl < 5 || l4 > end || end > len {
        return Err(Counter::DropIpv4Header);
    }
    if !Sum::of_window(window, l3, l4).verifies() {
        return Err(Counter::DropIpv4Checksum);
    }
    if port.addresses.lookup_v4(header.dst).is_none() {
        return Err(Counter::DropForeignAddress);
    }
    let [first, ..] = header.src;
    let never = first == 0 || first == 127 || (224..240).contains(&first) || header.src == [255; 4];
    if never || port.addresses.lookup_v4(header.src).is_some() {
        return Err(Counter::DropSourceAddress);
    }
    if header.is_fragment() {
        return Err(Counter::DropFragment);
    }
    *layers = Layers {
        family: Family::V4,
        l3: l3 as u16,
        l4: l4 as u16,
        end: end as u16,
    };
    match header.protocol {
        ipv4::PROTOCOL_UDP => {
            let pseudo = pseudo_v4(header.src, header.dst, ipv4::PROTOCOL_UDP, (end - l4) as u16);
            udp(window, layers, port, pseudo)
        }
        ipv4::PROTOCOL_ICMP => match icmp_kind(window, layers)? {
            icmp::ECHO_REQUEST => Ok(Lane::Neighbour),
            _ => Ok(Lane::Punt),
        },
        _ => Ok(Lane::Punt),
    }
}

fn ipv6(window: &Window, len: usize, port: &PortView, layers: &mut Layers, mac_dst: [u8; 6]) -> Judged {
    layers.family = Family::V6;
    let l3 = usize::from(layers.l3);
    let header = match at(window, l3) {
        Some(bytes) if len >= l3 + ipv6::HEADER_LEN => ipv6::Header::read(bytes),
        _ => return Err(Counter::DropIpv6Header),
    };
    let start = l3 + ipv6::HEADER_LEN;
    let end = start + usize::from(header.payload_len);
    if header.version != 6 || end > len {
        return Err(Counter::DropIpv6Header);
    }
    let service = port.addresses.lookup_v6(header.dst).is_some();
    let group = ipv6::is_multicast(header.dst);
    if !service && !group {
        return Err(Counter::DropForeignAddress);
    }
    if mac_dst != port.mac && !(group && mac_dst == eth::of_ipv6_multicast(header.dst)) {
        return Err(Counter::DropForeignMac);
    }
    let (next_header, l4) =
        match ipv6_ext::walk(header.next_header, window.get(start..end).unwrap_or_default()) {
            Walk::Upper { next_header, offset } => (next_header, start + offset),
            Walk::Fragment => return Err(Counter::DropFragment),
            Walk::Refused => return Err(Counter::DropIpv6Extension),
        };
    *layers = Layers {
        family: Family::V6,
        l3: l3 as u16,
        l4: l4 as u16,
        end: end as u16,
    };

    let message = if next_header == ipv6::NEXT_ICMPV6 {
        Some(icmp_kind(window, layers)?)
    } else {
        None
    };
    // Neighbour discovery comes before the source is judged: its source may be unspecified, or, from
    // somebody who claims our address, our own. `neighbour` judges it.
    match message {
        Some(icmp::V6_NEIGHBOUR_SOLICITATION) if service || port.addresses.is_solicited_group(header.dst) => {
            return Ok(Lane::Neighbour);
        }
        Some(icmp::V6_NEIGHBOUR_ADVERTISEMENT) if service || header.dst == ipv6::ALL_NODES => {
            return Ok(Lane::Neighbour);
        }
        _ if !service => return Err(Counter::DropForeignAddress),
        _ => {}
    }
    let src = u128::from_be_bytes(header.src);
    // ::, ::1, and IPv4-mapped addresses, which are never on a wire (RFC 6890).
    if src <= 1
        || src >> 32 == 0xffff
        || ipv6::is_multicast(header.src)
        || port.addresses.holds_v6(header.src)
    {
        return Err(Counter::DropSourceAddress);
    }
    match (next_header, message) {
        (ipv4::PROTOCOL_UDP, _) => {
            let pseudo = pseudo_v6(header.src, header.dst, ipv4::PROTOCOL_UDP, (end - l4) as u16);
            udp(window, layers, port, pseudo)
        }
        (_, Some(icmp::V6_ECHO_REQUEST)) => Ok(Lane::Neighbour),
        _ => Ok(Lane::Punt),
    }
}

/// The type of an ICMP or ICMPv6 message that has its whole fixed header.
fn icmp_kind(window: &Window, layers: &Layers) -> Result<u8, Counter> {
    let l4 = usize::from(layers.l4);
    match at(window, l4) {
        Some(bytes) if l4 + icmp::HEADER_LEN <= usize::from(layers.end) => Ok(icmp::Header::read(bytes).kind),
        _ => Err(Counter::DropIcmp),
    }
}

/// Only port 53 is judged whole; other ports are the exception path's, unchanged.
fn udp(window: &Window, layers: &Layers, port: &PortView, pseudo: Sum) -> Judged {
    let (l4, end) = (usize::from(layers.l4), usize::from(layers.end));
    let header = match at(window, l4) {
        Some(bytes) if l4 + udp::HEADER_LEN <= end => udp::Header::read(bytes),
        _ => return Err(Counter::DropUdpHeader),
    };
    if header.dst_port != DNS_PORT {
        return Ok(Lane::Punt);
    }
    if header.src_port == 0 || usize::from(header.len) != end - l4 {
        return Err(Counter::DropUdpHeader);
    }
    let right = match (header.checksum, layers.family) {
        ([0, 0], Family::V4) => true,
        ([0, 0], Family::V6) => false,
        _ => !port.verify_udp_checksum || Sum::of_window(window, l4, end).plus(pseudo).verifies(),
    };
    if right {
        Ok(Lane::DnsAnswer)
    } else {
        Err(Counter::DropUdpChecksum)
    }
}
