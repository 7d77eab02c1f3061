//! The first half of the engine: reads a query into a [`Located`], and asks for the table lines that the
//! answer will read. Header, question, EDNS; nothing is written.
//!
//! The end of a short name is taken to be its first zero byte, without walking the labels: equality with
//! a name of the table proves it. Whoever does not find the name must call [`Located::reparse_walked`].

use crate::counters::Counter;
use crate::tables::{Key, Snapshot, classes::Class, names::Found};
use crate::wire::dns::{self, CLASS_IN, HEADER_LEN, flags, rtype};
use crate::wire::edns::{self, Edns};

/// What the first half made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// A question that the tables decide.
    Answer,
    /// An error reply; the extended RCODE.
    Error(u16),
    /// No reply at all.
    Drop(Counter),
}

/// The client's address, as the transport or a client subnet gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// A query between the two halves.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    pub(super) key: Key,
    pub(super) hash: u64,
    pub(super) status: Status,
    /// Offset behind the question; [`HEADER_LEN`] when there is none to echo.
    pub(super) question_end: u16,
    pub(super) qtype: u16,
    pub(super) has_opt: bool,
    pub(super) edns: Edns,
    /// The query's source address.
    source: Client,
    /// The address that the choice goes by.
    pub(super) client: Client,
    /// Whether `client` is the client subnet's address.
    pub(super) by_subnet: bool,
    pub(super) candidate: Option<Found>,
    pub(super) class: Class,
    /// Length of the message, bytes.
    pub(super) len: u16,
    /// Whether the labels of the name were walked.
    pub(super) walked: bool,
    /// Once walked: how many labels the name has, and where each starts.
    pub(super) labels: u8,
    pub(super) offsets: [u8; 128],
}

impl Default for Located {
    fn default() -> Self {
        Self {
            key: Key::default(),
            hash: 0,
            status: Status::Drop(Counter::DropDnsShort),
            question_end: HEADER_LEN as u16,
            qtype: 0,
            has_opt: false,
            edns: Edns::default(),
            source: Client::V4([0; 4]),
            client: Client::V4([0; 4]),
            by_subnet: false,
            candidate: None,
            class: Class::default(),
            len: 0,
            walked: false,
            labels: 0,
            offsets: [0; 128],
        }
    }
}

/// The first zero byte of the first 32 from offset 12 on, as an offset from there.
#[inline(always)]
fn first_zero<const N: usize>(buffer: &[u8; N]) -> Option<usize> {
    let block = buffer.get(HEADER_LEN..)?.first_chunk::<32>()?;
    let mut at = 0;
    for word in block.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(*word);
        // The lowest set bit of this marks the first zero byte exactly.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    None
}

impl Located {
    /// Reads the message in the first `len` bytes of `buffer`, asked by `client`. Bytes behind `len` may be
    /// read as padding, never as message.
    #[inline(always)]
    pub fn locate<const N: usize>(
        &mut self,
        snapshot: &Snapshot,
        buffer: &[u8; N],
        len: usize,
        client: Client,
    ) {
        self.len = len.min(N).min(u16::MAX as usize) as u16;
        self.source = client;
        match first_zero(buffer) {
            Some(zero) => {
                self.walked = false;
                self.parse(buffer, Some(zero + 1));
                if self.status != Status::Answer {
                    self.reparse_walked(buffer);
                }
            }
            None => {
                let walked = self.walk(buffer);
                self.parse(buffer, walked);
            }
        }
        if self.status == Status::Answer {
            self.hash = snapshot.names.hash(&self.key);
            self.prefetch_class(snapshot);
        }
    }

    /// Walks the labels of a name whose end was guessed. True when the guess was wrong and all was read
    /// again: the caller must hash and look up again.
    #[cold]
    #[inline(never)]
    pub(super) fn reparse_walked<const N: usize>(&mut self, buffer: &[u8; N]) -> bool {
        if self.walked {
            return false;
        }
        let walked = self.walk(buffer);
        if walked == Some(self.key.len()) && self.question_end as usize > HEADER_LEN {
            return false;
        }
        self.parse(buffer, walked);
        true
    }

    /// Length of the question's name by its labels, which are remembered; `None` when it cannot be read. A name
    /// of 127 labels takes 127 turns, so each is short: an offset of one byte needs no bounds check.
    #[inline(never)]
    fn walk<const N: usize>(&mut self, buffer: &[u8; N]) -> Option<usize> {
        self.walked = true;
        let name = buffer.get(HEADER_LEN..)?.first_chunk::<256>()?;
        let (mut at, mut labels) = (0u8, 0u8);
        loop {
            let len = *name.get(at as usize)?;
            if len == 0 {
                break;
            }
            if len as usize > dns::LABEL_MAX {
                return None;
            }
            *self.offsets.get_mut(labels as usize)? = at;
            labels += 1;
            at = at.checked_add(len + 1)?;
        }
        self.labels = labels;
        let name_len = at as usize + 1;
        (name_len <= dns::NAME_MAX && HEADER_LEN + name_len <= self.len as usize).then_some(name_len)
    }

    /// A message that is not read at all.
    pub(super) fn refuse(&mut self, reason: Counter) {
        self.status = Status::Drop(reason);
    }

    /// Length of the query, bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for a query of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(super) fn prefetch_class(&mut self, snapshot: &Snapshot) {
        self.by_subnet = false;
        self.client = self.source;
        if let Some(subnet) = &self.edns.subnet
            && snapshot.limits.ecs
            && subnet.source > 0
        {
            self.by_subnet = true;
            let [a, b, c, d, ..] = subnet.address;
            self.client = if subnet.family == 1 {
                Client::V4([a, b, c, d])
            } else {
                Client::V6(subnet.address)
            };
        }
        match self.client {
            Client::V4(address) => snapshot.classes.prefetch_v4(address),
            Client::V6(address) => snapshot.classes.prefetch_v6(address),
        }
    }

    /// Reads everything, the name being `name_len` bytes long; `None` when it cannot be read.
    #[inline(always)]
    fn parse<const N: usize>(&mut self, buffer: &[u8; N], name_len: Option<usize>) {
        let len = self.len as usize;
        self.question_end = HEADER_LEN as u16;
        self.has_opt = false;
        self.edns = Edns::default();
        let Some(header) = buffer.first_chunk::<HEADER_LEN>().filter(|_| len >= HEADER_LEN) else {
            self.status = Status::Drop(Counter::DropDnsShort);
            return;
        };
        let [_, _, f0, f1, q0, q1, a0, a1, n0, n1, r0, r1] = *header;
        let flags = u16::from_be_bytes([f0, f1]);
        if flags & flags::QR != 0 {
            self.status = Status::Drop(Counter::DropDnsResponse);
            return;
        }
        let not_implemented = flags & flags::OPCODE != 0;
        let [qdcount, ancount, nscount, arcount] =
            [[q0, q1], [a0, a1], [n0, n1], [r0, r1]].map(u16::from_be_bytes);
        let question_end = match name_len {
            Some(name_len) if qdcount == 1 && HEADER_LEN + name_len + 4 <= len => HEADER_LEN + name_len + 4,
            _ => {
                self.bad_question(
                    buffer.get(..len).unwrap_or(&[]),
                    not_implemented,
                    qdcount,
                    [ancount, nscount, arcount],
                );
                return;
            }
        };
        let name = buffer.get(HEADER_LEN..).unwrap_or(&[]);
        self.key.set(name, question_end - HEADER_LEN - 4);
        self.question_end = question_end as u16;
        self.qtype = dns::be16(buffer, question_end - 4);
        let qclass = dns::be16(buffer, question_end - 2);
        let counts = [ancount, nscount, arcount];
        let readable = match counts {
            [0, 0, 0] => true,
            _ => self.read_records(buffer, len, question_end, counts),
        };
        self.status = if not_implemented {
            Status::Error(dns::rcode::NOTIMP as u16)
        } else if !readable {
            Status::Error(dns::rcode::FORMERR as u16)
        } else if self.edns.version != 0 {
            Status::Error(dns::rcode::BADVERS)
        } else if qclass != CLASS_IN || matches!(self.qtype, rtype::AXFR | rtype::IXFR) {
            Status::Error(dns::rcode::REFUSED as u16)
        } else {
            Status::Answer
        };
    }

    /// A question that cannot be echoed: none, several, or unreadable. An OPT record is still looked for where
    /// it can be found, since its sender wants one back.
    #[cold]
    #[inline(never)]
    fn bad_question(&mut self, message: &[u8], not_implemented: bool, qdcount: u16, counts: [u16; 3]) {
        if qdcount == 0 {
            self.walk_records(message, HEADER_LEN, counts);
        }
        let rcode = if not_implemented {
            dns::rcode::NOTIMP
        } else {
            dns::rcode::FORMERR
        };
        self.status = Status::Error(rcode as u16);
    }

    /// Reads the records behind the question for an OPT. False when the message is malformed.
    #[inline(always)]
    fn read_records<const N: usize>(
        &mut self,
        buffer: &[u8; N],
        len: usize,
        at: usize,
        counts: [u16; 3],
    ) -> bool {
        // By far the usual case: one OPT record, right here, and it ends the message or not.
        if counts == [0, 0, 1]
            && let Some(b) = buffer
                .get(at..)
                .and_then(|m| m.first_chunk::<{ edns::OPT_LEN }>())
            && let [0, 0, 41, s0, s1, t0, t1, t2, t3, l0, l1] = *b
        {
            let start = at + edns::OPT_LEN;
            let end = start + u16::from_be_bytes([l0, l1]) as usize;
            if end > len {
                return false;
            }
            let Some(rdata) = buffer.get(start..end) else {
                return false;
            };
            return self.read_opt(
                u16::from_be_bytes([s0, s1]),
                u32::from_be_bytes([t0, t1, t2, t3]),
                rdata,
            );
        }
        self.walk_records(buffer.get(..len).unwrap_or(&[]), at, counts)
    }

    #[inline(always)]
    fn read_opt(&mut self, class: u16, ttl: u32, rdata: &[u8]) -> bool {
        self.has_opt = true;
        match edns::parse(class, ttl, rdata) {
            Ok(edns) => {
                self.edns = edns;
                true
            }
            Err(edns::BadEdns) => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn walk_records(&mut self, message: &[u8], mut at: usize, counts: [u16; 3]) -> bool {
        let [ancount, nscount, arcount] = counts;
        let before = ancount as u32 + nscount as u32;
        // A record is 11 bytes at least, so the message bounds the loop whatever the counts say.
        for i in 0..before + arcount as u32 {
            let Ok(record) = dns::next_record(message, at) else {
                return false;
            };
            at = record.end();
            if record.rtype == rtype::OPT {
                let root = message.get(record.owner) == Some(&0);
                if i < before || !root || self.has_opt {
                    return false;
                }
                let rdata = message.get(record.rdata..record.end()).unwrap_or(&[]);
                if !self.read_opt(record.class, record.ttl, rdata) {
                    return false;
                }
            }
        }
        true
    }
}
