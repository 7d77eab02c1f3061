//! How long answers take, told from a client's packets alone.
//!
//! A client sends a burst of requests, waits for what it asked for, and sends again: the time between the first packets
//! of two bursts that are joined by cause is the response latency as the client sees it, plus its think time. Which packet
//! starts a burst is what an estimator has to tell: [`Tcp`] by acknowledgment numbers, [`Hidden`] by times and sizes
//! where headers cannot be read. Each gives a [`Sample`] a burst, with its [`Doubts`];
//! [`super::Entry::mean`] makes means of epochs.
//!
//! Called by `stages::flow_latency` and by offline work, with one packet of one flow at a time, in order of arrival.
//! Fixed point throughout. [`mod@reference`] has the published algorithms, for comparison; no stage uses them.

mod ack_rule;
#[cfg(test)]
mod ack_rule_tests;
mod hidden;
#[cfg(test)]
mod hidden_tests;
pub mod reference;
mod trust;

pub use ack_rule::{Answered, Segment, Step, Tcp};
pub use hidden::{Datagram, Hidden};
pub use trust::{Confidence, Doubts};

use super::Span;

/// What a sample tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Time from a burst of requests to the next one that its answers caused: response latency and think time.
    Response = 0,
    /// Time from a burst of requests to the last acknowledgment of its answers: without think time. Only of answers of
    /// which that can be told, so not for every [`Kind::Response`].
    Answer = 1,
    /// Time from a SYN to what the client sent on its SYN-ACK: the path, the server's kernel, and no application.
    Handshake = 2,
    /// Mean of the responses of a flow in an epoch.
    Epoch = 3,
    /// Not a time: packets that the client sent again since the last sample of this kind.
    Retransmitted = 4,
}

impl Kind {
    /// Every kind, in order of its number.
    pub const ALL: [Self; 5] = [
        Self::Response,
        Self::Answer,
        Self::Handshake,
        Self::Epoch,
        Self::Retransmitted,
    ];

    /// Its name, as exported.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Response => "response",
            Kind::Answer => "answer",
            Kind::Handshake => "handshake",
            Kind::Epoch => "epoch",
            Kind::Retransmitted => "retransmitted",
        }
    }
}

/// One estimate of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What it tells.
    pub kind: Kind,
    /// The time; for [`Kind::Retransmitted`] a count.
    pub value: Span,
    /// What speaks against it.
    pub doubts: Doubts,
}

impl Sample {
    /// The mean of an epoch that ends with this response.
    #[inline(always)]
    pub const fn mean(self, value: Span) -> Self {
        Self {
            kind: Kind::Epoch,
            value,
            doubts: self.doubts,
        }
    }
}

/// What holds for all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whatever takes that long is a pause of the client and no answer. Below one second the waits for retransmission
    /// are lost, and with them the true 99th percentile on lossy paths.
    pub cutoff: Span,
    /// Length of an epoch, at least.
    pub epoch: Span,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cutoff: Span::millis(1000),
            epoch: Span::millis(1000),
        }
    }
}

/// `old` moved towards `new` by one part in 2^`shift`: a mean that forgets. Rounds towards `new`, so that it gets there.
#[inline(always)]
const fn towards(old: i32, new: i32, shift: u32) -> i32 {
    let step = new - old;
    // An arithmetic shift rounds down: right for falling, one too little for rising.
    let rising = (step > 0) as i32 * ((1 << shift) - 1);
    old + ((step + rising) >> shift)
}

/// The logarithm to base 2 times 256, the mantissa taken as linear (at most 0.09 too low); of 0 it is 0.
#[inline(always)]
const fn log2(value: u32) -> i32 {
    let value = value | (value == 0) as u32;
    let whole = 31 - value.leading_zeros();
    // The eight bits behind the leading one.
    let mantissa = ((value as u64) << 8 >> whole) as u32 & 0xff;
    (whole << 8 | mantissa) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_near_and_never_fall() {
        assert_eq!([0, 1, 2, 3, 4].map(log2), [0, 0, 256, 384, 512]);
        assert_eq!(log2(u32::MAX), 31 * 256 + 255);
        let mut before = 0;
        for value in (1..2_000_000).chain([u32::MAX / 3, u32::MAX / 2]) {
            let (ours, exact) = (log2(value), f64::from(value).log2() * 256.0);
            assert!(
                exact - 24.0 < f64::from(ours) && f64::from(ours) < exact + 0.001,
                "{value}"
            );
            assert!(ours >= before, "{value}");
            before = ours;
        }
    }

    #[test]
    fn means_arrive() {
        for (from, to) in [(0, 1000), (1000, 0), (5, 4), (4, 5), (-3, 3), (0, 0)] {
            let mut mean = from;
            for _ in 0..500 {
                let next = towards(mean, to, 5);
                assert!((to - next).abs() <= (to - mean).abs());
                mean = next;
            }
            assert_eq!(mean, to, "from {from}");
        }
        assert_eq!(towards(0, 80, 3), 10);
        assert_eq!(towards(80, 0, 3), 70);
    }
}
