//! HotNets 2022: FixedTimeout (algorithm 1) and EnsembleTimeout (algorithm 2).

use super::{Estimator, Moment, Span};

/// A burst starts after a gap of more than `timeout`.
#[derive(Clone, Copy, Debug)]
pub struct FixedTimeout {
    timeout: Span,
    last: Option<Moment>,
    batch: Moment,
}

impl FixedTimeout {
    /// With that timeout.
    pub const fn new(timeout: Span) -> Self {
        Self {
            timeout,
            last: None,
            batch: Moment(0),
        }
    }
}

impl Estimator for FixedTimeout {
    fn packet(&mut self, at: Moment, _pure_ack: bool) -> Option<Span> {
        let Some(last) = self.last.replace(at) else {
            self.batch = at;
            return None;
        };
        if at.since(last).unwrap_or_default() <= self.timeout {
            return None;
        }
        at.since(std::mem::replace(&mut self.batch, at))
    }
}

/// How many timeouts run side by side: 64, 128 ... 4096 us.
const TIMEOUTS: usize = 7;
/// Length of an epoch.
const EPOCH: Span = Span::millis(64);

/// Samples are those of the timeout that the last epoch chose: the one before the steepest fall in their number.
#[derive(Clone, Copy, Debug)]
pub struct Ensemble {
    each: [FixedTimeout; TIMEOUTS],
    counts: [u32; TIMEOUTS],
    chosen: usize,
    epoch: Option<Moment>,
}

impl Default for Ensemble {
    fn default() -> Self {
        Self {
            each: std::array::from_fn(|i| FixedTimeout::new(Span::micros(64 << i))),
            counts: [0; TIMEOUTS],
            chosen: 3,
            epoch: None,
        }
    }
}

impl Ensemble {
    /// Chooses by the counts of the epoch that ended.
    fn choose(&mut self) {
        // A count of zero is taken as one half, since the paper leaves that open: ratios are of doubled counts.
        let doubled = |n: Option<&u32>| u64::from(n.copied().unwrap_or(0)) * 2;
        let mut best = (0, 1);
        for at in 0..TIMEOUTS - 1 {
            let (here, next) = (
                doubled(self.counts.get(at)),
                doubled(self.counts.get(at + 1)).max(1),
            );
            if here * best.1 > best.0 * next {
                best = (here, next);
                self.chosen = at;
            }
        }
        self.counts = [0; TIMEOUTS];
    }
}

impl Estimator for Ensemble {
    fn packet(&mut self, at: Moment, pure_ack: bool) -> Option<Span> {
        if pure_ack {
            return None;
        }
        let epoch = *self.epoch.get_or_insert(at);
        if at.since(epoch).unwrap_or_default() >= EPOCH {
            self.choose();
            self.epoch = Some(at);
        }
        let mut sample = None;
        for (i, (each, count)) in self.each.iter_mut().zip(&mut self.counts).enumerate() {
            if let Some(span) = each.packet(at, false) {
                *count += 1;
                if i == self.chosen {
                    sample = Some(span);
                }
            }
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(estimator: &mut impl Estimator, micros: &[u32]) -> Vec<Option<u32>> {
        let at = |&t: &u32| Moment(0).plus(Span::micros(t));
        micros
            .iter()
            .map(|t| estimator.packet(at(t), false).map(|s| s.0 / Span::PER_MICRO))
            .collect()
    }

    #[test]
    fn fixed_timeout_by_hand() {
        // Two packets 10 us apart, 500 us later two more, 300 us later one, 90 us later one: the timeout is 100 us.
        let mut fixed = FixedTimeout::new(Span::micros(100));
        let got = samples(&mut fixed, &[0, 10, 510, 520, 820, 910, 1010, 1111]);
        assert_eq!(
            got,
            [None, None, Some(510), None, Some(310), None, None, Some(291)]
        );
    }

    #[test]
    fn the_ensemble_chooses_before_the_cliff() {
        // Bursts of two, 100 us apart inside, every 1,500 us: timeouts of 128 to 1024 us see bursts.
        let mut times = Vec::new();
        for burst in 0..200 {
            times.extend([burst * 1500, burst * 1500 + 100]);
        }
        let mut ensemble = Ensemble::default();
        let got = samples(&mut ensemble, &times);
        assert_eq!(ensemble.chosen, 4, "1024 us is the last one with samples");
        assert!(got.iter().flatten().all(|&s| s == 1500) && got.iter().flatten().count() > 150);
    }
}
