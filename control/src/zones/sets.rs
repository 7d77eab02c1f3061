//! Groups the records of a zone into sets, in file order, with an index by owner. Filled by `master`,
//! asked by `check` and by the checks of services against zones.

use crate::config::model::{Name, Rrset};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// No further set in a chain.
const NONE: u32 = u32::MAX;
/// Records of one set from which on duplicates are found by hash rather than one by one.
const LARGE_SET: usize = 32;

/// A name's wire form in lower case, by which names are equal (RFC 4343). Length octets are below
/// "A", so that they stay as they are.
pub(crate) fn lower(name: &Name) -> Vec<u8> {
    name.as_slice().to_ascii_lowercase()
}

/// `name` (wire form) and its parents up to and with the one of `apex_len` octets, longest first.
/// Empty if none has that length.
pub(crate) fn parents(name: &[u8], apex_len: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(name);
    std::iter::from_fn(move || {
        let this = rest.filter(|this| this.len() >= apex_len)?;
        let label = usize::from(*this.first()?);
        rest = this.get(1 + label..).filter(|_| label > 0);
        Some(this)
    })
}

/// Where a record stands: which of the zone's files, and the offset therein.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) offset: usize,
}

/// What adding a record showed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Nothing to say.
    Plain,
    /// The same record was there: dropped.
    Duplicate,
    /// The set had another TTL; the lowest is kept (RFC 2181 section 5.2).
    OtherTtl { kept: u32 },
}

/// The record sets of one zone.
#[derive(Default)]
pub(crate) struct Sets {
    rrsets: Vec<Rrset>,
    /// Of each set, its first record.
    places: Vec<Place>,
    /// Of each set, the next one at the same owner.
    next: Vec<u32>,
    /// First set of each owner, by [`lower`].
    owners: HashMap<Box<[u8]>, u32, RandomState>,
    /// RDATA of large sets.
    large: HashMap<u32, HashSet<Vec<u8>>>,
}

impl Sets {
    /// Adds one record. `key` is its owner's [`lower`].
    pub(crate) fn add(
        &mut self,
        owner: &Name,
        key: &[u8],
        rtype: u16,
        ttl: u32,
        rdata: &[u8],
        place: Place,
    ) -> Added {
        let first = self.owners.get(key).copied().unwrap_or(NONE);
        let mut index = first;
        while index != NONE && self.rrsets[index as usize].rtype != rtype {
            index = self.next[index as usize];
        }
        if index == NONE {
            // Fewer than 2^32 sets fit into memory beside their text.
            let new = self.rrsets.len() as u32;
            self.rrsets.push(Rrset {
                owner: owner.clone(),
                rtype,
                ttl,
                rdata: vec![rdata.to_vec()],
            });
            self.places.push(place);
            self.next.push(first);
            match self.owners.get_mut(key) {
                Some(first) => *first = new,
                None => _ = self.owners.insert(key.into(), new),
            }
            return Added::Plain;
        }
        let set = &mut self.rrsets[index as usize];
        let known = if set.rdata.len() < LARGE_SET {
            set.rdata.iter().any(|other| other == rdata)
        } else {
            let large = self
                .large
                .entry(index)
                .or_insert_with(|| set.rdata.iter().cloned().collect());
            !large.insert(rdata.to_vec())
        };
        if known {
            return Added::Duplicate;
        }
        set.rdata.push(rdata.to_vec());
        if set.ttl == ttl {
            return Added::Plain;
        }
        set.ttl = set.ttl.min(ttl);
        Added::OtherTtl { kept: set.ttl }
    }

    /// Every set with the place of its first record, in file order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Rrset, Place)> {
        self.rrsets.iter().zip(self.places.iter().copied())
    }

    /// The sets at an owner, by [`lower`].
    pub(crate) fn at<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (&'a Rrset, Place)> + use<'a> {
        let mut index = self.owners.get(key).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let set = self.rrsets.get(index as usize)?;
            let place = self.places[index as usize];
            index = self.next[index as usize];
            Some((set, place))
        })
    }

    /// The set of a type at an owner.
    pub(crate) fn get(&self, key: &[u8], rtype: u16) -> Option<(&Rrset, Place)> {
        self.at(key).find(|(set, _)| set.rtype == rtype)
    }

    /// The sets alone.
    pub(crate) fn into_rrsets(self) -> Vec<Rrset> {
        self.rrsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_stop_at_the_apex() {
        let name: Name = "a.b.example.".parse().unwrap();
        let found: Vec<usize> = parents(name.as_slice(), 9).map(<[u8]>::len).collect();
        assert_eq!(found, [13, 11, 9]);
        assert_eq!(parents(b"\0", 9).count(), 0);
    }

    #[test]
    fn large_sets_drop_duplicates_too() {
        let owner: Name = "a.example.".parse().unwrap();
        let key = lower(&owner);
        let mut sets = Sets::default();
        let place = Place { file: 0, offset: 0 };
        for round in 0..2 {
            for address in 0..100u32 {
                let added = sets.add(&owner, &key, 1, 60, &address.to_be_bytes(), place);
                assert_eq!(added == Added::Duplicate, round == 1, "round {round}, {address}");
            }
        }
        assert_eq!(sets.into_rrsets()[0].rdata.len(), 100);
    }
}
