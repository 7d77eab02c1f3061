//! Described packets: what is seen of each kind, and what becomes of flows of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::sight::{self, Reading, Seen, Sight};
use super::{FlowLatency, FlowLimits, Tables, Taken};
use crate::arch::TickRate;
use crate::flow::estimate::{Datagram, Doubts, Kind, Segment};
use crate::flow::{Hasher, Moment, Span};
use crate::link::{Cell, LatencySample};
use crate::stages::testkit::{
    CLIENT_V4, CLIENT_V6, Ip, Packet, SERVICE_V4, SERVICE_V6, port, udp, window_of,
};
use crate::tables::Classes;
use crate::tables::classes::Prefix;
use crate::tables::servers::{Server, Servers, Watching};
use proptest::prelude::*;

/// A TCP header of 20 bytes, or 32 with a timestamp option, and payload.
pub(super) fn tcp(sequence: u32, acknowledgment: u32, flags: u8, words: u8, payload: usize) -> Vec<u8> {
    let mut bytes = [40_000u16.to_be_bytes(), 443u16.to_be_bytes()].concat();
    bytes.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
    bytes.extend([words << 4, flags, 0x20, 0, 0, 0, 0, 0]);
    bytes.resize(usize::from(words) * 4 + payload, 0x11);
    bytes
}

fn read(packet: &Packet) -> Sight {
    read_frame(&packet.build())
}

fn read_frame(frame: &[u8]) -> Sight {
    let (window, len) = window_of(frame);
    let addresses = port().addresses;
    let by = Reading {
        mirror: Some(&addresses),
        offline: false,
        watching: &Watching::default(),
        hasher: &Hasher::new(5),
    };
    let mut sight = Sight::default();
    sight::read(&mut sight, &window, len, by.hasher, &by);
    sight
}

fn request() -> Packet {
    Packet::query_v4().with(6, tcp(1000, 2000, 0x18, 8, 100))
}

const REQUEST: Segment = Segment {
    sequence: 1000,
    acknowledgment: 2000,
    payload: 100,
    flags: 0x18,
};

#[test]
fn tcp_is_seen_whatever_stands_before_it() {
    let plain = read(&request());
    assert_eq!(plain.seen(), Seen::Tcp(REQUEST));
    assert!(plain.begins() && !plain.ends());
    // Tags, options, padding: the same flow.
    for tags in 1..=4 {
        let tags = vec![(0x8100, 7); tags];
        let tagged = read(&Packet { tags, ..request() });
        assert_eq!((tagged.key, tagged.seen()), (plain.key, plain.seen()));
    }
    assert_eq!(
        read(&Packet {
            tags: vec![(0x88a8, 7); 5],
            ..request()
        })
        .seen(),
        Seen::Nothing
    );
    let options = Ip::V4 {
        src: CLIENT_V4,
        dst: SERVICE_V4,
        flags_fragment: 0x4000,
        options: vec![1; 8],
    };
    let with_options = read(&Packet {
        ip: options,
        padding: 9,
        ..request()
    });
    assert_eq!((with_options.key, with_options.seen()), (plain.key, plain.seen()));
    // Another port, another address: another flow.
    let mut other = request();
    other.l4[1] ^= 1;
    assert_ne!(read(&other).key, plain.key);
    // IPv6, plain and behind destination options.
    let v6 = Packet::query_v6().with(6, tcp(1000, 2000, 0x18, 5, 100));
    let seen = read(&v6);
    assert_eq!((seen.seen(), seen.v6()), (Seen::Tcp(REQUEST), true));
    let Ip::V6 {
        src,
        dst,
        class_and_label,
        hop_limit,
        ..
    } = v6.ip
    else {
        panic!()
    };
    let extensions = vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let ip = Ip::V6 {
        src,
        dst,
        class_and_label,
        hop_limit,
        extensions,
    };
    let behind = read(&Packet { ip, ..v6 });
    assert_eq!((behind.key, behind.seen()), (seen.key, seen.seen()));
}

#[test]
fn what_begins_and_ends_flows() {
    let of = |flags, payload| read(&Packet::query_v4().with(6, tcp(1, 2, flags, 5, payload)));
    for (flags, payload, begins, ends) in [
        (0x02, 0, true, false),
        (0x10, 0, false, false),
        (0x10, 1, true, false),
        (0x11, 0, false, true),
        (0x19, 10, false, true),
        (0x04, 0, false, true),
    ] {
        let sight = of(flags, payload);
        assert!(matches!(sight.seen(), Seen::Tcp(_)));
        assert_eq!((sight.begins(), sight.ends()), (begins, ends), "{flags:#x}");
    }
    assert!(!of(0x12, 0).begins(), "a SYN-ACK is the server's");
}

#[test]
fn mirrors_may_cut_frames_behind_the_headers() {
    let frame = request().build();
    let whole = read_frame(&frame);
    assert_eq!(read_frame(&frame[..54]).seen(), whole.seen());
    assert_eq!(read_frame(&frame[..53]).seen(), Seen::Nothing);
    for len in 0..frame.len() {
        let seen = read_frame(&frame[..len]).seen();
        assert!(seen == Seen::Nothing || seen == whole.seen());
    }
}

#[test]
fn fragments_and_errors_are_no_flows() {
    for flags_fragment in [0x2000, 0x0010, 0x2010] {
        let ip = Ip::V4 {
            src: CLIENT_V4,
            dst: SERVICE_V4,
            flags_fragment,
            options: vec![],
        };
        assert_eq!(read(&Packet { ip, ..request() }).seen(), Seen::Nothing);
    }
    // The fragment header (RFC 8200 section 4.5): first, middle, last, and one that is all of its packet (RFC 6946).
    for (offset_and_more, seen) in [
        (0x0001, Seen::Nothing),
        (0x0011, Seen::Nothing),
        (0x0010, Seen::Nothing),
        (0x0000u16, Seen::Tcp(REQUEST)),
    ] {
        let [high, low] = offset_and_more.to_be_bytes();
        let ip = Ip::V6 {
            src: CLIENT_V6,
            dst: SERVICE_V6,
            class_and_label: 0,
            hop_limit: 57,
            extensions: vec![(44, vec![0, 0, high, low, 0, 0, 0, 9])],
        };
        assert_eq!(
            read(&Packet { ip, ..request() }).seen(),
            seen,
            "{offset_and_more}"
        );
    }
    // A TCP header that says that it is longer than the packet.
    assert_eq!(
        read(&Packet::query_v4().with(6, tcp(1, 2, 0x10, 15, 0)[..40].to_vec())).seen(),
        Seen::Nothing
    );
    assert_eq!(read(&Packet::query_v4()).seen(), Seen::Nothing, "DNS");
    assert_eq!(
        read(&Packet::query_v4().with(1, vec![8, 0, 0, 0, 0, 1, 0, 1])).seen(),
        Seen::Nothing
    );
}

#[test]
fn quic_flows_are_told_by_connection_ids() {
    let quic = |id: &[u8], first: u8| {
        let payload = [&[first], id, &[9; 40]].concat();
        read(&Packet::query_v4().with(17, udp(40_000, 443, &payload)))
    };
    let one = quic(b"\x01\x02\x03\x04\x05\x06\x07\x08", 0x45);
    let datagram = Datagram {
        len: 49,
        ack_max: 64,
        sequence: None,
    };
    assert_eq!((one.seen(), one.begins()), (Seen::Hidden(datagram), true));
    assert_eq!(
        quic(b"\x01\x02\x03\x04\x05\x06\x07\x08\xff", 0x5a).key,
        one.key,
        "a longer id, the same first bytes"
    );
    assert_ne!(quic(b"\x01\x02\x03\x04\x05\x06\x07\x09", 0x45).key, one.key);
    assert_eq!(
        quic(b"\x01\x02\x03\x04\x05\x06\x07\x08", 0xc5).seen(),
        Seen::Nothing,
        "a handshake"
    );
    let v6 = Packet::query_v6().with(17, udp(40_000, 443, &[0x40; 30]));
    assert_eq!(read(&v6).seen(), Seen::Hidden(Datagram { len: 30, ..datagram }));
    // Any other port is told by addresses and ports.
    let other = |byte| read(&Packet::query_v4().with(17, udp(40_000, 4433, &[byte; 30])));
    assert_eq!(other(0x41).key, other(0x42).key);
    assert_eq!(other(0x41).seen(), Seen::Hidden(Datagram { len: 30, ..datagram }));
}

#[test]
fn tunnels_are_told_by_their_index_and_number() {
    let tunnel = |sight: Sight| match sight.seen() {
        Seen::Hidden(Datagram {
            len,
            ack_max: 128,
            sequence: Some(number),
        }) => (len, number),
        other => panic!("{other:?}"),
    };
    // WireGuard: type 4, receiver 7, counter 258 in little-endian order.
    let message = |receiver: u8, len: usize| {
        let mut bytes = vec![4, 0, 0, 0, receiver, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        bytes.resize(len, 0x77);
        read(&Packet::query_v4().with(17, udp(51_820, 51_820, &bytes)))
    };
    assert_eq!(tunnel(message(7, 96)), (96, 258));
    assert_ne!(message(7, 96).key, message(8, 96).key);
    assert_eq!(message(7, 32).seen(), Seen::Nothing, "keeps alive");
    // ESP, and ESP in UDP: SPI 0x1001, number 5.
    let esp = [&[0, 0, 0x10, 1, 0, 0, 0, 5][..], &[1; 60]].concat();
    let bare = read(&Packet::query_v4().with(50, esp.clone()));
    assert_eq!(tunnel(bare), (68, 5));
    assert_eq!(tunnel(read(&Packet::query_v6().with(50, esp.clone()))), (68, 5));
    let in_udp = |payload: &[u8]| read(&Packet::query_v4().with(17, udp(4500, 4500, payload)));
    assert_eq!(tunnel(in_udp(&esp)), (68, 5));
    assert_eq!(in_udp(&[0; 40]).seen(), Seen::Nothing, "IKE");
    assert_eq!(in_udp(&[0xff]).seen(), Seen::Nothing, "keeps a mapping");
    let other = [&[0, 0, 0x10, 2, 0, 0, 0, 5][..], &[1; 60]].concat();
    assert_ne!(read(&Packet::query_v4().with(50, other)).key, bare.key);
    // GRE for somebody else, with a key; and a protocol that nobody knows.
    let gre = read(&elsewhere(
        47,
        [&[0x20, 0, 8, 0, 0, 0, 0, 9][..], &[0x45; 60]].concat(),
    ));
    assert_eq!(
        gre.seen(),
        Seen::Hidden(Datagram {
            len: 68,
            ack_max: 128,
            sequence: None
        })
    );
    let any = read(&Packet::query_v4().with(200, vec![1; 33]));
    assert_eq!(
        any.seen(),
        Seen::Hidden(Datagram {
            len: 33,
            ack_max: 128,
            sequence: None
        })
    );
    assert_ne!(any.key, gre.key);
}

/// To an address that is not the port's.
fn elsewhere(protocol: u8, l4: Vec<u8>) -> Packet {
    let ip = Ip::V4 {
        src: CLIENT_V4,
        dst: [203, 0, 113, 1],
        flags_fragment: 0,
        options: vec![],
    };
    Packet {
        ip,
        ..Packet::query_v4().with(protocol, l4)
    }
}

#[test]
fn mirrored_frames_are_taken_out_of_what_carries_them() {
    let plain = read(&request());
    let tagged = Packet {
        tags: vec![(0x8100, 5)],
        ..request()
    };
    let frame = [request().build(), tagged.build()];
    let erspan_2 = [0x10, 5, 0, 9, 0, 0, 0, 0];
    let mut erspan_3 = [0x20, 5, 0, 9, 1, 2, 3, 4, 0, 0, 0, 0].to_vec();
    let short = erspan_3.clone();
    erspan_3[11] |= 1;
    erspan_3.extend([0; 8]);
    for inner in &frame {
        let cases: [Vec<u8>; 5] = [
            // ERSPAN I; II and III with a sequence number; III with its subheader; Ethernet in GRE with key and checksum.
            [&[0, 0, 0x88, 0xbe][..], inner].concat(),
            [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1][..], &erspan_2, inner].concat(),
            [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1][..], &short, inner].concat(),
            [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1][..], &erspan_3, inner].concat(),
            [&[0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 7][..], inner].concat(),
        ];
        for (n, carried) in cases.into_iter().enumerate() {
            for outer in [Packet::query_v4(), Packet::query_v6()] {
                let sight = read(&bare(outer, carried.clone()));
                assert_eq!((sight.key, sight.seen()), (plain.key, plain.seen()), "case {n}");
            }
            // Every cut of it is taken without harm.
            let whole = bare(Packet::query_v4(), carried).build();
            for len in 0..whole.len() {
                let _ = read_frame(&whole[..len]);
            }
        }
    }
    // Bare IP in GRE, when it is for us.
    let packet = request().build()[14..].to_vec();
    let carried = [&[0, 0, 8, 0][..], &packet].concat();
    assert_eq!(
        read(&bare(Packet::query_v4(), carried.clone())).seen(),
        plain.seen()
    );
    let tunnel = read(&bare(elsewhere(0, vec![]), carried));
    assert_ne!(tunnel.seen(), plain.seen(), "somebody's tunnel");
}

/// GRE as it stands: no checksum is to be filled in.
fn bare(outer: Packet, l4: Vec<u8>) -> Packet {
    Packet {
        fill_checksum: false,
        ..outer.with(47, l4)
    }
}

/// Class 3 for 198.51.100.0/24; server 1 is the service address of testkit, IPv4, server 2 IPv6.
fn tables() -> (Classes, Servers) {
    let classes = Classes::build(vec![Prefix::v4([198, 51, 100, 0], 24, 3)], vec![], 4).unwrap();
    let server = |address: std::net::IpAddr, len| Server {
        address,
        len,
        site: Some(0),
    };
    let list = vec![server(SERVICE_V4.into(), 32), server(SERVICE_V6.into(), 128)];
    (classes, Servers::build(list, Watching::default()).unwrap())
}

pub(super) struct Flows {
    pub(super) stage: FlowLatency,
    pub(super) tables: (Classes, Servers),
    pub(super) got: Vec<LatencySample>,
}

impl Flows {
    pub(super) fn new() -> Self {
        let limits = FlowLimits {
            flows: 100,
            idle: Span::millis(60_000),
        };
        let stage = FlowLatency::new(limits, 9, TickRate::from_hz(1_000_000)).unwrap();
        Self {
            stage,
            tables: tables(),
            got: Vec::new(),
        }
    }

    fn frame(&mut self, micros: u32, packet: &Packet) -> Taken {
        self.frame_at(Moment(77).plus(Span::micros(micros)), packet)
    }

    pub(super) fn frame_at(&mut self, at: Moment, packet: &Packet) -> Taken {
        let (window, len) = packet.window();
        let tables = Tables {
            classes: &self.tables.0,
            servers: &self.tables.1,
        };
        let got = &mut self.got;
        self.stage
            .frame(&window, len, at, tables, |sample| got.push(sample))
            .1
    }

    fn tcp(&mut self, micros: u32, sequence: u32, acknowledgment: u32, flags: u8, payload: usize) -> Taken {
        let packet = Packet::query_v4().with(6, tcp(sequence, acknowledgment, flags, 5, payload));
        self.frame(micros, &packet)
    }
}

#[test]
fn a_connection_from_syn_to_fin() {
    let mut flows = Flows::new();
    assert_eq!(flows.tcp(0, 999, 0, 0x02, 0), Taken::New);
    assert_eq!(flows.tcp(250, 1000, 5000, 0x10, 0), Taken::Known);
    assert_eq!(flows.tcp(300, 1000, 5000, 0x18, 100), Taken::Known);
    assert_eq!(flows.tcp(4300, 1100, 5900, 0x18, 100), Taken::Known);
    let told: Vec<_> = flows
        .got
        .iter()
        .map(|s| (s.cell, s.sample.kind, s.sample.value.0 / 4))
        .collect();
    let cell = Cell { class: 3, server: 1 };
    assert_eq!(told, [(cell, Kind::Handshake, 250), (cell, Kind::Response, 4000)]);
    assert!(
        flows
            .got
            .iter()
            .all(|s| s.flow == flows.got[0].flow && s.sample.doubts == Doubts::NONE)
    );
    assert_eq!(flows.tcp(4400, 1200, 6800, 0x11, 0), Taken::Known);
    // Closed: the first to go when a sweep comes by, and nothing of what follows begins it anew.
    for at in [0, 40_000, 80_000, 120_000] {
        flows.stage.age(Moment(77).plus(Span::millis(at)));
    }
    assert!(flows.stage.table().is_empty());
    assert_eq!(flows.tcp(200_000_000, 1201, 6801, 0x10, 0), Taken::Not);
}

#[test]
fn only_packets_to_servers_make_flows() {
    let mut flows = Flows::new();
    assert_eq!(flows.frame(0, &elsewhere(6, tcp(1, 1, 0x18, 5, 10))), Taken::Not);
    // What the server sends.
    let ip = Ip::V4 {
        src: SERVICE_V4,
        dst: CLIENT_V4,
        flags_fragment: 0,
        options: vec![],
    };
    let back = Packet { ip, ..request() };
    assert_eq!(flows.frame(0, &back), Taken::Not);
    // An acknowledgment of a flow that was never seen.
    assert_eq!(flows.tcp(0, 1, 1, 0x10, 0), Taken::Not);
    assert!(flows.stage.table().is_empty());
    assert_eq!(flows.frame(0, &request()), Taken::New);
    assert_eq!(
        flows.frame(1, &Packet::query_v6().with(6, tcp(1, 1, 0x18, 5, 10))),
        Taken::New
    );
    let cells: Vec<_> = [3000, 6000]
        .map(|at| {
            let v6 = Packet::query_v6().with(6, tcp(1 + at, 1 + at, 0x18, 5, 10));
            flows.frame(at, &v6)
        })
        .into();
    assert_eq!(cells, [Taken::Known, Taken::Known]);
    assert_eq!(
        flows.got.iter().map(|s| s.cell).collect::<Vec<_>>(),
        [Cell { class: 0, server: 2 }; 2]
    );
}

#[test]
fn new_tables_are_looked_up_and_the_estimate_goes_on() {
    let mut flows = Flows::new();
    flows.tcp(0, 1000, 5000, 0x18, 100);
    flows.tcp(2000, 1100, 5900, 0x18, 100);
    // The class is renumbered, and the server is the second one now.
    let classes = Classes::build(vec![Prefix::v4([198, 51, 100, 0], 24, 8)], vec![], 9).unwrap();
    let list = flows.tables.1.list().iter().rev().copied().collect();
    flows.tables = (classes, Servers::build(list, Watching::default()).unwrap());
    flows.tcp(5000, 1200, 6800, 0x18, 100);
    let told: Vec<_> = flows
        .got
        .iter()
        .map(|s| (s.cell.class, s.cell.server, s.sample.value.0 / 4))
        .collect();
    assert_eq!(told, [(3, 1, 2000), (8, 2, 3000)]);
    assert_ne!(flows.got[0].numbering, flows.got[1].numbering);
}

#[test]
fn hidden_flows_and_means_of_epochs() {
    let mut flows = Flows::new();
    let quic = Packet::query_v4().with(17, udp(40_000, 443, &[0x41; 230]));
    for n in 0..700 {
        flows.frame(2000 * n, &quic);
    }
    let of = |kind| flows.got.iter().filter(move |s| s.sample.kind == kind);
    assert_eq!(of(Kind::Response).count(), 699);
    assert!(of(Kind::Response).all(|s| s.sample.value == Span::micros(2000)));
    // 500 responses make a second.
    let epochs: Vec<_> = of(Kind::Epoch).map(|s| (s.at, s.sample.value)).collect();
    assert_eq!(
        epochs,
        [(Moment(77).plus(Span::millis(1000)), Span::micros(2000))]
    );
    assert!(flows.got.iter().all(|s| s.sample.doubts.has(Doubts::TIMING)));
}

proptest! {
    #[test]
    fn any_bytes_are_looked_at_without_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ether_type in prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x8100), any::<u16>()],
        protocol in prop_oneof![Just(6u8), Just(17), Just(47), Just(50), any::<u8>()],
        quic_id in 0u8..=8,
    ) {
        let mut frame = bytes;
        if frame.len() > 24 {
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            frame[14] = if ether_type == 0x86dd { 0x60 } else { 0x45 };
            frame[if ether_type == 0x86dd { 20 } else { 23 }] = protocol;
        }
        let (window, len) = window_of(&frame);
        let addresses = port().addresses;
        let watching = Watching { quic_id, quic_ports: [443, 0x1111, 0x2222, 0], ..Watching::default() };
        for (mirror, offline) in [(None, false), (Some(&addresses), false), (None, true)] {
            let by = Reading { mirror, offline, watching: &watching, hasher: &Hasher::new(1) };
            let mut sight = Sight::default();
            sight::read(&mut sight, &window, len, by.hasher, &by);
            if sight.seen() != Seen::Nothing {
                prop_assert!(sight.l3() + 20 <= len && sight.l4() > sight.l3());
            }
        }
    }
}
