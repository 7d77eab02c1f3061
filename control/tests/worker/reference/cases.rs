//! Generated and chosen zones through compiler and engine, compared with the plain reading.

use super::{APEXES, CNAMES_MAX, Data, Reply, World, lines, soa};
use control::health::Standing;
use control::policy::Compiler;
use dataplane::stages::dns_answer::{Client, Engine, Located, Outcome, Silent, Transport};
use domain::base::Message;
use domain::base::iana::{Rcode, Rtype};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The engine over one compiled world.
struct Asked {
    snapshot: dataplane::tables::Snapshot,
    engine: Engine,
}

impl Asked {
    fn new(world: &World) -> Self {
        let mut compiler = Compiler::default();
        let compiled = compiler
            .compile(Arc::new(world.config()), Vec::new(), |_| Standing::UP, 0)
            .unwrap();
        let mut engine = Engine::new(7);
        for (target, value) in compiler.slots.lock().unwrap().take_changes() {
            engine.chooser.words.set(target, value);
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
            Transport::Tcp { keepalive: 100 },
            &mut Silent,
        );
        let Outcome::Reply { len, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let message = Message::from_octets(&buffer[..len]).unwrap();
        let (_, answer, authority, additional) = message.sections().unwrap();
        assert!(!message.header().tc());
        Reply {
            rcode: message.header().rcode(),
            aa: message.header().aa(),
            answer: lines(answer),
            authority: lines(authority),
            additional: lines(additional),
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
        3 => some_name(2).prop_map(Data::Dname),
        2 => some_name(2).prop_map(Data::Given),
        1 => (0u8..4).prop_map(Data::Ds),
        2 => (0u8..3, 0u8..3).prop_filter("a service has members", |(a, b)| a + b > 0)
            .prop_map(|(a, b)| Data::Service(a, b)),
    ]
}

const TYPES: [Rtype; 10] = [
    Rtype::A,
    Rtype::AAAA,
    Rtype::TXT,
    Rtype::MX,
    Rtype::CNAME,
    Rtype::DNAME,
    Rtype::NS,
    Rtype::SOA,
    Rtype::DS,
    Rtype::ANY,
];

fn compare(world: &World, names: &[String]) {
    let mut asked = Asked::new(world);
    for qname in names {
        for qtype in TYPES {
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

#[test]
fn names_below_a_dname_are_renamed() {
    let long = format!("{}example.com.", "abcdefghijklmno.".repeat(14));
    let records = vec![
        ("d.example.com.".into(), Data::Dname("t.example.com.".into())),
        ("d.example.com.".into(), Data::A(1)),
        ("x.t.example.com.".into(), Data::A(2)),
        ("svc.t.example.com.".into(), Data::Service(2, 0)),
        // Back below the DNAME that led here, and on.
        ("c.t.example.com.".into(), Data::Cname("x.d.example.com.".into())),
        (
            "back.t.example.com.".into(),
            Data::Cname("back.d.example.com.".into()),
        ),
        (
            "cut.t.example.com.".into(),
            Data::Ns("ns.cut.t.example.com.".into()),
        ),
        ("ns.cut.t.example.com.".into(), Data::A(9)),
        ("*.w.t.example.com.".into(), Data::Txt(b'w')),
        ("l1.example.com.".into(), Data::Dname("l2.example.com.".into())),
        ("l2.example.com.".into(), Data::Dname("l1.example.com.".into())),
        (
            "grow.example.com.".into(),
            Data::Dname("a.grow.example.com.".into()),
        ),
        ("out.example.com.".into(), Data::Dname("example.org.".into())),
        ("long.example.com.".into(), Data::Dname(long.clone())),
        ("occluded.d.example.com.".into(), Data::A(3)),
        (
            "alias.example.com.".into(),
            Data::Cname("x.d.example.com.".into()),
        ),
        (
            "tolong.example.com.".into(),
            Data::Cname("abcdefghijklmnopqr.long.example.com.".into()),
        ),
        // A whole zone by another name.
        ("example.net.".into(), Data::Dname("example.com.".into())),
    ];
    let world = World::new([false, false, false, true], records);
    let below = [
        "x.d",
        "svc.d",
        "c.d",
        "back.d",
        "cut.d",
        "www.cut.d",
        "a.w.d",
        "w.d",
        "nope.d",
        "d",
        "t",
        "occluded.d",
    ];
    let others = [
        "x.l1",
        "x.grow",
        "x.out",
        "a.long",
        "abcdefghijklmnopq.long",
        "abcdefghijklmnopqr.long",
        "alias",
        "tolong",
    ];
    let mut names: Vec<String> = below
        .iter()
        .chain(&others)
        .map(|n| format!("{n}.example.com."))
        .collect();
    names.extend(["example.net.", "x.d.example.net.", "tolong.example.net."].map(String::from));
    compare(&world, &names);
    // The reference itself, by hand from RFC 6672 section 3.2.
    let reply = world.reference("x.d.example.com.", Rtype::A);
    let want = [
        "d.example.com 300 DNAME t.example.com.",
        "x.d.example.com 300 CNAME x.t.example.com.",
        "x.t.example.com 300 A 192.0.2.2",
    ];
    assert_eq!(reply.answer, BTreeSet::from(want.map(String::from)));
    let reply = world.reference("abcdefghijklmnopqr.long.example.com.", Rtype::A);
    assert_eq!((reply.rcode, reply.answer.len()), (Rcode::YXDOMAIN, 1));
    // 18 octets before a target of 237 make the longest name.
    let reply = world.reference("abcdefghijklmnopq.long.example.com.", Rtype::A);
    assert_eq!((reply.rcode, reply.answer.len()), (Rcode::NXDOMAIN, 2));
    assert_eq!(
        world.reference("nope.d.example.com.", Rtype::A).rcode,
        Rcode::NXDOMAIN
    );
    assert_eq!(
        world.reference("x.grow.example.com.", Rtype::A).answer.len(),
        1 + CNAMES_MAX
    );
}

#[test]
fn ds_is_the_parents_though_the_child_is_served_too() {
    let records = vec![
        ("s.example.com.".into(), Data::Ds(7)),
        ("alias.example.com.".into(), Data::Cname("s.example.com.".into())),
        ("child.example.com.".into(), Data::Ns("ns.example.net.".into())),
        ("child.example.com.".into(), Data::Ds(8)),
        (
            "tochild.example.com.".into(),
            Data::Cname("child.example.com.".into()),
        ),
        // Zones below a cut and below a DNAME of ours.
        ("a.example.com.".into(), Data::Ns("ns.a.example.com.".into())),
    ];
    let world = World::new([true, true, false, true], records);
    let names =
        ["s", "x.s", "alias", "child", "x.child", "tochild", "a", "b.a"].map(|n| format!("{n}.example.com."));
    compare(&world, &names);
    let reply = world.reference("s.example.com.", Rtype::DS);
    assert_eq!(
        (reply.answer.len(), reply.authority.len(), reply.aa),
        (1, 0, true)
    );
    assert!(!world.reference("b.a.example.com.", Rtype::DS).aa);
}

#[test]
fn ds_goes_by_the_zone_above_to_a_name_that_a_service_gives() {
    // DS of the child's apex is renamed by the DNAME at the parent's; all else is the child's own.
    let records = vec![
        ("example.com.".into(), Data::Dname("example.net.".into())),
        ("s.example.net.".into(), Data::Given("example.com.".into())),
        ("a.s.example.com.".into(), Data::Cname("s.example.com.".into())),
    ];
    let world = World::new([true, false, false, true], records);
    compare(&world, &["a.s.example.com.".into(), "s.example.com.".into()]);
    assert_eq!(world.reference("a.s.example.com.", Rtype::DS).answer.len(), 4);
}

#[test]
fn a_chain_into_a_delegation_ends_with_the_referral() {
    let records = vec![
        ("cut.example.com.".into(), Data::Ns("ns.cut.example.com.".into())),
        (
            "cut.example.com.".into(),
            Data::Ns("ns.sibling.example.com.".into()),
        ),
        ("ns.cut.example.com.".into(), Data::A(1)),
        (
            "sibling.example.com.".into(),
            Data::Ns("ns.sibling.example.com.".into()),
        ),
        ("ns.sibling.example.com.".into(), Data::A(2)),
        (
            "in.example.com.".into(),
            Data::Cname("www.cut.example.com.".into()),
        ),
        ("*.example.net.".into(), Data::Cname("cut.example.com.".into())),
    ];
    let world = World::new([false, false, false, true], records);
    let names = [
        "in.example.com.",
        "cut.example.com.",
        "x.example.net.",
        "longer.example.net.",
    ];
    compare(&world, &names.map(String::from));
    let reply = world.reference("in.example.com.", Rtype::A);
    assert_eq!(
        (
            reply.aa,
            reply.answer.len(),
            reply.authority.len(),
            reply.additional.len()
        ),
        (true, 1, 2, 2)
    );
}

#[test]
fn a_wildcard_that_leads_into_itself_repeats_nothing() {
    let records = vec![
        ("*.w.example.com.".into(), Data::Cname("a.w.example.com.".into())),
        ("*.v.example.com.".into(), Data::Cname("x.example.com.".into())),
        ("x.example.com.".into(), Data::Cname("b.v.example.com.".into())),
    ];
    let world = World::new([false; 4], records);
    compare(
        &world,
        &["a.w", "q.w", "*.w", "b.v", "q.v", "x"].map(|n| format!("{n}.example.com.")),
    );
}
