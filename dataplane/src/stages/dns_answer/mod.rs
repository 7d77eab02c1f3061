//! The DNS engine and the stage over it: parse, find the name and the client's class, choose, write the
//! reply in place.
//!
//! One engine in two halves: [`Located::locate`] reads the query and asks for table lines, [`Engine::find`]
//! goes one step further down the tables, [`Engine::answer`] writes. The stage runs each over a whole burst, so that
//! cache misses overlap; control's DNS over TCP and `windrose explain` call the same for one query.

mod choose;
mod cnames;
mod dname;
mod parse;
mod stage;
#[cfg(test)]
mod tests;
mod trace;
mod write;

pub use choose::Chooser;
pub use parse::{Client, Located};
pub use stage::{DnsAnswer, UDP_ROOM, answer, locate};
pub use trace::{Event, Silent, Trace};

use crate::counters::Counter;
use crate::tables::names::{Entry, Found, Node};
use crate::tables::plans::{Policy, Service};
use crate::tables::{NONE, Snapshot, Zone};
use crate::wire::dns::{self, flags, rcode, rtype};
use crate::wire::edns::Keepalive;
use parse::Status;
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

/// A worker's engine: what answers depend on beside the snapshot.
#[derive(Debug)]
pub struct Engine {
    /// Health words, round-robin positions, random state.
    pub chooser: Chooser,
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
        }
    }

    /// The step between the halves: the name's slot and the client's class, and prefetches of what they
    /// point at.
    #[inline(always)]
    pub fn find(&self, snapshot: &Snapshot, q: &mut Located) {
        if q.status != Status::Answer {
            return;
        }
        q.candidate = snapshot.names.candidate(q.hash);
        if let Some(found) = q.candidate
            && found.service != NONE
        {
            snapshot.plans.prefetch(found.service);
            q.class = class_of(snapshot, q.client);
            if let Some(policy) = snapshot.plans.policy(found.policy)
                && let Some(cell) = snapshot.plans.cell(policy, q.class.id)
            {
                crate::arch::prefetch_read(cell);
            }
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
        match q.status {
            Status::Answer => {}
            Status::Drop(reason) => return Outcome::Drop(reason),
            Status::Error(rcode) => return error(snapshot, q, buffer, transport, rcode),
        }
        if matches!(transport, Transport::Tcp { .. }) && q.edns.keepalive == Keepalive::WithData {
            return error(snapshot, q, buffer, transport, rcode::FORMERR as u16);
        }
        trace.event(Event::Question { rtype: q.qtype });
        let found = match q.candidate {
            Some(candidate) => snapshot.names.confirm(candidate, q.hash, &q.key),
            None => None,
        };
        match found {
            Some(found) => self.at_node(snapshot, q, buffer, transport, found, false, trace),
            None => self.missing(snapshot, q, buffer, transport, trace),
        }
    }

    /// The name is not in the table as guessed: check the guess, then look for what covers the name.
    #[cold]
    #[inline(never)]
    fn missing<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        trace: &mut T,
    ) -> Outcome {
        if q.reparse_walked(buffer) {
            if let Status::Error(rcode) = q.status {
                return error(snapshot, q, buffer, transport, rcode);
            }
            // What was read as a client subnet behind the wrong end of the name is forgotten.
            q.prefetch_class(snapshot);
            if let Some(found) = snapshot.names.find(&q.key) {
                return self.at_node(snapshot, q, buffer, transport, found, false, trace);
            }
        }
        let name = q.key.name();
        let found = snapshot
            .names
            .closest_encloser(name, &q.offsets, q.labels as usize);
        let Some((encloser, at)) = found else {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        };
        let Some(node) = snapshot.names.node(encloser) else {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        };
        trace.event(Event::ClosestEncloser { node: encloser });
        if node.has(Node::OUTSIDE) {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        }
        if node.has(Node::CUT) || node.has(Node::DNAME) {
            // Of a cut its default, the referral.
            return match snapshot.names.entry(node, rtype::DNAME) {
                Some(entry) if entry.flags & Entry::REFERRAL == 0 => {
                    self.renamed(snapshot, q, buffer, transport, entry, trace)
                }
                Some(entry) => fixed(snapshot, q, buffer, transport, entry),
                None => error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16),
            };
        }
        if node.has(Node::WILDCARD)
            && let Some(wildcard) = snapshot.names.wildcard(name.get(at..).unwrap_or(&[]))
        {
            trace.event(Event::Wildcard { node: wildcard.node });
            return self.at_node(snapshot, q, buffer, transport, wildcard, true, trace);
        }
        let zone = snapshot.zones.get(node.zone as usize).copied();
        negative(snapshot, q, buffer, transport, zone, rcode::NXDOMAIN)
    }

    /// Answers from a node: the query's own, or the wildcard that covers it.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "one call site each, inlined")]
    fn at_node<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &mut Located,
        buffer: &mut [u8; N],
        transport: Transport,
        found: Found,
        wildcard: bool,
        trace: &mut T,
    ) -> Outcome {
        let Some(node) = snapshot.names.node(found.node) else {
            return error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16);
        };
        if node.has(Node::OUTSIDE) {
            return error(snapshot, q, buffer, transport, rcode::REFUSED as u16);
        }
        trace.event(Event::Name {
            node: found.node,
            zone: node.zone,
        });
        if found.service != NONE && matches!(q.qtype, rtype::A | rtype::AAAA) {
            if wildcard || q.candidate != Some(found) {
                q.class = class_of(snapshot, q.client);
            }
            let mut reply = Reply::start(snapshot, q, buffer, transport);
            let chosen = self.service(snapshot, q, &mut reply, found.service, 0xc00c, trace);
            if chosen.addresses {
                return reply.finish(
                    rcode::NOERROR as u16,
                    flags::AA,
                    Some(chosen.scope),
                    Counter::DnsAnswer,
                );
            }
            let zone = snapshot.zones.get(node.zone as usize);
            if let Some(blob) = zone.and_then(|z| snapshot.answers.blob(z.negative)) {
                reply.blob(&blob);
            }
            return reply.finish(
                rcode::NOERROR as u16,
                flags::AA,
                Some(chosen.scope),
                Counter::DnsNodata,
            );
        }
        let exists = node.entry_count() > 0 || found.service != NONE;
        if q.qtype == rtype::ANY && exists && !node.has(Node::CUT) {
            return any(snapshot, q, buffer, transport, node);
        }
        match snapshot.names.entry(node, q.qtype) {
            Some(entry) if entry.flags & Entry::SERVICE != 0 => {
                self.through_cname(snapshot, q, buffer, transport, node, entry, trace)
            }
            Some(entry) if entry.flags & Entry::DNAME != 0 => {
                self.renamed(snapshot, q, buffer, transport, entry, trace)
            }
            Some(entry) => fixed(snapshot, q, buffer, transport, entry),
            None => {
                let zone = snapshot.zones.get(node.zone as usize).copied();
                negative(snapshot, q, buffer, transport, zone, rcode::NOERROR)
            }
        }
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
        q.class = class_of(snapshot, q.client);
        let mut reply = Reply::start(snapshot, q, buffer, transport);
        let Some(blob) = snapshot.answers.blob(entry.blob) else {
            return reply.finish(rcode::SERVFAIL as u16, 0, None, Counter::DnsServfail);
        };
        let owner = match blob.head.is_empty() {
            true => 0xc00c,
            false => reply.owner(entry.owner),
        };
        reply.blob(&blob);
        let chosen = if entry.flags & Entry::CNAMES != 0 {
            self.service_with_cnames(snapshot, q, &mut reply, entry.service, owner, trace)
        } else {
            self.service(snapshot, q, &mut reply, entry.service, owner, trace)
        };
        if chosen.addresses || reply.is_truncated() {
            return reply.finish(
                rcode::NOERROR as u16,
                flags::AA,
                Some(chosen.scope),
                Counter::DnsAnswer,
            );
        }
        match snapshot.names.entry(node, Entry::NOTHING) {
            Some(none) => fixed_in_scope(snapshot, q, buffer, transport, none, chosen.scope),
            None => error(snapshot, q, buffer, transport, rcode::SERVFAIL as u16),
        }
    }

    /// Appends a service's addresses, owned by the name at the pointer `owner`.
    #[inline(always)]
    fn service<const N: usize, T: Trace>(
        &mut self,
        snapshot: &Snapshot,
        q: &Located,
        reply: &mut Reply<'_, N>,
        service: u32,
        owner: u16,
        trace: &mut T,
    ) -> Choice {
        let mut choice = Choice {
            addresses: false,
            scope: 0,
        };
        let plans = &snapshot.plans;
        let Some(&Service {
            policy: policy_index,
            v4,
            v6,
            ..
        }) = plans.service(service)
        else {
            return choice;
        };
        let pool = if q.qtype == rtype::A { v4 } else { v6 };
        let Some(policy) = plans.policy(policy_index) else {
            return choice;
        };
        trace.event(Event::Client {
            service,
            policy: policy_index,
            class: q.class,
            subnet: q.by_subnet,
        });
        if policy.flags & Policy::BY_CLASS != 0 && q.by_subnet {
            choice.scope = q.class.depth;
        }
        trace.event(Event::Scope(choice.scope));
        if pool == NONE {
            return choice;
        }
        let Some(cell) = plans.cell(policy, q.class.id) else {
            return choice;
        };
        trace.event(Event::Ranked(*cell));
        let weights = if q.qtype == rtype::A {
            &plans.weights_a
        } else {
            &plans.weights_aaaa
        };
        let any_health = policy.flags & Policy::ANY_HEALTH != 0;
        let chosen = self.chooser.choose(plans, pool, cell, any_health, weights, trace);
        reply.all_down(chosen.all_down);
        let members = chosen
            .members
            .iter()
            .take(chosen.count)
            .map(|&member| member as usize);
        if q.qtype == rtype::A {
            members
                .filter_map(|at| plans.records_a.get(at))
                .for_each(|record| reply.record(record, owner));
        } else {
            members
                .filter_map(|at| plans.records_aaaa.get(at))
                .for_each(|record| reply.record(record, owner));
        }
        choice.addresses = chosen.count > 0;
        if chosen.count == 0
            && let Some(fixed) = plans.pools.get(pool as usize).filter(|p| p.fixed != NONE)
            && let Some(blob) = snapshot.answers.blob(fixed.fixed)
        {
            reply.blob_owned(&blob, owner);
            choice.addresses = true;
        }
        choice
    }
}

/// What a service gave.
#[derive(Clone, Copy)]
struct Choice {
    /// Addresses were appended, or would have been with more room.
    addresses: bool,
    /// ECS scope of the choice, bits.
    scope: u8,
}

#[inline(always)]
fn class_of(snapshot: &Snapshot, client: Client) -> crate::tables::classes::Class {
    match client {
        Client::V4(address) => snapshot.classes.find_v4(address),
        Client::V6(address) => snapshot.classes.find_v6(address),
    }
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
        e if e.flags & Entry::REFERRAL != 0 => (0, Counter::DnsReferral),
        e if e.rcode == rcode::NXDOMAIN => (flags::AA, Counter::DnsNxdomain),
        _ if blob.head.ancount == 0 => (flags::AA, Counter::DnsNodata),
        _ => (flags::AA, Counter::DnsAnswer),
    };
    reply.finish(entry.rcode as u16, aa, Some(scope), counter)
}

/// NXDOMAIN or NODATA with the zone's SOA (RFC 2308).
fn negative<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    zone: Option<Zone>,
    code: u8,
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
    reply.finish(code as u16, flags::AA, Some(0), counter)
}

/// ANY gets one synthesised HINFO (RFC 8482 section 4.2); a CNAME answers for itself.
#[cold]
fn any<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    node: &Node,
) -> Outcome {
    if let Some(entry) = snapshot
        .names
        .entry(node, rtype::CNAME)
        .filter(|e| e.rtype == rtype::CNAME)
    {
        return fixed(snapshot, q, buffer, transport, entry);
    }
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    // Owner pointer, HINFO, IN, TTL 3600, RDLENGTH 9: "RFC8482" and "".
    const RECORD: [u8; 21] = *b"\xc0\x0c\x00\x0d\x00\x01\x00\x00\x0e\x10\x00\x09\x07RFC8482\x00";
    reply.record(&RECORD, 0xc00c);
    reply.finish(rcode::NOERROR as u16, flags::AA, Some(0), Counter::DnsAnswer)
}

/// An error reply: the question if it could be read, and OPT if one was.
#[cold]
#[inline(never)]
fn error<const N: usize>(
    snapshot: &Snapshot,
    q: &Located,
    buffer: &mut [u8; N],
    transport: Transport,
    code: u16,
) -> Outcome {
    let counter = match code {
        dns::rcode::BADVERS => Counter::DnsBadvers,
        c if c == rcode::FORMERR as u16 => Counter::DnsFormerr,
        c if c == rcode::NOTIMP as u16 => Counter::DnsNotimp,
        c if c == rcode::REFUSED as u16 => Counter::DnsRefused,
        _ => Counter::DnsServfail,
    };
    let mut reply = Reply::start(snapshot, q, buffer, transport);
    let scope = (code != rcode::FORMERR as u16 && code != dns::rcode::BADVERS).then_some(0);
    reply.finish(code, 0, scope, counter)
}
