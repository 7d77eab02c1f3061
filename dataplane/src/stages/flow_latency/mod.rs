//! Measures response latency on users' traffic that passes (bridge ports) or is copied to us (mirror ports).
//!
//! Called by the worker with whole bursts, by offline work frame by frame. Over a burst: [`sight`] reads what can be seen
//! of each packet and asks for the flow's index line, then flows are found and their entries asked for, then each entry is
//! worked on by its estimator. What a flow tells goes to the caller as [`LatencySample`]s.
//!
//! Only packets to a measured server belong to flows: what servers send, where it passes too, is no business of the estimators.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

mod mirror;
pub mod sight;
#[cfg(test)]
mod tests;

use crate::arch::{Isa, Kernel, TickRate, Ticks};
use crate::counters::{Counter, Counters};
use crate::flow::estimate::{Hidden, Kind, Sample, Tcp};
use crate::flow::{Entry, FlowTable, Hasher, Moment, MomentClock, Place, Span, Watch};
use crate::io::{BURST_MAX, Buffer, Shape, Window};
use crate::link::{Cell, LatencySample, SampleSender};
use crate::tables::{Classes, Servers};
use sight::{Seen, Sight};
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
    /// What is seen of each packet of a burst. Taken out while flows are worked on; a slice, since an empty one costs nothing.
    sights: Box<[(Sight, Option<Place>)]>,
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
            sights: Box::from([(Sight::default(), None); BURST_MAX]),
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
        mirror: Option<&crate::tables::addresses::Addresses>,
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
        give: impl FnMut(LatencySample),
    ) -> (Sight, Taken) {
        let sight = sight::read(window, len, None, true, &tables.servers.watching, &self.hasher);
        let place = self.table.find(sight.key);
        let taken = self.update(&sight, place, window, now, tables, give);
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

    /// Last step: the estimator's work on one packet.
    #[inline(always)]
    fn update(
        &mut self,
        sight: &Sight,
        place: Option<Place>,
        window: &Window,
        now: Moment,
        tables: Tables<'_>,
        mut give: impl FnMut(LatencySample),
    ) -> Taken {
        let key = sight.key;
        let (place, taken) = match place {
            Some(place) if self.table.is_at(place, key) => (place, Taken::Known),
            _ => match self.enter(sight, window, tables) {
                Some(found) => found,
                None => return Taken::Not,
            },
        };
        let Some(mut slot) = self.table.slot(place, key) else {
            return Taken::Not;
        };
        if slot.entry.numbering != tables.servers.numbering() {
            let (class, server) = sight.resolve(window, tables);
            (slot.entry.class, slot.entry.server) = (class, server);
            slot.entry.numbering = tables.servers.numbering();
        }
        let entry = &mut *slot.entry;
        let rules = &tables.servers.watching.rules;
        let (class, server, numbering) = (entry.class, entry.server, entry.numbering);
        // Made when there is something to tell, which most packets have not.
        let stamp = |sample| LatencySample {
            cell: Cell { class, server },
            numbering,
            sample,
            flow: key.short(),
            at: now,
        };
        let mut response = None;
        let mut tell = |sample: Sample| {
            if sample.kind == Kind::Response {
                response = Some(sample);
            }
            give(stamp(sample));
        };
        let answered = match (&mut entry.watch, &sight.seen) {
            (Watch::Tcp(tcp), Seen::Tcp(segment)) => tcp.segment(now, *segment, rules, &mut tell),
            (Watch::Hidden(hidden), Seen::Hidden(datagram)) => {
                hidden.packet(now, *datagram, rules, &mut tell)
            }
            _ => false,
        };
        if answered {
            if let Some(sample) = response
                && let Some(value) = entry.mean(now, sample.value, rules.epoch)
            {
                let kind = Kind::Epoch;
                give(stamp(Sample {
                    kind,
                    value,
                    ..sample
                }));
            }
            slot.prove();
        }
        if sight.ends {
            slot.close();
        }
        taken
    }

    /// The flow of a packet that had none in the second step: made, unless an earlier packet of the burst did.
    #[inline(never)]
    fn enter(&mut self, sight: &Sight, window: &Window, tables: Tables<'_>) -> Option<(Place, Taken)> {
        if let Some(place) = self.table.find(sight.key) {
            return Some((place, Taken::Known));
        }
        if !sight.begins {
            return None;
        }
        let (class, server) = sight.resolve(window, tables);
        if server == 0 && !(tables.servers.watching.all && sight.seems_to_server(window)) {
            return None;
        }
        let watch = match sight.seen {
            Seen::Tcp(_) => Watch::Tcp(Tcp::default()),
            Seen::Hidden(_) => Watch::Hidden(Hidden::new()),
            Seen::Nothing => return None,
        };
        let entry = Entry::new(class, server, tables.servers.numbering(), watch);
        self.table
            .create(sight.key, entry)
            .map(|place| (place, Taken::New))
    }
}

/// [`FlowLatency::burst`].
struct Burst<'a, B> {
    stage: &'a mut FlowLatency,
    buffers: &'a mut [B],
    now: Ticks,
    tables: Tables<'a>,
    mirror: Option<&'a crate::tables::addresses::Addresses>,
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
        let watching = &tables.servers.watching;
        let now = stage.clock.at(now);
        for (buffer, (sight, _)) in buffers.iter_mut().zip(stage.sights.iter_mut()) {
            let (len, shape) = (buffer.len(), buffer.shape());
            *sight = match shape {
                Shape::Whole => sight::read(buffer.window(), len, mirror, false, watching, &stage.hasher),
                _ => Sight::default(),
            };
            stage.table.prefetch(sight.key);
        }
        for (_, (sight, place)) in buffers.iter().zip(stage.sights.iter_mut()) {
            *place = stage.table.find(sight.key);
        }
        let (mut measured, mut sent, mut dropped) = (0, 0, 0);
        let mut sights = std::mem::take(&mut stage.sights);
        for (buffer, (sight, place)) in buffers.iter_mut().zip(sights.iter()) {
            if matches!(sight.seen, Seen::Nothing) {
                continue;
            }
            let taken = stage.update(sight, *place, buffer.window(), now, tables, |sample| {
                let went = samples.send(sample);
                sent += u64::from(went);
                dropped += u64::from(!went);
            });
            measured += u64::from(taken != Taken::Not);
        }
        std::mem::swap(&mut stage.sights, &mut sights);
        counters.add(Counter::FlowPackets, measured);
        counters.add(Counter::FlowUnmeasured, buffers.len() as u64 - measured);
        counters.add(Counter::LatencySamples, sent);
        counters.add(Counter::LatencySamplesDropped, dropped);
    }
}
