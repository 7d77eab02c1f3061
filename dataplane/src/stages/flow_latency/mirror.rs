//! Takes mirrored frames out of what they were sent in: GRE with Ethernet or IP, ERSPAN I, II and III.
//! Called by `sight` for packets on mirror ports whose IP protocol is GRE.

use crate::io::Window;
use crate::tables::addresses::Addresses;
use crate::wire::{at, eth, gre, ipv4, ipv6};

/// Where a mirrored packet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// An Ethernet frame.
    Frame(usize),
    /// An IP packet of that EtherType.
    Packet(usize, u16),
}

/// What the GRE packet at `l4` carries, if it is a copy that was sent to us: ERSPAN always is, others when the outer
/// destination is one of `ours`. `l3` is the outer IP header.
pub(super) fn unwrap(window: &Window, l3: usize, l4: usize, v6: bool, ours: &Addresses) -> Option<Inner> {
    let header = gre::Header::read(at(window, l4)?)?;
    let inner = l4 + header.header_len();
    match header.protocol {
        // Type I has no header of its own, and no sequence number by which to tell.
        gre::TYPE_ERSPAN if header.has_sequence() => Some(Inner::Frame(inner + 8)),
        gre::TYPE_ERSPAN => Some(Inner::Frame(inner)),
        gre::TYPE_ERSPAN_3 => {
            let (len, ethernet) = gre::read_erspan_3(at(window, inner)?)?;
            if ethernet {
                return Some(Inner::Frame(inner + len));
            }
            let [first] = *at(window, inner + len)?;
            match first >> 4 {
                4 => Some(Inner::Packet(inner + len, eth::ETHER_TYPE_IPV4)),
                6 => Some(Inner::Packet(inner + len, eth::ETHER_TYPE_IPV6)),
                _ => None,
            }
        }
        protocol => {
            let to_us = if v6 {
                ours.lookup_v6(ipv6::Header::read(at(window, l3)?).dst).is_some()
            } else {
                ours.lookup_v4(ipv4::Header::read(at(window, l3)?).dst).is_some()
            };
            match protocol {
                gre::TYPE_ETHERNET if to_us => Some(Inner::Frame(inner)),
                eth::ETHER_TYPE_IPV4 | eth::ETHER_TYPE_IPV6 if to_us => Some(Inner::Packet(inner, protocol)),
                _ => None,
            }
        }
    }
}
