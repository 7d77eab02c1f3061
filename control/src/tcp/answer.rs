//! The engine over TCP: the same two halves as in a worker, with tables and health words of its own that the
//! publisher keeps current as it does a worker's. Owned by the TCP thread; called by `connection`.

use super::counters::Tally;
use dataplane::arch::Ticks;
use dataplane::counters::{Counter, Counters};
use dataplane::link::{ControlLink, DeliverySlots, LinkSlots, StopFlag, WorkerLink, connect};
use dataplane::stages::dns_answer::{Client, Engine, Located, Outcome, Silent, Transport};
use dataplane::tables::Snapshot;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest message over TCP: what two bytes of length can say.
const MESSAGE_MAX: usize = u16::MAX as usize;
/// Words taken at once: all that wait. Nothing polls here, so nothing has to be kept short.
const WORDS_AT_ONCE: u32 = u32::MAX;

/// The ends of a link that carries tables and words, and no packets.
pub fn link() -> (WorkerLink<Snapshot>, ControlLink<Snapshot>) {
    let slots = LinkSlots {
        delivery: DeliverySlots::default(),
        punts: 1,
        injections: 1,
        samples: 1,
        clients: 1,
    };
    connect(slots, StopFlag::default())
}

/// Unix time modulo 2^32, seconds.
fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() as u32)
}

/// The engine and what it answers by.
pub(super) struct Answerer {
    engine: Engine,
    link: WorkerLink<Snapshot>,
    located: Located,
    buffer: Box<[u8; MESSAGE_MAX]>,
    counters: Counters,
    tally: Arc<Tally>,
    transport: Transport,
}

impl Answerer {
    /// An engine over the tables that come by `link`. `idle`: what clients are told that ask for it.
    pub(super) fn new(link: WorkerLink<Snapshot>, seed: u64, idle: Duration, tally: Arc<Tally>) -> Self {
        let keepalive = u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX);
        Self {
            transport: Transport::Tcp { keepalive },
            engine: Engine::new(seed),
            link,
            located: Located::default(),
            buffer: Box::new([0; MESSAGE_MAX]),
            counters: Counters::default(),
            tally,
        }
    }

    /// Takes what the publisher sent: the newest tables and words. Called before each answer, and every few
    /// milliseconds, so that retired tables go back.
    fn catch_up(&mut self) {
        let words = &mut self.engine.chooser.words;
        self.link.take(WORDS_AT_ONCE, Ticks::now(), |target, value| {
            words.set(target, value)
        });
    }

    /// One turn without a query: tables, words, and the counters shown.
    pub(super) fn turn(&mut self) {
        self.catch_up();
        self.tally.publish(&self.counters);
    }

    /// Appends the reply to `message` with its length before it; nothing if there is none.
    pub(super) fn answer(&mut self, message: &[u8], client: IpAddr, out: &mut Vec<u8>) {
        self.catch_up();
        let (Some(snapshot), Some(to)) = (self.link.tables.current(), self.buffer.get_mut(..message.len()))
        else {
            return;
        };
        to.copy_from_slice(message);
        let client = match client {
            IpAddr::V4(address) => Client::V4(address.octets()),
            IpAddr::V6(address) => Client::V6(address.octets()),
        };
        self.engine.seconds = now();
        self.located.locate(snapshot, &self.buffer, message.len(), client);
        self.engine.find(snapshot, &mut self.located);
        let outcome = self.engine.answer(
            snapshot,
            &mut self.located,
            &mut self.buffer,
            self.transport,
            &mut Silent,
        );
        match outcome {
            Outcome::Drop(reason) => self.counters.bump(reason),
            Outcome::Reply {
                len,
                counter,
                truncated,
                all_down,
            } => {
                let Some(reply) = self.buffer.get(..len) else {
                    return;
                };
                out.extend((len as u16).to_be_bytes());
                out.extend(reply);
                self.counters.bump(counter);
                self.counters.add(Counter::DnsTruncated, truncated.into());
                self.counters.add(Counter::DnsAllDown, all_down.into());
                self.counters.add(Counter::DnsQueryBytes, message.len() as u64);
                self.counters.add(Counter::DnsReplyBytes, len as u64);
            }
        }
    }
}
