//! The poll-mode loop of one worker: bursts, then housekeeping.
//!
//! Started by control on a pinned thread of its own. Owns one RX/TX queue pair of each port, the stages and
//! their state, and its end of the link. Every received packet gets exactly one verdict here, and every
//! verdict is counted here.

use crate::arch::{self, TickRate, Ticks};
use crate::counters::{Counter, Counters, Published};
use crate::io::{BURST_MAX, Buffer, Burst, QueuePair, Shape};
use crate::link::{WORDS_PER_TURN, WorkerLink};
use crate::stages::classify::classify;
use crate::stages::dns_answer::{self, DnsAnswer};
use crate::stages::neighbour::{Neighbour, RateLimit};
use crate::stages::{Family, Lane, Layers, Verdict, punt, reply};
use crate::tables::Snapshot;
use std::sync::Arc;
use std::time::Duration;

/// Injected packets sent in one housekeeping turn at most.
const INJECTIONS_PER_TURN: usize = 8;
/// Polls without housekeeping at most while packets come: rings are looked at every few microseconds.
const POLLS_PER_TURN: u32 = 8;
/// Echo replies of one worker a second, and how many may come at once.
const ECHO_RATE: (u32, u32) = (1000, 100);

/// What a worker does when a turn found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Polls on.
    Spin,
    /// Sleeps for a moment: for labs with fewer CPUs than threads. The one place where a worker
    /// makes a system call, and it is off on real appliances.
    Sleep(Duration),
}

/// What a worker is told at start.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    /// Idle behaviour.
    pub idle: Idle,
    /// Seed of its draws.
    pub seed: u64,
    /// Rate of the tick counter.
    pub rate: TickRate,
}

/// One worker over its queue pairs, `ports[i]` being the pair of port `i`.
pub struct Worker<Q: QueuePair> {
    ports: Vec<Q>,
    received: Burst<Q::Buf>,
    /// What goes out of each port at the end of the burst.
    outgoing: Vec<Burst<Q::Buf>>,
    link: WorkerLink<Snapshot>,
    dns_answer: DnsAnswer,
    neighbour: Neighbour,
    counters: Counters,
    published: Arc<Published>,
    idle: Idle,
    last_turn: Option<Ticks>,
}

/// A packet's place in the burst while stages work on it.
#[derive(Clone, Copy)]
struct Packet {
    layers: Layers,
    verdict: Verdict,
    /// Length of the frame when it leaves, bytes.
    len: usize,
    /// Whether the port is asked for its checksums.
    offload: bool,
    /// Whether it is on the lane of `dns_answer`.
    query: bool,
}

impl Packet {
    const NONE: Self = Self {
        layers: Layers {
            family: Family::V4,
            l3: 0,
            l4: 0,
            end: 0,
        },
        verdict: Verdict::Drop(Counter::DropNoSnapshot),
        len: 0,
        offload: false,
        query: false,
    };
}

impl<Q: QueuePair> Worker<Q> {
    /// A worker that is ready to run; all memory it will use is allocated here.
    pub fn new(
        ports: Vec<Q>,
        link: WorkerLink<Snapshot>,
        published: Arc<Published>,
        config: WorkerConfig,
    ) -> Self {
        let outgoing = ports.iter().map(|_| Burst::default()).collect();
        let (per_second, burst) = ECHO_RATE;
        Self {
            ports,
            received: Burst::default(),
            outgoing,
            link,
            dns_answer: DnsAnswer::new(config.seed),
            neighbour: Neighbour::new(RateLimit::new(per_second, burst, config.rate.hz() as u64)),
            counters: Counters::default(),
            published,
            idle: config.idle,
            last_turn: None,
        }
    }

    /// Polls until the stop flag is set, then drains what is in the queues. Returns itself: what it owns is to
    /// be dropped by control.
    pub fn run(mut self) -> Self {
        while !self.link.stop.is_set() {
            let mut received = 0;
            // Nothing is read before there are tables to answer by: it waits in the port's ring.
            let polls = if self.generation() == 0 { 0 } else { POLLS_PER_TURN };
            for _ in 0..polls {
                let now = Ticks::now();
                let here = self.poll(now);
                received += here;
                if here == 0 {
                    break;
                }
            }
            self.housekeep(Ticks::now());
            if received == 0 {
                match self.idle {
                    Idle::Spin => arch::pause(),
                    Idle::Sleep(time) => std::thread::sleep(time),
                }
            }
        }
        // What has arrived by now is still answered; a flood cannot hold the worker.
        for _ in 0..64 {
            if self.poll(Ticks::now()) == 0 {
                break;
            }
        }
        self.housekeep(Ticks::now());
        self
    }

    /// Polls each port once; returns how many packets came. `now` is the burst's one clock reading.
    pub fn poll(&mut self, now: Ticks) -> usize {
        let mut total = 0;
        for port in 0..self.ports.len() {
            let Some(queues) = self.ports.get_mut(port) else {
                break;
            };
            queues.rx(&mut self.received);
            let count = self.received.len();
            if count > 0 {
                total += count;
                self.burst(port, now);
            }
        }
        self.counters.bump(Counter::Polls);
        self.counters.add(Counter::UsefulPolls, (total > 0) as u64);
        total
    }

    /// One burst from one port: classify, stages, verdicts, transmit.
    #[inline]
    fn burst(&mut self, port: usize, now: Ticks) {
        let mut packets = [Packet::NONE; BURST_MAX];
        self.counters.add(Counter::Received, self.received.len() as u64);
        if let Some(snapshot) = self.link.tables.current()
            && let Some(queues) = self.ports.get(port)
        {
            let offload = queues.checksum_offload();
            let stages = Stages {
                port,
                now,
                snapshot,
                offload,
                dns_answer: &mut self.dns_answer,
                neighbour: &mut self.neighbour,
                punts: &mut self.link.punts,
                counters: &mut self.counters,
            };
            stages.run(self.received.as_mut_slice(), &mut packets);
        }
        self.dispose(port, &packets);
    }

    /// Sends each packet of the burst where its verdict says, and counts what became of it.
    #[inline]
    fn dispose(&mut self, port: usize, packets: &[Packet; BURST_MAX]) {
        for (mut buffer, packet) in self.received.drain().zip(packets) {
            let out = match packet.verdict {
                Verdict::Reply => port,
                Verdict::Forward(out) => out as usize,
                Verdict::Punt => {
                    self.counters.bump(Counter::Punted);
                    continue;
                }
                Verdict::Consume => {
                    self.counters.bump(Counter::Consumed);
                    continue;
                }
                Verdict::Drop(reason) => {
                    self.counters.bump(reason);
                    continue;
                }
            };
            buffer.set_len(packet.len);
            if packet.offload {
                buffer.request_checksum(reply::checksum_offload(&packet.layers));
            }
            let replied = packet.verdict == Verdict::Reply;
            self.counters.bump(if replied {
                Counter::Replied
            } else {
                Counter::Forwarded
            });
            // A burst received is a burst sent at most, so there is room.
            if let Some(outgoing) = self.outgoing.get_mut(out) {
                let _ = outgoing.push(buffer);
            }
        }
        self.transmit(port, packets);
    }

    /// Transmits what waits; what a port refuses turns its verdict into a drop.
    #[inline]
    fn transmit(&mut self, port: usize, packets: &[Packet; BURST_MAX]) {
        for (out, (queues, outgoing)) in self.ports.iter_mut().zip(&mut self.outgoing).enumerate() {
            if outgoing.is_empty() {
                continue;
            }
            let sent = queues.tx(outgoing);
            self.counters.add(Counter::Transmitted, sent as u64);
            let refused = outgoing.len();
            if refused > 0 {
                // Which of them were replies: the last ones of the burst that went to this port.
                let went_here = |p: &&Packet| match p.verdict {
                    Verdict::Reply => out == port,
                    Verdict::Forward(to) => to as usize == out,
                    _ => false,
                };
                let replies = packets
                    .iter()
                    .filter(went_here)
                    .skip(sent)
                    .filter(|p| p.verdict == Verdict::Reply)
                    .count() as u64;
                self.counters.take_back(Counter::Replied, replies);
                self.counters
                    .take_back(Counter::Forwarded, refused as u64 - replies);
                self.counters.add(Counter::DropTxFull, refused as u64);
                outgoing.clear();
            }
        }
    }

    /// Takes ring messages, sends what control injects, publishes counters. A few of each.
    pub fn housekeep(&mut self, now: Ticks) {
        if let Some(last) = self.last_turn.replace(now) {
            self.counters.raise(Counter::LoopGapTicksMax, now.since(last));
        }
        let words = &mut self.dns_answer.engine.chooser.words;
        let taken = self
            .link
            .take(WORDS_PER_TURN, now, |target, value| words.set(target, value));
        self.counters.add(Counter::WordsTaken, taken.words as u64);
        self.counters
            .add(Counter::SnapshotsAdopted, taken.adopted.is_some() as u64);
        self.counters.add(Counter::SnapshotsRetired, taken.retired as u64);
        for _ in 0..INJECTIONS_PER_TURN {
            if !self.inject() {
                break;
            }
        }
        let unusable = self.ports.iter().map(Q::unusable).sum();
        self.counters.raise(Counter::RxUnusable, unusable);
        self.published.publish(&self.counters);
    }

    /// Sends one injected packet; false when there is none.
    fn inject(&mut self) -> bool {
        let (ports, outgoing) = (&mut self.ports, &mut self.outgoing);
        let sent = self.link.injections.receive(|port, frame| {
            let queues = ports.get_mut(port as usize)?;
            let burst = outgoing.get_mut(port as usize)?;
            let mut buffer = queues.alloc()?;
            buffer.window().get_mut(..frame.len())?.copy_from_slice(frame);
            buffer.set_len(frame.len());
            burst.push(buffer).ok()?;
            let sent = queues.tx(burst);
            burst.clear();
            (sent == 1).then_some(())
        });
        match sent {
            Some(Some(())) => {
                self.counters.bump(Counter::Injected);
                self.counters.bump(Counter::Transmitted);
            }
            Some(None) => self.counters.bump(Counter::InjectionsDropped),
            None => return false,
        }
        true
    }

    /// The worker's counters as of now.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The generation in use; 0 before the first snapshot.
    pub fn generation(&self) -> u64 {
        self.link.tables.generation()
    }
}

/// What the stages of one burst work with: disjoint parts of the worker.
struct Stages<'a> {
    port: usize,
    now: Ticks,
    snapshot: &'a Snapshot,
    offload: bool,
    dns_answer: &'a mut DnsAnswer,
    neighbour: &'a mut Neighbour,
    punts: &'a mut crate::link::PacketSender,
    counters: &'a mut Counters,
}

impl Stages<'_> {
    /// Gives every packet its verdict. DNS goes in three passes over the burst, so that what one query has to
    /// wait for from memory is fetched while the others are worked on.
    #[inline]
    fn run<B: Buffer>(self, buffers: &mut [B], packets: &mut [Packet; BURST_MAX]) {
        let Some(view) = self.snapshot.ports.get(self.port) else {
            return;
        };
        let (engine, located) = self.dns_answer.parts();
        let mut queries = 0usize;
        for ((buffer, packet), located) in buffers.iter_mut().zip(packets.iter_mut()).zip(located.iter_mut())
        {
            let (shape, len) = (buffer.shape(), buffer.len());
            let window = buffer.window();
            let (layers, next) = match shape {
                Shape::Whole => classify(window, len, shape, view),
                Shape::MultiSegment => (Packet::NONE.layers, drop(Counter::DropMultiSegment)),
                Shape::Oversized => (Packet::NONE.layers, drop(Counter::DropOversized)),
            };
            packet.layers = layers;
            packet.verdict = match next {
                Lane::DnsAnswer => {
                    packet.query = true;
                    queries += 1;
                    dns_answer::locate(located, self.snapshot, window, &layers);
                    continue;
                }
                Lane::Neighbour => {
                    let (verdict, len) =
                        self.neighbour
                            .process(window, &layers, view, self.now, self.counters);
                    packet.len = len;
                    verdict
                }
                Lane::Punt => punt::punt(window, len, self.port as u8, self.punts),
                Lane::Done(verdict) => verdict,
            };
        }
        if queries == 0 {
            return;
        }
        for (packet, located) in packets.iter().zip(located.iter_mut()) {
            if packet.query {
                engine.find(self.snapshot, located);
            }
        }
        for ((buffer, packet), located) in buffers.iter_mut().zip(packets.iter_mut()).zip(located.iter_mut())
        {
            if packet.query {
                let window = buffer.window();
                let (verdict, len) = dns_answer::answer(
                    engine,
                    located,
                    self.snapshot,
                    window,
                    &packet.layers,
                    self.offload,
                    self.counters,
                );
                (packet.verdict, packet.len, packet.offload) = (verdict, len, self.offload);
            }
        }
    }
}

/// A lane that ends in a drop.
const fn drop(reason: Counter) -> Lane {
    Lane::Done(Verdict::Drop(reason))
}
