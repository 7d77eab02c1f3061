//! The second half's pen: a reply over the query in its own buffer, section by section, within the size that
//! the client accepts.

use super::parse::Located;
use super::{Outcome, Transport};
use crate::counters::Counter;
use crate::tables::Snapshot;
use crate::tables::answers::{Blob, Head};
use crate::wire::dns::{self, HEADER_LEN, flags};
use crate::wire::edns::{self, Keepalive};

/// A reply being written.
pub(super) struct Reply<'a, const N: usize> {
    pub(super) buffer: &'a mut [u8; N],
    pub(super) q: &'a Located,
    pub(super) snapshot: &'a Snapshot,
    /// Where the next byte goes.
    pub(super) at: usize,
    /// Records must end here, so that OPT still fits.
    pub(super) end: usize,
    pub(super) ancount: u16,
    pub(super) nscount: u16,
    pub(super) arcount: u16,
    pub(super) truncated: bool,
    pub(super) all_down: bool,
    /// The idle timeout that goes into OPT, 100 ms; 0: none. Over TCP alone.
    keepalive: u16,
}

impl<'a, const N: usize> Reply<'a, N> {
    #[inline(always)]
    pub(super) fn start(
        snapshot: &'a Snapshot,
        q: &'a Located,
        buffer: &'a mut [u8; N],
        transport: Transport,
    ) -> Self {
        let size = match transport {
            Transport::Udp if q.has_opt => {
                (q.edns.udp_size.max(512)).min(snapshot.limits.udp_size_max) as usize
            }
            Transport::Udp => 512,
            Transport::Tcp { .. } => u16::MAX as usize,
        }
        .min(N);
        let keepalive = match transport {
            Transport::Tcp { keepalive } if q.edns.keepalive == Keepalive::Asked => keepalive,
            _ => 0,
        };
        let mut opt = if q.has_opt { opt_len(snapshot, q) } else { 0 };
        if keepalive > 0 {
            opt += KEEPALIVE_LEN;
        }
        let at = q.question_end as usize;
        Self {
            buffer,
            q,
            snapshot,
            at,
            end: size.saturating_sub(opt),
            ancount: 0,
            nscount: 0,
            arcount: 0,
            truncated: false,
            all_down: false,
            keepalive,
        }
    }

    /// Whether something did not fit.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Takes back all records. What was truncated stays so.
    pub(super) fn restart(&mut self) {
        self.at = self.q.question_end as usize;
        (self.ancount, self.nscount, self.arcount) = (0, 0, 0);
    }

    /// Notes that the all-down rule chose.
    #[inline(always)]
    pub(super) fn all_down(&mut self, yes: bool) {
        self.all_down = yes;
    }

    /// The compression pointer to the name at `offset` in the blob that is written next.
    pub(super) fn owner(&self, offset: u16) -> u16 {
        0xc000 | (self.at as u16).wrapping_add(offset)
    }

    /// Appends one pre-encoded answer record, with its owner set to the pointer `owner`.
    #[inline(always)]
    pub(super) fn record<const M: usize>(&mut self, record: &[u8; M], owner: u16) {
        if self.at + M > self.end {
            self.truncated = true;
            return;
        }
        if let Some(to) = self
            .buffer
            .get_mut(self.at..)
            .and_then(|b| b.first_chunk_mut::<M>())
        {
            *to = *record;
            if let Some(pointer) = to.first_chunk_mut::<2>() {
                *pointer = owner.to_be_bytes();
            }
        }
        self.at += M;
        self.ancount += 1;
    }

    /// Appends a blob whose answer records are all owned by a pointer at their start, and sets it to `owner`.
    /// Only blobs of addresses: records of equal length.
    pub(super) fn blob_owned(&mut self, blob: &Blob<'_>, owner: u16) {
        let start = self.at;
        self.blob(blob);
        let count = blob.head.ancount.max(1) as usize;
        let stride = blob.head.answer as usize / count;
        for i in 0..self.ancount.min(blob.head.ancount) as usize {
            dns::put16(self.buffer, start + i * stride, owner);
        }
    }

    /// Appends a blob. Without room for its answer and authority, or for an additional section that is required,
    /// nothing is appended and the reply is truncated (whole record sets only, RFC 2181 section 9).
    #[inline(always)]
    pub(super) fn blob(&mut self, blob: &Blob<'_>) {
        let head = &blob.head;
        let mut len = head.len();
        let mut arcount = head.arcount;
        if self.at + len > self.end {
            let required = head.flags & Head::ADDITIONAL_REQUIRED != 0;
            len -= head.additional as usize;
            arcount = 0;
            if self.at + len > self.end || (required && head.arcount > 0) {
                self.truncated = true;
                return;
            }
        }
        self.copy(blob.data, len);
        if head.fixups > 0 && head.name_len as usize != self.q.key.len() {
            self.shift(blob, len);
        }
        self.at += len;
        self.ancount += head.ancount;
        self.nscount += head.nscount;
        self.arcount += arcount;
    }

    #[inline(always)]
    fn copy(&mut self, data: &[u8], len: usize) {
        // One small record set is one fixed copy; the arena has slack behind its end, and so has the buffer.
        if len <= 32
            && let Some(from) = data.first_chunk::<32>()
            && let Some(to) = self
                .buffer
                .get_mut(self.at..)
                .and_then(|b| b.first_chunk_mut::<32>())
        {
            *to = *from;
            return;
        }
        if let (Some(from), Some(to)) = (data.get(..len), self.buffer.get_mut(self.at..self.at + len)) {
            to.copy_from_slice(from);
        }
    }

    /// Shifts the pointers of a blob that was encoded for a question of another length.
    #[inline]
    fn shift(&mut self, blob: &Blob<'_>, len: usize) {
        let delta = (self.q.key.len() as u16).wrapping_sub(blob.head.name_len as u16);
        for at in blob.fixups() {
            if at + 2 <= len {
                let pointer = dns::be16(self.buffer, self.at + at);
                dns::put16(self.buffer, self.at + at, pointer.wrapping_add(delta));
            }
        }
    }

    /// Writes OPT and the header. `scope` is the client subnet's scope, `None` to leave the option out.
    #[inline(always)]
    pub(super) fn finish(&mut self, code: u16, aa: u16, scope: Option<u8>, counter: Counter) -> Outcome {
        if self.truncated {
            self.restart();
        }
        if self.q.has_opt {
            self.put_opt((code >> 4) as u8, scope);
            self.arcount += 1;
        }
        let has_question = self.q.question_end as usize > HEADER_LEN;
        if let Some(header) = self.buffer.first_chunk_mut::<HEADER_LEN>() {
            let [_, _, f0, f1, counts @ ..] = header;
            let query = u16::from_be_bytes([*f0, *f1]);
            let tc = if self.truncated { flags::TC } else { 0 };
            let word = query & (flags::OPCODE | flags::RD | flags::CD) | flags::QR | aa | tc | (code & 0xf);
            [*f0, *f1] = word.to_be_bytes();
            let all = (has_question as u64) << 48
                | (self.ancount as u64) << 32
                | (self.nscount as u64) << 16
                | self.arcount as u64;
            *counts = all.to_be_bytes();
        }
        Outcome::Reply {
            len: self.at,
            counter,
            truncated: self.truncated,
            all_down: self.all_down,
        }
    }

    #[inline(always)]
    fn put_opt(&mut self, code_high: u8, scope: Option<u8>) {
        let limits = &self.snapshot.limits;
        let opt = self.at;
        self.at = edns::put_opt(
            self.buffer,
            opt,
            limits.udp_size_max,
            code_high,
            self.q.edns.dnssec_ok,
        );
        if let Some(subnet) = &self.q.edns.subnet
            && let Some(scope) = scope
            && limits.ecs
        {
            self.at = edns::put_subnet(self.buffer, opt, self.at, subnet, scope);
        }
        if self.q.edns.nsid && !limits.nsid.is_empty() {
            self.at = edns::put_option(self.buffer, opt, self.at, edns::option::NSID, &limits.nsid);
        }
        if self.keepalive > 0 {
            let (code, data) = (edns::option::KEEPALIVE, self.keepalive.to_be_bytes());
            self.at = edns::put_option(self.buffer, opt, self.at, code, &data);
        }
    }
}

/// Length of an edns-tcp-keepalive option with its timeout, bytes.
const KEEPALIVE_LEN: usize = 6;

/// Length of the OPT record that the reply will carry at most, bytes.
#[inline(always)]
fn opt_len(snapshot: &Snapshot, q: &Located) -> usize {
    let subnet = q
        .edns
        .subnet
        .as_ref()
        .map_or(0, |s| 8 + (s.source as usize).div_ceil(8));
    let nsid = if q.edns.nsid && !snapshot.limits.nsid.is_empty() {
        4 + snapshot.limits.nsid.len()
    } else {
        0
    };
    edns::OPT_LEN + subnet + nsid
}
