//! Pre-encoded records: each blob is the answer, authority and additional sections of one reply, as
//! they stand behind the question, with compression done.
//!
//! Read by `stages::dns_answer`, which copies a blob behind the question; built by control through
//! [`BlobBuilder`]. Compression pointers into the question hold as long as the question is as long as
//! the blob was encoded for. Where it is not (wildcards, negative answers), the pointers listed as
//! fix-ups are shifted by the difference.

use crate::mmap::Table;
use crate::wire::dns;
use std::io;

/// Record counts of a message in lanes of 16 bits: QDCOUNT in the highest, then ANCOUNT, NSCOUNT, ARCOUNT. Big-endian it is
/// the last eight bytes of the header (RFC 1035 section 4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub u64);

impl Counts {
    /// One question.
    pub const QUESTION: Self = Self(1 << 48);
    /// One record in the answer section.
    pub const ANSWER: Self = Self(1 << 32);
    /// One record in the authority section.
    pub const AUTHORITY: Self = Self(1 << 16);
    /// One record in the additional section.
    pub const ADDITIONAL: Self = Self(1);

    /// Both together. No lane overflows: a message has room for fewer records.
    #[inline(always)]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Without records in the additional section.
    #[inline(always)]
    pub const fn without_additional(self) -> Self {
        Self(self.0 & !0xffff)
    }

    /// Records in the answer section.
    #[inline(always)]
    pub const fn answers(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Records in the additional section.
    #[inline(always)]
    pub const fn additionals(self) -> u16 {
        self.0 as u16
    }
}

/// The fixed part of a blob. 16 bytes, followed by the sections, then by the fix-ups (two bytes each,
/// little-endian: offset of a pointer in the sections).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Records of the three sections. On storage the lane of the question holds the number of fix-ups.
    pub counts: Counts,
    /// How many fix-ups follow the sections.
    pub fixups: u16,
    /// Length of all three sections, bytes.
    pub len: u16,
    /// Length of the answer section, bytes.
    pub answer: u16,
    /// Length of the additional section, bytes.
    pub additional: u16,
    /// Length of the question name that the blob was encoded for, bytes.
    pub name_len: u8,
    /// [`Head::ADDITIONAL_REQUIRED`] and [`Head::SUFFIX`].
    pub flags: u8,
}

const HEAD_LEN: usize = 16;

impl Head {
    /// The additional section is required: without room for it the reply is truncated (glue of a
    /// referral, RFC 9471). Otherwise it is left out first.
    pub const ADDITIONAL_REQUIRED: u8 = 1;
    /// The question need only end in the name that the blob was encoded for.
    pub const SUFFIX: u8 = 2;

    /// Offset of the first of the 16-bit fields behind the counts.
    const FIELDS: usize = 8;

    #[inline(always)]
    fn read(bytes: &[u8; HEAD_LEN]) -> Self {
        let [counts, fields] = bytes.as_chunks::<{ Self::FIELDS }>().0 else {
            return Self::default();
        };
        let counts = u64::from_le_bytes(*counts);
        let [l0, l1, a0, a1, d0, d1, name_len, flags] = *fields;
        Self {
            counts: Counts(counts & 0x0000_ffff_ffff_ffff),
            fixups: (counts >> 48) as u16,
            len: u16::from_le_bytes([l0, l1]),
            answer: u16::from_le_bytes([a0, a1]),
            additional: u16::from_le_bytes([d0, d1]),
            name_len,
            flags,
        }
    }

    fn write(&self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        let (counts, fields) = out.split_at_mut(Self::FIELDS);
        counts.copy_from_slice(&(self.counts.0 | (self.fixups as u64) << 48).to_le_bytes());
        let lens = [self.len, self.answer, self.additional];
        for (to, len) in fields.as_chunks_mut::<2>().0.iter_mut().zip(lens) {
            *to = len.to_le_bytes();
        }
        if let Some(last) = fields.last_chunk_mut::<2>() {
            *last = [self.name_len, self.flags];
        }
        out
    }
}

/// One blob.
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    /// Its fixed part.
    pub head: Head,
    /// The arena from the first byte of the sections on: `head.len` bytes of sections, then
    /// fix-ups, then other blobs, so that a short copy may read a fixed size.
    pub data: &'a [u8],
}

impl<'a> Blob<'a> {
    /// Offsets of the pointers to shift, in the sections.
    pub fn fixups(&self) -> impl Iterator<Item = usize> + 'a {
        let start = self.head.len as usize;
        let bytes = self
            .data
            .get(start..start + self.head.fixups as usize * 2)
            .unwrap_or(&[]);
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| u16::from_le_bytes(*b) as usize)
    }
}

/// All blobs of a snapshot.
#[derive(Debug)]
pub struct Answers {
    arena: Table<u8>,
}

impl Answers {
    /// The blob at an offset handed out by [`AnswersBuilder::add`].
    #[inline(always)]
    pub fn blob(&self, at: u32) -> Option<Blob<'_>> {
        let (head, data) = self.arena.get(at as usize..)?.split_first_chunk::<HEAD_LEN>()?;
        Some(Blob {
            head: Head::read(head),
            data,
        })
    }

    /// Asks for the first cache line of a blob.
    #[inline(always)]
    pub fn prefetch(&self, at: u32) {
        if let Some(byte) = self.arena.get(at as usize) {
            crate::arch::prefetch_read(byte);
        }
    }

    /// Size of the arena, bytes.
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// True when there is no blob.
    pub fn is_empty(&self) -> bool {
        self.arena.is_empty()
    }
}

/// Builds [`Answers`]. Control only: it allocates.
#[derive(Debug, Default)]
pub struct AnswersBuilder {
    arena: Vec<u8>,
}

/// Blobs start at multiples of this, so that a single small record lies in one cache line.
const ALIGN: usize = 32;
/// Spare bytes behind the last blob, for copies of a fixed size.
const SLACK: usize = 64;

impl AnswersBuilder {
    /// Adds a blob; returns its offset, or `None` when 4 GiB of blobs are full.
    pub fn add(&mut self, blob: &BlobBuilder) -> Option<u32> {
        self.arena.resize(self.arena.len().next_multiple_of(ALIGN), 0);
        let at = u32::try_from(self.arena.len()).ok()?;
        let head = Head {
            fixups: blob.fixups.len() as u16,
            ..blob.head
        };
        self.arena.extend_from_slice(&head.write());
        self.arena.extend_from_slice(&blob.data);
        for at in &blob.fixups {
            self.arena.extend_from_slice(&at.to_le_bytes());
        }
        Some(at)
    }

    /// The table.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn build(mut self) -> io::Result<Answers> {
        self.arena.resize(self.arena.len() + SLACK, 0);
        Ok(Answers {
            arena: Table::from_vec(self.arena)?,
        })
    }
}

/// The sections of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Answer.
    Answer,
    /// Authority.
    Authority,
    /// Additional.
    Additional,
}

/// Where names that may be compressed stand in RDATA: how many bytes before the first, and how many names follow.
/// Only in the types of RFC 1035 (RFC 3597 section 4).
pub(crate) fn names_in_rdata(rtype: u16) -> Option<(usize, usize)> {
    match rtype {
        dns::rtype::NS | dns::rtype::CNAME | 12 | 3 | 4 | 7 | 8 | 9 => Some((0, 1)),
        dns::rtype::SOA | 14 => Some((0, 2)),
        dns::rtype::MX => Some((2, 1)),
        _ => None,
    }
}

/// Names from this message offset on are no targets of pointers: a pointer has 14 bits, and may be shifted by
/// the length of a longer question.
const TARGETS_END: usize = 0x4000 - dns::NAME_MAX;

/// The record did not fit: a reply is at most 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Encodes one blob: records in section order, names compressed against the question and each other
/// (RFC 1035 section 4.1.4, only in types that it lists: RFC 3597 section 4).
#[derive(Clone, Debug)]
pub struct BlobBuilder {
    head: Head,
    data: Vec<u8>,
    fixups: Vec<u16>,
    /// Lower-cased names behind the question that pointers may aim at, with their message offsets.
    targets: Vec<(Vec<u8>, u16)>,
    /// The question name, lower-cased.
    question: Vec<u8>,
    /// Where in it pointers may aim at: its labels from this offset on.
    question_from: usize,
    /// The blob's start in the message: behind the question.
    base: usize,
    /// Whether the question only ends in this name (negative answers, referrals).
    suffix: bool,
}

impl BlobBuilder {
    /// A blob behind a question for `question`, in wire form. Records owned by the question name point at
    /// offset 12. When `question` is a wildcard, the real question is longer or shorter and begins otherwise.
    pub fn new(question: &[u8]) -> Self {
        let mut builder = Self::empty(question, false);
        if question.starts_with(b"\x01*") {
            // The first label of the real question is not the asterisk: nothing may point at it but owners.
            builder.question_from = 2;
        }
        builder
    }

    /// A blob behind any question that is `suffix` or ends in it.
    pub fn for_suffix(suffix: &[u8]) -> Self {
        Self::empty(suffix, true)
    }

    fn empty(question: &[u8], suffix: bool) -> Self {
        Self {
            head: Head {
                name_len: question.len() as u8,
                flags: if suffix { Head::SUFFIX } else { 0 },
                ..Head::default()
            },
            data: Vec::new(),
            fixups: Vec::new(),
            targets: Vec::new(),
            question: question.to_ascii_lowercase(),
            question_from: 0,
            base: dns::HEADER_LEN + question.len() + 4,
            suffix,
        }
    }

    /// Remembers `name` and its suffixes as written at message offset `at`.
    fn learn(&mut self, name: &[u8], at: usize) {
        let mut offsets = [0; 128];
        let labels = dns::label_offsets(name, &mut offsets);
        for &start in offsets.iter().take(labels) {
            let start = start as usize;
            if at + start < TARGETS_END
                && let Some(suffix) = name.get(start..)
            {
                let lowered = suffix.to_ascii_lowercase();
                if self.target(&lowered).is_none() {
                    self.targets.push((lowered, (at + start) as u16));
                }
            }
        }
    }

    /// Where a name (lower-cased, not the root) stands already, as a message offset.
    fn target(&self, name: &[u8]) -> Option<u16> {
        if let Some(at) = self.question.len().checked_sub(name.len())
            && at >= self.question_from
            && self.question.get(at..) == Some(name)
        {
            // A label must begin there, not only bytes that look like one.
            let mut offsets = [0; 128];
            let labels = dns::label_offsets(&self.question, &mut offsets);
            if offsets.iter().take(labels).any(|&start| start as usize == at) {
                return Some((dns::HEADER_LEN + at) as u16);
            }
        }
        let known = self.targets.iter().find(|(known, _)| known == name);
        known.map(|(_, at)| *at)
    }

    /// Offset of the next byte in the blob's data.
    pub fn position(&self) -> u16 {
        self.data.len() as u16
    }

    /// The sections so far.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Marks the additional section as required (see [`Head::ADDITIONAL_REQUIRED`]).
    pub fn require_additional(&mut self) {
        self.head.flags |= Head::ADDITIONAL_REQUIRED;
    }

    /// Appends a name, compressed.
    fn put_name(&mut self, name: &[u8]) {
        let mut offsets = [0; 128];
        let labels = dns::label_offsets(name, &mut offsets);
        let start = self.data.len();
        for &at in offsets.iter().take(labels) {
            let suffix = name.get(at as usize..).unwrap_or(&[]);
            let lowered = suffix.to_ascii_lowercase();
            if let Some(target) = self.target(&lowered) {
                self.data
                    .extend_from_slice(name.get(..at as usize).unwrap_or(&[]));
                if target as usize > dns::HEADER_LEN || self.suffix {
                    self.fixups.push(self.data.len() as u16);
                }
                self.data.extend_from_slice(&(0xc000 | target).to_be_bytes());
                self.learn_prefix(name, at as usize, start);
                return;
            }
        }
        self.data.extend_from_slice(name);
        self.learn(name, self.base + start);
    }

    /// Remembers the suffixes of `name` that begin before `end`, written at data offset `start`.
    fn learn_prefix(&mut self, name: &[u8], end: usize, start: usize) {
        let mut offsets = [0; 128];
        let labels = dns::label_offsets(name, &mut offsets);
        for &at in offsets.iter().take(labels).take_while(|&&at| (at as usize) < end) {
            let message_at = self.base + start + at as usize;
            if message_at < TARGETS_END {
                let lowered = name.get(at as usize..).unwrap_or(&[]).to_ascii_lowercase();
                self.targets.push((lowered, message_at as u16));
            }
        }
    }

    /// Appends a record. Sections must come in order. `rdata` is uncompressed wire form.
    ///
    /// # Errors
    /// [`TooLong`] when the sections no longer fit a message.
    pub fn record(
        &mut self,
        section: Section,
        owner: &[u8],
        rtype: u16,
        ttl: u32,
        rdata: &[u8],
    ) -> Result<(), TooLong> {
        let start = self.data.len();
        if !self.suffix && owner.eq_ignore_ascii_case(&self.question) {
            self.data
                .extend_from_slice(&(0xc000 | dns::HEADER_LEN as u16).to_be_bytes());
        } else {
            self.put_name(owner);
        }
        self.data.extend_from_slice(&rtype.to_be_bytes());
        self.data.extend_from_slice(&dns::CLASS_IN.to_be_bytes());
        self.data.extend_from_slice(&ttl.to_be_bytes());
        let len_at = self.data.len();
        self.data.extend_from_slice(&[0, 0]);
        self.put_rdata(rtype, rdata);
        let rdlen = (self.data.len() - len_at - 2) as u16;
        dns::put16(&mut self.data, len_at, rdlen);
        if self.base + self.data.len() > u16::MAX as usize - 1024 {
            return Err(TooLong);
        }
        let len = (self.data.len() - start) as u16;
        self.head.len += len;
        let one = match section {
            Section::Answer => Counts::ANSWER,
            Section::Authority => Counts::AUTHORITY,
            Section::Additional => Counts::ADDITIONAL,
        };
        match section {
            Section::Answer => self.head.answer += len,
            Section::Authority => {}
            Section::Additional => self.head.additional += len,
        }
        self.head.counts = self.head.counts.plus(one);
        Ok(())
    }

    fn put_rdata(&mut self, rtype: u16, rdata: &[u8]) {
        let (before, names) = names_in_rdata(rtype).unwrap_or((rdata.len(), 0));
        let (head, mut rest) = rdata.split_at_checked(before).unwrap_or((rdata, &[]));
        self.data.extend_from_slice(head);
        for _ in 0..names {
            let Ok(len) = dns::name_len(rest) else { break };
            let (name, tail) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            self.put_name(name);
            rest = tail;
        }
        self.data.extend_from_slice(rest);
    }
}
