//! Member slots: which bit of which health word a member of a pool is, and what the bits say.
//!
//! Owned by the compiler. A slot keeps its meaning over snapshots: a pool whose content does not change keeps
//! its slots, and a slot that is no longer used is given to another pool only when no worker has a
//! snapshot that names it. Health changes become new values of whole words here.

use super::site_words::SiteWords;
use crate::config::model::{AllDown, Check};
use crate::health::Standing;
use dataplane::link::{WordTarget, WordValue};
use dataplane::tables::plans::GROUP_MAX;
use dataplane::tables::words::{Members, SLOTS_MAX};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is probed: an address by a check. Members that share both share their health.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The member's address.
    pub address: IpAddr,
    /// The check; `None`: always up.
    pub check: Option<Check>,
}

/// What makes two pools one: the same members at the same sites, judged the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Members by group: all members of one site stand together.
    pub groups: Vec<Vec<Target>>,
    /// What happens when all are down.
    pub when_all_down: AllDown,
}

/// A pool's place: the first slot of each group.
#[derive(Clone, Debug)]
struct Placed {
    firsts: Vec<u32>,
    /// The set of slots that was up last, as (word, bits).
    last_good: Vec<(u32, u64)>,
    /// Generation from which on no snapshot names it.
    unused_from: Option<u64>,
}

/// All slots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {SLOTS_MAX} members over all pools; use fewer services with distinct members")]
pub struct SlotsFull;

/// All slots of an appliance.
#[derive(Debug, Default)]
pub struct Slots {
    pools: HashMap<Arc<PoolKey>, Placed>,
    /// Bit by bit, which slots are taken.
    taken: Vec<u64>,
    /// Current value of each word.
    words: Vec<Members>,
    /// Words that changed since [`Slots::take_changes`].
    changed: BTreeSet<u32>,
    /// Slots of each target, and which pools they are in.
    users: HashMap<Target, HashSet<Arc<PoolKey>>>,
    /// The words of sites, which go the same way.
    pub sites: SiteWords,
}

/// Bits `first % 64 ..` of a group of `len` slots, which never straddles a word.
pub fn group_mask(first: u32, len: usize) -> u64 {
    let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    // An empty group has no bits, wherever it is said to start.
    ones << (first % 64)
}

impl Slots {
    /// The first slot of each group of `pool`; takes new slots for a pool not yet known, whose members stand as
    /// `standing` says.
    ///
    /// # Errors
    /// [`SlotsFull`], and nothing is taken.
    pub fn place(
        &mut self,
        pool: &PoolKey,
        standing: impl Fn(&Target) -> Standing,
    ) -> Result<Vec<u32>, SlotsFull> {
        if let Some(placed) = self.pools.get_mut(pool) {
            placed.unused_from = None;
            let firsts = placed.firsts.clone();
            // It may have been out of use for a while, and its members' health have changed since.
            self.judge(pool, standing);
            return Ok(firsts);
        }
        let firsts = self.find_rooms(pool)?;
        let key = Arc::new(pool.clone());
        for target in pool.groups.iter().flatten() {
            self.users.entry(target.clone()).or_default().insert(key.clone());
        }
        self.pools.insert(
            key,
            Placed {
                firsts: firsts.clone(),
                last_good: Vec::new(),
                unused_from: None,
            },
        );
        self.judge(pool, standing);
        Ok(firsts)
    }

    /// Room for all groups: one after the other in one word if they fit, since the worker then reads one word
    /// for the whole pool; else each where it fits.
    fn find_rooms(&mut self, pool: &PoolKey) -> Result<Vec<u32>, SlotsFull> {
        let total: usize = pool.groups.iter().map(Vec::len).sum();
        if total <= GROUP_MAX {
            let mut next = self.find_room(total).ok_or(SlotsFull)?;
            let place = |group: &Vec<Target>| {
                let first = next;
                next += group.len() as u32;
                first
            };
            return Ok(pool.groups.iter().map(place).collect());
        }
        let mut firsts = Vec::new();
        for group in &pool.groups {
            match self.find_room(group.len()) {
                Some(first) => firsts.push(first),
                None => {
                    for (first, group) in firsts.iter().zip(&pool.groups) {
                        self.taken[*first as usize / 64] &= !group_mask(*first, group.len());
                    }
                    return Err(SlotsFull);
                }
            }
        }
        Ok(firsts)
    }

    fn find_room(&mut self, len: usize) -> Option<u32> {
        debug_assert!(len <= GROUP_MAX);
        for word in 0..SLOTS_MAX / 64 {
            if word as usize == self.taken.len() {
                self.taken.push(0);
                self.words.push(Members::default());
            }
            let taken = self.taken[word as usize];
            if (taken.count_zeros() as usize) < len {
                continue;
            }
            let bit = (0..=64 - len as u32).find(|bit| taken & group_mask(*bit, len) == 0);
            if let Some(bit) = bit {
                self.taken[word as usize] |= group_mask(bit, len);
                return Some(word * 64 + bit);
            }
        }
        None
    }

    /// Sets the bits of a pool from how its members stand.
    fn judge(&mut self, pool: &PoolKey, standing: impl Fn(&Target) -> Standing) {
        let Some(placed) = self.pools.get_mut(pool) else {
            return;
        };
        let standings: Vec<Vec<Standing>> = pool
            .groups
            .iter()
            .map(|g| g.iter().map(&standing).collect())
            .collect();
        let up = |(&first, group): (&u32, &Vec<Standing>)| {
            let up = group.iter().enumerate().filter(|(_, standing)| standing.up);
            (
                first / 64,
                up.fold(0, |bits, (i, _)| bits | 1u64 << (first % 64 + i as u32)),
            )
        };
        let groups: Vec<(u32, u64)> = placed.firsts.iter().zip(&standings).map(up).collect();
        if groups.iter().any(|(_, up)| *up != 0) {
            placed.last_good = groups;
        }
        for (i, (&first, group)) in placed.firsts.iter().zip(&standings).enumerate() {
            let mask = group_mask(first, group.len());
            let fallback = match pool.when_all_down {
                AllDown::Open => mask,
                AllDown::Closed | AllDown::Fixed(_) => 0,
                // Nothing was ever up: what is best is not known, so all are given.
                AllDown::LastGood => placed.last_good.get(i).map_or(mask, |&(_, bits)| bits),
            };
            let value = &mut self.words[first as usize / 64];
            let mut new = *value;
            for (i, standing) in group.iter().enumerate() {
                new.set(first % 64 + i as u32, standing.up, standing.share);
            }
            new.fallback = new.fallback & !mask | fallback & mask;
            if *value != new {
                *value = new;
                self.changed.insert(first / 64);
            }
        }
    }

    /// Takes a change of how a target stands: judges every pool that has it. Returns how many pools.
    pub fn standing_changed(&mut self, target: &Target, standing: impl Fn(&Target) -> Standing) -> usize {
        let pools: Vec<Arc<PoolKey>> = self.users.get(target).into_iter().flatten().cloned().collect();
        for pool in &pools {
            self.judge(pool, &standing);
        }
        pools.len()
    }

    /// Whether a member of the pool is down or has less than its share.
    pub fn is_degraded(&self, pool: &PoolKey) -> bool {
        let Some(placed) = self.pools.get(pool) else {
            return false;
        };
        placed.firsts.iter().zip(&pool.groups).any(|(&first, group)| {
            let mask = group_mask(first, group.len());
            let members = self.words.get(first as usize / 64).copied().unwrap_or_default();
            members.up & !members.partial() & mask != mask
        })
    }

    /// The groups of a pool that have a member up, by their index. A pool that has no place has none.
    pub fn groups_up<'a>(&'a self, pool: &'a PoolKey) -> impl Iterator<Item = usize> + 'a {
        let firsts = self.pools.get(pool).map_or(&[][..], |placed| &placed.firsts);
        let groups = firsts.iter().zip(&pool.groups).enumerate();
        groups.filter_map(|(i, (&first, group))| {
            let members = self.words.get(first as usize / 64).copied().unwrap_or_default();
            (members.up & group_mask(first, group.len()) != 0).then_some(i)
        })
    }

    /// The words that changed since last asked.
    pub fn take_changes(&mut self) -> Vec<(WordTarget, WordValue)> {
        let changed = std::mem::take(&mut self.changed);
        let mut words: Vec<_> = changed.into_iter().map(|word| self.word(word)).collect();
        words.extend(self.sites.take_changes());
        words
    }

    /// Every word that was ever used, as it stands.
    pub fn words(&self) -> Vec<(WordTarget, WordValue)> {
        let mut words: Vec<_> = (0..self.words.len() as u32).map(|word| self.word(word)).collect();
        words.extend(self.sites.words());
        words
    }

    fn word(&self, word: u32) -> (WordTarget, WordValue) {
        (WordTarget::Members(word), self.words[word as usize].word())
    }

    /// Notes that from `generation` on only `used` pools are named, and frees the slots of pools that no snapshot
    /// still in use names: those unused from a generation up to `oldest_in_use`.
    pub fn retain(&mut self, generation: u64, used: &HashSet<PoolKey>, oldest_in_use: u64) {
        for (key, placed) in &mut self.pools {
            if !used.contains(&**key) && placed.unused_from.is_none() {
                placed.unused_from = Some(generation);
            }
        }
        let gone: Vec<Arc<PoolKey>> = self
            .pools
            .iter()
            .filter(|(_, p)| p.unused_from.is_some_and(|from| from <= oldest_in_use))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            let Some(placed) = self.pools.remove(&key) else {
                continue;
            };
            for (first, group) in placed.firsts.iter().zip(&key.groups) {
                self.taken[*first as usize / 64] &= !group_mask(*first, group.len());
            }
            for target in key.groups.iter().flatten() {
                if let Some(pools) = self.users.get_mut(target) {
                    pools.remove(&key);
                    if pools.is_empty() {
                        self.users.remove(target);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(last: u8) -> Target {
        Target {
            address: IpAddr::from([192, 0, 2, last]),
            check: None,
        }
    }

    fn pool(members: &[&[u8]], when_all_down: AllDown) -> PoolKey {
        PoolKey {
            groups: members
                .iter()
                .map(|g| g.iter().map(|&m| target(m)).collect())
                .collect(),
            when_all_down,
        }
    }

    fn word(index: u32, up: u64, fallback: u64) -> (WordTarget, WordValue) {
        (WordTarget::Members(index), Members::whole(up, fallback).word())
    }

    #[test]
    fn shares_go_into_the_word() {
        let mut slots = Slots::default();
        let a = pool(&[&[1, 2], &[3]], AllDown::Closed);
        let share = |share| Standing { up: true, share };
        slots
            .place(&a, |t| if *t == target(2) { share(4) } else { Standing::UP })
            .unwrap();
        let mut members = Members::whole(0b101, 0);
        members.set(1, true, 4);
        assert_eq!(slots.take_changes(), [(WordTarget::Members(0), members.word())]);
        slots.standing_changed(
            &target(2),
            |t| if *t == target(2) { share(0) } else { Standing::UP },
        );
        members.set(1, true, 0);
        assert_eq!(slots.take_changes(), [(WordTarget::Members(0), members.word())]);
    }

    #[test]
    fn equal_pools_share_slots_and_others_do_not() {
        let mut slots = Slots::default();
        let a = pool(&[&[1, 2], &[3]], AllDown::Open);
        assert_eq!(slots.place(&a, |_| Standing::UP).unwrap(), [0, 2]);
        assert_eq!(slots.place(&a, |_| Standing::UP).unwrap(), [0, 2]);
        assert_eq!(
            slots
                .place(&pool(&[&[1, 2], &[3]], AllDown::Closed), |_| Standing::UP)
                .unwrap(),
            [3, 5]
        );
        assert_eq!(slots.take_changes(), [word(0, 0b111_111, 0b000_111)]);
    }

    #[test]
    fn groups_do_not_straddle_words() {
        let mut slots = Slots::default();
        let forty: Vec<u8> = (0..40).collect();
        assert_eq!(
            slots
                .place(&pool(&[&forty, &forty], AllDown::Open), |_| Standing::UP)
                .unwrap(),
            [0, 64]
        );
    }

    #[test]
    fn last_good_is_what_was_up_last() {
        let mut slots = Slots::default();
        let a = pool(&[&[1, 2, 3]], AllDown::LastGood);
        slots.place(&a, |_| Standing::DOWN).unwrap();
        // Nothing was ever seen up: all are given.
        assert_eq!(slots.take_changes(), [word(0, 0, 0b111)]);
        slots.standing_changed(&target(2), |t| {
            if *t == target(2) {
                Standing::UP
            } else {
                Standing::DOWN
            }
        });
        assert_eq!(slots.take_changes(), [word(0, 0b010, 0b010)]);
        slots.standing_changed(&target(2), |_| Standing::DOWN);
        assert_eq!(slots.take_changes(), [word(0, 0, 0b010)]);
    }

    #[test]
    fn a_slot_is_reused_only_when_no_snapshot_names_it() {
        let mut slots = Slots::default();
        let (a, b) = (pool(&[&[1]], AllDown::Open), pool(&[&[2]], AllDown::Open));
        slots.place(&a, |_| Standing::UP).unwrap();
        // Generation 2 no longer names it, but a worker still has generation 1.
        slots.retain(2, &HashSet::from([b.clone()]), 1);
        assert_eq!(slots.place(&b, |_| Standing::UP).unwrap(), [1]);
        slots.retain(3, &HashSet::from([b]), 2);
        assert_eq!(
            slots
                .place(&pool(&[&[3]], AllDown::Open), |_| Standing::UP)
                .unwrap(),
            [0]
        );
        // A target that is gone changes nothing any more.
        slots.take_changes();
        assert_eq!(slots.standing_changed(&target(1), |_| Standing::DOWN), 0);
        assert_eq!(slots.take_changes(), []);
    }
}
