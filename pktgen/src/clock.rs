//! Time as the engine sees it: nanoseconds since the run's epoch, read once a turn. Tests bring
//! their own clock, so that no test waits or depends on the machine's speed.

use std::time::{Duration, Instant};

/// A source of time that can also wait a little.
pub trait Clock {
    /// Nanoseconds since the clock's epoch; never goes back.
    fn now(&mut self) -> u64;

    /// Called on a turn that moved nothing. May let other threads run until about `until` (on the
    /// scale of [`Clock::now`]), never much longer.
    fn idle(&mut self, until: u64);
}

/// What to do on a turn with nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Idle {
    /// Poll again at once: exact latencies, a whole core.
    #[default]
    Spin,
    /// Sleep for up to 50 microseconds: for machines whose cores are shared. Adds as much to latencies.
    Sleep,
}

/// The monotonic clock of the system.
#[derive(Debug)]
pub struct Monotonic {
    epoch: Instant,
    idle: Idle,
}

/// Longest sleep of an idle turn. Replies wait for that long unseen, so it bounds the error of latencies.
const NAP: Duration = Duration::from_micros(50);

impl Monotonic {
    /// A clock whose epoch is now.
    pub fn new(idle: Idle) -> Self {
        Self {
            epoch: Instant::now(),
            idle,
        }
    }
}

impl Clock for Monotonic {
    fn now(&mut self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn idle(&mut self, until: u64) {
        match self.idle {
            Idle::Spin => std::hint::spin_loop(),
            Idle::Sleep => {
                let wait = Duration::from_nanos(until.saturating_sub(self.now())).min(NAP);
                std::thread::sleep(wait);
            }
        }
    }
}
