//! When each query is due. Open loop: the n-th query is due n/rate seconds after the start whether
//! or not earlier ones were answered or even sent, and its latency counts from then. A server (or a
//! port) that stalls is therefore charged with the whole stall: no coordinated omission.

/// Nanoseconds of one second.
pub const SECOND: u64 = 1_000_000_000;

/// How fast queries are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Queries per second, at least 1.
    Rate(u64),
    /// As many as the port takes; each is due when it is built.
    FlatOut,
}

/// When to stop sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this many nanoseconds.
    Duration(u64),
    /// After this many queries.
    Count(u64),
}

/// The schedule of one run.
#[derive(Clone, Debug)]
pub struct Schedule {
    pace: Pace,
    limit: Limit,
    /// Nanoseconds after which a schedule that the port cannot follow is given up, counted from its end.
    grace: u64,
    /// Queries not yet due, or due and not yet taken.
    left: u64,
    /// When the next query is due.
    next: u64,
    /// Whole and fractional nanoseconds between queries; the fraction in units of 1/rate.
    step: u64,
    fraction: u64,
    carry: u64,
    stop: u64,
}

impl Schedule {
    /// A schedule that begins at `start` (nanoseconds on the run's clock). When the port cannot
    /// follow a rate, sending stops `grace` nanoseconds after the limit's duration.
    pub fn new(pace: Pace, limit: Limit, start: u64, grace: u64) -> Self {
        let (step, fraction) = match pace {
            Pace::Rate(rate) => (SECOND / rate.max(1), SECOND % rate.max(1)),
            Pace::FlatOut => (0, 0),
        };
        let left = match (pace, limit) {
            (_, Limit::Count(count)) => count,
            (Pace::Rate(rate), Limit::Duration(ns)) => {
                u64::try_from(u128::from(rate) * u128::from(ns) / u128::from(SECOND)).unwrap_or(u64::MAX)
            }
            (Pace::FlatOut, Limit::Duration(_)) => u64::MAX,
        };
        let stop = match (pace, limit) {
            (_, Limit::Count(_)) => u64::MAX,
            (Pace::Rate(_), Limit::Duration(ns)) => start.saturating_add(ns).saturating_add(grace),
            (Pace::FlatOut, Limit::Duration(ns)) => start.saturating_add(ns),
        };
        Self {
            pace,
            limit,
            grace,
            left,
            next: start,
            step,
            fraction,
            carry: 0,
            stop,
        }
    }

    /// The same schedule from `start` on.
    pub fn restarted(&self, start: u64) -> Self {
        Self::new(self.pace, self.limit, start, self.grace)
    }

    /// Takes the next query if it is due at `now`: the time at which it was due.
    #[inline]
    pub fn take(&mut self, now: u64) -> Option<u64> {
        if !self.is_due(now) {
            return None;
        }
        self.left -= 1;
        let Pace::Rate(rate) = self.pace else {
            return Some(now);
        };
        let due = self.next;
        self.next += self.step;
        self.carry += self.fraction;
        if self.carry >= rate {
            self.carry -= rate;
            self.next += 1;
        }
        Some(due)
    }

    /// Takes queries that are due at `now`, as many as `due` has places; returns how many.
    #[inline]
    pub fn take_burst(&mut self, now: u64, due: &mut [u64]) -> usize {
        if self.pace == Pace::FlatOut {
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(due.len());
            due.iter_mut().take(count).for_each(|place| *place = now);
            self.left -= count as u64;
            return count;
        }
        let mut count = 0;
        for place in due {
            let Some(time) = self.take(now) else { break };
            *place = time;
            count += 1;
        }
        count
    }

    /// True when a query is due at `now`.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        self.left > 0 && self.next <= now
    }

    /// A query that was taken was not sent after all.
    pub fn untake(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    /// True when nothing more will be due, or the time for it has passed.
    #[inline]
    pub fn finished(&self, now: u64) -> bool {
        self.left == 0 || self.out_of_time(now)
    }

    /// True when the time for sending has passed.
    #[inline]
    pub fn out_of_time(&self, now: u64) -> bool {
        now >= self.stop
    }

    /// When the next query is due.
    #[inline]
    pub fn next_due(&self) -> u64 {
        self.next
    }

    /// Queries that were to be sent and were not taken: 0 flat out.
    pub fn unsent(&self) -> u64 {
        match (self.pace, self.limit) {
            (Pace::FlatOut, Limit::Duration(_)) => 0,
            _ => self.left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Polls at `gap` until finished; returns how many were taken in time, in `window`, and the last due time.
    fn drive(mut schedule: Schedule, start: u64, gap: u64) -> (u64, u64) {
        let (mut now, mut taken, mut last) = (start, 0, start);
        while !schedule.finished(now) {
            let mut burst = [0; 7];
            loop {
                let count = schedule.take_burst(now, &mut burst);
                for &due in &burst[..count] {
                    assert!(due <= now && due >= last);
                    (taken, last) = (taken + 1, due);
                }
                if count < burst.len() {
                    break;
                }
            }
            now += gap;
        }
        (taken, last)
    }

    #[test]
    fn one_second_at_three_a_second_is_due_at_thirds() {
        let mut schedule = Schedule::new(Pace::Rate(3), Limit::Duration(SECOND), 100, 0);
        let due: Vec<_> = std::iter::from_fn(|| schedule.take(u64::MAX)).collect();
        assert_eq!(due, [100, 333_333_433, 666_666_766]);
        assert_eq!(schedule.unsent(), 0);
        // What is rounded off is not lost: the fourth is due after one second sharp.
        assert_eq!(schedule.next_due(), 1_000_000_100);
    }

    #[test]
    fn not_early() {
        let mut schedule = Schedule::new(Pace::Rate(1_000), Limit::Count(2), 0, 0);
        assert_eq!(schedule.take(0), Some(0));
        assert_eq!(schedule.take(999_999), None);
        assert_eq!(schedule.take(1_000_000), Some(1_000_000));
        assert!(schedule.finished(1_000_000));
    }

    #[test]
    fn a_port_that_cannot_follow_is_given_up_after_the_grace() {
        let mut schedule = Schedule::new(Pace::Rate(1_000), Limit::Duration(SECOND), 0, SECOND);
        assert_eq!(schedule.take(0), Some(0));
        assert!(!schedule.finished(2 * SECOND - 1));
        assert!(schedule.finished(2 * SECOND));
        assert_eq!(schedule.unsent(), 999);
    }

    #[test]
    fn flat_out_is_due_when_asked() {
        let mut schedule = Schedule::new(Pace::FlatOut, Limit::Duration(10), 5, 0);
        assert_eq!(schedule.take(7), Some(7));
        assert_eq!(schedule.take(7), Some(7));
        let mut due = [0; 3];
        assert_eq!((schedule.take_burst(9, &mut due), due), (3, [9; 3]));
        assert!(!schedule.finished(14) && schedule.finished(15));
        let mut schedule = Schedule::new(Pace::FlatOut, Limit::Count(2), 5, 0);
        assert_eq!(
            (schedule.take_burst(9, &mut due), schedule.take_burst(9, &mut due)),
            (2, 0)
        );
        assert_eq!(schedule.unsent(), 0);
    }

    proptest! {
        /// rate x duration queries, whatever the polling, and the k-th due at k/rate.
        #[test]
        fn exact(rate in 1u64..3_000_000, ms in 1u64..80, gap in 1u64..3_000_000, start in 0u64..SECOND) {
            let ns = ms * 1_000_000;
            let schedule = Schedule::new(Pace::Rate(rate), Limit::Duration(ns), start, SECOND);
            let (taken, last) = drive(schedule, start, gap);
            prop_assert_eq!(taken, rate * ms / 1000);
            if taken > 0 {
                let exact = u128::from(taken - 1) * u128::from(SECOND) / u128::from(rate);
                prop_assert_eq!(u128::from(last - start), exact);
            }
        }
    }
}
