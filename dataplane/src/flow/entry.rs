//! What is kept of one flow: 64 bytes, one cache line.
//!
//! Filled when the flow is created, by the stage that creates it, then worked on by [`super::estimate`]. What is
//! watched is a choice by what can be seen of the flow's transport.

use super::estimate::{Hidden, Tcp};
use super::{Moment, Span};
use crate::{zeroable, zeroable_choice};

zeroable_choice! {
    /// What a flow is watched by.
    pub enum Watch {
        /// By nothing yet.
        Nothing,
        /// Readable TCP.
        Tcp(Tcp),
        /// A transport whose headers are hidden: QUIC, ESP, WireGuard, other tunnels, any protocol.
        Hidden(Hidden),
    }
}

/// Between whom a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Parties {
    /// Class of the client, as [`crate::tables::Classes`] numbers them.
    pub class: u16,
    /// The server, as [`crate::tables::Servers`] numbers them.
    pub server: u16,
    /// Which tables both numbers are of, so that they can be found anew when tables change.
    pub numbering: u16,
}

zeroable!(Parties {
    class,
    server,
    numbering
});

/// One flow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Entry {
    /// Between whom it is.
    pub parties: Parties,
    /// Responses of this epoch, when it began, and their sum.
    responses: u16,
    epoch: u32,
    sum: u32,
    /// The estimator's state.
    pub watch: Watch,
}

zeroable!(Entry {
    parties,
    responses,
    epoch,
    sum,
    watch
});

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// A flow of which nothing was seen yet.
    pub const fn new(parties: Parties, watch: Watch) -> Self {
        Self {
            parties,
            responses: 0,
            epoch: 0,
            sum: 0,
            watch,
        }
    }

    /// The estimator, where TCP is readable.
    #[inline(always)]
    pub fn tcp(&mut self) -> Option<&mut Tcp> {
        match &mut self.watch {
            Watch::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// True before the first response of an epoch.
    #[inline(always)]
    pub fn is_new_epoch(&self) -> bool {
        self.responses == 0
    }

    /// Gives up the epoch under way: the flow has ended, and another may come in its place.
    pub fn end_epoch(&mut self) {
        self.responses = 0;
    }

    /// Takes a response that ended at `now`. At the end of an epoch gives the mean, this response with it: an epoch is as
    /// long as `length` at least, and ends with a burst, so that no burst is cut.
    #[inline(always)]
    pub fn mean(&mut self, now: Moment, response: Span, length: Span) -> Option<Span> {
        if self.responses == 0 {
            (self.epoch, self.sum) = (now.0.wrapping_sub(response.0), 0);
        }
        self.mean_of_more(now, response, length)
    }

    /// As [`Entry::mean`], for a response that is not the first of its epoch.
    #[inline(always)]
    pub fn mean_of_more(&mut self, now: Moment, response: Span, length: Span) -> Option<Span> {
        // Responses of a flow follow each other, so their sum is no more than the epoch is long, with one more.
        self.sum = self.sum.wrapping_add(response.0);
        self.responses += 1;
        // What began ahead of now is taken for long ago, and ends.
        let passed = now.0.wrapping_sub(self.epoch);
        if passed < length.0 && self.responses < u16::MAX {
            return None;
        }
        Some(self.end_of_epoch())
    }

    #[cold]
    #[inline(never)]
    fn end_of_epoch(&mut self) -> Span {
        let responses = std::mem::take(&mut self.responses);
        Span(self.sum / u32::from(responses.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_gives_its_mean_and_starts_anew() {
        let (mut entry, length) = (Entry::default(), Span(1000));
        let mut now = Moment(u32::MAX - 400);
        let mut means = Vec::new();
        for response in [300, 300, 600, 100, 900, 50] {
            now = now.plus(Span(response));
            means.push(entry.mean(now, Span(response), length));
        }
        // 300 + 300 + 600 make 1,200; 100 + 900 make 1,000.
        assert_eq!(means, [None, None, Some(Span(400)), None, Some(Span(500)), None]);
    }

    #[test]
    fn an_epoch_of_many_responses_ends_before_it_overflows() {
        let mut entry = Entry::default();
        let take = |n| entry.mean(Moment(n), Span(1), Span::MAX);
        assert_eq!((0..70_000).filter_map(take).collect::<Vec<_>>(), [Span(1)]);
    }
}
