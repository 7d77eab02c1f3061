//! Reads a frame's layers once and names its lane. Called by the worker for every packet of a burst.
//!
//! The common DNS query (untagged IPv4 without options, UDP) takes [`fast_v4`], whose header tests
//! are merged into few branches. Everything else, and whatever that path doubts, is judged by
//! [`slow::classify`], which alone defines what is right; a test holds the two together.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod slow;
#[cfg(test)]
mod tests;

use super::{Family, Lane, Layers};
use crate::io::{Shape, Window};
use crate::tables::addresses::Addresses;
use crate::wire::{checksum::Sum, eth, ipv4, udp};

/// The port that DNS is served on.
pub const DNS_PORT: u16 = 53;
/// VLAN tags answered at most; a frame with more is dropped as `vlan_depth`.
pub const TAGS_MAX: usize = 2;

/// What the stages need to know of the port that a packet came from.
#[derive(Clone, Debug, Default)]
pub struct PortView {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The port's service addresses.
    pub addresses: Addresses,
    /// Verify UDP checksums. False only for virtual ports whose peer leaves them unfinished.
    pub verify_udp_checksum: bool,
}

/// Finds the layers of the frame in `window[..len]` and the lane that it takes. Reads only.
///
/// The layers hold what was found before the verdict; offsets of later layers are then 0.
#[inline]
pub fn classify(window: &Window, len: usize, shape: Shape, port: &PortView) -> (Layers, Lane) {
    match fast_v4(window, len, shape, port) {
        Some(layers) => (layers, Lane::DnsAnswer),
        None => slow::classify(window, len, shape, port),
    }
}

const L3: usize = eth::HEADER_LEN;
const L4: usize = L3 + ipv4::HEADER_LEN;
const PAYLOAD: usize = L4 + udp::HEADER_LEN;

/// Bits of the first eight bytes that are tested: the destination MAC, and the group bit of the source.
const LINK_MASK: u64 = u64::from_be_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0]);
/// EtherType, version and IHL, as one word with its mask.
const TYPE_MASK: u64 = u32::from_be_bytes([0xff, 0xff, 0xff, 0]) as u64;
const TYPE_WANT: u64 = u32::from_be_bytes([0x08, 0x00, 0x45, 0]) as u64;
/// Total length to protocol: not a fragment (DF is ignored), and UDP.
const FRAGMENT_MASK: u64 = u64::from_be_bytes([0, 0, 0, 0, 0xbf, 0xff, 0, 0xff]);
const FRAGMENT_WANT: u64 = ipv4::PROTOCOL_UDP as u64;
/// The UDP header: destination port.
const PORT_MASK: u64 = 0xffff << 32;
const PORT_WANT: u64 = (DNS_PORT as u64) << 32;

/// Accepts a plain IPv4 DNS query, or nothing.
#[inline(always)]
fn fast_v4(window: &Window, len: usize, shape: Shape, port: &PortView) -> Option<Layers> {
    let head: &[u8; PAYLOAD] = window.first_chunk()?;
    let link = be64(head.first_chunk()?);
    let kind = u64::from(u32::from_be_bytes([head[12], head[13], head[14], head[15]]));
    let middle = be64(head[16..].first_chunk()?);
    let udp_word = be64(head[L4..].first_chunk()?);
    let [m0, m1, m2, m3, m4, m5] = port.mac;
    let mac = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, 0, 0]);

    let total_len = (middle >> 48) as usize;
    let udp_len = (udp_word >> 16) as usize & 0xffff;
    let differs = ((link ^ mac) & LINK_MASK)
        | ((kind ^ TYPE_WANT) & TYPE_MASK)
        | ((middle ^ FRAGMENT_WANT) & FRAGMENT_MASK)
        | ((udp_word ^ PORT_WANT) & PORT_MASK)
        | (total_len ^ (udp_len + ipv4::HEADER_LEN)) as u64;
    let end = L3 + total_len;
    // One bound per verdict: a whole frame, a UDP header in it, and a source port.
    if differs != 0
        || shape != Shape::Whole
        || len > window.len()
        || end > len
        || end < PAYLOAD
        || udp_word >> 48 == 0
    {
        return None;
    }

    let src = [head[26], head[27], head[28], head[29]];
    let dst = [head[30], head[31], head[32], head[33]];
    if !is_plain_source_v4(src) || port.addresses.lookup_v4(src).is_some() {
        return None;
    }
    port.addresses.lookup_v4(dst)?;

    let addresses = Sum::of_8(*head[26..].first_chunk()?);
    let rest =
        Sum::of_8(*head[L3..].first_chunk()?).plus(Sum::of_4([head[22], head[23], head[24], head[25]]));
    if !addresses.plus(rest).verifies() {
        return None;
    }
    if udp_word & 0xffff != 0 && port.verify_udp_checksum {
        let pseudo = Sum::of_u16(u16::from(ipv4::PROTOCOL_UDP)).plus(Sum::of_u16(udp_len as u16));
        // The addresses stand right before the UDP header, so one pass takes both.
        if !Sum::of_window(window, L4 - 8, end).plus(pseudo).verifies() {
            return None;
        }
    }
    Some(Layers {
        family: Family::V4,
        l3: L3 as u16,
        l4: L4 as u16,
        end: end as u16,
    })
}

#[inline(always)]
fn be64(bytes: &[u8; 8]) -> u64 {
    u64::from_be_bytes(*bytes)
}

/// False for 0.0.0.0/8, 127.0.0.0/8, and all from 224.0.0.0 on: what the slow path looks at twice.
#[inline(always)]
fn is_plain_source_v4(src: [u8; 4]) -> bool {
    src[0].wrapping_sub(1) < 223 && src[0] != 127
}
