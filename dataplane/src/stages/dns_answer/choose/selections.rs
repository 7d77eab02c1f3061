//! Least selected: the candidate that was given the fewest times for its weight comes first, counted over a sliding
//! window by each worker.
//!
//! A plain count favours a member that comes back, until it has caught up: all clients would go there. So it starts with
//! what the others have on average.

use super::draw::members;
use super::{Asker, Candidates, Chosen};
use crate::tables::Words;
use crate::tables::plans::{Family, Pool};

/// Members of a family that are counted; those beyond share counts.
const COUNTED: usize = 1 << 16;

/// How often a member was given, in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Number of the window that `now` counts.
    window: u32,
    now: u32,
    before: u32,
}

impl Count {
    /// The count as of window `window`.
    fn at(mut self, window: u32) -> Self {
        match window.wrapping_sub(self.window) {
            0 => {}
            1 => (self.before, self.now) = (self.now, 0),
            _ => (self.before, self.now) = (0, 0),
        }
        self.window = window;
        self
    }

    /// Selections over the last window length, in 65,536ths: those of the window before count by how much of it that
    /// length still covers.
    fn recent(&self, left: u64) -> u64 {
        ((self.now as u64) << 16) + self.before as u64 * left
    }
}

/// Counts of both families.
#[derive(Debug)]
pub(super) struct Selections {
    counts: Box<[Count]>,
    layout: u32,
}

impl Default for Selections {
    fn default() -> Self {
        Self {
            counts: vec![Count::default(); 2 * COUNTED].into(),
            layout: 0,
        }
    }
}

/// What one draw works with.
pub(super) struct Counts<'a> {
    counts: &'a mut [Count],
    words: &'a mut Words,
}

impl Selections {
    /// The counts of a family. With another layout indices mean other members, and counting starts anew.
    pub(super) fn counts<'a>(&'a mut self, layout: u32, v6: bool, words: &'a mut Words) -> Counts<'a> {
        if layout != self.layout {
            self.start_anew(layout);
        }
        let (v4_counts, v6_counts) = self.counts.split_at_mut(COUNTED);
        Counts {
            counts: if v6 { v6_counts } else { v4_counts },
            words,
        }
    }

    #[cold]
    fn start_anew(&mut self, layout: u32) {
        self.counts.fill(Count::default());
        self.layout = layout;
    }
}

impl Counts<'_> {
    fn count(&mut self, member: u32) -> Option<&mut Count> {
        self.counts.get_mut(member as usize % COUNTED)
    }
}

/// Takes the `pool.answers` candidates with the lowest counts for their weight, of equals the first from position `start` on.
pub(super) fn least_selected(
    candidates: &mut [Candidates],
    start: u32,
    pool: &Pool,
    family: Family<'_>,
    asker: &Asker,
    mut counts: Counts<'_>,
    chosen: &mut Chosen,
) {
    let length = u32::from(asker.window.max(1));
    let (window, passed) = (asker.seconds / length, asker.seconds % length);
    let left = u64::from(length - passed) * 65_536 / u64::from(length);
    welcome(candidates, window, left, &mut counts);
    while chosen.count < pool.answers as usize {
        let mut best: Option<(u64, u32, usize, u32, u32)> = None;
        for (place, (group, bit, member)) in members(candidates).enumerate() {
            let recent = counts
                .count(member)
                .map_or(0, |count| count.at(window).recent(left));
            let weight = match family.weights.get(member as usize) {
                _ if pool.flags & Pool::WEIGHTED == 0 => 1,
                weight => weight.copied().unwrap_or(0),
            };
            let load = match weight {
                0 => u64::MAX,
                weight => recent / u64::from(weight),
            };
            // Before the position: behind all that are not.
            let turn = (place as u32).wrapping_sub(start) & 0xffff;
            if best.is_none_or(|(lowest, first, ..)| (load, turn) < (lowest, first)) {
                best = Some((load, turn, group, bit, member));
            }
        }
        let Some((_, _, group, bit, member)) = best else {
            return;
        };
        if let Some(count) = counts.count(member) {
            *count = count.at(window);
            count.now = count.now.saturating_add(1);
        }
        if let (Some(group), Some(slot)) = (candidates.get_mut(group), chosen.members.get_mut(chosen.count)) {
            group.mask &= !(1 << bit);
            *slot = member;
        }
        chosen.count += 1;
    }
}

/// Gives candidates that came back what the others have on average, unless they have more.
fn welcome(candidates: &[Candidates], window: u32, left: u64, counts: &mut Counts<'_>) {
    let returned = |counts: &Counts<'_>, group: &Candidates| counts.words.returned(group.word) & group.mask;
    if candidates.iter().all(|group| returned(counts, group) == 0) {
        return;
    }
    let (mut sum, mut known) = (0u64, 0u64);
    for group in candidates {
        let mask = group.mask & !returned(counts, group);
        for (_, _, member) in members(&[Candidates { mask, ..*group }]) {
            sum += counts
                .count(member)
                .map_or(0, |count| count.at(window).recent(left))
                >> 16;
            known += 1;
        }
    }
    let average = sum.checked_div(known).unwrap_or(0) as u32;
    for group in candidates {
        let mask = counts.words.take_returned(group.word, group.mask);
        for (_, _, member) in members(&[Candidates { mask, ..*group }]) {
            if let Some(count) = counts.count(member) {
                *count = count.at(window);
                let recent = (count.recent(left) >> 16) as u32;
                count.now = count.now.saturating_add(average.saturating_sub(recent));
            }
        }
    }
}
