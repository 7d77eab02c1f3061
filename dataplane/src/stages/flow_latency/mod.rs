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
#[cfg(test)]
mod promises;
pub mod sight;
#[cfg(test)]
mod tests;

use crate::arch::{Isa, TickRate, Ticks, VectorKernel, Vectors};
use crate::counters::{Counter, Counters};
use crate::flow::estimate::{Hidden, Kind, Rules, Sample, Step, Tcp};
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
        isa.run_vectors(Burst {
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
        sight::read(&mut sight, window, len, &self.hasher, &by);
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
        let turn = Turn::new(now, tables);
        step(&mut self.table, &sight, place, &turn, window, &mut give);
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
    rules: Rules,
    numbering: u16,
    tables: Tables<'a>,
}

impl<'a> Turn<'a> {
    fn new(now: Moment, tables: Tables<'a>) -> Self {
        Self {
            now,
            rules: tables.servers.watching.rules,
            numbering: tables.servers.numbering(),
            tables,
        }
    }

    /// A sample of a flow, as it leaves.
    #[inline(always)]
    fn stamp(&self, parties: Parties, sight: &Sight, sample: Sample) -> LatencySample {
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

    /// Looked up anew: only who tells something has to know that tables were numbered anew.
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

/// Takes the first segment of a burst, in order: tells the response, and counts it in the flow's epoch, whose mean is told at
/// its end. False: nothing was done, and it is for [`work`].
#[inline(always)]
fn answer(entry: &mut Entry, sight: &Sight, turn: &Turn<'_>, outlet: &mut Outlet<'_>) -> bool {
    let parties = entry.parties;
    // A first response proves the flow, which takes the table; tables of another numbering are to be looked up.
    if parties.numbering != turn.numbering || entry.is_new_epoch() {
        return false;
    }
    let Some(tcp) = entry.tcp() else { return false };
    let Some(answered) = tcp.answered(turn.now, sight.segment(), &turn.rules) else {
        return false;
    };
    let mut mean = None;
    if answered.span < turn.rules.cutoff {
        outlet.give(turn.stamp(parties, sight, answered.response()));
        mean = entry.mean_of_more(turn.now, answered.span, turn.rules.epoch);
    }
    if answered.answer.is_some() || mean.is_some() {
        let mean = mean.map(|value| answered.response().mean(value));
        more(turn, parties, sight, [answered.answer(), mean], outlet);
    }
    true
}

/// Not in line, since it is not usual to tell more than one figure.
#[inline(never)]
fn more(
    turn: &Turn<'_>,
    parties: Parties,
    sight: &Sight,
    samples: [Option<Sample>; 2],
    outlet: &mut Outlet<'_>,
) {
    for sample in samples.into_iter().flatten() {
        outlet.give(turn.stamp(parties, sight, sample));
    }
}

/// The estimator's work on a packet of a flow that stands there, when it is none of the quiet ones, and what it tells.
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
    if entry.parties.numbering != turn.numbering {
        entry.parties = turn.parties(sight, window);
    }
    let parties = entry.parties;
    let mut response = None;
    let tell = |sample: Sample| {
        if sample.kind == Kind::Response {
            response = Some(sample);
        }
        give(turn.stamp(parties, sight, sample));
    };
    match (&mut entry.watch, sight.seen()) {
        (Watch::Tcp(tcp), Seen::Tcp(segment)) => _ = tcp.any(turn.now, segment, &turn.rules, tell),
        (Watch::Hidden(hidden), Seen::Hidden(datagram)) => {
            hidden.packet(turn.now, datagram, &turn.rules, tell);
        }
        _ => {}
    }
    if let Some(response) = response {
        let proves = entry.is_new_epoch();
        if let Some(value) = entry.mean(turn.now, response.value, turn.rules.epoch) {
            give(turn.stamp(parties, sight, response.mean(value)));
        }
        if proves {
            table.prove(place);
        }
    }
    if sight.ends() {
        if let Some(entry) = table.entry(place) {
            entry.end_epoch();
        }
        table.close(place);
    }
}

/// The estimator's work on any packet of a flow that stands there.
fn step(
    table: &mut FlowTable,
    sight: &Sight,
    place: Place,
    turn: &Turn<'_>,
    window: &Window,
    give: &mut impl FnMut(LatencySample),
) {
    let tcp = table.entry(place).and_then(Entry::tcp);
    if tcp.is_none_or(|tcp| tcp.quiet(turn.now, sight.segment()) != Step::Quiet) {
        work(table, sight, place, turn, window, give);
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
    dropped: u64,
}

impl Outlet<'_> {
    #[inline(always)]
    fn give(&mut self, sample: LatencySample) {
        if !self.samples.send(sample) {
            std::hint::cold_path();
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

impl<B: Buffer> VectorKernel for Burst<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self, vectors: impl Vectors) {
        let Self {
            stage,
            buffers,
            now,
            tables,
            mirror,
            samples,
            counters,
        } = self;
        let turn = Turn::new(stage.clock.at(now), tables);
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
        let copy = *hasher;
        let count = buffers.len().min(BURST_MAX);
        let buffers = buffers.get_mut(..count).unwrap_or_default();
        let sights = sights.get_mut(..count).unwrap_or_default();
        let mut places = [Place::FIRST; BURST_MAX];
        let Some(mut lookup) = table.lookup() else { return };
        let look = |buffer: &mut B, sight: &mut Sight| {
            let (len, shape) = (buffer.len(), buffer.shape());
            match shape {
                Shape::Whole => sight::read(sight, buffer.window(), len, &copy, &by),
                _ => *sight = Sight::default(),
            }
            lookup.prefetch(&sight.key);
        };
        // By two and by four, so that a step costs a part of the loop.
        let (pairs, rest) = buffers.as_chunks_mut::<2>();
        let (sight_pairs, _) = sights.as_chunks_mut::<2>();
        for ([a, b], [s, t]) in pairs.iter_mut().zip(sight_pairs) {
            look(a, s);
            look(b, t);
        }
        if let ([buffer], Some(sight)) = (rest, sights.last_mut()) {
            look(buffer, sight);
        }
        let (fours, rest) = sights.as_chunks::<4>();
        let (place_fours, _) = places.as_chunks_mut::<4>();
        for (sights, places) in fours.iter().zip(place_fours) {
            for (sight, place) in sights.iter().zip(places) {
                *place = lookup.find(&sight.key, vectors);
            }
        }
        for (sight, place) in rest.iter().zip(places.iter_mut().skip(count - rest.len())) {
            *place = lookup.find(&sight.key, vectors);
        }
        let before = samples.sent();
        let mut outlet = Outlet { samples, dropped: 0 };
        // Those of flows that were there: nothing is created meanwhile, so places stay good.
        for at in 0..count {
            let (Some(sight), Some(&place)) = (sights.get(at), places.get(at)) else {
                break;
            };
            let Some(entry) = table.entry(place) else {
                continue;
            };
            if let Some(tcp) = entry.tcp() {
                match tcp.quiet(turn.now, sight.segment()) {
                    Step::Quiet => continue,
                    Step::Answered if answer(entry, sight, &turn, &mut outlet) => continue,
                    _ => {}
                }
            }
            if let Some(buffer) = buffers.get_mut(at) {
                let mut give = |sample| outlet.give(sample);
                work(table, sight, place, &turn, buffer.window(), &mut give);
            }
        }
        let mut unmeasured = 0;
        if !Place::are_found(&places) {
            unmeasured = receive(table, buffers, sights, &places, &turn, &mut outlet);
        }
        counters.add(Counter::FlowPackets, count as u64 - unmeasured);
        counters.add(Counter::FlowUnmeasured, unmeasured);
        counters.add(
            Counter::LatencySamples,
            outlet.samples.sent().wrapping_sub(before),
        );
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
            Some(place) => step(table, sight, place, turn, window, &mut |sample| {
                outlet.give(sample)
            }),
            None => unmeasured += 1,
        }
    }
    unmeasured
}
