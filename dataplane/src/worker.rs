//! The poll-mode loop of one worker: bursts, then housekeeping.
//!
//! Started by control on a pinned thread of its own. Owns one RX/TX queue pair of each port, the stages and
//! their state, and its end of the link. Every received packet gets exactly one verdict here, and every
//! verdict is counted here.

mod passes;

use crate::arch::{self, Isa, TickRate, Ticks};
use crate::counters::{Counter, Counters, Published};
use crate::io::{BURST_MAX, Buffer, Burst, QueuePair};
use crate::link::{WORDS_PER_TURN, WorkerLink};
use crate::stages::Verdict;
use crate::stages::classify::Role;
use crate::stages::dns_answer::DnsAnswer;
use crate::stages::flow_latency::{FlowLatency, FlowLimits};
use crate::stages::neighbour::{Neighbour, RateLimit};
use crate::tables::Snapshot;
use passes::{Packet, Stages};
use std::io;
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
    /// How many workers the appliance has: limits are divided by it.
    pub workers: u32,
    /// Its flow table; none on appliances whose ports all have the role of a service.
    pub flows: Option<FlowLimits>,
}

/// One worker over its queue pairs, `ports[i]` being the pair of port `i`.
pub struct Worker<Q: QueuePair> {
    ports: Vec<Q>,
    received: Burst<Q::Buf>,
    /// What the stages keep of each packet of the burst.
    packets: Box<[Packet; BURST_MAX]>,
    /// What goes out of each port at the end of the burst.
    outgoing: Vec<Burst<Q::Buf>>,
    link: WorkerLink<Snapshot>,
    dns_answer: DnsAnswer,
    neighbour: Neighbour,
    flow_latency: Option<FlowLatency>,
    counters: Counters,
    published: Arc<Published>,
    idle: Idle,
    isa: Isa,
    last_turn: Option<Ticks>,
    /// Useful polls when a client was sampled last; its place in the burst then.
    sampled: (u64, usize),
}

impl<Q: QueuePair> Worker<Q> {
    /// A worker that is ready to run; all memory it will use is allocated here.
    ///
    /// # Errors
    /// When the kernel has no memory for the flow table.
    pub fn new(
        ports: Vec<Q>,
        link: WorkerLink<Snapshot>,
        published: Arc<Published>,
        config: WorkerConfig,
    ) -> io::Result<Self> {
        let flows = config
            .flows
            .map(|limits| FlowLatency::new(limits, config.seed.rotate_left(32), config.rate));
        let outgoing = ports.iter().map(|_| Burst::default()).collect();
        let (per_second, burst) = ECHO_RATE;
        Ok(Self {
            ports,
            received: Burst::default(),
            packets: Box::new([Packet::default(); BURST_MAX]),
            outgoing,
            link,
            dns_answer: DnsAnswer::new(config.seed, config.workers, config.rate),
            neighbour: Neighbour::new(RateLimit::new(per_second, burst, config.rate.hz() as u64)),
            flow_latency: flows.transpose()?,
            counters: Counters::default(),
            published,
            idle: config.idle,
            isa: Isa::detect(),
            last_turn: None,
            sampled: (0, 0),
        })
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
    #[inline(always)]
    fn burst(&mut self, port: usize, now: Ticks) {
        let count = self.received.len();
        self.counters.add(Counter::Received, count as u64);
        let mut replied = 0;
        if let Some(snapshot) = self.link.tables.current()
            && let Some(view) = snapshot.ports.get(port)
            && let Some(queues) = self.ports.get(port)
        {
            let stages = Stages {
                isa: self.isa,
                port,
                now,
                snapshot,
                view,
                offload: queues.checksum_offload(),
                dns_answer: &mut self.dns_answer,
                neighbour: &mut self.neighbour,
                punts: &mut self.link.punts,
                counters: &mut self.counters,
            };
            let buffers = self.received.as_mut_slice();
            replied = match view.role {
                Role::Service => stages.run(buffers, &mut self.packets),
                _ => {
                    let (flows, samples) = (self.flow_latency.as_mut(), &mut self.link.samples);
                    let (replied, verdict) = stages.measure(buffers, &mut self.packets, flows, samples);
                    if replied == 0 {
                        return self.dispose_alike(port, verdict);
                    }
                    replied
                }
            };
        } else {
            for packet in self.packets.iter_mut() {
                packet.verdict = Verdict::Drop(Counter::DropNoSnapshot);
            }
        }
        if replied == count {
            self.reply_all(port);
        } else {
            self.dispose(port);
        }
    }

    /// Sends the whole burst back where it came from: the usual case.
    #[inline(always)]
    fn reply_all(&mut self, port: usize) {
        let Some(queues) = self.ports.get_mut(port) else {
            return;
        };
        let sent = queues.tx(&mut self.received);
        let refused = self.received.len();
        self.counters.add(Counter::Replied, sent as u64);
        self.counters.add(Counter::Transmitted, sent as u64);
        if refused > 0 {
            self.counters.add(Counter::DropTxFull, refused as u64);
            self.received.clear();
        }
    }

    /// Consumes the whole burst or passes it on: the usual case on ports whose traffic is measured.
    #[inline(never)]
    fn dispose_alike(&mut self, port: usize, verdict: Verdict) {
        let count = self.received.len() as u64;
        match verdict {
            Verdict::Forward(out) => {
                let sent = match self.ports.get_mut(usize::from(out)) {
                    Some(queues) => queues.tx(&mut self.received) as u64,
                    None => 0,
                };
                self.counters.add(Counter::Forwarded, sent);
                self.counters.add(Counter::Transmitted, sent);
                self.counters.add(Counter::DropTxFull, count - sent);
            }
            _ => self.counters.add(Counter::Consumed, count),
        }
        // What is left of it: all, or what was refused.
        if let Some(queues) = self.ports.get_mut(port) {
            queues.free(&mut self.received);
        }
    }

    /// Sends each packet of the burst where its verdict says, and counts what became of it.
    #[inline(never)]
    fn dispose(&mut self, port: usize) {
        for (buffer, packet) in self.received.drain().zip(self.packets.iter()) {
            let verdict = packet.verdict;
            let out = match verdict {
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
            let replied = verdict == Verdict::Reply;
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
        self.transmit(port);
    }

    /// Transmits what waits; what a port refuses turns its verdict into a drop.
    fn transmit(&mut self, port: usize) {
        for (out, (queues, outgoing)) in self.ports.iter_mut().zip(&mut self.outgoing).enumerate() {
            if outgoing.is_empty() {
                continue;
            }
            let sent = queues.tx(outgoing);
            self.counters.add(Counter::Transmitted, sent as u64);
            let refused = outgoing.len();
            if refused > 0 {
                // Which of them were replies: the last ones of the burst that went to this port.
                let went_here = |v: &Verdict| match *v {
                    Verdict::Reply => out == port,
                    Verdict::Forward(to) => to as usize == out,
                    _ => false,
                };
                let replies = self
                    .packets
                    .iter()
                    .map(|packet| packet.verdict)
                    .filter(went_here)
                    .skip(sent)
                    .filter(|v| *v == Verdict::Reply)
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
        let stage = &mut self.dns_answer;
        let taken = self.link.take(WORDS_PER_TURN, now, |target, value| {
            stage.take_word(target, value)
        });
        stage.tick(now);
        if let Some(flows) = &mut self.flow_latency {
            flows.housekeep(now, &mut self.counters);
        }
        if taken.adopted.is_some()
            && let Some(snapshot) = self.link.tables.current()
        {
            stage.adopt(snapshot);
        }
        self.counters.add(Counter::WordsTaken, taken.words as u64);
        self.counters
            .add(Counter::SnapshotsAdopted, taken.adopted.is_some() as u64);
        self.counters.add(Counter::SnapshotsRetired, taken.retired as u64);
        for _ in 0..INJECTIONS_PER_TURN {
            if !self.inject() {
                break;
            }
        }
        self.sample_client();
        let unusable = self.ports.iter().map(Q::unusable).sum();
        self.counters.raise(Counter::RxUnusable, unusable);
        self.published.publish(&self.counters);
    }

    /// Tells control of one client of the last burst, if there was one since the last turn.
    fn sample_client(&mut self) {
        let useful = self.counters.get(Counter::UsefulPolls);
        let (before, place) = self.sampled;
        if useful == before {
            return;
        }
        let place = (place + 1) % BURST_MAX;
        self.sampled = (useful, place);
        if let Some(client) = self.packets.get(place).and_then(Packet::client) {
            // With no room there are clients enough on their way.
            self.link.clients.send(client);
        }
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
