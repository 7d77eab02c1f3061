//! Neighbour discovery for service addresses (RFC 4861 section 7, duplicate detection RFC 4862).

use super::{source_mac, write_macs};
use crate::counters::{Counter, Counters};
use crate::io::Window;
use crate::stages::Layers;
use crate::stages::classify::PortView;
use crate::wire::checksum::{Sum, pseudo_v6};
use crate::wire::{at, at_mut, eth, ipv6, nd};

/// Discovery never passes a router: a lower hop limit came from elsewhere.
const HOP_LIMIT: u8 = 255;

/// Turns a solicitation into its advertisement; returns the frame length.
///
/// It goes to the frame's sender, solicited and overriding; or, when the asker has no address yet
/// (duplicate address detection), to all nodes, not solicited.
pub(super) fn advertise(
    window: &mut Window,
    layers: &Layers,
    port: &PortView,
    counters: &mut Counters,
) -> Result<usize, Counter> {
    let (header, message, options) = read(window, layers).ok_or(Counter::DropNeighbour)?;
    let unspecified = header.src == [0; 16];
    if port.addresses.lookup_v6(header.src).is_some() {
        claimed(window, port, counters);
        return Err(Counter::DropNeighbour);
    }
    let source = if unspecified {
        header.dst == ipv6::solicited_node(message.target) && options.source_link.is_none()
    } else {
        !ipv6::is_multicast(header.src) && header.src != u128::to_be_bytes(1)
    };
    if !source || port.addresses.lookup_v6(message.target).is_none() {
        return Err(Counter::DropNeighbour);
    }
    let (dst, mac, flags) = if unspecified {
        (
            ipv6::ALL_NODES,
            eth::of_ipv6_multicast(ipv6::ALL_NODES),
            nd::FLAG_OVERRIDE,
        )
    } else {
        (
            header.src,
            source_mac(window),
            nd::FLAG_SOLICITED | nd::FLAG_OVERRIDE,
        )
    };
    write_macs(window, mac, port.mac);
    write(
        window,
        usize::from(layers.l3),
        message.target,
        dst,
        flags,
        port.mac,
    )
    .ok_or(Counter::DropNeighbour)
}

/// Looks at somebody's advertisement: one for an address of ours is a conflict. Never answered.
pub(super) fn watch(window: &Window, layers: &Layers, port: &PortView, counters: &mut Counters) -> Counter {
    if let Some((_, message, _)) = read(window, layers)
        && port.addresses.lookup_v6(message.target).is_some()
    {
        claimed(window, port, counters);
    }
    Counter::DropNeighbour
}

/// A frame that speaks for our address is a conflict, unless it is our own come back.
fn claimed(window: &Window, port: &PortView, counters: &mut Counters) {
    if source_mac(window) != port.mac {
        counters.bump(Counter::AddressConflicts);
    }
}

/// A message that passes the checks of RFC 4861 sections 7.1.1 and 7.1.2 that both kinds share, and has no
/// extension header before it (RFC 6980).
fn read(window: &Window, layers: &Layers) -> Option<(ipv6::Header, nd::Message, nd::Options)> {
    let (l3, l4, end) = (
        usize::from(layers.l3),
        usize::from(layers.l4),
        usize::from(layers.end),
    );
    let header = ipv6::Header::read(at(window, l3)?);
    let message = nd::Message::read(at(window, l4)?);
    let options = window.get(l4 + nd::MESSAGE_LEN..end)?;
    let len = u16::try_from(end - l4).ok()?;
    let pseudo = pseudo_v6(header.src, header.dst, ipv6::NEXT_ICMPV6, len);
    let right = l4 == l3 + ipv6::HEADER_LEN
        && header.hop_limit == HOP_LIMIT
        && message.code == 0
        && Sum::of_window(window, l4, end).plus(pseudo).verifies();
    if right {
        Some((header, message, nd::read_options(options)?))
    } else {
        None
    }
}

/// Writes an advertisement of `target` behind the Ethernet header and tags that end at `l3`.
pub(super) fn write(
    window: &mut Window,
    l3: usize,
    target: [u8; 16],
    dst: [u8; 16],
    flags: u8,
    mac: [u8; 6],
) -> Option<usize> {
    const LEN: u16 = nd::ADVERTISEMENT_LEN as u16;
    let l4 = l3 + ipv6::HEADER_LEN;
    let header = ipv6::Header {
        version: 6,
        traffic_class: 0,
        flow_label: 0,
        payload_len: LEN,
        next_header: ipv6::NEXT_ICMPV6,
        hop_limit: HOP_LIMIT,
        src: target,
        dst,
    };
    header.write(at_mut(window, l3)?);
    let message = at_mut(window, l4)?;
    nd::write_advertisement(message, flags, target, mac);
    let sum = Sum::of(message).plus(pseudo_v6(target, dst, ipv6::NEXT_ICMPV6, LEN));
    [message[2], message[3]] = sum.checksum();
    Some(l4 + nd::ADVERTISEMENT_LEN)
}
