//! A token bucket in one word: the generic cell rate algorithm (ITU-T I.371). Owned by one worker,
//! fed with the burst's one clock reading.

use crate::arch::Ticks;

/// Allows so many events a second, and so many at once.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// Ticks that one event takes; 0 allows nothing.
    interval: u64,
    /// Ticks that events may lie ahead of the clock.
    ahead_max: u64,
    /// When the bucket is full again.
    full_at: u64,
}

impl RateLimit {
    /// `per_second` events on average (0: none ever) and `burst` at once (at least 1), on a clock of
    /// `ticks_per_second`.
    pub const fn new(per_second: u32, burst: u32, ticks_per_second: u64) -> Self {
        let interval = match per_second {
            0 => 0,
            // At least one tick, for a clock slower than the rate.
            n => (ticks_per_second / n as u64).saturating_add((ticks_per_second < n as u64) as u64),
        };
        Self {
            interval,
            ahead_max: interval.saturating_mul(burst.saturating_sub(1) as u64),
            full_at: 0,
        }
    }

    /// True when one more event may happen now, which is then counted.
    #[inline]
    pub fn allow(&mut self, now: Ticks) -> bool {
        let from = self.full_at.max(now.0);
        if self.interval == 0 || from - now.0 > self.ahead_max {
            return false;
        }
        self.full_at = from.saturating_add(self.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &mut RateLimit, now: u64, asked: usize) -> usize {
        (0..asked).filter(|_| limit.allow(Ticks(now))).count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        // 10 a second, 5 at once, a tick a millisecond.
        let mut limit = RateLimit::new(10, 5, 1000);
        assert_eq!(allowed(&mut limit, 50_000, 100), 5);
        assert_eq!(allowed(&mut limit, 50_099, 100), 0);
        assert_eq!(allowed(&mut limit, 50_100, 100), 1);
        assert_eq!(allowed(&mut limit, 50_400, 100), 3);
        // Rest fills the bucket, no further.
        assert_eq!(allowed(&mut limit, 90_000, 100), 5);
    }

    #[test]
    fn a_rate_of_none_and_a_clock_that_goes_back() {
        assert_eq!(allowed(&mut RateLimit::new(0, 5, 1000), 7, 10), 0);
        let mut limit = RateLimit::new(10, 1, 1000);
        assert_eq!(allowed(&mut limit, 5000, 2), 1);
        assert_eq!(allowed(&mut limit, 4000, 2), 0);
        assert_eq!(allowed(&mut RateLimit::new(1000, 1, 10), 5, 9), 1);
    }
}
