//! The engine over generated zones against a slow, plain reading of RFC 1034 section 4.3.2 as clarified by RFC 4592
//! (wildcards) and RFC 2308 (negative answers). What Windrose decides where the RFCs leave room: ANY gets one
//! HINFO (RFC 8482), a chain of CNAMEs is followed eight long, and ends without a referral at a zone cut.

use crate::lab::{base, name, set, target, zone};
use control::config::model::*;
use control::policy::Compiler;
use dataplane::link::WordTarget;
use dataplane::stages::dns_answer::{Client, Engine, Located, Outcome, Silent, Transport};
use domain::base::Message;
use domain::base::iana::{Rcode, Rtype};
use domain::base::message::RecordSection;
use domain::rdata::AllRecordData;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Zones that may be served: the first always is.
const APEXES: [&str; 5] = [
    "example.com.",
    "s.example.com.",
    "b.a.example.com.",
    "c.b.a.example.com.",
    "example.net.",
];
const CNAMES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Data {
    A(u8),
    Txt(u8),
    Mx(String),
    Ns(String),
    Cname(String),
    /// IPv4 and IPv6 members.
    Service(u8, u8),
}

/// Owner names with their data, all zones together; a name belongs to the deepest zone.
#[derive(Clone, Debug)]
struct World {
    apexes: Vec<&'static str>,
    names: BTreeMap<String, BTreeSet<Data>>,
}

fn below_or_at(name: &str, ancestor: &str) -> bool {
    name == ancestor || name.ends_with(&format!(".{ancestor}"))
}

/// The name without its first label.
fn parent(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, rest)| rest)
}

/// From the name up to and with the apex.
fn up_to<'a>(name: &'a str, apex: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(name), |n| Some(parent(n))).take_while(move |n| below_or_at(n, apex))
}

impl World {
    fn new(served: [bool; 4], records: Vec<(String, Data)>) -> Self {
        let apexes = APEXES
            .into_iter()
            .enumerate()
            .filter(|&(i, _)| i == 0 || served[i - 1])
            .map(|(_, apex)| apex)
            .collect();
        let mut world = Self {
            apexes,
            names: BTreeMap::new(),
        };
        for (owner, data) in records {
            let Some(apex) = world.zone_of(&owner) else {
                continue;
            };
            let there = world.names.entry(owner.clone()).or_default();
            let alone = |d: &Data| matches!(d, Data::Cname(_) | Data::Service(..));
            let allowed = match data {
                // A CNAME stands alone and not at an apex; addresses of a service are chosen, not written.
                Data::Cname(_) => there.is_empty() && owner != apex,
                Data::Service(..) => there.is_empty() && !owner.starts_with("*."),
                Data::Ns(_) => owner != apex && !owner.starts_with("*.") && !there.iter().any(alone),
                _ => !there.iter().any(alone),
            };
            if allowed {
                there.insert(data);
            }
        }
        world.names.retain(|_, data| !data.is_empty());
        // A service that would lie at or below a cut is refused by the configuration.
        let cut: Vec<String> = world
            .names
            .keys()
            .filter(|n| world.cut_above(n).is_some())
            .cloned()
            .collect();
        for name in cut {
            if let Some(data) = world.names.get_mut(&name) {
                data.retain(|d| !matches!(d, Data::Service(..)));
            }
        }
        world.names.retain(|_, data| !data.is_empty());
        world
    }

    fn zone_of(&self, name: &str) -> Option<&'static str> {
        self.apexes
            .iter()
            .copied()
            .filter(|apex| below_or_at(name, apex))
            .max_by_key(|apex| apex.len())
    }

    fn has_ns(&self, name: &str) -> bool {
        self.names
            .get(name)
            .is_some_and(|data| data.iter().any(|d| matches!(d, Data::Ns(_))))
    }

    /// The highest zone cut at or above a name within its zone.
    fn cut_above<'a>(&self, name: &'a str) -> Option<&'a str> {
        let apex = self.zone_of(name)?;
        up_to(name, apex).filter(|n| *n != apex && self.has_ns(n)).last()
    }

    /// A name exists when data stands at it or below it (RFC 4592 section 2.2.2).
    fn exists(&self, name: &str) -> bool {
        self.names.keys().any(|n| below_or_at(n, name)) || self.apexes.iter().any(|a| below_or_at(a, name))
    }

    fn config(&self) -> Config {
        let mut zones = Vec::new();
        for apex in &self.apexes {
            let mut sets = Vec::new();
            for (owner, data) in self.names.iter().filter(|(n, _)| self.zone_of(n) == Some(apex)) {
                let all = |pick: &dyn Fn(&Data) -> Option<Vec<u8>>| -> Vec<Vec<u8>> {
                    data.iter().filter_map(pick).collect()
                };
                let wire = |n: &String| name(n).as_slice().to_vec();
                for (rtype, rdata) in [
                    (
                        1,
                        all(&|d| {
                            if let Data::A(n) = d {
                                Some(vec![192, 0, 2, *n])
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        16,
                        all(&|d| {
                            if let Data::Txt(n) = d {
                                Some(vec![1, *n])
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        15,
                        all(&|d| {
                            if let Data::Mx(n) = d {
                                Some([vec![0, 10], wire(n)].concat())
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        2,
                        all(&|d| if let Data::Ns(n) = d { Some(wire(n)) } else { None }),
                    ),
                    (
                        5,
                        all(&|d| {
                            if let Data::Cname(n) = d {
                                Some(wire(n))
                            } else {
                                None
                            }
                        }),
                    ),
                ] {
                    if !rdata.is_empty() {
                        sets.push(set(owner, rtype, rdata));
                    }
                }
            }
            // What lies in a child zone is no business of the parent, though it may say so.
            if *apex == "example.com." && self.apexes.contains(&"s.example.com.") {
                sets.push(target("s.example.com.", 2, "ns1.s.example.com."));
                sets.push(target("occluded.s.example.com.", 5, "example.com."));
            }
            zones.push(zone(apex, sets));
        }
        let mut config = base(zones);
        config.sites = vec![Site {
            name: "s".into(),
            isp: None,
            location: None,
            preference: 128,
        }];
        for (owner, data) in &self.names {
            for d in data {
                let Data::Service(v4, v6) = *d else { continue };
                let v4 = (0..v4).map(|n| IpAddr::from([198, 51, 100, n]));
                let v6 = (0..v6).map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n) + 1]));
                config.services.push(Service {
                    name: name(owner),
                    ttl: 30,
                    answers: 16,
                    chain: vec![Metric::Health, Metric::Static],
                    spread: Spread::RoundRobin,
                    when_all_down: AllDown::Closed,
                    members: v4
                        .chain(v6)
                        .map(|address| Member {
                            address,
                            site: 0,
                            weight: 1,
                        })
                        .collect(),
                    preference: vec![],
                    check: None,
                });
            }
        }
        config
    }

    /// Data of one type at a node, as records of `owner`.
    fn records(&self, node: &str, owner: &str, rtype: Rtype) -> Vec<String> {
        let mut out = Vec::new();
        if self.apexes.contains(&node) {
            match rtype {
                Rtype::SOA => out.push(soa(node, 300)),
                Rtype::NS => out.push(record(owner, 300, &format!("NS ns1.{node}"))),
                _ => {}
            }
        }
        for data in self.names.get(node).into_iter().flatten() {
            match (data, rtype) {
                (Data::A(n), Rtype::A) => out.push(record(owner, 300, &format!("A 192.0.2.{n}"))),
                (Data::Txt(n), Rtype::TXT) => {
                    out.push(record(owner, 300, &format!("TXT \"{}\"", *n as char)))
                }
                (Data::Mx(n), Rtype::MX) => out.push(record(owner, 300, &format!("MX 10 {n}"))),
                (Data::Ns(n), Rtype::NS) => out.push(record(owner, 300, &format!("NS {n}"))),
                (Data::Cname(n), Rtype::CNAME) => out.push(record(owner, 300, &format!("CNAME {n}"))),
                (Data::Service(v4, _), Rtype::A) => {
                    out.extend((0..*v4).map(|n| record(owner, 30, &format!("A 198.51.100.{n}"))));
                }
                (Data::Service(_, v6), Rtype::AAAA) => {
                    out.extend((1..=*v6).map(|n| record(owner, 30, &format!("AAAA 2001:db8::{n}"))));
                }
                _ => {}
            }
        }
        out
    }

    /// RFC 1034 section 4.3.2.
    fn reference(&self, qname: &str, qtype: Rtype) -> Reply {
        let mut reply = Reply {
            rcode: Rcode::NOERROR,
            aa: true,
            answer: BTreeSet::new(),
            authority: BTreeSet::new(),
        };
        let mut owner = qname.to_string();
        let mut seen = HashSet::new();
        for cnames in 0.. {
            // Step 2: the nearest zone.
            let Some(apex) = self.zone_of(&owner) else {
                if cnames == 0 {
                    (reply.rcode, reply.aa) = (Rcode::REFUSED, false);
                }
                return reply;
            };
            // Step 3b: a referral.
            if let Some(cut) = self.cut_above(&owner) {
                if cnames > 0 {
                    return reply;
                }
                if cut == owner && qtype == Rtype::DS {
                    reply.authority.insert(soa(apex, 60));
                    return reply;
                }
                reply.aa = false;
                reply.authority.extend(self.records(cut, cut, Rtype::NS));
                return reply;
            }
            // Steps 3a and 3c: the node, or the asterisk at the closest encloser.
            let node = if self.exists(&owner) {
                owner.clone()
            } else {
                let encloser = up_to(parent(&owner), apex).find(|n| self.exists(n)).unwrap();
                let wildcard = format!("*.{encloser}");
                if !self.exists(&wildcard) {
                    reply.rcode = Rcode::NXDOMAIN;
                    reply.authority.insert(soa(apex, 60));
                    return reply;
                }
                wildcard
            };
            if cnames == 0 {
                // A loop ends when it comes back to the node that it began at.
                seen.insert(node.clone());
            }
            let alias = self.names.get(&node).into_iter().flatten().find_map(|d| match d {
                Data::Cname(to) => Some(to.clone()),
                _ => None,
            });
            if qtype == Rtype::ANY && alias.is_none() && (self.names.contains_key(&node) || node == apex) {
                reply
                    .answer
                    .insert(record(&owner, 3600, "HINFO \"RFC8482\" \"\""));
                return reply;
            }
            if let Some(to) = alias {
                if cnames == CNAMES_MAX {
                    return reply;
                }
                reply.answer.extend(self.records(&node, &owner, Rtype::CNAME));
                if matches!(qtype, Rtype::CNAME | Rtype::ANY) || !seen.insert(to.clone()) {
                    return reply;
                }
                owner = to;
                continue;
            }
            let records = self.records(&node, &owner, qtype);
            if records.is_empty() {
                reply.authority.insert(soa(apex, 60));
            }
            reply.answer.extend(records);
            return reply;
        }
        unreachable!()
    }
}

fn record(owner: &str, ttl: u32, data: &str) -> String {
    format!("{} {ttl} {data}", owner.trim_end_matches('.'))
}

fn soa(apex: &str, ttl: u32) -> String {
    record(
        apex,
        ttl,
        &format!("SOA ns1.{apex} hostmaster.ns1.{apex} 1 3600 600 86400 60"),
    )
}

#[derive(Debug, PartialEq, Eq)]
struct Reply {
    rcode: Rcode,
    aa: bool,
    answer: BTreeSet<String>,
    authority: BTreeSet<String>,
}

fn lines(section: RecordSection<'_, &[u8]>) -> BTreeSet<String> {
    section
        .limit_to::<AllRecordData<_, _>>()
        .map(Result::unwrap)
        .map(|r| {
            let owner = r.owner().to_string();
            let data = if r.rtype() == Rtype::HINFO {
                r.data().to_string()
            } else {
                r.data().to_string().to_ascii_lowercase()
            };
            format!(
                "{} {} {} {data}",
                owner.trim_end_matches('.').to_ascii_lowercase(),
                r.ttl().as_secs(),
                r.rtype()
            )
        })
        .collect()
}

/// The engine over one compiled world.
struct Asked {
    snapshot: dataplane::tables::Snapshot,
    engine: Engine,
}

impl Asked {
    fn new(world: &World) -> Self {
        let mut compiler = Compiler::default();
        let compiled = compiler
            .compile(Arc::new(world.config()), Vec::new(), |_| true, 0)
            .unwrap();
        let mut engine = Engine::new(7);
        for (index, up, fallback) in compiler.slots.lock().unwrap().take_changes() {
            engine
                .chooser
                .words
                .set(WordTarget::Members(index), [up, fallback]);
        }
        Self {
            snapshot: compiled.snapshot,
            engine,
        }
    }

    fn ask(&mut self, qname: &str, qtype: Rtype) -> Reply {
        let query = crate::frames::message(qname, qtype, Some(1232));
        let mut buffer = [0xa5; 8192];
        buffer[..query.len()].copy_from_slice(&query);
        let mut located = Located::default();
        located.locate(&self.snapshot, &buffer, query.len(), Client::V4([203, 0, 113, 1]));
        self.engine.find(&self.snapshot, &mut located);
        let outcome = self.engine.answer(
            &self.snapshot,
            &mut located,
            &mut buffer,
            Transport::Tcp,
            &mut Silent,
        );
        let Outcome::Reply { len, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let message = Message::from_octets(&buffer[..len]).unwrap();
        let (_, answer, authority, additional) = message.sections().unwrap();
        for record in additional {
            record.unwrap();
        }
        assert!(!message.header().tc());
        Reply {
            rcode: message.header().rcode(),
            aa: message.header().aa(),
            answer: lines(answer),
            authority: lines(authority),
        }
    }
}

/// A name of few labels below one of the apexes or beside them.
fn some_name(labels: usize) -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "c", "s", "*"]);
    (
        prop::collection::vec(label, 0..=labels),
        prop::sample::select(APEXES.to_vec()),
    )
        .prop_map(|(labels, apex)| {
            let mut name: String = labels.iter().map(|l| format!("{l}.")).collect();
            name.push_str(apex);
            name
        })
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        4 => (0u8..4).prop_map(Data::A),
        2 => (b'a'..b'd').prop_map(Data::Txt),
        2 => some_name(2).prop_map(Data::Mx),
        2 => some_name(2).prop_map(Data::Ns),
        5 => some_name(2).prop_map(Data::Cname),
        2 => (0u8..3, 0u8..3).prop_filter("a service has members", |(a, b)| a + b > 0)
            .prop_map(|(a, b)| Data::Service(a, b)),
    ]
}

const TYPES: [Rtype; 9] = [
    Rtype::A,
    Rtype::AAAA,
    Rtype::TXT,
    Rtype::MX,
    Rtype::CNAME,
    Rtype::NS,
    Rtype::SOA,
    Rtype::DS,
    Rtype::ANY,
];

fn compare(world: &World, names: &[String]) {
    let mut asked = Asked::new(world);
    for qname in names {
        for qtype in TYPES {
            // The parent of a child zone that is served here answers DS (RFC 4035 section 3.1.4.1): not implemented,
            // since no zone is signed; the child's NODATA stands.
            let got = asked.ask(qname, qtype);
            let want = world.reference(qname, qtype);
            assert_eq!(got, want, "{qname} {qtype} in {world:#?}");
            let upper = asked.ask(&qname.to_ascii_uppercase(), qtype);
            assert_eq!(upper, want, "{qname} {qtype} in upper case");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_engine_answers_as_the_rfcs_do(
        served: [bool; 4],
        records in prop::collection::vec((some_name(3), data()), 0..24),
        names in prop::collection::vec(some_name(4), 12),
    ) {
        let world = World::new(served, records);
        // Every owner, some others, and names outside of all zones.
        let mut names = names;
        names.extend(world.names.keys().cloned());
        names.extend(APEXES.map(String::from));
        names.extend(["com.".into(), ".".into(), "other.org.".into()]);
        compare(&world, &names);
    }
}

#[test]
fn chains_end_where_they_must() {
    // Ten aliases in a row: eight are followed.
    let mut records: Vec<_> = (0..10)
        .map(|n| {
            (
                format!("n{n}.example.com."),
                Data::Cname(format!("n{}.example.com.", n + 1)),
            )
        })
        .collect();
    records.push(("n10.example.com.".into(), Data::A(1)));
    let world = World::new([false; 4], records);
    let names: Vec<String> = (0..=10).map(|n| format!("n{n}.example.com.")).collect();
    compare(&world, &names);
    let reply = world.reference("n0.example.com.", Rtype::A);
    assert_eq!(reply.answer.len(), CNAMES_MAX);
    assert_eq!(world.reference("n2.example.com.", Rtype::A).answer.len(), 9);
}

#[test]
fn an_alias_of_a_service_without_addresses_of_that_type_says_so_with_the_soa() {
    let records = vec![
        ("v4.example.com.".into(), Data::Service(2, 0)),
        ("v6.example.com.".into(), Data::Service(0, 2)),
        ("to4.example.com.".into(), Data::Cname("v4.example.com.".into())),
        ("*.example.net.".into(), Data::Cname("v6.example.com.".into())),
    ];
    let world = World::new([false, false, false, true], records);
    let names = [
        "to4.example.com.",
        "some.example.net.",
        "another-one.example.net.",
    ];
    compare(&world, &names.map(String::from));
    // RFC 2308 section 2.2: without the SOA nobody may keep the answer.
    let reply = world.reference("to4.example.com.", Rtype::AAAA);
    assert_eq!(reply.authority, BTreeSet::from([soa("example.com.", 60)]));
}

#[test]
fn what_lies_between_a_cut_and_a_deeper_zone_is_referred() {
    let records = vec![
        ("a.example.com.".into(), Data::Ns("ns.example.net.".into())),
        ("x.example.com.".into(), Data::Cname("b.a.example.com.".into())),
        ("x.c.b.a.example.com.".into(), Data::A(1)),
    ];
    let world = World::new([false, false, true, false], records);
    let names = [
        "a.example.com.",
        "b.a.example.com.",
        "other.b.a.example.com.",
        "c.b.a.example.com.",
        "x.c.b.a.example.com.",
        "x.example.com.",
    ];
    compare(&world, &names.map(String::from));
    let reply = world.reference("b.a.example.com.", Rtype::A);
    assert_eq!((reply.aa, reply.authority.len()), (false, 1));
}

#[test]
fn any_at_an_empty_non_terminal_is_nodata() {
    let world = World::new([false; 4], vec![("x.ent.example.com.".into(), Data::A(1))]);
    compare(&world, &["ent.example.com.".into()]);
    assert!(world.reference("ent.example.com.", Rtype::ANY).answer.is_empty());
}
