//! Blobs through the engine: whatever records a blob was built from come out again, read by an independent
//! parser (`domain`), behind the question that it was encoded for, behind longer ones that end in it, and
//! behind those that its wildcard covers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::mmap::Table;
use crate::tables::Paged;
use crate::tables::answers::{AnswersBuilder, BlobBuilder, Section};
use crate::tables::names::NamesBuilder;
use crate::tables::servers::{Servers, Watching};
use crate::tables::{Classes, Limits, Plans};
use crate::wire::dns;
use domain::base::rdata::ComposeRecordData;
use domain::base::{Message, ToName};
use domain::rdata::AllRecordData;
use proptest::prelude::{any, *};
use std::sync::Arc;

/// A record as it goes in and must come out, names lower-cased: section, owner, type, TTL, RDATA.
type Record = (Section, Vec<u8>, u16, u32, Vec<u8>);

/// Names of a snapshot that holds just these nodes, the root first: (name, flags, entries).
fn snapshot(nodes: &[(&[u8], u8, Vec<Entry>)], answers: AnswersBuilder, negative: u32) -> Snapshot {
    let mut names = NamesBuilder::new([5, 6, 7, 8]);
    let mut done = std::collections::HashSet::new();
    for (name, flags, entries) in nodes {
        names.add(&name.to_ascii_lowercase(), 0, *flags, entries, None);
        done.insert(name.to_ascii_lowercase());
    }
    for (name, ..) in nodes {
        let mut rest = name.to_ascii_lowercase();
        while rest[0] > 0 {
            rest.drain(..1 + rest[0] as usize);
            if done.insert(rest.clone()) {
                names.add(&rest, 0, Node::OUTSIDE, &[], None);
            }
        }
    }
    let plans = Plans {
        services: Table::from_vec(vec![]).unwrap(),
        hot: Table::from_vec(vec![]).unwrap(),
        policies: Table::from_vec(vec![]).unwrap(),
        pools: Table::from_vec(vec![]).unwrap(),
        groups: Table::from_vec(vec![]).unwrap(),
        records_a: Table::from_vec(vec![]).unwrap(),
        records_aaaa: Table::from_vec(vec![]).unwrap(),
        weights_a: Table::from_vec(vec![]).unwrap(),
        weights_aaaa: Table::from_vec(vec![]).unwrap(),
        identities_a: Table::from_vec(vec![]).unwrap(),
        identities_aaaa: Table::from_vec(vec![]).unwrap(),
        layout: 1,
    };
    Snapshot {
        generation: 1,
        ports: Arc::default(),
        names: Arc::new(names.build().unwrap()),
        answers: Arc::new(answers.build().unwrap()),
        zones: Arc::new(vec![Zone { negative }]),
        classes: Arc::new(Classes::build(vec![], vec![], 1).unwrap()),
        servers: Arc::new(Servers::build(vec![], Watching::default()).unwrap()),
        plans: Arc::new(plans),
        cells: Paged::default(),
        limits: Limits::default(),
    }
}

/// Asks for TXT of a name; the records of the reply.
fn ask(snapshot: &Snapshot, qname: &[u8]) -> Vec<Record> {
    let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    query.extend(qname);
    query.extend([0, 16, 0, 1]);
    let mut buffer = [0xa5; 0x10000];
    buffer[..query.len()].copy_from_slice(&query);
    let mut engine = Engine::new(1);
    let mut located = Located::default();
    located.locate(snapshot, &buffer, query.len(), Client::V4([192, 0, 2, 1]));
    engine.find(snapshot, &mut located);
    let outcome = engine.answer(
        snapshot,
        &mut located,
        &mut buffer,
        Transport::Tcp { keepalive: 100 },
        &mut Silent,
    );
    let Outcome::Reply { len, truncated, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(!truncated);
    assert_eq!(buffer[12..query.len()], query[12..]);
    let message = Message::from_octets(&buffer[..len]).unwrap();
    let (_, answer, authority, additional) = message.sections().unwrap();
    let sections = [
        (Section::Answer, answer),
        (Section::Authority, authority),
        (Section::Additional, additional),
    ];
    let mut out = Vec::new();
    for (section, records) in sections {
        for record in records {
            let record = record.unwrap();
            let (rtype, ttl) = (record.rtype().to_int(), record.ttl().as_secs());
            let owner: domain::base::Name<Vec<u8>> = record.owner().to_name();
            let mut rdata = Vec::new();
            let parsed = record.to_record::<AllRecordData<_, _>>().unwrap().unwrap();
            parsed.data().compose_rdata(&mut rdata).unwrap();
            let owner = owner.as_slice().to_ascii_lowercase();
            out.push((section, owner, rtype, ttl, rdata.to_ascii_lowercase()));
        }
    }
    out
}

/// Names that share labels with each other and with the questions, which end in the first.
fn some_name() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![
        prop::sample::select(vec![&b"a"[..], b"Bb", b"ns", b"w\0w", b"*"]).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 1..40),
    ];
    let base = prop::sample::select(vec![
        &b"\x01w\x07example\x03com\0"[..],
        b"\x07EXAMPLE\x03com\0",
        b"\x03com\0",
        b"\x03org\0",
        b"\0",
    ]);
    (prop::collection::vec(label, 0..4), base).prop_map(|(labels, base)| {
        let mut name: Vec<u8> = labels
            .iter()
            .flat_map(|l| [&[l.len() as u8][..], l].concat())
            .collect();
        name.extend(base);
        name
    })
}

fn rdata() -> impl Strategy<Value = (u16, Vec<u8>)> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|a| (rtype::A, a.to_vec())),
        any::<[u8; 16]>().prop_map(|a| (rtype::AAAA, a.to_vec())),
        some_name().prop_map(|n| (rtype::NS, n)),
        some_name().prop_map(|n| (rtype::CNAME, n)),
        some_name().prop_map(|n| (12, n)),
        (some_name(), any::<[u8; 2]>()).prop_map(|(n, p)| (rtype::MX, [&p[..], &n].concat())),
        (some_name(), any::<[u8; 6]>()).prop_map(|(n, p)| (33, [&p[..], &n].concat())),
        (some_name(), some_name(), any::<[u8; 20]>())
            .prop_map(|(m, r, t)| (rtype::SOA, [&m[..], &r, &t].concat())),
        (1u8..200).prop_map(|n| (rtype::TXT, [vec![n], vec![b't'; n as usize]].concat())),
    ]
}

/// A record to encode: section, owner (`None`: the question's name), TTL, type and RDATA.
type Given = (Section, Option<Vec<u8>>, u32, (u16, Vec<u8>));

fn records() -> impl Strategy<Value = Vec<Given>> {
    let section = prop::sample::select(vec![Section::Answer, Section::Authority, Section::Additional]);
    // Owned by the question, or by any name.
    let owner = prop::option::of(some_name());
    prop::collection::vec((section, owner, 0..0x8000_0000u32, rdata()), 1..24).prop_map(|mut records| {
        records.sort_by_key(|r| r.0);
        records
    })
}

/// Fills the blob; what must come out when the question's owner name is `shown`.
fn fill(blob: &mut BlobBuilder, records: &[Given], question: &[u8], shown: &[u8]) -> Vec<Record> {
    let mut want = Vec::new();
    for (section, owner, ttl, (rtype, rdata)) in records {
        let owner = owner.as_deref().unwrap_or(question);
        blob.record(*section, owner, *rtype, *ttl, rdata).unwrap();
        let owner = if owner.eq_ignore_ascii_case(question) {
            shown
        } else {
            owner
        };
        want.push((
            *section,
            owner.to_ascii_lowercase(),
            *rtype,
            *ttl,
            rdata.to_ascii_lowercase(),
        ));
    }
    want
}

const BASE: &[u8] = b"\x01w\x07example\x03com\0";

fn below(labels: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> = labels
        .iter()
        .flat_map(|&n| [vec![n], vec![b'q'; n as usize]].concat())
        .collect();
    name.extend(BASE);
    name
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn behind_its_own_question(records in records(), question in some_name()) {
        let mut blob = BlobBuilder::new(&question);
        // Under a wildcard's own name too: there the asterisk is the label that was asked for.
        let want = fill(&mut blob, &records, &question, &question);
        let mut answers = AnswersBuilder::default();
        // Not the first blob, so that offsets count.
        answers.add(&BlobBuilder::new(b"\0")).unwrap();
        let at = answers.add(&blob).unwrap();
        let entry = Entry::fixed(rtype::TXT, 0, at);
        let snapshot = snapshot(&[(&question, 0, vec![entry])], answers, at);
        prop_assert_eq!(ask(&snapshot, &question), want.clone());
        prop_assert_eq!(ask(&snapshot, &question.to_ascii_uppercase()), want);
    }

    #[test]
    fn behind_questions_that_end_in_its_name(
        records in records(),
        labels in prop::collection::vec(1u8..=63, 0..4),
    ) {
        let mut blob = BlobBuilder::for_suffix(BASE);
        let want = fill(&mut blob, &records, BASE, BASE);
        let mut answers = AnswersBuilder::default();
        let at = answers.add(&blob).unwrap();
        let entry = Entry::fixed(Entry::DEFAULT, 0, at).with_flags(Entry::REFERRAL);
        let cut = snapshot(&[(BASE, Node::CUT, vec![entry])], answers, at);
        let mut question = below(&labels);
        question.truncate(255);
        prop_assume!(dns::name_len(&question) == Ok(question.len()));
        prop_assert_eq!(ask(&cut, &question), want);
    }

    #[test]
    fn behind_questions_that_its_wildcard_covers(
        records in records(),
        labels in prop::collection::vec(1u8..=63, 1..4),
    ) {
        let wildcard = [b"\x01*", BASE].concat();
        let question = below(&labels);
        prop_assume!(dns::name_len(&question) == Ok(question.len()));
        let mut blob = BlobBuilder::new(&wildcard);
        let want = fill(&mut blob, &records, &wildcard, &question);
        let mut answers = AnswersBuilder::default();
        let at = answers.add(&blob).unwrap();
        let entry = Entry::fixed(rtype::TXT, 0, at);
        let nodes: [(&[u8], u8, Vec<Entry>); 2] =
            [(BASE, Node::WILDCARD, vec![]), (&wildcard, 0, vec![entry])];
        let covered = snapshot(&nodes, answers, at);
        prop_assert_eq!(ask(&covered, &question), want);
    }
}

/// What the name that a DNAME made of the question falls to.
#[derive(Clone, Copy, Debug)]
enum Falls {
    Node,
    Wildcard,
    Cut,
    Nothing,
}

/// A DNAME from `d.com.` to [`BASE`], and a blob with these records for what is asked below; what must come out.
fn renamed(falls: Falls, records: &[Given], labels: &[u8]) -> (Snapshot, Vec<u8>, Vec<Record>) {
    const OWNER: &[u8] = b"\x01d\x03com\0";
    let made = below(labels);
    let question = [made.strip_suffix(BASE).unwrap(), OWNER].concat();
    let wildcard = [b"\x01*", BASE].concat();
    let (mut blob, encoded_for) = match falls {
        Falls::Node => (BlobBuilder::new(&made), &made[..]),
        Falls::Wildcard => (BlobBuilder::new(&wildcard), &wildcard[..]),
        Falls::Cut | Falls::Nothing => (BlobBuilder::for_suffix(BASE), BASE),
    };
    let shown = if matches!(falls, Falls::Node | Falls::Wildcard) {
        &made
    } else {
        BASE
    };
    let mut want = vec![
        (Section::Answer, OWNER.to_vec(), rtype::DNAME, 77, BASE.to_vec()),
        (Section::Answer, question.clone(), rtype::CNAME, 77, made.clone()),
    ];
    want.extend(fill(&mut blob, records, encoded_for, shown));
    let mut answers = AnswersBuilder::default();
    let mut dname = BlobBuilder::for_suffix(OWNER);
    dname
        .record(Section::Answer, OWNER, rtype::DNAME, 77, BASE)
        .unwrap();
    let dname = Entry::fixed(rtype::DNAME, 0, answers.add(&dname).unwrap());
    let at = answers.add(&blob).unwrap();
    let entry = Entry::fixed(rtype::TXT, 0, at);
    let mut nodes: Vec<(&[u8], u8, Vec<Entry>)> = vec![(OWNER, Node::DNAME, vec![dname])];
    match falls {
        Falls::Node => nodes.extend([(BASE, 0, vec![]), (&made[..], 0, vec![entry])]),
        Falls::Wildcard => nodes.extend([(BASE, Node::WILDCARD, vec![]), (&wildcard[..], 0, vec![entry])]),
        Falls::Cut => {
            let referral = Entry::fixed(Entry::DEFAULT, 0, at).with_flags(Entry::REFERRAL);
            nodes.push((BASE, Node::CUT, vec![referral]));
        }
        Falls::Nothing => nodes.push((BASE, 0, vec![])),
    }
    (snapshot(&nodes, answers, at), question, want)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn behind_names_that_a_dname_made(
        records in records(),
        labels in prop::collection::vec(1u8..=63, 1..4),
        falls in prop::sample::select(vec![Falls::Node, Falls::Wildcard, Falls::Cut, Falls::Nothing]),
    ) {
        prop_assume!(below(&labels).len() <= 255);
        // Between a node and its zone there are others, which the table must have: one label is enough to see.
        let labels = if matches!(falls, Falls::Node) { &labels[..1] } else { &labels[..] };
        let (snapshot, question, want) = renamed(falls, &records, labels);
        prop_assert_eq!(ask(&snapshot, &question), want.clone());
        prop_assert_eq!(ask(&snapshot, &question.to_ascii_uppercase()), want);
    }
}

#[test]
fn what_would_need_longer_pointers_behind_a_dname_is_left_out() {
    // Encoded for the wildcard, the first of these owners stands at offset 12 + 17 + 4 + 12 + 16,055 = 16,100, and the second
    // points there: low enough for a shift by any question, not for one by a chain of two long names.
    let far = b"\x03far\x03net\0".to_vec();
    let address = |last| {
        (
            Section::Answer,
            Some(far.clone()),
            1,
            (rtype::A, vec![192, 0, 2, last]),
        )
    };
    let text = (Section::Answer, None, 1, (rtype::TXT, vec![0; 16_055]));
    let records: Vec<Given> = vec![text, address(1), address(2)];
    let (near, question, want) = renamed(Falls::Wildcard, &records, &[1]);
    assert_eq!(ask(&near, &question), want);
    // 12 + 135 + 4 for the question, 29 for the DNAME, 12 + 143 for the CNAME: moved by 302, to 16,402.
    let (beyond, question, want) = renamed(Falls::Wildcard, &records, &[63, 63]);
    assert_eq!(ask(&beyond, &question), want[..2]);
}

#[test]
fn pointers_stay_within_their_14_bits_when_shifted() {
    // Names around message offset 16,384, in a blob that is shifted by up to 240 bytes.
    let mut blob = BlobBuilder::for_suffix(BASE);
    let mut want = Vec::new();
    for n in 0..2000u16 {
        let owner = [&[4][..], format!("{n:04}").as_bytes(), b"\x03net\0"].concat();
        for last in 0..2 {
            blob.record(Section::Authority, &owner, rtype::A, 1, &[192, 0, 2, last])
                .unwrap();
            want.push((
                Section::Authority,
                owner.clone(),
                rtype::A,
                1,
                vec![192, 0, 2, last],
            ));
        }
        if blob.data().len() > 20_000 {
            break;
        }
    }
    let mut answers = AnswersBuilder::default();
    let at = answers.add(&blob).unwrap();
    let entry = Entry::fixed(Entry::DEFAULT, 0, at).with_flags(Entry::REFERRAL);
    let cut = snapshot(&[(BASE, Node::CUT, vec![entry])], answers, at);
    for labels in [&[][..], &[63], &[63, 63, 63, 40]] {
        assert_eq!(ask(&cut, &below(labels)), want, "{labels:?}");
    }
}

#[test]
fn keepalive_is_answered_over_tcp_alone_and_never_taken_from_a_client() {
    let snapshot = snapshot(&[(b"\0", 0, vec![])], AnswersBuilder::default(), NONE);
    // RFC 7828 section 3.1: option 11, length 0 in queries; of length 2 in units of 100 ms in replies.
    let ask = |option: &[u8], transport| {
        let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01x\0\0\x01\0\x01".to_vec();
        query.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, option.len() as u8]);
        query.extend(option);
        let mut buffer = [0xa5; 1024];
        buffer[..query.len()].copy_from_slice(&query);
        let (mut engine, mut located) = (Engine::new(1), Located::default());
        located.locate(&snapshot, &buffer, query.len(), Client::V4([192, 0, 2, 1]));
        engine.find(&snapshot, &mut located);
        let Outcome::Reply { len, .. } =
            engine.answer(&snapshot, &mut located, &mut buffer, transport, &mut Silent)
        else {
            panic!("no reply")
        };
        // RCODE, and OPT's RDATA, which ends the message.
        (buffer[3] & 15, buffer[19 + 11..len].to_vec())
    };
    let tcp = Transport::Tcp { keepalive: 100 };
    let served = ask(&[], tcp).0;
    assert_eq!(ask(&[], tcp).1, []);
    assert_eq!(ask(&[0, 11, 0, 0], tcp), (served, vec![0, 11, 0, 2, 0, 100]));
    assert_eq!(ask(&[0, 11, 0, 2, 0, 50], tcp), (rcode::FORMERR, vec![]));
    assert_eq!(ask(&[0, 11, 0, 0], Transport::Udp), (served, vec![]));
    assert_eq!(ask(&[0, 11, 0, 2, 0, 50], Transport::Udp), (served, vec![]));
}

/// Asks for TXT of a name over UDP with 512 bytes of EDNS and NSID; TC, the answers, and the lengths of the reply and of its
/// options by code.
fn ask_nsid(snapshot: &Snapshot, qname: &[u8]) -> (bool, u16, usize, Vec<(u16, usize)>) {
    let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01".to_vec();
    query.extend(qname);
    query.extend([0, 16, 0, 1, 0, 0, 41, 2, 0, 0, 0, 0, 0, 0, 4, 0, 3, 0, 0]);
    let mut buffer = [0xa5; 1024];
    buffer[..query.len()].copy_from_slice(&query);
    let (mut engine, mut located) = (Engine::new(1), Located::default());
    located.locate(snapshot, &buffer, query.len(), Client::V4([192, 0, 2, 1]));
    engine.find(snapshot, &mut located);
    let outcome = engine.answer(snapshot, &mut located, &mut buffer, Transport::Udp, &mut Silent);
    let Outcome::Reply { len, truncated, .. } = outcome else {
        panic!("{outcome:?}")
    };
    let message = Message::from_octets(&buffer[..len]).unwrap();
    assert_eq!(message.header().tc(), truncated);
    let opt = message.opt().unwrap();
    let options = opt.opt().iter::<domain::base::opt::UnknownOptData<_>>();
    let options = options.map(|option| option.map(|o| (o.code().to_int(), o.as_slice().len())));
    let answers = message.header_counts().ancount();
    (
        truncated,
        answers,
        len,
        options.collect::<Result<_, _>>().unwrap(),
    )
}

#[test]
fn nsid_takes_what_the_answer_leaves() {
    const NAME: &[u8] = b"\x01x\0";
    // Header, question, the record's 12 bytes before its RDATA, OPT's 11: what is left of 512 bytes for RDATA.
    const ROOM: usize = 512 - 12 - (3 + 4) - 12 - 11;
    for len in 440..=ROOM + 4 {
        let mut blob = BlobBuilder::new(NAME);
        let rdata = [
            vec![255],
            vec![b't'; 255],
            vec![(len - 257) as u8],
            vec![b't'; len - 257],
        ]
        .concat();
        blob.record(Section::Answer, NAME, rtype::TXT, 9, &rdata).unwrap();
        let mut answers = AnswersBuilder::default();
        let at = answers.add(&blob).unwrap();
        let mut snapshot = snapshot(&[(NAME, 0, vec![Entry::fixed(rtype::TXT, 0, at)])], answers, at);
        snapshot.limits.nsid = b"edge".as_slice().into();
        let whole = 512 - ROOM + len;
        let want = match len {
            // Its option is 8 bytes long.
            _ if len <= ROOM - 8 => (false, 1, whole + 8, vec![(3, 4)]),
            _ if len <= ROOM => (false, 1, whole, vec![]),
            _ => (true, 0, 12 + 7 + 11 + 8, vec![(3, 4)]),
        };
        assert_eq!(ask_nsid(&snapshot, NAME), want, "{len}");
    }
}

#[test]
fn an_extended_error_takes_what_nsid_leaves() {
    let mut snapshot = snapshot(&[(b"\0", Node::OUTSIDE, vec![])], AnswersBuilder::default(), NONE);
    // Header, a question of 204 bytes, OPT; an error without text is 6 bytes long.
    let name = [
        &[63][..],
        &[b'q'; 63],
        &[63],
        &[b'q'; 63],
        &[63],
        &[b'q'; 63],
        &[6],
        b"served",
        b"\0",
    ]
    .concat();
    let bare = 12 + name.len() + 4 + 11;
    for (nsid, left) in [
        (200, true),
        (512 - bare - 10, true),
        (512 - bare - 9, false),
        (512 - bare - 4, false),
    ] {
        snapshot.limits.nsid = vec![b'n'; nsid];
        let (mut options, mut len) = (vec![(3, nsid)], bare + 4 + nsid);
        if left {
            options.push((15, 2));
            len += 6;
        }
        assert_eq!(ask_nsid(&snapshot, &name), (false, 0, len, options), "{nsid}");
    }
    // One byte more, and the error has the room.
    snapshot.limits.nsid = vec![b'n'; 512 - bare - 3];
    assert_eq!(ask_nsid(&snapshot, &name), (false, 0, bare + 6, vec![(15, 2)]));
}
