//! What all rules of a check make of one target: results in, state and [`Standing`] out. Pure, told the time by
//! its caller; owned by the prober.
//!
//! [`RiseFall`] says up or down. With a brown-out rule, failures by which a target shows that it is alive and
//! in trouble (errors that it answers with, answers that are late) count in the rule's window alone, and all
//! others in both. A target that comes back ramps up; one that fell too often is dampened. The first result of a new target
//! is no recovery and starts no ramp.

use super::brownout::Brownout;
use super::dampening::Dampening;
use super::probe::{Fault, Outcome};
use super::slow_start::SlowStart;
use super::window::BAD;
use super::{RiseFall, Standing, State};
use crate::config::model::Check;
use std::time::Duration;
use tokio::time::Instant;

/// The machine of one target.
#[derive(Clone, Debug)]
pub struct Machine {
    rise_fall: RiseFall,
    brownout: Option<Brownout>,
    slower_than: Option<Duration>,
    slow_start: SlowStart,
    dampening: Option<Dampening>,
    /// Share of errors that its site reports, thousandths, and until when that is believed.
    reported: Option<(u16, Instant)>,
    /// The state is remembered from long ago: the next result decides alone.
    doubtful: bool,
}

impl Machine {
    /// A target that nothing is known of.
    pub fn new(check: &Check, now: Instant) -> Self {
        Self::resume(check, State::Unknown, now)
    }

    /// A target whose state was known before.
    pub fn resume(check: &Check, state: State, now: Instant) -> Self {
        let grade = &check.grade;
        Self {
            rise_fall: RiseFall::resume(check.rise, check.fall, state),
            brownout: grade.brownout.map(Brownout::new),
            slower_than: grade.brownout.and_then(|rule| rule.slower_than),
            slow_start: SlowStart::new(grade.slow_start),
            dampening: grade.dampening.map(|rule| Dampening::new(rule, now)),
            reported: None,
            doubtful: false,
        }
    }

    /// As this one stands, by the rules of another check. What the window holds was gathered at another pace and
    /// is left behind.
    pub fn taken_over(&self, check: &Check, now: Instant) -> Self {
        let mut next = Self::resume(check, self.state(), now);
        next.slow_start = self.slow_start.with_length(check.grade.slow_start);
        if let (Some(rule), Some(old)) = (check.grade.dampening, self.dampening) {
            next.dampening = Some(old.with_rule(rule));
        }
        next.reported = self.reported;
        next
    }

    /// Takes a completed check that took `took`; [`Outcome::NotRun`] is none. Returns the new state if it changed.
    pub fn record(&mut self, now: Instant, outcome: &Outcome, took: Duration) -> Option<State> {
        let before = self.state();
        if matches!(outcome, Outcome::NotRun(_)) {
            return None;
        }
        if std::mem::take(&mut self.doubtful) {
            self.rise_fall.forget();
        }
        let reported = self.reported.filter(|(_, until)| now < *until).map_or(0, |r| r.0);
        let Some(brownout) = &mut self.brownout else {
            self.rise_fall.record(matches!(outcome, Outcome::Success(_)));
            return self.changed(before, now);
        };
        let was_up = self.rise_fall.state() == State::Up;
        let (badness, in_a_row) = match outcome {
            Outcome::Success(_) if self.slower_than.is_some_and(|limit| took > limit) => (BAD, Some(true)),
            Outcome::Success(_) => (0, Some(true)),
            // A target that is up is not judged by a row of these, which chance makes; one that is not has
            // no window yet.
            Outcome::Failure(Fault::Error | Fault::Timeout, _) => (BAD, (!was_up).then_some(false)),
            Outcome::Failure(Fault::Refused | Fault::Wrong, _) => (BAD, Some(false)),
            Outcome::NotRun(_) => return None,
        };
        if let Some(success) = in_a_row {
            self.rise_fall.record(success);
        }
        match self.rise_fall.state() {
            State::Up if was_up => brownout.record(badness.max(reported)),
            _ => brownout.clear(),
        }
        self.changed(before, now)
    }

    /// Starts and stops ramps by a change of state; returns the new state if it changed.
    fn changed(&mut self, before: State, now: Instant) -> Option<State> {
        let after = self.state();
        if after == before {
            return None;
        }
        match (before, after) {
            (State::Down, State::Up) => self.slow_start.begin(now),
            (State::Up, State::Down) => {
                self.slow_start.stop();
                if let Some(dampening) = &mut self.dampening {
                    dampening.fell(now);
                }
            }
            _ => {}
        }
        Some(after)
    }

    /// Time has passed: what was suppressed long enough comes back by the ramp.
    pub fn tick(&mut self, now: Instant) {
        let released = self.dampening.as_mut().is_some_and(|d| d.tick(now));
        if released && self.state() == State::Up {
            self.slow_start.begin(now);
        }
    }

    /// The target's site says that `permille` of its requests fail; believed until `until`. Counts with the checks.
    pub fn report(&mut self, permille: u16, until: Instant) {
        self.reported = Some((permille.min(BAD), until));
    }

    /// The next result decides, as if nothing were known: what is remembered is too old to be continued.
    pub fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Up or down, by the rows of checks and by the brown-out rule.
    pub fn state(&self) -> State {
        match self.rise_fall.state() {
            State::Up if self.brownout.as_ref().is_some_and(Brownout::is_down) => State::Down,
            state => state,
        }
    }

    /// How it stands. A suppressed target has a share of 0.
    pub fn standing(&self, now: Instant) -> Standing {
        if self.state() != State::Up {
            return Standing::DOWN;
        }
        let brownout = self.brownout.as_ref().map_or(Standing::WHOLE, Brownout::share);
        let share = match &self.dampening {
            Some(dampening) if dampening.is_suppressed() => 0,
            _ => brownout.min(self.slow_start.share(now)),
        };
        Standing { up: true, share }
    }

    /// Why its share is not whole, or why it is down though checks succeed, in words; `None` otherwise.
    pub fn remark(&self, now: Instant) -> Option<String> {
        let errors = |brownout: &Brownout| {
            let (rate, count) = brownout.rate();
            format!(
                "brown-out: {}.{} % of the last {count} checks are bad",
                rate / 10,
                rate % 10
            )
        };
        let brownout = self.brownout.as_ref();
        match self.rise_fall.state() {
            State::Up => {}
            _ => return None,
        }
        if let Some(brownout) = brownout.filter(|b| b.is_down()) {
            return Some(errors(brownout));
        }
        if let Some(dampening) = self.dampening.as_ref().filter(|d| d.is_suppressed()) {
            return Some(format!("flapped: penalty {:.0}", dampening.penalty()));
        }
        let ramp = self.slow_start.share(now);
        match brownout {
            Some(brownout) if brownout.share() < Standing::WHOLE && brownout.share() <= ramp => {
                Some(errors(brownout))
            }
            _ if ramp < Standing::WHOLE => Some("slow start".into()),
            _ => None,
        }
    }

    /// Successes in a row up to the last completed check.
    pub fn successes(&self) -> u32 {
        self.rise_fall.successes()
    }

    /// Failures in a row up to the last completed check.
    pub fn failures(&self) -> u32 {
        self.rise_fall.failures()
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
