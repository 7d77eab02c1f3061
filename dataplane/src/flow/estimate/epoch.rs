//! The mean of a flow's responses over an epoch. Fed by the stage with every response.

use super::super::{Moment, Span};
use crate::zeroable;

/// Sum and count of an epoch.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Epoch {
    start: u32,
    sum: u32,
    count: u16,
}

zeroable!(Epoch { start, sum, count });

impl Epoch {
    /// Nothing yet.
    pub const NONE: Self = Self {
        start: 0,
        sum: 0,
        count: 0,
    };

    /// Takes a response that ended at `now`. At the end of an epoch gives its mean, this response with it: an epoch is as
    /// long as `length` at least, and ends with a burst, so that no burst is cut.
    #[inline]
    pub fn take(&mut self, now: Moment, response: Span, length: Span) -> Option<Span> {
        if self.count == 0 {
            (self.start, self.sum) = (now.0.wrapping_sub(response.0), 0);
        }
        self.sum = self.sum.saturating_add(response.0);
        self.count = self.count.saturating_add(1);
        let passed = now.since(Moment(self.start)).unwrap_or(Span::MAX);
        if passed < length && self.count < u16::MAX {
            return None;
        }
        let mean = Span(self.sum / u32::from(self.count.max(1)));
        *self = Self::NONE;
        Some(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_gives_its_mean_and_starts_anew() {
        let (mut epoch, length) = (Epoch::NONE, Span(1000));
        let mut now = Moment(u32::MAX - 400);
        let mut means = Vec::new();
        for response in [300, 300, 600, 100, 900, 50] {
            now = now.plus(Span(response));
            means.push(epoch.take(now, Span(response), length));
        }
        // 300 + 300 + 600 make 1,200; 100 + 900 make 1,000.
        assert_eq!(means, [None, None, Some(Span(400)), None, Some(Span(500)), None]);
    }

    #[test]
    fn an_epoch_of_many_responses_ends_before_it_overflows() {
        let mut epoch = Epoch::NONE;
        let means = (0..70_000u32)
            .filter_map(|n| epoch.take(Moment(n), Span(1), Span::MAX))
            .collect::<Vec<_>>();
        assert_eq!(means, [Span(1)]);
    }
}
