//! Chooses members of a pool for one query: the first tier with a live member, then a draw.
//!
//! Owns what a worker keeps for it: the health words, the round-robin positions, the random state.

use super::trace::{Event, Silent, Trace};
use crate::mmap::Table;
use crate::tables::plans::{ANSWERS_MAX, Cell, Group, Plans, Pool, RANKED_MAX};
use crate::tables::{NONE, Words};

/// Round-robin positions kept: one for each pool and tier, by a hash. Two that share one skew each other's turns
/// a little, so there are many.
const ROTORS: usize = 1 << 14;
/// Draws by rejection before the exact linear draw.
const REJECTIONS_MAX: usize = 8;

/// A worker's state of choice.
#[derive(Debug)]
pub struct Chooser {
    /// Health as this worker knows it.
    pub words: Words,
    draw: Draw,
    /// Candidates of the query at work: kept here, so that they need no clearing for each query.
    candidates: [Candidates; RANKED_MAX],
}

/// Members that were chosen: indices into the records of their family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) members: [u32; ANSWERS_MAX],
    pub(super) count: usize,
    /// No member was up; the all-down rule chose.
    pub(super) all_down: bool,
}

/// A group with candidates: the bits, and what to add to a bit's number for the member's index.
#[derive(Clone, Copy, Debug, Default)]
struct Candidates {
    mask: u64,
    base: u32,
}

impl Candidates {
    #[inline(always)]
    fn member(&self, bit: u32) -> u32 {
        self.base.wrapping_add(bit)
    }
}

/// Members drawn from one word, as a query keeps them between the steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// The first of `count` that stand one after the other; [`NONE`] when `members` lists them.
    pub(super) first: u32,
    pub(super) count: u8,
    pub(super) members: [u32; ANSWERS_MAX],
}

impl Default for Drawn {
    fn default() -> Self {
        Self {
            first: NONE,
            count: 0,
            members: [0; ANSWERS_MAX],
        }
    }
}

impl Chosen {
    fn none() -> Self {
        Self {
            members: [0; ANSWERS_MAX],
            count: 0,
            all_down: false,
        }
    }
}

/// How members are drawn among candidates: positions and random state.
#[derive(Debug)]
struct Draw {
    rotors: Box<[u32; ROTORS]>,
    random: u64,
}

impl Chooser {
    /// A chooser whose draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            words: Words::default(),
            draw: Draw::new(seed),
            candidates: [Candidates::default(); RANKED_MAX],
        }
    }

    /// Chooses up to `pool.answers` members.
    #[allow(clippy::too_many_arguments, reason = "few call sites")]
    pub(super) fn choose<T: Trace>(
        &mut self,
        plans: &Plans,
        pool: &Pool,
        cell: &Cell,
        weights: &Table<u16>,
        trace: &mut T,
    ) -> Chosen {
        let mut chosen = Chosen::none();
        let groups = plans.groups(pool);
        if pool.flags & Pool::ONE_WORD != 0 {
            self.in_one_word(pool, groups, cell, weights, trace, &mut chosen);
        } else {
            self.in_words(pool, groups, cell, weights, trace, &mut chosen);
        }
        for &member in chosen.members.iter().take(chosen.count) {
            trace.event(Event::Drawn { member });
        }
        chosen
    }

    /// The usual pool: candidates are the bits of one word.
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    fn in_one_word<T: Trace>(
        &mut self,
        pool: &Pool,
        groups: &[Group],
        cell: &Cell,
        weights: &Table<u16>,
        trace: &mut T,
        chosen: &mut Chosen,
    ) {
        let words = &self.words;
        let up = words.up(pool.word).unwrap_or(0);
        let (mut mask, mut site) =
            first_tier_in_word(cell, groups, up & pool.mask, trace, |g| words.site(g.site));
        if mask == 0 {
            chosen.all_down = true;
            trace.event(Event::AllDown);
            let fallback = words.fallback(pool.word) & pool.mask;
            (mask, site) = first_tier_in_word(cell, groups, fallback, trace, |_| true);
        }
        let mut drawn = Drawn::default();
        let rotor = Draw::rotor(pool, site);
        chosen.count = self.draw_any(pool, mask, rotor, weights, &mut drawn) as usize;
        chosen.members = drawn.members;
    }

    /// Draws of a pool in one word whose tier is all its sites, when the next members in turn stand one after the
    /// other: that is so when all are up, but for the last of a round. Gives how many, and the first of them.
    #[inline(always)]
    pub(super) fn next_run(&mut self, pool: &Pool, cell: &Cell, drawn: &mut u32) -> Option<u8> {
        if pool.flags != Pool::ONE_WORD || self.words.sites_out() || !cell.is_one_tier_of(pool) {
            return None;
        }
        let mask = self.words.up(pool.word)? & pool.mask;
        self.draw
            .run_in_word(pool, mask, Draw::rotor(pool, cell.first()), drawn)
    }

    /// Draws up to `pool.answers` members of a pool in one word; how many. None when all is down, or when
    /// the pool is another.
    pub(super) fn draw_in_word(
        &mut self,
        plans: &Plans,
        pool: &Pool,
        cell: &Cell,
        weights: &Table<u16>,
        drawn: &mut Drawn,
    ) -> u8 {
        if pool.flags & Pool::ONE_WORD == 0 {
            return 0;
        }
        let words = &self.words;
        let up = words.up(pool.word).unwrap_or(0) & pool.mask;
        let (mask, site) = if !words.sites_out() && cell.is_one_tier_of(pool) {
            (up, cell.first())
        } else {
            first_tier_in_word(cell, plans.groups(pool), up, &mut Silent, |g| words.site(g.site))
        };
        if mask == 0 {
            return 0;
        }
        let rotor = Draw::rotor(pool, site);
        if pool.flags & Pool::WEIGHTED == 0
            && let Some(count) = self.draw.run_in_word(pool, mask, rotor, &mut drawn.first)
        {
            return count;
        }
        self.draw_any(pool, mask, rotor, weights, drawn)
    }

    /// Draws up to `pool.answers` members of a tier in one word, one by one; how many.
    fn draw_any(
        &mut self,
        pool: &Pool,
        mask: u64,
        rotor: usize,
        weights: &Table<u16>,
        drawn: &mut Drawn,
    ) -> u8 {
        drawn.first = NONE;
        if pool.flags & Pool::WEIGHTED == 0 {
            return self.draw.next_in_word(pool, mask, rotor, &mut drawn.members);
        }
        let mut chosen = Chosen::none();
        let mut candidates = [Candidates {
            mask,
            base: pool.base,
        }];
        self.draw
            .by_weight(&mut candidates, mask.count_ones(), pool, weights, &mut chosen);
        drawn.members = chosen.members;
        chosen.count as u8
    }

    /// Any pool: candidates are collected site by site.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "as its twin")]
    fn in_words<T: Trace>(
        &mut self,
        pool: &Pool,
        groups: &[Group],
        cell: &Cell,
        weights: &Table<u16>,
        trace: &mut T,
        chosen: &mut Chosen,
    ) {
        let words = &self.words;
        let candidates = &mut self.candidates;
        let mut found = first_tier(cell, groups, candidates, trace, |group| {
            (words.site(group.site), words.up(group.word).unwrap_or(0))
        });
        if found.total == 0 {
            chosen.all_down = true;
            trace.event(Event::AllDown);
            found = first_tier(cell, groups, candidates, trace, |g| {
                (true, words.fallback(g.word))
            });
        }
        let candidates = candidates.get_mut(..found.groups).unwrap_or(&mut []);
        if pool.flags & Pool::WEIGHTED != 0 {
            self.draw
                .by_weight(candidates, found.total, pool, weights, chosen);
        } else {
            self.draw.in_turn(
                candidates,
                found.total,
                Draw::rotor(pool, found.site),
                pool.answers,
                chosen,
            );
        }
    }
}

impl Draw {
    fn new(seed: u64) -> Self {
        let mut draw = Self {
            rotors: Box::new([0; ROTORS]),
            random: seed,
        };
        // Workers start at different places, so that together they do not start every pool at its first member.
        for i in 0..ROTORS {
            let start = draw.random() >> 40;
            if let Some(rotor) = draw.rotors.get_mut(i) {
                *rotor = start as u32;
            }
        }
        draw
    }

    /// Index of the position of a tier, which is known by its first site, of a pool.
    #[inline(always)]
    fn rotor(pool: &Pool, site: u8) -> usize {
        let hash = (pool.groups.wrapping_mul(61).wrapping_add(site as u32)).wrapping_mul(0x9e37_79b1);
        const { assert!(ROTORS == 1 << 14) };
        (hash >> 18) as usize
    }

    /// The next random word (SplitMix64: one addition and two multiplications).
    #[inline]
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, for n up to 2^32: multiply and shift.
    #[inline]
    fn below(&mut self, n: u64) -> u64 {
        ((self.random() >> 32) * n) >> 32
    }

    /// Round robin over the bits of one word, when the next ones stand one after the other: how many, and the first.
    #[inline(always)]
    fn run_in_word(&mut self, pool: &Pool, mask: u64, rotor: usize, drawn: &mut u32) -> Option<u8> {
        let rotor = self.rotors.get_mut(rotor)?;
        let first = mask.trailing_zeros();
        // 0 when all is down.
        let run = mask >> (first & 63);
        // The position as an offset from the first.
        let mut at = (*rotor & 63).wrapping_sub(first);
        if at >= run.count_ones() {
            at = 0;
        }
        let next = at + pool.answers as u32;
        if run & run.wrapping_add(1) != 0 || next > run.count_ones() {
            return None;
        }
        *rotor = first + next;
        *drawn = pool.base.wrapping_add(first + at);
        Some(pool.answers)
    }

    /// Round robin over the bits of one word: the position is the bit behind the last one given.
    fn next_in_word(&mut self, pool: &Pool, mask: u64, rotor: usize, members: &mut [u32; ANSWERS_MAX]) -> u8 {
        let Some(rotor) = self.rotors.get_mut(rotor) else {
            return 0;
        };
        let count = (pool.answers as u32).min(mask.count_ones());
        // The bits from the position on; once they are given, those before it.
        let mut left = mask & (u64::MAX << (*rotor & 63));
        let mut bit = (*rotor).wrapping_sub(1);
        for member in members.iter_mut().take(count as usize) {
            if left == 0 {
                left = mask;
            }
            bit = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            *member = pool.base.wrapping_add(bit);
        }
        *rotor = bit.wrapping_add(1);
        count as u8
    }

    /// Round robin: the next `answers` candidates in order, starting where the last answer ended.
    #[inline(always)]
    fn in_turn(
        &mut self,
        candidates: &[Candidates],
        total: u32,
        rotor: usize,
        answers: u8,
        chosen: &mut Chosen,
    ) {
        let Some(rotor) = self.rotors.get_mut(rotor) else {
            return;
        };
        let count = (answers as u32).min(total);
        if count == 0 {
            return;
        }
        let mut skip = if *rotor < total { *rotor } else { *rotor % total };
        let next = skip + count;
        *rotor = if next >= total { next - total } else { next };
        chosen.count = count as usize;
        let mut groups = candidates.iter().cycle();
        let mut group = Candidates::default();
        // Ends: `skip` is below the sum of all groups' bits.
        for g in groups.by_ref().take(candidates.len()) {
            group = *g;
            let here = group.mask.count_ones();
            if skip < here {
                break;
            }
            skip -= here;
        }
        let mut mask = group.mask;
        for _ in 0..skip {
            mask &= mask.wrapping_sub(1);
        }
        for member in chosen.members.iter_mut().take(count as usize) {
            // At most one turn around: every group holds a bit, and count is at most the total.
            while mask == 0 {
                let Some(g) = groups.next() else { return };
                group = *g;
                mask = group.mask;
            }
            *member = group.member(mask.trailing_zeros());
            mask &= mask.wrapping_sub(1);
        }
    }

    /// Weighted draw without replacement. A candidate is drawn uniformly and kept with probability weight over
    /// highest weight; after a few rejections the draw is made exactly, by summing. Both give each
    /// member its share of the candidates' weights. Weight 0 is drawn only when nothing else is left.
    fn by_weight(
        &mut self,
        candidates: &mut [Candidates],
        mut total: u32,
        pool: &Pool,
        weights: &[u16],
        chosen: &mut Chosen,
    ) {
        let weight = |member: u32| weights.get(member as usize).copied().unwrap_or(0) as u64;
        while chosen.count < pool.answers as usize && total > 0 {
            let mut drawn = None;
            if pool.weight_max > 0 {
                for _ in 0..REJECTIONS_MAX {
                    let (group, bit) = nth(candidates, self.below(total as u64) as u32);
                    let member = candidates.get(group).map_or(0, |g| g.member(bit));
                    if self.below(pool.weight_max as u64) < weight(member) {
                        drawn = Some((group, bit));
                        break;
                    }
                }
            }
            let (group, bit) = drawn.unwrap_or_else(|| {
                let sum: u64 = members(candidates).map(|(_, _, member)| weight(member)).sum();
                if sum == 0 {
                    return nth(candidates, self.below(total as u64) as u32);
                }
                let mut rest = self.below(sum);
                for (group, bit, member) in members(candidates) {
                    if rest < weight(member) {
                        return (group, bit);
                    }
                    rest -= weight(member);
                }
                (0, 0)
            });
            if let (Some(g), Some(slot)) = (candidates.get_mut(group), chosen.members.get_mut(chosen.count)) {
                *slot = g.member(bit);
                g.mask &= !(1 << bit);
            }
            chosen.count += 1;
            total -= 1;
        }
    }
}

/// Every candidate: (group, bit, member). As many steps as candidates.
fn members(candidates: &[Candidates]) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
    candidates.iter().enumerate().flat_map(|(i, group)| {
        let mut mask = group.mask;
        std::iter::from_fn(move || {
            let bit = mask.trailing_zeros();
            mask &= mask.wrapping_sub(1);
            (bit < 64).then(|| (i, bit, group.member(bit)))
        })
    })
}

/// The n-th candidate: (group, bit).
fn nth(candidates: &[Candidates], mut n: u32) -> (usize, u32) {
    for (i, group) in candidates.iter().enumerate() {
        let here = group.mask.count_ones();
        if n < here {
            let mut mask = group.mask;
            for _ in 0..n {
                mask &= mask.wrapping_sub(1);
            }
            return (i, mask.trailing_zeros());
        }
        n -= here;
    }
    (0, 0)
}

/// The bits of the first tier that has any of `live`, and the tier's first site; all groups are in one word.
#[inline(always)]
fn first_tier_in_word<T: Trace>(
    cell: &Cell,
    groups: &[Group],
    live: u64,
    trace: &mut T,
    may_give: impl Fn(&Group) -> bool,
) -> (u64, u8) {
    let (mut mask, mut tier, mut first) = (0, 0, None);
    for (site, last) in cell.ranked() {
        first = first.or(Some(site));
        if let Some(group) = groups.get(site as usize) {
            let site_up = may_give(group);
            let up = (live & group.mask) >> shift(group);
            trace.event(Event::Candidates {
                tier,
                site,
                site_up,
                up,
            });
            if site_up {
                mask |= live & group.mask;
            }
        }
        if last {
            if mask != 0 {
                break;
            }
            tier += 1;
            first = None;
        }
    }
    (mask, first.unwrap_or(0))
}

struct Tier {
    groups: usize,
    total: u32,
    /// The tier's first site.
    site: u8,
}

/// Collects the candidates of the first tier that has any, by `state`: (site may be given, bits that are up).
#[inline(always)]
fn first_tier<T: Trace>(
    cell: &Cell,
    groups: &[Group],
    candidates: &mut [Candidates; RANKED_MAX],
    trace: &mut T,
    state: impl Fn(&Group) -> (bool, u64),
) -> Tier {
    let mut found = Tier {
        groups: 0,
        total: 0,
        site: 0,
    };
    let (mut tier, mut begins) = (0, true);
    for (site, last) in cell.ranked() {
        if begins {
            found.site = site;
        }
        begins = last;
        if let Some(group) = groups.get(site as usize) {
            let (site_up, up) = state(group);
            let mask = if site_up { up & group.mask } else { 0 };
            trace.event(Event::Candidates {
                tier,
                site,
                site_up,
                up: (up & group.mask) >> shift(group),
            });
            if mask != 0
                && let Some(slot) = candidates.get_mut(found.groups)
            {
                *slot = Candidates {
                    mask,
                    base: group.first.wrapping_sub(shift(group)),
                };
                found.groups += 1;
                found.total += mask.count_ones();
            }
        }
        if last {
            if found.total > 0 {
                break;
            }
            tier += 1;
        }
    }
    found
}

/// The number of a group's lowest bit; an empty group has none.
#[inline(always)]
fn shift(group: &Group) -> u32 {
    group.mask.trailing_zeros() & 63
}
