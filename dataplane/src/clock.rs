//! Unix time on a worker, without a system call: a tick reading and the time that control says belongs to it.
//!
//! Control sends the pair as a word ([`crate::link::WordTarget::Clock`]) at start, with every snapshot and every few
//! seconds, so that steps of the system's clock and the counter's drift (50 ppm) stay below what cookies
//! tolerate. The worker's housekeeping works out the second; stages read a plain number.

use crate::arch::{TickRate, Ticks};
use crate::link::WordValue;

/// A worker's clock. Second 0 until control has spoken.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    rate: TickRate,
    /// Time at `anchor`, milliseconds since 1970.
    millis: u64,
    anchor: Ticks,
    /// The time worked out last, seconds since 1970.
    seconds: u64,
    /// When it has to be worked out anew.
    next: Ticks,
}

/// The word that tells workers that it was `millis` milliseconds after 1970 at `at`.
pub const fn clock_word(millis: u64, at: Ticks) -> WordValue {
    [millis, at.0, 0, 0, 0, 0]
}

impl WallClock {
    /// A clock on a counter of this rate.
    pub const fn new(rate: TickRate) -> Self {
        Self {
            rate,
            millis: 0,
            anchor: Ticks(0),
            seconds: 0,
            next: Ticks(0),
        }
    }

    /// Takes what [`clock_word`] made.
    pub fn set(&mut self, word: WordValue) {
        let [millis, at, ..] = word;
        (self.millis, self.anchor) = (millis, Ticks(at));
        self.next = Ticks(0);
    }

    /// Works out the time at `now`; a comparison unless a second has passed.
    #[inline]
    pub fn advance(&mut self, now: Ticks) {
        if now >= self.next && self.millis > 0 {
            self.work_out(now);
        }
    }

    #[cold]
    fn work_out(&mut self, now: Ticks) {
        let passed = self.rate.duration(now.since(self.anchor)).as_millis() as u64;
        let millis = self.millis.saturating_add(passed);
        self.seconds = millis / 1000;
        let left = 1000 - millis % 1000;
        self.next = now.plus((self.rate.hz() * left as f64 / 1000.0) as u64);
    }

    /// Seconds since 1970 modulo 2^32, as cookies count them.
    #[inline(always)]
    pub const fn seconds(&self) -> u32 {
        self.seconds as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_go_by_the_ticks() {
        // A tick a microsecond.
        let mut clock = WallClock::new(TickRate::from_hz(1_000_000));
        clock.advance(Ticks(5_000_000));
        assert_eq!(clock.seconds(), 0, "nobody has told the time");
        clock.set(clock_word(1_559_731_985_400, Ticks(7_000_000)));
        for (now, want) in [
            (7_000_000, 1_559_731_985),
            (7_599_998, 1_559_731_985),
            (7_601_000, 1_559_731_986),
            (8_599_000, 1_559_731_986),
            (8_601_000, 1_559_731_987),
            (3_607_000_000, 1_559_735_585),
        ] {
            clock.advance(Ticks(now));
            assert_eq!(clock.seconds(), want, "{now}");
        }
        // The system's clock was set back.
        clock.set(clock_word(1_559_731_000_000, Ticks(3_607_000_000)));
        clock.advance(Ticks(3_607_000_001));
        assert_eq!(clock.seconds(), 1_559_731_000);
        // A word whose reading lies a little ahead of this core's counter.
        clock.set(clock_word(1_559_731_000_000, Ticks(3_607_000_100)));
        clock.advance(Ticks(3_607_000_002));
        assert_eq!(clock.seconds(), 1_559_731_000);
    }
}
