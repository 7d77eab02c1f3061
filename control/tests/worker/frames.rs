//! Frames as their RFCs describe them, built by etherparse and by hand, and replies taken apart again.

use domain::base::iana::Rtype;
use domain::base::{Message, MessageBuilder, Name};
use etherparse::{PacketBuilder, SlicedPacket};
use std::str::FromStr;

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x53];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc1];
pub(crate) const SERVICE_V4: [u8; 4] = [192, 0, 2, 53];
pub(crate) const CLIENT_V4: [u8; 4] = [198, 51, 100, 7];
/// 2001:db8::53
pub(crate) const SERVICE_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
/// 2001:db8:c::7
pub(crate) const CLIENT_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
/// ff02::1:ff00:53, the solicited-node group of the service address (RFC 4291 section 2.7.1).
const SOLICITED: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0x53];

/// The tags of a frame with so many: 802.1ad outside of 802.1Q.
pub(crate) fn tags(count: usize) -> Vec<[u8; 4]> {
    match count {
        0 => vec![],
        1 => vec![[0x81, 0, 0, 7]],
        2 => vec![[0x88, 0xa8, 0x20, 9], [0x81, 0, 0, 8]],
        n => vec![[0x81, 0, 0, 1]; n],
    }
}

/// Ethernet header, tags, EtherType, body.
pub(crate) fn ethernet(dst: [u8; 6], tag_count: usize, ether_type: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = [dst, CLIENT_MAC].concat();
    frame.extend(tags(tag_count).concat());
    frame.extend(ether_type.to_be_bytes());
    frame.extend(body);
    frame
}

/// An IP packet of a service address in a frame for us.
fn ip(v6: bool, tag_count: usize, body: &[u8]) -> Vec<u8> {
    ethernet(OUR_MAC, tag_count, if v6 { 0x86dd } else { 0x0800 }, body)
}

/// A UDP datagram from `client` (last address byte) to a service address.
pub(crate) fn udp(v6: bool, tag_count: usize, client: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let (mut client4, mut client6) = (CLIENT_V4, CLIENT_V6);
    (client4[3], client6[15]) = (client, client);
    if v6 {
        PacketBuilder::ipv6(client6, SERVICE_V6, 60)
            .udp(ports.0, ports.1)
            .write(&mut body, payload)
    } else {
        PacketBuilder::ipv4(client4, SERVICE_V4, 60)
            .udp(ports.0, ports.1)
            .write(&mut body, payload)
    }
    .unwrap();
    ip(v6, tag_count, &body)
}

/// A DNS query in a frame.
pub(crate) fn query(v6: bool, tag_count: usize, message: &[u8]) -> Vec<u8> {
    udp(v6, tag_count, 7, (40_000, 53), message)
}

/// A TCP SYN to port 53.
pub(crate) fn syn(v6: bool, tag_count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    if v6 {
        PacketBuilder::ipv6(CLIENT_V6, SERVICE_V6, 60)
            .tcp(40_001, 53, 1, 1024)
            .syn()
            .write(&mut body, &[])
    } else {
        PacketBuilder::ipv4(CLIENT_V4, SERVICE_V4, 60)
            .tcp(40_001, 53, 1, 1024)
            .syn()
            .write(&mut body, &[])
    }
    .unwrap();
    ip(v6, tag_count, &body)
}

/// An echo request with 24 bytes of data.
pub(crate) fn echo(v6: bool, tag_count: usize) -> Vec<u8> {
    let mut body = Vec::new();
    if v6 {
        PacketBuilder::ipv6(CLIENT_V6, SERVICE_V6, 60)
            .icmpv6_echo_request(5, 6)
            .write(&mut body, &[0x61; 24])
    } else {
        PacketBuilder::ipv4(CLIENT_V4, SERVICE_V4, 60)
            .icmpv4_echo_request(5, 6)
            .write(&mut body, &[0x61; 24])
    }
    .unwrap();
    ip(v6, tag_count, &body)
}

/// "Who has `target`?" (RFC 826).
pub(crate) fn arp(tag_count: usize, target: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
    body.extend(CLIENT_MAC);
    body.extend(CLIENT_V4);
    body.extend([0; 6]);
    body.extend(target);
    ethernet([0xff; 6], tag_count, 0x0806, &body)
}

/// A neighbour solicitation for the service address with the sender's link-layer address (RFC 4861 section 4.3).
pub(crate) fn solicitation(tag_count: usize) -> Vec<u8> {
    let mut icmp = vec![135, 0, 0, 0, 0, 0, 0, 0];
    icmp.extend(SERVICE_V6);
    icmp.extend([1, 1]);
    icmp.extend(CLIENT_MAC);
    let sum = plain_sum(&[&pseudo_v6(CLIENT_V6, SOLICITED, 58, icmp.len()), &icmp[..]].concat());
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut body = vec![0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 255];
    body.extend([&CLIENT_V6[..], &SOLICITED, &icmp].concat());
    ethernet([0x33, 0x33, 0xff, 0, 0, 0x53], tag_count, 0x86dd, &body)
}

/// Where the IP header of a frame with so many tags starts.
pub(crate) fn l3(tag_count: usize) -> usize {
    14 + 4 * tag_count
}

/// The frame with its IPv4 header changed and the header's checksum made good again.
pub(crate) fn with_ipv4_header(
    mut frame: Vec<u8>,
    tag_count: usize,
    change: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let at = l3(tag_count);
    let header = &mut frame[at..at + 20];
    change(header);
    header[10..12].fill(0);
    let sum = plain_sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The frame with a fragment header (RFC 8200 section 4.5) before the upper layer.
pub(crate) fn with_fragment_header(frame: &[u8], tag_count: usize) -> Vec<u8> {
    let at = l3(tag_count);
    let mut out = frame[..at + 40].to_vec();
    let next = out[at + 6];
    let len = u16::from_be_bytes([out[at + 4], out[at + 5]]) + 8;
    out[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
    out[at + 6] = 44;
    out.extend([next, 0, 0, 1, 0, 0, 0, 9]);
    out.extend(&frame[at + 40..]);
    out
}

/// The Internet checksum as RFC 1071 section 4.1 writes it.
pub(crate) fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn pseudo_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, len: usize) -> Vec<u8> {
    [&src[..], &dst, &[0, protocol], &(len as u16).to_be_bytes()].concat()
}

fn pseudo_v6(src: [u8; 16], dst: [u8; 16], protocol: u8, len: usize) -> Vec<u8> {
    [&src[..], &dst, &(len as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

/// A query for `qname`, ID 0x1234, RD set, with EDNS if a size is given.
pub(crate) fn message(qname: &str, rtype: Rtype, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question
        .push((Name::<Vec<u8>>::from_str(qname).unwrap(), rtype))
        .unwrap();
    match edns {
        None => question.finish(),
        Some(size) => {
            let mut additional = question.additional();
            additional
                .opt(|opt| {
                    opt.set_udp_payload_size(size);
                    Ok(())
                })
                .unwrap();
            additional.finish()
        }
    }
}

/// What a transmitted frame is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// UDP: the payload.
    Udp(Vec<u8>),
    /// An ICMP or ICMPv6 message.
    Icmp(Vec<u8>),
    /// An ARP body.
    Arp(Vec<u8>),
}

/// Takes a frame apart; checks that every length and checksum is right and that it is sent by us to the client.
pub(crate) fn dissect(frame: &[u8]) -> Kind {
    assert_eq!(frame[..12], [CLIENT_MAC, OUR_MAC].concat()[..], "MAC addresses");
    SlicedPacket::from_ethernet(frame).unwrap();
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81 | 0x91, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let ether_type = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let body = &frame[at + 2..];
    let (protocol, l4, pseudo) = match ether_type {
        0x0806 => return Kind::Arp(body[..28].to_vec()),
        0x0800 => {
            let total = u16::from_be_bytes([body[2], body[3]]) as usize;
            assert_eq!(total, body.len(), "IPv4 total length");
            assert_eq!(body[0], 0x45);
            assert_eq!(plain_sum(&body[..20]), 0, "IPv4 header checksum");
            let (src, dst) = (body[12..16].try_into().unwrap(), body[16..20].try_into().unwrap());
            assert_eq!(src, SERVICE_V4);
            (body[9], &body[20..], pseudo_v4(src, dst, body[9], total - 20))
        }
        0x86dd => {
            let len = u16::from_be_bytes([body[4], body[5]]) as usize;
            assert_eq!(len + 40, body.len(), "IPv6 payload length");
            let (src, dst) = (body[8..24].try_into().unwrap(), body[24..40].try_into().unwrap());
            assert_eq!(src, SERVICE_V6);
            (body[6], &body[40..], pseudo_v6(src, dst, body[6], len))
        }
        other => panic!("EtherType {other:04x}"),
    };
    match protocol {
        17 => {
            assert_eq!(
                u16::from_be_bytes([l4[4], l4[5]]) as usize,
                l4.len(),
                "UDP length"
            );
            assert_eq!(l4[..2], [0, 53], "source port");
            if ether_type == 0x86dd || l4[6..8] != [0, 0] {
                assert_eq!(plain_sum(&[&pseudo[..], l4].concat()), 0, "UDP checksum");
            }
            Kind::Udp(l4[8..].to_vec())
        }
        1 => {
            assert_eq!(plain_sum(l4), 0, "ICMP checksum");
            Kind::Icmp(l4.to_vec())
        }
        58 => {
            assert_eq!(plain_sum(&[&pseudo[..], l4].concat()), 0, "ICMPv6 checksum");
            Kind::Icmp(l4.to_vec())
        }
        other => panic!("protocol {other}"),
    }
}

/// The addresses of a reply's A records; checks that all of the message can be read.
pub(crate) fn addresses(message: &[u8]) -> Vec<[u8; 4]> {
    let message = Message::from_octets(message).unwrap();
    assert!(message.header().qr());
    let (_, answer, authority, additional) = message.sections().unwrap();
    for record in authority.chain(additional) {
        record.unwrap();
    }
    answer
        .map(Result::unwrap)
        .filter_map(|record| {
            record
                .to_record::<domain::rdata::A>()
                .unwrap()
                .map(|r| r.data().addr().octets())
        })
        .collect()
}
