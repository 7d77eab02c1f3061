//! The ring of latency samples, from a worker to control: records of 20 bytes.
//!
//! Filled by `stages::flow_latency`; dropped and counted there when control does not keep up. What control sums them by is
//! [`LatencySample::cell`].

use super::spsc::{Consumer, Producer, ring};
use crate::flow::Moment;
use crate::flow::Span;
use crate::flow::estimate::Sample;
use crate::flow::estimate::{Doubts, Kind};

/// Class of the client and number of the server: what samples are summed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// As [`crate::tables::Classes`] numbers them; 0: no prefix matched.
    pub class: u16,
    /// As [`crate::tables::Servers`] numbers them; 0: no server, where all traffic is watched.
    pub server: u16,
}

/// One sample of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Which client class and server.
    pub cell: Cell,
    /// Which tables the cell's numbers are of: [`crate::tables::Servers::numbering`]. Samples of tables that control no
    /// longer knows are to be thrown away.
    pub numbering: u16,
    /// What it tells and what speaks against it. For [`Kind::Retransmitted`] the value is a count.
    pub sample: Sample,
    /// Tells flows apart, with few chances that two are taken for one.
    pub flow: u32,
    /// When, on the worker's clock.
    pub at: Moment,
}

impl Default for LatencySample {
    fn default() -> Self {
        Self {
            cell: Cell::default(),
            numbering: 0,
            sample: Sample {
                kind: Kind::Response,
                value: Span(0),
                doubts: Doubts::NONE,
            },
            flow: 0,
            at: Moment(0),
        }
    }
}

const _: () = assert!(size_of::<LatencySample>() <= 24);

/// The end that samples go in.
pub struct SampleSender(Producer<LatencySample>);

/// The end that samples come out.
pub struct SampleReceiver(Consumer<LatencySample>);

/// A ring of at least `slots` samples.
pub fn sample_ring(slots: usize) -> (SampleSender, SampleReceiver) {
    let (producer, consumer) = ring(slots);
    (SampleSender(producer), SampleReceiver(consumer))
}

impl SampleSender {
    /// How many samples went so far, wrapping.
    pub fn sent(&self) -> u64 {
        self.0.written() as u64
    }

    /// Sends a sample; false when the ring is full. Never waits.
    #[inline]
    pub fn send(&mut self, sample: LatencySample) -> bool {
        self.0.write(|slot| *slot = sample).is_some()
    }
}

impl SampleReceiver {
    /// The oldest sample, if there is one. Never waits.
    #[inline]
    pub fn receive(&mut self) -> Option<LatencySample> {
        self.0.read(|slot| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_in_order_and_a_full_ring_refuses() {
        let (mut sender, mut receiver) = sample_ring(4);
        let sample = |flow| LatencySample {
            flow,
            cell: Cell { class: 3, server: 9 },
            ..LatencySample::default()
        };
        assert!((0..4).all(|n| sender.send(sample(n))));
        assert!(!sender.send(sample(4)));
        assert_eq!(sender.sent(), 4);
        assert_eq!(receiver.receive(), Some(sample(0)));
        assert!(sender.send(sample(5)));
        let rest: Vec<u32> = std::iter::from_fn(|| receiver.receive())
            .map(|s| s.flow)
            .collect();
        assert_eq!(rest, [1, 2, 3, 5]);
    }
}
