//! The stage `dns_answer`: runs the engine over the DNS packets of a burst, in three passes so that the cache
//! misses of the queries overlap. Called by the worker with the packets of lane `DnsAnswer`.

use super::{Client, Engine, Located, Outcome, Silent, Transport};
use crate::counters::{Counter, Counters};
use crate::io::Window;
use crate::stages::{Family, Layers, reply};
use crate::tables::Snapshot;
use crate::wire::{at, at_mut, eth, udp};

/// Offset of the source address in an IPv4 header (RFC 791 section 3.1).
const IPV4_SOURCE: usize = 12;
/// Offset of the source address in the frame of a plain query.
const PLAIN_SOURCE: usize = eth::HEADER_LEN + IPV4_SOURCE;
/// Offset of the source address in an IPv6 header (RFC 8200 section 3).
const IPV6_SOURCE: usize = 8;

/// Room for a message in a frame's window: behind the longest headers that `classify` lets pass, and more than
/// any reply over UDP needs.
pub const UDP_ROOM: usize = 1536;

/// The stage of one worker.
pub struct DnsAnswer {
    /// The engine, which owns the worker's health words.
    pub engine: Engine,
}

impl DnsAnswer {
    /// The stage of one worker; its draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            engine: Engine::new(seed),
        }
    }

    /// First pass over a plain query that ends at `end`: reads it. The second is [`Engine::find`].
    #[inline(always)]
    pub fn locate_plain(located: &mut Located, snapshot: &Snapshot, window: &Window, end: u16) {
        let (Some(message), Some(&source)) = (
            at::<UDP_ROOM>(window, Layers::PLAIN_MESSAGE),
            at(window, PLAIN_SOURCE),
        ) else {
            return;
        };
        let len = (end as usize).wrapping_sub(Layers::PLAIN_MESSAGE);
        located.locate(snapshot, message, len, Client::V4(source));
    }

    /// First pass over any query.
    #[inline(never)]
    pub fn locate(located: &mut Located, snapshot: &Snapshot, window: &Window, layers: &Layers) {
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let len = (layers.end as usize).wrapping_sub(start);
        match at::<UDP_ROOM>(window, start) {
            Some(message) => located.locate(snapshot, message, len, client(window, layers)),
            None => located.refuse(Counter::DropOversized),
        }
    }

    /// Third pass: draws what a service answers with.
    #[inline(always)]
    pub fn choose(&mut self, located: &mut Located, snapshot: &Snapshot) {
        self.engine.choose(snapshot, located);
    }

    /// Fourth pass over a plain query: writes the reply frame over it, if the answer is a usual one. Returns the lengths of
    /// message and frame; `None` says nothing: [`DnsAnswer::answer`] does the rest.
    #[inline(always)]
    pub fn answer_plain<const OFFLOAD: bool>(
        &self,
        located: &Located,
        snapshot: &Snapshot,
        window: &mut Window,
    ) -> Option<(usize, usize)> {
        let message = at_mut::<UDP_ROOM>(window, Layers::PLAIN_MESSAGE)?;
        let len = self.engine.usual(snapshot, located, message, Transport::Udp)?;
        Some((len, reply::finish_plain(window, len, OFFLOAD)?))
    }

    /// The same for the usual denial.
    #[inline(always)]
    pub fn deny_plain<const OFFLOAD: bool>(
        &self,
        located: &mut Located,
        snapshot: &Snapshot,
        window: &mut Window,
    ) -> Option<(usize, usize)> {
        let message = at_mut::<UDP_ROOM>(window, Layers::PLAIN_MESSAGE)?;
        let len = self.engine.deny(snapshot, located, message, Transport::Udp)?;
        Some((len, reply::finish_plain(window, len, OFFLOAD)?))
    }

    /// Fourth pass over any query. With `TRIED` it is plain, and there was neither a usual answer nor a usual denial. Returns the
    /// frame's length, or why there is none.
    #[inline(never)]
    pub fn answer<const TRIED: bool>(
        &mut self,
        located: &mut Located,
        snapshot: &Snapshot,
        window: &mut Window,
        layers: &Layers,
        offload: bool,
        counters: &mut Counters,
    ) -> Result<usize, Counter> {
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let message = at_mut::<UDP_ROOM>(window, start).ok_or(Counter::DropOversized)?;
        let (engine, transport, trace) = (&mut self.engine, Transport::Udp, &mut Silent);
        let outcome = match TRIED {
            true => engine.answer_any(snapshot, located, message, transport, trace),
            false => engine.answer_chosen(snapshot, located, message, transport, trace),
        };
        let len = outcome.reply_len()?;
        let frame = reply::finish_udp(window, layers, len, offload).ok_or(Counter::DropOversized)?;
        count(located, outcome, counters);
        Ok(frame)
    }
}

/// Counts a reply.
#[inline(always)]
fn count(located: &Located, outcome: Outcome, counters: &mut Counters) {
    if let Outcome::Reply {
        len,
        counter,
        truncated,
        all_down,
    } = outcome
    {
        counters.bump(counter);
        if truncated | all_down {
            counters.add(Counter::DnsTruncated, truncated as u64);
            counters.add(Counter::DnsAllDown, all_down as u64);
        }
        counters.add(Counter::DnsQueryBytes, located.len() as u64);
        counters.add(Counter::DnsReplyBytes, len as u64);
    }
}

/// The source address of a classified packet.
#[inline(always)]
fn client(window: &Window, layers: &Layers) -> Client {
    let l3 = layers.l3 as usize;
    match layers.family {
        Family::V4 => Client::V4(at(window, l3 + IPV4_SOURCE).copied().unwrap_or([0; 4])),
        Family::V6 => Client::V6(at(window, l3 + IPV6_SOURCE).copied().unwrap_or([0; 16])),
    }
}
