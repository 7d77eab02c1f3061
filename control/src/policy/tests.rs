//! Configurations compiled and asked through the engine, replies read by an independent parser
//! (`domain`). Expected values are worked out by hand from the zone below and the RFCs.
// LONG: one set of configurations, asked in many short cases.

use super::*;
use crate::config::model::*;
use crate::data::Data;
use dataplane::counters::Counter;
use dataplane::stages::dns_answer::{Client, Engine, Event, Located, Outcome, Silent, Trace, Transport};
use dataplane::tables::Snapshot;
use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name as DName, ToName};
use domain::rdata::AllRecordData;
use std::path::PathBuf;
use std::str::FromStr;

pub(super) fn name(text: &str) -> Name {
    DName::from_str(text).unwrap()
}

fn set(owner: &str, rtype: u16, ttl: u32, rdata: Vec<Vec<u8>>) -> Rrset {
    Rrset {
        owner: name(owner),
        rtype,
        ttl,
        rdata,
    }
}

fn a(owner: &str, last: &[u8]) -> Rrset {
    set(owner, 1, 300, last.iter().map(|&l| vec![192, 0, 2, l]).collect())
}

pub(super) fn target(owner: &str, rtype: u16, to: &str) -> Rrset {
    set(owner, rtype, 300, vec![name(to).as_slice().to_vec()])
}

fn soa(apex: &str) -> Rrset {
    let mut data = name(&format!("ns1.{apex}")).as_slice().to_vec();
    data.extend_from_slice(name(&format!("hostmaster.{apex}")).as_slice());
    for word in [1u32, 3600, 600, 86400, 60] {
        data.extend_from_slice(&word.to_be_bytes());
    }
    set(apex, 6, 300, vec![data])
}

fn zone(apex: &str, mut rrsets: Vec<Rrset>) -> Zone {
    rrsets.push(soa(apex));
    rrsets.push(target(apex, 2, &format!("ns1.{apex}")));
    Zone {
        apex: name(apex),
        file: PathBuf::from("test.zone"),
        rrsets,
    }
}

pub(crate) fn base(zones: Vec<Zone>) -> Config {
    Config {
        path: PathBuf::from("test.toml"),
        hash: String::new(),
        appliance: Appliance {
            name: "test".into(),
            state: None,
            state_max_age: std::time::Duration::ZERO,
        },
        alerts: Vec::new(),
        dataplane: Dataplane {
            cores: vec![0],
            share_cores: true,
            idle: Idle::Sleep,
            memory_bytes: 64 << 20,
            buffers: 1024,
            eal: vec![],
        },
        ports: vec![],
        dns: Dns {
            nsid: Some("edge".into()),
            ..Dns::default()
        },
        data: Data::default(),
        isps: vec![],
        clients: vec![],
        selection: Selection::default(),
        sites: vec![],
        zones,
        services: vec![],
        latency: Latency::default(),
        admin: Admin {
            socket: PathBuf::from("/dev/null"),
            listen: None,
            token: None,
        },
        reports: None,
    }
}

fn example() -> Config {
    base(vec![zone(
        "example.com.",
        vec![
            a("www.example.com.", &[1]),
            a("big.example.com.", &(0..60).collect::<Vec<_>>()),
            a("ns1.example.com.", &[53]),
            set("www.example.com.", 16, 300, vec![b"\x05hello".to_vec()]),
            set(
                "www.example.com.",
                15,
                300,
                vec![{
                    let mut d = vec![0, 10];
                    d.extend_from_slice(name("mail.example.com.").as_slice());
                    d
                }],
            ),
            a("deep.ent.example.com.", &[2]),
            set("*.wild.example.com.", 1, 300, vec![vec![192, 0, 2, 3]]),
            set(
                "*.wild.example.com.",
                15,
                300,
                vec![{
                    let mut d = vec![0, 5];
                    d.extend_from_slice(name("mail.wild.example.com.").as_slice());
                    d
                }],
            ),
            target("alias.example.com.", 5, "www.example.com."),
            target("alias2.example.com.", 5, "alias.example.com."),
            target("out.example.com.", 5, "www.example.net."),
            target("gone.example.com.", 5, "missing.example.com."),
            target("loop1.example.com.", 5, "loop2.example.com."),
            target("loop2.example.com.", 5, "loop1.example.com."),
            target("towild.example.com.", 5, "x.y.wild.example.com."),
            target("tovod.example.com.", 5, "vod.example.com."),
            target("child.example.com.", 2, "ns.child.example.com."),
            a("ns.child.example.com.", &[99]),
        ],
    )])
}

/// Three sites: 0 and 1 in ISPs 0 and 1, 2 in none; one service with members at each.
pub(crate) fn with_service(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = example();
    config.isps = vec![
        Isp {
            name: "one".into(),
            prefixes: vec!["10.1.0.0/16".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()],
            ..Isp::default()
        },
        Isp {
            name: "two".into(),
            prefixes: vec!["10.2.0.0/16".parse().unwrap()],
            ..Isp::default()
        },
    ];
    let site = |name: &str, isp| Site {
        name: name.into(),
        isp,
        location: None,
        preference: 128,
        ..Site::default()
    };
    config.sites = vec![site("s0", Some(0)), site("s1", Some(1)), site("s2", None)];
    let member = |last: u8, site| Member {
        address: IpAddr::from([198, 51, 100, last]),
        site,
        weight: 1,
    };
    config.services = vec![Service {
        name: name("vod.example.com."),
        ttl: 30,
        ttl_degraded: 30,
        answers: 2,
        fill: false,
        ecs: true,
        chain: vec![Metric::Health, Metric::Isp, Metric::Preference, Metric::Static],
        spread: Spread::RoundRobin,
        when_all_down: AllDown::LastGood,
        members: vec![
            member(1, 0),
            member(2, 0),
            member(11, 1),
            member(12, 1),
            member(21, 2),
        ],
        cnames: vec![],
        ..Service::default()
    }];
    change(&mut config);
    config
}

pub(super) struct Lab {
    compiled: Compiled,
    engine: Engine,
    twin: Engine,
    tcp: Engine,
}

impl Lab {
    pub(super) fn new(config: Config) -> Self {
        Self::with_health(config, |_| true)
    }

    pub(super) fn with_health(config: Config, up: impl Fn(&Target) -> bool) -> Self {
        let mut compiler = Compiler::default();
        let compiled = compiler
            .compile(
                Arc::new(config),
                Vec::new(),
                |target| if up(target) { Standing::UP } else { Standing::DOWN },
                0,
            )
            .unwrap();
        let [mut engine, mut twin, mut tcp] = [7; 3].map(Engine::new);
        for (target, value) in compiler.slots.lock().unwrap().take_changes() {
            for engine in [&mut engine, &mut twin, &mut tcp] {
                let words = &mut engine.chooser.words;
                words.set(target, value);
            }
        }
        Self {
            compiled,
            engine,
            twin,
            tcp,
        }
    }

    /// Asks the engine, a twin of it that takes every step, as who listens to one makes it, and a third over TCP: all must say
    /// the same, unless it is too long for a datagram.
    pub(super) fn raw(&mut self, query: &[u8], client: Client, transport: Transport) -> (Vec<u8>, Outcome) {
        let snapshot = &self.compiled.snapshot;
        let got = raw(&mut self.engine, snapshot, query, client, transport, &mut Silent);
        let mut steps: Vec<Event> = Vec::new();
        let twin = raw(&mut self.twin, snapshot, query, client, transport, &mut steps);
        assert_eq!(got, twin, "after {steps:?}");
        let over = match transport {
            Transport::Udp => Transport::Tcp { keepalive: 0 },
            tcp => tcp,
        };
        let tcp = raw(&mut self.tcp, snapshot, query, client, over, &mut Silent);
        within_limits(query, &got, transport);
        agrees(query, &got, &tcp);
        got
    }

    pub(super) fn ask(&mut self, qname: &str, rtype: Rtype) -> Reply {
        self.ask_from(qname, rtype, Client::V4([203, 0, 113, 1]))
    }

    pub(super) fn ask_from(&mut self, qname: &str, rtype: Rtype, client: Client) -> Reply {
        let (bytes, outcome) = self.raw(&query(qname, rtype, None), client, Transport::Udp);
        Reply::read(&bytes, outcome)
    }
}

/// That a reply over UDP is no longer than its query allows, and what is cut is cut whole.
fn within_limits(query: &[u8], (bytes, outcome): &(Vec<u8>, Outcome), transport: Transport) {
    if !matches!((transport, outcome), (Transport::Udp, Outcome::Reply { .. })) {
        return;
    }
    let opt = Message::from_octets(query).ok().and_then(|query| query.opt());
    let size = opt.map_or(512, |opt| opt.udp_payload_size()).clamp(512, 1232);
    assert!(
        bytes.len() <= usize::from(size),
        "{} bytes for {query:02x?}",
        bytes.len()
    );
    if bytes[2] & 2 != 0 {
        assert_eq!(bytes[6..10], [0; 4], "records with TC: {bytes:02x?}");
    }
}

/// That the reply over TCP is the same, or the one over UDP is cut.
fn agrees(query: &[u8], (udp, udp_is): &(Vec<u8>, Outcome), (tcp, tcp_is): &(Vec<u8>, Outcome)) {
    // Who names an idle timeout is wrong over TCP alone (RFC 7828 section 3.2.1).
    let keepalive = query.windows(2).any(|pair| pair == [0, 11]);
    match udp_is {
        _ if keepalive => {}
        Outcome::Reply { truncated: true, .. } => {
            assert_eq!(
                (udp[0], udp[1], udp[2] & !2, udp[3]),
                (tcp[0], tcp[1], tcp[2] & !2, tcp[3])
            );
        }
        // Glue that nobody needs may not fit.
        Outcome::Reply { .. } if udp.len() < tcp.len() && udp[11] == 0 => {
            assert_eq!(udp[..10], tcp[..10]);
            assert!(tcp[12..].starts_with(&udp[12..]), "{udp:02x?}, {tcp:02x?}");
        }
        _ => assert_eq!((udp, udp_is), (tcp, tcp_is), "over UDP and TCP"),
    }
}

fn raw<T: Trace>(
    engine: &mut Engine,
    snapshot: &Snapshot,
    query: &[u8],
    client: Client,
    transport: Transport,
    trace: &mut T,
) -> (Vec<u8>, Outcome) {
    let mut buffer = [0xa5; 4096];
    buffer[..query.len()].copy_from_slice(query);
    let mut located = Located::default();
    located.locate(snapshot, &buffer, query.len(), client);
    engine.find(snapshot, &mut located);
    let outcome = engine.answer(snapshot, &mut located, &mut buffer, transport, trace);
    let len = if let Outcome::Reply { len, .. } = outcome {
        len
    } else {
        buffer.len()
    };
    (buffer[..len].to_vec(), outcome)
}

pub(super) fn query(qname: &str, rtype: Rtype, edns: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((name(qname), rtype)).unwrap();
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

/// A reply as text: one line a record, "owner ttl type data".
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) rcode: Rcode,
    pub(super) aa: bool,
    pub(super) tc: bool,
    pub(super) answer: Vec<String>,
    pub(super) authority: Vec<String>,
    pub(super) additional: Vec<String>,
    pub(super) opt: bool,
    pub(super) len: usize,
    pub(super) counter: Counter,
}

impl Reply {
    pub(super) fn read(bytes: &[u8], outcome: Outcome) -> Self {
        let Outcome::Reply { len, counter, .. } = outcome else {
            panic!("no reply: {outcome:?}")
        };
        let message = Message::from_octets(bytes).unwrap();
        let header = message.header();
        assert!(header.qr() && header.rd() && !header.ra() && !header.z() && !header.ad());
        assert_eq!(header.id(), 0x1234);
        let (_, answer, authority, additional) = message.sections().unwrap();
        let lines = |section: domain::base::message::RecordSection<'_, &[u8]>| -> Vec<String> {
            section
                .limit_to::<AllRecordData<_, _>>()
                .map(|r| r.unwrap())
                .filter(|r| r.rtype() != Rtype::OPT)
                .map(|r| {
                    format!(
                        "{} {} {} {}",
                        r.owner().to_name::<Vec<u8>>(),
                        r.ttl().as_secs(),
                        r.rtype(),
                        r.data()
                    )
                })
                .collect()
        };
        // Everything is read to the end: no trailing bytes.
        Self {
            rcode: header.rcode(),
            aa: header.aa(),
            tc: header.tc(),
            answer: lines(answer),
            authority: lines(authority),
            additional: lines(additional),
            opt: message.opt().is_some(),
            len,
            counter,
        }
    }
}

const SOA: &str = "example.com 60 SOA ns1.example.com. hostmaster.example.com. 1 3600 600 86400 60";

#[test]
fn static_records() {
    let mut lab = Lab::new(example());
    let r = lab.ask("www.example.com.", Rtype::A);
    assert_eq!((r.rcode, r.aa, r.tc, r.opt), (Rcode::NOERROR, true, false, false));
    assert_eq!(r.answer, ["www.example.com 300 A 192.0.2.1"]);
    assert!(r.authority.is_empty() && r.additional.is_empty());
    // Header 12, question 17 + 4, one record of 16 with a compressed owner.
    assert_eq!(r.len, 12 + 21 + 16);
    let r = lab.ask("WWW.eXample.COM.", Rtype::A);
    assert_eq!(r.answer, ["WWW.eXample.COM 300 A 192.0.2.1"]);
    assert_eq!(
        lab.ask("www.example.com.", Rtype::TXT).answer,
        ["www.example.com 300 TXT \"hello\""]
    );
    assert_eq!(
        lab.ask("www.example.com.", Rtype::MX).answer,
        ["www.example.com 300 MX 10 mail.example.com."]
    );
    assert_eq!(
        lab.ask("example.com.", Rtype::NS).answer,
        ["example.com 300 NS ns1.example.com."]
    );
    assert_eq!(lab.ask("example.com.", Rtype::SOA).answer.len(), 1);
}

#[test]
fn negative_answers_carry_the_soa() {
    let mut lab = Lab::new(example());
    for (qname, rtype, rcode, counter) in [
        (
            "www.example.com.",
            Rtype::AAAA,
            Rcode::NOERROR,
            Counter::DnsNodata,
        ),
        ("ent.example.com.", Rtype::A, Rcode::NOERROR, Counter::DnsNodata),
        ("wild.example.com.", Rtype::A, Rcode::NOERROR, Counter::DnsNodata),
        (
            "nope.example.com.",
            Rtype::A,
            Rcode::NXDOMAIN,
            Counter::DnsNxdomain,
        ),
        (
            "a.b.c.www.example.com.",
            Rtype::A,
            Rcode::NXDOMAIN,
            Counter::DnsNxdomain,
        ),
        (
            "nope.ent.example.com.",
            Rtype::A,
            Rcode::NXDOMAIN,
            Counter::DnsNxdomain,
        ),
    ] {
        let r = lab.ask(qname, rtype);
        assert_eq!((r.rcode, r.aa, r.counter), (rcode, true, counter), "{qname}");
        assert!(r.answer.is_empty());
        assert_eq!(r.authority, [SOA], "{qname}");
    }
}

#[test]
fn not_served_is_refused() {
    let mut lab = Lab::new(example());
    for qname in [
        ".",
        "com.",
        "example.net.",
        "a.very.long.name.that.is.not.served.here.example.org.",
    ] {
        let r = lab.ask(qname, Rtype::A);
        assert_eq!((r.rcode, r.aa), (Rcode::REFUSED, false), "{qname}");
        assert!(r.answer.is_empty() && r.authority.is_empty());
    }
    for rtype in [Rtype::AXFR, Rtype::IXFR] {
        assert_eq!(lab.ask("example.com.", rtype).rcode, Rcode::REFUSED);
    }
    assert_eq!(
        Lab::new(base(vec![])).ask("example.com.", Rtype::A).rcode,
        Rcode::REFUSED
    );
}

#[test]
fn wildcards_take_the_question_name() {
    let mut lab = Lab::new(example());
    for qname in [
        "a.wild.example.com",
        "Some.Long.Name.Below.wild.example.com",
        "*.wild.example.com",
    ] {
        let dotted = format!("{qname}.");
        assert_eq!(
            lab.ask(&dotted, Rtype::A).answer,
            [format!("{qname} 300 A 192.0.2.3")]
        );
        // The exchange name is compressed against the question, whose length differs from the wildcard's.
        let mx = lab.ask(&dotted, Rtype::MX).answer;
        assert_eq!(mx.len(), 1);
        assert!(
            mx[0].eq_ignore_ascii_case(&format!("{qname} 300 MX 5 mail.wild.example.com.")),
            "{mx:?}"
        );
        let r = lab.ask(&dotted, Rtype::TXT);
        assert_eq!((r.rcode, r.authority.len()), (Rcode::NOERROR, 1));
        assert!(r.authority[0].eq_ignore_ascii_case(SOA), "{:?}", r.authority);
    }
}

#[test]
fn cname_chains() {
    let mut lab = Lab::new(example());
    let alias = "alias.example.com 300 CNAME www.example.com.";
    let r = lab.ask("alias.example.com.", Rtype::A);
    assert_eq!(r.answer, [alias, "www.example.com 300 A 192.0.2.1"]);
    assert_eq!(lab.ask("alias.example.com.", Rtype::CNAME).answer, [alias]);
    let r = lab.ask("alias2.example.com.", Rtype::TXT);
    assert_eq!(
        r.answer,
        [
            "alias2.example.com 300 CNAME alias.example.com.",
            alias,
            "www.example.com 300 TXT \"hello\""
        ]
    );
    let r = lab.ask("alias.example.com.", Rtype::SRV);
    assert_eq!(
        (r.rcode, &r.answer[..], &r.authority[..]),
        (Rcode::NOERROR, &[alias.to_string()][..], &[SOA.to_string()][..])
    );
    let r = lab.ask("gone.example.com.", Rtype::A);
    assert_eq!(
        (r.rcode, r.answer.len(), r.authority.len()),
        (Rcode::NXDOMAIN, 1, 1)
    );
    let r = lab.ask("out.example.com.", Rtype::A);
    assert_eq!(
        (r.rcode, r.answer.len(), r.authority.len()),
        (Rcode::NOERROR, 1, 0)
    );
    let r = lab.ask("loop1.example.com.", Rtype::A);
    assert_eq!((r.rcode, r.answer.len()), (Rcode::NOERROR, 2));
    let r = lab.ask("towild.example.com.", Rtype::A);
    assert_eq!(r.answer[1], "x.y.wild.example.com 300 A 192.0.2.3");
}

#[test]
fn cuts_are_referred_with_glue() {
    let mut lab = Lab::new(example());
    for qname in [
        "child.example.com.",
        "www.child.example.com.",
        "ns.child.example.com.",
    ] {
        let r = lab.ask(qname, Rtype::A);
        assert_eq!(
            (r.rcode, r.aa, r.counter),
            (Rcode::NOERROR, false, Counter::DnsReferral),
            "{qname}"
        );
        assert!(r.answer.is_empty());
        assert_eq!(r.authority, ["child.example.com 300 NS ns.child.example.com."]);
        assert_eq!(r.additional, ["ns.child.example.com 300 A 192.0.2.99"]);
    }
    let r = lab.ask("child.example.com.", Rtype::DS);
    assert_eq!((r.aa, &r.authority[..]), (true, &[SOA.to_string()][..]));
}

#[test]
fn a_referral_without_room_for_its_glue_is_truncated() {
    // 40 addresses of 16 bytes do not fit 512 bytes; RFC 9471 section 3.1.
    let glue: Vec<u8> = (1..=40).collect();
    let mut lab = Lab::new(base(vec![zone(
        "example.com.",
        vec![
            target("own.example.com.", 2, "ns.own.example.com."),
            a("ns.own.example.com.", &glue),
            target("sibling.example.com.", 2, "ns.own.example.com."),
            target("alias.example.com.", 5, "www.own.example.com."),
        ],
    )]));
    for (qname, truncated) in [
        ("x.own.example.com.", true),
        ("alias.example.com.", true),
        // That address is below another cut: whoever resolves can ask for it.
        ("x.sibling.example.com.", false),
    ] {
        let client = Client::V4([203, 0, 113, 1]);
        let (bytes, outcome) = lab.raw(&query(qname, Rtype::A, None), client, Transport::Udp);
        let r = Reply::read(&bytes, outcome);
        assert_eq!((r.tc, r.additional.len()), (truncated, 0), "{qname}");
        assert_eq!(r.authority.is_empty(), truncated, "{qname}");
        let (bytes, outcome) = lab.raw(
            &query(qname, Rtype::A, None),
            client,
            Transport::Tcp { keepalive: 100 },
        );
        assert_eq!(
            Reply::read(&bytes, outcome).additional.len(),
            40,
            "{qname} with room"
        );
    }
}

#[test]
fn size_limits_truncate_whole_sets() {
    let mut lab = Lab::new(example());
    // 60 addresses: 12 + 21 + 60 * 16 = 993 bytes.
    let r = lab.ask("big.example.com.", Rtype::A);
    assert_eq!((r.tc, r.answer.len(), r.len), (true, 0, 33));
    for (size, fits) in [
        (0, false),
        (512, false),
        (1003, false),
        (1004, true),
        (1232, true),
        (65535, true),
    ] {
        let (bytes, outcome) = lab.raw(
            &query("big.example.com.", Rtype::A, Some(size)),
            Client::V4([1; 4]),
            Transport::Udp,
        );
        let r = Reply::read(&bytes, outcome);
        assert_eq!(
            (r.tc, r.answer.len(), r.opt),
            (!fits, if fits { 60 } else { 0 }, true),
            "{size}"
        );
    }
    let (bytes, outcome) = lab.raw(
        &query("big.example.com.", Rtype::A, None),
        Client::V4([1; 4]),
        Transport::Tcp { keepalive: 100 },
    );
    assert_eq!(Reply::read(&bytes, outcome).answer.len(), 60);
}

#[test]
fn any_gets_one_hinfo() {
    let r = Lab::new(example()).ask("www.example.com.", Rtype::ANY);
    assert_eq!(r.answer, ["www.example.com 3600 HINFO \"RFC8482\" \"\""]);
}

#[test]
fn malformed_queries() {
    let mut lab = Lab::new(example());
    let good = query("www.example.com.", Rtype::A, Some(1232));
    let client = Client::V4([203, 0, 113, 1]);
    let mut ask = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut q = good.clone();
        change(&mut q);
        lab.raw(&q, client, Transport::Udp)
    };
    let counter = |o: &Outcome| match o {
        Outcome::Reply { counter, .. } | Outcome::Drop(counter) => *counter,
    };
    // (what, change, outcome, questions in the reply, OPT in the reply)
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let cases: Vec<(&str, Change, Counter, u8, u8)> = vec![
        (
            "QR set",
            Box::new(|q| q[2] |= 0x80),
            Counter::DropDnsResponse,
            0,
            0,
        ),
        (
            "11 bytes",
            Box::new(|q| q.truncate(11)),
            Counter::DropDnsShort,
            0,
            0,
        ),
        (
            "header only",
            Box::new(|q| q.truncate(12)),
            Counter::DnsFormerr,
            0,
            0,
        ),
        (
            "QDCOUNT 0 with OPT",
            Box::new(|q| {
                q[5] = 0;
                q.drain(12..33);
            }),
            Counter::DnsFormerr,
            0,
            1,
        ),
        ("QDCOUNT 2", Box::new(|q| q[5] = 2), Counter::DnsFormerr, 0, 0),
        (
            "name cut",
            Box::new(|q| q.truncate(20)),
            Counter::DnsFormerr,
            0,
            0,
        ),
        (
            "type cut",
            Box::new(|q| q.truncate(30)),
            Counter::DnsFormerr,
            0,
            0,
        ),
        (
            "label type 10",
            Box::new(|q| q[12] = 0x83),
            Counter::DnsFormerr,
            0,
            0,
        ),
        (
            "pointer to itself",
            Box::new(|q| {
                q[12] = 0xc0;
                q[13] = 12;
            }),
            Counter::DnsFormerr,
            0,
            0,
        ),
        (
            "opcode STATUS",
            Box::new(|q| q[2] |= 0x10),
            Counter::DnsNotimp,
            1,
            1,
        ),
        (
            "opcode UPDATE",
            Box::new(|q| q[2] |= 0x28),
            Counter::DnsNotimp,
            1,
            1,
        ),
        ("class CH", Box::new(|q| q[32] = 3), Counter::DnsRefused, 1, 1),
        (
            "ARCOUNT above data",
            Box::new(|q| q[11] = 2),
            Counter::DnsFormerr,
            1,
            1,
        ),
        (
            "OPT version 1",
            Box::new(|q| {
                let n = q.len();
                q[n - 5] = 1;
            }),
            Counter::DnsBadvers,
            1,
            1,
        ),
        (
            "OPT RDLEN too long",
            Box::new(|q| {
                let n = q.len();
                q[n - 1] = 4;
            }),
            Counter::DnsFormerr,
            1,
            0,
        ),
        (
            "two OPT",
            Box::new(|q| {
                q[11] = 2;
                let opt = q[33..].to_vec();
                q.extend(opt);
            }),
            Counter::DnsFormerr,
            1,
            1,
        ),
        (
            "trailing bytes",
            Box::new(|q| q.extend([0xff; 20])),
            Counter::DnsAnswer,
            1,
            1,
        ),
        (
            "Z, AD and CD set",
            Box::new(|q| q[3] |= 0x70),
            Counter::DnsAnswer,
            1,
            1,
        ),
        (
            "TC, AA and RCODE set",
            Box::new(|q| {
                q[2] |= 0x06;
                q[3] |= 5;
            }),
            Counter::DnsAnswer,
            1,
            1,
        ),
    ];
    for (what, change, want, questions, opt) in cases {
        let (reply, outcome) = ask(&*change);
        assert_eq!(counter(&outcome), want, "{what}");
        if let Outcome::Reply { len, .. } = outcome {
            assert_eq!((reply[5], reply[11]), (questions, opt), "{what}");
            assert_eq!(
                len,
                if want == Counter::DnsAnswer {
                    33 + 16 + 11
                } else {
                    // An extended error (RFC 8914) says what is not supported, or not served.
                    let explained = matches!(want, Counter::DnsNotimp | Counter::DnsRefused);
                    12 + questions as usize * 21 + opt as usize * (11 + usize::from(explained) * 6)
                },
                "{what}"
            );
            assert!(
                Message::from_octets(&reply[..]).unwrap().sections().is_ok(),
                "{what}"
            );
        }
    }
}

#[test]
fn a_zero_byte_in_a_label_is_not_the_end_of_a_name() {
    let mut lab = Lab::new(example());
    // The label "w\0w" below example.com: valid on the wire, not served.
    let mut q = query("www.example.com.", Rtype::A, Some(1232));
    q[14] = 0;
    let (reply, outcome) = lab.raw(&q, Client::V4([1; 4]), Transport::Udp);
    assert!(
        matches!(
            outcome,
            Outcome::Reply {
                counter: Counter::DnsNxdomain,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(reply[12..29], q[12..29]);
}

#[test]
fn a_subnet_inside_a_name_is_none() {
    let mut lab = Lab::new(with_service(|c| {
        // One label whose bytes look, behind their first zero byte, like a type, a class and an OPT record with a
        // client subnet in ISP one.
        let mut label =
            b"ab\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\x0b\0\x08\0\x07\0\x01\x18\0\x0a\x01\x07".to_vec();
        label.insert(0, label.len() as u8);
        label.extend_from_slice(name("example.com.").as_slice());
        c.services[0].name = DName::from_octets(label).unwrap();
    }));
    let mut q = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    q.extend_from_slice(lab.compiled.index.config.services[0].name.as_slice());
    q.extend([0, 1, 0, 1]);
    // ARCOUNT 1, so that the wrong end of the name parses clean; the whole message has an OPT of its own.
    q[11] = 1;
    q.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let (bytes, outcome) = lab.raw(&q, Client::V4([10, 2, 0, 1]), Transport::Udp);
    let got = addresses(&Reply::read(&bytes, outcome));
    assert!(
        got.iter().all(|a| a.starts_with("198.51.100.1") && a.len() == 13),
        "ISP two by its own address: {got:?}"
    );
}

pub(super) fn addresses(r: &Reply) -> Vec<String> {
    r.answer
        .iter()
        .map(|l| l.rsplit(' ').next().unwrap().to_string())
        .collect()
}

#[test]
fn a_service_answers_from_the_clients_isp() {
    let mut lab = Lab::new(with_service(|_| {}));
    for (client, want) in [
        (Client::V4([10, 1, 2, 3]), ["198.51.100.1", "198.51.100.2"]),
        (Client::V4([10, 2, 2, 3]), ["198.51.100.11", "198.51.100.12"]),
        (
            Client::V6([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]),
            ["198.51.100.1", "198.51.100.2"],
        ),
    ] {
        let r = lab.ask_from("vod.example.com.", Rtype::A, client);
        let mut got = addresses(&r);
        got.sort();
        let mut want = want.map(String::from).to_vec();
        want.sort();
        assert_eq!(got, want, "{client:?}");
        assert!(r.answer[0].starts_with("vod.example.com 30 A "));
    }
    // NODATA for what the service has not, never NXDOMAIN.
    for rtype in [Rtype::AAAA, Rtype::TXT, Rtype::MX, Rtype::HTTPS] {
        let r = lab.ask("vod.example.com.", rtype);
        assert_eq!(
            (r.rcode, r.answer.len(), &r.authority[..]),
            (Rcode::NOERROR, 0, &[SOA.to_string()][..])
        );
    }
    let r = lab.ask_from("tovod.example.com.", Rtype::A, Client::V4([10, 2, 0, 1]));
    assert_eq!(r.answer[0], "tovod.example.com 300 CNAME vod.example.com.");
    assert!(
        r.answer[1].starts_with("vod.example.com 30 A 198.51.100.1"),
        "{r:?}"
    );
    assert_eq!(r.answer.len(), 3);
}

#[test]
fn round_robin_skips_nobody_however_the_query_is_written() {
    let long = "a-service-with-a-name-of-many-bytes.example.com.";
    let mut lab = Lab::new(with_service(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Static];
        c.services[0].answers = 1;
        c.services[0].members.truncate(2);
        let mut second = c.services[0].clone();
        second.name = name(long);
        c.services.push(second);
    }));
    // A record behind the OPT record, as TSIG is: the query is read by every step.
    let mut signed = query("vod.example.com.", Rtype::A, Some(1232));
    signed[11] = 2;
    signed.extend(b"\x01k\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x00");
    for query in [query(long, Rtype::A, None), signed] {
        let mut ask = || {
            let (bytes, outcome) = lab.raw(&query, Client::V4([203, 0, 113, 1]), Transport::Udp);
            addresses(&Reply::read(&bytes, outcome))
        };
        let [first, second, third] = [ask(), ask(), ask()];
        assert_ne!(first, second);
        assert_eq!(first, third);
    }
}

#[test]
fn round_robin_gives_each_member_the_same_number_of_times() {
    let mut lab = Lab::new(with_service(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Static]
    }));
    let mut counts: HashMap<String, u32> = HashMap::new();
    for _ in 0..500 {
        let got = addresses(&lab.ask("vod.example.com.", Rtype::A));
        assert_eq!(got.len(), 2);
        assert_ne!(got[0], got[1]);
        for address in got {
            *counts.entry(address).or_default() += 1;
        }
    }
    // 500 answers of 2 over 5 members: 200 each, exactly.
    assert_eq!(counts.len(), 5);
    assert!(counts.values().all(|&n| n == 200), "{counts:?}");
}

#[test]
fn classes_that_take_turns_do_not_skew_each_other() {
    // Clients of two ISPs alternate, each with a tier of two members: with one position for both, each query would
    // find the position where the other class left it, and always give the same member.
    let mut lab = Lab::new(with_service(|c| c.services[0].answers = 1));
    let mut counts: HashMap<String, u32> = HashMap::new();
    for _ in 0..100 {
        for client in [[10, 1, 0, 1], [10, 2, 0, 1]] {
            for address in addresses(&lab.ask_from("vod.example.com.", Rtype::A, Client::V4(client))) {
                *counts.entry(address).or_default() += 1;
            }
        }
    }
    // 100 answers of one over two members, twice.
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert!(counts.values().all(|&n| n == 50), "{counts:?}");
}

#[test]
fn weights_are_shares() {
    let mut lab = Lab::new(with_service(|c| {
        c.services[0].chain = vec![Metric::Health, Metric::Static];
        c.services[0].spread = Spread::Weighted;
        c.services[0].answers = 1;
        for (member, weight) in c.services[0].members.iter_mut().zip([100, 1, 0, 49, 50]) {
            member.weight = weight;
        }
    }));
    let mut counts: HashMap<String, i64> = HashMap::new();
    let n = 40_000;
    for _ in 0..n {
        for address in addresses(&lab.ask("vod.example.com.", Rtype::A)) {
            *counts.entry(address).or_default() += 1;
        }
    }
    // Shares of 200; five standard deviations of the binomial.
    for (address, weight) in [
        ("198.51.100.1", 100),
        ("198.51.100.2", 1),
        ("198.51.100.12", 49),
        ("198.51.100.21", 50),
    ] {
        let p = weight as f64 / 200.0;
        let (mean, sd) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        let got = counts[address] as f64;
        assert!(
            (got - mean).abs() < 5.0 * sd,
            "{address}: {got}, expected {mean} +- {sd}"
        );
    }
    assert!(!counts.contains_key("198.51.100.11"));
}

#[test]
fn dead_members_are_never_given_while_one_lives() {
    // Every one of the 32 health states, each client, each answer size.
    for up in 0u8..32 {
        let config = with_service(|_| {});
        let members = config.services[0].members.clone();
        let alive = |t: &Target| {
            members
                .iter()
                .position(|m| m.address == t.address)
                .is_some_and(|i| up >> i & 1 == 1)
        };
        let mut lab = Lab::with_health(config.clone(), alive);
        for (isp, client) in [
            (Some(0), [10, 1, 0, 1]),
            (Some(1), [10, 2, 0, 1]),
            (None, [192, 0, 2, 9]),
        ] {
            // The reference: live members, the client's ISP if it has one alive, all of them equal.
            let live: Vec<&Member> = members
                .iter()
                .filter(|m| {
                    alive(&Target {
                        address: m.address,
                        check: None,
                    })
                })
                .collect();
            let own: Vec<&Member> = live
                .iter()
                .copied()
                .filter(|m| isp.is_some() && config.sites[m.site].isp == isp)
                .collect();
            let want = if own.is_empty() { live.clone() } else { own };
            let mut seen = HashSet::new();
            for _ in 0..12 {
                let got = addresses(&lab.ask_from("vod.example.com.", Rtype::A, Client::V4(client)));
                seen.extend(got);
            }
            let want: HashSet<String> = want.iter().map(|m| m.address.to_string()).collect();
            if !want.is_empty() {
                assert_eq!(seen, want, "up {up:05b}, client {client:?}");
            }
        }
    }
}

#[test]
fn all_down_follows_the_rule_of_the_service() {
    let fixed = AllDown::Fixed(vec![IpAddr::from([203, 0, 113, 9])]);
    for (rule, want) in [
        (AllDown::Open, vec!["198.51.100.1", "198.51.100.2"]),
        // Nothing was ever up: all of them, still the client's own ISP first.
        (AllDown::LastGood, vec!["198.51.100.1", "198.51.100.2"]),
        (AllDown::Closed, vec![]),
        (fixed, vec!["203.0.113.9"]),
    ] {
        let mut lab = Lab::with_health(
            with_service(|c| c.services[0].when_all_down = rule.clone()),
            |_| false,
        );
        let r = lab.ask_from("vod.example.com.", Rtype::A, Client::V4([10, 1, 0, 1]));
        let mut got = addresses(&r);
        got.sort();
        assert_eq!(got, want, "{rule:?}");
        assert_eq!(r.rcode, Rcode::NOERROR);
        if want.is_empty() {
            assert_eq!(r.authority, [SOA]);
        }
    }
}

pub(super) fn with_subnet(qname: &str, family: u8, source: u8, address: &[u8]) -> Vec<u8> {
    let mut q = query(qname, Rtype::A, Some(1232));
    let n = q.len();
    q[n - 1] = 8 + address.len() as u8;
    q.extend([0, 8, 0, 4 + address.len() as u8, 0, family, source, 0]);
    q.extend(address);
    q
}

#[test]
fn a_service_may_leave_client_subnets_alone() {
    let mut lab = Lab::new(with_service(|config| {
        let mut own = config.services[0].clone();
        own.name = name("own.example.com.");
        own.ecs = false;
        config.services.push(own);
    }));
    // Of the resolver, 10.2/16, and of the subnet, 10.1/16.
    let (by_source, by_subnet) = (
        ["198.51.100.11", "198.51.100.12"],
        ["198.51.100.1", "198.51.100.2"],
    );
    let resolver = Client::V4([10, 2, 0, 1]);
    for (service, want, scope) in [("own", by_source, 0), ("vod", by_subnet, 16)] {
        let query = with_subnet(&format!("{service}.example.com."), 1, 24, &[10, 1, 7]);
        let (bytes, outcome) = lab.raw(&query, resolver, Transport::Udp);
        let r = Reply::read(&bytes, outcome);
        assert!(
            addresses(&r).iter().all(|a| want.contains(&&**a)),
            "{service} {r:?}"
        );
        let option = &bytes[bytes.len() - 11..];
        assert_eq!(option, [0, 8, 0, 7, 0, 1, 24, scope, 10, 1, 7], "{service}");
    }
    // Behind an alias as well.
    let config = with_service(|config| config.services[0].ecs = false);
    let mut lab = Lab::new(config);
    let query = with_subnet("tovod.example.com.", 1, 24, &[10, 1, 7]);
    let (bytes, outcome) = lab.raw(&query, resolver, Transport::Udp);
    let r = Reply::read(&bytes, outcome);
    assert!(
        addresses(&r)[1..].iter().all(|a| by_source.contains(&&**a)),
        "{r:?}"
    );
    assert_eq!(bytes[bytes.len() - 4], 0, "{r:?}");
}

#[test]
fn client_subnet_chooses_and_its_scope_is_true() {
    let mut lab = Lab::new(with_service(|_| {}));
    let far = Client::V4([203, 0, 113, 1]);
    // (source length, address, members of the answer, scope): 10.1/16 and 10.2/16 differ from their neighbours at bit 16.
    for (source, address, want, scope) in [
        (24, &[10u8, 1, 7][..], Some(["198.51.100.1", "198.51.100.2"]), 16),
        (16, &[10, 2], Some(["198.51.100.11", "198.51.100.12"]), 16),
        (8, &[10], None, 16),
        (24, &[192, 0, 2], None, 1),
        (0, &[], None, 0),
    ] {
        let (bytes, outcome) = lab.raw(
            &with_subnet("vod.example.com.", 1, source, address),
            far,
            Transport::Udp,
        );
        let r = Reply::read(&bytes, outcome);
        if let Some(want) = want {
            assert!(
                addresses(&r).iter().all(|a| want.contains(&&**a)),
                "{source} {address:?} {r:?}"
            );
        }
        let option = &bytes[bytes.len() - 8 - address.len()..];
        assert_eq!(
            option[..8],
            [0, 8, 0, 4 + address.len() as u8, 0, 1, source, scope],
            "{address:?}"
        );
        assert_eq!(&option[8..], address);
    }
    // The next query has no subnet: its own source address counts again.
    let r = lab.ask_from("vod.example.com.", Rtype::A, Client::V4([10, 2, 0, 1]));
    assert!(
        addresses(&r).iter().all(|a| a.starts_with("198.51.100.1")),
        "{r:?}"
    );
    // An answer that does not depend on the client has scope 0.
    let (bytes, _) = lab.raw(
        &with_subnet("www.example.com.", 1, 24, &[10, 1, 7]),
        far,
        Transport::Udp,
    );
    assert_eq!(bytes[bytes.len() - 11..], [0, 8, 0, 7, 0, 1, 24, 0, 10, 1, 7]);
}

proptest::proptest! {
    /// Any bytes: no panic, and what comes out is a message that an independent parser reads to its end.
    #[test]
    fn any_bytes_get_a_readable_reply_or_none(
        mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        cut in 0usize..80,
        flips in proptest::collection::vec((0usize..80, proptest::prelude::any::<u8>()), 0..4),
        mutate in proptest::prelude::any::<bool>(),
    ) {
        thread_local! {
            static LAB: std::cell::RefCell<Lab> = std::cell::RefCell::new(Lab::new(with_service(|_| {})));
        }
        if mutate {
            bytes = with_subnet("vod.example.com.", 1, 24, &[10, 1, 7]);
            for (at, value) in flips {
                if let Some(b) = bytes.get_mut(at) {
                    *b = value;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(40)));
        } else if let Some(b) = bytes.get_mut(2) {
            *b &= 0x07;
        }
        LAB.with_borrow_mut(|lab| {
            let (reply, outcome) = lab.raw(&bytes, Client::V4([10, 1, 0, 1]), Transport::Udp);
            match outcome {
                Outcome::Drop(reason) => assert!(
                    matches!(reason, Counter::DropDnsShort | Counter::DropDnsResponse),
                    "{reason:?}"
                ),
                Outcome::Reply { len, .. } => {
                    assert!((12..=1232).contains(&len));
                    assert_eq!(reply[..2], bytes[..2]);
                    assert_eq!(reply[2] & 0x80, 0x80);
                    let message = Message::from_octets(&reply[..]).unwrap();
                    let (_, _, _, additional) = message.sections().unwrap();
                    for record in additional {
                        record.unwrap();
                    }
                }
            }
        });
    }
}
