//! Health as the worker sees it: machine words that control sends, 64 member slots in each.
//!
//! Owned by one worker; written by `worker` from the down ring, read by `stages::dns_answer`. Words are
//! absolute, so the newest always wins, and they are addressed by slots that keep their meaning over
//! snapshots, so that a word is valid whichever snapshot is current.

use crate::link::{WordTarget, WordValue};

/// Words of member slots.
const WORDS: usize = 1 << 12;
/// A word whose slots are always up, for pools whose chain has no health metric.
pub const ALWAYS_UP: u16 = WORDS as u16 - 1;
/// Member slots that an appliance can have at most: 64 in each word but [`ALWAYS_UP`].
pub const SLOTS_MAX: u32 = ALWAYS_UP as u32 * 64;
/// Sites that an appliance can have at most.
pub const SITES_MAX: u32 = 1 << 12;

/// A worker's copy of all words. Slots are down and sites up until told otherwise.
#[derive(Debug)]
pub struct Words {
    up: Box<[u64]>,
    fallback: Box<[u64]>,
    sites: Box<[u64]>,
    /// Whether any site may not be given: spares the look-up in ordinary times.
    sites_out: bool,
}

impl Default for Words {
    fn default() -> Self {
        let mut up = vec![0; WORDS];
        if let Some(always) = up.last_mut() {
            *always = u64::MAX;
        }
        Self {
            up: up.into(),
            fallback: vec![0; WORDS].into(),
            sites: vec![u64::MAX; (SITES_MAX / 64) as usize].into(),
            sites_out: false,
        }
    }
}

impl Words {
    /// Takes a change: for members the bits that are up and the bits that are given when no member of the
    /// pool is up; for sites the bits that may be given. An index out of range is ignored: control never
    /// sends one.
    pub fn set(&mut self, target: WordTarget, value: WordValue) {
        let [first, second] = value;
        let (word, index) = match target {
            WordTarget::Members(index) if index == ALWAYS_UP as u32 => return,
            WordTarget::Members(index) => (&mut self.up, index),
            WordTarget::Sites(index) => (&mut self.sites, index),
            // Not of health: the worker's clock takes it.
            WordTarget::Clock => return,
        };
        if let Some(word) = word.get_mut(index as usize) {
            *word = first;
        }
        if let WordTarget::Sites(_) = target {
            self.sites_out = self.sites.iter().any(|word| *word != u64::MAX);
        }
        if let WordTarget::Members(index) = target
            && let Some(word) = self.fallback.get_mut(index as usize)
        {
            *word = second;
        }
    }

    /// Members that are up, 64 slots from `64 * index`; `None` if there is no such word.
    #[inline(always)]
    pub fn up(&self, index: u16) -> Option<u64> {
        self.up.get(index as usize).copied()
    }

    /// Members that are given when none is up.
    #[inline(always)]
    pub fn fallback(&self, index: u16) -> u64 {
        self.fallback.get(index as usize).copied().unwrap_or(0)
    }

    /// Whether there is a site that may not be given.
    #[inline(always)]
    pub fn sites_out(&self) -> bool {
        self.sites_out
    }

    /// Whether a site may be given.
    #[inline(always)]
    pub fn site(&self, site: u16) -> bool {
        self.sites
            .get(site as usize / 64)
            .is_none_or(|word| word >> (site % 64) & 1 == 1)
    }
}
