//! The questions that all servers are asked: drawn from the zone's names, random names around them, all types, and what EDNS and
//! the header may say. Called by the comparison; the same on each run.

use windrose_tests::message::{Query, flag, name, option, record};

/// Names of the zones, and names that are not there.
const NAMES: &[&str] = &[
    "example.com.",
    "www.example.com.",
    "ns1.example.com.",
    "mail.example.com.",
    "_sip._udp.example.com.",
    "_udp.example.com.",
    "ptr.example.com.",
    "naptr.example.com.",
    "opaque.example.com.",
    "ent.example.com.",
    "deep.ent.example.com.",
    "wild.example.com.",
    "*.wild.example.com.",
    "there.wild.example.com.",
    "ent.wild.example.com.",
    "x.ent.wild.example.com.",
    "alias.example.com.",
    "*.alias.example.com.",
    "web.example.com.",
    "web2.example.com.",
    "lost.example.com.",
    "out.example.com.",
    "far.example.com.",
    "tocut.example.com.",
    "cut.example.com.",
    "below.cut.example.com.",
    "ns.cut.example.com.",
    "away.example.com.",
    "big.example.com.",
    "huge.example.com.",
    "many.example.com.",
    "loop1.example.com.",
    "absent.example.com.",
    "example.net.",
    "www.example.net.",
    "absent.example.net.",
    "example.org.",
    "com.",
    ".",
];

/// Types that there are, then some that there are not.
const TYPES: &[u16] = &[
    1, 2, 5, 6, 12, 13, 15, 16, 28, 33, 35, 39, 43, 46, 47, 48, 50, 52, 64, 65, 99, 255, 256, 257, 0, 41,
    249, 250, 253, 254, 1000, 32768, 65280, 65535,
];

/// A question and how it differs from a plain one.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) query: Query,
    pub(crate) name: Vec<u8>,
    pub(crate) rtype: u16,
    pub(crate) twist: Twist,
}

/// What is unusual about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    None,
    /// AA, TC, RA, AD, CD, Z or RD.
    Flags,
    Class,
    Opcode,
    /// Records where a query has none.
    Records,
    /// Bytes behind the last record.
    Tail,
    Badvers,
    TwoOpt,
    /// OPT whose options are malformed.
    BadOption,
    Rcode,
    NoQuestion,
    TwoQuestions,
}

/// A generator of numbers (xorshift64*; Marsaglia 2003, Vigna 2016).
#[derive(Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap_or(0) % bound
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A label of letters and digits, sometimes of any bytes.
    fn label(&mut self) -> Vec<u8> {
        let longest = if self.below(20) == 0 { 63 } else { 8 };
        let length = 1 + self.below(longest);
        let odd = self.below(10) == 0;
        let mut label = vec![u8::try_from(length).unwrap_or(1)];
        label.extend((0..length).map(|_| match odd {
            true => u8::try_from(self.next() & 0xff).unwrap_or(0),
            false => self.of(b"abcdefghijklmnopqrstuvwxyz0123456789-_"),
        }));
        label
    }

    fn name(&mut self) -> Vec<u8> {
        let mut wire = name(self.of(NAMES));
        // Below it, sometimes deep below.
        let labels = match self.below(10) {
            0..=4 => 0,
            5..=8 => 1,
            _ => self.below(6),
        };
        for _ in 0..labels {
            let below = [self.label(), wire.clone()].concat();
            if below.len() <= 255 {
                wire = below;
            }
        }
        if self.below(5) == 0 {
            let (mut at, random) = (0, self.next());
            while let Some(length) = wire
                .get(at)
                .map(|length| usize::from(*length))
                .filter(|length| *length > 0)
            {
                for byte in &mut wire[at + 1..=at + length] {
                    if byte.is_ascii_lowercase() && random >> (at % 40) & 1 == 1 {
                        *byte = byte.to_ascii_uppercase();
                    }
                }
                at += 1 + length;
            }
        }
        wire
    }

    /// One question.
    pub(crate) fn question(&mut self) -> Asked {
        let wire = self.name();
        let rtype = match self.below(8) {
            0 => u16::try_from(self.next() & 0xffff).unwrap_or(1),
            1..=3 => self.of(&[1, 28, 16]),
            _ => self.of(TYPES),
        };
        // Transfers are another protocol.
        let rtype = if matches!(rtype, 251 | 252) { 1 } else { rtype };
        let mut query = Query::of(&wire, rtype);
        let a = record("x.example.com.", 1, 1, 5, &[192, 0, 2, 1]);
        let twist = match self.below(40) {
            0 | 1 => Twist::Flags,
            2 => Twist::Class,
            3 => Twist::Opcode,
            4 => Twist::Records,
            5 => Twist::Tail,
            6 => Twist::Badvers,
            7 => Twist::TwoOpt,
            8 => Twist::BadOption,
            9 => Twist::Rcode,
            10 => Twist::NoQuestion,
            11 => Twist::TwoQuestions,
            _ => Twist::None,
        };
        query = match twist {
            Twist::Flags => {
                query.flags(self.of(&[flag::AA, flag::TC, flag::RA, flag::AD, flag::Z, flag::RD]))
            }
            Twist::Class => query.class(self.of(&[0, 2, 3, 4, 254, 255, 300])),
            Twist::Opcode => query.opcode(self.of(&[1, 2, 3, 4, 5, 6, 7, 11, 15])),
            Twist::Records => query.record(1 + self.below(2), a),
            Twist::Tail => query.tail(&[0; 7]),
            Twist::Rcode => query.flags(self.of(&[1, 5, 15])),
            Twist::NoQuestion => Query::empty(),
            Twist::TwoQuestions => query.question(&wire, 1, 1),
            _ => query,
        };
        let size = self.of(&[0, 512, 1231, 1232, 1410, 4096, 65535]);
        query = match twist {
            Twist::Badvers => query.opt(size, 0x0001_0000, &[]),
            Twist::TwoOpt => query.edns().edns(),
            Twist::BadOption => query.opt(size, 0, &[0, 100, 0, 9, 1]),
            _ => match self.below(8) {
                0 | 1 => query.opt(size, 0, &[]),
                2 => query.opt(size, 0x8000, &[]),
                3 => query.opt(size, 0x7fff, &[]),
                4 => query.opt(size, 0, &option(100, b"unknown")),
                5 => query.opt(size, 0, &option(12, &[0; 16])),
                _ => query,
            },
        };
        Asked {
            query,
            name: wire,
            rtype,
            twist,
        }
    }
}
