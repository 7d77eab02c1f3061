//! The stage `dns_answer`: runs the engine over the DNS packets of a burst, in three passes so that the cache
//! misses of the queries overlap. Called by the worker with the packets of lane `DnsAnswer`.

use super::{Client, Engine, Located, Outcome, Silent, Transport, guard};
use crate::arch::{TickRate, Ticks};
use crate::clock::WallClock;
use crate::counters::{Counter, Counters};
use crate::io::Window;
use crate::link::{WordTarget, WordValue};
use crate::stages::rate_limit::RateLimit;
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
    clock: WallClock,
    limit: RateLimit,
}

impl DnsAnswer {
    /// The stage of one of `workers` workers on a counter of this rate; its draws follow from `seed`.
    pub fn new(seed: u64, workers: u32, rate: TickRate) -> Self {
        // Keys of the rate limits' hash: not the seed itself, which draws begin with.
        let keys =
            [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9].map(|k| seed.wrapping_mul(k).rotate_left(29) ^ k);
        Self {
            engine: Engine::new(seed),
            clock: WallClock::new(rate),
            limit: RateLimit::new(workers, rate, keys),
        }
    }

    /// Takes a word from control.
    pub fn take_word(&mut self, target: WordTarget, value: WordValue) {
        match target {
            WordTarget::Clock => self.clock.set(value),
            _ => self.engine.chooser.words.set(target, value),
        }
    }

    /// Looks at the clock, once a housekeeping turn.
    #[inline]
    pub fn tick(&mut self, now: Ticks) {
        self.clock.advance(now);
        self.engine.seconds = self.clock.seconds();
    }

    /// Takes what the stage keeps of a snapshot that was just adopted.
    pub fn adopt(&mut self, snapshot: &Snapshot) {
        self.limit.adopt(snapshot.limits.rate_limit.as_ref());
    }

    /// Whether every query of this snapshot has to go by [`DnsAnswer::answer`].
    #[inline(always)]
    pub fn is_guarded(snapshot: &Snapshot) -> bool {
        guard::wanted(snapshot)
    }

    /// First pass over a plain query that ends at `end`: reads it, as [`Located::locate`]. The second is
    /// [`Engine::find`].
    #[inline(always)]
    pub fn locate_plain(located: &mut Located, snapshot: &Snapshot, window: &Window, end: u16) -> bool {
        let (Some(message), Some(&source)) = (
            at::<UDP_ROOM>(window, Layers::PLAIN_MESSAGE),
            at(window, PLAIN_SOURCE),
        ) else {
            return false;
        };
        let len = (end as usize).wrapping_sub(Layers::PLAIN_MESSAGE);
        located.locate(snapshot, message, len, Client::V4(source))
    }

    /// First pass over any query.
    #[inline(never)]
    pub fn locate(located: &mut Located, snapshot: &Snapshot, window: &Window, layers: &Layers) {
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let len = (layers.end as usize).wrapping_sub(start);
        match at::<UDP_ROOM>(window, start) {
            Some(message) => _ = located.locate(snapshot, message, len, client(window, layers)),
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
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    pub fn answer<const TRIED: bool>(
        &mut self,
        located: &mut Located,
        snapshot: &Snapshot,
        window: &mut Window,
        layers: &Layers,
        offload: bool,
        now: Ticks,
        counters: &mut Counters,
    ) -> Result<usize, Counter> {
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let message = at_mut::<UDP_ROOM>(window, start).ok_or(Counter::DropOversized)?;
        let (engine, transport, trace) = (&mut self.engine, Transport::Udp, &mut Silent);
        let outcome = match TRIED {
            // Under guard no query is plain.
            true => engine.answer_any(snapshot, located, message, transport, trace),
            false if guard::wanted(snapshot) => {
                guard::answer(engine, &mut self.limit, snapshot, located, message, now, counters)
            }
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
