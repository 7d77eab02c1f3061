//! Cookies, rate limits, extended errors and class CH, through a whole worker on a clock of the test's.

use crate::frames::{self, Kind};
use crate::lab::{Lab, changes, example};
use allocation_counter::measure;
use control::config::model::{AllDown, Config, CookieMode, RateLimit};
use dataplane::counters::Counter::{self, *};
use dataplane::wire::cookie::{Address, Secret, Secrets};
use std::ops::Range;

const SECOND: u64 = 1_000_000_000;
/// The secret, the client's address and cookie, and the time of RFC 9018 appendix A.1.
const SECRET: u128 = 0xe5e9_73e5_a6b2_a43f_48e7_dc84_9e37_bfcf;
const CLIENT: u8 = 100;
const CLIENT_COOKIE: [u8; 8] = 0x2464_c4ab_cf10_c957u64.to_be_bytes();
const NOW: u64 = 1_559_731_985;

const A: u16 = 1;
const TXT: u16 = 16;
const IN: u16 = 1;
const CH: u16 = 3;
const NSID: u16 = 3;
const ECS: u16 = 8;
const COOKIE: u16 = 10;
const EXTENDED_ERROR: u16 = 15;

fn secret(number: u128) -> Secret {
    Secret::new(number.to_be_bytes())
}

/// The 24 bytes of client and server cookie.
fn cookie(server: u128) -> Vec<u8> {
    [&CLIENT_COOKIE[..], &server.to_be_bytes()].concat()
}

/// The example with the secret of RFC 9018.
fn config() -> Config {
    let mut config = example(192);
    config.dns.cookies.secrets = Some(Secrets {
        current: secret(SECRET),
        other: None,
    });
    config
}

fn lab(config: Config) -> Lab {
    let mut lab = Lab::new(config);
    lab.set_clock(NOW);
    lab
}

/// A query by hand (RFC 1035 section 4.1): options make an OPT record with 1232 bytes.
fn message(name: &str, class: u16, rtype: u16, options: Option<&[(u16, Vec<u8>)]>) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(options.is_some())];
    for label in name.split_terminator('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.push(0);
    message.extend([rtype.to_be_bytes(), class.to_be_bytes()].concat());
    message.extend(opt(options));
    message
}

fn opt(options: Option<&[(u16, Vec<u8>)]>) -> Vec<u8> {
    let Some(options) = options else { return vec![] };
    let data: Vec<u8> = options
        .iter()
        .flat_map(|(code, data)| {
            [
                &code.to_be_bytes()[..],
                &(data.len() as u16).to_be_bytes(),
                data.as_slice(),
            ]
            .concat()
        })
        .collect();
    let mut out = vec![0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0];
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
    out
}

/// A reply, taken apart.
#[derive(Debug)]
struct Reply {
    rcode: u16,
    aa: bool,
    tc: bool,
    /// Questions, answers, authority, additional.
    counts: [u16; 4],
    options: Vec<(u16, Vec<u8>)>,
    bytes: Vec<u8>,
}

impl Reply {
    fn option(&self, code: u16) -> Option<&[u8]> {
        self.options
            .iter()
            .find(|(c, _)| *c == code)
            .map(|(_, data)| data.as_slice())
    }
}

fn reply(frame: &[u8]) -> Reply {
    let Kind::Udp(bytes) = frames::dissect(frame) else {
        panic!("no UDP")
    };
    let message = domain::base::Message::from_octets(&bytes).unwrap();
    let header = message.header();
    assert!(header.qr());
    let sections = message.header_counts();
    let (mut rcode, mut options) = (u16::from(header.rcode().to_int()), Vec::new());
    if let Some(opt) = message.opt() {
        rcode = opt.rcode(header).to_int();
        for option in opt.opt().iter::<domain::base::opt::UnknownOptData<_>>() {
            let option = option.unwrap();
            options.push((option.code().to_int(), option.as_slice().to_vec()));
        }
    }
    Reply {
        rcode,
        aa: header.aa(),
        tc: header.tc(),
        counts: [
            sections.qdcount(),
            sections.ancount(),
            sections.nscount(),
            sections.arcount(),
        ],
        options,
        bytes: bytes.clone(),
    }
}

/// Asks from the client of the RFC.
fn ask(lab: &mut Lab, message: &[u8]) -> Reply {
    let sent = lab.exchange(&[frames::udp(false, 0, CLIENT, (40_000, 53), message)]);
    assert_eq!(sent.len(), 1, "{:?}", lab.counters());
    reply(&sent[0])
}

fn ask_with_cookie(lab: &mut Lab, name: &str, cookie: &[u8]) -> Reply {
    ask(lab, &message(name, IN, A, Some(&[(COOKIE, cookie.to_vec())])))
}

/// Names for every way to an answer: static, service, through CNAME, wildcard, referral, missing, not served.
const NAMES: [(&str, u16); 8] = [
    ("www.example.com", 0),
    ("vod.example.com", 0),
    ("tovod.example.com", 0),
    ("alias.example.com", 0),
    ("a.wild.example.com", 0),
    ("x.child.example.com", 0),
    ("none.example.com", 3),
    ("example.net", 5),
];

#[test]
fn every_reply_carries_the_server_cookie_of_the_rfc() {
    let mut lab = lab(config());
    // Appendix A.1: a new one; and the same comes back as it was for half an hour.
    let learned = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
    for (name, rcode) in NAMES {
        let first = ask_with_cookie(&mut lab, name, &CLIENT_COOKIE);
        assert_eq!(
            (first.rcode, first.option(COOKIE)),
            (rcode, Some(&learned[..])),
            "{name}"
        );
    }
    lab.wait(1799 * SECOND);
    for (name, rcode) in NAMES {
        let again = ask_with_cookie(&mut lab, name, &learned);
        assert_eq!(
            (again.rcode, again.option(COOKIE)),
            (rcode, Some(&learned[..])),
            "{name}"
        );
    }
    // Appendix A.2: renewed after 40 minutes.
    lab.set_clock(1_559_734_385);
    let renewed = cookie(0x0100_0000_5cf7_a871_d4a5_64a1_442a_ca77);
    for (name, rcode) in NAMES {
        let later = ask_with_cookie(&mut lab, name, &learned);
        assert_eq!(
            (later.rcode, later.option(COOKIE)),
            (rcode, Some(&renewed[..])),
            "{name}"
        );
    }
}

#[test]
fn cookies_over_ipv6_are_of_the_ipv6_address() {
    let mut lab = lab(config());
    let query = message(
        "vod.example.com",
        IN,
        A,
        Some(&[(COOKIE, CLIENT_COOKIE.to_vec())]),
    );
    let sent = lab.exchange(&[frames::query(true, 1, &query)]);
    let want =
        config()
            .dns
            .cookies
            .secrets
            .unwrap()
            .make(CLIENT_COOKIE, Address::V6(frames::CLIENT_V6), NOW as u32);
    assert_eq!(reply(&sent[0]).option(COOKIE), Some(&want[..]));
}

#[test]
fn no_cookie_is_answered_without_one_and_without_edns_there_is_no_room_for_any() {
    let mut lab = lab(config());
    let plain = ask(&mut lab, &message("www.example.com", IN, A, Some(&[])));
    assert_eq!((plain.options.len(), plain.counts), (0, [1, 2, 0, 1]));
    let none = ask(&mut lab, &message("www.example.com", IN, A, None));
    assert_eq!(none.counts, [1, 2, 0, 0]);
}

#[test]
fn lengths_that_rfc_7873_forbids_are_malformed() {
    let mut lab = lab(config());
    for len in 0..=48 {
        let asked = ask_with_cookie(&mut lab, "vod.example.com", &vec![0x24; len]);
        let good = len == 8 || (16..=40).contains(&len);
        assert_eq!(asked.rcode, if good { 0 } else { 1 }, "{len}");
        // What is no cookie of ours gets one.
        assert_eq!(asked.option(COOKIE).map(<[u8]>::len), good.then_some(24), "{len}");
    }
}

#[test]
fn all_options_come_together_and_fit() {
    let mut lab = lab(config());
    let ecs = vec![0, 1, 24, 0, 10, 1, 2];
    for name in ["vod.example.com", "alias.example.com", "big.example.com"] {
        let options = [
            (ECS, ecs.clone()),
            (COOKIE, CLIENT_COOKIE.to_vec()),
            (NSID, vec![]),
            (12, vec![0; 60]),
            (COOKIE, vec![9; 8]),
        ];
        let asked = ask(&mut lab, &message(name, IN, A, Some(&options)));
        let mut codes: Vec<u16> = asked.options.iter().map(|(code, _)| *code).collect();
        codes.sort();
        assert_eq!(codes, [NSID, ECS, COOKIE], "{name}");
        // The first of two cookies counts, and it is the resolver's, not the subnet's.
        let want = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
        assert_eq!(asked.option(COOKIE), Some(&want[..]), "{name}");
        assert_eq!(asked.option(NSID), Some(&b"edge"[..]));
        assert!(asked.bytes.len() <= 1232);
    }
    // At each size that the client may accept: whole record sets or TC, and never longer.
    for size in (512..1100u16).step_by(7) {
        let mut query = message(
            "big.example.com",
            IN,
            A,
            Some(&[(COOKIE, CLIENT_COOKIE.to_vec())]),
        );
        let at = query.len() - 20;
        query[at..at + 2].copy_from_slice(&size.to_be_bytes());
        let asked = ask(&mut lab, &query);
        assert!(
            asked.bytes.len() <= size as usize,
            "{size}: {}",
            asked.bytes.len()
        );
        assert_eq!(asked.option(COOKIE).map(<[u8]>::len), Some(24), "{size}");
        assert_eq!(asked.counts[1], if asked.tc { 0 } else { 60 }, "{size}");
    }
}

#[test]
fn options_that_are_none_of_ours_are_ignored() {
    let mut lab = lab(config());
    // EXPIRE (RFC 7314), padding (RFC 7830), keepalive (RFC 7828) and one of the private range, some with data.
    for (code, data) in [
        (9, vec![]),
        (12, vec![0; 90]),
        (11, vec![]),
        (65_001, vec![7; 300]),
    ] {
        let asked = ask(
            &mut lab,
            &message("vod.example.com", IN, A, Some(&[(code, data)])),
        );
        assert_eq!(
            (asked.rcode, asked.counts, asked.options.len()),
            (0, [1, 2, 0, 1], 0),
            "{code}"
        );
    }
    // NSID is asked for without data (RFC 5001 section 2.1); with some it is given all the same.
    let asked = ask(
        &mut lab,
        &message("vod.example.com", IN, A, Some(&[(NSID, vec![1, 2, 3])])),
    );
    assert_eq!(asked.options, [(NSID, b"edge".to_vec())]);
}

#[test]
fn a_query_for_a_cookie_alone() {
    // RFC 7873 section 5.4: no question, OPT with COOKIE.
    let alone = |data: &[u8]| {
        let mut message = vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        message.extend(opt(Some(&[(COOKIE, data.to_vec())])));
        message
    };
    let mut lab = lab(config());
    let learned = cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9480);
    for (data, rcode) in [
        (&CLIENT_COOKIE[..], 0),
        (&learned, 0),
        (&cookie(0x0100_0000_5cf7_9f11_1f81_30c3_eee2_9481), 23),
    ] {
        let asked = ask(&mut lab, &alone(data));
        assert_eq!((asked.rcode, asked.counts), (rcode, [0, 0, 0, 1]));
        assert_eq!(asked.option(COOKIE), Some(&learned[..]));
    }
    assert_eq!(ask(&mut lab, &alone(&[1; 9])).rcode, 1);
    // Without a cookie, or with records that are none of it, it is malformed.
    assert_eq!(
        ask(&mut lab, &[0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).rcode,
        1
    );
    let mut config = config();
    config.dns.cookies.mode = CookieMode::Off;
    let mut off = Lab::new(config);
    let asked = ask(&mut off, &alone(&CLIENT_COOKIE));
    assert_eq!((asked.rcode, asked.option(COOKIE)), (1, None));
    let asked = ask_with_cookie(&mut off, "vod.example.com", &CLIENT_COOKIE);
    assert_eq!((asked.rcode, asked.option(COOKIE)), (0, None));
}

#[test]
fn where_cookies_are_required_a_client_gets_one_before_it_gets_an_answer() {
    let mut config = config();
    config.dns.cookies.mode = CookieMode::Require;
    let mut lab = lab(config);
    for (name, rcode) in NAMES {
        let first = ask_with_cookie(&mut lab, name, &CLIENT_COOKIE);
        assert_eq!((first.rcode, first.counts), (23, [1, 0, 0, 1]), "{name}");
        let given = first.option(COOKIE).unwrap().to_vec();
        let second = ask_with_cookie(&mut lab, name, &given);
        assert_eq!(second.rcode, rcode, "{name}");
        // Who knows nothing of cookies is not shut out.
        assert_eq!(
            ask(&mut lab, &message(name, IN, A, Some(&[]))).rcode,
            rcode,
            "{name}"
        );
    }
    assert_eq!(lab.counters().get(DnsBadcookie), NAMES.len() as u64);
}

#[test]
fn a_rollover_by_reload_loses_no_client() {
    let mut lab = lab(config());
    let learned = ask_with_cookie(&mut lab, "vod.example.com", &CLIENT_COOKIE);
    let learned = learned.option(COOKIE).unwrap().to_vec();
    let mut next = config();
    next.dns.cookies.mode = CookieMode::Require;
    next.dns.cookies.secrets = Some(Secrets {
        current: secret(7),
        other: Some(secret(SECRET)),
    });
    lab.publish(next.clone());
    lab.settle();
    let renewed = ask_with_cookie(&mut lab, "vod.example.com", &learned);
    assert_eq!(renewed.rcode, 0, "the old secret is accepted");
    let renewed = renewed.option(COOKIE).unwrap().to_vec();
    assert_ne!(renewed, learned, "and a cookie of the new one given");
    next.dns.cookies.secrets = Some(Secrets {
        current: secret(7),
        other: None,
    });
    lab.publish(next);
    lab.settle();
    assert_eq!(ask_with_cookie(&mut lab, "vod.example.com", &renewed).rcode, 0);
    assert_eq!(ask_with_cookie(&mut lab, "vod.example.com", &learned).rcode, 23);
}

#[test]
fn class_ch_tells_what_is_configured_and_nothing_else() {
    let mut config = config();
    config.dns.version = Some("windrose".into());
    let mut lab = lab(config);
    for (name, text) in [
        ("version.bind", Some("windrose")),
        ("VERSION.Server", Some("windrose")),
        ("id.server", Some("edge")),
        ("hostname.bind", None),
        ("authors.bind", None),
        ("www.example.com", None),
    ] {
        let asked = ask(&mut lab, &message(name, CH, TXT, Some(&[(NSID, vec![])])));
        assert!(!asked.aa, "{name}");
        assert_eq!(asked.option(NSID), Some(&b"edge"[..]));
        let Some(text) = text else {
            assert_eq!((asked.rcode, asked.counts[1]), (5, 0), "{name}");
            continue;
        };
        assert_eq!((asked.rcode, asked.counts), (0, [1, 1, 0, 1]), "{name}");
        // Pointer to the question, TXT, CH, TTL 0, the string with its length (RFC 1035 section 3.3.14).
        let mut record = vec![
            0xc0,
            12,
            0,
            16,
            0,
            3,
            0,
            0,
            0,
            0,
            0,
            text.len() as u8 + 1,
            text.len() as u8,
        ];
        record.extend(text.bytes());
        let at = 12 + name.len() + 2 + 4;
        assert_eq!(asked.bytes[at..at + record.len()], record, "{name}");
    }
    for rtype in [A, 255] {
        assert_eq!(ask(&mut lab, &message("version.bind", CH, rtype, None)).rcode, 5);
    }
    assert_eq!(ask(&mut lab, &message("version.bind", IN, TXT, None)).rcode, 5);
    let mut all = example(192);
    all.dns.hostname = Some("h".repeat(255));
    let mut lab = Lab::new(all);
    let asked = ask(&mut lab, &message("hostname.bind", CH, TXT, None));
    assert_eq!((asked.rcode, asked.counts), (0, [1, 1, 0, 0]));
}

#[test]
fn errors_are_explained_to_those_who_speak_edns() {
    let mut lab = lab(config());
    let mut explained = |query: &[u8]| {
        let asked = ask(&mut lab, query);
        let code = asked
            .option(EXTENDED_ERROR)
            .map(|data| u16::from_be_bytes([data[0], data[1]]));
        (asked.rcode, code)
    };
    assert_eq!(
        explained(&message("example.net", IN, A, Some(&[]))),
        (5, Some(20))
    );
    assert_eq!(explained(&message("example.net", IN, A, None)), (5, None));
    assert_eq!(
        explained(&message("www.example.com", CH, A, Some(&[]))),
        (5, Some(21))
    );
    assert_eq!(
        explained(&message("www.example.com", IN, 252, Some(&[]))),
        (5, Some(21))
    );
    assert_eq!(
        explained(&message("www.example.com", IN, A, Some(&[]))),
        (0, None)
    );
    assert_eq!(
        explained(&message("none.example.com", IN, A, Some(&[]))),
        (3, None)
    );
    // Opcode 2.
    let mut status = message("www.example.com", IN, A, Some(&[]));
    status[2] = 0x10;
    assert_eq!(explained(&status), (4, Some(21)));
    // A malformed message explains nothing.
    assert_eq!(
        explained(&message("www.example.com", IN, A, Some(&[(COOKIE, vec![1])]))),
        (1, None)
    );
}

#[test]
fn a_service_without_a_live_member_says_so() {
    for (rule, answers, code) in [
        (AllDown::Open, 2, 0),
        (AllDown::Closed, 0, 23),
        (AllDown::Fixed(vec!["192.0.2.9".parse().unwrap()]), 1, 0),
    ] {
        let mut config = config();
        config.services[0].when_all_down = rule.clone();
        let mut lab = Lab::down(config);
        let options = [(ECS, vec![0, 1, 16, 0, 10, 1]), (COOKIE, CLIENT_COOKIE.to_vec())];
        let asked = ask(&mut lab, &message("vod.example.com", IN, A, Some(&options)));
        assert_eq!((asked.rcode, asked.counts[1]), (0, answers), "{rule:?}");
        let want = [&[0, code][..], b"no member is up"].concat();
        assert_eq!(asked.option(EXTENDED_ERROR), Some(&want[..]), "{rule:?}");
        assert_eq!(asked.options.len(), 3, "{rule:?}");
    }
}

fn limited(per_second: u32, burst: u32, slip: u8) -> Config {
    let mut config = config();
    config.dns.rate_limit = Some(RateLimit {
        per_second,
        burst,
        slip,
        prefix_v4: 24,
        prefix_v6: 56,
        allow: vec!["203.0.113.128/25".parse().unwrap()],
    });
    config
}

/// The frame from another IPv4 source, without UDP checksum.
fn from(frame: Vec<u8>, source: [u8; 4]) -> Vec<u8> {
    let mut frame = frames::with_ipv4_header(frame, 0, |header| header[12..16].copy_from_slice(&source));
    frame[40..42].fill(0);
    frame
}

/// Sends queries at once; the counters that changed and the replies.
fn flood(lab: &mut Lab, source: [u8; 4], queries: Vec<Vec<u8>>) -> (Vec<(Counter, u64)>, Vec<Reply>) {
    let before = lab.counters();
    let mut replies = Vec::new();
    for some in queries.chunks(32) {
        let frames: Vec<_> = some
            .iter()
            .map(|query| from(frames::query(false, 0, query), source))
            .collect();
        replies.extend(lab.exchange(&frames).iter().map(|frame| reply(frame)));
    }
    (changes(&before, &lab.counters()), replies)
}

fn same(name: &str, count: usize) -> Vec<Vec<u8>> {
    vec![message(name, IN, A, Some(&[])); count]
}

fn random(parent: &str, numbers: Range<usize>) -> Vec<Vec<u8>> {
    numbers
        .map(|n| message(&format!("r{n}.{parent}"), IN, A, Some(&[])))
        .collect()
}

/// What a burst of 5 and slip 2 make of 105 queries: 5 answers, 50 empty ones with TC, 50 drops.
fn by_the_rule(outcome: Counter) -> Vec<(Counter, u64)> {
    let mut want = vec![
        (Received, 105),
        (Transmitted, 55),
        (Replied, 55),
        (DropRateLimit, 50),
        (outcome, 5),
        (DnsSlipped, 50),
    ];
    want.sort_by_key(|(counter, _)| *counter as usize);
    want
}

const FLOODER: [u8; 4] = [198, 51, 100, 7];
const HONEST: [u8; 4] = [203, 0, 113, 7];

#[test]
fn a_flood_gets_the_rate_and_honest_clients_their_answers() {
    let mut lab = lab(limited(10, 5, 2));
    for (queries, outcome) in [
        (same("www.example.com", 105), DnsAnswer),
        (same("vod.example.com", 105), DnsAnswer),
        // Names without end count as one: by zone, by wildcard, by cut; errors all together.
        (random("example.com", 0..105), DnsNxdomain),
        (random("wild.example.com", 0..105), DnsAnswer),
        (random("child.example.com", 0..105), DnsReferral),
        (random("example.net", 0..105), DnsRefused),
    ] {
        let (changed, replies) = flood(&mut lab, FLOODER, queries);
        assert_eq!(changed, by_the_rule(outcome), "{outcome:?}");
        for slipped in replies.iter().filter(|reply| reply.tc) {
            assert_eq!((slipped.rcode, slipped.counts), (0, [1, 0, 0, 1]));
        }
        assert_eq!(replies.iter().filter(|reply| reply.tc).count(), 50);
    }
    // Others get answers in the midst of it, and so does the flooder for names that it did not ask.
    let (changed, _) = flood(&mut lab, HONEST, same("www.example.com", 5));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    let (changed, _) = flood(&mut lab, FLOODER, same("alias.example.com", 5));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    // A tenth of a second later there is one token more; after half a second all five.
    lab.wait(SECOND / 10);
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 3));
    assert!(changed.contains(&(DnsAnswer, 1)), "{changed:?}");
    lab.wait(SECOND);
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 9));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    // Over ten seconds: the burst and ten a second.
    let (before, mut asked) = (lab.counters(), 0);
    lab.wait(SECOND);
    for _ in 0..1000 {
        asked += flood(&mut lab, FLOODER, same("vod.example.com", 2)).1.len();
        lab.wait(SECOND / 100);
    }
    let answers = lab.counters().get(DnsAnswer) - before.get(DnsAnswer);
    assert!((104..=106).contains(&answers), "{answers} of {asked}");
}

#[test]
fn whole_malformed_and_foreign_errors_share_one_account() {
    let mut lab = lab(limited(10, 5, 2));
    let queries = (0..105)
        .map(|n| match n % 3 {
            0 => vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            1 => message("example.net", IN, A, None),
            _ => message("www.example.com", 9, A, None),
        })
        .collect();
    let (changed, replies) = flood(&mut lab, FLOODER, queries);
    // Every second of a hundred slips, unless there is no question to ask again.
    let slipped = replies.iter().filter(|reply| reply.tc).count() as u64;
    assert!((30..=36).contains(&slipped), "{slipped}");
    assert!(changed.contains(&(DropRateLimit, 100 - slipped)), "{changed:?}");
}

#[test]
fn a_subnet_that_is_claimed_does_not_matter() {
    let mut lab = lab(limited(10, 5, 0));
    let queries = (0..100)
        .map(|n| {
            let ecs = vec![0, 1, 24, 0, 10, 2, n];
            message("vod.example.com", IN, A, Some(&[(ECS, ecs)]))
        })
        .collect();
    let (changed, _) = flood(&mut lab, FLOODER, queries);
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    assert!(changed.contains(&(DropRateLimit, 95)), "{changed:?}");
}

#[test]
fn good_cookies_and_the_allow_list_are_exempt_and_bad_ones_get_a_good_one() {
    let mut lab = lab(limited(10, 5, 2));
    flood(&mut lab, FLOODER, same("www.example.com", 100));
    // In place of the empty reply: BADCOOKIE with a cookie, at the rate of the slip.
    let with = |cookie: &[u8], count| {
        vec![message("www.example.com", IN, A, Some(&[(COOKIE, cookie.to_vec())])); count]
    };
    let (changed, replies) = flood(&mut lab, FLOODER, with(&CLIENT_COOKIE, 10));
    assert!(changed.contains(&(DnsBadcookie, 5)), "{changed:?}");
    assert!(changed.contains(&(DropRateLimit, 5)), "{changed:?}");
    assert_eq!((replies[0].rcode, replies[0].counts), (23, [1, 0, 0, 1]));
    let given = replies[0].option(COOKIE).unwrap().to_vec();
    let before = lab.counters();
    let (changed, _) = flood(&mut lab, FLOODER, with(&given, 64));
    assert!(changed.contains(&(DnsAnswer, 64)), "{changed:?}");
    // The cookie is good for that address alone.
    let (changed, _) = flood(&mut lab, [198, 51, 100, 8], with(&given, 10));
    assert!(changed.contains(&(DnsBadcookie, 5)), "{changed:?}");
    let (changed, _) = flood(&mut lab, [203, 0, 113, 200], same("www.example.com", 64));
    assert!(changed.contains(&(DnsAnswer, 64)), "{changed:?}");
    let exempt = lab.counters().get(RateLimitExempt) - before.get(RateLimitExempt);
    assert_eq!(exempt, 128);
}

#[test]
fn limits_come_and_go_with_a_reload() {
    let mut lab = lab(limited(10, 5, 0));
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 5)), "{changed:?}");
    lab.publish(config());
    lab.settle();
    let (changed, _) = flood(&mut lab, FLOODER, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 20)), "{changed:?}");
    lab.publish(limited(1000, 15, 0));
    lab.settle();
    let (changed, _) = flood(&mut lab, HONEST, same("www.example.com", 20));
    assert!(changed.contains(&(DnsAnswer, 15)), "{changed:?}");
}

#[test]
fn nothing_is_allocated_under_a_flood() {
    let mut lab = lab(limited(10, 5, 2));
    for frame in random("example.com", 0..30) {
        assert!(lab.wires[0].inject(&frames::query(false, 0, &frame)));
        let ecs = [
            (COOKIE, CLIENT_COOKIE.to_vec()),
            (ECS, vec![0, 1, 24, 0, 10, 2, 3]),
        ];
        let cookie = message("vod.example.com", IN, A, Some(&ecs));
        assert!(lab.wires[0].inject(&frames::query(true, 0, &cookie)));
        let identity = message("id.server", CH, TXT, Some(&ecs));
        assert!(lab.wires[0].inject(&frames::query(false, 1, &identity)));
    }
    let spent = measure(|| {
        while lab.poll() > 0 {
            lab.housekeep();
        }
    });
    assert_eq!((spent.count_total, spent.count_current), (0, 0));
    let counters = lab.counters();
    for counter in [DropRateLimit, DnsSlipped, DnsBadcookie, DnsIdentity, DnsNxdomain] {
        assert!(counters.get(counter) > 0, "no {counter:?}");
    }
}

#[test]
fn under_a_limit_that_nobody_reaches_every_reply_is_the_same() {
    let with = |config: Config| {
        let mut lab = lab(config);
        let mut sent = Vec::new();
        for frames in crate::no_alloc::every_kind().chunks(32) {
            sent.push(lab.exchange(frames));
        }
        for (name, _) in NAMES {
            let options = [(COOKIE, CLIENT_COOKIE.to_vec()), (ECS, vec![0, 1, 16, 0, 10, 1])];
            let query = message(name, IN, A, Some(&options));
            sent.push(lab.exchange(&[frames::query(false, 0, &query)]));
        }
        sent
    };
    assert!(with(config()) == with(limited(1_000_000, 10_000_000, 2)));
}
