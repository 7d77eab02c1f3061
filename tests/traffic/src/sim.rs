//! A client, a path, a middle and a server, event by event. Times in nanoseconds.
//!
//! The client is a TCP of few words: segments of 1,448 bytes, every second segment of an answer acknowledged at once, an odd one
//! after 40 ms unless a request carries the acknowledgment, lost segments repeated after a round trip (when enough follow
//! them), a probe, or a timeout. Loss and reordering are on the way from the client to the middle, as in the paper.

use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Bytes of a full segment.
pub const SEGMENT: u32 = 1448;
/// A microsecond.
pub const MICRO: u64 = 1_000;
/// A millisecond.
pub const MILLI: u64 = 1_000_000;
/// A second.
pub const SECOND: u64 = 1_000_000_000;

/// How the client asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// That many requests at once, the next ones after all answers.
    Burst(u32),
    /// That many requests in flight at all times.
    Window(u32),
    /// Pages: a root, then two levels of 3 to 9 objects, that many in flight, a pause now and then.
    Pages(u32),
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// How the client asks.
    pub pattern: Pattern,
    /// Length, seconds of simulated time.
    pub seconds: u64,
    /// Round trip, microseconds.
    pub rtt: f64,
    /// Mean service time, microseconds; it drifts by more than half, and triples in one second of seven.
    pub service: f64,
    /// Its spread: sigma of the lognormal.
    pub sigma: f64,
    /// Mean think time, microseconds.
    pub think: f64,
    /// Think time of at least this much, microseconds.
    pub think_least: f64,
    /// Bytes of a request, least and most.
    pub request: (u32, u32),
    /// Segments of an answer, least and most.
    pub answer: (u32, u32),
    /// Between requests of a burst, and between segments of one: microseconds.
    pub spacing: f64,
    /// Share of requests that a cache answers twenty times faster.
    pub hits: f64,
    /// Share lost between client and middle.
    pub loss: f64,
    /// Share that overtakes the others, which are that many microseconds later.
    pub reorder: (f64, f64),
    /// Flow control of the application: bytes of an answer before the client has to say something.
    pub window: Option<u32>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            pattern: Pattern::Burst(1),
            seconds: 20,
            rtt: 400.0,
            service: 3000.0,
            sigma: 0.5,
            think: 20.0,
            think_least: 0.0,
            request: (120, 700),
            answer: (1, 1),
            spacing: 2.0,
            hits: 0.0,
            loss: 0.0,
            reorder: (0.0, 0.0),
            window: None,
        }
    }
}

/// A packet of the client as it passes the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When, nanoseconds.
    pub at: u64,
    /// True for the SYN.
    pub syn: bool,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Bytes of payload; 0 for an acknowledgment alone.
    pub payload: u16,
}

/// A burst and its truth, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// When its first packet passed the middle.
    pub at: u64,
    /// When the client sent it.
    pub sent: u64,
    /// From then to the last byte of its answers.
    pub latency: u64,
}

/// What a scenario gave.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Packets in order of passing.
    pub packets: Vec<Packet>,
    /// Bursts in order; the last one may be unfinished and is left out.
    pub bursts: Vec<Burst>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The client sends bytes `from..to` for the `tries`th time; `followed` by so many others.
    Send {
        from: u32,
        to: u32,
        tries: u32,
        followed: u32,
    },
    /// They reach the server.
    Served { from: u32, to: u32 },
    /// Bytes of an answer reach the client; of request `of` when they are its last.
    Arrive { bytes: u32, of: Option<usize> },
    /// An acknowledgment was held back since the number `upto`.
    AckTimer { upto: u32 },
}

/// A request of the client.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Its burst.
    burst: usize,
    /// One past its last byte.
    end: u32,
    done: bool,
}

struct Sim {
    s: Scenario,
    rng: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    packets: Vec<Packet>,
    /// Truth: at (0: none yet), sent, end.
    bursts: Vec<[u64; 3]>,
    requests: Vec<Request>,
    /// Bytes sent for the first time, and of which burst bytes from there on are.
    front: u32,
    starts: BTreeMap<u32, usize>,
    /// Bytes of answers received, of those acknowledged, and segments since.
    received: u32,
    acked: u32,
    unacked: u32,
    /// What the server has in order, and what it has beyond that.
    in_order: u32,
    beyond: BTreeMap<u32, u32>,
    served: usize,
    last_at_middle: u64,
    unsaid: u32,
    /// Requests in flight, objects left in this level, levels left.
    flying: u32,
    left: u32,
    levels: u32,
}

/// Numbers where a connection starts, so that both wrap.
const CLIENT_START: u32 = u32::MAX - 100_000;
const SERVER_START: u32 = u32::MAX - 50_000;

impl Trace {
    /// Several connections in one tunnel: their packets in order, and the bursts of all.
    pub fn merge(traces: impl IntoIterator<Item = Trace>) -> Self {
        let mut all = Self::default();
        for trace in traces {
            all.packets.extend(trace.packets);
            all.bursts.extend(trace.bursts);
        }
        all.packets.sort_by_key(|p| p.at);
        all.bursts.sort_by_key(|b| b.at);
        all
    }
}

/// Makes the packets of a scenario.
pub fn simulate(scenario: Scenario, seed: u64) -> Trace {
    let mut sim = Sim {
        s: scenario,
        rng: Rng::with_seed(seed),
        now: 0,
        events: BinaryHeap::new(),
        count: 0,
        packets: Vec::new(),
        bursts: Vec::new(),
        requests: Vec::new(),
        front: 0,
        starts: BTreeMap::new(),
        received: 0,
        acked: 0,
        unacked: 0,
        in_order: 0,
        beyond: BTreeMap::new(),
        served: 0,
        last_at_middle: 0,
        unsaid: 0,
        flying: 0,
        left: 0,
        levels: 0,
    };
    sim.open();
    while let Some(Reverse((at, _, event))) = sim.events.pop() {
        if at > scenario.seconds * SECOND {
            break;
        }
        sim.now = at;
        sim.happen(event);
    }
    sim.finish()
}

impl Sim {
    fn nanos(micros: f64) -> u64 {
        (micros.max(0.0) * MICRO as f64) as u64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.f64()).ln()
    }

    fn between(&mut self, range: (u32, u32)) -> u32 {
        self.rng.u32(range.0..=range.1)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn open(&mut self) {
        let rtt = Self::nanos(self.s.rtt);
        for (at, syn) in [(0, true), (rtt, false)] {
            self.now = at;
            self.pass(if syn { u32::MAX } else { 0 }, 0, syn);
        }
        self.now = rtt + 10 * MICRO;
        self.think_over();
    }

    /// The client sends a packet: when it passes the middle, unless it is lost.
    fn pass(&mut self, from: u32, payload: u32, syn: bool) -> u64 {
        let mut at = self.now + Self::nanos(self.s.rtt * 0.15) + self.rng.u64(0..2 * MICRO);
        let (share, later) = self.s.reorder;
        if share > 0.0 {
            at += if self.rng.f64() < share {
                0
            } else {
                Self::nanos(later)
            };
        } else {
            at = at.max(self.last_at_middle + 300);
            self.last_at_middle = at;
        }
        self.packets.push(Packet {
            at,
            syn,
            sequence: CLIENT_START.wrapping_add(from),
            acknowledgment: SERVER_START.wrapping_add(self.received),
            payload: payload as u16,
        });
        at
    }

    fn acknowledge(&mut self) {
        self.pass(self.front, 0, false);
        (self.acked, self.unacked) = (self.received, 0);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send {
                from,
                to,
                tries,
                followed,
            } => self.send(from, to, tries, followed),
            Event::Served { from, to } => self.server_gets(from, to),
            Event::Arrive { bytes, of } => self.arrive(bytes, of),
            Event::AckTimer { upto } => {
                if self.acked < upto {
                    self.acknowledge();
                }
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, tries: u32, followed: u32) {
        if self.rng.f64() < self.s.loss {
            let rtt = self.s.rtt;
            let wait = match tries {
                0 if followed >= 3 => rtt * 1.1 + 100.0,
                0 => (2.0 * rtt).max(10_000.0),
                n => 200_000.0 * f64::from(1 << (n - 1).min(4)),
            };
            let retry = Event::Send {
                from,
                to,
                tries: tries + 1,
                followed: 0,
            };
            self.at(self.now + Self::nanos(wait), retry);
            return;
        }
        let at = self.pass(from, to - from, false);
        (self.acked, self.unacked) = (self.received, 0);
        let burst = self
            .starts
            .range(..=from)
            .next_back()
            .map_or(0, |(_, &burst)| burst);
        if let Some(truth) = self.bursts.get_mut(burst) {
            truth[0] = if truth[0] == 0 { at } else { truth[0].min(at) };
        }
        let jitter = self.exponential(self.s.rtt * 0.02);
        self.at(
            at + Self::nanos(self.s.rtt * 0.35 + jitter),
            Event::Served { from, to },
        );
    }

    fn server_gets(&mut self, from: u32, to: u32) {
        self.beyond.insert(from, to);
        while let Some((&from, &to)) = self.beyond.first_key_value() {
            if from > self.in_order {
                break;
            }
            self.in_order = self.in_order.max(to);
            self.beyond.pop_first();
        }
        while let Some(&request) = self.requests.get(self.served) {
            if request.end > self.in_order {
                break;
            }
            self.answer(self.served);
            self.served += 1;
        }
    }

    /// The server works on a request and sends its answer, in flights that double.
    fn answer(&mut self, request: usize) {
        let (seconds, mut mean) = (self.now as f64 / SECOND as f64, self.s.service);
        mean *= 1.0 + 0.6 * (seconds / 1.7).sin() + if seconds as u64 % 7 == 3 { 1.5 } else { 0.0 };
        let normal =
            (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.rng.f64()).cos();
        let mut time = mean * (self.s.sigma * normal - self.s.sigma * self.s.sigma / 2.0).exp();
        if self.rng.f64() < self.s.hits {
            time /= 20.0;
        }
        let segments = self.between(self.s.answer);
        let (mut at, mut flight, mut sent) = (self.now + Self::nanos(time), 10, 0);
        while sent < segments {
            let jitter = self.exponential(self.s.rtt * 0.02);
            let arrival = at + Self::nanos(self.s.rtt * 0.5 + jitter);
            for n in 0..flight.min(segments - sent) {
                sent += 1;
                let last = sent == segments;
                let bytes = if last { self.rng.u32(200..SEGMENT) } else { SEGMENT };
                let of = last.then_some(request);
                self.at(arrival + u64::from(n) * 1_200, Event::Arrive { bytes, of });
            }
            at += Self::nanos(self.s.rtt);
            flight *= 2;
        }
    }

    fn arrive(&mut self, bytes: u32, of: Option<usize>) {
        self.received += bytes;
        self.unacked += 1;
        if self.unacked >= 2 {
            self.acknowledge();
        } else {
            self.at(self.now + 40 * MILLI, Event::AckTimer { upto: self.received });
        }
        if let Some(window) = self.s.window {
            self.unsaid += bytes;
            if self.unsaid >= window / 2 {
                self.unsaid = 0;
                // Two window updates: 26 bytes that are no request. They belong to the burst that goes on.
                self.put(26, self.now + 5 * MICRO, 0);
            }
        }
        let Some(at) = of else { return };
        let Some(request) = self.requests.get_mut(at) else {
            return;
        };
        request.done = true;
        let burst = request.burst;
        if let Some(truth) = self.bursts.get_mut(burst) {
            truth[2] = self.now;
        }
        self.flying -= 1;
        match self.s.pattern {
            Pattern::Burst(_) => {
                if self.flying == 0 {
                    self.think_over();
                }
            }
            Pattern::Window(_) => self.ask_after_thought(1),
            Pattern::Pages(most) => self.next_object(most),
        }
    }

    /// Bytes of the application: segments from `at` on. Returns when the last is sent.
    fn put(&mut self, bytes: u32, at: u64, followed: u32) -> u64 {
        let (end, mut from, mut time) = (self.front + bytes, self.front, at);
        self.front = end;
        while from < end {
            let to = end.min(from + SEGMENT);
            let followed = followed + (end - to).div_ceil(SEGMENT);
            self.at(
                time,
                Event::Send {
                    from,
                    to,
                    tries: 0,
                    followed,
                },
            );
            from = to;
            if from < end {
                time += Self::nanos(self.s.spacing * 0.6);
            }
        }
        time
    }

    /// A burst of requests from `at` on.
    fn ask(&mut self, requests: u32, at: u64) {
        let burst = self.bursts.len();
        self.bursts.push([0, at, 0]);
        self.starts.insert(self.front, burst);
        let mut time = at;
        for n in 0..requests {
            let bytes = self.between(self.s.request);
            time = self.put(bytes, time, requests - n - 1);
            self.requests.push(Request {
                burst,
                end: self.front,
                done: false,
            });
            self.flying += 1;
            let more = self.exponential(self.s.spacing);
            time += Self::nanos(self.s.spacing + more);
        }
    }

    fn ask_after_thought(&mut self, requests: u32) {
        let think = self.s.think_least + self.exponential(self.s.think);
        self.ask(requests, self.now + Self::nanos(think));
    }

    /// Everything is answered: the next burst, window or page.
    fn think_over(&mut self) {
        match self.s.pattern {
            Pattern::Burst(n) | Pattern::Window(n) => self.ask_after_thought(n),
            Pattern::Pages(_) => {
                (self.left, self.levels) = (0, 2);
                if self.rng.f64() < 0.1 {
                    self.now += Self::nanos(self.exponential(3e6));
                }
                self.ask_after_thought(1);
            }
        }
    }

    /// An object of a page has come.
    fn next_object(&mut self, most: u32) {
        if self.left > 0 {
            self.left -= 1;
            self.ask_after_thought(1);
        } else if self.flying == 0 && self.levels > 0 {
            self.levels -= 1;
            let objects = self.rng.u32(3..10);
            self.left = objects.saturating_sub(most);
            self.ask_after_thought(objects.min(most));
        } else if self.flying == 0 {
            self.think_over();
        }
    }

    fn finish(mut self) -> Trace {
        self.packets.sort_by_key(|p| p.at);
        let done = |burst: usize| {
            self.requests
                .iter()
                .filter(move |r| r.burst == burst)
                .all(|r| r.done)
        };
        let unfinished = (0..self.bursts.len()).rev().take(64).filter(|&b| !done(b)).min();
        self.bursts.truncate(unfinished.unwrap_or(self.bursts.len()));
        let bursts = self.bursts.iter().map(|&[at, sent, end]| Burst {
            at,
            sent,
            latency: end - sent,
        });
        Trace {
            bursts: bursts.collect(),
            packets: self.packets,
        }
    }
}
