//! Time as flows keep it: 32 bits in units of 250 ns, wrapping.
//!
//! The worker turns its one clock reading of a burst into a [`Moment`] with a [`MomentClock`]; offline work makes
//! them from capture stamps. A moment wraps after 17.9 minutes, so only spans below half of that are told right:
//! the table forgets a flow long before.

use crate::arch::{TickRate, Ticks};

/// Length of time in units of 250 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u32);

impl Span {
    /// Units of a second.
    pub const PER_SECOND: u32 = 4_000_000;
    /// Units of a microsecond.
    pub const PER_MICRO: u32 = 4;
    /// The longest span that moments tell apart, about nine minutes.
    pub const MAX: Self = Self(i32::MAX as u32);

    /// That many microseconds, [`Span::MAX`] at most.
    pub const fn micros(n: u32) -> Self {
        match n.checked_mul(Self::PER_MICRO) {
            Some(units) if units <= Self::MAX.0 => Self(units),
            _ => Self::MAX,
        }
    }

    /// That many milliseconds, [`Span::MAX`] at most.
    pub const fn millis(n: u32) -> Self {
        match n.checked_mul(1000) {
            Some(micros) => Self::micros(micros),
            None => Self::MAX,
        }
    }

    /// In nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0 as u64 * 250
    }
}

/// A point in time: only the difference to another one within nine minutes means something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moment(pub u32);

impl Moment {
    /// Time since `earlier`; none when that lies ahead, as with packets that were stamped out of order.
    #[inline(always)]
    pub const fn since(self, earlier: Moment) -> Option<Span> {
        let span = self.0.wrapping_sub(earlier.0);
        if span as i32 >= 0 { Some(Span(span)) } else { None }
    }

    /// Time since `earlier`; none at all when that lies ahead.
    #[inline(always)]
    pub const fn since_or_zero(self, earlier: Moment) -> Span {
        let span = self.0.wrapping_sub(earlier.0) as i32;
        Span(if span < 0 { 0 } else { span as u32 })
    }

    /// The point that much later.
    #[inline(always)]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.wrapping_add(span.0))
    }

    /// A capture's stamp: nanoseconds since any point, the same for all packets.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self((nanos / 250) as u32)
    }
}

/// Turns clock readings into moments by one multiplication.
#[derive(Clone, Copy, Debug)]
pub struct MomentClock {
    /// Units of a tick, with 40 bits behind the point.
    factor: u64,
}

impl MomentClock {
    /// For a counter of this rate.
    pub fn new(rate: TickRate) -> Self {
        let factor = f64::from(Span::PER_SECOND) / rate.hz() * (1u64 << 40) as f64;
        Self {
            factor: factor as u64,
        }
    }

    /// The moment of a reading.
    #[inline(always)]
    pub const fn at(self, ticks: Ticks) -> Moment {
        Moment(((ticks.0 as u128 * self.factor as u128) >> 40) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_wrap_and_spans_do_not_notice() {
        let early = Moment(u32::MAX - 99);
        let late = early.plus(Span(300));
        assert_eq!(late, Moment(200));
        assert_eq!(late.since(early), Some(Span(300)));
        assert_eq!(early.since(late), None, "a packet from before");
        assert_eq!(early.since(early), Some(Span(0)));
        assert_eq!(
            (late.since_or_zero(early), early.since_or_zero(late)),
            (Span(300), Span(0))
        );
    }

    #[test]
    fn units_are_250_nanoseconds() {
        assert_eq!(Span::micros(100).0, 400);
        assert_eq!(Span::millis(1000).0, Span::PER_SECOND);
        assert_eq!(Span::millis(u32::MAX), Span::MAX);
        assert_eq!(Span(3).nanos(), 750);
        assert_eq!(
            Moment::from_nanos(1_000_000_000_000),
            Moment(4_000_000_000u64 as u32)
        );
    }

    #[test]
    fn ticks_become_moments_without_drift() {
        let hz = 2_449_998_000u64;
        let clock = MomentClock::new(TickRate::from_hz(hz));
        // Ten days of ticks: the difference over a second at the end is still a second.
        let day = hz * 86_400;
        let (from, to) = (clock.at(Ticks(day * 10)), clock.at(Ticks(day * 10 + hz)));
        let span = to.since(from).unwrap();
        assert!((3_999_999..=4_000_001).contains(&span.0), "{span:?}");
    }
}
