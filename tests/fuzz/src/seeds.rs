//! Inputs to begin with: good ones of every kind that a target reads, hostile ones by hand, and real captures.

use crate::frames;
use crate::targets::frame::{GUARDED, REPAIR};
use domain::base::Name;
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::path::PathBuf;
use std::str::FromStr;
use windrose_tests::capture;

/// Names of the world, and some that are none of it.
const NAMES: &str = "
    example.com. www.example.com. WwW.eXaMpLe.CoM. vod.example.com. many.example.com. x.img.example.com.
    only-names.example.com. empty.example.com. example.net. www.example.net. back.example.net. q.w.example.net.
    mid.example.com. big.example.com. huge.example.com. a.wild.example.com. *.wild.example.com. a.b.wild.example.com.
    b.wild.example.com. x.a.b.wild.example.com. any.cwild.example.com. y.lwild.example.com. ent.example.com.
    deep.ent.example.com. alias.example.com. alias2.example.com. out.example.com. gone.example.com. loop1.example.com.
    towild.example.com. tovod.example.com. toimg.example.com. tosub.example.com. tocut.example.com. todname.example.com.
    tonet.example.com. c0.example.com. c5.example.com. d.example.com. www.d.example.com. img.cdn.d.example.com.
    x.dloop.example.com. x.d1.example.com. a.b.dlong.example.com. x.dvod.example.com. child.example.com.
    x.child.example.com. far.example.com. x.far.example.com. fat.example.com. sub.example.com. www.sub.example.com.
    up.sub.example.com. a.b.sub.example.com. nope.example.com. a.b.c.nope.example.com. odd.example.com.
    _443._tcp.www.example.com. . com. example.org. version.bind. id.server. hostname.bind. authors.bind.";

/// A header with these counts, and what follows.
fn raw(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34];
    message.extend(flags.to_be_bytes());
    message.extend(counts.map(u16::to_be_bytes).concat());
    message.extend(rest);
    message
}

/// A question: name in wire form, type, class.
fn question(name: &[u8], rtype: u16, class: u16) -> Vec<u8> {
    [name, &rtype.to_be_bytes(), &class.to_be_bytes()].concat()
}

/// An OPT record with these fields.
pub fn opt(size: u16, ttl: u32, rdata: &[u8]) -> Vec<u8> {
    let mut record = vec![0, 0, 41];
    record.extend(size.to_be_bytes());
    record.extend(ttl.to_be_bytes());
    record.extend((rdata.len() as u16).to_be_bytes());
    record.extend(rdata);
    record
}

/// A query for the name in wire form, with an OPT record.
pub fn with_opt(name: &[u8], rtype: u16, opt: &[u8]) -> Vec<u8> {
    raw(0x0100, [1, 0, 0, 1], &[&question(name, rtype, 1), opt].concat())
}

/// A name in wire form.
pub fn wire(name: &str) -> Vec<u8> {
    Name::<Vec<u8>>::from_str(name)
        .expect("a name")
        .as_slice()
        .to_vec()
}

/// RDATA of OPT records: every option that means something here, right and wrong.
fn option_lists() -> Vec<Vec<u8>> {
    let ecs = |family: u8, source: u8, scope: u8, address: &[u8]| {
        let mut option = vec![0, 8, 0, 4 + address.len() as u8, 0, family, source, scope];
        option.extend(address);
        option
    };
    let cookie = |len: u8| [&[0, 10, 0, len][..], &vec![7; len.into()]].concat();
    let mut lists = vec![
        vec![],
        vec![0, 3, 0, 0],
        vec![0, 3, 0, 2, 1, 2],
        ecs(1, 24, 0, &[10, 1, 2]),
        ecs(1, 32, 0, &[10, 2, 2, 3]),
        ecs(1, 0, 0, &[]),
        ecs(1, 1, 0, &[0x80]),
        ecs(1, 9, 0, &[10, 0]),
        ecs(1, 31, 0, &[10, 1, 2, 2]),
        ecs(2, 48, 0, &[0x20, 1, 0x0d, 0xb8, 0, 1]),
        ecs(
            2,
            127,
            0,
            &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        ),
        ecs(2, 128, 0, &[0xfe; 16]),
        ecs(0, 0, 0, &[]),
        ecs(1, 24, 24, &[10, 1, 2]),
        ecs(1, 33, 0, &[10, 1, 2, 3, 0x80]),
        ecs(2, 129, 0, &[1; 17]),
        ecs(3, 8, 0, &[1]),
        ecs(1, 23, 0, &[10, 1, 3]),
        [ecs(1, 24, 0, &[10, 1, 2]), ecs(1, 24, 0, &[10, 2, 2])].concat(),
        vec![0, 11, 0, 0],
        vec![0, 11, 0, 2, 0, 9],
        vec![0, 12, 0, 4, 0, 0, 0, 0],
        vec![0, 9, 0, 0],
        vec![0xff, 0xfe, 0, 3, 1, 2, 3],
        vec![0, 8, 0, 3, 0, 1, 0],
        vec![0, 3, 0, 9],
        vec![0, 3, 0],
        [
            cookie(8),
            ecs(1, 24, 0, &[10, 1, 2]),
            vec![0, 3, 0, 0],
            vec![0, 12, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat(),
    ];
    lists.extend([0, 1, 7, 8, 9, 15, 16, 24, 40, 41].map(cookie));
    lists
}

/// Inputs of the target `edns`.
pub fn edns() -> Vec<Vec<u8>> {
    let of = |rdata: Vec<u8>| {
        [
            [4, 208, 0, 0x80],
            [2, 0, 0, 0],
            [0, 0, 0, 0x40],
            [0xff, 0xff, 1, 0x80],
        ]
        .map(|head| [&head[..], &rdata].concat())
    };
    option_lists().into_iter().flat_map(of).collect()
}

/// Names that readers of names trip over, in wire form; some are none.
pub fn hostile_names() -> Vec<Vec<u8>> {
    let labels = |lens: &[u8]| {
        let label = |len: &u8| [&[*len][..], &vec![b'a'; (*len).into()]].concat();
        [lens.iter().flat_map(label).collect(), vec![0]].concat()
    };
    vec![
        // Pointers: to itself, to the header, forward, into a label, far away; after a label.
        vec![0xc0, 12],
        vec![0xc0, 0],
        vec![0xc0, 30],
        vec![0xff, 0xff],
        [&b"\x03www"[..], &[0xc0, 12]].concat(),
        [&b"\x03www\xc0\x12\x07example\x03com"[..], &[0]].concat(),
        // A chain of a hundred pointers.
        (0..100u8).flat_map(|n| [0xc0, 14 + n]).collect(),
        // Label types 01 and 10 (RFC 2673, RFC 6891 section 5).
        vec![0x41, 8, 0xff, 0],
        vec![0x40, 0],
        vec![0x80, 1, 0],
        vec![0xbf, 0],
        // 63 and 64 bytes; 255 bytes, one more; 127 labels, one more.
        labels(&[63, 63, 63, 61]),
        labels(&[63, 63, 63, 62]),
        labels(&[63, 63, 63, 63]),
        labels(&[63, 63, 63, 63, 63, 63]),
        [&[64][..], &[b'a'; 64], &[0]].concat(),
        labels(&[1; 127]),
        labels(&[1; 128]),
        labels(&[1; 250]),
        [labels(&[1; 120])[..240].to_vec(), wire("example.com.")].concat(),
        // Of 31, 32 and 33 bytes: around the block that short names are read in.
        [labels(&[17])[..18].to_vec(), wire("example.com.")].concat(),
        [labels(&[18])[..19].to_vec(), wire("example.com.")].concat(),
        [labels(&[19])[..20].to_vec(), wire("example.com.")].concat(),
        // Zero bytes, dots and high bytes in labels.
        b"\x03\x00\x00\x00\x07example\x03com\x00".to_vec(),
        b"\x07\x00binary\x07.label\xff\x07example\x03com\x00".to_vec(),
        b"\x0bwww.example\x03com\x00".to_vec(),
        b"\x03www\x07exampl\xe5\x03com\x00".to_vec(),
        b"\x04[{]}\x07example\x03com\x00".to_vec(),
        b"\x05ab\x00cd\x00\x00\x01\x00\x01".to_vec(),
    ]
}

/// DNS messages.
pub fn messages() -> Vec<Vec<u8>> {
    let www = wire("www.example.com.");
    let mut all = Vec::new();
    let types = [1u16, 28, 255, 5, 43, 2, 16, 15, 65, 39, 6, 65_280];
    for (at, name) in NAMES.split_whitespace().enumerate() {
        all.push(frames::message(name, Rtype::A, None));
        for turn in 0..3 {
            let rtype = types[(at + 5 * turn) % types.len()];
            let size = [1232, 512, 4096, 0][(at + turn) % 4];
            all.push(frames::message(name, Rtype::from_int(rtype), Some(size)));
        }
    }
    for class in [0, 3, 4, 254, 255] {
        for name in ["www.example.com.", "version.bind.", "id.server."] {
            all.push(raw(0x0100, [1, 0, 0, 0], &question(&wire(name), 16, class)));
        }
    }
    for rtype in [0, 41, 249, 250, 251, 252, 253, 254] {
        all.push(raw(0, [1, 0, 0, 0], &question(&www, rtype, 1)));
    }
    for name in hostile_names() {
        all.push(raw(0x0100, [1, 0, 0, 0], &question(&name, 1, 1)));
        all.push(with_opt(&name, 28, &opt(1232, 0, &[])));
        // What is decided before the name is looked for.
        for option in [&[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0, 11, 0, 2, 0, 9]] {
            all.push(with_opt(&name, 1, &opt(1232, 0, option)));
        }
    }
    all.extend(
        option_lists()
            .iter()
            .map(|rdata| with_opt(&wire("vod.example.com."), 1, &opt(1232, 0x8000, rdata))),
    );
    // Every opcode, with and without a question; every bit of the flags; every rcode.
    for opcode in 0..16u16 {
        all.push(raw(opcode << 11, [1, 0, 0, 0], &question(&www, 6, 1)));
        all.push(raw(opcode << 11 | 0x0100, [0; 4], &[]));
        all.push(raw(
            1 << opcode,
            [1, 0, 0, 1],
            &[question(&www, 1, 1), opt(1232, 0, &[])].concat(),
        ));
        all.push(raw(opcode, [1, 0, 0, 0], &question(&www, 1, 1)));
    }
    all.extend(odd_sections());
    all
}

/// Counts that lie, records where none are wanted, several OPT records, bytes behind the end.
fn odd_sections() -> Vec<Vec<u8>> {
    let ask = question(&wire("www.example.com."), 1, 1);
    let a = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x01\x02\x03\x04".to_vec();
    let edns = opt(1232, 0, &[]);
    let cookie = opt(1232, 0, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let tsig = b"\x03key\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x03\x01\x02\x03".to_vec();
    let long_owner = [&b"\x03www\xc0\x04"[..], &a[2..]].concat();
    let opt_at_a_name = [&b"\x01x"[..], &edns].concat();
    vec![
        raw(0, [0; 4], &[]),
        raw(0, [0, 0, 0, 1], &edns),
        raw(0, [0, 0, 0, 1], &cookie),
        raw(0, [2, 0, 0, 0], &[&ask[..], &ask].concat()),
        raw(0, [0xffff; 4], &ask),
        raw(0, [1, 0, 0, 0], &[&ask[..], &[0]].concat()),
        raw(0, [1, 0, 0, 0], &[&ask[..], &[0xff; 20]].concat()),
        raw(0, [1, 0, 0, 1], &ask),
        raw(0, [1, 1, 0, 0], &[&ask[..], &a].concat()),
        raw(0, [1, 0, 1, 0], &[&ask[..], &a].concat()),
        raw(0, [1, 1, 1, 2], &[&ask[..], &a, &a, &a, &edns].concat()),
        raw(0, [1, 0, 0, 2], &[&ask[..], &a, &opt(65_535, 0, &[])].concat()),
        raw(0, [1, 0, 0, 2], &[&ask[..], &edns, &tsig].concat()),
        raw(0, [1, 0, 0, 2], &[&ask[..], &edns, &edns].concat()),
        raw(0, [1, 1, 0, 0], &[&ask[..], &edns].concat()),
        raw(0, [1, 0, 1, 0], &[&ask[..], &edns].concat()),
        raw(0, [1, 0, 0, 1], &[&ask[..], &opt_at_a_name].concat()),
        raw(0, [1, 0, 0, 2], &[&ask[..], &long_owner, &edns].concat()),
        raw(
            0,
            [1, 0, 0, 1],
            &[&ask[..], &opt(1232, 0x0001_8000, &[0, 3, 0, 9])].concat(),
        ),
        raw(
            0,
            [1, 0, 0, 1],
            &[&ask[..], &opt(1232, 0xff00_7fff, &[])].concat(),
        ),
        raw(0x8000, [1, 0, 0, 0], &ask),
        vec![0; 11],
    ]
}

/// Frames for a worker, each with the byte of how before it.
pub fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (at, message) in messages().iter().enumerate() {
        let frame = frames::query(at % 2 == 1, at % 3, message);
        all.push(
            [
                &[if (at / 2) % 2 == 0 {
                    GUARDED | REPAIR
                } else {
                    REPAIR
                }],
                &frame[..],
            ]
            .concat(),
        );
    }
    let mut plain: Vec<Vec<u8>> = Vec::new();
    let www = frames::message("www.example.com.", Rtype::A, Some(1232));
    for tags in 0..=3 {
        plain.push(frames::arp(tags, frames::SERVICE_V4));
        plain.push(frames::arp(tags, [192, 0, 2, 77]));
        plain.push(frames::solicitation(tags));
        for v6 in [false, true] {
            plain.push(frames::echo(v6, tags));
            plain.push(frames::syn(v6, tags));
            plain.push(frames::udp(v6, tags, 9, (53, 53), &www));
            plain.push(frames::udp(v6, tags, 9, (0, 53), &www));
            plain.push(frames::udp(v6, tags, 9, (4000, 54), &www));
        }
        plain.push(frames::with_fragment_header(
            &frames::query(true, tags, &www),
            tags,
        ));
        plain.push(frames::with_ipv4_header(
            frames::query(false, tags, &www),
            tags,
            |header| header[6] = 0x20,
        ));
    }
    all.extend(
        plain
            .iter()
            .flat_map(|frame| [0, REPAIR].map(|how| [&[how], &frame[..]].concat())),
    );
    all.extend(captured().iter().map(|frame| [&[REPAIR], &frame[..]].concat()));
    all
}

/// The frames of the captures in `tests/captures`.
fn captured() -> Vec<Vec<u8>> {
    let folder = crate::folder().join("../captures");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("tests/captures")
        .map(|entry| entry.expect("tests/captures").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    files.sort();
    // The first frames of each: the rest are more of the same.
    files
        .iter()
        .flat_map(|file| capture::read(file).expect("a capture").into_iter().take(60))
        .collect()
}

/// TCP streams, each with the byte of its cuts before it.
pub fn streams() -> Vec<Vec<u8>> {
    let framed = |message: &Vec<u8>| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    let messages: Vec<_> = messages().iter().map(framed).collect();
    let mut all: Vec<Vec<u8>> = messages
        .chunks(5)
        .enumerate()
        .map(|(at, part)| [vec![at as u8], part.concat()].concat())
        .collect();
    all.extend([
        vec![3, 0, 0],
        vec![3, 0, 11, 1, 2],
        vec![3, 0xff, 0xff, 1],
        vec![3, 0, 12],
    ]);
    all
}

/// Frames as workers punt them.
pub fn punted() -> Vec<Vec<u8>> {
    let mut all = captured();
    for tags in 0..=3 {
        for v6 in [false, true] {
            all.extend([frames::syn(v6, tags), frames::echo(v6, tags)]);
            all.push(frames::udp(v6, tags, 9, (4000, 54), &[1; 20]));
        }
        all.push(frames::with_fragment_header(&frames::syn(true, tags), tags));
    }
    // Options of every bad length (RFC 9293 section 3.1), data offsets that lie.
    for options in [
        [2, 0, 0, 0],
        [2, 1, 0, 0],
        [2, 255, 0, 0],
        [1, 1, 1, 2],
        [0, 9, 9, 9],
    ] {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(frames::CLIENT_MAC, frames::OUR_MAC)
            .ipv4(frames::CLIENT_V4, frames::SERVICE_V4, 60)
            .tcp(40_001, 53, 1, 1024)
            .options_raw(&options)
            .expect("four bytes of options")
            .write(&mut frame, b"data")
            .expect("written");
        for offset in [0x40, 0x60, 0xf0] {
            frame[14 + 20 + 12] = offset;
            all.push(frame.clone());
        }
        // As the kernel sends them.
        all.push(frame[14..].to_vec());
    }
    all
}

/// Zone files.
pub fn zones() -> Vec<Vec<u8>> {
    let read = |path: &str| std::fs::read(crate::folder().join(path)).expect(path);
    let mut all: Vec<Vec<u8>> = ["example.com", "sub.example.com", "example.net"]
        .map(|zone| read(&format!("world/{zone}.zone")))
        .into();
    let head = "$TTL 300\n@ SOA ns1 host 1 3600 900 604800 300\n@ NS ns1\nns1 A 192.0.2.53\n";
    // A few lines of every record type at a time.
    let records = String::from_utf8(read("../../control/tests/data/rdata.txt")).expect("text");
    let data: Vec<&str> = records
        .lines()
        .filter_map(|line| line.split(" | ").nth(1))
        .collect();
    for part in data.chunks(8) {
        let lines: String = part
            .iter()
            .enumerate()
            .map(|(at, data)| format!("r{at} {data}\n"))
            .collect();
        all.push(format!("{head}{lines}").into_bytes());
    }
    for text in [
        "a 1h IN A ( 192.0.2.1 ) ; c\n",
        "$ORIGIN x.example.com.\n@ TXT \"a\\\"b\" \"\\255\\\\\"\n",
        "$GENERATE 1-9/2 h${0,3,x} A 192.0.2.$\n",
        "a TYPE1 \\# 4 0a000001\n",
        "a HTTPS 1 . alpn=\"h2\\,h3\" mandatory=alpn port=53 ipv4hint=192.0.2.1\n",
        "a SVCB 0 b\n",
        "a CNAME a\nb DNAME b.c\n* NS ns1\n",
        "a\\.b\\032c A 192.0.2.1\n\\300 A 192.0.2.2\n",
        "d NS ns.d\nns.d A 192.0.2.1\nd DS 1 13 2 00\nx.d TXT occluded\n",
    ] {
        all.push(format!("{head}{text}").into_bytes());
    }
    all
}

/// Configurations.
pub fn configs() -> Vec<Vec<u8>> {
    let folder = crate::folder().join("../../configs");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("configs")
        .map(|entry| entry.expect("configs").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.push(crate::folder().join("world/windrose.toml"));
    files.sort();
    let mut all: Vec<Vec<u8>> = [
        "[admin]\ntoken = \"\"\"a token\nof two lines\"\"\"\n",
        "[admin]\ntoken = '''\u{e9}'''\n[dns.cookies]\nsecret = \"ab\"\n",
        "admin.\"token\" = \"x\"\nisp = [ { name = \"a\", prefixes = [ \"10.0.0.0/33\", \"::/0\" ] } ]\n",
        "[[service]]\nname = \"\\u00e9.example.com\"\nanswers = 99999999999999999999\nttl = -1\nchain = [1]\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    // Without paths into the machine, which the target does not follow.
    let read = |file: &PathBuf| std::fs::read_to_string(file).expect("a configuration");
    all.extend(
        files
            .iter()
            .map(|file| read(file).replace("\"/", "\"").into_bytes()),
    );
    all
}
