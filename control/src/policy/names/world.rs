//! What the zones say, by name: which zone a name belongs to, what stands at it, and where a name falls that
//! does not stand there itself. Filled once, then only read.

use super::{ServiceName, ServiceNames, ancestors, lowered, parent, wildcard_of};
use crate::config::model::{Rrset, Zone};
use dataplane::wire::dns::rtype;
use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use std::collections::{HashMap, HashSet};

/// A map by name: names come from zone files, millions of them.
type ByName<T> = HashMap<Vec<u8>, T, RandomState>;

/// One owner name.
#[derive(Default)]
pub(super) struct Owner<'a> {
    pub(super) zone: usize,
    pub(super) sets: Vec<&'a Rrset>,
    pub(super) service: Option<ServiceName>,
    /// A zone cut: delegated.
    pub(super) cut: bool,
    /// An ancestor of an apex: in no zone.
    pub(super) outside: bool,
    /// A wildcard stands directly below.
    pub(super) wildcard: bool,
    /// The cut or DNAME that an empty non-terminal lies below, on the way to a zone that lies deeper.
    pub(super) below: Option<Vec<u8>>,
}

impl<'a> Owner<'a> {
    /// The set of a type.
    pub(super) fn set(&self, rtype: u16) -> Option<&'a Rrset> {
        self.sets.iter().copied().find(|s| s.rtype == rtype)
    }

    fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.service.is_none() && !self.outside
    }
}

/// Where a name falls (RFC 1034 section 4.3.2, RFC 4592, RFC 6672 section 3.2).
pub(super) enum Place<'w, 'a> {
    /// In no zone that is served here.
    Elsewhere,
    /// At or below a zone cut.
    Cut(&'w [u8], &'w Owner<'a>),
    /// Below a DNAME.
    Dname(&'w [u8], &'a Rrset),
    /// At a name with data, or covered by that wildcard.
    At(&'w [u8], &'w Owner<'a>),
    /// The parent side of an apex, asked for DS: that zone, and what it says.
    ParentSide(usize, Option<&'a Rrset>),
    /// Nowhere in this zone.
    Missing(usize),
}

/// All names of all zones.
pub(super) struct World<'a> {
    pub(super) zones: &'a [Zone],
    /// Owner names, with the empty non-terminals and the apexes' ancestors: in the order of the files, so that equal
    /// configurations compile alike.
    pub(super) owners: IndexMap<Vec<u8>, Owner<'a>, RandomState>,
    /// Names at which zones begin.
    apexes: ByName<usize>,
    /// Glue and everything else below cuts, for referrals.
    glue: ByName<Vec<&'a Rrset>>,
    /// DS at apexes, as the zones above have them.
    parent_ds: ByName<&'a Rrset>,
}

impl<'a> World<'a> {
    pub(super) fn new(zones: &'a [Zone], services: &ServiceNames) -> Self {
        let apexes = zones.iter().enumerate();
        let mut world = Self {
            zones,
            owners: IndexMap::default(),
            apexes: apexes.map(|(i, z)| (lowered(z.apex.as_slice()), i)).collect(),
            glue: HashMap::default(),
            parent_ds: HashMap::default(),
        };
        for index in 0..zones.len() {
            world.collect(index);
        }
        let mut services: Vec<_> = services.iter().collect();
        services.sort_unstable_by_key(|(_, service)| service.service);
        for (name, &service) in services {
            if let Some(zone) = world.zone_of(name) {
                let node = world.owners.entry(name.clone()).or_default();
                (node.zone, node.service) = (zone, Some(service));
            }
        }
        world.fill_ancestors();
        world.mark_wildcards();
        world.mark_between();
        world
    }

    /// The deepest served zone that holds `name` (lower-cased).
    fn zone_of(&self, name: &[u8]) -> Option<usize> {
        ancestors(name).find_map(|n| self.apexes.get(n).copied())
    }

    /// Sorts the records of one zone.
    fn collect(&mut self, index: usize) {
        let Some(zone) = self.zones.get(index) else { return };
        let apex = lowered(zone.apex.as_slice());
        let (mut cuts, mut dnames): (HashSet<_, RandomState>, HashSet<_, RandomState>) = Default::default();
        for set in &zone.rrsets {
            let found = match set.rtype {
                rtype::NS => &mut cuts,
                rtype::DNAME => &mut dnames,
                _ => continue,
            };
            let owner = lowered(set.owner.as_slice());
            // A child zone that is served here is no cut.
            if (owner != apex || set.rtype == rtype::DNAME) && self.zone_of(&owner) == Some(index) {
                found.insert(owner);
            }
        }
        for set in &zone.rrsets {
            let owner = lowered(set.owner.as_slice());
            if self.zone_of(&owner) != Some(index) {
                if set.rtype == rtype::DS && self.apexes.contains_key(&owner) {
                    let above = parent(&owner).and_then(|p| self.zone_of(p));
                    if above == Some(index) {
                        self.parent_ds.insert(owner, set);
                    }
                }
                continue;
            }
            // Up to the zone's own apex: the zone itself may lie below a cut of another.
            if !cuts.is_empty() || !dnames.is_empty() {
                let above = ancestors(&owner).skip(1).take_while(|n| n.len() >= apex.len());
                let above = above.filter(|n| cuts.contains(*n) || dnames.contains(*n));
                let glue = above.last().map(|highest| cuts.contains(highest));
                // Nothing exists below a DNAME (RFC 6672 section 2.4).
                if glue == Some(true) {
                    self.glue.entry(owner).or_default().push(set);
                    continue;
                } else if glue == Some(false) {
                    continue;
                }
            }
            let cut = cuts.contains(&owner);
            let node = self.owners.entry(owner).or_default();
            (node.zone, node.cut) = (index, cut);
            node.sets.push(set);
        }
    }

    /// Adds empty non-terminals (RFC 4592 section 2.2.2) and the apexes' ancestors.
    fn fill_ancestors(&mut self) {
        let mut missing: IndexSet<&[u8], RandomState> = IndexSet::default();
        for name in self.owners.keys() {
            for ancestor in ancestors(name).skip(1) {
                // What is there adds its own ancestors in its turn.
                if self.owners.contains_key(ancestor) || !missing.insert(ancestor) {
                    break;
                }
            }
        }
        let missing: Vec<Vec<u8>> = missing.into_iter().map(<[u8]>::to_vec).collect();
        for name in missing {
            let zone = self.zone_of(&name);
            let owner = Owner {
                zone: zone.unwrap_or(0),
                outside: zone.is_none(),
                ..Owner::default()
            };
            self.owners.insert(name, owner);
        }
    }

    fn mark_wildcards(&mut self) {
        let wildcards = self.owners.keys().filter(|name| name.starts_with(b"\x01*"));
        let parents: Vec<Vec<u8>> = wildcards.filter_map(|n| Some(parent(n)?.to_vec())).collect();
        for name in parents {
            if let Some(owner) = self.owners.get_mut(&name) {
                owner.wildcard = true;
            }
        }
    }

    /// A zone may be served that lies deeper below a cut or a DNAME than its own: what stands between is no empty
    /// non-terminal but falls to that cut or DNAME, as all else below.
    fn mark_between(&mut self) {
        let ends = |o: &Owner<'a>| o.cut || o.set(rtype::DNAME).is_some();
        if !self.owners.values().any(ends) {
            return;
        }
        let above_of = |(name, owner): (&Vec<u8>, &Owner<'a>)| {
            let above = ancestors(name).skip(1).filter(|_| owner.is_empty());
            let above = above.filter_map(|n| self.owners.get_key_value(n));
            let mut above = above.filter(|(_, o)| o.zone == owner.zone && ends(o));
            above.next().map(|(above, _)| (name.clone(), above.clone()))
        };
        let found: Vec<_> = self.owners.iter().filter_map(above_of).collect();
        for (name, above) in found {
            if let Some(owner) = self.owners.get_mut(&name) {
                owner.below = Some(above);
            }
        }
    }

    /// Where a name (lower-cased) falls.
    pub(super) fn place(&self, name: &[u8]) -> Place<'_, 'a> {
        let Some((key, owner)) = ancestors(name).find_map(|n| self.owners.get_key_value(n)) else {
            return Place::Elsewhere;
        };
        if owner.outside {
            return Place::Elsewhere;
        }
        let itself = key.len() == name.len();
        if let Some(place) = self.ends_at(key, owner, itself) {
            return place;
        }
        if itself {
            return Place::At(key, owner);
        }
        let wildcard = || self.owners.get_key_value(&wildcard_of(key));
        match Some(owner).filter(|o| o.wildcard).and_then(|_| wildcard()) {
            Some((key, owner)) => Place::At(key, owner),
            None => Place::Missing(owner.zone),
        }
    }

    /// The cut or DNAME that an owner is or lies below. A DNAME holds for what is below it, not for `itself`.
    fn ends_at<'w>(&'w self, key: &'w [u8], owner: &'w Owner<'a>, itself: bool) -> Option<Place<'w, 'a>> {
        let (key, owner, itself) = match &owner.below {
            Some(above) => (above.as_slice(), self.owners.get(above)?, false),
            None => (key, owner, itself),
        };
        if owner.cut {
            return Some(Place::Cut(key, owner));
        }
        let dname = owner.set(rtype::DNAME).filter(|_| !itself)?;
        Some(Place::Dname(key, dname))
    }

    /// Where a name falls that is asked for DS: at an apex that is the zone above, if it is served here (RFC 4035
    /// section 3.1.4.1); `None` where DS is a type like all others.
    pub(super) fn parent_side(&self, name: &[u8]) -> Option<Place<'_, 'a>> {
        self.apexes.get(name)?;
        let above = parent(name)?;
        let zone = self.zone_of(above)?;
        let (key, owner) = self.owners.get_key_value(above)?;
        let place = self.ends_at(key, owner, false);
        Some(place.unwrap_or_else(|| Place::ParentSide(zone, self.parent_ds.get(name).copied())))
    }

    /// The addresses of a name server that a referral carries: below any cut, or at one.
    pub(super) fn glue(&self, target: &[u8]) -> impl Iterator<Item = &'a Rrset> {
        let below = self.glue.get(target).map(Vec::as_slice);
        let at_cut = || {
            self.owners
                .get(target)
                .filter(|o| o.cut)
                .map(|o| o.sets.as_slice())
        };
        let sets = below.or_else(at_cut).unwrap_or_default();
        sets.iter()
            .copied()
            .filter(|s| matches!(s.rtype, rtype::A | rtype::AAAA))
    }
}
