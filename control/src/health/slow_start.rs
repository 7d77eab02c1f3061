//! Slow start: a target that comes back gets its clients back step by step, not all in one moment. Pure; owned
//! by [`super::machine`].

use super::Standing;
use std::time::Duration;
use tokio::time::Instant;

/// The ramp of one target.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart {
    length: Duration,
    began: Option<Instant>,
}

impl SlowStart {
    /// No ramp under way. A `length` of 0 means that there never is one.
    pub fn new(length: Duration) -> Self {
        Self { length, began: None }
    }

    /// As this one stands, at another length.
    pub fn with_length(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// It has come back.
    pub fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// It is down again.
    pub fn stop(&mut self) {
        self.began = None;
    }

    /// Its share: from one sixteenth to all, in sixteen equal steps of time.
    pub fn share(&self, now: Instant) -> u8 {
        let Some(began) = self.began else {
            return Standing::WHOLE;
        };
        let whole = u128::from(Standing::WHOLE);
        let steps = now.saturating_duration_since(began).as_nanos() * whole;
        match steps.checked_div(self.length.as_nanos()) {
            // Below 16, so it fits.
            Some(step) if step < whole - 1 => step as u8 + 1,
            _ => Standing::WHOLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_steps_over_its_length() {
        let start = Instant::now();
        let at = |ramp: &SlowStart, ms: u64| ramp.share(start + Duration::from_millis(ms));
        let mut ramp = SlowStart::new(Duration::from_secs(16));
        assert_eq!(at(&ramp, 0), 16, "nothing to come back from");
        ramp.begin(start);
        for (ms, share) in [
            (0, 1),
            (999, 1),
            (1000, 2),
            (7_999, 8),
            (8_000, 9),
            (14_999, 15),
            (15_000, 16),
            (60_000, 16),
        ] {
            assert_eq!(at(&ramp, ms), share, "{ms} ms");
        }
        ramp.stop();
        assert_eq!(at(&ramp, 0), 16);
        let mut none = SlowStart::new(Duration::ZERO);
        none.begin(start);
        assert_eq!(at(&none, 0), 16);
    }
}
