//! The stage `dns_answer`: runs the engine over the DNS packets of a burst, in three passes so that the cache
//! misses of the queries overlap. Called by the worker with the packets of lane `DnsAnswer`.

use super::{Client, Engine, Located, Outcome, Silent, Transport};
use crate::counters::{Counter, Counters};
use crate::io::{BURST_MAX, Window};
use crate::stages::{Family, Layers, Verdict, reply};
use crate::tables::Snapshot;
use crate::wire::{at, udp};

/// Offset of the source address in an IPv4 header (RFC 791 section 3.1).
const IPV4_SOURCE: usize = 12;
/// Offset of the source address in an IPv6 header (RFC 8200 section 3).
const IPV6_SOURCE: usize = 8;

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

    /// First pass over packet `i` of the lane: reads the query.
    #[inline(always)]
    pub fn locate(&mut self, i: usize, snapshot: &Snapshot, window: &Window, layers: &Layers) {
        let Some(located) = self.located.get_mut(i) else {
            return;
        };
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let message = window.get(start..).unwrap_or(&[]);
        let len = (layers.end as usize).saturating_sub(start);
        located.locate(snapshot, message, len, client(window, layers));
    }

    /// Second pass: one step down the tables.
    #[inline(always)]
    pub fn find(&mut self, i: usize, snapshot: &Snapshot) {
        if let Some(located) = self.located.get_mut(i) {
            self.engine.find(snapshot, located);
        }
    }

    /// Third pass: writes the reply frame over the query. Returns the verdict and the frame length.
    #[inline(always)]
    pub fn answer(
        &mut self,
        i: usize,
        snapshot: &Snapshot,
        window: &mut Window,
        layers: &Layers,
        offload: bool,
        counters: &mut Counters,
    ) -> (Verdict, usize) {
        let Some(located) = self.located.get_mut(i) else {
            return (Verdict::Drop(Counter::DropDnsShort), 0);
        };
        let start = layers.l4 as usize + udp::HEADER_LEN;
        let query_len = (layers.end as usize).saturating_sub(start);
        let message = window.get_mut(start..).unwrap_or(&mut []);
        match self
            .engine
            .answer(snapshot, located, message, Transport::Udp, &mut Silent)
        {
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
                counters.add(Counter::DnsTruncated, truncated as u64);
                counters.add(Counter::DnsAllDown, all_down as u64);
                counters.add(Counter::DnsQueryBytes, query_len as u64);
                counters.add(Counter::DnsReplyBytes, len as u64);
                (Verdict::Reply, frame)
            }
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
