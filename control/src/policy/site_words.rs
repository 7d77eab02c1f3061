//! Site words: in which share of the draws each site is considered, as the workers know it.
//!
//! Owned by the slots, beside the members' words. A site has three: for services whose chain has `capacity`, for those that
//! avoid it while it is silent, and for those that do both. Indices go by the site's name, so that they keep their meaning over
//! reloads; one that no snapshot names any more is given to another site.

use dataplane::link::{WordTarget, WordValue};
use dataplane::tables::words::{SITE_WHOLE, SITES_MAX, site_word};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What a service's pools look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// Its capacity: the chain has that metric.
    pub capacity: bool,
    /// Its silence: it is to be avoided then.
    pub silence: bool,
}

impl Watch {
    /// All but the one that looks at nothing, in the order of a site's words.
    const WORDS: [Self; WORDS_PER_SITE as usize] =
        [Self::of(true, false), Self::of(false, true), Self::of(true, true)];

    const fn of(capacity: bool, silence: bool) -> Self {
        Self { capacity, silence }
    }

    /// Whether it looks at nothing.
    pub fn is_nothing(self) -> bool {
        !self.capacity && !self.silence
    }
}

/// Words of a site.
const WORDS_PER_SITE: u32 = 3;
/// Sites that have words at most.
pub const PLACES: u32 = SITES_MAX / WORDS_PER_SITE;

/// What there is against a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Its share by its capacity, 0 to 256.
    pub capacity: u16,
    /// It is silent, and its reports are not all that fails.
    pub silent: bool,
}

impl Shares {
    /// Nothing.
    pub const WHOLE: Self = Self {
        capacity: SITE_WHOLE,
        silent: false,
    };

    fn seen_by(self, watch: Watch) -> u16 {
        match (watch.silence && self.silent, watch.capacity) {
            (true, _) => 0,
            (false, true) => self.capacity,
            (false, false) => SITE_WHOLE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Its words begin at three times this.
    index: u32,
    /// Generation from which on no snapshot names it.
    unused_from: Option<u64>,
}

/// All site words of an appliance.
#[derive(Debug, Default)]
pub struct SiteWords {
    sites: HashMap<String, Placed>,
    shares: Vec<Shares>,
    changed: BTreeSet<u32>,
}

impl SiteWords {
    /// The index of a site's word for who looks at that much of it; `None` when all are taken.
    pub fn place(&mut self, site: &str, watch: Watch) -> Option<u16> {
        let index = match self.sites.get_mut(site) {
            Some(placed) => {
                placed.unused_from = None;
                placed.index
            }
            None => self.take(site)?,
        };
        let word = Watch::WORDS.iter().position(|of| *of == watch)?;
        u16::try_from(WORDS_PER_SITE * index + word as u32).ok()
    }

    fn take(&mut self, site: &str) -> Option<u32> {
        let used: HashSet<u32> = self.sites.values().map(|placed| placed.index).collect();
        let index = (0..PLACES).find(|index| !used.contains(index))?;
        if index as usize == self.shares.len() {
            self.shares.push(Shares::WHOLE);
        }
        let placed = Placed {
            index,
            unused_from: None,
        };
        self.sites.insert(site.to_owned(), placed);
        self.put(index, Shares::WHOLE);
        Some(index)
    }

    /// Sets the shares of a site; ignored for one that no pool looks at.
    pub fn set(&mut self, site: &str, shares: Shares) {
        if let Some(placed) = self.sites.get(site) {
            self.put(placed.index, shares);
        }
    }

    fn put(&mut self, index: u32, shares: Shares) {
        let known = &mut self.shares[index as usize];
        if *known != shares {
            *known = shares;
            self.changed.insert(index);
        }
    }

    /// The words that changed since last asked.
    pub fn take_changes(&mut self) -> Vec<(WordTarget, WordValue)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .flat_map(|index| self.words_of(index))
            .collect()
    }

    /// Every word that was ever used, as it stands.
    pub fn words(&self) -> Vec<(WordTarget, WordValue)> {
        (0..self.shares.len() as u32)
            .flat_map(|index| self.words_of(index))
            .collect()
    }

    fn words_of(&self, index: u32) -> impl Iterator<Item = (WordTarget, WordValue)> {
        let shares = self.shares[index as usize];
        let words = (WORDS_PER_SITE * index..).zip(Watch::WORDS);
        words.map(move |(word, watch)| (WordTarget::Site(word), site_word(shares.seen_by(watch))))
    }

    /// Notes that from `generation` on only `used` sites are named, and gives up those that no snapshot still in use names.
    pub fn retain(&mut self, generation: u64, used: &HashSet<&str>, oldest_in_use: u64) {
        for (name, placed) in &mut self.sites {
            if !used.contains(name.as_str()) && placed.unused_from.is_none() {
                placed.unused_from = Some(generation);
            }
        }
        self.sites
            .retain(|_, placed| placed.unused_from.is_none_or(|from| from > oldest_in_use));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Watch = Watch::of(true, false);
    const SILENCE: Watch = Watch::of(false, true);
    const BOTH: Watch = Watch::of(true, true);

    fn site(first: u32, shares: [u16; 3]) -> Vec<(WordTarget, WordValue)> {
        (first..)
            .zip(shares)
            .map(|(word, share)| (WordTarget::Site(word), site_word(share)))
            .collect()
    }

    #[test]
    fn each_word_shows_what_its_services_look_at() {
        let mut words = SiteWords::default();
        assert_eq!(words.place("a", SILENCE), Some(1));
        assert_eq!(words.place("b", CAPACITY), Some(3));
        assert_eq!(words.place("a", BOTH), Some(2));
        assert_eq!(words.place("a", Watch::of(false, false)), None);
        words.take_changes();
        words.set(
            "a",
            Shares {
                capacity: 100,
                silent: false,
            },
        );
        words.set(
            "unknown",
            Shares {
                capacity: 100,
                silent: false,
            },
        );
        assert_eq!(words.take_changes(), site(0, [100, 256, 100]));
        words.set(
            "a",
            Shares {
                capacity: 100,
                silent: true,
            },
        );
        assert_eq!(words.take_changes(), site(0, [100, 0, 0]));
        words.set(
            "a",
            Shares {
                capacity: 100,
                silent: true,
            },
        );
        assert_eq!(words.take_changes(), []);
    }

    #[test]
    fn a_site_keeps_its_words_until_no_snapshot_names_them() {
        let mut words = SiteWords::default();
        for (name, first) in [("a", 0), ("b", 3)] {
            assert_eq!(words.place(name, CAPACITY), Some(first));
        }
        words.set(
            "a",
            Shares {
                capacity: 7,
                silent: true,
            },
        );
        words.take_changes();
        // Generation 2 does not name it, but a worker has generation 1.
        words.retain(2, &HashSet::from(["b"]), 1);
        assert_eq!(words.place("c", CAPACITY), Some(6));
        words.retain(3, &HashSet::from(["b", "c"]), 2);
        // Another site starts whole.
        words.take_changes();
        assert_eq!(words.place("d", CAPACITY), Some(0));
        assert_eq!(words.take_changes(), site(0, [256; 3]));
        assert_eq!(words.words().len(), 9);
    }
}
