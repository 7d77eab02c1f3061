//! What `classify` and `finish_udp` cost a packet, in instructions.
//!
//! ```text
//! cargo build --release -p dataplane --no-default-features --example wire_cost
//! valgrind --tool=callgrind --callgrind-out-file=/tmp/wire.out target/release/examples/wire_cost v4
//! callgrind_annotate --inclusive=yes /tmp/wire.out | grep step_
//! ```
//!
//! Each `step_` function is called [`TURNS`] times; its inclusive count divided by that is the figure.
//! The argument names the kind of packet: v4, v4-vlan, v6, v6-vlan.

use dataplane::io::{Shape, WINDOW, Window};
use dataplane::stages::classify::{PortView, classify};
use dataplane::stages::reply::finish_udp;
use dataplane::stages::{Lane, Layers};
use dataplane::tables::addresses::{AddressKind, Addresses};
use dataplane::wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use std::hint::black_box;
use std::net::IpAddr;

/// Calls of each step.
const TURNS: usize = 10_000;
/// DNS bytes of the query: a name of 20 bytes.
const QUERY_LEN: usize = 12 + 20 + 4;
/// DNS bytes of the reply: one A record more.
const REPLY_LEN: usize = QUERY_LEN + 16;

#[inline(never)]
fn step_classify(window: &mut Window, len: usize, port: &PortView) -> (Layers, Lane) {
    classify(window, len, Shape::Whole, port)
}

#[inline(never)]
fn step_finish(window: &mut Window, layers: &Layers, len: usize) -> Option<usize> {
    finish_udp(window, layers, len, false)
}

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let (tags, v6): (&[u8], bool) = match kind.as_str() {
        "v4" => (&[], false),
        "v4-vlan" => (&[0x81, 0, 0, 7], false),
        "v6" => (&[], true),
        "v6-vlan" => (&[0x81, 0, 0, 7], true),
        _ => {
            eprintln!("usage: wire_cost v4 | v4-vlan | v6 | v6-vlan");
            std::process::exit(2);
        }
    };
    let port = port();
    let frame = query(tags, v6);
    let mut window = [0xd7; WINDOW];
    for _ in 0..TURNS {
        window[..frame.len()].copy_from_slice(black_box(&frame));
        let (layers, lane) = step_classify(&mut window, black_box(frame.len()), &port);
        assert_eq!(lane, Lane::DnsAnswer);
        let len = step_finish(&mut window, &layers, black_box(REPLY_LEN)).expect("fits the window");
        assert_eq!(len, frame.len() + REPLY_LEN - QUERY_LEN);
    }
    println!("{kind}: {TURNS} queries of {QUERY_LEN} bytes answered with {REPLY_LEN}");
}

/// Four service addresses of each family.
fn port() -> PortView {
    let v4 = (53..57).map(|n| IpAddr::from([192, 0, 2, n]));
    let v6 = (0x53..0x57).map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]));
    let entries = v4.chain(v6).map(|address| (address, AddressKind::Service));
    let addresses = Addresses::new(entries, 0x9e37_79b9_7f4a_7c15).expect("unicast addresses");
    PortView::new([2, 0, 0, 0, 0, 0x53], addresses, true)
}

fn query(tags: &[u8], v6: bool) -> Vec<u8> {
    let udp_len = (8 + QUERY_LEN) as u16;
    let [hi, lo] = udp_len.to_be_bytes();
    let mut udp = vec![0x9c, 0x40, 0, 53, hi, lo, 0, 0];
    udp.extend((0..QUERY_LEN).map(|n| n as u8));
    let mut frame = [&[2, 0, 0, 0, 0, 0x53, 2, 0, 0, 0, 0, 0xc1][..], tags].concat();
    let pseudo = if v6 {
        let src = [0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        let dst = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
        frame.extend([&[0x86, 0xdd, 0x60, 0, 0, 0, hi, lo, 17, 57][..], &src, &dst].concat());
        pseudo_v6(src, dst, 17, udp_len)
    } else {
        let (src, dst) = ([198, 51, 100, 7], [192, 0, 2, 53]);
        let [hi, lo] = (20 + udp_len).to_be_bytes();
        let mut ip = [&[0x45, 0, hi, lo, 0x12, 0x34, 0, 0, 57, 17, 0, 0][..], &src, &dst].concat();
        let sum = Sum::of(&ip).checksum();
        ip[10..12].copy_from_slice(&sum);
        frame.extend([&[8, 0][..], &ip].concat());
        pseudo_v4(src, dst, 17, udp_len)
    };
    let sum = Sum::of(&udp).plus(pseudo).udp_checksum();
    udp[6..8].copy_from_slice(&sum);
    frame.extend(udp);
    frame
}
