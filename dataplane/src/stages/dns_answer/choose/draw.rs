//! Draws among candidates: in turn and by weight. Owns a worker's round-robin positions and random state.

use super::{Candidates, Chosen};
use crate::tables::plans::{ANSWERS_MAX, Pool};

/// Round-robin positions kept: one for each pool and tier, by a hash. Two that share one skew each other's turns
/// a little, so there are many.
const ROTORS: usize = 1 << 14;
/// Draws by rejection before the exact linear draw.
const REJECTIONS_MAX: usize = 8;

/// How members are drawn among candidates: positions and random state.
#[derive(Debug)]
pub(super) struct Draw {
    rotors: Box<[u32; ROTORS]>,
    random: u64,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
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
    pub(super) fn rotor(pool: &Pool, site: u8) -> usize {
        let hash = (pool.groups.wrapping_mul(61).wrapping_add(site as u32)).wrapping_mul(0x9e37_79b1);
        const { assert!(ROTORS == 1 << 14) };
        (hash >> 18) as usize
    }

    /// The position of a round over `total` candidates, moved on by one.
    pub(super) fn turn(&mut self, rotor: usize, total: u32) -> u32 {
        let Some(rotor) = self.rotors.get_mut(rotor) else {
            return 0;
        };
        let turn = *rotor % total.max(1);
        *rotor = turn + 1;
        turn
    }

    /// The next random word (SplitMix64: one addition and two multiplications).
    #[inline]
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, for n up to 2^32: multiply and shift.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((self.random() >> 32) * n) >> 32
    }

    /// Round robin over the bits of one word, when the next ones stand one after the other: how many, and the first.
    #[inline(always)]
    pub(super) fn run_in_word(
        &mut self,
        pool: &Pool,
        mask: u64,
        rotor: usize,
        drawn: &mut u32,
    ) -> Option<u8> {
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
    pub(super) fn next_in_word(
        &mut self,
        pool: &Pool,
        mask: u64,
        rotor: usize,
        members: &mut [u32; ANSWERS_MAX],
    ) -> u8 {
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
    pub(super) fn in_turn(
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
    pub(super) fn by_weight(
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
pub(super) fn members(candidates: &[Candidates]) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
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
pub(super) fn nth(candidates: &[Candidates], mut n: u32) -> (usize, u32) {
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
