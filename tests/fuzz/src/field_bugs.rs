//! Faults that other projects had in the field, as inputs with what is right here. Each line names where it was seen.
//! All messages go through the engine over UDP and TCP, under the laws of [`reply`]; frames through a whole worker.

use crate::frames::{self, Kind};
use crate::lab::{Lab, changes};
use crate::reply::Read;
use crate::seeds::{opt, wire, with_opt};
use crate::targets::message::Engines;
use crate::{reply, world};
use dataplane::counters::Counter;
use dataplane::stages::dns_answer::Client;
use domain::base::iana::Rtype;

const NOERROR: u16 = 0;
const FORMERR: u16 = 1;
const NOTIMP: u16 = 4;
const BADVERS: u16 = 16;
/// In no ISP.
const ANYBODY: Client = Client::V4([203, 0, 113, 1]);

/// The reply over UDP.
fn ask(engines: &mut Engines, message: &[u8]) -> Read {
    let [udp, _] = engines.ask(message, ANYBODY);
    reply::read(&udp.expect("a reply"), true).unwrap()
}

fn named(engines: &mut Engines, name: &str, rtype: u16, size: Option<u16>) -> Read {
    ask(engines, &frames::message(name, Rtype::from_int(rtype), size))
}

/// A query with sections of its own: counts, and what follows the header.
fn raw(flags: u16, counts: [u16; 4], parts: &[&[u8]]) -> Vec<u8> {
    let counts = counts.map(u16::to_be_bytes).concat();
    [&[0x12, 0x34][..], &flags.to_be_bytes(), &counts, &parts.concat()].concat()
}

const QUESTION: &[u8] = b"\x03www\x07example\x03com\x00\x00\x01\x00\x01";
const RECORD: &[u8] = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x01\x02\x03\x04";
const TSIG: &[u8] = b"\x03key\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x03\x01\x02\x03";
const COOKIE: &[u8] = &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];

fn ecs(family: u8, source: u8, address: &[u8]) -> Vec<u8> {
    [&[0, 8, 0, 4 + address.len() as u8, 0, family, source, 0], address].concat()
}

/// The addresses of an answer, and its ECS scope.
fn answer(read: &Read) -> (Vec<Vec<u8>>, Option<u8>) {
    let addresses = read
        .records
        .iter()
        .filter(|r| r.section == 1)
        .map(|r| r.rdata.clone());
    let scope = read
        .options()
        .iter()
        .find(|(code, _)| *code == 8)
        .map(|(_, data)| data[3]);
    (addresses.collect(), scope)
}

/// erldns #73, barrucadu/resolved #246: responses were answered, and two servers kept each other busy.
#[test]
fn responses_are_never_answered() {
    let mut engines = Engines::new();
    for low in 0..16u16 {
        for message in [
            raw(0x8000 | low, [1, 0, 0, 0], &[QUESTION]),
            raw(0x8000 | low << 11, [1, 0, 0, 0], &[b"\xc0\x0c"]),
            raw(0x8180 | low, [0xffff; 4], &[]),
        ] {
            assert_eq!(engines.ask(&message, ANYBODY), [None, None], "{message:02x?}");
        }
    }
}

/// erldns PR #359 (OPT not first: two in the reply, no clamp), PowerDNS be90d6bd46 (OPT not last), c-ares #1137 (two
/// OPT records), NSD 3.0.8 (RDLEN above 0), Knot 1.6.0-rc1 (extended RCODE, OPT in errors), DVE-2017-0018 (versions).
#[test]
fn the_opt_record_is_found_wherever_it_stands() {
    let edns = opt(1232, 0, &[]);
    let mut engines = Engines::new();
    let mut rcode = |message: &[u8]| {
        let read = ask(&mut engines, message);
        assert!(read.opt().is_some(), "{message:02x?}");
        (read.rcode(), read.question.len())
    };
    let asked = QUESTION.len();
    let big = opt(65_535, 0, &[]);
    assert_eq!(
        rcode(&raw(0, [1, 0, 0, 2], &[QUESTION, RECORD, &big])),
        (NOERROR, asked)
    );
    assert_eq!(
        rcode(&raw(0, [1, 0, 0, 2], &[QUESTION, &edns, TSIG])),
        (NOERROR, asked)
    );
    assert_eq!(
        rcode(&raw(0, [1, 1, 1, 1], &[QUESTION, RECORD, RECORD, &edns])),
        (NOERROR, asked)
    );
    assert_eq!(
        rcode(&raw(0, [1, 0, 0, 2], &[QUESTION, &edns, &edns])),
        (FORMERR, asked)
    );
    assert_eq!(
        rcode(&raw(
            0,
            [1, 0, 0, 1],
            &[QUESTION, &opt(1232, 0, &[0, 99, 0, 1, 5])]
        )),
        (NOERROR, asked)
    );
    assert_eq!(
        rcode(&raw(0, [1, 0, 0, 1], &[QUESTION, &opt(1232, 0xff00_0000, &[])])),
        (NOERROR, asked)
    );
    assert_eq!(
        rcode(&raw(15 << 11, [1, 0, 0, 1], &[QUESTION, &edns])),
        (NOTIMP, asked)
    );
    for version in [1, 2, 255] {
        let newer = opt(1232, version << 16, &[]);
        assert_eq!(
            rcode(&raw(0, [1, 0, 0, 1], &[QUESTION, &newer])),
            (BADVERS, asked),
            "{version}"
        );
    }
}

/// NSD #138 (QDCOUNT 0 with a cookie), NSD #721 and Knot 2.9.3 (unknown opcode without a question), Knot #774 (NSID).
#[test]
fn queries_without_question_and_with_nsid() {
    let mut engines = Engines::new();
    let read = ask(&mut engines, &raw(0, [0, 0, 0, 1], &[&opt(1232, 0, COOKIE)]));
    assert_eq!((read.rcode(), read.counts), (NOERROR, [0, 0, 0, 1]));
    let [(code, cookie)] = &read.options()[..] else {
        panic!("{read:?}")
    };
    assert_eq!((*code, cookie.len(), &cookie[..8]), (10, 24, &COOKIE[4..]));
    let read = ask(&mut engines, &raw(15 << 11, [0; 4], &[]));
    assert_eq!((read.rcode(), read.counts), (NOTIMP, [0; 4]));
    for nsid in [&[0, 3, 0, 0][..], &[0, 3, 0, 3, 1, 2, 3]] {
        let read = ask(
            &mut engines,
            &with_opt(&wire("www.example.com."), 1, &opt(1232, 0, nsid)),
        );
        assert_eq!(read.options(), [(3, b"edge".to_vec())]);
    }
}

/// Knot 2.5.5 (valid subnets refused), gdnsd f90d65ea and getdns #359 (family 0), gdnsd fe6a4910 (scope lost), Knot
/// 2.8.2 (nested prefixes), PowerDNS a1f7eee7dd (answers shared by networks), #7896 (the query before leaks in).
#[test]
fn client_subnets() {
    let mut engines = Engines::new();
    let vod = wire("vod.example.com.");
    let mut ask = |option: &[u8]| ask(&mut engines, &with_opt(&vod, 1, &opt(1232, 0, option)));
    for (option, scope) in [
        (ecs(1, 0, &[]), 0),
        (ecs(0, 0, &[]), 0),
        // 10.1/16 is ISP one but for 10.1.128/17, so that 17 bits decide for either half; 10.2/16 is whole.
        (ecs(1, 24, &[10, 1, 2]), 17),
        (ecs(1, 24, &[10, 1, 200]), 17),
        // 10.0/16 is nobody's, its neighbour is not: more bits than were sent (RFC 7871 section 7.2.1).
        (ecs(1, 9, &[10, 0]), 16),
        (ecs(1, 32, &[10, 2, 2, 3]), 16),
        (ecs(1, 31, &[10, 2, 2, 2]), 16),
        // 2001:db8:1::/48; 2001:db8:c::/49.
        (ecs(2, 48, &[0x20, 1, 0x0d, 0xb8, 0, 1]), 48),
        (
            ecs(
                2,
                127,
                &[0x20, 1, 0x0d, 0xb8, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            ),
            49,
        ),
    ] {
        let read = ask(&option);
        assert_eq!(
            (read.rcode(), answer(&read).1),
            (NOERROR, Some(scope)),
            "{option:02x?}"
        );
    }
    // Sites by ISP: 198.51.100.1 and .2 are one's, .11 and .12 two's.
    let one = |read: &Read| answer(read).0.iter().all(|a| a[3] < 10);
    let two = |read: &Read| answer(read).0.iter().all(|a| (11..20).contains(&a[3]));
    for _ in 0..8 {
        assert!(one(&ask(&ecs(1, 24, &[10, 1, 2]))));
        assert!(two(&ask(&ecs(1, 24, &[10, 1, 200]))));
        assert!(two(&ask(&ecs(1, 24, &[10, 2, 2]))));
    }
    // As if the subnet before were this client's, whom all sites serve alike.
    let alike = (0..60).any(|_| {
        ask(&ecs(1, 24, &[10, 1, 2]));
        let own = ask(&[]);
        assert_eq!(answer(&own).1, None);
        !one(&own)
    });
    assert!(alike);
}

/// DVE-2017-0011, -0019 (a balancer answers any type), DVE-2017-0007 (NS and SOA at the apex), gdnsd 1.11.4 (TTL of negative
/// answers), gdnsd a9f62c2d (compression lost by case), gdnsd fa1e4b60 (all members down).
#[test]
fn services_and_negative_answers() {
    let mut engines = Engines::new();
    for name in ["vod.example.com.", "many.example.com.", "nope.example.com."] {
        for rtype in [2, 6, 15, 16, 43, 65, 257] {
            let read = named(&mut engines, name, rtype, None);
            let rcode = if name.starts_with("nope") { 3 } else { NOERROR };
            assert_eq!(
                (read.rcode(), read.counts),
                (rcode, [1, 0, 1, 0]),
                "{name} {rtype}"
            );
            // SOA TTL 300, MINIMUM 60.
            assert_eq!(
                (read.records[0].rtype, read.records[0].ttl),
                (6, 60),
                "{name} {rtype}"
            );
        }
    }
    // No member has an IPv6 address.
    assert_eq!(
        named(&mut engines, "many.example.com.", 28, None).counts,
        [1, 0, 1, 0]
    );
    for (rtype, count) in [(2, 2), (6, 1)] {
        assert_eq!(
            named(&mut engines, "example.com.", rtype, None).shape(1).len(),
            count
        );
    }
    for (name, rtype) in [
        ("www.example.com.", 15),
        ("example.com.", 6),
        ("alias2.example.com.", 1),
    ] {
        let capitals = name.to_ascii_uppercase();
        let [small, capital] = [name, &capitals].map(|name| named(&mut engines, name, rtype, None).end);
        assert_eq!(small, capital, "{name}");
    }
    let fixed = named(&mut engines, "empty.example.com.", 1, None);
    assert_eq!(answer(&fixed).0, [[192, 0, 2, 9]]);
}

/// hickory #3738 and dns_fwdptr.pcap (pointers without end), hickory #1283 and NSD 4.15.1 (loops and long chains).
#[test]
fn pointers_and_chains_end() {
    let mut engines = Engines::new();
    for name in [
        &[0xc0, 12][..],
        &[0xc0, 0],
        &[0xc0, 30],
        b"\x03www\xc0\x0c",
        b"\x03www\xc0\x20",
    ] {
        let read = ask(
            &mut engines,
            &raw(0, [1, 0, 0, 0], &[name, &[0, 1, 0, 1, 0, 0, 0, 0, 0, 0]]),
        );
        assert_eq!((read.rcode(), read.counts), (FORMERR, [0; 4]), "{name:02x?}");
    }
    let looping = named(&mut engines, "loop1.example.com.", 1, None);
    assert_eq!((looping.rcode(), looping.shape(1).len()), (NOERROR, 2));
    let long = named(&mut engines, "c0.example.com.", 1, None);
    assert_eq!((long.rcode(), long.shape(1).len()), (NOERROR, 8));
}

/// NSD #134 (own limit against the client's), Knot 1.3.2 (EDNS size applied to TCP).
#[test]
fn sizes() {
    let mut engines = Engines::new();
    // 17 + 4 bytes of question, 16 a record, and OPT: 29 need 508 with OPT, 85 need 1,404; 40 strings of 102 more.
    for (name, rtype, size, cut) in [
        ("mid.example.com.", 1, None, false),
        ("mid.example.com.", 1, Some(512), false),
        ("big.example.com.", 1, None, true),
        ("big.example.com.", 1, Some(1232), true),
        ("big.example.com.", 1, Some(4096), true),
        ("huge.example.com.", 16, Some(4096), true),
    ] {
        let [udp, tcp] = engines.ask(&frames::message(name, Rtype::from_int(rtype), size), ANYBODY);
        let (udp, tcp) = (
            reply::read(&udp.unwrap(), true).unwrap(),
            reply::read(&tcp.unwrap(), true).unwrap(),
        );
        assert_eq!(udp.flags & 0x0200 != 0, cut, "{name} {size:?}");
        let whole = match name.split_once('.').unwrap().0 {
            "mid" => 29,
            "big" => 85,
            _ => 41,
        };
        assert_eq!(tcp.shape(1).len(), whole, "{name} over TCP");
    }
}

/// PowerDNS 62d5e22b5a: a cookie was bound to the wrong address. The right one is the one that asks, whatever subnet it names.
#[test]
fn cookies_are_bound_to_the_client() {
    let mut engines = Engines::new();
    let mut cookie = |client, options: &[&[u8]]| {
        let query = with_opt(&wire("www.example.com."), 1, &opt(1232, 0, &options.concat()));
        let [udp, tcp] = engines.ask(&query, client).map(|reply| {
            let options = reply::read(&reply.unwrap(), true).unwrap().options();
            options.into_iter().find(|(code, _)| *code == 10)
        });
        assert_eq!(udp, tcp);
        udp.expect("a cookie")
    };
    let own = cookie(ANYBODY, &[COOKIE]);
    assert_eq!(own, cookie(ANYBODY, &[COOKIE]));
    assert_ne!(own, cookie(Client::V4([203, 0, 113, 2]), &[COOKIE]));
    for subnet in [ecs(1, 24, &[198, 51, 100]), ecs(1, 32, &[203, 0, 113, 2])] {
        assert_eq!(own, cookie(ANYBODY, &[&subnet, COOKIE]));
        assert_eq!(own, cookie(ANYBODY, &[COOKIE, &subnet]));
    }
}

/// dnsperf PR #139 and routedns #525: ids mixed up under load.
#[test]
fn every_reply_of_a_burst_has_its_own_id() {
    let mut lab = Lab::new(world());
    let mut ids: Vec<u16> = (0..=u16::MAX).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut ids);
    for burst in ids.chunks(128) {
        let of = |(at, id): (usize, &u16)| {
            let name = [
                "www.example.com.",
                "nope.example.com.",
                "vod.example.com.",
                "alias.example.com.",
            ][at % 4];
            let mut message = frames::message(name, Rtype::A, (at % 3 == 0).then_some(1232));
            message[..2].copy_from_slice(&id.to_be_bytes());
            message
        };
        let asked: Vec<_> = burst.iter().enumerate().map(of).collect();
        let sent = lab.exchange(
            &asked
                .iter()
                .map(|m| frames::query(false, 0, m))
                .collect::<Vec<_>>(),
        );
        assert_eq!(sent.len(), asked.len());
        for (query, frame) in asked.iter().zip(&sent) {
            let Kind::Udp(reply) = frames::dissect(frame) else {
                panic!("{frame:02x?}")
            };
            // The id and the question, among all laws.
            reply::check(query, &reply, reply::Via::Udp);
        }
    }
}

/// Knot 3.0.4 (the root's 17 bytes), Knot 57e40a480 (UDP length), NSD xdp-server.c and xdp-for-windows #184 (IPv4 options),
/// NSD's XDP program (first fragments), Knot's protocols.h (ECN and flow label), dnsdist 5d2f936aad (sent twice).
#[test]
fn frames_of_the_field() {
    let mut lab = Lab::new(world());
    let www = frames::message("www.example.com.", Rtype::A, Some(1232));
    let mut root = frames::query(false, 0, &frames::message(".", Rtype::NS, None));
    assert_eq!(root.len(), 14 + 20 + 8 + 17);
    root.resize(64, 0xff);
    // The UDP length, one less and one more than the IP payload has, the checksum left out; with padding behind.
    let length = |by: i16| {
        let mut frame = frames::query(false, 0, &www);
        let len = u16::from_be_bytes([frame[38], frame[39]]).wrapping_add_signed(by);
        frame[38..40].copy_from_slice(&len.to_be_bytes());
        frame[40..42].fill(0);
        frame.extend([0; 8]);
        frame
    };
    let mut options = frames::query(false, 0, &www);
    options.splice(34..34, [0x94, 4, 0, 0]);
    let total = (options.len() - 14) as u16;
    options = frames::with_ipv4_header(options, 0, |header| {
        header[2..4].copy_from_slice(&total.to_be_bytes())
    });
    options[14] = 0x46;
    options[24..26].fill(0);
    let sum = frames::plain_sum(&options[14..38]);
    options[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut short = frames::query(false, 0, &www)[..34].to_vec();
    short[14] = 0x4f;
    let fragment = frames::with_ipv4_header(frames::query(false, 0, &www), 0, |header| header[6] = 0x20);
    let mut labelled = frames::query(true, 0, &www);
    labelled[14..18].copy_from_slice(&[0x60, 0x2a, 0xbc, 0xde]);
    for (what, frame, outcome) in [
        ("the root", root, Counter::DnsRefused),
        ("UDP length below", length(-1), Counter::DropUdpHeader),
        ("UDP length", length(0), Counter::DnsAnswer),
        ("UDP length above", length(1), Counter::DropUdpHeader),
        ("router alert", options, Counter::DnsAnswer),
        ("IHL 15 in 34 bytes", short, Counter::DropIpv4Header),
        ("first fragment", fragment, Counter::DropFragment),
        ("ECN and flow label", labelled, Counter::DnsAnswer),
        (
            "too large",
            frames::query(false, 0, &frames::message("big.example.com.", Rtype::A, None)),
            Counter::DnsAnswer,
        ),
    ] {
        let before = lab.counters();
        let sent = lab.exchange(&[frame]);
        let changed = changes(&before, &lab.counters());
        assert!(changed.contains(&(outcome, 1)), "{what}: {changed:?}");
        let replied = outcome.kind() == dataplane::counters::Kind::Dns;
        assert_eq!(sent.len(), usize::from(replied), "{what}");
        if let Some(frame) = sent.first() {
            frames::dissect(frame);
            if what == "ECN and flow label" {
                assert_eq!(frame[14..18], [0x60, 0, 0, 0]);
            }
        }
    }
}
