//! Databases of full size, read and compiled again while a worker answers: no query is lost, none is answered by half of a
//! table.

use crate::frames::{self, Kind, ethernet};
use crate::lab::{Lab, example, port_view};
use control::config::model::{Config, Isp};
use control::data::{Data, load_asn};
use control::health::Standing;
use dataplane::tables::Snapshot;
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, mpsc};

/// Rows and autonomous systems of `@ip-location-db/asn` in 2026: they are 565,000 IPv4 and 168,000 IPv6 prefixes.
const ROWS_V4: u32 = 412_000;
const ROWS_V6: u32 = 103_000;
const ASNS: u32 = 84_000;
/// ISPs, of as many autonomous systems each.
const ISPS: u32 = 500;

/// The IPv4 range of a row: 1.0.0.0 and on, each in a /19 of its own. Three in eight are a /23 and a /24.
fn row(i: u32) -> (u32, u32) {
    let first = 0x0100_0000 + i * 8192;
    (first, first + if i % 8 < 3 { 767 } else { 1023 })
}

/// The system of a row in the `shift`-th edition of the table: another one in each, but for every thousandth row, which stays.
fn asn(i: u32, shift: u32) -> u32 {
    (i * 7 + if i.is_multiple_of(1000) { 0 } else { shift }) % ASNS + 1
}

fn write_table(path: &Path, shift: u32) {
    let mut text = String::with_capacity(24 << 20);
    for i in 0..ROWS_V4 {
        let (first, last) = row(i);
        let (first, last) = (std::net::Ipv4Addr::from(first), std::net::Ipv4Addr::from(last));
        _ = writeln!(text, "{first},{last},{},\"Network, number {i}\"", asn(i, shift));
    }
    for i in 0..ROWS_V6 {
        let (high, low) = (0x2400 + (i >> 16), i & 0xffff);
        _ = writeln!(
            text,
            "{high:x}:{low:x}::,{high:x}:{low:x}:ffff:ffff:ffff:ffff:ffff:ffff,{},n{i}",
            asn(i, shift)
        );
    }
    std::fs::write(path, text).unwrap();
}

/// As [`example`], with every autonomous system in an ISP; sites s0 and s1 are in the first two.
fn config(table: &Path) -> Config {
    let mut config = example(192);
    config.isps = (0..ISPS)
        .map(|isp| Isp {
            name: format!("isp{isp}"),
            asns: (1..=ASNS).filter(|asn| asn % ISPS == isp).collect(),
            prefixes: vec![],
        })
        .collect();
    config.data = Data {
        asn: vec![load_asn(table).unwrap()],
        country: vec![],
    };
    config.sites[1].isp = Some(1);
    config
}

/// What a client of the row may be given: the last bytes of its site's addresses, or of all.
fn expected(i: u32, shift: u32) -> &'static [u8] {
    match asn(i, shift) % ISPS {
        0 => &[1, 2],
        1 => &[11, 12],
        _ => &[1, 2, 11, 12],
    }
}

/// A query of a client in the row.
fn query(i: u32) -> Vec<u8> {
    let client = (row(i).0 + 5).to_be_bytes();
    let mut body = Vec::new();
    PacketBuilder::ipv4(client, frames::SERVICE_V4, 60)
        .udp(40_000, 53)
        .write(
            &mut body,
            &frames::message("vod.example.com.", Rtype::A, Some(1232)),
        )
        .unwrap();
    ethernet(frames::OUR_MAC, 0, 0x0800, &body)
}

/// Asks for 32 rows from `from` on and checks the answers against this edition of the table.
fn ask(lab: &mut Lab, from: u32, shift: u32) {
    // Rows of the first two ISPs and others: seven in a row differ by seven systems.
    let rows = (from..from + 32).map(|i| i.wrapping_mul(997) % ROWS_V4);
    // Nobody asks from 127.0.0.0/8, and nobody is answered there.
    let rows: Vec<u32> = rows.filter(|i| row(*i).0 >> 24 != 127).collect();
    let frames: Vec<Vec<u8>> = rows.iter().map(|i| query(*i)).collect();
    let replies = lab.exchange(&frames);
    assert_eq!(replies.len(), rows.len(), "a query without a reply");
    for (i, reply) in rows.into_iter().zip(replies) {
        let Kind::Udp(message) = frames::dissect(&reply) else {
            panic!()
        };
        let given = frames::addresses(&message);
        assert_eq!(given.len(), 2);
        for address in given {
            assert!(
                expected(i, shift).contains(&address[3]),
                "row {i}, edition {shift}: {address:?}"
            );
        }
    }
}

#[test]
fn a_full_table_is_read_again_while_queries_are_answered() {
    const EDITIONS: u32 = 3;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("asn.csv");
    write_table(&path, 0);
    let mut lab = Lab::new(config(&path));
    let generation = lab.worker.generation();
    let mut from = 0;
    for shift in 1..=EDITIONS {
        let mut compiler = std::mem::take(&mut lab.compiler);
        let (send, ready) = mpsc::channel::<Arc<Snapshot>>();
        let path = path.clone();
        let reload = std::thread::spawn(move || {
            write_table(&path, shift);
            let compiled = compiler
                .compile(Arc::new(config(&path)), vec![port_view()], |_| Standing::UP, 0)
                .unwrap();
            let [v4, v6] = compiled.index.sizes.prefixes;
            // As many as in the real table.
            assert!(v4 > 565_000 && v6 >= ROWS_V6 as usize, "{v4} {v6}");
            assert_eq!(compiled.index.classes.len(), ISPS as usize + 1);
            send.send(Arc::new(compiled.snapshot)).unwrap();
            compiler
        });
        let mut under_way = 0;
        let snapshot = loop {
            ask(&mut lab, from, shift - 1);
            (from, under_way) = (from + 32, under_way + 1);
            match ready.try_recv() {
                Ok(snapshot) => break snapshot,
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => panic!("the reload failed"),
            }
        };
        assert!(under_way > 10, "nothing was asked while the table was read");
        lab.compiler = reload.join().unwrap();
        lab.send(snapshot);
        lab.housekeep();
        for _ in 0..50 {
            ask(&mut lab, from, shift);
            from += 32;
        }
        lab.settle();
    }
    assert_eq!(lab.worker.generation(), generation + u64::from(EDITIONS));
    lab.check();
}
