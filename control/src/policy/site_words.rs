//! Site words: in which share of the draws each site is considered, as the workers know it.
//!
//! Owned by the slots, beside the members' words. A site has two: one for services whose chain has `capacity`, and one for
//! the others with `health`, which only its silence concerns. Indices go by the site's name, so that they keep their meaning over
//! reloads; one that no snapshot names any more is given to another site.

use dataplane::link::{WordTarget, WordValue};
use dataplane::tables::words::{SITE_WHOLE, SITES_MAX, site_word};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What a pool looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watch {
    /// Whether the site is silent, and that is a reason to avoid it.
    Silence,
    /// That, and its capacity.
    Capacity,
}

/// The shares of a site, 0 to 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For [`Watch::Silence`].
    pub silence: u16,
    /// For [`Watch::Capacity`].
    pub capacity: u16,
}

impl Shares {
    /// Nothing against the site.
    pub const WHOLE: Self = Self {
        silence: SITE_WHOLE,
        capacity: SITE_WHOLE,
    };
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Its words are twice this, and the next.
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
    /// The index of a site's word; `None` when all are taken.
    pub fn place(&mut self, site: &str, watch: Watch) -> Option<u16> {
        let index = match self.sites.get_mut(site) {
            Some(placed) => {
                placed.unused_from = None;
                placed.index
            }
            None => self.take(site)?,
        };
        u16::try_from(2 * index + u32::from(watch == Watch::Capacity)).ok()
    }

    fn take(&mut self, site: &str) -> Option<u32> {
        let used: HashSet<u32> = self.sites.values().map(|placed| placed.index).collect();
        let index = (0..SITES_MAX / 2).find(|index| !used.contains(index))?;
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
        changed.into_iter().flat_map(|index| self.pair(index)).collect()
    }

    /// Every word that was ever used, as it stands.
    pub fn words(&self) -> Vec<(WordTarget, WordValue)> {
        (0..self.shares.len() as u32)
            .flat_map(|index| self.pair(index))
            .collect()
    }

    fn pair(&self, index: u32) -> [(WordTarget, WordValue); 2] {
        let shares = self.shares[index as usize];
        [
            (WordTarget::Site(2 * index), site_word(shares.silence)),
            (WordTarget::Site(2 * index + 1), site_word(shares.capacity)),
        ]
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

    #[test]
    fn a_site_keeps_its_words_until_no_snapshot_names_them() {
        let mut words = SiteWords::default();
        assert_eq!(words.place("a", Watch::Silence), Some(0));
        assert_eq!(words.place("b", Watch::Capacity), Some(3));
        assert_eq!(words.place("a", Watch::Capacity), Some(1));
        let shed = Shares {
            silence: 256,
            capacity: 100,
        };
        words.set("a", shed);
        words.set("unknown", shed);
        assert_eq!(
            words.take_changes(),
            [
                (WordTarget::Site(0), site_word(256)),
                (WordTarget::Site(1), site_word(100))
            ]
        );
        words.set("a", shed);
        assert_eq!(words.take_changes(), []);
        // Generation 2 does not name it, but a worker has generation 1.
        words.retain(2, &HashSet::from(["b"]), 1);
        assert_eq!(words.place("c", Watch::Silence), Some(4));
        words.retain(3, &HashSet::from(["b", "c"]), 2);
        // Another site starts whole.
        assert_eq!(words.place("d", Watch::Silence), Some(0));
        assert_eq!(
            words.take_changes(),
            [
                (WordTarget::Site(0), site_word(256)),
                (WordTarget::Site(1), site_word(256))
            ]
        );
        assert_eq!(words.words().len(), 6);
    }
}
