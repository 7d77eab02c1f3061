//! The link between a worker and control: all that they share.
//!
//! [`connect`] makes both ends before the worker starts. The worker owns a [`WorkerLink`], control's
//! publisher the [`ControlLink`]. Shared are the rings ([`spsc`]: snapshots, words and injections down,
//! retired snapshots, punts, latency samples and seen clients up), the worker's [`pulse`] and one stop flag; the worker never waits on
//! any of them. Give a snapshot type the alignment of a cache line pair (`#[repr(align(128))]`), or its first
//! bytes share a line with the reference count, which control writes.

pub mod clients;
pub mod delivery;
pub mod packets;
pub mod pulse;
pub mod samples;
pub mod spsc;
mod sync;

pub use clients::{ClientReceiver, ClientSender};
pub use delivery::{
    Adopter, AdopterCounts, Deliverer, DelivererCounts, DeliverySlots, Ledger, Pumped, Taken, Word,
    WordTarget, WordValue,
};
pub use packets::{PacketReceiver, PacketRefused, PacketSender};
pub use pulse::{Delays, Liveness, PulseReader, PulseWriter, StallDetector, StopFlag};
pub use samples::{Cell, LatencySample, SampleReceiver, SampleSender};

use crate::arch::Ticks;

/// Words that a worker takes in one housekeeping turn by default: some hundred nanoseconds.
pub const WORDS_PER_TURN: u32 = 32;

/// Slots of every ring of one link.
#[derive(Clone, Copy, Debug)]
pub struct LinkSlots {
    /// Snapshots and words.
    pub delivery: DeliverySlots,
    /// Punted packets. Control drains them every millisecond or sooner; each takes about 2 KiB.
    pub punts: usize,
    /// Injected packets; each takes about 2 KiB.
    pub injections: usize,
    /// Latency samples, 24 bytes each.
    pub samples: usize,
    /// Seen clients, 17 bytes each.
    pub clients: usize,
}

impl Default for LinkSlots {
    fn default() -> Self {
        Self {
            delivery: DeliverySlots::default(),
            punts: 256,
            injections: 256,
            samples: 8192,
            clients: 256,
        }
    }
}

/// The worker's end. Its parts are separate fields, so that the snapshot may stay borrowed over a burst
/// while packets are punted. Let the worker's thread return it: it owns the snapshot in use.
pub struct WorkerLink<S> {
    /// The snapshot in use.
    pub tables: Adopter<S>,
    /// Packets for control. A refusal turns the verdict into a drop.
    pub punts: PacketSender,
    /// Packets from control, to be transmitted.
    pub injections: PacketReceiver,
    /// Latency samples for control. A refusal is counted.
    pub samples: SampleSender,
    /// Clients that services chose for, one now and then.
    pub clients: ClientSender,
    /// What control sees of this worker.
    pub pulse: PulseWriter,
    /// Whether to end.
    pub stop: StopFlag,
}

/// Control's end.
pub struct ControlLink<S> {
    /// Snapshots and words for the worker.
    pub delivery: Deliverer<S>,
    /// Packets that the worker punted.
    pub punts: PacketReceiver,
    /// Packets for the worker to transmit.
    pub injections: PacketSender,
    /// Latency samples of the worker.
    pub samples: SampleReceiver,
    /// Clients that the worker's services chose for, one now and then.
    pub clients: ClientReceiver,
    /// What the worker says of itself.
    pub pulse: PulseReader,
}

/// Both ends of one worker's link. All memory that it needs is allocated here.
pub fn connect<S>(slots: LinkSlots, stop: StopFlag) -> (WorkerLink<S>, ControlLink<S>) {
    let (tables, delivery) = delivery::delivery(slots.delivery);
    let (punts_in, punts_out) = packets::packet_ring(slots.punts);
    let (injections_in, injections_out) = packets::packet_ring(slots.injections);
    let (samples_in, samples_out) = samples::sample_ring(slots.samples);
    let (clients_in, clients_out) = clients::client_ring(slots.clients);
    let (pulse_in, pulse_out) = pulse::pulse();
    (
        WorkerLink {
            tables,
            punts: punts_in,
            injections: injections_out,
            samples: samples_in,
            clients: clients_in,
            pulse: pulse_in,
            stop,
        },
        ControlLink {
            delivery,
            punts: punts_out,
            injections: injections_in,
            samples: samples_out,
            clients: clients_out,
            pulse: pulse_out,
        },
    )
}

impl<S> WorkerLink<S> {
    /// One housekeeping turn: takes up to `words_max` words and one snapshot, notes how long each was on
    /// its way, and beats. `now` is the turn's clock reading.
    pub fn take(
        &mut self,
        words_max: u32,
        now: Ticks,
        mut on_word: impl FnMut(WordTarget, WordValue),
    ) -> Taken {
        let pulse = &mut self.pulse;
        let taken = self.tables.take(words_max, |word| {
            pulse.arrived(word.published_at, now);
            on_word(word.target, word.value);
        });
        if let Some(published_at) = taken.adopted {
            pulse.arrived(published_at, now);
        }
        pulse.beat(&self.tables.counts());
        taken
    }
}

impl<S> ControlLink<S> {
    /// Takes the worker's samples out, for a thread of their own; none come here any more.
    pub fn take_samples(&mut self) -> SampleReceiver {
        std::mem::replace(&mut self.samples, samples::sample_ring(1).1)
    }

    /// The counts of both halves.
    pub fn ledger(&self) -> Ledger {
        Ledger {
            control: self.delivery.counts(),
            worker: self.pulse.counts(),
        }
    }
}

#[cfg(test)]
mod spsc_tests;
#[cfg(test)]
mod tests;
