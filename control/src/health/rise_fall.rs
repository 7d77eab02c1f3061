//! Rise and fall: turns the results of one target's checks into its state. Pure; owned by the prober.
//!
//! The rule: a target starts [`State::Unknown`], and its first completed check decides at once,
//! either way: nothing better is known, and waiting for `rise` or `fall` results would hand out
//! members for seconds whose only evidence says that they are dead (or withhold good ones). From
//! then on `fall` failures in a row take it down and `rise` successes in a row bring it up.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is known of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No check has completed yet.
    Unknown,
    /// It may be handed out.
    Up,
    /// It may not.
    Down,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Unknown => "unknown",
            State::Up => "up",
            State::Down => "down",
        })
    }
}

/// The state machine of one target.
#[derive(Clone, Debug)]
pub struct RiseFall {
    state: State,
    rise: u32,
    fall: u32,
    successes: u32,
    failures: u32,
}

impl RiseFall {
    /// A target that nothing is known of. `rise` and `fall` of 0 mean 1.
    pub fn new(rise: u32, fall: u32) -> Self {
        Self::resume(rise, fall, State::Unknown)
    }

    /// A target that takes over the state of another, with no result in its row yet.
    pub fn resume(rise: u32, fall: u32, state: State) -> Self {
        Self {
            state,
            rise: rise.max(1),
            fall: fall.max(1),
            successes: 0,
            failures: 0,
        }
    }

    /// Forgets the state: the next result decides.
    pub fn forget(&mut self) {
        *self = Self::new(self.rise, self.fall);
    }

    /// Takes the result of a completed check; returns the new state if it changed.
    pub fn record(&mut self, success: bool) -> Option<State> {
        if success {
            self.successes = self.successes.saturating_add(1);
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.successes = 0;
        }
        let next = match self.state {
            State::Unknown if success => State::Up,
            State::Unknown => State::Down,
            State::Down if self.successes >= self.rise => State::Up,
            State::Up if self.failures >= self.fall => State::Down,
            same => same,
        };
        let changed = next != self.state;
        self.state = next;
        changed.then_some(next)
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Successes in a row up to the last completed check.
    pub fn successes(&self) -> u32 {
        self.successes
    }

    /// Failures in a row up to the last completed check.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays results ('+' success, '-' failure) and writes the state after each: u, d.
    fn play(machine: &mut RiseFall, results: &str) -> String {
        let step = |c: char| {
            machine.record(c == '+');
            match machine.state() {
                State::Up => 'u',
                State::Down => 'd',
                State::Unknown => '?',
            }
        };
        results.chars().map(step).collect()
    }

    #[test]
    fn starts_unknown_and_the_first_result_decides() {
        assert_eq!(RiseFall::new(5, 3).state(), State::Unknown);
        assert_eq!(RiseFall::new(5, 3).record(true), Some(State::Up));
        assert_eq!(RiseFall::new(5, 3).record(false), Some(State::Down));
    }

    #[test]
    fn falls_after_fall_and_rises_after_rise_in_a_row() {
        assert_eq!(play(&mut RiseFall::new(3, 2), "+--++-+++-"), "uudddddduu");
    }

    #[test]
    fn an_alternating_target_never_flaps() {
        let mut up = RiseFall::new(2, 2);
        assert_eq!(play(&mut up, "+-+-+-+-"), "uuuuuuuu");
        let mut down = RiseFall::new(2, 2);
        assert_eq!(play(&mut down, "-+-+-+-+"), "dddddddd");
    }

    #[test]
    fn changes_are_told_once_and_rows_are_counted() {
        let mut machine = RiseFall::new(2, 3);
        let told: Vec<_> = "+++---".chars().map(|c| machine.record(c == '+')).collect();
        assert_eq!(told, [Some(State::Up), None, None, None, None, Some(State::Down)]);
        assert_eq!((machine.successes(), machine.failures()), (0, 3));
        machine.record(true);
        assert_eq!((machine.successes(), machine.failures()), (1, 0));
    }

    #[test]
    fn a_resumed_state_needs_its_whole_row() {
        assert_eq!(play(&mut RiseFall::resume(2, 2, State::Up), "--"), "ud");
        assert_eq!(play(&mut RiseFall::resume(2, 2, State::Down), "++"), "du");
    }

    #[test]
    fn zero_counts_mean_one() {
        assert_eq!(play(&mut RiseFall::new(0, 0), "+-+"), "udu");
    }
}
