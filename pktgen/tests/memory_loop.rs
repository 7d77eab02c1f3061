//! The whole generator on the memory port, against a server whose every fault is counted: the report
//! must say exactly what the server did. Replies are built by etherparse and domain.

mod common;

use common::{SERVER_MAC, Served, Server, Steps};
use dataplane::io::memory::MemoryWire;
use domain::base::message_builder::MessageBuilder;
use domain::base::{Message, Rtype, Ttl};
use domain::rdata::{A, Aaaa};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use pktgen::dns::engine::Live;
use pktgen::dns::names;
use pktgen::dns::report::Report;
use pktgen::dns::schedule::{Limit, Pace, SECOND};
use pktgen::dns::{self, Settings};
use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TIMEOUT: u64 = 200_000_000;
const MS: u64 = 1_000_000;

fn settings(v6: bool, pace: Pace, limit: Limit) -> Settings {
    let (server, source) = if v6 {
        ("2001:db8::53", "2001:db8::/64")
    } else {
        ("192.0.2.53", "192.0.2.0/24")
    };
    Settings {
        server: server.parse().unwrap(),
        server_mac: Some(SERVER_MAC),
        gateway: None,
        source: source.parse().unwrap(),
        vlan: None,
        pace,
        limit,
        queries: names::from_pattern("host{0-99}.Example.com", "A:3,AAAA:1".parse().unwrap()).unwrap(),
        expect: None,
        edns: None,
        dnssec_ok: false,
        ecs: None,
        mixed_case: false,
        timeout: TIMEOUT,
        seed: 42,
    }
}

/// What the server did.
#[derive(Default)]
struct Did {
    queries: u64,
    query_bytes: u64,
    reply_bytes: u64,
    answered: u64,
    dropped: u64,
    wrong: u64,
    bad_checksum: u64,
    duplicates: u64,
    late: u64,
    a: u64,
    aaaa: u64,
    nxdomain: u64,
    truncated: u64,
    sources: HashSet<IpAddr>,
    ids: HashSet<u16>,
    names: HashSet<String>,
}

/// Answers; drops every 10th, corrupts every 17th, duplicates every 13th, is late with every 19th.
struct Faulty {
    did: Did,
    /// Turn of the generator, and replies held back until one.
    turn: u64,
    held: VecDeque<(u64, Vec<u8>)>,
    hold_turns: u64,
    vlan: Option<u16>,
}

impl Faulty {
    fn new(hold_turns: u64, vlan: Option<u16>) -> Self {
        Self {
            did: Did::default(),
            turn: 0,
            held: VecDeque::new(),
            hold_turns,
            vlan,
        }
    }

    /// The frame of a reply, checksums by etherparse.
    fn envelope(&self, query: &SlicedPacket<'_>, message: &[u8]) -> Vec<u8> {
        let Some(TransportSlice::Udp(udp)) = &query.transport else {
            panic!("{query:?}")
        };
        let ethernet = PacketBuilder::ethernet2(SERVER_MAC, common::CLIENT_MAC);
        let (from, to) = (udp.destination_port(), udp.source_port());
        let mut out = Vec::new();
        let id = |vlan: u16| vlan.try_into().unwrap();
        match query.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                let (s, d) = (ip.header().destination(), ip.header().source());
                let udp = match self.vlan {
                    Some(vlan) => ethernet.single_vlan(id(vlan)).ipv4(s, d, 60).udp(from, to),
                    None => ethernet.ipv4(s, d, 60).udp(from, to),
                };
                udp.write(&mut out, message).unwrap();
            }
            NetSlice::Ipv6(ip) => {
                let (s, d) = (ip.header().destination(), ip.header().source());
                let udp = match self.vlan {
                    Some(vlan) => ethernet.single_vlan(id(vlan)).ipv6(s, d, 60).udp(from, to),
                    None => ethernet.ipv6(s, d, 60).udp(from, to),
                };
                udp.write(&mut out, message).unwrap();
            }
            other => panic!("{other:?}"),
        }
        out
    }

    fn reply(&mut self, query: &[u8], n: u64) -> Vec<u8> {
        let query = Message::from_octets(query).unwrap();
        let question = query.sole_question().unwrap();
        self.did.ids.insert(query.header().id());
        self.did.names.insert(question.qname().to_string());
        let mut builder = MessageBuilder::new_vec();
        let header = builder.header_mut();
        header.set_id(query.header().id());
        header.set_qr(true);
        let nxdomain = n.is_multiple_of(7);
        if nxdomain {
            header.set_rcode(domain::base::iana::Rcode::NXDOMAIN);
        }
        if n.is_multiple_of(23) {
            header.set_tc(true);
        }
        let mut builder = builder.question();
        builder.push(question).unwrap();
        let mut builder = builder.answer();
        let ttl = Ttl::from_secs(30);
        match question.qtype() {
            Rtype::A if !nxdomain => {
                builder
                    .push((question.qname(), ttl, A::new(Ipv4Addr::new(198, 51, 100, 1))))
                    .unwrap();
                builder
                    .push((question.qname(), ttl, A::new(Ipv4Addr::new(198, 51, 100, 2))))
                    .unwrap();
            }
            Rtype::AAAA if !nxdomain => {
                builder
                    .push((question.qname(), ttl, Aaaa::new(Ipv6Addr::LOCALHOST)))
                    .unwrap();
            }
            _ => {}
        }
        builder.finish()
    }
}

impl Server for Faulty {
    fn frame(&mut self, window: &mut [u8; 2048], len: usize, wire: &MemoryWire) {
        let packet = SlicedPacket::from_ethernet(&window[..len]).unwrap();
        let Some(TransportSlice::Udp(udp)) = &packet.transport else {
            panic!("{packet:?}")
        };
        assert_eq!(packet.vlan_ids().first().map(|v| v.value()), self.vlan);
        let (source, right) = match packet.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                let h = ip.header();
                assert_eq!(h.to_header().calc_header_checksum(), h.header_checksum());
                let sum = udp
                    .to_header()
                    .calc_checksum_ipv4_raw(h.source(), h.destination(), udp.payload());
                (IpAddr::V4(h.source_addr()), sum)
            }
            NetSlice::Ipv6(ip) => {
                let h = ip.header();
                let sum = udp
                    .to_header()
                    .calc_checksum_ipv6_raw(h.source(), h.destination(), udp.payload());
                (IpAddr::V6(h.source_addr()), sum)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(right.unwrap(), udp.checksum());
        self.did.sources.insert(source);
        self.did.queries += 1;
        self.did.query_bytes += udp.payload().len() as u64;
        let n = self.did.queries;
        let copies = if n.is_multiple_of(13) { 2 } else { 1 };
        let mut message = self.reply(udp.payload(), n);
        if n.is_multiple_of(10) {
            self.did.dropped += 1;
            return;
        }
        let mut spoil_checksum = false;
        if n.is_multiple_of(17) {
            self.did.wrong += copies;
            match (n / 17) % 5 {
                0 => message[0] ^= 0x40,                  // another ID
                1 => message[13] ^= 0x20,                 // a letter of the question in another case
                2 => message.truncate(message.len() - 1), // the last record is cut, or the class
                3 => message[2] &= 0x7f,                  // a query, not a reply
                _ => {
                    spoil_checksum = true;
                    self.did.bad_checksum += copies;
                }
            }
        }
        let mut frame = self.envelope(&packet, &message);
        if spoil_checksum {
            *frame.last_mut().unwrap() ^= 1;
        }
        if n.is_multiple_of(17) {
            (0..copies).for_each(|_| assert!(wire.inject(&frame)));
            return;
        }
        if n.is_multiple_of(19) {
            (0..copies).for_each(|_| self.held.push_back((self.turn + self.hold_turns, frame.clone())));
            return;
        }
        self.did.answered += 1;
        self.did.duplicates += copies - 1;
        self.did.reply_bytes += message.len() as u64;
        self.did.truncated += u64::from(n.is_multiple_of(23));
        let a = Message::from_octets(&message[..])
            .unwrap()
            .sole_question()
            .unwrap()
            .qtype()
            == Rtype::A;
        match (n.is_multiple_of(7), a) {
            (true, _) => self.did.nxdomain += 1,
            (false, true) => self.did.a += 1,
            (false, false) => self.did.aaaa += 1,
        }
        (0..copies).for_each(|_| assert!(wire.inject(&frame)));
    }

    fn turn(&mut self, wire: &MemoryWire) {
        self.turn += 1;
        while self.held.front().is_some_and(|h| h.0 <= self.turn) {
            let (_, frame) = self.held.pop_front().unwrap();
            self.did.late += 1;
            assert!(wire.inject(&frame));
        }
    }
}

/// Runs with a turn every `step` nanoseconds of a clock that is not the machine's.
fn run(settings: Settings, vlan: Option<u16>, step: u64) -> (Report, Did) {
    let hold = TIMEOUT / step + 5;
    let mut port = Served::new(Faulty::new(hold, vlan));
    let report = dns::run(&mut port, &mut Steps { now: 5, step }, settings, &Live::default()).unwrap();
    (report, port.server.did)
}

fn agree(report: &Report, did: &Did, sent: u64) {
    assert_eq!((report.sent, did.queries), (sent, sent));
    assert_eq!(report.answered, did.answered);
    assert_eq!(report.lost, sent - did.answered);
    assert_eq!((report.wrong, report.bad_checksum), (did.wrong, did.bad_checksum));
    assert_eq!(report.duplicates, did.duplicates);
    assert_eq!(report.late, did.late);
    assert_eq!(report.truncated, did.truncated);
    assert_eq!(
        (report.query_bytes, report.reply_bytes),
        (did.query_bytes, did.reply_bytes)
    );
    let count = |name: &str| report.rcodes.get(name).copied().unwrap_or(0);
    assert_eq!(
        (count("NXDOMAIN"), count("NOERROR")),
        (did.nxdomain, did.a + did.aaaa)
    );
    let mut addresses = vec![
        ("198.51.100.1".to_string(), did.a),
        ("198.51.100.2".into(), did.a),
        ("::1".into(), did.aaaa),
    ];
    addresses.retain(|a| a.1 > 0);
    assert_eq!(report.addresses, addresses);
    assert_eq!(
        (
            report.unsent,
            report.evicted,
            report.no_buffer,
            report.icmp_errors
        ),
        (0, 0, 0, 0)
    );
}

#[test]
fn every_fault_is_counted_once() {
    let (report, did) = run(
        settings(false, Pace::Rate(10_000), Limit::Duration(SECOND)),
        None,
        MS,
    );
    agree(&report, &did, 10_000);
    // Hand-counted over 1 to 10,000: multiples of 10; of 17 but not 10; of 19 but neither; the rest.
    assert_eq!(did.dropped, 1_000);
    assert_eq!(did.answered, 10_000 - 1_000 - (588 - 58) - (526 - 52 - (30 - 3)));
    assert!(did.wrong > 500 && did.bad_checksum > 50 && did.late > 400 && did.duplicates > 500);
    // Three in four for A, drawn; all clients and names in use, and every ID another.
    let share = did.a as f64 / (did.a + did.aaaa) as f64;
    assert!((0.72..0.78).contains(&share), "{share}");
    assert_eq!(
        (did.sources.len(), did.names.len(), did.ids.len()),
        (253, 100, 10_000)
    );
    assert!(!did.sources.contains(&"192.0.2.53".parse().unwrap()));
    assert_eq!((report.elapsed_s, report.rate_sent), (1.0, 10_000.0));
}

#[test]
fn over_ipv6_with_a_tag_ecs_and_mixed_case() {
    let mut settings = settings(true, Pace::Rate(10_000), Limit::Count(4_000));
    settings.vlan = Some(77);
    settings.edns = Some(1232);
    settings.ecs = pktgen::dns::template::Ecs::new("2001:db8::/32".parse().unwrap());
    settings.mixed_case = true;
    let (report, did) = run(settings, Some(77), MS);
    agree(&report, &did, 4_000);
    assert!(
        did.names.len() > 3_000,
        "names differ in case: {}",
        did.names.len()
    );
}

#[test]
fn latency_counts_from_when_a_query_was_due() {
    // A turn every millisecond, a query due every millisecond: each leaves when it is due, and its reply
    // is seen on the next turn. Only the first waits for the first turn, a millisecond after the start.
    let mut plain = settings(false, Pace::Rate(1_000), Limit::Count(9));
    let (report, _) = run(plain, None, MS);
    let latency = report.latency_us.unwrap();
    let near = |value: f64, expected: f64| (value - expected).abs() <= expected / 1_000.0;
    assert!(
        near(latency.p50, 1_000.0) && near(latency.max, 2_000.0),
        "{latency:?}"
    );
    // A port that takes one frame a turn while four are due: the n-th, due (n - 1)/4 ms after the start, leaves
    // n ms after it, and its reply is seen a turn later. So 2 ms for the first and 10 - 2 = 8 for the ninth.
    plain = settings(false, Pace::Rate(4_000), Limit::Count(9));
    let mut port = Served::new(Faulty::new(1_000, None));
    port.limit(1);
    let report = dns::run(
        &mut port,
        &mut Steps { now: 0, step: MS },
        plain,
        &Live::default(),
    )
    .unwrap();
    agree(&report, &port.server.did, 9);
    assert!(report.tx_refused > 0);
    let latency = report.latency_us.unwrap();
    assert!(
        near(latency.min, 2_000.0) && near(latency.max, 8_000.0),
        "{latency:?}"
    );
}

#[test]
fn a_port_that_never_takes_a_frame_ends_the_run() {
    let mut port = Served::new(Faulty::new(1, None));
    port.limit(0);
    let settings = settings(false, Pace::Rate(1_000), Limit::Duration(SECOND));
    let report = dns::run(
        &mut port,
        &mut Steps { now: 0, step: MS },
        settings,
        &Live::default(),
    )
    .unwrap();
    assert_eq!(
        (report.sent, report.lost, report.unsent, report.query_bytes),
        (0, 0, 1_000, 0)
    );
    assert!(report.tx_refused > 0);
}

#[test]
fn flat_out_sends_what_the_port_takes() {
    let (report, did) = run(
        settings(false, Pace::FlatOut, Limit::Duration(100 * MS)),
        None,
        MS,
    );
    // One burst a turn; the turn at the end sends no more.
    agree(&report, &did, 99 * 32);
}
