//! The same idea in 64 bytes: modes of relative width in a logarithmic code, an exact sum, and a split at the widest valley.

use super::{Estimator, Moment, Span};

/// Modes at most.
const MODES: usize = 10;
/// Codes between two gaps of one mode at most: about 25 %.
const NEAR: u8 = 2;
/// Codes that a valley has at least: an octave and a half.
const VALLEY: u8 = 12;
/// No threshold yet.
const UNKNOWN: u8 = 0xff;
/// Gaps after which an epoch ends early.
const GAPS_MAX: u32 = 1024;

/// The gap as a number of 5 bits exponent and 3 bits mantissa: 8 steps an octave, 256 ns the least.
pub fn code(gap: Span) -> u8 {
    let ticks = ((u64::from(gap.0) * 250) / 256).max(1);
    let exponent = ticks.ilog2();
    let mantissa = ((ticks << 3) >> exponent) & 7;
    (exponent << 3) as u8 | mantissa as u8
}

/// A range of codes and how many gaps fell into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Lowest code.
    pub low: u8,
    /// Highest code.
    pub high: u8,
    /// How many; stays at the highest number.
    pub count: u16,
}

/// State of one flow.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Valley {
    last: u32,
    batch: u32,
    epoch_start: u32,
    sum: u32,
    gaps: u32,
    threshold: u8,
    len: u8,
    seen: bool,
    kept: bool,
    modes: [Mode; MODES],
}

const _: () = assert!(size_of::<Valley>() == 64);

impl Default for Valley {
    fn default() -> Self {
        Self {
            last: 0,
            batch: 0,
            epoch_start: 0,
            sum: 0,
            gaps: 0,
            threshold: UNKNOWN,
            len: 0,
            seen: false,
            kept: false,
            modes: [Mode::default(); MODES],
        }
    }
}

impl Valley {
    /// Gaps of this length or more are timeouts or idle time.
    pub const CUTOFF: Span = Span::millis(150);
    /// Length of an epoch.
    pub const EPOCH: Span = Span::millis(100);

    /// The modes, by length.
    pub fn modes(&self) -> &[Mode] {
        self.modes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Sum of the gaps that the modes count.
    pub fn sum(&self) -> Span {
        Span(self.sum)
    }

    /// Takes a gap.
    pub fn add(&mut self, gap: Span) {
        self.sum = self.sum.saturating_add(gap.0);
        self.gaps += 1;
        let code = code(gap);
        let mut all = self.modes().to_vec();
        let near = |m: &Mode| m.low.saturating_sub(NEAR) <= code && code <= m.high.saturating_add(NEAR);
        if let Some(at) = all.iter().position(near) {
            if let Some(mode) = all.get_mut(at) {
                mode.count = mode.count.saturating_add(1);
                (mode.low, mode.high) = (mode.low.min(code), mode.high.max(code));
            }
        } else {
            let at = all.partition_point(|m| m.high < code);
            all.insert(
                at,
                Mode {
                    low: code,
                    high: code,
                    count: 1,
                },
            );
        }
        // What has come near is one; of too many the two nearest are.
        while let Some(at) = (1..all.len()).find(|&at| apart(&all, at) <= NEAR) {
            join(&mut all, at);
        }
        if all.len() > MODES
            && let Some(at) = (1..all.len()).min_by_key(|&at| apart(&all, at))
        {
            join(&mut all, at);
        }
        self.len = all.len() as u8;
        for (to, from) in self.modes.iter_mut().zip(all) {
            *to = from;
        }
    }

    /// The mode at which bursts start: behind the widest valley with enough above it. 0: no valley.
    fn split(&self) -> usize {
        let modes = self.modes();
        let count = |from: usize| modes.iter().skip(from).map(|m| u32::from(m.count)).sum::<u32>();
        let (mut best, mut width) = (0, VALLEY);
        for at in 1..modes.len() {
            let (here, above) = (apart(modes, at), count(at));
            if here > width && above >= 2 && above * 25 >= count(0) {
                (best, width) = (at, here);
            }
        }
        best
    }

    /// Mean of the epoch: every mode above the valley counts as bursts.
    pub fn estimate(&self) -> Option<Span> {
        let bursts: u32 = self
            .modes()
            .iter()
            .skip(self.split())
            .map(|m| u32::from(m.count))
            .sum();
        self.sum.checked_div(bursts).map(Span)
    }

    fn close(&mut self, at: Moment) {
        if self.gaps >= 4 {
            let split = self.split();
            let code = |at: usize, high: bool| {
                self.modes()
                    .get(at)
                    .map_or(0, |m| if high { m.high } else { m.low })
            };
            if split > 0 {
                self.threshold =
                    ((u16::from(code(split - 1, true)) + u16::from(code(split, false))) / 2) as u8;
                self.kept = false;
            } else if self.threshold == UNKNOWN || self.threshold == 0 || self.kept {
                self.threshold = 0;
            } else {
                // The valley may be filled for once.
                self.kept = true;
            }
            (self.len, self.sum, self.gaps) = (0, 0, 0);
        }
        self.epoch_start = at.0;
    }
}

/// Codes between mode `at` and the one before.
fn apart(modes: &[Mode], at: usize) -> u8 {
    match (modes.get(at.wrapping_sub(1)), modes.get(at)) {
        (Some(low), Some(high)) => high.low.saturating_sub(low.high),
        _ => u8::MAX,
    }
}

fn join(modes: &mut Vec<Mode>, at: usize) {
    let high = modes.remove(at);
    if let Some(mode) = modes.get_mut(at - 1) {
        mode.high = high.high;
        mode.count = mode.count.saturating_add(high.count);
    }
}

impl Estimator for Valley {
    /// Samples are of bursts, by the threshold of the epoch before.
    fn packet(&mut self, at: Moment, pure_ack: bool) -> Option<Span> {
        if pure_ack {
            return None;
        }
        if !self.seen {
            (self.seen, self.last, self.batch, self.epoch_start) = (true, at.0, at.0, at.0);
            return None;
        }
        if at.since(Moment(self.epoch_start)).unwrap_or_default() >= Self::EPOCH || self.gaps >= GAPS_MAX {
            self.close(at);
        }
        let gap = at
            .since(Moment(std::mem::replace(&mut self.last, at.0)))
            .unwrap_or_default();
        if gap.0 == 0 {
            return None;
        }
        if gap >= Self::CUTOFF {
            self.batch = at.0;
            return None;
        }
        self.add(gap);
        if self.threshold == UNKNOWN || code(gap) <= self.threshold {
            return None;
        }
        let batch = Moment(std::mem::replace(&mut self.batch, at.0));
        at.since(batch).filter(|&span| span < Self::CUTOFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_by_hand() {
        // In ticks of 256 ns: 1 us is 3 (exponent 1, mantissa 4), 100 us are 390 (8, 4), 1 s is 3,906,250 (21, 6).
        assert_eq!(
            [0, 1, 4, 400, 4_000_000].map(|units| code(Span(units))),
            [0, 0, 12, 68, 174]
        );
        let mut before = 0;
        for units in 1..100_000 {
            let code = code(Span(units));
            assert!(code >= before);
            before = code;
        }
    }

    #[test]
    fn the_valley_separates_bursts_whatever_the_outlier() {
        // Bursts of four 8 us apart, 3 ms between bursts, and one pause of 100 ms.
        let mut valley = Valley::default();
        for _ in 0..100 {
            for gap in [8, 8, 8, 3000] {
                valley.add(Span::micros(gap));
            }
        }
        valley.add(Span::millis(100));
        // 100 bursts of 3.024 ms and the pause, over 101.
        assert_eq!(valley.estimate(), Some(Span((302_400 + 100_000) * 4 / 101)));
    }

    proptest! {
        #[test]
        fn modes_stay_sorted_apart_and_complete(gaps in proptest::collection::vec(1u32..4_000_000, 1..300)) {
            let mut valley = Valley::default();
            let mut sum = 0;
            for (n, &gap) in gaps.iter().enumerate() {
                valley.add(Span(gap));
                sum += gap;
                prop_assert_eq!(valley.sum(), Span(sum));
                let modes = valley.modes();
                prop_assert_eq!(modes.iter().map(|m| usize::from(m.count)).sum::<usize>(), n + 1);
                prop_assert!(modes.windows(2).all(|pair| pair[0].high + NEAR < pair[1].low));
                prop_assert!(modes.len() <= MODES);
            }
        }
    }
}
