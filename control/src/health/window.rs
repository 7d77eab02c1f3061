//! The window of a target's last checks: which share of them was bad. Pure; owned by [`super::brownout`].

use std::collections::VecDeque;

/// How bad one check was, in thousandths: 0 or [`BAD`], or the share of errors that a site reports of itself.
pub type Badness = u16;

/// A check that failed.
pub const BAD: Badness = 1000;

/// The last checks of one target.
#[derive(Clone, Debug)]
pub struct ErrorWindow {
    size: usize,
    values: VecDeque<Badness>,
    sum: u32,
}

impl ErrorWindow {
    /// An empty window over `size` checks; 0 means 1.
    pub fn new(size: u16) -> Self {
        Self {
            size: usize::from(size).max(1),
            values: VecDeque::new(),
            sum: 0,
        }
    }

    /// Takes a check; the oldest goes when the window is full.
    pub fn push(&mut self, badness: Badness) {
        let badness = badness.min(BAD);
        if self.values.len() == self.size {
            self.sum -= u32::from(self.values.pop_front().unwrap_or(0));
        }
        self.values.push_back(badness);
        self.sum += u32::from(badness);
    }

    /// Share of bad checks in thousandths. Until half of the window is there the missing ones count as good, or a
    /// single failure would be all that is known.
    pub fn rate(&self) -> u16 {
        let count = self.values.len().max(self.size.div_ceil(2)) as u32;
        // At most 1000: no value is above it.
        (self.sum / count) as u16
    }

    /// How many checks are in it.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no check is in it.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.values.clear();
        self.sum = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_checks() {
        let mut window = ErrorWindow::new(10);
        assert_eq!(window.rate(), 0);
        window.push(BAD);
        // One of five: half of the window is taken as seen.
        assert_eq!(window.rate(), 200);
        for _ in 0..9 {
            window.push(0);
        }
        assert_eq!((window.rate(), window.len()), (100, 10));
        window.push(0);
        assert_eq!((window.rate(), window.len()), (0, 10), "the oldest is gone");
        window.push(300);
        assert_eq!(window.rate(), 30, "a reported share counts as it is");
        window.clear();
        assert!(window.is_empty() && window.rate() == 0);
    }
}
