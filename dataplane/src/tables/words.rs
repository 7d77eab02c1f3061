//! Health and shares as the worker sees them: machine words that control sends, 64 member slots in each, and one word
//! a site.
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
/// Site words that an appliance can have at most.
pub const SITES_MAX: u32 = 1 << 12;
/// A site word that is always whole, for pools whose chain does not look at what sites report.
pub const ALWAYS_WHOLE: u16 = u16::MAX;
/// Bits of a member's share.
const SHARE_BITS: usize = 4;
/// The share of a member that is a candidate in every draw, of sixteen.
pub const MEMBER_WHOLE: u8 = 1 << SHARE_BITS;
/// The share of a site that is considered in every draw.
pub const SITE_WHOLE: u16 = 256;

/// What is said of 64 member slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that are up and have a share.
    pub up: u64,
    /// Those that are given by the all-down rule when none is up.
    pub fallback: u64,
    /// Bit by bit, the lowest first: of those that are up, their share less one; of the others all ones for those that are
    /// up and have no share, which are given when no other is left.
    shares: [u64; SHARE_BITS],
}

impl Members {
    /// All that are up have the whole share.
    pub const fn whole(up: u64, fallback: u64) -> Self {
        Self {
            up,
            fallback,
            shares: [up; SHARE_BITS],
        }
    }

    /// Sets one slot: whether it is up, and its share, 0 to [`MEMBER_WHOLE`].
    pub fn set(&mut self, bit: u32, up: bool, share: u8) {
        let bit = 1u64 << (bit & 63);
        let shared = up && share > 0;
        self.up = if shared { self.up | bit } else { self.up & !bit };
        let value = match (up, share) {
            (false, _) => 0,
            (true, 0) => MEMBER_WHOLE - 1,
            (true, share) => share.min(MEMBER_WHOLE) - 1,
        };
        for (i, plane) in self.shares.iter_mut().enumerate() {
            *plane = if value >> i & 1 == 1 {
                *plane | bit
            } else {
                *plane & !bit
            };
        }
    }

    /// Members that are up and have no share.
    #[inline(always)]
    pub fn last_resort(&self) -> u64 {
        let [a, ..] = self.shares;
        a & !self.up
    }

    /// Members that are up and have less than the whole share.
    #[inline(always)]
    pub fn partial(&self) -> u64 {
        self.shares.iter().fold(self.up, |whole, plane| whole & plane) ^ self.up
    }

    /// Draws which members are candidates: each that is up with the probability of its share, independently.
    #[inline]
    pub fn draw(&self, mut random: impl FnMut() -> u64) -> u64 {
        if self.partial() == 0 {
            return self.up;
        }
        // A random number below 16 for each, compared with its share less one, lowest bits first.
        let mut above = 0;
        for share in self.shares {
            let drawn = random();
            above = drawn & !share | above & !(drawn ^ share);
        }
        self.up & !above
    }

    /// As a word.
    pub const fn word(self) -> WordValue {
        let [a, b, c, d] = self.shares;
        [self.up, self.fallback, a, b, c, d]
    }

    const fn of(value: WordValue) -> Self {
        let [up, fallback, a, b, c, d] = value;
        Self {
            up,
            fallback,
            shares: [a, b, c, d],
        }
    }
}

/// The word that says in which share of the draws a site is considered, 0 to [`SITE_WHOLE`]. 0: only when no other is
/// left.
pub const fn site_word(share: u16) -> WordValue {
    [share as u64, 0, 0, 0, 0, 0]
}

/// A worker's copy of all words. Slots are down and sites whole until told otherwise.
#[derive(Debug)]
pub struct Words {
    /// What the usual draw reads: members that are up, of words whose members all have the whole share; else 0.
    plain: Box<[u64]>,
    members: Box<[Members]>,
    /// Members that came up, until they are taken.
    returned: Box<[u64]>,
    sites: Box<[u16]>,
    /// Whether any site is not whole: spares the look-up in ordinary times.
    sites_shed: bool,
}

impl Default for Words {
    fn default() -> Self {
        let mut words = Self {
            plain: vec![0; WORDS].into(),
            members: vec![Members::default(); WORDS].into(),
            returned: vec![0; WORDS].into(),
            sites: vec![SITE_WHOLE; SITES_MAX as usize].into(),
            sites_shed: false,
        };
        words.put(ALWAYS_UP as usize, Members::whole(u64::MAX, u64::MAX));
        words
    }
}

impl Words {
    /// Takes a change. An index out of range is ignored: control never sends one.
    pub fn set(&mut self, target: WordTarget, value: WordValue) {
        match target {
            WordTarget::Members(index) if index == ALWAYS_UP as u32 => {}
            WordTarget::Members(index) => self.put(index as usize, Members::of(value)),
            WordTarget::Site(index) => {
                let [share, ..] = value;
                if let Some(site) = self.sites.get_mut(index as usize) {
                    *site = share.min(SITE_WHOLE as u64) as u16;
                }
                self.sites_shed = self.sites.iter().any(|share| *share != SITE_WHOLE);
            }
            // Not of health: the worker's clock takes it.
            WordTarget::Clock => {}
        }
    }

    fn put(&mut self, index: usize, value: Members) {
        if let (Some(plain), Some(members)) = (self.plain.get_mut(index), self.members.get_mut(index)) {
            *plain = if value.partial() == 0 { value.up } else { 0 };
            if let Some(returned) = self.returned.get_mut(index) {
                *returned |= value.up & !members.up;
            }
            *members = value;
        }
    }

    /// Members that are up, 64 slots from `64 * index`, if all of them have the whole share; `None` if there is no such
    /// word.
    #[inline(always)]
    pub fn plain(&self, index: u16) -> Option<u64> {
        self.plain.get(index as usize).copied()
    }

    /// All that is said of 64 slots from `64 * index`; all down if there is no such word.
    #[inline(always)]
    pub fn members(&self, index: u16) -> Members {
        self.members.get(index as usize).copied().unwrap_or_default()
    }

    /// Members of a word that came up and have not been [taken](Words::take_returned) since.
    #[inline]
    pub fn returned(&self, index: u16) -> u64 {
        self.returned.get(index as usize).copied().unwrap_or(0)
    }

    /// Which of the members `mask` came up since they were last taken.
    #[inline]
    pub fn take_returned(&mut self, index: u16, mask: u64) -> u64 {
        let Some(returned) = self.returned.get_mut(index as usize) else {
            return 0;
        };
        let taken = *returned & mask;
        *returned &= !mask;
        taken
    }

    /// Whether there is a site that is not whole.
    #[inline(always)]
    pub fn sites_shed(&self) -> bool {
        self.sites_shed
    }

    /// The share of a site.
    #[inline(always)]
    pub fn site(&self, site: u16) -> u16 {
        self.sites.get(site as usize).copied().unwrap_or(SITE_WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        move || rng.u64(..)
    }

    #[test]
    fn candidates_come_by_their_share() {
        let mut members = Members::default();
        // Slot i has the share i of 16; slot 20 is down.
        (0..=16).for_each(|i| members.set(i, true, i as u8));
        members.set(20, true, 16);
        members.set(20, false, 16);
        assert_eq!((members.last_resort(), members.up), (1, 0x1_fffe));
        assert_eq!(members.partial(), 0xfffe);
        let (mut counts, mut random) = ([0u32; 64], random(1));
        for _ in 0..16_000 {
            let mut drawn = members.draw(&mut random);
            while drawn != 0 {
                counts[drawn.trailing_zeros() as usize] += 1;
                drawn &= drawn - 1;
            }
        }
        for (i, &count) in counts.iter().enumerate() {
            let expected = if i <= 16 { i as f64 * 1000.0 } else { 0.0 };
            // Five standard deviations of a binomial with 16,000 tries.
            let spread = 5.0 * (expected * (1.0 - expected / 16_000.0)).sqrt();
            assert!((f64::from(count) - expected).abs() <= spread, "slot {i}: {count}");
        }
    }

    #[test]
    fn the_usual_draw_sees_whole_words_alone() {
        let mut words = Words::default();
        let mut members = Members::whole(0b111, 0b1);
        words.set(WordTarget::Members(5), members.word());
        assert_eq!((words.plain(5), words.members(5)), (Some(0b111), members));
        members.set(1, true, 3);
        words.set(WordTarget::Members(5), members.word());
        assert_eq!((words.plain(5), words.members(5).up), (Some(0), 0b111));
        members.set(1, true, 0);
        words.set(WordTarget::Members(5), members.word());
        // One that is given last is no candidate, and the others are whole.
        assert_eq!(
            (words.plain(5), words.members(5).last_resort()),
            (Some(0b101), 0b10)
        );
        assert_eq!(words.plain(ALWAYS_UP), Some(u64::MAX));
        words.set(WordTarget::Members(ALWAYS_UP as u32), [0; 6]);
        assert_eq!(words.plain(ALWAYS_UP), Some(u64::MAX));
        assert_eq!(words.plain(u16::MAX), None);
    }

    #[test]
    fn a_site_sheds_until_it_is_whole_again() {
        let mut words = Words::default();
        assert!(!words.sites_shed());
        words.set(WordTarget::Site(3), site_word(64));
        assert_eq!(
            (words.sites_shed(), words.site(3), words.site(4)),
            (true, 64, SITE_WHOLE)
        );
        words.set(WordTarget::Site(3), site_word(SITE_WHOLE));
        assert!(!words.sites_shed());
        assert_eq!(words.site(ALWAYS_WHOLE), SITE_WHOLE);
    }

    proptest! {
        #[test]
        fn slots_are_set_one_by_one(changes in proptest::collection::vec((0u32..64, any::<bool>(), 0u8..=16), 1..200)) {
            let mut members = Members::default();
            let mut slots = [(false, 0); 64];
            for (bit, up, share) in changes {
                members.set(bit, up, share);
                slots[bit as usize] = (up, share);
            }
            for (bit, &(up, share)) in slots.iter().enumerate() {
                prop_assert_eq!(members.up >> bit & 1 == 1, up && share > 0);
                prop_assert_eq!(members.last_resort() >> bit & 1 == 1, up && share == 0);
                prop_assert_eq!(members.partial() >> bit & 1 == 1, up && share > 0 && share < 16);
            }
            prop_assert_eq!(Members::of(members.word()), members);
        }
    }
}
