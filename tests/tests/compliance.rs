//! The cases of ISC's DNS compliance tester (genreport's full set) and its tests of every record type, against a running
//! appliance, over both families: the same queries, judged by the same rules. Needs root. `./run compliance` runs the tester itself.

use std::net::IpAddr;
use windrose_tests::lab::Host;
use windrose_tests::stream::{DnsStream, datagrams};
use windrose_tests::world::{Kind, World};

const SOA: u16 = 6;
const DNSKEY: u16 = 48;
/// Header flags of a query.
const AA: u16 = 0x0400;
const TC: u16 = 0x0200;
const RD: u16 = 0x0100;
const RA: u16 = 0x0080;
const Z: u16 = 0x0040;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;
const DO: u16 = 0x8000;
const ZONE: &[u8] = b"\x07example\x03com\x00";

/// What a case sends beside a plain query for the zone's SOA.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    flags: u16,
    opcode: u16,
    rtype: u16,
    tcp: bool,
    /// Size, version, flags and RDATA of an OPT record.
    edns: Option<(u16, u8, u16, &'static [u8])>,
}

const PLAIN: Case = Case {
    name: "",
    flags: 0,
    opcode: 0,
    rtype: SOA,
    tcp: false,
    edns: None,
};

const fn dns(name: &'static str, flags: u16) -> Case {
    Case { name, flags, ..PLAIN }
}

const fn edns(name: &'static str, version: u8, flags: u16, options: &'static [u8]) -> Case {
    Case {
        name,
        edns: Some((4096, version, flags, options)),
        ..PLAIN
    }
}

const OPTION_100: &[u8] = &[0, 100, 0, 0];
const NSID: &[u8] = &[0, 3, 0, 0];
const EXPIRE: &[u8] = &[0, 9, 0, 0];
const SUBNET: &[u8] = &[0, 8, 0, 4, 0, 1, 0, 0];
const COOKIE: &[u8] = &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
const LIST: &[u8] = &[
    0, 3, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0, 9, 0, 0, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8,
];

/// By the tester's names.
const CASES: &[Case] = &[
    dns("dns", 0),
    dns("aa", AA),
    dns("ad", AD),
    dns("cd", CD),
    dns("ra", RA),
    dns("rd", RD),
    dns("tc", TC),
    dns("zflag", Z),
    Case {
        opcode: 15,
        rtype: 0,
        ..dns("opcode", 0)
    },
    Case {
        opcode: 15,
        rtype: 0,
        ..dns("opcodeflg", TC | RD | RA | CD | AD | AA | Z)
    },
    Case {
        rtype: 666,
        ..dns("type666", 0)
    },
    Case {
        tcp: true,
        ..dns("tcp", 0)
    },
    edns("edns", 0, 0, &[]),
    edns("edns1", 1, 0, &[]),
    Case {
        rtype: DNSKEY,
        edns: Some((512, 0, 0, &[])),
        ..dns("edns@512", 0)
    },
    edns("ednsopt", 0, 0, OPTION_100),
    edns("edns1opt", 1, 0, OPTION_100),
    edns("do", 0, DO, &[]),
    Case {
        flags: CD,
        ..edns("docd", 0, DO, &[])
    },
    edns("edns1do", 1, DO, &[]),
    edns("ednsflags", 0, 0x0080, &[]),
    edns("optlist", 0, 0, LIST),
    edns("ednsnsid", 0, 0, NSID),
    edns("ednscookie", 0, 0, COOKIE),
    edns("ednsexpire", 0, 0, EXPIRE),
    edns("ednssubnet", 0, 0, SUBNET),
    edns("edns1nsid", 1, 0, NSID),
    edns("edns1cookie", 1, 0, COOKIE),
    edns("edns1expire", 1, 0, EXPIRE),
    edns("edns1subnet", 1, 0, SUBNET),
    Case {
        rtype: DNSKEY,
        tcp: true,
        edns: Some((512, 0, DO, &[])),
        ..dns("ednstcp", 0)
    },
    edns("bind11", 0, DO, COOKIE),
    Case {
        flags: RD | AD,
        ..edns("dig11", 0, 0, COOKIE)
    },
];
/// The types of its type tests: the registry's that a client may ask for.
const TYPES: &[u16] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 33, 35, 36, 37, 38, 39, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 55, 59, 60, 61, 99, 104,
    105, 106, 107, 108, 109, 256, 257, 258, 259, 32769, 1000,
];

impl Case {
    fn query(&self) -> Vec<u8> {
        let header_only = self.opcode != 0;
        let mut query = vec![0x12, 0x34];
        query.extend((self.opcode << 11 | self.flags).to_be_bytes());
        query.extend([
            0,
            u8::from(!header_only),
            0,
            0,
            0,
            0,
            0,
            u8::from(self.edns.is_some()),
        ]);
        if !header_only {
            query.extend(ZONE);
            query.extend(self.rtype.to_be_bytes());
            query.extend([0, 1]);
        }
        if let Some((size, version, flags, options)) = self.edns {
            query.extend([0, 0, 41]);
            query.extend(size.to_be_bytes());
            query.extend([0, version]);
            query.extend(flags.to_be_bytes());
            query.extend((options.len() as u16).to_be_bytes());
            query.extend(options);
        }
        query
    }

    /// What the tester marks; nothing is "ok".
    fn marks(&self, reply: &Reply) -> Vec<String> {
        let version = self.edns.map_or(0, |(_, version, ..)| version);
        let query = self.opcode == 0;
        let flag = |bit: u16| reply.flags & bit != 0;
        let mut marks = Vec::new();
        let mut mark = |wrong: bool, text: &str| {
            if wrong {
                marks.push(text.to_owned());
            }
        };
        mark(reply.flags >> 11 & 15 != self.opcode, "opcode");
        mark(!query && reply.counts != [0; 4], "not empty");
        let wanted = match (version, query) {
            (0, true) => 0,
            (0, false) => 4,
            _ => 16,
        };
        mark(reply.rcode != wanted, &format!("rcode {}", reply.rcode));
        mark(reply.opt.is_some() != self.edns.is_some(), "OPT");
        if let Some((reply_version, flags)) = reply.opt {
            mark(reply_version != 0, "version");
            mark(flags & 0x7fff != 0, "mbz");
        }
        mark(
            self.rtype == SOA && query && (version == 0) != reply.types.contains(&SOA),
            "SOA",
        );
        let unknown = |code: &u16| !matches!(code, 3 | 8 | 9 | 10 | 15);
        mark(reply.options.iter().any(unknown), "echoed");
        mark(query && version == 0 && !flag(AA), "noaa");
        mark(!query && flag(AA | RA | RD | AD | CD), "flags");
        mark(flag(RD) && self.flags & RD == 0, "rd");
        mark(query && !flag(RD) && self.flags & RD != 0, "nord");
        mark(flag(AD) && self.flags & AD == 0, "ad");
        mark(flag(CD) && self.flags & CD == 0, "cd");
        mark(flag(Z), "z");
        mark(
            reply.len > self.edns.map_or(512, |(size, ..)| usize::from(size)) && !self.tcp,
            "toobig",
        );
        let cookie = self.edns.is_some_and(|(.., options)| options.ends_with(COOKIE));
        mark(cookie && version == 0 && !reply.cookie_starts_right, "cookie");
        marks
    }
}

/// A reply, read to its end by a reader of its own.
struct Reply {
    flags: u16,
    counts: [u16; 4],
    rcode: u16,
    types: Vec<u16>,
    /// Version, flags.
    opt: Option<(u8, u16)>,
    options: Vec<u16>,
    cookie_starts_right: bool,
    len: usize,
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let name = |mut at: usize| {
            loop {
                match bytes[at] {
                    0 => return at + 1,
                    0xc0.. => return at + 2,
                    len => at += 1 + usize::from(len),
                }
            }
        };
        let counts = [4, 6, 8, 10].map(word);
        let mut reply = Self {
            flags: word(2),
            counts,
            rcode: word(2) & 15,
            types: vec![],
            opt: None,
            options: vec![],
            cookie_starts_right: false,
            len: bytes.len(),
        };
        let mut at = 12;
        for _ in 0..counts[0] {
            at = name(at) + 4;
        }
        for _ in 0..counts[1] + counts[2] + counts[3] {
            at = name(at);
            let (rtype, end) = (word(at), at + 10 + usize::from(word(at + 8)));
            reply.types.push(rtype);
            if rtype == 41 {
                reply.rcode |= u16::from(bytes[at + 4]) << 4;
                reply.opt = Some((bytes[at + 5], word(at + 6)));
                let mut option = at + 10;
                while option < end {
                    reply.options.push(word(option));
                    let data = &bytes[option + 4..option + 4 + usize::from(word(option + 2))];
                    reply.cookie_starts_right |= word(option) == 10 && data.starts_with(&COOKIE[4..]);
                    option += 4 + data.len();
                }
            }
            at = end;
        }
        assert_eq!(at, bytes.len(), "bytes behind the last record");
        reply
    }
}

fn ask(host: &Host, server: IpAddr, case: &Case) -> Reply {
    let query = case.query();
    let reply = if case.tcp {
        DnsStream::connect(host, server).unwrap().ask(&query).unwrap()
    } else {
        let socket = datagrams(host, server).unwrap();
        socket.send(&query).unwrap();
        let mut buffer = [0; 4096];
        let len = socket
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        buffer[..len].to_vec()
    };
    assert_eq!(reply[..2], query[..2], "{}", case.name);
    Reply::read(&reply)
}

#[test]
fn all_cases_are_ok() {
    let world = World::running(Kind::AfPacket, 1).unwrap();
    let isp = &world.isps[0];
    let types = TYPES.iter().map(|&rtype| Case {
        rtype,
        ..dns("type", 0)
    });
    let mut marked = Vec::new();
    for case in CASES.iter().copied().chain(types) {
        for ipv6 in [false, true] {
            let marks = case.marks(&ask(&isp.host, isp.server(ipv6), &case));
            if !marks.is_empty() {
                marked.push(format!(
                    "{} {} (IPv6 {ipv6}): {}",
                    case.name,
                    case.rtype,
                    marks.join(",")
                ));
            }
        }
    }
    assert!(marked.is_empty(), "{marked:#?}");
}
