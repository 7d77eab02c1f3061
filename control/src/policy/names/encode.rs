//! The entries of each name: blobs of its record sets, of the chain that its CNAME begins, of the referral at a
//! cut. Called by [`super::compile`].

use super::chain::{Chain, End};
use super::world::{Owner, Place, World};
use super::{Compiled, ServiceName, lowered, put_negative, put_set};
use crate::config::model::Rrset;
use anyhow::{Context, Result};
use dataplane::tables;
use dataplane::tables::answers::{AnswersBuilder, BlobBuilder, Section};
use dataplane::tables::names::{Entry, NamesBuilder, Node};
use dataplane::wire::dns::{rcode, rtype};
use std::collections::{BTreeSet, HashMap};

struct Encoder<'w, 'a> {
    world: &'w World<'a>,
    answers: AnswersBuilder,
    zones: Vec<tables::Zone>,
    /// Referrals by cut.
    referrals: HashMap<&'w [u8], u32>,
    /// DNAME records by owner.
    dnames: HashMap<&'w [u8], u32>,
}

/// Encodes all names.
pub(super) fn encode(world: &World<'_>, answers: AnswersBuilder, seed: [u64; 4]) -> Result<Compiled> {
    let mut encoder = Encoder {
        world,
        answers,
        zones: Vec::new(),
        referrals: HashMap::new(),
        dnames: HashMap::new(),
    };
    for zone in world.zones {
        let mut blob = BlobBuilder::for_suffix(zone.apex.as_slice());
        put_negative(&mut blob, zone).with_context(|| format!("zone {}", zone.apex))?;
        let negative = encoder.add(&blob)?;
        encoder.zones.push(tables::Zone { negative });
    }
    let mut names = NamesBuilder::new(seed);
    for (name, owner) in &world.owners {
        let (entries, flags) = encoder
            .node(name, owner)
            .with_context(|| format!("name {}", show(name)))?;
        // What chooses among names as well is answered through its entries.
        let service = owner.service.filter(|s| !s.cnames).map(|s| (s.service, s.place));
        names.add(name, owner.zone as u32, flags, &entries, service);
    }
    Ok(Compiled {
        names: names.build()?,
        answers: encoder.answers.build()?,
        zones: encoder.zones,
    })
}

impl<'w, 'a> Encoder<'w, 'a> {
    fn add(&mut self, blob: &BlobBuilder) -> Result<u32> {
        self.answers.add(blob).context("more than 4 GiB of records")
    }

    fn negative(&self, zone: usize) -> u32 {
        self.zones.get(zone).map_or(tables::NONE, |z| z.negative)
    }

    fn node(&mut self, name: &'w [u8], owner: &'w Owner<'a>) -> Result<(Vec<Entry>, u8)> {
        if owner.outside {
            return Ok((Vec::new(), Node::OUTSIDE));
        }
        let mut flags = 0;
        if owner.wildcard {
            flags |= Node::WILDCARD;
        }
        if owner.below.is_some() {
            // Neither it nor what is below it exists, so no wildcard does.
            let place = self.world.place(name);
            let entry = self.elsewhere(Entry::DEFAULT, &place)?;
            return Ok((entry.into_iter().collect(), Node::CUT));
        }
        if owner.cut {
            let referral = self.elsewhere(Entry::DEFAULT, &Place::Cut(name, owner))?;
            let ds = self.ds(name, owner.zone, owner.set(rtype::DS))?;
            return Ok((referral.into_iter().chain([ds]).collect(), Node::CUT));
        }
        if let Some(cname) = owner.set(rtype::CNAME) {
            return Ok((self.cname(name, cname)?, flags));
        }
        let mut sets = owner.sets.clone();
        // Addresses are what is asked for most: first in the node's own cache line.
        sets.sort_by_key(|s| (!matches!(s.rtype, rtype::A | rtype::AAAA), s.rtype));
        let mut entries = Vec::new();
        for set in sets {
            let blob = if set.rtype == rtype::DNAME {
                flags |= Node::DNAME;
                self.dname(name, set)?
            } else {
                let mut blob = BlobBuilder::new(name);
                put_set(&mut blob, Section::Answer, name, set)?;
                self.add(&blob)?
            };
            entries.push(Entry::fixed(set.rtype, rcode::NOERROR, blob));
        }
        if let Some(service) = owner.service.filter(|s| s.cnames) {
            let empty = self.add(&BlobBuilder::new(name))?;
            for rtype in [rtype::A, rtype::AAAA, Entry::DEFAULT] {
                entries.push(chosen(rtype, empty, service, 0));
            }
            let negative = self.negative(owner.zone);
            entries.push(Entry::fixed(Entry::NOTHING, rcode::NOERROR, negative));
        }
        if let Some(place) = self.world.parent_side(name) {
            let ds = match place {
                Place::ParentSide(zone, set) => Some(self.ds(name, zone, set)?),
                place => self.elsewhere(rtype::DS, &place)?,
            };
            entries.retain(|e| e.rtype() != rtype::DS);
            entries.extend(ds);
        }
        Ok((entries, flags))
    }

    /// DS as the zone above a cut or an apex has it (RFC 4035 section 3.1.4.1).
    fn ds(&mut self, name: &[u8], zone: usize, set: Option<&Rrset>) -> Result<Entry> {
        let blob = match set {
            Some(set) => {
                let mut blob = BlobBuilder::new(name);
                put_set(&mut blob, Section::Answer, name, set)?;
                self.add(&blob)?
            }
            None => self.negative(zone),
        };
        Ok(Entry::fixed(rtype::DS, rcode::NOERROR, blob))
    }

    /// The entry of a name at or below a cut, or below a DNAME.
    fn elsewhere(&mut self, rtype: u16, place: &Place<'w, 'a>) -> Result<Option<Entry>> {
        let (blob, flag) = match *place {
            Place::Cut(cut, owner) => (self.referral(cut, owner)?, Entry::REFERRAL),
            Place::Dname(owner, set) => (self.dname(owner, set)?, Entry::DNAME),
            _ => return Ok(None),
        };
        Ok(Some(Entry::fixed(rtype, rcode::NOERROR, blob).with_flags(flag)))
    }

    /// A DNAME record, behind a question that is its owner or ends in it.
    fn dname(&mut self, owner: &'w [u8], set: &Rrset) -> Result<u32> {
        if let Some(&blob) = self.dnames.get(owner) {
            return Ok(blob);
        }
        let mut blob = BlobBuilder::for_suffix(owner);
        put_set(&mut blob, Section::Answer, owner, set)?;
        let at = self.add(&blob)?;
        self.dnames.insert(owner, at);
        Ok(at)
    }

    /// The referral of a cut, behind a question that is the cut or ends in it.
    fn referral(&mut self, cut: &'w [u8], owner: &Owner<'a>) -> Result<u32> {
        if let Some(&blob) = self.referrals.get(cut) {
            return Ok(blob);
        }
        let mut blob = BlobBuilder::for_suffix(cut);
        self.put_referral(&mut blob, cut, owner)?;
        let at = self.add(&blob)?;
        self.referrals.insert(cut, at);
        Ok(at)
    }

    fn put_referral(&self, blob: &mut BlobBuilder, cut: &[u8], owner: &Owner<'a>) -> Result<()> {
        let Some(ns) = owner.set(rtype::NS) else {
            return Ok(());
        };
        put_set(blob, Section::Authority, cut, ns)?;
        let targets: BTreeSet<Vec<u8>> = ns.rdata.iter().map(|r| lowered(r)).collect();
        let mut required = false;
        for target in &targets {
            for set in self.world.glue(target) {
                put_set(blob, Section::Additional, target, set)?;
                // What lies at or below the cut can be reached by its glue alone (RFC 9471 section 3.1).
                required |= super::ancestors(target).any(|n| n == cut);
            }
        }
        if required {
            blob.require_additional();
        }
        Ok(())
    }

    /// The entries of a CNAME: one for CNAME itself, one for each type at the end of the chain, and one for all
    /// others.
    fn cname(&mut self, name: &[u8], set: &'a Rrset) -> Result<Vec<Entry>> {
        let mut chain = Chain::new(name, set)?;
        let own = self.add(&chain.blob)?;
        let first = Entry::fixed(rtype::CNAME, rcode::NOERROR, own);
        let end = chain.follow(self.world, name, false)?;
        let (mut entries, mut default) = (Vec::new(), None);
        if let End::At(Place::At(_, owner)) = &end {
            if let Some(service) = owner.service {
                let blob = self.add(&chain.blob)?;
                for rtype in [rtype::A, rtype::AAAA] {
                    entries.push(chosen(rtype, blob, service, chain.target_at));
                }
                if service.cnames {
                    // Instead of the default below, which is what remains when nothing is chosen.
                    default = Some(chosen(Entry::DEFAULT, blob, service, chain.target_at));
                }
            }
            for set in &owner.sets {
                entries.push(self.at_end(&chain, &end, set.rtype)?);
            }
        }
        // The type asked for most first.
        entries.sort_by_key(|e| (!matches!(e.rtype(), rtype::A | rtype::AAAA), e.rtype()));
        let key = lowered(&chain.target);
        let at_cut = matches!(&end, End::At(Place::Cut(cut, _)) if *cut == key);
        if at_cut || self.world.parent_side(&key).is_some() {
            let mut chain = Chain::new(name, set)?;
            let end = chain.follow(self.world, name, true)?;
            entries.retain(|e| e.rtype() != rtype::DS);
            let owner = match &end {
                End::At(Place::At(_, owner)) => Some(owner),
                _ => None,
            };
            if let Some(service) = owner.and_then(|owner| owner.service).filter(|s| s.cnames) {
                let blob = self.add(&chain.blob)?;
                entries.push(chosen(rtype::DS, blob, service, chain.target_at));
            }
            // Behind a choice: what remains when nothing is chosen.
            entries.push(self.at_end(&chain, &end, rtype::DS)?);
        }
        let mut rest = self.at_end(&chain, &end, Entry::DEFAULT)?;
        if let Some(default) = default {
            entries.push(default);
            rest = rest.with_rtype(Entry::NOTHING);
        }
        entries.push(rest);
        entries.insert(usize::from(!entries.is_empty()), first);
        Ok(entries)
    }

    /// The answer to one type at the end of a chain.
    fn at_end(&mut self, chain: &Chain, end: &End<'w, 'a>, rtype: u16) -> Result<Entry> {
        let mut blob = chain.blob.clone();
        let mut code = rcode::NOERROR;
        match end {
            End::Stops | End::At(Place::Elsewhere | Place::Dname(..)) => {}
            End::TooLong => code = rcode::YXDOMAIN,
            End::At(Place::Missing(zone)) => {
                put_negative(&mut blob, &self.world.zones[*zone])?;
                code = rcode::NXDOMAIN;
            }
            End::At(Place::Cut(cut, owner)) if rtype == rtype::DS && lowered(&chain.target) == *cut => {
                self.put_set_or_negative(&mut blob, chain, owner.zone, owner.set(rtype))?;
            }
            End::At(Place::Cut(cut, owner)) => self.put_referral(&mut blob, cut, owner)?,
            End::At(Place::ParentSide(zone, set)) => {
                self.put_set_or_negative(&mut blob, chain, *zone, *set)?;
            }
            // The DNAME asked for led here.
            End::At(Place::At(key, _)) if rtype == rtype::DNAME && chain.dnames.iter().any(|d| d == key) => {}
            End::At(Place::At(_, owner)) => {
                self.put_set_or_negative(&mut blob, chain, owner.zone, owner.set(rtype))?;
            }
        }
        Ok(Entry::fixed(rtype, code, self.add(&blob)?))
    }

    fn put_set_or_negative(
        &self,
        blob: &mut BlobBuilder,
        chain: &Chain,
        zone: usize,
        set: Option<&Rrset>,
    ) -> Result<()> {
        match set {
            Some(set) => put_set(blob, Section::Answer, &chain.target, set),
            None => put_negative(blob, &self.world.zones[zone]),
        }
    }
}

/// An entry whose answer a service chooses, behind a chain.
fn chosen(rtype: u16, blob: u32, service: ServiceName, owner: u16) -> Entry {
    let mut entry = Entry::fixed(rtype, rcode::NOERROR, blob).with_service(service.service, owner);
    if service.cnames {
        entry = entry.with_flags(Entry::CNAMES);
    }
    entry
}

/// A name as text, for messages.
fn show(name: &[u8]) -> String {
    domain::base::Name::from_octets(name).map_or_else(|_| format!("{name:?}"), |n| n.to_string())
}
