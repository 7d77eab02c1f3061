//! The first half of the engine: reads a query into a [`Located`], and asks for the table lines that the
//! answer will read. Header, question, EDNS; nothing is written.
//!
//! The end of a short name is taken to be its first zero byte, without walking the labels: equality with
//! a name of the table proves it. Whoever does not find the name must call [`Located::reparse_walked`]. Plain
//! queries are read by [`Located::locate`] alone, with header tests merged into one branch; whatever it doubts is
//! read again, whole, by `parse`, which alone defines what is right.

use super::choose::Drawn;
use crate::counters::Counter;
use crate::tables::plans::Policy;
use crate::tables::{Key, NONE, Snapshot, names::Found};
use crate::wire::dns::{self, CLASS_IN, HEADER_LEN, flags, rtype};
use crate::wire::edns::{self, Edns};
use crate::wire::{load_2, load_8};

/// What the first half made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// A question that the tables decide, of a short name whose end was guessed.
    Short,
    /// A question that the tables decide, of a name whose labels were walked.
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
#[repr(C)]
pub struct Located {
    pub(super) hash: u64,
    pub(super) key: Key,
    /// Where the name was found, unless its node is [`NONE`]; not yet compared.
    pub(super) found: Found,
    /// With a service: index of the cell that ranks its sites for the client.
    pub(super) cell: u32,
    /// Offset behind the question; [`HEADER_LEN`] when there is none to echo.
    pub(super) question_end: u16,
    pub(super) qtype: u16,
    /// Length of the message, bytes.
    pub(super) len: u16,
    /// Its ID.
    pub(super) id: u16,
    /// With a service: the members that were drawn, if they share a health word.
    pub(super) drawn: Drawn,
    /// With a service and `by_subnet`: the ECS scope of its answer, bits.
    pub(super) subnet_scope: u8,
    /// Whether `client` is the client subnet's address.
    pub(super) by_subnet: bool,
    /// Once walked: how many labels the name has, and where each starts.
    pub(super) labels: u8,
    pub(super) status: Status,
    /// The address that the choice goes by.
    pub(super) client: Client,
    /// With `by_subnet`: the query's source address.
    source: Client,
    pub(super) edns: Edns,
    /// For rate limits: the node or zone that a reply counts for with those of other names; [`NONE`]: the name's own.
    pub(super) account: u32,
    pub(super) offsets: [u8; 256],
}

impl Default for Located {
    fn default() -> Self {
        Self {
            hash: 0,
            key: Key::default(),
            found: Found::NONE,
            cell: 0,
            question_end: HEADER_LEN as u16,
            qtype: 0,
            len: 0,
            id: 0,
            drawn: Drawn::default(),
            subnet_scope: 0,
            by_subnet: false,
            labels: 0,
            status: Status::Drop(Counter::DropDnsShort),
            client: Client::V4([0; 4]),
            source: Client::V4([0; 4]),
            edns: Edns::default(),
            account: NONE,
            offsets: [0; 256],
        }
    }
}

/// Whether a query is as nearly all are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// It is not, or something is wrong with it.
    No,
    /// One question, and nothing else.
    Alone,
    /// One question and one additional record.
    WithRecord,
}

/// QR and opcode, which a plain query has clear.
const FLAGS_MASK: u16 = (flags::QR | flags::OPCODE).to_be();
/// QDCOUNT to ARCOUNT of a plain query: one question, and one additional record or none.
const COUNTS: u64 = u64::from_ne_bytes([0, 1, 0, 0, 0, 0, 0, 0]);
const ONE_ADDITIONAL: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]);
/// The longest name that a plain query has, bytes: where the first zero byte is looked for.
pub(super) const SHORT: usize = 32;
/// Type and class behind a name.
const TYPE_AND_CLASS: usize = 4;
/// Root owner and type of an OPT record, of its first four bytes.
const OPT_MASK: u32 = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);
const OPT_WANT: u32 = u32::from_ne_bytes([0, 0, rtype::OPT as u8, 0]);

impl Located {
    /// Reads the message in the first `len` bytes of `buffer`, asked by `client`. Bytes behind `len` may be
    /// read as padding, never as message. True for a question of a short name whose end was guessed.
    #[inline(always)]
    pub fn locate<const N: usize>(
        &mut self,
        snapshot: &Snapshot,
        buffer: &[u8; N],
        len: usize,
        client: Client,
    ) -> bool {
        // Each kind by itself, so that no more than its bytes are written.
        match client {
            Client::V4(address) => self.client = Client::V4(address),
            Client::V6(address) => self.client = Client::V6(address),
        }
        self.by_subnet = false;
        let plain = self.plain(buffer, len);
        if plain == Plain::Alone {
            prefetch_class(snapshot, client);
        } else if plain == Plain::No || !self.plain_opt(buffer, len, self.question_end.into()) {
            self.locate_any(snapshot, buffer, len);
            return false;
        } else if self.edns.has(Edns::SUBNET) {
            self.use_subnet(snapshot);
            self.prefetch_class(snapshot);
        } else {
            prefetch_class(snapshot, client);
        }
        self.len = len as u16;
        self.status = Status::Short;
        self.hash = snapshot.names.hash_short(&self.key);
        true
    }

    /// Reads a query as nearly all are, up to its additional record: one question with a short name, class IN. When it is
    /// none such, what was read means nothing.
    #[inline(always)]
    fn plain<const N: usize>(&mut self, buffer: &[u8; N], len: usize) -> Plain {
        const { assert!(N >= 512) };
        let counts = load_8::<4, N>(buffer);
        let Some(block) = buffer.get(HEADER_LEN..).and_then(|b| b.first_chunk::<SHORT>()) else {
            return Plain::No;
        };
        let zeros = crate::arch::zero_bytes(block);
        if zeros == 0 {
            return Plain::No;
        }
        let name_len = zeros.trailing_zeros() as usize + 1;
        let question_end = HEADER_LEN + TYPE_AND_CLASS + name_len;
        let Some(&[t0, t1, c0, c1]) = buffer.get(HEADER_LEN + name_len..).and_then(|b| b.first_chunk())
        else {
            return Plain::No;
        };
        let differs = u64::from(load_2::<2, N>(buffer) & FLAGS_MASK)
            | ((counts ^ COUNTS) & !ONE_ADDITIONAL)
            | u64::from(u16::from_ne_bytes([c0, c1]) ^ CLASS_IN.to_be());
        if differs != 0 || question_end > len {
            return Plain::No;
        }
        self.id = load_2::<0, N>(buffer);
        self.qtype = u16::from_be_bytes([t0, t1]);
        self.question_end = question_end as u16;
        self.key.set_short(block, name_len);
        self.edns.flags = 0;
        match counts & ONE_ADDITIONAL {
            0 => Plain::Alone,
            _ => Plain::WithRecord,
        }
    }

    /// Reads the one record behind the question. False when it is no OPT record, or a wrong one.
    #[inline(always)]
    fn plain_opt<const N: usize>(&mut self, buffer: &[u8; N], len: usize, at: usize) -> bool {
        let Some(b) = buffer
            .get(at..)
            .and_then(|b| b.first_chunk::<{ edns::OPT_LEN }>())
        else {
            return false;
        };
        let [o, t0, t1, s0, fixed @ ..] = *b;
        let [s1, x, version, f0, f1, l0, l1] = fixed;
        let rdata = at + edns::OPT_LEN;
        let end = rdata + u16::from_be_bytes([l0, l1]) as usize;
        (u32::from_ne_bytes([o, t0, t1, s0]) ^ OPT_WANT) & OPT_MASK == 0
            && version == 0
            && end <= len.min(N)
            && self
                .edns
                .read([s0, s1, x, version, f0, f1, l0, l1], buffer, rdata, end)
                .is_ok()
    }

    /// Any message, whole.
    #[cold]
    #[inline(never)]
    fn locate_any<const N: usize>(&mut self, snapshot: &Snapshot, buffer: &[u8; N], len: usize) {
        self.len = len.min(N).min(u16::MAX as usize) as u16;
        self.id = load_2::<0, N>(buffer);
        let walked = self.walk(buffer);
        self.parse(buffer, walked);
        if self.status == Status::Answer {
            self.hash = snapshot.names.hash(&self.key);
            self.take_subnet(snapshot);
            self.prefetch_class(snapshot);
        }
    }

    /// Walks the labels of a name whose end was guessed. True when the guess was wrong and all was read
    /// again: the caller must hash and look up again.
    #[cold]
    #[inline(never)]
    pub(super) fn reparse_walked<const N: usize>(&mut self, snapshot: &Snapshot, buffer: &[u8; N]) -> bool {
        if self.status != Status::Short {
            return false;
        }
        self.status = Status::Answer;
        let walked = self.walk(buffer);
        if walked == Some(self.key.len()) {
            return false;
        }
        self.parse(buffer, walked);
        // What was read as a client subnet behind the wrong end of the name is forgotten.
        self.take_subnet(snapshot);
        true
    }

    /// Length of the question's name by its labels, which are remembered; `None` when it cannot be read. A name
    /// of 127 labels takes 127 turns, so each is short.
    #[inline(never)]
    fn walk<const N: usize>(&mut self, buffer: &[u8; N]) -> Option<usize> {
        // Room for a label behind the longest name, so that one test a turn bounds both.
        let name = buffer
            .get(HEADER_LEN..)?
            .first_chunk::<{ dns::NAME_ROOM + 64 }>()?;
        let (mut at, mut labels) = (0usize, 0usize);
        loop {
            let len = *name.get(at)? as usize;
            if len.wrapping_sub(1) >= dns::LABEL_MAX {
                if len > 0 {
                    return None;
                }
                break;
            }
            // 127 labels at most, as each moves on by two bytes or more.
            *self.offsets.get_mut(labels)? = at as u8;
            labels += 1;
            at += 1 + len;
            if at >= dns::NAME_MAX {
                return None;
            }
        }
        self.labels = labels as u8;
        (HEADER_LEN + at < self.len as usize).then_some(at + 1)
    }

    /// Is no query any more: nothing is looked up.
    pub fn forget(&mut self) {
        self.found = Found::NONE;
        self.status = Status::Drop(Counter::DropNoSnapshot);
    }

    /// A message that is not read at all.
    pub(super) fn refuse(&mut self, reason: Counter) {
        self.found = Found::NONE;
        self.status = Status::Drop(reason);
    }

    /// With a service: the ECS scope of its answer, bits.
    #[inline(always)]
    pub(super) fn scope(&self) -> u8 {
        if self.by_subnet { self.subnet_scope } else { 0 }
    }

    /// The query's source address.
    #[inline(always)]
    pub(super) fn source(&self) -> Client {
        match self.by_subnet {
            true => self.source,
            false => self.client,
        }
    }

    /// The address that a choice goes by among the cells at `place`, and whether it is the client subnet's.
    #[inline(always)]
    pub(super) fn client_at(&self, place: u32) -> (Client, bool) {
        match self.by_subnet && place & Policy::PLACE_BY_SOURCE != 0 {
            true => (self.source, false),
            false => (self.client, self.by_subnet),
        }
    }

    /// Who asks, if it is for what a service chooses.
    pub(crate) fn asked_service(&self) -> Option<Client> {
        (self.found.service != NONE).then_some(self.client)
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

    /// Once walked: where the name's ancestor of so many labels starts.
    #[inline(always)]
    pub(super) fn start(&self, depth: usize) -> Option<usize> {
        let label = (self.labels as usize).checked_sub(depth)?;
        self.offsets.get(label).map(|at| *at as usize)
    }

    /// The question's name, lower-cased, in wire form.
    #[inline(always)]
    pub(super) fn name(&self) -> &[u8] {
        self.key.name()
    }

    /// Decides which address the choice goes by: the client subnet's, if there is one that may be used.
    #[inline(never)]
    fn take_subnet(&mut self, snapshot: &Snapshot) {
        if std::mem::take(&mut self.by_subnet) {
            self.client = self.source;
        }
        if self.edns.has(Edns::SUBNET) {
            self.use_subnet(snapshot);
        }
    }

    /// The choice goes by the client subnet's address, if it may be used.
    #[inline(always)]
    fn use_subnet(&mut self, snapshot: &Snapshot) {
        let subnet = &self.edns.subnet;
        if snapshot.limits.ecs && subnet.source() > 0 {
            self.by_subnet = true;
            self.source = self.client;
            self.client = if subnet.family() == 1 {
                Client::V4(subnet.v4())
            } else {
                Client::V6(subnet.v6())
            };
        }
    }

    #[inline(always)]
    fn prefetch_class(&mut self, snapshot: &Snapshot) {
        prefetch_class(snapshot, self.client);
    }

    /// Reads everything, the name being `name_len` bytes long; `None` when it cannot be read.
    #[inline(never)]
    fn parse<const N: usize>(&mut self, buffer: &[u8; N], name_len: Option<usize>) {
        let len = self.len as usize;
        self.question_end = HEADER_LEN as u16;
        self.found = Found::NONE;
        self.edns.flags = 0;
        self.edns.version = 0;
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
            Some(name_len) if qdcount == 1 && HEADER_LEN + name_len + TYPE_AND_CLASS <= len => {
                HEADER_LEN + name_len + TYPE_AND_CLASS
            }
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
        self.key.set(name, question_end - HEADER_LEN - TYPE_AND_CLASS);
        self.question_end = question_end as u16;
        self.qtype = dns::be16(buffer, question_end - 4);
        let qclass = dns::be16(buffer, question_end - 2);
        let counts = [ancount, nscount, arcount];
        let readable = self.walk_records(buffer.get(..len).unwrap_or(&[]), question_end, counts);
        self.status = if not_implemented {
            Status::Error(dns::rcode::NOTIMP as u16)
        } else if !readable {
            Status::Error(dns::rcode::FORMERR as u16)
        } else if self.edns.version != 0 {
            Status::Error(dns::rcode::BADVERS)
        } else if qclass != CLASS_IN {
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
        let readable =
            skip_questions(message, qdcount).is_some_and(|at| self.walk_records(message, at, counts));
        let rcode = if not_implemented {
            dns::rcode::NOTIMP
        } else if readable && qdcount == 0 && counts == [0, 0, 1] && self.edns.has(Edns::COOKIE) {
            // A query for a cookie alone (RFC 7873 section 5.4).
            dns::rcode::NOERROR
        } else {
            dns::rcode::FORMERR
        };
        self.status = Status::Error(rcode as u16);
    }

    /// Reads the records behind the question for an OPT. False when the message is malformed.
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
                let fixed = message.get(record.rdata - 8..).and_then(|b| b.first_chunk::<8>());
                let Some(&fixed) = fixed.filter(|_| i >= before && root && !self.edns.has(Edns::PRESENT))
                else {
                    return false;
                };
                if self.edns.read(fixed, message, record.rdata, at).is_err() {
                    return false;
                }
            }
        }
        true
    }
}

/// The offset behind `count` questions. Each is five bytes at least, so the message bounds the loop.
#[cold]
fn skip_questions(message: &[u8], count: u16) -> Option<usize> {
    (0..count).try_fold(HEADER_LEN, |at, _| {
        Some(dns::skip_name(message, at).ok()? + TYPE_AND_CLASS)
    })
}

#[inline(always)]
fn prefetch_class(snapshot: &Snapshot, client: Client) {
    match client {
        Client::V4(address) => snapshot.classes.prefetch_v4(address),
        Client::V6(address) => snapshot.classes.prefetch_v6(address),
    }
}
