//! Measures response latency on users' traffic that passes (bridge ports) or is copied to us (mirror ports).
//!
//! Called by the worker with whole bursts, by offline work frame by frame. Over a burst, in passes, so that memory is waited for
//! once and what does not change stays in registers: [`sight`] reads what can be seen of each packet and asks for the flow's
//! index line; flows are found and their entries asked for; estimators work on those of flows that were there; packets of
//! no known flow come last. What a flow tells goes to the caller as [`LatencySample`]s.
//!
//! Only packets to a measured server belong to flows: what servers send, where it passes too, is no business of the estimators.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

#[cfg(test)]
mod alike;
mod mirror;
pub mod sight;
#[cfg(test)]
mod tests;

use crate::arch::{Isa, Kernel, TickRate, Ticks};
use crate::counters::{Counter, Counters};
use crate::flow::estimate::{Hidden, Kind, Rules, Sample, Tcp};
use crate::flow::{Entry, FlowTable, Hasher, Moment, MomentClock, Parties, Place, Span, Watch};
use crate::io::{BURST_MAX, Buffer, Shape, Window};
use crate::link::{Cell, LatencySample, SampleSender};
use crate::tables::addresses::Addresses;
use crate::tables::{Classes, Servers};
use sight::{Reading, Seen, Sight};
use std::io;

/// Buckets visited in one housekeeping turn at most: some microseconds.
const BUCKETS_PER_TURN: usize = 32;

/// What the stage is told at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Flows that a worker can keep; 95 bytes each.
    pub flows: usize,
    /// Idle time after which a flow is forgotten, in one to one and a half times that.
    pub idle: Span,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            idle: Span::millis(60_000),
        }
    }
}

/// The tables that flows are resolved by.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// Client classes.
    pub classes: &'a Classes,
    /// Measured servers.
    pub servers: &'a Servers,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It belongs to a flow that was there.
    Known,
    /// It began a flow.
    New,
    /// It belongs to no measured flow.
    Not,
}

/// The stage, with the flows of one worker.
#[derive(Debug)]
pub struct FlowLatency {
    table: FlowTable,
    hasher: Hasher,
    clock: MomentClock,
    isa: Isa,
    /// What is seen of each packet of a burst.
    sights: Box<[Sight; BURST_MAX]>,
}

impl FlowLatency {
    /// A stage with an empty table; allocates all that it will use.
    ///
    /// # Errors
    /// When the kernel has no memory for the table.
    pub fn new(limits: FlowLimits, seed: u64, rate: TickRate) -> io::Result<Self> {
        Ok(Self {
            table: FlowTable::new(limits.flows, limits.idle)?,
            hasher: Hasher::new(seed),
            clock: MomentClock::new(rate),
            isa: Isa::detect(),
            sights: Box::new([Sight::default(); BURST_MAX]),
        })
    }

    /// The flows.
    pub fn table(&self) -> &FlowTable {
        &self.table
    }

    /// Measures a burst, 32 packets at most. `mirror`: the addresses of the port, when it is one that gets copies.
    pub fn burst<B: Buffer>(
        &mut self,
        buffers: &mut [B],
        now: Ticks,
        tables: Tables<'_>,
        mirror: Option<&Addresses>,
        samples: &mut SampleSender,
        counters: &mut Counters,
    ) {
        let isa = self.isa;
        isa.run(Burst {
            stage: self,
            buffers,
            now,
            tables,
            mirror,
            samples,
            counters,
        });
    }

    /// Measures one frame, for offline work: the same steps for a burst of one. What it tells goes to `give`.
    pub fn frame(
        &mut self,
        window: &Window,
        len: usize,
        now: Moment,
        tables: Tables<'_>,
        mut give: impl FnMut(LatencySample),
    ) -> (Sight, Taken) {
        let by = Reading {
            mirror: None,
            offline: true,
            watching: &tables.servers.watching,
            hasher: &self.hasher,
        };
        let mut sight = Sight::default();
        sight::read(&mut sight, window, len, &by);
        let place = self.table.find(sight.key);
        let taken = match place.is_found() {
            true => Taken::Known,
            false => Taken::New,
        };
        let place = match taken {
            Taken::Known => Some(place),
            _ => enter(&mut self.table, &sight, window, tables),
        };
        let Some(place) = place else {
            return (sight, Taken::Not);
        };
        let turn = Turn { now, tables };
        work(&mut self.table, &sight, place, &turn, window, &mut give);
        (sight, taken)
    }

    /// Forgets idle flows, a few at a time, and counts what became of flows. Called in housekeeping.
    pub fn housekeep(&mut self, now: Ticks, counters: &mut Counters) {
        self.table.age(self.clock.at(now), BUCKETS_PER_TURN);
        let tallies = self.table.tallies();
        for (counter, value) in [
            (Counter::FlowsCreated, tallies.created),
            (Counter::FlowsExpired, tallies.expired),
            (Counter::FlowsEvicted, tallies.evicted),
            (Counter::FlowsRefused, tallies.refused),
        ] {
            counters.raise(counter, value);
        }
    }

    /// Forgets idle flows by the stamps of a capture.
    pub fn age(&mut self, now: Moment) {
        self.table.age(now, BUCKETS_PER_TURN);
    }
}

/// What holds for all packets of a burst.
struct Turn<'a> {
    now: Moment,
    tables: Tables<'a>,
}

impl Turn<'_> {
    #[inline(always)]
    fn rules(&self) -> &Rules {
        &self.tables.servers.watching.rules
    }

    /// A sample of a flow, as it leaves. Flows learn here that tables were numbered anew: only who tells something has to know.
    #[inline(always)]
    fn stamp(
        &self,
        parties: &mut Parties,
        sight: &Sight,
        sample: Sample,
        look_up: impl FnOnce() -> Parties,
    ) -> LatencySample {
        if parties.numbering != self.tables.servers.numbering() {
            *parties = look_up();
        }
        LatencySample {
            cell: Cell {
                class: parties.class,
                server: parties.server,
            },
            numbering: parties.numbering,
            sample,
            flow: sight.key.short(),
            at: self.now,
        }
    }

    #[cold]
    #[inline(never)]
    fn parties(&self, sight: &Sight, window: &Window) -> Parties {
        let Tables { classes, servers } = self.tables;
        Parties {
            class: sight.class(window, classes),
            server: sight.server(window, servers),
            numbering: servers.numbering(),
        }
    }
}

/// Counts a response in the flow's epoch, whose mean is told at its end. An epoch's first one proves the flow.
#[inline(always)]
fn respond(
    table: &mut FlowTable,
    place: Place,
    sight: &Sight,
    response: Sample,
    turn: &Turn<'_>,
    look_up: impl FnOnce() -> Parties,
    give: &mut impl FnMut(LatencySample),
) {
    let Some(entry) = table.entry(place) else { return };
    let is_first = entry.is_new_epoch();
    if let Some(value) = entry.mean(turn.now, response.value, turn.rules().epoch) {
        let mean = Sample {
            kind: Kind::Epoch,
            value,
            ..response
        };
        give(turn.stamp(&mut entry.parties, sight, mean, look_up));
    }
    if is_first {
        table.prove(place);
    }
}

/// The estimator's work on any packet of a flow that stands there.
#[inline(never)]
fn work(
    table: &mut FlowTable,
    sight: &Sight,
    place: Place,
    turn: &Turn<'_>,
    window: &Window,
    give: &mut impl FnMut(LatencySample),
) {
    let Some(entry) = table.entry(place) else { return };
    let Entry { parties, watch, .. } = entry;
    let mut response = None;
    let tell = |sample: Sample| {
        if sample.kind == Kind::Response {
            response = Some(sample);
        }
        give(turn.stamp(parties, sight, sample, || turn.parties(sight, window)));
    };
    match (watch, sight.seen()) {
        (Watch::Tcp(tcp), Seen::Tcp(segment)) => _ = tcp.segment(turn.now, segment, turn.rules(), tell),
        (Watch::Hidden(hidden), Seen::Hidden(datagram)) => {
            hidden.packet(turn.now, datagram, turn.rules(), tell);
        }
        _ => {}
    }
    if let Some(response) = response {
        let look_up = || turn.parties(sight, window);
        respond(table, place, sight, response, turn, look_up, give);
    }
    if sight.ends() {
        if let Some(entry) = table.entry(place) {
            entry.end_epoch();
        }
        table.close(place);
    }
}

/// The flow of a packet that had none when flows were looked up: made, unless an earlier packet of the burst did.
#[inline(never)]
fn enter(table: &mut FlowTable, sight: &Sight, window: &Window, tables: Tables<'_>) -> Option<Place> {
    if !sight.is_of_flow() {
        return None;
    }
    let place = table.find(sight.key);
    if place.is_found() {
        return Some(place);
    }
    if !sight.begins() {
        return None;
    }
    let server = sight.server(window, tables.servers);
    if server == 0 && !(tables.servers.watching.all && sight.seems_to_server(window)) {
        return None;
    }
    let watch = match sight.seen() {
        Seen::Tcp(_) => Watch::Tcp(Tcp::default()),
        Seen::Hidden(_) => Watch::Hidden(Hidden::new()),
        Seen::Nothing => return None,
    };
    let parties = Parties {
        class: sight.class(window, tables.classes),
        server,
        numbering: tables.servers.numbering(),
    };
    table.create(sight.key, Entry::new(parties, watch))
}

/// Where samples of a burst go.
struct Outlet<'a> {
    samples: &'a mut SampleSender,
    sent: u64,
    dropped: u64,
}

impl Outlet<'_> {
    #[inline(always)]
    fn give(&mut self, sample: LatencySample) {
        if self.samples.send(sample) {
            self.sent += 1;
        } else {
            self.dropped += 1;
        }
    }
}

/// [`FlowLatency::burst`].
struct Burst<'a, B> {
    stage: &'a mut FlowLatency,
    buffers: &'a mut [B],
    now: Ticks,
    tables: Tables<'a>,
    mirror: Option<&'a Addresses>,
    samples: &'a mut SampleSender,
    counters: &'a mut Counters,
}

impl<B: Buffer> Kernel for Burst<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self {
            stage,
            buffers,
            now,
            tables,
            mirror,
            samples,
            counters,
        } = self;
        let turn = Turn {
            now: stage.clock.at(now),
            tables,
        };
        let FlowLatency {
            table,
            hasher,
            sights,
            ..
        } = stage;
        let by = Reading {
            mirror,
            offline: false,
            watching: &tables.servers.watching,
            hasher,
        };
        let count = buffers.len().min(BURST_MAX);
        let sights = sights.get_mut(..count).unwrap_or_default();
        for (buffer, sight) in buffers.iter_mut().zip(sights.iter_mut()) {
            let (len, shape) = (buffer.len(), buffer.shape());
            match shape {
                Shape::Whole => sight::read(sight, buffer.window(), len, &by),
                _ => *sight = Sight::default(),
            }
            table.prefetch(sight.key);
        }
        let mut places = [Place::NOWHERE; BURST_MAX];
        for (sight, place) in sights.iter().zip(places.iter_mut()) {
            *place = table.find(sight.key);
        }
        let mut outlet = Outlet {
            samples,
            sent: 0,
            dropped: 0,
        };
        // Those of flows that were there: nothing is created meanwhile, so places stay good.
        let mut strangers = 0;
        for (at, (sight, &place)) in sights.iter().zip(places.iter()).enumerate() {
            let Some(entry) = table.entry(place) else {
                strangers += 1;
                continue;
            };
            let Some((parties, tcp)) = entry.usual(sight.flags()) else {
                if let Some(buffer) = buffers.get_mut(at) {
                    let mut give = |sample| outlet.give(sample);
                    work(table, sight, place, &turn, buffer.window(), &mut give);
                }
                continue;
            };
            let mut look_up = || match buffers.get_mut(at) {
                Some(buffer) => turn.parties(sight, buffer.window()),
                None => Parties::default(),
            };
            let mut response = None;
            tcp.usual(turn.now, sight.segment(), turn.rules(), |sample| {
                if sample.kind == Kind::Response {
                    response = Some(sample);
                }
                outlet.give(turn.stamp(parties, sight, sample, &mut look_up));
            });
            if let Some(response) = response {
                let mut give = |sample| outlet.give(sample);
                respond(table, place, sight, response, &turn, look_up, &mut give);
            }
        }
        let mut unmeasured = 0;
        if strangers > 0 {
            unmeasured = receive(table, buffers, sights, &places, &turn, &mut outlet);
        }
        counters.add(Counter::FlowPackets, count as u64 - unmeasured);
        counters.add(Counter::FlowUnmeasured, unmeasured);
        counters.add(Counter::LatencySamples, outlet.sent);
        counters.add(Counter::LatencySamplesDropped, outlet.dropped);
    }
}

/// Packets of a burst that belong to no flow that was there, in order. Returns how many belong to none.
#[inline(never)]
fn receive<B: Buffer>(
    table: &mut FlowTable,
    buffers: &mut [B],
    sights: &[Sight],
    places: &[Place; BURST_MAX],
    turn: &Turn<'_>,
    outlet: &mut Outlet<'_>,
) -> u64 {
    let mut unmeasured = 0;
    let all = buffers.iter_mut().zip(sights).zip(places);
    for ((buffer, sight), _) in all.filter(|(_, place)| !place.is_found()) {
        let window = &*buffer.window();
        match enter(table, sight, window, turn.tables) {
            Some(place) => work(table, sight, place, turn, window, &mut |sample| {
                outlet.give(sample)
            }),
            None => unmeasured += 1,
        }
    }
    unmeasured
}
