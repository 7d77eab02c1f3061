//! The DNS engine and the stage over it: parse, find the name and the client's class, choose, write the
//! reply in place.
//!
//! One engine in two halves: [`Located::locate`] reads the query and asks for table lines, [`Engine::find`]
//! goes one step further down the tables, [`Engine::answer`] writes. The stage runs each over a whole burst, so that
//! cache misses overlap; control's DNS over TCP and `windrose explain` call the same for one query.

mod choose;
mod cnames;
mod cookies;
mod denial;
mod dname;
mod error;
mod guard;
mod parse;
mod service;
mod stage;
#[cfg(test)]
mod tests;
mod trace;
mod usual;
mod write;

pub use choose::Chooser;
pub use parse::{Client, Located};
pub use stage::{DnsAnswer, UDP_ROOM};
pub use trace::{Event, Silent, Trace};

use crate::counters::Counter;
use crate::tables::names::{Entry, Found, Node};
use crate::tables::{NONE, Snapshot, Zone};
use crate::wire::dns::{flags, rcode, rtype};
use crate::wire::edns::Edns;
use error::{any, error, none_up};
use parse::Status;
use service::{Choice, rank_at, scope_at, service_explores};
use write::Reply;

/// CNAMEs in one answer; a longer chain is answered as far as it goes.
pub const CNAMES_MAX: usize = 8;

/// What became of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The buffer holds a reply of `len` bytes.
    Reply {
        /// Length of the message, bytes.
        len: usize,
        /// Its counter, of kind `Dns`.
        counter: Counter,
        /// TC is set.
        truncated: bool,
        /// The all-down rule chose.
        all_down: bool,
    },
    /// No reply; the counter is a drop reason.
    Drop(Counter),
}

impl Outcome {
    /// Length of the reply, or why there is none.
    ///
    /// # Errors
    /// The drop reason.
    #[inline(always)]
    pub fn reply_len(self) -> Result<usize, Counter> {
        match self {
            Outcome::Reply { len, .. } => Ok(len),
            Outcome::Drop(reason) => Err(reason),
        }
    }

    /// The same reply, the all-down rule having chosen it or not.
    fn noting(mut self, down: bool) -> Self {
        if let Outcome::Reply { all_down, .. } = &mut self {
            *all_down = down;
        }
        self
    }
}

/// A worker's engine: what answers depend on beside the snapshot.
#[derive(Debug)]
pub struct Engine {
    /// Health words, round-robin positions, random state.
    pub chooser: Chooser,
    /// Unix time modulo 2^32, seconds: what cookies are judged by.
    pub seconds: u32,
}

/// How large a reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By EDNS, 512 bytes without (RFC 6891 section 6.2.5).
    Udp,
    /// The buffer's size, at most 65,535 bytes (RFC 7766).
    Tcp {
        /// What who asks for the idle timeout is told, in units of 100 ms (RFC 7828).
        keepalive: u16,
    },
}

impl Engine {
    /// An engine whose draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            chooser: Chooser::new(seed),
            seconds: 0,
        }
    }

    /// The step between the halves: the name's slot and the client's class, and prefetches of what they
    /// point at.
    #[inline(always)]
    pub fn find(&self, snapshot: &Snapshot, q: &mut Located) {
        if q.status != Status::Short {
            return find_walked(snapshot, q);
        }
        snapshot.names.candidate(q.hash, &mut q.found);
        if q.found.service != NONE {
            snapshot.plans.prefetch(q.found.service);
            let place = q.found.place;
            let (service, id) = (q.found.service, q.id);
            let explores = || service_explores(snapshot, service, id);
            let cell = if q.by_subnet {
                let (client, by_subnet) = q.client_at(place);
                let (cell, class) = rank_at(snapshot, client, place, explores);
                q.subnet_scope = if by_subnet { scope_at(place, class) } else { 0 };
                cell
            } else {
                rank_at(snapshot, q.client, place, explores).0
            };
            q.cell = cell;
            snapshot.cells.prefetch(cell as usize);
        }
    }

    /// Writes the reply over the query in `buffer`, whose size is known at compile time and 512 bytes
    /// at least.
    #[inline(always)]
    pub fn answer<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        trace: &mut T,
    ) -> Outcome {
        if !T::LISTENS {
            self.choose(snapshot, q);
        }
        self.answer_chosen(snapshot, q, buffer, transport, trace)
    }

    /// The same when [`Engine::choose`] was there.
    #[inline(always)]
    fn answer_chosen<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        trace: &mut T,
    ) -> Outcome {
        if !T::LISTENS && !bad_keepalive(q, transport) {
            let usual = |len, counter| Outcome::Reply {
                len,
                counter,
                truncated: false,
                all_down: false,
            };
            if q.status == Status::Short
                && let Some(len) = self.usual(snapshot, q, buffer, transport)
            {
                return usual(len, Counter::DnsAnswer);
            }
            if let Some(len) = self.deny(snapshot, q, buffer, transport) {
                return usual(len, Counter::DnsNxdomain);
            }
        }
        self.answer_any(snapshot, q, buffer, transport, trace)
    }

    /// Any query; every step of it.
    #[inline(never)]
    fn answer_any<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        trace: &mut T,
    ) -> Outcome {
        q.settle_cookie(snapshot, self.seconds);
        match q.status {
            Status::Short | Status::Answer => {}
            Status::Drop(reason) => return Outcome::Drop(reason),
            Status::Error(rcode) => return error(snapshot, q, buffer, transport, rcode),
        }
        if bad_keepalive(q, transport) {
            return match self.reread(snapshot, q, buffer) {
                // At most once: nothing is guessed any more.
                true => self.answer_any(snapshot, q, buffer, transport, trace),
                false => error(snapshot, q, buffer, transport, rcode::FORMERR as u16),
            };
        }
        trace.event(Event::Question { rtype: q.qtype });
        // Without a candidate there is no such name; with one it may be another's.
        let found = match q.found.node {
            NONE => None,
            _ => snapshot.names.find(&q.key),
        };
        match found {
            Some(found) => self.at_node(snapshot, q, buffer, transport, found, trace),
            None => self.missing(snapshot, q, buffer, transport, trace),
        }
    }

    /// For who echoes the question without having found its name: checks the guessed end of the name. True when the
    /// guess was wrong, and all was read and looked for again.
    #[cold]
    #[inline(never)]
    fn reread<const N: usize>(&self, snapshot: &Snapshot, q: &mut Located, buffer: &[u8; N]) -> bool {
        let wrong = q.reparse_walked(snapshot, buffer);
        if wrong && q.status == Status::Answer {
            q.hash = snapshot.names.hash(&q.key);
            self.find(snapshot, q);
        }
        wrong
    }

    /// The name is not in the table as guessed: check the guess, then look for what covers the name.
    #[inline(never)]
    fn missing<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        trace: &mut T,
    ) -> Outcome {
        if q.reparse_walked(snapshot, buffer) {
            q.settle_cookie(snapshot, self.seconds);
            match q.status {
                Status::Short | Status::Answer => {}
                Status::Drop(reason) => return Outcome::Drop(reason),
                Status::Error(rcode) => return error(snapshot, q, buffer, transport, rcode),
            }
            if let Some(found) = snapshot.names.find(&q.key) {
                return self.at_node(snapshot, q, buffer, transport, found, trace);
            }
        }
        if matches!(q.qtype, rtype::AXFR | rtype::IXFR) {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        }
        q.key.clear_tail();
        let found = snapshot
            .names
            .closest_encloser(&q.key, q.labels as usize, |depth| q.start(depth));
        let Some((node, at)) = found else {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        };
        if T::LISTENS {
            let node = snapshot.names.index_of(node);
            trace.event(Event::ClosestEncloser { node });
        }
        if node.has(Node::OUTSIDE) {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        }
        if node.has(Node::CUT) || node.has(Node::DNAME) {
            q.account = snapshot.names.index_of(node);
            // Of a cut its default, the referral.
            return match snapshot.names.entry(node, rtype::DNAME) {
                Some(entry) if !entry.has(Entry::REFERRAL) => {
                    self.renamed(snapshot, q, buffer, transport, entry, trace)
                }
                Some(entry) => fixed(snapshot, q, buffer, transport, entry),
                None => error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16),
            };
        }
        if node.has(Node::WILDCARD)
            && let Some(wildcard) = snapshot.names.wildcard(q.name().get(at..).unwrap_or(&[]))
        {
            trace.event(Event::Wildcard { node: wildcard.node });
            q.account = wildcard.node;
            return self.at_node(snapshot, q, buffer, transport, wildcard, trace);
        }
        q.account = node.zone;
        let zone = snapshot.zones.get(node.zone as usize).copied();
        negative(snapshot, q, buffer, transport, zone, rcode::NXDOMAIN, 0)
    }

    /// Answers from a node: the query's own, or the wildcard that covers it.
    fn at_node<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        found: Found,
        trace: &mut T,
    ) -> Outcome {
        let Some(node) = snapshot.names.node(found.node) else {
            return error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16);
        };
        if node.has(Node::OUTSIDE) || matches!(q.qtype, rtype::AXFR | rtype::IXFR) {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        }
        trace.event(Event::Name {
            node: found.node,
            zone: node.zone,
        });
        if found.service != NONE && matches!(q.qtype, rtype::A | rtype::AAAA) {
            return self.at_service(snapshot, q, buffer, transport, found.service, node.zone, trace);
        }
        let exists = node.entry_count() > 0 || found.service != NONE;
        if q.qtype == rtype::ANY && exists && !node.has(Node::CUT) {
            return any(snapshot, q, buffer, transport, node);
        }
        match snapshot.names.entry(node, q.qtype) {
            Some(entry) if entry.has(Entry::SERVICE) => {
                self.through_cname(snapshot, q, buffer, transport, node, entry, trace)
            }
            Some(entry) if entry.has(Entry::DNAME) => {
                self.renamed(snapshot, q, buffer, transport, entry, trace)
            }
            Some(entry) => fixed(snapshot, q, buffer, transport, entry),
            None => {
                let zone = snapshot.zones.get(node.zone as usize).copied();
                negative(snapshot, q, buffer, transport, zone, rcode::NOERROR, 0)
            }
        }
    }

    /// Answers with a service's addresses.
    #[allow(clippy::too_many_arguments, reason = "as its neighbours")]
    fn at_service<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        buffer: &mut [u8; N],
        transport: Transport,
        service: u32,
        zone: u32,
        trace: &mut T,
    ) -> Outcome {
        let mut reply = Reply::start(snapshot, q, buffer, transport);
        let (choice, scope) = self.service(snapshot, q, &mut reply, service, 0xc00c, trace);
        match choice {
            Choice::Given => {}
            Choice::None { all_down } => {
                let zone = snapshot.zones.get(zone as usize).copied();
                return match all_down {
                    true => none_up(snapshot, q, buffer, transport, zone, scope),
                    false => negative(snapshot, q, buffer, transport, zone, rcode::NOERROR, scope),
                };
            }
        }
        reply.finish(rcode::NOERROR as u16, flags::AA, Some(scope), Counter::DnsAnswer)
    }

    /// A CNAME chain that ends at a service: the chain, then the service's addresses; without any, the chain and the SOA
    /// of the zone where it ends. Also a service's own name, if it chooses among names: an empty chain.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "as its neighbours")]
    fn through_cname<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        node: &Node,
        entry: &Entry,
        trace: &mut T,
    ) -> Outcome {
        let mut reply = Reply::start(snapshot, q, buffer, transport);
        let Some(blob) = snapshot.answers.blob(entry.blob) else {
            return reply.finish(rcode::SERVFAIL as u16, 0, None, Counter::DnsServfail);
        };
        let owner = match blob.head.len == 0 {
            true => 0xc00c,
            false => reply.owner(entry.owner),
        };
        reply.blob(&blob);
        let (choice, scope) = match entry.has(Entry::CNAMES) {
            true => self.service_with_cnames(snapshot, q, &mut reply, entry.service, owner, trace),
            false => self.service(snapshot, q, &mut reply, entry.service, owner, trace),
        };
        if let Choice::None { all_down } = choice
            && !reply.is_truncated()
        {
            let nothing = match entry.rtype() {
                rtype::DS => snapshot.names.second_entry(node, rtype::DS),
                _ => snapshot.names.entry(node, Entry::NOTHING),
            };
            return match nothing {
                Some(none) => fixed_in_scope(snapshot, q, buffer, transport, none, scope).noting(all_down),
                None => error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16),
            };
        }
        reply.finish(rcode::NOERROR as u16, flags::AA, Some(scope), Counter::DnsAnswer)
    }
}

/// Whether the query names an idle timeout, which over TCP only servers may (RFC 7828 section 3.2.1).
#[inline(always)]
fn bad_keepalive(q: &Located, transport: Transport) -> bool {
    matches!(transport, Transport::Tcp { .. }) && q.edns.has(Edns::KEEPALIVE_DATA)
}

/// A static answer, or a referral: the same for every client.
#[inline(always)]
fn fixed<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    entry: &Entry,
) -> Outcome {
    fixed_in_scope(snapshot, q, buffer, transport, entry, 0)
}

/// A static answer that a choice led to.
#[inline(always)]
fn fixed_in_scope<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    entry: &Entry,
    scope: u8,
) -> Outcome {
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    let Some(blob) = snapshot.answers.blob(entry.blob) else {
        return reply.finish(rcode::SERVFAIL as u16, 0, None, Counter::DnsServfail);
    };
    reply.blob(&blob);
    let (aa, counter) = match entry {
        e if e.has(Entry::REFERRAL) => (0, Counter::DnsReferral),
        e if e.rcode() == rcode::NXDOMAIN => (flags::AA, Counter::DnsNxdomain),
        _ if blob.head.counts.answers() == 0 => (flags::AA, Counter::DnsNodata),
        _ => (flags::AA, Counter::DnsAnswer),
    };
    reply.finish(entry.rcode() as u16, aa, Some(scope), counter)
}

/// NXDOMAIN or NODATA with the zone's SOA (RFC 2308).
#[inline(never)]
fn negative<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    zone: Option<Zone>,
    code: u8,
    scope: u8,
) -> Outcome {
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    let Some(blob) = zone.and_then(|z| snapshot.answers.blob(z.negative)) else {
        return reply.finish(rcode::SERVFAIL as u16, 0, None, Counter::DnsServfail);
    };
    reply.blob(&blob);
    let counter = if code == rcode::NXDOMAIN {
        Counter::DnsNxdomain
    } else {
        Counter::DnsNodata
    };
    reply.finish(code as u16, flags::AA, Some(scope), counter)
}

/// [`Engine::find`] for a name whose labels were walked. `answer_any` looks for the service again, and draws: one
/// drawn here as well would skip members of a round.
#[inline(never)]
fn find_walked(snapshot: &Snapshot, q: &mut Located) {
    if q.status == Status::Answer {
        snapshot.names.candidate(q.hash, &mut q.found);
        snapshot.plans.prefetch(q.found.service);
        q.found.service = NONE;
    }
}
