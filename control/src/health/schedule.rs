//! When a target is probed: every interval, jittered. Pure; owned by the target's task.

use fastrand::Rng;
use std::time::Duration;

/// The jitter: a gap is the interval and up to this share of it more, never less, so that a target
/// sees at most one check per interval whatever the draw.
const JITTER: f64 = 0.1;

/// Longest wait before the first check.
const FIRST_MAX: Duration = Duration::from_secs(1);

/// The gaps of one target, drawn from its own seed so that probers do not align.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Duration,
    rng: Rng,
}

impl Schedule {
    /// A schedule of `interval` between starts.
    pub fn new(interval: Duration, seed: u64) -> Self {
        Self {
            interval,
            rng: Rng::with_seed(seed),
        }
    }

    /// Delay of the very first check: within a tenth of the interval and a second, so that a start is
    /// known soon and yet thousands of targets do not start in one instant.
    pub fn first(&mut self) -> Duration {
        self.interval
            .mul_f64(JITTER)
            .min(FIRST_MAX)
            .mul_f64(self.rng.f64())
    }

    /// Time from the start of one check to the start of the next.
    pub fn gap(&mut self) -> Duration {
        self.interval + self.jitter()
    }

    fn jitter(&mut self) -> Duration {
        self.interval.mul_f64(JITTER * self.rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_between_one_and_one_point_one_intervals_and_vary() {
        let mut schedule = Schedule::new(Duration::from_secs(1), 7);
        let gaps: Vec<_> = (0..1000).map(|_| schedule.gap()).collect();
        let (low, high) = (Duration::from_millis(1000), Duration::from_millis(1100));
        assert!(gaps.iter().all(|g| (low..=high).contains(g)));
        let mean = gaps.iter().sum::<Duration>() / 1000;
        // Uniform over 100 ms: standard error of the mean is 100 / sqrt(12 * 1000) = 0.9 ms.
        assert!(
            mean.abs_diff(Duration::from_millis(1050)) < Duration::from_millis(6),
            "{mean:?}"
        );
    }

    #[test]
    fn targets_do_not_align() {
        let starts: Vec<_> = (0..100)
            .map(|seed| Schedule::new(Duration::from_secs(1), seed).first())
            .collect();
        let mut distinct = starts.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), starts.len());
        assert!(distinct.iter().all(|d| *d <= Duration::from_millis(100)));
    }
}
