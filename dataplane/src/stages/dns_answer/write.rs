//! The second half's pen: a reply over the query in its own buffer, section by section, within the size that
//! the client accepts.

use super::error::info::{self, Info};
use super::parse::Located;
use super::{Outcome, Transport, cookies};
use crate::counters::Counter;
use crate::tables::Snapshot;
use crate::tables::answers::{Blob, Counts, Head};
use crate::wire::dns::{self, HEADER_LEN, flags};
use crate::wire::edns::{self, Edns};

/// Length of an extended error without text, bytes.
const INFO_LEN: usize = 6;

/// A reply being written.
pub(super) struct Reply<'a, const N: usize> {
    pub(super) buffer: &'a mut [u8; N],
    pub(super) q: &'a Located,
    pub(super) snapshot: &'a Snapshot,
    /// Where the next byte goes.
    pub(super) at: usize,
    /// Records must end here, so that OPT still fits; NSID takes what they leave.
    pub(super) end: usize,
    pub(super) counts: Counts,
    pub(super) truncated: bool,
    pub(super) all_down: bool,
    /// The idle timeout that goes into OPT, 100 ms; 0: none. Over TCP alone.
    keepalive: u16,
    /// An extended error to append if there is room.
    info: Option<Info>,
}

impl<'a, const N: usize> Reply<'a, N> {
    #[inline(always)]
    pub(super) fn start(
        snapshot: &'a Snapshot,
        q: &'a Located,
        buffer: &'a mut [u8; N],
        transport: Transport,
    ) -> Self {
        const { assert!(N >= 512) };
        let has_opt = q.edns.has(Edns::PRESENT);
        let size = match transport {
            Transport::Udp if has_opt => q.edns.udp_size.max(512).min(snapshot.limits.udp_size_max) as usize,
            Transport::Udp => 512,
            Transport::Tcp { .. } => u16::MAX as usize,
        }
        .min(N);
        let keepalive = match transport {
            Transport::Tcp { keepalive } if has_opt && q.edns.has(Edns::KEEPALIVE) => keepalive,
            _ => 0,
        };
        let opt = if has_opt {
            opt_len(snapshot, q, keepalive)
        } else {
            0
        };
        Self {
            buffer,
            q,
            snapshot,
            at: q.question_end as usize,
            end: size.saturating_sub(opt),
            counts: Counts(0),
            truncated: false,
            all_down: false,
            keepalive,
            info: None,
        }
    }

    /// Whether something did not fit.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Takes back all records. What was truncated stays so.
    pub(super) fn restart(&mut self) {
        self.at = self.q.question_end as usize;
        self.counts = Counts(0);
    }

    /// Notes that the all-down rule chose.
    #[inline(always)]
    pub(super) fn all_down(&mut self) {
        self.all_down = true;
        self.info = Some(info::MAKESHIFT);
    }

    /// Leaves the records out and sets TC.
    pub(super) fn truncate(&mut self) {
        self.truncated = true;
    }

    /// Appends an extended error (RFC 8914) if the query has OPT and there is room.
    pub(super) fn explain(&mut self, info: Info) {
        self.info = Some(info);
    }

    /// Appends a TXT record of one string, at most 255 bytes, owned by the question's name, TTL 0.
    pub(super) fn text(&mut self, class: u16, text: &[u8]) {
        let len = 13 + text.len();
        if !self.has_room(1, len) {
            return;
        }
        let Some((head, body)) = self
            .buffer
            .get_mut(self.at..self.at + len)
            .and_then(|to| to.split_first_chunk_mut::<13>())
        else {
            return;
        };
        let [c0, c1] = class.to_be_bytes();
        let [l0, l1] = (1 + text.len() as u16).to_be_bytes();
        *head = [0xc0, 0x0c, 0, 16, c0, c1, 0, 0, 0, 0, l0, l1, text.len() as u8];
        body.copy_from_slice(text);
        self.at += len;
        self.counts = self.counts.plus(Counts::ANSWER);
    }

    /// The compression pointer to the name at `offset` in the blob that is written next.
    pub(super) fn owner(&self, offset: u16) -> u16 {
        0xc000 | (self.at as u16).wrapping_add(offset)
    }

    /// Whether `count` records of `len` bytes each fit; if not the reply is truncated.
    #[inline(always)]
    pub(super) fn has_room(&mut self, count: usize, len: usize) -> bool {
        let fits = self.at + count * len <= self.end;
        self.truncated |= !fits;
        fits
    }

    /// Appends one pre-encoded answer record, which has room, with its owner set to the pointer `owner`.
    #[inline(always)]
    pub(super) fn record<const M: usize>(&mut self, record: &[u8; M], owner: u16) {
        if let Some(to) = self
            .buffer
            .get_mut(self.at..)
            .and_then(|b| b.first_chunk_mut::<M>())
        {
            *to = *record;
            if owner != 0xc00c
                && let Some(pointer) = to.first_chunk_mut::<2>()
            {
                *pointer = owner.to_be_bytes();
            }
        }
        self.at += M;
        self.counts = self.counts.plus(Counts::ANSWER);
    }

    /// Appends pre-encoded answer records, which have room, owned by the question's name.
    #[inline(always)]
    pub(super) fn records<const M: usize>(&mut self, records: &[[u8; M]]) {
        // Two are usual, and copied in place.
        let pair = self
            .buffer
            .get_mut(self.at..)
            .and_then(|b| b.first_chunk_mut::<64>());
        if let ([first, second], Some(to)) = (records, pair) {
            let (to, _) = to.as_chunks_mut::<M>();
            if let [a, b, ..] = to {
                *a = *first;
                *b = *second;
            }
            self.at += 2 * M;
            self.counts = self.counts.plus(Counts(2 * Counts::ANSWER.0));
            return;
        }
        for record in records {
            self.record(record, 0xc00c);
        }
    }

    /// Appends a blob whose answer records are all owned by a pointer at their start, and sets it to `owner`.
    /// Only blobs of addresses: records of equal length.
    pub(super) fn blob_owned(&mut self, blob: &Blob<'_>, owner: u16) {
        let start = self.at;
        self.blob(blob);
        let written = self.at > start;
        let count = blob.head.counts.answers();
        let stride = blob.head.answer as usize / count.max(1) as usize;
        for i in 0..if written { count as usize } else { 0 } {
            dns::put16(self.buffer, start + i * stride, owner);
        }
    }

    /// Appends a blob. Without room for its answer and authority, or for an additional section that is required,
    /// nothing is appended and the reply is truncated (whole record sets only, RFC 2181 section 9).
    #[inline(always)]
    pub(super) fn blob(&mut self, blob: &Blob<'_>) {
        let head = &blob.head;
        let (mut len, mut counts) = (head.len as usize, head.counts);
        if self.at + len > self.end {
            len -= head.additional as usize;
            counts = counts.without_additional();
            let required = head.flags & Head::ADDITIONAL_REQUIRED != 0 && head.counts.additionals() > 0;
            if required || self.at + len > self.end {
                self.truncated = true;
                return;
            }
        }
        let start = self.at;
        self.append(blob.data, len, counts);
        if head.fixups > 0 && head.name_len as usize != self.q.key.len() {
            shift(
                self.buffer.get_mut(start..).unwrap_or(&mut []),
                blob,
                len,
                self.q.key.len(),
            );
        }
    }

    /// Whether `len` more bytes fit.
    #[inline(always)]
    pub(super) fn fits(&self, len: usize) -> bool {
        self.at + len <= self.end
    }

    /// Appends the first `len` bytes of `data`, which fit and are records as counted.
    #[inline(always)]
    pub(super) fn append(&mut self, data: &[u8], len: usize, counts: Counts) {
        // Small record sets are one copy of a fixed size; the arena has slack behind its end, and so has the buffer.
        let _done = len <= 32 && self.copy_fixed::<32>(data)
            || len <= 64 && self.copy_fixed::<64>(data)
            || copy_long(data, self.buffer.get_mut(self.at..).unwrap_or(&mut []), len);
        self.at += len;
        self.counts = self.counts.plus(counts);
    }

    #[inline(always)]
    fn copy_fixed<const M: usize>(&mut self, data: &[u8]) -> bool {
        let to = self
            .buffer
            .get_mut(self.at..)
            .and_then(|b| b.first_chunk_mut::<M>());
        match (data.first_chunk::<M>(), to) {
            (Some(from), Some(to)) => {
                *to = *from;
                true
            }
            _ => false,
        }
    }

    /// Writes OPT and the header of an authoritative answer to a question; its length. `now`: Unix time, seconds.
    #[inline(always)]
    pub(super) fn finish_usual(mut self, scope: impl FnOnce() -> u8, rcode: u8, now: u32) -> usize {
        self.counts = self.counts.plus(Counts::QUESTION);
        let edns = &self.q.edns;
        if edns.flags != 0 {
            self.counts = self.counts.plus(Counts::ADDITIONAL);
            if edns.flags == Edns::PRESENT {
                let size = self.snapshot.limits.udp_size_max;
                self.at = edns::put_opt(self.buffer, self.at, size, 0, edns.dnssec_ok, 0);
            } else {
                self.put_opt(0, Some(scope()), now);
            }
        }
        self.put_header(flags::QR | flags::AA | rcode as u16);
        self.at
    }

    /// Writes OPT and the header. `scope` is the client subnet's scope, `None` to leave the option out.
    #[inline(always)]
    pub(super) fn finish(&mut self, code: u16, aa: u16, scope: Option<u8>, counter: Counter) -> Outcome {
        if self.truncated {
            self.restart();
        }
        if self.q.edns.has(Edns::PRESENT) {
            let opt = self.at;
            // Cookies are settled by now.
            self.put_opt((code >> 4) as u8, scope, 0);
            self.counts = self.counts.plus(Counts::ADDITIONAL);
            if let Some(info) = self.info {
                self.put_info(opt, info);
            }
        }
        if self.q.question_end as usize > HEADER_LEN {
            self.counts = self.counts.plus(Counts::QUESTION);
        }
        let tc = if self.truncated { flags::TC } else { 0 };
        self.put_header(flags::QR | aa | tc | (code & 0xf));
        Outcome::Reply {
            len: self.at,
            counter,
            truncated: self.truncated,
            all_down: self.all_down,
        }
    }

    /// Sets the header's flags, but for those that are kept from the query, and its counts.
    #[inline(always)]
    fn put_header(&mut self, set: u16) {
        if let Some(header) = self.buffer.first_chunk_mut::<HEADER_LEN>() {
            const KEPT: u16 = flags::OPCODE | flags::RD | flags::CD;
            let [_, _, f0, f1, counts @ ..] = header;
            let word = u16::from_ne_bytes([*f0, *f1]) & KEPT.to_be() | set.to_be();
            [*f0, *f1] = word.to_ne_bytes();
            *counts = self.counts.0.to_be_bytes();
        }
    }

    #[inline(always)]
    fn put_opt(&mut self, code_high: u8, scope: Option<u8>, now: u32) {
        let limits = &self.snapshot.limits;
        let edns = &self.q.edns;
        let (mut rdlen, mut subnet) = (0, None);
        if edns.has(Edns::SUBNET) && limits.ecs {
            subnet = scope;
            rdlen = scope.map_or(0, |_| edns.subnet.wire_len());
        }
        // What tells servers apart takes nothing from the answer (RFC 5001 section 2.1: a server chooses to honour it).
        let nsid_len = 4 + limits.nsid.len();
        let nsid = edns.has(Edns::NSID) && !limits.nsid.is_empty() && self.fits(nsid_len);
        if nsid {
            rdlen += nsid_len;
        }
        if self.keepalive > 0 {
            rdlen += KEEPALIVE_LEN;
        }
        let mut cookies = None;
        if edns.has(Edns::COOKIE) {
            cookies = limits.cookies.as_ref();
            rdlen += cookies.map_or(0, |_| cookies::OPTION_LEN);
        }
        self.at = edns::put_opt(
            self.buffer,
            self.at,
            limits.udp_size_max,
            code_high,
            edns.dnssec_ok,
            rdlen as u16,
        );
        if let Some(scope) = subnet {
            self.at = edns::put_subnet(self.buffer, self.at, &edns.subnet, scope);
        }
        if nsid {
            self.at = edns::put_option(self.buffer, self.at, edns::option::NSID, &limits.nsid);
        }
        if self.keepalive > 0 {
            let (code, data) = (edns::option::KEEPALIVE, self.keepalive.to_be_bytes());
            self.at = edns::put_option(self.buffer, self.at, code, &data);
        }
        if let Some(cookies) = cookies {
            self.at = cookies::put(self.buffer, self.at, self.q, cookies, now);
        }
    }

    /// Appends an extended error to the OPT record at `opt`, which ends the message, if there is room.
    #[cold]
    #[inline(never)]
    fn put_info(&mut self, opt: usize, info: Info) {
        let len = INFO_LEN + info.text.len();
        let rdlen = dns::be16(self.buffer, opt + 9) as usize;
        if self.at + len > self.end + opt_len(self.snapshot, self.q, self.keepalive) {
            return;
        }
        let Some(to) = self.buffer.get_mut(self.at..self.at + len) else {
            return;
        };
        let (head, text) = to.split_at_mut(INFO_LEN);
        let ([l0, l1], [i0, i1]) = ((len as u16 - 4).to_be_bytes(), info.code.to_be_bytes());
        head.copy_from_slice(&[0, edns::option::EXTENDED_ERROR as u8, l0, l1, i0, i1]);
        text.copy_from_slice(info.text.as_bytes());
        self.at += len;
        dns::put16(self.buffer, opt + 9, (rdlen + len) as u16);
    }
}

/// Length of an edns-tcp-keepalive option with its timeout, bytes.
const KEEPALIVE_LEN: usize = 6;

/// Length at most of the OPT record that the reply will carry in any case, bytes: without NSID and extended error.
#[inline(always)]
fn opt_len(snapshot: &Snapshot, q: &Located, keepalive: u16) -> usize {
    let mut len = edns::OPT_LEN;
    if keepalive > 0 {
        len += KEEPALIVE_LEN;
    }
    if q.edns.has(Edns::SUBNET) {
        len += q.edns.subnet.wire_len();
    }
    if q.edns.has(Edns::COOKIE) && snapshot.limits.cookies.is_some() {
        len += cookies::OPTION_LEN;
    }
    len
}

#[inline(never)]
fn copy_long(from: &[u8], to: &mut [u8], len: usize) -> bool {
    match (from.get(..len), to.get_mut(..len)) {
        (Some(from), Some(to)) => {
            to.copy_from_slice(from);
            true
        }
        _ => false,
    }
}

/// Shifts the pointers of a blob of `len` bytes, which was encoded for a question of another length than `name_len`.
#[inline(always)]
fn shift(bytes: &mut [u8], blob: &Blob<'_>, len: usize, name_len: usize) {
    let delta = (name_len as u16).wrapping_sub(blob.head.name_len as u16);
    let Some(bytes) = bytes.get_mut(..len) else { return };
    for at in blob.fixups() {
        if let Some(pointer) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<2>()) {
            *pointer = u16::from_be_bytes(*pointer).wrapping_add(delta).to_be_bytes();
        }
    }
}
