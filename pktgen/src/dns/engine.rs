//! The loop of a run: receive, match, expire, build what is due, transmit. One thread, one queue pair.
//! After its construction nothing here allocates, locks or makes a system call (an idle sleep, when
//! asked for, aside); the clock is read once a turn.

use crate::clients::Clients;
use crate::clock::Clock;
use crate::dns::expect::Expect;
use crate::dns::inflight::{Found, InFlight, Key};
use crate::dns::names::Mix;
use crate::dns::reply::{Header, Reply};
use crate::dns::report::Tally;
use crate::dns::schedule::Schedule;
use crate::dns::template::{DNS_PORT, Patch, Templates};
use crate::frame::{self, Datagram, Received};
use crate::neighbour::Link;
use dataplane::io::{BURST_MAX, Buffer, Burst, QueuePair, Shape};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Slots looked at for expiry in a turn: more than a turn sends, so that expiry keeps up.
const EXPIRE_PER_TURN: usize = 256;
/// ICMP destination unreachable, IPv4 and IPv6.
const UNREACHABLE: [u8; 2] = [3, 1];

/// What a run tells others while it goes, and how it is stopped.
#[derive(Debug, Default)]
pub struct Live {
    /// Queries sent so far.
    pub sent: AtomicU64,
    /// Queries answered so far.
    pub answered: AtomicU64,
    /// Queries lost so far.
    pub lost: AtomicU64,
    /// Wrong replies so far.
    pub wrong: AtomicU64,
    /// Set to stop sending; the run then waits for what is in flight, and ends.
    pub stop: AtomicBool,
}

/// All that a run is made of.
#[derive(Debug)]
pub struct Plan {
    /// The frames, groups of one name each.
    pub templates: Templates,
    /// Which template of a group is sent.
    pub mix: Mix,
    /// When.
    pub schedule: Schedule,
    /// From where.
    pub link: Link,
    /// To whom.
    pub server: IpAddr,
    /// What may come back.
    pub expect: Option<Expect>,
    /// Nanoseconds that a reply may take.
    pub timeout: u64,
    /// Queries that may be in flight.
    pub in_flight: u64,
    /// Letter case varies.
    pub mixed_case: bool,
    /// Same seed, same packets.
    pub seed: u64,
}

/// Queries that are due and not built.
#[derive(Clone, Copy, Default)]
struct Waiting {
    due: [u64; BURST_MAX],
    count: usize,
}

/// A run in the making and its counts.
pub struct Engine<'a> {
    plan: Plan,
    inflight: InFlight,
    reply: Reply,
    random: fastrand::Rng,
    /// First template of the group that is next.
    group: u32,
    /// When queries were due that wait for a buffer, in order.
    waiting: Waiting,
    tally: Tally,
    live: &'a Live,
}

impl<'a> Engine<'a> {
    /// Takes all memory that the run will need.
    pub fn new(plan: Plan, live: &'a Live) -> Self {
        Self {
            inflight: InFlight::new(plan.in_flight, plan.timeout, plan.seed),
            reply: Reply::default(),
            random: fastrand::Rng::with_seed(plan.seed),
            group: 0,
            waiting: Waiting::default(),
            tally: Tally::new(plan.timeout, plan.seed),
            live,
            plan,
        }
    }

    /// Sends what the schedule holds, waits for what is in flight, returns the counts.
    pub fn run<Q: QueuePair, C: Clock>(&mut self, port: &mut Q, clock: &mut C) -> &Tally {
        let (mut rx, mut queries, mut courtesies) = (Burst::new(), Burst::new(), Burst::new());
        let start = clock.now();
        self.plan.schedule = self.plan.schedule.restarted(start);
        let mut sending = true;
        let mut sending_ended = start;
        loop {
            port.rx(&mut rx);
            let now = clock.now();
            let heard = !rx.is_empty();
            for buffer in rx.drain() {
                self.receive(now, buffer, &mut courtesies);
            }
            self.tally.lost += self.inflight.expire(now, EXPIRE_PER_TURN);

            if sending {
                let all_built = self.waiting.count == 0 && self.plan.schedule.finished(now);
                let over = all_built
                    || self.plan.schedule.out_of_time(now)
                    || self.live.stop.load(Ordering::Relaxed);
                if !over {
                    self.build(now, port, &mut queries);
                } else if queries.is_empty() || now >= sending_ended + self.plan.timeout {
                    self.take_back(&mut queries);
                    sending = false;
                }
            }
            if !courtesies.is_empty() {
                port.tx(&mut courtesies);
                courtesies.clear();
            }
            let mut went = 0;
            if !queries.is_empty() {
                went = port.tx(&mut queries);
                self.tally.sent += went as u64;
                self.tally.tx_refused += queries.len() as u64;
                if went > 0 {
                    sending_ended = now;
                }
            }
            self.publish();
            if went == 0 && !heard {
                // Nothing more to come once all that was sent is settled or given up.
                if !sending && self.inflight.span() == 0 {
                    break;
                }
                let wake = if sending {
                    self.plan.schedule.next_due()
                } else {
                    now + self.plan.timeout
                };
                clock.idle(wake);
            }
        }
        self.tally.unsent = self.plan.schedule.unsent();
        self.tally.elapsed = sending_ended.max(self.plan.schedule.next_due()) - start;
        &self.tally
    }

    /// Builds queries that are due, as far as the burst has room and the port buffers.
    #[inline]
    fn build<Q: QueuePair>(&mut self, now: u64, port: &mut Q, queries: &mut Burst<Q::Buf>) {
        let mut waiting = self.waiting;
        let places = waiting
            .due
            .get_mut(waiting.count..queries.free())
            .unwrap_or_default();
        waiting.count += self.plan.schedule.take_burst(now, places);
        if waiting.count == 0 {
            return;
        }
        let before = queries.len();
        let built = port.alloc_burst(queries, waiting.count);
        let fresh = queries.as_mut_slice().get_mut(before..).unwrap_or_default();
        let overhead = self.plan.templates.headers_len();
        let mut bytes = 0;
        for (buffer, &due) in fresh.iter_mut().zip(&waiting.due) {
            let len = self.query(due, buffer);
            buffer.set_len(len);
            bytes += len - overhead;
        }
        self.tally.query_bytes += bytes as u64;
        self.tally.no_buffer += u64::from(built < waiting.count);
        waiting.due.copy_within(built..waiting.count, 0);
        waiting.count -= built;
        self.waiting = waiting;
    }

    /// Writes the next query into `buffer` and enters it as in flight; returns the frame's length.
    #[inline]
    fn query<B: Buffer>(&mut self, due: u64, buffer: &mut B) -> usize {
        let stride = self.plan.mix.stride();
        let dice = self.random.u64(..);
        let more = if stride > 1 || self.plan.templates.has_ecs() {
            self.random.u64(..)
        } else {
            0
        };
        let template = self.group + self.plan.mix.draw(more as u32);
        self.group += stride;
        if self.group as usize >= self.plan.templates.len() {
            self.group = 0;
        }
        let client = self.plan.link.clients.draw(dice as u32);
        let (key, evicted) = self.inflight.open(due, client, template, (dice >> 32) as u16);
        if evicted {
            self.tally.evicted += 1;
            self.tally.lost += 1;
        }
        let patch = Patch {
            client,
            port: key.port,
            id: key.id,
            ecs: (more >> 32) as u32,
            case: self.case(key),
        };
        self.plan.templates.write(template, patch, buffer.window())
    }

    /// Which letters of the name change their case: known again from the reply's key.
    #[inline]
    fn case(&self, key: Key) -> u64 {
        if !self.plan.mixed_case {
            return 0;
        }
        // The finaliser of SplitMix64 over the key.
        let key = u64::from(key.client) << 32 | u64::from(key.port) << 16 | u64::from(key.id);
        let x = key ^ self.plan.seed;
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[inline]
    fn receive<B: Buffer>(&mut self, now: u64, mut buffer: B, courtesies: &mut Burst<B>) {
        if buffer.shape() != Shape::Whole {
            return;
        }
        let len = buffer.len();
        let window = buffer.window();
        match frame::read(window.get(..len).unwrap_or_default(), self.plan.link.vlan) {
            Received::Udp(datagram) => self.datagram(now, datagram),
            Received::Icmp { message, source, .. }
                if message.first() == Some(&UNREACHABLE[usize::from(source.is_ipv6())]) =>
            {
                self.tally.icmp_errors += 1;
            }
            Received::Arp(_) | Received::Icmp { .. } => {
                if let Some(len) = self.plan.link.answer(window, len) {
                    buffer.set_len(len);
                    // A full burst drops it: whoever asked will ask again.
                    let _ = courtesies.push(buffer);
                }
            }
            Received::Other => {}
        }
    }

    /// A datagram from the server to one of our clients is a reply; others are not ours.
    #[inline]
    fn datagram(&mut self, now: u64, datagram: Datagram<'_>) {
        if datagram.source != self.plan.server || datagram.source_port != DNS_PORT {
            return;
        }
        let clients: &Clients = &self.plan.link.clients;
        let Some(client) = clients.index(datagram.destination) else {
            return;
        };
        if !datagram.checksum_right {
            self.tally.bad_checksum += 1;
            self.tally.wrong += 1;
            return;
        }
        let Some(header) = Header::read(datagram.payload) else {
            self.tally.wrong += 1;
            return;
        };
        let key = Key {
            id: header.id,
            port: datagram.destination_port,
            client,
        };
        match self.inflight.find(key, now) {
            Found::Unknown => self.tally.wrong += 1,
            Found::Answered => self.tally.duplicates += 1,
            Found::GivenUp => self.tally.late += 1,
            Found::Waiting(_, entry) if entry.age >= self.plan.timeout => self.tally.late += 1,
            Found::Waiting(slot, entry) => {
                match self.judge(key, header, entry.template, datagram.payload, entry.age) {
                    Some(()) => self.inflight.settle(slot),
                    None => self.tally.wrong += 1,
                }
            }
        }
    }

    /// Reads a reply to the query of `key`, and counts it if it is right.
    fn judge(&mut self, key: Key, header: Header, template: u32, message: &[u8], latency: u64) -> Option<()> {
        if !header.is_reply() {
            return None;
        }
        let question = self
            .plan
            .templates
            .echoes_question(template, self.case(key), message)?;
        self.reply
            .read(message, header, crate::dns::reply::HEADER + question)?;
        self.tally
            .answer(self.reply.rcode, self.reply.addresses(), latency);
        self.tally.reply_bytes += message.len() as u64;
        self.tally.truncated += u64::from(header.truncated());
        if let Some(expect) = &self.plan.expect {
            let allowed = header.truncated() || expect.allows(template, self.reply.addresses());
            self.tally.unexpected += u64::from(!allowed);
        }
        Some(())
    }

    /// Queries that the port never took were never sent.
    fn take_back<B: Buffer>(&mut self, queries: &mut Burst<B>) {
        let overhead = self.plan.templates.headers_len();
        for buffer in queries.iter() {
            self.tally.query_bytes -= (buffer.len() - overhead) as u64;
            self.tally.lost -= u64::from(self.inflight.retract());
            self.plan.schedule.untake();
        }
        queries.clear();
        for _ in 0..std::mem::take(&mut self.waiting.count) {
            self.plan.schedule.untake();
        }
    }

    fn publish(&self) {
        self.live.sent.store(self.tally.sent, Ordering::Relaxed);
        self.live.answered.store(self.tally.answered, Ordering::Relaxed);
        self.live.lost.store(self.tally.lost, Ordering::Relaxed);
        self.live.wrong.store(self.tally.wrong, Ordering::Relaxed);
    }
}
