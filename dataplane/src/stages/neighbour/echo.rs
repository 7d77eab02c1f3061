//! ICMP and ICMPv6 echo for service addresses (RFC 792, RFC 4443 section 4).

use super::RateLimit;
use crate::arch::Ticks;
use crate::counters::Counter;
use crate::io::Window;
use crate::stages::reply::{HOP_LIMIT, close_gap, header_len, swap_macs};
use crate::stages::{Family, Layers};
use crate::wire::checksum::{self, Sum, pseudo_v6};
use crate::wire::{at, at_mut, icmp, ipv4, ipv6};

/// Turns an echo request into its reply; returns the frame length. Identifier, sequence number and data
/// are kept; the IP header follows the rules of every reply (`reply`). `classify` let only requests in
/// that were sent to a service address from one that can be answered.
pub(super) fn reply(
    window: &mut Window,
    layers: &Layers,
    limit: &mut RateLimit,
    now: Ticks,
) -> Result<usize, Counter> {
    let (l3, l4, end) = (
        usize::from(layers.l3),
        usize::from(layers.l4),
        usize::from(layers.end),
    );
    let len = end.checked_sub(l4).ok_or(Counter::DropIcmp)?;
    let header = icmp::Header::read(at(window, l4).ok_or(Counter::DropIcmp)?);
    let (request, answer, pseudo) = match layers.family {
        Family::V4 => (icmp::ECHO_REQUEST, icmp::ECHO_REPLY, Sum::ZERO),
        Family::V6 => {
            let ip = ipv6::Header::read(at(window, l3).ok_or(Counter::DropIcmp)?);
            let pseudo = pseudo_v6(ip.src, ip.dst, ipv6::NEXT_ICMPV6, len as u16);
            (icmp::V6_ECHO_REQUEST, icmp::V6_ECHO_REPLY, pseudo)
        }
    };
    let verified = Sum::of_window(window, l4, end).plus(pseudo).verifies();
    if header.kind != request || header.code != 0 || len < icmp::HEADER_LEN || !verified {
        return Err(Counter::DropIcmp);
    }
    if !limit.allow(now) {
        return Err(Counter::DropIcmpRate);
    }
    let start = l3 + header_len(layers.family);
    if start != l4 {
        close_gap(window, start, l4, len).ok_or(Counter::DropIcmp)?;
    }
    let out = icmp::Header {
        kind: answer,
        // Swapped addresses leave the pseudo-header's sum as it was: only the type changed.
        checksum: checksum::update(header.checksum, [request, 0], [answer, 0]),
        ..header
    };
    out.write(at_mut(window, start).ok_or(Counter::DropIcmp)?);
    write_ip(window, l3, layers.family, len as u16).ok_or(Counter::DropIcmp)?;
    swap_macs(window);
    Ok(start + len)
}

/// Writes the reply's IP header over the request's.
fn write_ip(window: &mut Window, l3: usize, family: Family, len: u16) -> Option<()> {
    match family {
        Family::V4 => {
            let bytes = at_mut(window, l3)?;
            let request = ipv4::Header::read(bytes);
            let header = ipv4::Header {
                version: 4,
                ihl: 5,
                tos: 0,
                total_len: len.checked_add(ipv4::HEADER_LEN as u16)?,
                id: 0,
                flags_fragment: ipv4::FLAG_DF,
                ttl: HOP_LIMIT,
                protocol: ipv4::PROTOCOL_ICMP,
                checksum: [0; 2],
                src: request.dst,
                dst: request.src,
            };
            header.write(bytes);
            let sum = Sum::of(bytes);
            [bytes[10], bytes[11]] = sum.checksum();
        }
        Family::V6 => {
            let bytes = at_mut(window, l3)?;
            let request = ipv6::Header::read(bytes);
            let header = ipv6::Header {
                version: 6,
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
                next_header: ipv6::NEXT_ICMPV6,
                hop_limit: HOP_LIMIT,
                src: request.dst,
                dst: request.src,
            };
            header.write(bytes);
        }
    }
    Some(())
}
