//! Flap dampening, after RFC 2439: each fall adds a penalty that halves with time; above one threshold the
//! target is suppressed, below another it may be used again. Pure; owned by [`super::machine`].
//!
//! A suppressed target has no share, so it is given only when no other is left: dampening alone never leaves a
//! service without members.

use crate::config::model::DampeningRule;
use tokio::time::Instant;

/// What one fall adds: the figure of merit that RFC 2439 and routers use.
pub const PENALTY: f64 = 1000.0;

/// The penalty of one target.
#[derive(Clone, Copy, Debug)]
pub struct Dampening {
    rule: DampeningRule,
    penalty: f64,
    at: Instant,
    suppressed: bool,
}

impl Dampening {
    /// No penalty.
    pub fn new(rule: DampeningRule, now: Instant) -> Self {
        Self {
            rule,
            penalty: 0.0,
            at: now,
            suppressed: false,
        }
    }

    /// As this one stands, by another rule.
    pub fn with_rule(self, rule: DampeningRule) -> Self {
        Self { rule, ..self }
    }

    fn decay(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at);
        self.penalty *= (-(elapsed.as_secs_f64() / self.rule.half_life.as_secs_f64())).exp2();
        self.at = now;
    }

    /// It fell.
    pub fn fell(&mut self, now: Instant) {
        self.decay(now);
        // From the ceiling it takes `max` to decay to the reuse threshold (RFC 2439 section 4.2).
        let halvings = self.rule.max.as_secs_f64() / self.rule.half_life.as_secs_f64();
        let ceiling = f64::from(self.rule.reuse) * halvings.exp2();
        self.penalty = (self.penalty + PENALTY).min(ceiling);
        self.suppressed |= self.penalty >= f64::from(self.rule.suppress);
    }

    /// Time has passed; true when that ended the suppression.
    pub fn tick(&mut self, now: Instant) -> bool {
        self.decay(now);
        let released = self.suppressed && self.penalty < f64::from(self.rule.reuse);
        self.suppressed &= !released;
        released
    }

    /// It flapped too much.
    pub fn is_suppressed(&self) -> bool {
        self.suppressed
    }

    /// The penalty as of the last fall or tick.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    fn routers() -> DampeningRule {
        DampeningRule {
            half_life: MINUTE * 15,
            suppress: 2000,
            reuse: 750,
            max: MINUTE * 60,
        }
    }

    /// Minutes until it is released, looked at every second.
    fn released_after(machine: &mut Dampening, from: Instant) -> Option<f64> {
        (1..7200)
            .find(|s| machine.tick(from + Duration::from_secs(*s)))
            .map(|s| s as f64 / 60.0)
    }

    #[test]
    fn one_fall_is_forgiven_and_three_are_not() {
        let start = Instant::now();
        let mut machine = Dampening::new(routers(), start);
        machine.fell(start);
        machine.fell(start + MINUTE);
        // 1000 * 2^(-1/15) + 1000 = 1954.8.
        assert!((machine.penalty() - 1954.8).abs() < 0.1, "{}", machine.penalty());
        assert!(!machine.is_suppressed());
        machine.fell(start + MINUTE * 2);
        assert!(machine.is_suppressed());
        // 2866.6 now; 15 min * log2(2866.6 / 750) = 29.0 min.
        let after = released_after(&mut machine, start + MINUTE * 2).expect("released");
        assert!((after - 29.0).abs() < 0.1, "{after}");
        assert!(!machine.is_suppressed());
    }

    #[test]
    fn the_penalty_has_a_ceiling_so_that_no_suppression_outlasts_its_maximum() {
        let start = Instant::now();
        let mut machine = Dampening::new(routers(), start);
        for _ in 0..1000 {
            machine.fell(start);
        }
        // 750 * 2^(60/15).
        assert!((machine.penalty() - 12_000.0).abs() < 0.1);
        let after = released_after(&mut machine, start).expect("released");
        assert!((after - 60.0).abs() < 0.1, "{after}");
    }
}
