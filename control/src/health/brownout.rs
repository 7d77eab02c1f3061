//! Brown-outs: a target that answers, and fails too often. Between two marks of its error rate its share is
//! shed in proportion; above the upper one it is down. Pure; owned by [`super::machine`].
//!
//! Noise does not make it flap: entering either state takes evidence, the sum of how far checks were beyond the
//! mark (a one-sided CUSUM, as of Page 1954), and leaving it takes a rate well below. A target that fails
//! always sheds after an eighth of the window's checks and is down after two thirds of them; one whose error rate lies
//! below a mark gathers no evidence, however long it is watched.

use super::Standing;
use super::window::{Badness, ErrorWindow};
use crate::config::model::BrownoutRule;

/// The state of one target.
#[derive(Clone, Debug)]
pub struct Brownout {
    rule: BrownoutRule,
    window: ErrorWindow,
    /// Sums of what was beyond each mark, thousandths.
    shed_evidence: i32,
    down_evidence: i32,
    degraded: bool,
    down: bool,
    share: u8,
}

impl Brownout {
    /// A target of which nothing bad is known.
    pub fn new(rule: BrownoutRule) -> Self {
        Self {
            window: ErrorWindow::new(rule.window),
            rule,
            shed_evidence: 0,
            down_evidence: 0,
            degraded: false,
            down: false,
            share: Standing::WHOLE,
        }
    }

    /// Takes a check.
    pub fn record(&mut self, badness: Badness) {
        self.window.push(badness);
        let rate = self.window.rate();
        let BrownoutRule {
            window,
            shed_above,
            down_above,
            ..
        } = self.rule;
        let add = |sum: &mut i32, mark: u16, limit: i32| {
            *sum = (*sum + i32::from(badness) - i32::from(mark)).clamp(0, limit + 1);
            *sum > limit
        };
        let checks = i32::from(window) * 1000;
        let shed = add(&mut self.shed_evidence, shed_above, checks / 8);
        let down = add(&mut self.down_evidence, down_above, checks / 3);
        if self.down && rate <= (shed_above + down_above) / 2 {
            self.down = false;
            self.down_evidence = 0;
            self.degraded = true;
            self.share = self.proportion(rate);
        } else if !self.down && down {
            self.down = true;
        }
        if !self.degraded && shed {
            self.degraded = true;
            self.share = self.proportion(rate);
        } else if self.degraded && !self.down && rate <= shed_above / 2 {
            self.degraded = false;
            self.shed_evidence = 0;
            self.share = Standing::WHOLE;
        } else if self.degraded {
            let share = self.proportion(rate);
            // One sixteenth is less than chance moves it by.
            if share.abs_diff(self.share) >= 2 {
                self.share = share;
            }
        }
    }

    /// Sixteenths at an error rate: all at the lower mark, the least at the upper one, a line between.
    fn proportion(&self, rate: u16) -> u8 {
        let (low, high) = (i32::from(self.rule.shed_above), i32::from(self.rule.down_above));
        let whole = i32::from(Standing::WHOLE);
        let share = whole * (high - i32::from(rate)) / (high - low).max(1);
        share.clamp(1, whole) as u8
    }

    /// Forgets all: the target was down for another reason and starts anew.
    pub fn clear(&mut self) {
        *self = Self::new(self.rule);
    }

    /// It fails so often that it counts as down.
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Its share, 1 to 16 sixteenths.
    pub fn share(&self) -> u8 {
        self.share
    }

    /// Bad checks in thousandths, and of how many checks.
    pub fn rate(&self) -> (u16, usize) {
        (self.window.rate(), self.window.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::BAD;
    use super::*;

    fn rule() -> BrownoutRule {
        BrownoutRule {
            window: 20,
            shed_above: 100,
            down_above: 500,
            slower_than: None,
        }
    }

    /// Checks that fail at random, `permille` of them.
    fn noise(machine: &mut Brownout, rng: &mut fastrand::Rng, permille: u16) {
        machine.record(if rng.u16(0..1000) < permille { BAD } else { 0 });
    }

    #[test]
    fn the_share_falls_in_a_line_between_the_marks() {
        let machine = Brownout::new(rule());
        // 16 * (50 - rate) / (50 - 10), by hand.
        for (rate, share) in [
            (0, 16),
            (100, 16),
            (200, 12),
            (300, 8),
            (400, 4),
            (490, 1),
            (500, 1),
            (1000, 1),
        ] {
            assert_eq!(machine.proportion(rate), share, "{rate}");
        }
    }

    #[test]
    fn a_target_that_always_fails_sheds_soon_and_goes_down() {
        let mut machine = Brownout::new(rule());
        for _ in 0..20 {
            machine.record(0);
        }
        let mut seen = Vec::new();
        for check in 1..=20 {
            machine.record(BAD);
            seen.push((check, machine.is_down(), machine.share()));
        }
        // 0.9 a check beyond the lower mark, 2.5 are needed: the third. Rate 15 %: 16 * 35 / 40 = 14.
        assert_eq!(seen[1], (2, false, 16));
        assert_eq!(seen[2], (3, false, 14));
        // 0.5 a check beyond the upper mark, 6.67 are needed: the fourteenth. By then the share is 2 of 16 (at 45 %; the
        // step from there to 1 is left out).
        assert_eq!(seen.iter().find(|s| s.1), Some(&(14, true, 2)));
        // It comes back when no more than the middle of the marks, 30 %, is bad: 6 of 20.
        let back = (1..=20).find(|_| {
            machine.record(0);
            !machine.is_down()
        });
        assert_eq!((back, machine.share()), (Some(14), 8));
        for _ in 0..6 {
            machine.record(0);
        }
        assert_eq!(machine.share(), 16);
    }

    #[test]
    fn a_third_of_failures_is_shed_in_proportion_and_never_down() {
        // 40 targets for ten minutes of a check a second.
        let mut shares = 0;
        for seed in 0..40 {
            let (mut machine, mut rng) = (Brownout::new(rule()), fastrand::Rng::with_seed(seed));
            for check in 0..600 {
                noise(&mut machine, &mut rng, 300);
                assert!(!machine.is_down(), "seed {seed}, check {check}");
                if check >= 60 {
                    shares += u32::from(machine.share());
                }
            }
        }
        let mean = f64::from(shares) / (40.0 * 540.0);
        // 8 sixteenths; the line is cut off at 1 and 16, which chance reaches seldom.
        assert!((7.5..8.8).contains(&mean), "{mean}");
    }

    #[test]
    fn noise_below_the_marks_changes_next_to_nothing() {
        let (mut whole, mut all, mut entered) = (0, 0, 0);
        for seed in 0..40 {
            let (mut machine, mut rng) = (Brownout::new(rule()), fastrand::Rng::with_seed(seed));
            let mut last = 16;
            for _ in 0..600 {
                noise(&mut machine, &mut rng, 30);
                assert!(!machine.is_down());
                whole += u32::from(machine.share() == 16);
                entered += u32::from(last == 16 && machine.share() < 16);
                last = machine.share();
                all += 1;
            }
        }
        assert!(whole * 100 >= all * 98, "{whole} of {all} checks in full share");
        // Fewer than one target in four shed at all in ten minutes.
        assert!(entered <= 10, "{entered} times shed");
    }

    #[test]
    fn half_reported_errors_count_as_half_a_failure() {
        let mut machine = Brownout::new(rule());
        for _ in 0..60 {
            machine.record(300);
        }
        assert_eq!(
            (machine.is_down(), machine.share(), machine.rate()),
            (false, 8, (300, 20))
        );
        for _ in 0..60 {
            machine.record(900);
        }
        assert!(machine.is_down());
        machine.clear();
        assert_eq!((machine.is_down(), machine.share()), (false, 16));
    }
}
