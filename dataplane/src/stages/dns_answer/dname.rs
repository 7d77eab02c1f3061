//! Names below a DNAME (RFC 6672): the DNAME, the CNAME made of it, and the answer for the name that it makes, over
//! further CNAMEs and DNAMEs of the served zones.
//!
//! Called by [`Engine::answer`] off the usual path. Control follows chains whose names it knows and writes them into
//! blobs; here the names come with the question, so each step is looked up. Blobs are encoded for their own names as
//! the question: behind a chain their pointers are moved to where the name stands in the reply.

use super::write::Reply;
use super::{CNAMES_MAX, Choice, Engine, Event, Located, Outcome, Trace, Transport};
use crate::counters::Counter;
use crate::tables::answers::{Blob, Counts, Head, names_in_rdata};
use crate::tables::names::{Entry, Found, Node};
use crate::tables::{Key, NONE, Snapshot};
use crate::wire::dns::{self, HEADER_LEN, flags, rcode, rtype};

/// A compression pointer to a message offset.
const POINTER: u16 = 0xc000;
/// Highest offset that a pointer can hold.
const POINTER_MAX: usize = 0x3fff;

/// A name that stands uncompressed in the reply.
#[derive(Clone, Copy, Default)]
struct At {
    offset: usize,
    len: usize,
}

impl At {
    fn pointer(&self) -> u16 {
        POINTER | self.offset as u16
    }
}

/// How the answer ends.
struct End {
    code: u8,
    counter: Counter,
    scope: u8,
}

impl End {
    fn new(code: u8, counter: Counter) -> Self {
        Self {
            code,
            counter,
            scope: 0,
        }
    }
}

/// Where a name of a chain falls.
enum Place<'s> {
    Elsewhere,
    /// A node: the name's own or its wildcard's.
    At(&'s Node, Found),
    /// At or below a cut, or below a DNAME: the entry says which.
    Ends(&'s Entry),
    Missing(&'s Node),
}

/// What has been passed on the way.
struct Passed {
    /// Every name so far, the question first.
    names: [At; CNAMES_MAX + 1],
    /// CNAMEs so far.
    count: usize,
    /// DNAME blobs that were written: each stands once in an answer.
    dnames: [u32; CNAMES_MAX],
}

impl Engine {
    /// Answers for a name below the DNAME that `entry` holds.
    #[cold]
    #[inline(never)]
    pub(super) fn renamed<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        entry: &Entry,
        trace: &mut T,
    ) -> Outcome {
        let mut reply = Reply::start(snapshot, q, buffer, transport);
        let question = At {
            offset: HEADER_LEN,
            len: q.key.len(),
        };
        let mut passed = Passed {
            names: [question; CNAMES_MAX + 1],
            count: 0,
            dnames: [NONE; CNAMES_MAX],
        };
        let mut end = self.chain(snapshot, q, &mut reply, &mut passed, entry, trace);
        if reply.is_truncated() {
            (end.code, end.counter) = (rcode::NOERROR, Counter::DnsAnswer);
        }
        reply.finish(end.code as u16, flags::AA, Some(end.scope), end.counter)
    }

    /// Goes from name to name until one is no alias.
    fn chain<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        passed: &mut Passed,
        first: &Entry,
        trace: &mut T,
    ) -> End {
        let stopped = End::new(rcode::NOERROR, Counter::DnsAnswer);
        let mut name = passed.names.first().copied().unwrap_or_default();
        let (mut entry, mut is_dname) = (first, true);
        loop {
            if passed.count == CNAMES_MAX {
                return stopped;
            }
            let Some(blob) = snapshot.answers.blob(entry.blob) else {
                return End::new(rcode::SERVFAIL, Counter::DnsServfail);
            };
            trace.event(Event::Renamed);
            let next = if is_dname {
                reply.dname(&blob, entry.blob, name, passed)
            } else {
                reply.cname(&blob, name)
            };
            let Some(next) = next else {
                return match reply.is_truncated() {
                    true => stopped,
                    false => End::new(rcode::YXDOMAIN, Counter::DnsAnswer),
                };
            };
            passed.count += 1;
            if matches!(q.qtype, rtype::CNAME | rtype::ANY) || reply.passed(passed, next) {
                return stopped;
            }
            name = next;
            if let Some(slot) = passed.names.get_mut(passed.count) {
                *slot = next;
            }
            (entry, is_dname) = match place(snapshot, reply, next) {
                Place::Elsewhere => return stopped,
                Place::Ends(entry) if !entry.has(Entry::REFERRAL) => (entry, true),
                Place::Ends(entry) => return reply.at_end(snapshot, entry.blob, name, stopped),
                Place::Missing(node) => {
                    let end = End::new(rcode::NXDOMAIN, Counter::DnsNxdomain);
                    return reply.at_end(snapshot, negative_of(snapshot, node), name, end);
                }
                Place::At(node, found) => match snapshot.names.entry(node, rtype::CNAME) {
                    Some(cname) if cname.rtype() == rtype::CNAME => (cname, false),
                    _ => match snapshot.names.entry(node, q.qtype) {
                        Some(entry) if entry.has(Entry::DNAME) => (entry, true),
                        // The DNAME asked for led here, and stands in the answer.
                        Some(entry) if passed.dnames.contains(&entry.blob) => return stopped,
                        entry => return self.at_last(snapshot, q, reply, (node, found), entry, name, trace),
                    },
                },
            };
        }
    }

    /// The chain's last name exists and is no alias.
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    fn at_last<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        (node, found): (&Node, Found),
        entry: Option<&Entry>,
        name: At,
        trace: &mut T,
    ) -> End {
        let mut end = End::new(rcode::NOERROR, Counter::DnsAnswer);
        trace.event(Event::Name {
            node: found.node,
            zone: node.zone,
        });
        if found.service != NONE && matches!(q.qtype, rtype::A | rtype::AAAA) {
            let chosen = self.service(snapshot, q, reply, found.service, name.pointer(), trace);
            end.scope = chosen.1;
            if let Choice::Given = chosen.0 {
                return end;
            }
        } else if let Some(entry) = entry.filter(|e| e.has(Entry::CNAMES)) {
            let chosen = self.service_with_cnames(snapshot, q, reply, entry.service, name.pointer(), trace);
            end.scope = chosen.1;
            if let Choice::Given = chosen.0 {
                return end;
            }
        } else if let Some(entry) = entry {
            return reply.at_end(snapshot, entry.blob, name, end);
        }
        reply.at_end(snapshot, negative_of(snapshot, node), name, end)
    }
}

/// The blob of a zone's negative answers.
fn negative_of(snapshot: &Snapshot, node: &Node) -> u32 {
    snapshot
        .zones
        .get(node.zone as usize)
        .map_or(NONE, |z| z.negative)
}

/// Looks up a name of the reply.
fn place<'s, const N: usize>(snapshot: &'s Snapshot, reply: &Reply<'_, N>, name: At) -> Place<'s> {
    let names = &snapshot.names;
    let wire = reply.bytes(name);
    let mut key = Key::new(wire);
    let ends = |node: &'s Node| {
        names
            .entry(node, rtype::DNAME)
            .map_or(Place::Elsewhere, Place::Ends)
    };
    let at = |found: Found| match names.node(found.node) {
        Some(node) if node.has(Node::OUTSIDE) => Place::Elsewhere,
        // DS of the cut itself is an entry beside its default.
        Some(node) if node.has(Node::CUT) => match names.entry(node, reply.q.qtype) {
            Some(entry) if entry.rtype() == rtype::DS => Place::At(node, found),
            _ => ends(node),
        },
        Some(node) => Place::At(node, found),
        None => Place::Elsewhere,
    };
    if let Some(found) = names.find(&key) {
        return at(found);
    }
    let mut offsets = [0; 128];
    let labels = dns::label_offsets(key.name(), &mut offsets);
    key.clear_tail();
    let start_of = |depth: usize| {
        let label = labels.checked_sub(depth)?;
        offsets.get(label).map(|at| *at as usize)
    };
    let Some((node, start)) = names.closest_encloser(&key, labels, start_of) else {
        return Place::Elsewhere;
    };
    if node.has(Node::OUTSIDE) {
        return Place::Elsewhere;
    }
    if node.has(Node::CUT) || node.has(Node::DNAME) {
        return ends(node);
    }
    let wildcard = names.wildcard(key.name().get(start..).unwrap_or(&[]));
    match wildcard.filter(|_| node.has(Node::WILDCARD)) {
        Some(found) => at(found),
        None => Place::Missing(node),
    }
}

impl<const N: usize> Reply<'_, N> {
    /// A name of the reply, in wire form.
    fn bytes(&self, name: At) -> &[u8] {
        self.buffer
            .get(name.offset..name.offset + name.len)
            .unwrap_or(&[0])
    }

    /// Whether a name was passed before: the chain is a circle.
    fn passed(&self, passed: &Passed, name: At) -> bool {
        let same = |other: &At| self.bytes(*other).eq_ignore_ascii_case(self.bytes(name));
        passed.names.iter().take(passed.count).any(same)
    }

    /// Appends a DNAME record, unless it stands in the reply, and the CNAME that it makes of `name` (RFC 6672
    /// section 3.1: with its TTL). Returns the new name; `None` if it is too long, or nothing more fits.
    fn dname(&mut self, blob: &Blob<'_>, id: u32, name: At, passed: &mut Passed) -> Option<At> {
        let record = dns::next_record(blob.data, 0).ok()?;
        let target = blob.data.get(record.rdata..record.end())?;
        if !passed.dnames.contains(&id) {
            self.blob_behind(blob, name)?;
            if let Some(slot) = passed.dnames.get_mut(passed.count) {
                *slot = id;
            }
        }
        let kept = name.len.checked_sub(blob.head.name_len as usize)?;
        if kept + target.len() > dns::NAME_MAX {
            return None;
        }
        let mut made = [0u8; dns::NAME_ROOM];
        let (head, tail) = made.split_at_mut_checked(kept)?;
        head.copy_from_slice(self.bytes(name).get(..kept)?);
        tail.get_mut(..target.len())?.copy_from_slice(target);
        self.put_cname(name, record.ttl, made.get(..kept + target.len())?)
    }

    /// Appends the CNAME that a node's blob holds, owned by `name`, its target written out.
    fn cname(&mut self, blob: &Blob<'_>, name: At) -> Option<At> {
        let record = dns::next_record(blob.data, 0).ok()?;
        let rdata = blob.data.get(record.rdata..record.end())?;
        let mut made = [0u8; dns::NAME_ROOM];
        let labels = match rdata {
            // It can only point into the question: nothing else stands before.
            [labels @ .., high, low] if ends_in_pointer(rdata, 0) => {
                let into = (u16::from_be_bytes([*high, *low]) ^ POINTER) as usize;
                let at = into.checked_sub(HEADER_LEN)?;
                let at = if at == 0 {
                    0
                } else {
                    (at + name.len).checked_sub(blob.head.name_len as usize)?
                };
                let rest = self.bytes(name).get(at..)?;
                made.get_mut(labels.len()..labels.len() + rest.len())?
                    .copy_from_slice(rest);
                labels
            }
            whole => whole,
        };
        made.get_mut(..labels.len())?.copy_from_slice(labels);
        let len = dns::name_len(&made).ok()?;
        self.put_cname(name, record.ttl, made.get(..len)?)
    }

    fn put_cname(&mut self, owner: At, ttl: u32, target: &[u8]) -> Option<At> {
        let end = self.at + 12 + target.len();
        if end > self.end || end > POINTER_MAX {
            self.truncated = true;
            return None;
        }
        let record = self.buffer.get_mut(self.at..end)?;
        let (fixed, rdata) = record.split_first_chunk_mut::<12>()?;
        let ([p0, p1], [t0, t1, t2, t3]) = (owner.pointer().to_be_bytes(), ttl.to_be_bytes());
        *fixed = [
            p0,
            p1,
            0,
            rtype::CNAME as u8,
            0,
            1,
            t0,
            t1,
            t2,
            t3,
            0,
            target.len() as u8,
        ];
        rdata.copy_from_slice(target);
        let made = At {
            offset: self.at + 12,
            len: target.len(),
        };
        self.at = end;
        self.counts = self.counts.plus(Counts::ANSWER);
        Some(made)
    }

    /// Ends the chain with a blob for its last name. A blob that cannot stand here is left out: the chain is an
    /// answer by itself.
    fn at_end(&mut self, snapshot: &Snapshot, blob: u32, name: At, end: End) -> End {
        let stopped = End {
            code: rcode::NOERROR,
            counter: Counter::DnsAnswer,
            ..end
        };
        match snapshot
            .answers
            .blob(blob)
            .and_then(|blob| self.blob_behind(&blob, name))
        {
            Some(()) => end,
            None => stopped,
        }
    }

    /// Appends a blob whose question is `name`. `None`, with nothing appended, when it does not fit or has pointers
    /// that would lie too far behind.
    fn blob_behind(&mut self, blob: &Blob<'_>, name: At) -> Option<()> {
        let before = (self.at, self.counts);
        let mut as_it_is = *blob;
        as_it_is.head.fixups = 0;
        self.blob(&as_it_is);
        if self.truncated {
            return None;
        }
        let moved = Moved {
            head: blob.head,
            start: before.0,
            name,
        };
        let moved = moved.records(self.buffer.get_mut(..self.at)?);
        if moved.is_none() {
            (self.at, self.counts) = before;
        }
        moved
    }
}

/// A blob that was copied behind another name than the question.
struct Moved {
    head: Head,
    /// Where its sections start in the reply.
    start: usize,
    name: At,
}

impl Moved {
    /// Sets the pointers of all records from the start to the end of `message`.
    fn records(&self, message: &mut [u8]) -> Option<()> {
        let mut at = self.start;
        while at < message.len() {
            self.name(message, at)?;
            let record = dns::next_record(message, at).ok()?;
            if let Some((before, names)) = names_in_rdata(record.rtype) {
                let mut name = record.rdata + before;
                for _ in 0..names {
                    name = self.name(message, name)?;
                }
            }
            at = record.end();
        }
        Some(())
    }

    /// Sets the pointer of the name at `at`, if it ends in one. Returns the offset behind it.
    fn name(&self, message: &mut [u8], at: usize) -> Option<usize> {
        let end = dns::skip_name(message, at).ok()?;
        let word = dns::be16(message, end - 2);
        // The last two bytes of a name without a pointer are a length or text, and zero.
        if end - at >= 2 && ends_in_pointer(message, at) {
            let to = self.pointer((word ^ POINTER) as usize)?;
            dns::put16(message, end - 2, POINTER | to as u16);
        }
        Some(end)
    }

    /// Where a pointer of the blob leads to in the reply.
    fn pointer(&self, to: usize) -> Option<usize> {
        let len = self.head.name_len as usize;
        let behind = HEADER_LEN + len + 4;
        let moved = if to >= behind {
            to - behind + self.start
        } else if to == HEADER_LEN && self.head.flags & Head::SUFFIX == 0 {
            self.name.offset
        } else {
            (self.name.offset + (to - HEADER_LEN) + self.name.len).checked_sub(len)?
        };
        (moved <= POINTER_MAX).then_some(moved)
    }
}

/// Whether the name at `at`, which can be skipped, ends in a pointer rather than the root.
fn ends_in_pointer(message: &[u8], mut at: usize) -> bool {
    while let Some(&len) = message.get(at) {
        match len {
            0 => return false,
            1..=63 => at += 1 + len as usize,
            _ => return true,
        }
    }
    false
}
