//! PIRATE as published: ten modes of gaps that grow and merge, and the proportional mode sum of an epoch.

use super::{Estimator, Moment, Span};

/// Modes at most.
const MODES: usize = 10;

/// A mode: a range of gaps, how many, and their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Shortest gap.
    pub min: u32,
    /// Longest gap.
    pub max: u32,
    /// How many gaps.
    pub count: u32,
    /// Their sum.
    pub sum: u64,
}

/// The histogram of algorithm 2.
#[derive(Clone, Debug)]
pub struct Histogram {
    eps: u32,
    modes: Vec<Mode>,
    /// Gaps for which there was no mode.
    pub discarded: u32,
}

impl Histogram {
    /// Modes nearer than `eps` are one.
    pub fn new(eps: Span) -> Self {
        Self {
            eps: eps.0,
            modes: Vec::with_capacity(MODES),
            discarded: 0,
        }
    }

    /// The modes, by length.
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// Takes a gap.
    pub fn add(&mut self, gap: Span) {
        let (gap, eps) = (gap.0, self.eps);
        let near = |m: &Mode| m.min.saturating_sub(eps) <= gap && gap <= m.max.saturating_add(eps);
        if let Some(at) = self.modes.iter().position(near) {
            if let Some(mode) = self.modes.get_mut(at) {
                mode.count += 1;
                mode.sum += u64::from(gap);
                (mode.min, mode.max) = (mode.min.min(gap), mode.max.max(gap));
            }
            self.merge(at);
            self.merge(at.wrapping_sub(1));
        } else if self.modes.len() < MODES {
            let at = self.modes.partition_point(|m| m.max < gap);
            self.modes.insert(
                at,
                Mode {
                    min: gap,
                    max: gap,
                    count: 1,
                    sum: gap.into(),
                },
            );
        } else {
            self.discarded += 1;
        }
    }

    /// Merges mode `at` with the next one if they have come near.
    fn merge(&mut self, at: usize) {
        let (Some(&low), Some(&high)) = (self.modes.get(at), self.modes.get(at.wrapping_add(1))) else {
            return;
        };
        if high.min.saturating_sub(self.eps) > low.max {
            return;
        }
        self.modes.remove(at + 1);
        if let Some(mode) = self.modes.get_mut(at) {
            mode.max = high.max;
            mode.count += high.count;
            mode.sum += high.sum;
        }
    }

    /// The proportional mode sum: each mode's mean, times how often it came for each gap of the largest mode. In whole
    /// units: the sum of all gaps over the count of the largest mode.
    pub fn estimate(&self) -> Option<Span> {
        let sum: u64 = self.modes.iter().map(|m| m.sum).sum();
        let count = u64::from(self.modes.last()?.count);
        Some(Span(u32::try_from(sum / count).unwrap_or(u32::MAX)))
    }

    fn clear(&mut self) {
        self.modes.clear();
        self.discarded = 0;
    }
}

/// The published estimator: a mean for each epoch.
#[derive(Clone, Debug)]
pub struct Literal {
    histogram: Histogram,
    epoch: Span,
    cutoff: Span,
    start: Option<Moment>,
    last: Moment,
}

impl Literal {
    /// Epochs of that length; gaps of `cutoff` or more are timeouts or idle time.
    pub fn new(eps: Span, epoch: Span, cutoff: Span) -> Self {
        Self {
            histogram: Histogram::new(eps),
            epoch,
            cutoff,
            start: None,
            last: Moment(0),
        }
    }
}

impl Estimator for Literal {
    fn packet(&mut self, at: Moment, pure_ack: bool) -> Option<Span> {
        if pure_ack {
            return None;
        }
        let Some(start) = self.start else {
            (self.start, self.last) = (Some(at), at);
            return None;
        };
        let mut mean = None;
        if at.since(start).unwrap_or_default() >= self.epoch {
            mean = self.histogram.estimate();
            self.histogram.clear();
            self.start = Some(at);
        }
        let gap = at
            .since(std::mem::replace(&mut self.last, at))
            .unwrap_or_default();
        if gap.0 > 0 && gap < self.cutoff {
            self.histogram.add(gap);
        }
        mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_example_is_950_microseconds() {
        // Modes of 100, 150 and 250 us with shares 0.4, 0.2 and 0.1: 4 x 100 + 2 x 150 + 250.
        let mut histogram = Histogram::new(Span::micros(20));
        for (gap, times) in [(100, 4), (150, 2), (250, 1)] {
            for _ in 0..times {
                histogram.add(Span::micros(gap));
            }
        }
        assert_eq!(histogram.estimate(), Some(Span::micros(950)));
    }

    #[test]
    fn modes_grow_and_merge_on_both_sides() {
        let mut histogram = Histogram::new(Span(10));
        let ranges = |h: &Histogram| {
            h.modes()
                .iter()
                .map(|m| (m.min, m.max, m.count))
                .collect::<Vec<_>>()
        };
        for gap in [100, 130, 160] {
            histogram.add(Span(gap));
        }
        assert_eq!(ranges(&histogram), [(100, 100, 1), (130, 130, 1), (160, 160, 1)]);
        // 120 belongs to 130 and brings it within 20 of 100; 110 then joins 100 to both.
        histogram.add(Span(120));
        assert_eq!(ranges(&histogram), [(100, 100, 1), (120, 130, 2), (160, 160, 1)]);
        histogram.add(Span(110));
        assert_eq!(ranges(&histogram), [(100, 130, 4), (160, 160, 1)]);
        histogram.add(Span(150));
        assert_eq!(ranges(&histogram), [(100, 130, 4), (150, 160, 2)]);
        histogram.add(Span(140));
        assert_eq!(ranges(&histogram), [(100, 160, 7)]);
    }

    #[test]
    fn a_full_table_discards() {
        let mut histogram = Histogram::new(Span(1));
        for n in 0..12 {
            histogram.add(Span(100 * n + 100));
        }
        assert_eq!((histogram.modes().len(), histogram.discarded), (10, 2));
    }

    #[test]
    fn one_outlier_becomes_the_answer() {
        // The weakness that makes the literal rule useless on real traffic: 300 gaps of 3 ms and one of 100 ms.
        let mut histogram = Histogram::new(Span::micros(50));
        for _ in 0..300 {
            histogram.add(Span::millis(3));
        }
        histogram.add(Span::millis(100));
        assert_eq!(histogram.estimate(), Some(Span::millis(1000)));
    }

    proptest! {
        #[test]
        fn modes_stay_sorted_apart_and_complete(gaps in proptest::collection::vec(1u32..5000, 0..400), eps in 0u32..200) {
            let mut histogram = Histogram::new(Span(eps));
            let (mut sum, mut count) = (0u64, 0u32);
            for &gap in &gaps {
                let discarded = histogram.discarded;
                histogram.add(Span(gap));
                if histogram.discarded == discarded {
                    (sum, count) = (sum + u64::from(gap), count + 1);
                }
                let modes = histogram.modes();
                prop_assert_eq!(modes.iter().map(|m| m.sum).sum::<u64>(), sum);
                prop_assert_eq!(modes.iter().map(|m| m.count).sum::<u32>(), count);
                prop_assert!(modes.iter().all(|m| m.min <= m.max));
                prop_assert!(modes.windows(2).all(|pair| pair[0].max + eps < pair[1].min));
                prop_assert!(modes.len() <= 10);
            }
        }
    }
}
