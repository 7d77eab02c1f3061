//! `least-selected`: of the members that the other metrics left, those that were given least often lately are given.
//!
//! Counts are each worker's own and change with every answer, so the worker draws by them; compiled plans do not know
//! them. Counting over a window, and a member that comes back starting where the others are, keep one that was away from
//! getting everything until it has caught up.

use std::time::Duration;

/// `least_selected = { window = "1m" }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// How far back counts go.
    pub window: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
        }
    }
}
