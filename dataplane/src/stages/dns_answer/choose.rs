//! Chooses members of a pool for one query: the first tier with a live member, then a draw.
//!
//! Owns what a worker keeps for it: the words, the round-robin positions, the random state, the counts of selections.
//! Draws among a tier's candidates have a file each.

mod by_client;
mod draw;
mod selections;
#[cfg(test)]
mod tests;

use super::trace::{Event, Silent, Trace};
use crate::mmap::Table;
use crate::tables::plans::{ANSWERS_MAX, Cell, Family, Group, Plans, Pool, RANKED_MAX};
use crate::tables::words::SITE_WHOLE;
use crate::tables::{NONE, Words};
use by_client::by_client;
pub(super) use by_client::client_hash;
use draw::Draw;
use selections::{Selections, least_selected};

/// A worker's state of choice.
#[derive(Debug)]
pub struct Chooser {
    /// Health and shares as this worker knows them.
    pub words: Words,
    draw: Draw,
    selections: Selections,
    /// Candidates of the query at work: kept here, so that they need no clearing for each query.
    candidates: [Candidates; RANKED_MAX],
}

/// What a choice depends on beside the tables and the words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asker {
    /// What the client's address hashes to, for pools that are [`Pool::HASHED`].
    pub(super) hash: u64,
    /// Unix time modulo 2^32, seconds.
    pub(super) seconds: u32,
    /// Over which time selections are counted, seconds.
    pub(super) window: u16,
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
    word: u16,
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

/// Which members a draw goes among, and why they are not those of the first choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Members that are up, as often as their shares and those of their sites say.
    Shared,
    /// Members that are up: shares left none.
    Up,
    /// Members that are up and have no share.
    LastResort,
    /// Those of the all-down rule.
    AllDown,
}

impl Round {
    const ALL: [Self; 4] = [Self::Shared, Self::Up, Self::LastResort, Self::AllDown];

    fn tell<T: Trace>(self, trace: &mut T) {
        match self {
            Round::Shared | Round::AllDown => {}
            Round::Up | Round::LastResort => trace.event(Event::SharesIgnored),
        }
    }
}

impl Chooser {
    /// A chooser whose draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            words: Words::default(),
            draw: Draw::new(seed),
            selections: Selections::default(),
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
        family: Family<'_>,
        asker: &Asker,
        trace: &mut T,
    ) -> Chosen {
        let groups = plans.groups(pool);
        let (mut chosen, mut tier) = self.choose_in(plans, pool, groups, cell, family, asker, trace);
        if pool.flags & Pool::FILLS != 0 {
            let mut cell = *cell;
            while chosen.count < pool.answers as usize && !chosen.all_down {
                cell = cell.behind(tier.site);
                let rest = Pool {
                    answers: pool.answers - chosen.count as u8,
                    ..*pool
                };
                let more;
                (more, tier) = self.choose_in(plans, &rest, groups, &cell, family, asker, &mut Silent);
                if more.count == 0 || more.all_down {
                    break;
                }
                let free = chosen.members.iter_mut().skip(chosen.count);
                free.zip(more.members)
                    .take(more.count)
                    .for_each(|(slot, member)| *slot = member);
                chosen.count += more.count;
            }
        }
        for &member in chosen.members.iter().take(chosen.count) {
            trace.event(Event::Drawn { member });
        }
        chosen
    }

    /// Chooses among the first tier of a cell that has candidates; with that tier.
    #[allow(clippy::too_many_arguments, reason = "as its caller")]
    fn choose_in<T: Trace>(
        &mut self,
        plans: &Plans,
        pool: &Pool,
        groups: &[Group],
        cell: &Cell,
        family: Family<'_>,
        asker: &Asker,
        trace: &mut T,
    ) -> (Chosen, Tier) {
        let mut chosen = Chosen::none();
        let tier = match pool.flags & Pool::ONE_WORD {
            0 => self.tier(groups, cell, trace),
            _ => self.tier_in_word(pool, groups, cell, trace),
        };
        chosen.all_down = tier.round == Round::AllDown;
        let rotor = Draw::rotor(pool, tier.site);
        let in_word = pool.flags & Pool::ONE_WORD != 0;
        if in_word && pool.flags & (Pool::HASHED | Pool::LEAST_SELECTED) == 0 {
            let mut drawn = Drawn::default();
            chosen.count = self.draw_any(pool, tier.mask, rotor, family.weights, &mut drawn) as usize;
            chosen.members = drawn.members;
            return (chosen, tier);
        }
        if in_word && let Some(one) = self.candidates.first_mut() {
            *one = Candidates {
                mask: tier.mask,
                base: pool.base,
                word: pool.word,
            };
        }
        let candidates = self.candidates.get_mut(..tier.groups).unwrap_or(&mut []);
        let draw = &mut self.draw;
        if pool.flags & Pool::HASHED != 0 {
            by_client(candidates, pool, family, asker, &mut chosen);
        } else if pool.flags & Pool::LEAST_SELECTED != 0 {
            let start = draw.turn(rotor, tier.total);
            let counts = self.selections.counts(plans.layout, family.v6, &mut self.words);
            least_selected(candidates, start, pool, family, asker, counts, &mut chosen);
        } else if pool.flags & Pool::WEIGHTED != 0 {
            draw.by_weight(candidates, tier.total, pool, family.weights, &mut chosen);
        } else {
            draw.in_turn(candidates, tier.total, rotor, pool.answers, &mut chosen);
        }
        (chosen, tier)
    }

    /// The tier to draw from, of a pool whose members are the bits of one word.
    #[inline]
    fn tier_in_word<T: Trace>(&mut self, pool: &Pool, groups: &[Group], cell: &Cell, trace: &mut T) -> Tier {
        let (words, draw) = (&self.words, &mut self.draw);
        let of_word = words.members(pool.word);
        let shared = of_word.partial() & pool.mask != 0;
        let mut tier = Tier::default();
        for round in Round::ALL {
            let bits = match round {
                Round::Shared if shared => of_word.draw(|| draw.random()),
                Round::Shared => of_word.up,
                // The first round was this one.
                Round::Up if !shared && !words.sites_shed() => continue,
                Round::Up => of_word.up,
                Round::LastResort => of_word.last_resort(),
                Round::AllDown => of_word.fallback,
            };
            let bits = bits & pool.mask;
            match round {
                Round::Shared if T::LISTENS => {}
                Round::AllDown => trace.event(Event::AllDown),
                _ if bits == 0 => continue,
                _ => {}
            }
            (tier.mask, tier.site) = match round {
                Round::Shared if words.sites_shed() => first_tier_in_word(cell, groups, bits, trace, |g| {
                    let share = words.site(g.site);
                    share == SITE_WHOLE || draw.random() as u16 % SITE_WHOLE < share
                }),
                _ => first_tier_in_word(cell, groups, bits, trace, |_| true),
            };
            tier.round = round;
            if tier.mask != 0 {
                tier.round.tell(trace);
                break;
            }
        }
        tier.groups = usize::from(tier.mask != 0);
        tier.total = tier.mask.count_ones();
        tier
    }

    /// Draws of a pool in one word whose tier is all its sites, when the next members in turn stand one after the
    /// other: that is so when all are up, but for the last of a round. Gives how many, and the first of them.
    #[inline(always)]
    pub(super) fn next_run(&mut self, pool: &Pool, cell: &Cell, drawn: &mut u32) -> Option<u8> {
        if pool.flags != Pool::ONE_WORD || self.words.sites_shed() || !cell.is_one_tier_of(pool) {
            return None;
        }
        let mask = self.words.plain(pool.word)? & pool.mask;
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
        if pool.flags & (Pool::ONE_WORD | Pool::EVERY_STEP) != Pool::ONE_WORD {
            return 0;
        }
        let words = &self.words;
        let up = words.plain(pool.word).unwrap_or(0) & pool.mask;
        let (mask, site) = if up != 0 && !words.sites_shed() {
            match cell.is_one_tier_of(pool) {
                true => (up, cell.first()),
                false => first_tier_in_word(cell, plans.groups(pool), up, &mut Silent, |_| true),
            }
        } else {
            self.shared_in_word(plans, pool, cell)
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

    /// Bits and first site of the tier in turn while shares are at work; no bits when all is down.
    #[inline(never)]
    fn shared_in_word(&mut self, plans: &Plans, pool: &Pool, cell: &Cell) -> (u64, u8) {
        let members = self.words.members(pool.word);
        if (members.up | members.last_resort()) & pool.mask == 0 {
            return (0, 0);
        }
        let tier = self.tier_in_word(pool, plans.groups(pool), cell, &mut Silent);
        (
            if tier.round == Round::AllDown {
                0
            } else {
                tier.mask
            },
            tier.site,
        )
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
            word: pool.word,
        }];
        self.draw
            .by_weight(&mut candidates, mask.count_ones(), pool, weights, &mut chosen);
        drawn.members = chosen.members;
        chosen.count as u8
    }

    /// The tier to draw from, of any pool: candidates are collected site by site.
    #[inline(never)]
    fn tier<T: Trace>(&mut self, groups: &[Group], cell: &Cell, trace: &mut T) -> Tier {
        let (words, draw) = (&self.words, &mut self.draw);
        let mut tier = Tier::default();
        for round in Round::ALL {
            if round == Round::AllDown {
                trace.event(Event::AllDown);
            }
            tier = first_tier(cell, groups, &mut self.candidates, trace, |group| {
                let members = words.members(group.word);
                match round {
                    Round::Shared => {
                        let share = words.site(group.site);
                        let whole = share == SITE_WHOLE || draw.random() as u16 % SITE_WHOLE < share;
                        (whole, members.draw(|| draw.random()))
                    }
                    Round::Up => (true, members.up),
                    Round::LastResort => (true, members.last_resort()),
                    Round::AllDown => (true, members.fallback),
                }
            });
            tier.round = round;
            if tier.total != 0 {
                tier.round.tell(trace);
                break;
            }
        }
        tier
    }
}

/// The bits of the first tier that has any of `live`, and the tier's first site; all groups are in one word.
#[inline(always)]
fn first_tier_in_word<T: Trace>(
    cell: &Cell,
    groups: &[Group],
    live: u64,
    trace: &mut T,
    mut may_give: impl FnMut(&Group) -> bool,
) -> (u64, u8) {
    let (mut mask, mut tier, mut first) = (0, 0, None);
    for (site, last) in cell.ranked() {
        first = first.or(Some(site));
        if let Some(group) = groups.get(site as usize) {
            // Not asked where it does not matter: asking may draw.
            let site_up = live & group.mask == 0 || may_give(group);
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

/// A tier to draw from.
#[derive(Clone, Copy, Debug)]
struct Tier {
    /// Of a pool in one word: its candidates.
    mask: u64,
    /// Groups with candidates.
    groups: usize,
    /// Candidates.
    total: u32,
    /// The tier's first site.
    site: u8,
    round: Round,
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            mask: 0,
            groups: 0,
            total: 0,
            site: 0,
            round: Round::Shared,
        }
    }
}

/// Collects the candidates of the first tier that has any, by `state`: (site may be given, bits that are up).
#[inline(always)]
fn first_tier<T: Trace>(
    cell: &Cell,
    groups: &[Group],
    candidates: &mut [Candidates; RANKED_MAX],
    trace: &mut T,
    mut state: impl FnMut(&Group) -> (bool, u64),
) -> Tier {
    let mut found = Tier::default();
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
                    word: group.word,
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
