//! Items 83 to 92: frames that no kernel client sends, written out byte by byte and sent through a raw socket, and what comes back.
//!
//! Called by the table (the items) and by the test (the wire).
// LONG: a table of frames beside the code that builds them.

use super::item::{Item, item};
use super::world::{CLIENT, SERVICE, World};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use windrose_tests::capture::{self, Checksums, Target};
use windrose_tests::message::{Query, Reply, rtype};
use windrose_tests::process::eventually;
use windrose_tests::raw::RawSocket;

const LONG: Duration = Duration::from_secs(10);
const CLASSIFY: &str = "dataplane/src/stages/classify/tests.rs";
const NEIGHBOUR: &str = "dataplane/src/stages/neighbour/tests.rs";
const REPLY: &str = "dataplane/src/stages/reply.rs";
/// Clients whose addresses the kernel at the other end does not have, so that it keeps quiet.
const CLIENT_V4: [u8; 4] = [192, 0, 2, 77];
const CLIENT_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77];
const SERVICE_V4: [u8; 4] = [192, 0, 2, 53];
const SERVICE_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
/// ff02::1:ff00:53 (RFC 4291 section 2.7.1), and its MAC address (RFC 2464 section 7).
const GROUP: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0x53];
const GROUP_MAC: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 0x53];
const BROADCAST: [u8; 6] = [0xff; 6];
/// Id of the query in a frame, and of the one behind it.
const ID: u16 = 0x1001;
const BEHIND: u16 = 0x1002;
/// Client port of both.
const PORT: u16 = 40_001;

/// The MAC addresses of the appliance's port and of the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    port: [u8; 6],
    mac: [u8; 6],
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// A right reply to the query in it, with the same tags.
    Answer,
    /// Nothing comes, and this reason is counted.
    Dropped(&'static str),
    /// Nothing comes, and it was handed to the kernel's stack or dropped there.
    Punted,
    /// A frame of which this holds.
    Reply(fn(&Ends, &[u8]) -> bool),
}

/// A frame and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    what: &'static str,
    frame: fn(&Ends) -> Vec<u8>,
    want: Want,
}

const fn case(what: &'static str, frame: fn(&Ends) -> Vec<u8>, want: Want) -> Case {
    Case { what, frame, want }
}

/// The question of every frame, about www.example.com.
fn message(id: u16) -> Vec<u8> {
    Query::new("www.example.com.", rtype::A).message(id)
}

fn ethernet(e: &Ends, tags: &[u8], ether_type: u16, body: &[u8]) -> Vec<u8> {
    [&e.port[..], &e.mac, tags, &ether_type.to_be_bytes(), body].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    [&[PORT, 53, length, 0].map(u16::to_be_bytes).concat()[..], payload].concat()
}

/// An IPv4 packet with options (a multiple of four bytes), checksums still zero.
fn ipv4(options: &[u8], protocol: u8, body: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = u16::try_from(header + body.len()).unwrap().to_be_bytes();
    let first = 0x40 | u8::try_from(header / 4).unwrap();
    let fixed = [first, 0, total[0], total[1], 0, 9, 0, 0, 57, protocol, 0, 0];
    [&fixed[..], &CLIENT_V4, &SERVICE_V4, options, body].concat()
}

fn ipv6(next: u8, hop_limit: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let fixed = [0x60, 0, 0, 0, length[0], length[1], next, hop_limit];
    [&fixed[..], &CLIENT_V6, &SERVICE_V6, body].concat()
}

/// All checksums made right.
fn right(e: &Ends, mut frame: Vec<u8>) -> Vec<u8> {
    let target = Target {
        mac: e.port,
        ipv4: Ipv4Addr::from(SERVICE_V4),
        ipv6: Ipv6Addr::from(SERVICE_V6),
        client: Ipv6Addr::from(CLIENT_V6),
    };
    let mac: [u8; 6] = frame[..6].try_into().unwrap();
    capture::readdress(&mut frame, &target, Checksums::Right);
    frame[..6].copy_from_slice(&mac);
    frame
}

fn query_v4(e: &Ends, tags: &[u8]) -> Vec<u8> {
    right(e, ethernet(e, tags, 0x0800, &ipv4(&[], 17, &udp(&message(ID)))))
}

fn query_v6(e: &Ends, tags: &[u8]) -> Vec<u8> {
    right(e, ethernet(e, tags, 0x86dd, &ipv6(17, 57, &udp(&message(ID)))))
}

/// A query over IPv4 with bytes changed; the header checksum, which is over what was sent, made right again.
fn v4_with(e: &Ends, change: fn(&mut [u8])) -> Vec<u8> {
    let mut frame = query_v4(e, &[]);
    change(&mut frame[14..]);
    frame[24..26].fill(0);
    let sum = plain_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn v6_with(e: &Ends, change: fn(&mut [u8])) -> Vec<u8> {
    let mut frame = query_v6(e, &[]);
    change(&mut frame[14..]);
    frame
}

/// A query over IPv6 behind extension headers. The checksum of UDP does not cover them.
fn v6_behind(e: &Ends, first: u8, headers: &[u8]) -> Vec<u8> {
    let plain = query_v6(e, &[]);
    let body = [headers, &plain[54..]].concat();
    ethernet(e, &[], 0x86dd, &ipv6(first, 57, &body))
}

/// From another source, checksums right.
fn v4_from(e: &Ends, source: [u8; 4]) -> Vec<u8> {
    let mut frame = query_v4(e, &[]);
    frame[26..30].copy_from_slice(&source);
    right(e, frame)
}

fn v6_from(e: &Ends, source: [u8; 16]) -> Vec<u8> {
    let mut frame = query_v6(e, &[]);
    frame[22..38].copy_from_slice(&source);
    right(e, frame)
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// An ARP packet (RFC 826): operation, sender address, target address.
fn arp(e: &Ends, tags: &[u8], operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    let body = [&fixed[..], &e.mac, &sender, &[0; 6], &target].concat();
    let mut frame = ethernet(e, tags, 0x0806, &body);
    frame[..6].copy_from_slice(&BROADCAST);
    frame
}

fn arp_with(e: &Ends, change: fn(&mut [u8])) -> Vec<u8> {
    let mut frame = arp(e, &[], 1, CLIENT_V4, SERVICE_V4);
    change(&mut frame[14..]);
    frame
}

/// A unicast reply that our address is at the port, to whoever asked.
fn is_arp_reply(e: &Ends, frame: &[u8], tags: &[u8], asker: [u8; 4]) -> bool {
    let body = [
        &[0, 1, 8, 0, 6, 4, 0, 2][..],
        &e.port,
        &SERVICE_V4,
        &e.mac,
        &asker,
    ]
    .concat();
    frame.starts_with(&[&e.mac[..], &e.port, tags, &[8, 6], &body].concat())
}

/// A neighbour solicitation (RFC 4861 section 4.3): from, to, target and options, before the checksum is made right.
fn solicit(
    e: &Ends,
    source: [u8; 16],
    (mac, to): ([u8; 6], [u8; 16]),
    hop_limit: u8,
    options: &[u8],
) -> Vec<u8> {
    let body = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &SERVICE_V6, options].concat();
    let mut packet = ipv6(58, hop_limit, &body);
    packet[8..24].copy_from_slice(&source);
    packet[24..40].copy_from_slice(&to);
    let mut frame = ethernet(e, &[], 0x86dd, &packet);
    frame[..6].copy_from_slice(&mac);
    icmpv6_checksum(&mut frame);
    frame
}

fn icmpv6_checksum(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let length = u16::try_from(frame.len() - 54).unwrap();
    let mut covered = [
        &frame[22..54],
        &[0, 0],
        &length.to_be_bytes(),
        &[0, 0, 0, 58],
        &frame[54..],
    ]
    .concat();
    covered.resize(covered.len().next_multiple_of(2), 0);
    let sum = plain_sum(&covered);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
}

fn source_link(e: &Ends) -> Vec<u8> {
    [&[1, 1][..], &e.mac].concat()
}

/// An advertisement (RFC 4861 section 4.4) with these flags to that station and address, and a right checksum.
fn is_advertisement(e: &Ends, frame: &[u8], mac: [u8; 6], to: [u8; 16], flags: u8) -> bool {
    let head = [&mac[..], &e.port, &[0x86, 0xdd]].concat();
    let body = [&[flags, 0, 0, 0][..], &SERVICE_V6, &[2, 1], &e.port].concat();
    frame.starts_with(&head)
        && frame.get(18..22) == Some(&[0, 32, 58, 255])
        && frame.get(22..54) == Some(&[SERVICE_V6, to].concat())
        && frame.get(54..56) == Some(&[136, 0])
        && frame.get(58..86) == Some(&body)
        && capture::checksums_hold(frame)
}

/// An echo request of seven bytes.
fn ping(e: &Ends, v6: bool) -> Vec<u8> {
    let kind = if v6 { 128 } else { 8 };
    let mut body = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 7];
    body.extend(b"seven b");
    if v6 {
        let mut frame = ethernet(e, &[], 0x86dd, &ipv6(58, 57, &body));
        icmpv6_checksum(&mut frame);
        return frame;
    }
    body.push(0);
    let sum = plain_sum(&body);
    body.pop();
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    right(e, ethernet(e, &[], 0x0800, &ipv4(&[], 1, &body)))
}

fn is_pong(frame: &[u8], at: usize, kind: u8) -> bool {
    frame.get(at) == Some(&kind)
        && frame.get(at + 4..at + 15) == Some(b"\x12\x34\0\x07seven b")
        && capture::checksums_hold(frame)
}

/// An answer to the query, whose network header is what a reply has: TTL or hop limit 64; IPv4 without options, ID 0 and DF.
fn has_reply_header(frame: &[u8]) -> bool {
    let v4 = frame.get(12..14) == Some(&[8, 0])
        && frame.get(14..16) == Some(&[0x45, 0])
        && frame.get(18..24) == Some(&[0, 0, 0x40, 0, 64, 17]);
    let v6 = frame.get(12..18) == Some(&[0x86, 0xdd, 0x60, 0, 0, 0]) && frame.get(20..22) == Some(&[17, 64]);
    (v4 || v6) && capture::checksums_hold(frame)
}

/// Items 83 to 92.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(crate) fn items() -> Vec<Item> {
    use Want::{Answer, Dropped, Punted, Reply};
    const UNSPECIFIED: [u8; 16] = [0; 16];
    let cases = |number, subject: &'static str, cases: &[Case]| {
        cases
            .iter()
            .fold(item(number, subject), |item, case| item.frame(*case))
    };
    vec![
        cases(
            83,
            "Ethernet",
            &[
                case("a query over IPv4", |e| query_v4(e, &[]), Answer),
                case("a query over IPv6", |e| query_v6(e, &[]), Answer),
                case(
                    "padding behind the packet",
                    |e| [query_v4(e, &[]), vec![0xa5; 13]].concat(),
                    Answer,
                ),
                case(
                    "padding behind the packet",
                    |e| [query_v6(e, &[]), vec![0xa5; 13]].concat(),
                    Answer,
                ),
                case(
                    "for another station",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[5] ^= 1;
                        f
                    },
                    Dropped("foreign_mac"),
                ),
                case(
                    "IP by broadcast",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[..6].fill(0xff);
                        f
                    },
                    Dropped("foreign_mac"),
                ),
                case(
                    "from a group",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[6] |= 1;
                        f
                    },
                    Dropped("source_address"),
                ),
                case(
                    "an EtherType of others",
                    |e| ethernet(e, &[], 0x88b5, &[0; 46]),
                    Dropped("ether_type"),
                ),
                case(
                    "a header alone",
                    |e| ethernet(e, &[], 0x0800, &[]),
                    Dropped("ipv4_header"),
                ),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &[
                "frames_that_end_inside_ethernet_or_a_tag_are_runts",
                "a_query_padded_to_the_minimum_frame_ends_where_udp_ends",
            ],
        ),
        cases(
            84,
            "VLAN tags",
            &[
                case(
                    "VID 5, PCP 5 and DEI",
                    |e| query_v4(e, &[0x81, 0, 0xb0, 5]),
                    Answer,
                ),
                case(
                    "VID 4094 over IPv6",
                    |e| query_v6(e, &[0x81, 0, 0x0f, 0xfe]),
                    Answer,
                ),
                case("a priority tag", |e| query_v4(e, &[0x81, 0, 0xa0, 0]), Answer),
                case(
                    "802.1ad and 802.1Q",
                    |e| query_v4(e, &[0x88, 0xa8, 0, 200, 0x81, 0, 7, 0xd1]),
                    Answer,
                ),
                case(
                    "two 802.1Q tags over IPv6",
                    |e| query_v6(e, &[0x81, 0, 0, 200, 0x81, 0, 7, 0xd1]),
                    Answer,
                ),
                case(
                    "three tags",
                    |e| query_v4(e, &[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3]),
                    Dropped("vlan_depth"),
                ),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &["every_stack_of_two_tags_is_answered_and_three_are_counted"],
        ),
        cases(
            85,
            "ARP",
            &[
                case(
                    "a request",
                    |e| arp(e, &[], 1, CLIENT_V4, SERVICE_V4),
                    Reply(|e, f| is_arp_reply(e, f, &[], CLIENT_V4)),
                ),
                case(
                    "a request in a VLAN",
                    |e| arp(e, &[0x81, 0, 0, 9], 1, CLIENT_V4, SERVICE_V4),
                    Reply(|e, f| is_arp_reply(e, f, &[0x81, 0, 0, 9], CLIENT_V4)),
                ),
                case(
                    "a probe",
                    |e| arp(e, &[], 1, [0; 4], SERVICE_V4),
                    Reply(|e, f| is_arp_reply(e, f, &[], [0; 4])),
                ),
                case(
                    "for another address",
                    |e| arp(e, &[], 1, CLIENT_V4, [192, 0, 2, 54]),
                    Dropped("arp"),
                ),
                case(
                    "a reply",
                    |e| arp(e, &[], 2, CLIENT_V4, SERVICE_V4),
                    Dropped("arp"),
                ),
                case(
                    "another operation",
                    |e| arp(e, &[], 3, CLIENT_V4, SERVICE_V4),
                    Dropped("arp"),
                ),
                case(
                    "another hardware length",
                    |e| arp_with(e, |b| b[4] = 8),
                    Dropped("arp"),
                ),
                case(
                    "another protocol length",
                    |e| arp_with(e, |b| b[5] = 16),
                    Dropped("arp"),
                ),
                case(
                    "a claim of our address",
                    |e| arp(e, &[], 1, SERVICE_V4, SERVICE_V4),
                    Dropped("arp"),
                ),
            ],
        )
        .elsewhere(NEIGHBOUR, &["another_claim_of_our_address_by_arp_is_a_conflict"]),
        cases(
            86,
            "Neighbour discovery",
            &[
                case(
                    "to the group",
                    |e| solicit(e, CLIENT_V6, (GROUP_MAC, GROUP), 255, &source_link(e)),
                    Reply(|e, f| is_advertisement(e, f, e.mac, CLIENT_V6, 0x60)),
                ),
                case(
                    "to us",
                    |e| solicit(e, CLIENT_V6, (e.port, SERVICE_V6), 255, &[]),
                    Reply(|e, f| is_advertisement(e, f, e.mac, CLIENT_V6, 0x60)),
                ),
                case(
                    "detection of duplicates",
                    |e| solicit(e, UNSPECIFIED, (GROUP_MAC, GROUP), 255, &[]),
                    Reply(|e, f| {
                        is_advertisement(
                            e,
                            f,
                            [0x33, 0x33, 0, 0, 0, 1],
                            [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                            0x20,
                        )
                    }),
                ),
                case(
                    "from beyond a router",
                    |e| solicit(e, CLIENT_V6, (GROUP_MAC, GROUP), 254, &source_link(e)),
                    Dropped("neighbour"),
                ),
                case(
                    "a wrong checksum",
                    |e| {
                        let mut f = solicit(e, CLIENT_V6, (GROUP_MAC, GROUP), 255, &source_link(e));
                        f[56] ^= 1;
                        f
                    },
                    Dropped("neighbour"),
                ),
                case(
                    "an option of length 0",
                    |e| solicit(e, CLIENT_V6, (GROUP_MAC, GROUP), 255, &[1, 0, 0, 0, 0, 0, 0, 0]),
                    Dropped("neighbour"),
                ),
                case(
                    "for another address",
                    |e| {
                        let mut f = solicit(e, CLIENT_V6, (e.port, SERVICE_V6), 255, &[]);
                        f[77] ^= 1;
                        icmpv6_checksum(&mut f);
                        f
                    },
                    Dropped("neighbour"),
                ),
            ],
        )
        .elsewhere(NEIGHBOUR, &["a_solicitation_that_fails_a_check_is_dropped"]),
        cases(
            87,
            "Echo",
            &[
                case("over IPv4", |e| ping(e, false), Reply(|_, f| is_pong(f, 34, 0))),
                case("over IPv6", |e| ping(e, true), Reply(|_, f| is_pong(f, 54, 129))),
                case(
                    "a wrong checksum",
                    |e| {
                        let mut f = ping(e, false);
                        f[36] ^= 1;
                        f
                    },
                    Dropped("icmp"),
                ),
                case(
                    "by broadcast",
                    |e| {
                        let mut f = ping(e, false);
                        f[..6].fill(0xff);
                        f
                    },
                    Dropped("foreign_mac"),
                ),
            ],
        )
        .elsewhere(
            NEIGHBOUR,
            &[
                "echo_keeps_its_data_at_every_length",
                "echo_stops_at_the_rate_limit_and_nothing_else_does",
            ],
        ),
        cases(
            88,
            "IPv4",
            &[
                case(
                    "header of the reply",
                    |e| query_v4(e, &[]),
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "version 5",
                    |e| v4_with(e, |p| p[0] = 0x55),
                    Dropped("ipv4_header"),
                ),
                case(
                    "header of 16 bytes",
                    |e| v4_with(e, |p| p[0] = 0x44),
                    Dropped("ipv4_header"),
                ),
                case(
                    "header beyond the packet",
                    |e| {
                        v4_with(e, |p| {
                            p[0] = 0x4f;
                            p[2..4].copy_from_slice(&[0, 40]);
                        })
                    },
                    Dropped("ipv4_header"),
                ),
                case(
                    "length beyond the frame",
                    |e| v4_with(e, |p| p[2] = 1),
                    Dropped("ipv4_header"),
                ),
                case(
                    "a wrong checksum",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[24] ^= 1;
                        f
                    },
                    Dropped("ipv4_checksum"),
                ),
                case(
                    "options",
                    |e| {
                        right(
                            e,
                            ethernet(
                                e,
                                &[],
                                0x0800,
                                &ipv4(&[7, 7, 4, 0, 0, 0, 0, 0], 17, &udp(&message(ID))),
                            ),
                        )
                    },
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "the reserved flag",
                    |e| v4_with(e, |p| p[6] = 0x80),
                    Dropped("fragment"),
                ),
                case("do not fragment", |e| v4_with(e, |p| p[6] = 0x40), Answer),
                case("TTL 1", |e| v4_with(e, |p| p[8] = 1), Answer),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &["malformed_ipv4_headers_are_dropped", "no_fragment_is_answered"],
        )
        .elsewhere(
            REPLY,
            &[
                "every_length_both_families_and_all_tags_are_right",
                "options_and_extension_headers_are_closed_up",
            ],
        ),
        cases(
            89,
            "IPv6",
            &[
                case(
                    "header of the reply",
                    |e| v6_with(e, |p| p[1..4].copy_from_slice(&[0x21, 2, 3])),
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "version 4",
                    |e| v6_with(e, |p| p[0] = 0x40),
                    Dropped("ipv6_header"),
                ),
                case(
                    "length beyond the frame",
                    |e| v6_with(e, |p| p[4] = 1),
                    Dropped("ipv6_header"),
                ),
                case(
                    "destination options",
                    |e| v6_behind(e, 60, &[17, 0, 1, 4, 0, 0, 0, 0]),
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "hop-by-hop options",
                    |e| v6_behind(e, 0, &[17, 0, 1, 4, 0, 0, 0, 0]),
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "an atomic fragment",
                    |e| v6_behind(e, 44, &[17, 0, 0, 0, 0, 0, 0, 1]),
                    Reply(|_, f| has_reply_header(f)),
                ),
                case(
                    "a first fragment",
                    |e| v6_behind(e, 44, &[17, 0, 0, 1, 0, 0, 0, 1]),
                    Dropped("fragment"),
                ),
                case(
                    "a later fragment",
                    |e| v6_behind(e, 44, &[17, 0, 0, 8, 0, 0, 0, 1]),
                    Dropped("fragment"),
                ),
                case(
                    "a routing header",
                    |e| v6_behind(e, 43, &[17, 0, 0, 0, 0, 0, 0, 0]),
                    Dropped("ipv6_extension"),
                ),
                case(
                    "an authentication header",
                    |e| v6_behind(e, 51, &[17, 4, 0, 0, 0, 0, 0, 0]),
                    Dropped("ipv6_extension"),
                ),
                case(
                    "no next header",
                    |e| v6_behind(e, 59, &[]),
                    Dropped("ipv6_extension"),
                ),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &[
                "malformed_ipv6_headers_are_dropped",
                "other_extension_headers_are_counted",
            ],
        ),
        cases(
            90,
            "UDP",
            &[
                case(
                    "no checksum over IPv4",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[40..42].fill(0);
                        f
                    },
                    Answer,
                ),
                case(
                    "no checksum over IPv6",
                    |e| {
                        let mut f = query_v6(e, &[]);
                        f[60..62].fill(0);
                        f
                    },
                    Dropped("udp_checksum"),
                ),
                case(
                    "a wrong checksum over IPv4",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[41] ^= 1;
                        f
                    },
                    Dropped("udp_checksum"),
                ),
                case(
                    "a wrong checksum over IPv6",
                    |e| {
                        let mut f = query_v6(e, &[]);
                        f[61] ^= 1;
                        f
                    },
                    Dropped("udp_checksum"),
                ),
                case(
                    "length 7",
                    |e| v4_with(e, |p| p[24..26].copy_from_slice(&[0, 7])),
                    Dropped("udp_header"),
                ),
                case(
                    "longer than the packet",
                    |e| v4_with(e, |p| p[25] += 1),
                    Dropped("udp_header"),
                ),
                case(
                    "shorter than the packet",
                    |e| v4_with(e, |p| p[25] -= 1),
                    Dropped("udp_header"),
                ),
                case(
                    "source port 0",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[34..36].fill(0);
                        right(e, f)
                    },
                    Dropped("udp_header"),
                ),
                case(
                    "source port 53",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[34..36].copy_from_slice(&[0, 53]);
                        right(e, f)
                    },
                    Reply(|_, f| f.get(34..38) == Some(&[0, 53, 0, 53]) && has_reply_header(f)),
                ),
                case("from 0.0.0.0", |e| v4_from(e, [0; 4]), Dropped("source_address")),
                case(
                    "from 127.0.0.1",
                    |e| v4_from(e, [127, 0, 0, 1]),
                    Dropped("source_address"),
                ),
                case(
                    "from a group",
                    |e| v4_from(e, [224, 0, 0, 1]),
                    Dropped("source_address"),
                ),
                case(
                    "from broadcast",
                    |e| v4_from(e, [255; 4]),
                    Dropped("source_address"),
                ),
                case(
                    "from ourselves",
                    |e| v4_from(e, SERVICE_V4),
                    Dropped("source_address"),
                ),
                case("from ::", |e| v6_from(e, [0; 16]), Dropped("source_address")),
                case("from a group", |e| v6_from(e, GROUP), Dropped("source_address")),
                case(
                    "from ourselves",
                    |e| v6_from(e, SERVICE_V6),
                    Dropped("source_address"),
                ),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &["a_wrong_udp_checksum_is_dropped_unless_the_port_says_not_to_look"],
        )
        .elsewhere(REPLY, &["a_computed_checksum_of_zero_is_sent_as_all_ones"]),
        cases(
            91,
            "What is not for us",
            &[
                case(
                    "another address",
                    |e| {
                        let mut f = v4_with(e, |p| p[19] = 54);
                        f[40..42].fill(0);
                        f
                    },
                    Dropped("foreign_address"),
                ),
                case(
                    "another IPv6 address",
                    |e| v6_with(e, |p| p[39] ^= 1),
                    Dropped("foreign_address"),
                ),
                case(
                    "another port",
                    |e| {
                        let mut f = query_v4(e, &[]);
                        f[37] = 54;
                        right(e, f)
                    },
                    Punted,
                ),
                case(
                    "another protocol",
                    |e| right(e, ethernet(e, &[], 0x0800, &ipv4(&[], 132, &[0; 12]))),
                    Punted,
                ),
            ],
        )
        .elsewhere(
            CLASSIFY,
            &[
                "only_the_service_addresses_of_this_port_are_answered",
                "what_is_not_dns_goes_to_the_exception_path",
            ],
        ),
        item(92, "Long and split frames")
            .elsewhere(
                CLASSIFY,
                &["split_and_oversized_frames_are_dropped_by_their_shape"],
            )
            .elsewhere(
                "control/tests/worker/cases.rs",
                &["long_and_split_frames_are_dropped_unread"],
            ),
    ]
}

/// The wire between client and port.
pub(crate) struct Wire {
    socket: RawSocket,
    ends: Ends,
}

impl Wire {
    pub(crate) fn open(world: &World) -> Result<Self> {
        let ends = Ends {
            port: world.app.mac("port0")?,
            mac: world.client.mac("eth0")?,
        };
        let socket = RawSocket::open(&world.client, "eth0")?;
        assert_eq!(
            (CLIENT[0], SERVICE),
            ("192.0.2.10", ["192.0.2.53", "2001:db8:1::53"]),
            "the addresses above"
        );
        Ok(Self { socket, ends })
    }

    /// Sends the frame of a case and judges what came before the reply to the query that is sent behind it.
    pub(crate) fn show(&self, world: &World, case: &Case) -> Result<()> {
        let e = &self.ends;
        let sent = (case.frame)(e);
        let counted = |reason: &str| -> Result<u64> {
            let drops = world
                .appliance()?
                .metric("windrose_dropped_packets_total", "reason")?;
            drops
                .get(reason)
                .copied()
                .with_context(|| format!("no drop reason {reason}"))
        };
        let before = match case.want {
            Want::Dropped(reason) => counted(reason)?,
            _ => 0,
        };
        let mut behind = ethernet(e, &[], 0x0800, &ipv4(&[], 17, &udp(&message(BEHIND))));
        behind = right(e, behind);
        self.socket.send(&sent)?;
        self.socket.send(&behind)?;
        let mut came = Vec::new();
        self.socket.receive(LONG, |frame| {
            let dns = capture::dns(frame).filter(|dns| dns.from.1 == 53);
            if dns.is_some_and(|dns| dns.message.starts_with(&BEHIND.to_be_bytes())) {
                return true;
            }
            // What the port sends of itself is for all; TCP is the kernel's, of connections before.
            let (ether_type, at) = capture::network(frame);
            let tcp = ether_type == [8, 0] && frame.get(at + 9) == Some(&6);
            let to_one = frame[0] & 1 == 0 || matches!(case.want, Want::Reply(_));
            if frame.get(6..12) == Some(&e.port) && to_one && !tcp {
                came.push(frame.to_vec());
            }
            false
        })?;
        let first = came.first();
        match case.want {
            Want::Answer => {
                ensure!(came.len() == 1, "{} frames came", came.len());
                self.is_answer(&sent, &came[0])
            }
            Want::Reply(holds) => {
                ensure!(came.len() == 1, "{} frames came", came.len());
                ensure!(holds(e, &came[0]), "not the reply: {:02x?}", came[0]);
                Ok(())
            }
            Want::Punted => {
                ensure!(came.is_empty(), "a frame came: {first:02x?}");
                Ok(())
            }
            Want::Dropped(reason) => {
                ensure!(came.is_empty(), "a frame came: {first:02x?}");
                eventually(&format!("a drop by {reason}"), LONG, || {
                    Ok(counted(reason)? > before)
                })?;
                Ok(())
            }
        }
    }

    /// The answer to the query, between the same ends with the same tags; af_packet makes an outer tag 802.1Q's.
    fn is_answer(&self, sent: &[u8], came: &[u8]) -> Result<()> {
        let (asked, got) = (
            capture::dns(sent).context("no query")?,
            capture::dns(came).context("no DNS")?,
        );
        let mut tags = asked.tags.clone();
        if let Some(outer) = tags.get_mut(..2) {
            outer.copy_from_slice(&[0x81, 0]);
        }
        ensure!(
            came.starts_with(&[self.ends.mac, self.ends.port].concat()),
            "MAC addresses {came:02x?}"
        );
        ensure!(
            (&got.tags, &got.from, &got.to) == (&tags, &asked.to, &asked.from),
            "not to whom it came from: {got:02x?}"
        );
        ensure!(capture::checksums_hold(came), "a wrong checksum: {came:02x?}");
        let line = Reply::read(&got.message)?.line()?;
        ensure!(
            line == "NOERROR a 1/1/0/0; www.example.com 3600 A 192.0.2.80",
            "{line}"
        );
        Ok(())
    }
}

impl Case {
    /// What it is about.
    pub(crate) fn what(&self) -> &'static str {
        self.what
    }
}
