//! The stage `dns_answer`: runs the engine over the DNS packets of a burst, in three passes so that the cache
//! misses of the queries overlap. Called by the worker with the packets of lane `DnsAnswer`.

use super::{Client, Engine, Located, Outcome, Silent, Transport};
use crate::counters::{Counter, Counters};
use crate::io::{BURST_MAX, Window};
use crate::stages::{Family, Layers, Verdict, reply};
use crate::tables::Snapshot;
use crate::wire::{at, at_mut, udp};

/// Offset of the source address in an IPv4 header (RFC 791 section 3.1).
const IPV4_SOURCE: usize = 12;
/// Offset of the source address in an IPv6 header (RFC 8200 section 3).
const IPV6_SOURCE: usize = 8;

/// Room for a message in a frame's window: behind the longest headers that `classify` lets pass, and more than
/// any reply over UDP needs.
pub const UDP_ROOM: usize = 1536;

/// The stage: the engine and one [`Located`] for each packet of a burst.
pub struct DnsAnswer {
    /// The engine, which owns the worker's health words.
    pub engine: Engine,
    located: Box<[Located; BURST_MAX]>,
}

impl DnsAnswer {
    /// The stage of one worker; its draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            engine: Engine::new(seed),
            located: Box::new([Located::default(); BURST_MAX]),
        }
    }

    /// The engine, and a [`Located`] for each packet of the burst.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut Engine, &mut [Located; BURST_MAX]) {
        (&mut self.engine, &mut self.located)
    }
}

/// First pass over a packet: reads the query. The second is [`Engine::find`].
#[inline(always)]
pub fn locate(located: &mut Located, snapshot: &Snapshot, window: &Window, layers: &Layers) {
    let start = layers.l4 as usize + udp::HEADER_LEN;
    let len = (layers.end as usize).wrapping_sub(start);
    match at::<UDP_ROOM>(window, start) {
        Some(message) => located.locate(snapshot, message, len, client(window, layers)),
        None => located.refuse(Counter::DropOversized),
    }
}

/// Third pass: writes the reply frame over the query. Returns the verdict and the frame length.
#[inline(always)]
pub fn answer(
    engine: &mut Engine,
    located: &mut Located,
    snapshot: &Snapshot,
    window: &mut Window,
    layers: &Layers,
    offload: bool,
    counters: &mut Counters,
) -> (Verdict, usize) {
    let start = layers.l4 as usize + udp::HEADER_LEN;
    let Some(message) = at_mut::<UDP_ROOM>(window, start) else {
        return (Verdict::Drop(Counter::DropOversized), 0);
    };
    match engine.answer(snapshot, located, message, Transport::Udp, &mut Silent) {
        Outcome::Drop(reason) => (Verdict::Drop(reason), 0),
        Outcome::Reply {
            len,
            counter,
            truncated,
            all_down,
        } => {
            let Some(frame) = reply::finish_udp(window, layers, len, offload) else {
                return (Verdict::Drop(Counter::DropOversized), 0);
            };
            counters.bump(counter);
            if truncated | all_down {
                counters.add(Counter::DnsTruncated, truncated as u64);
                counters.add(Counter::DnsAllDown, all_down as u64);
            }
            counters.add(Counter::DnsQueryBytes, located.len() as u64);
            counters.add(Counter::DnsReplyBytes, len as u64);
            (Verdict::Reply, frame)
        }
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
