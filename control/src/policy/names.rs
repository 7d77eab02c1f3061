//! Zones to names: every owner name with its record sets pre-encoded, empty non-terminals, cuts,
//! wildcards, CNAME chains and service names.
//!
//! Called by the compiler for a new configuration. All that an answer could look up is looked up here, once.

use crate::config::model::{Rrset, Zone};
use anyhow::{Context, Result};
use dataplane::tables::answers::{AnswersBuilder, BlobBuilder, Section};
use dataplane::tables::names::{Entry, NamesBuilder, Node};
use dataplane::tables::{self, Answers, Names};
use dataplane::wire::dns::{self, rcode, rtype};
use std::collections::{BTreeMap, HashMap, HashSet};

/// CNAMEs followed in one answer; a longer chain is answered as far as it goes.
const CNAMES_MAX: usize = 8;

/// A service name: (service index, policy index) by lower-cased wire name.
pub type ServiceNames = HashMap<Vec<u8>, (u32, u32)>;

/// What names compile to.
pub struct Compiled {
    /// Owner names.
    pub names: Names,
    /// Their records, and the fixed answers that were handed in.
    pub answers: Answers,
    /// Zones, by index in the configuration.
    pub zones: Vec<tables::Zone>,
}

/// One owner name while compiling.
#[derive(Default)]
struct Owner<'a> {
    zone: usize,
    sets: Vec<&'a Rrset>,
    service: Option<(u32, u32)>,
    cut: bool,
    /// The cut that an empty non-terminal lies below.
    below_cut: Option<Vec<u8>>,
    outside: bool,
}

struct Compiler<'a> {
    zones: &'a [Zone],
    owners: HashMap<Vec<u8>, Owner<'a>>,
    /// Names at which zones begin.
    apexes: HashMap<Vec<u8>, usize>,
    /// Glue and everything else below cuts, for referrals.
    below: HashMap<Vec<u8>, Vec<&'a Rrset>>,
    services: &'a ServiceNames,
    answers: AnswersBuilder,
}

/// The name's parent in wire form; `None` for the root.
fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        Some(&len) if len > 0 => name.get(1 + len as usize..),
        _ => None,
    }
}

/// The name and its ancestors up to the root.
fn ancestors(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |n| parent(n))
}

fn lowered(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// Compiles zones and service names. `answers` may hold blobs already.
///
/// # Errors
/// When a record set does not fit a message, or memory is out.
pub fn compile(
    zones: &[Zone],
    services: &ServiceNames,
    answers: AnswersBuilder,
    seed: [u64; 4],
) -> Result<Compiled> {
    let apexes = zones
        .iter()
        .enumerate()
        .map(|(i, z)| (lowered(z.apex.as_slice()), i))
        .collect();
    let mut compiler = Compiler {
        zones,
        owners: HashMap::new(),
        apexes,
        below: HashMap::new(),
        services,
        answers,
    };
    compiler.collect();
    compiler.encode(seed)
}

impl<'a> Compiler<'a> {
    /// The deepest served zone that holds `name` (lower-cased).
    fn zone_of(&self, name: &[u8]) -> Option<usize> {
        ancestors(name).find_map(|n| self.apexes.get(n).copied())
    }

    fn collect(&mut self) {
        let mut cuts = HashSet::new();
        for (index, zone) in self.zones.iter().enumerate() {
            let apex = lowered(zone.apex.as_slice());
            for set in zone.rrsets.iter().filter(|s| s.rtype == rtype::NS) {
                let owner = lowered(set.owner.as_slice());
                // A child zone that is served here is no cut.
                if owner != apex && self.zone_of(&owner) == Some(index) {
                    cuts.insert(owner);
                }
            }
        }
        for (index, zone) in self.zones.iter().enumerate() {
            let apex_len = zone.apex.as_slice().len();
            for set in &zone.rrsets {
                let owner = lowered(set.owner.as_slice());
                if self.zone_of(&owner) != Some(index) {
                    continue;
                }
                // Up to the zone's own apex: the zone itself may lie below a cut of another.
                let below_cut = ancestors(&owner)
                    .skip(1)
                    .take_while(|n| n.len() > apex_len)
                    .any(|n| cuts.contains(n));
                if below_cut {
                    self.below.entry(owner).or_default().push(set);
                    continue;
                }
                let cut = cuts.contains(&owner);
                let node = self.owners.entry(owner).or_default();
                node.zone = index;
                node.cut = cut;
                node.sets.push(set);
            }
        }
        for (name, &service) in self.services {
            if let Some(zone) = self.zone_of(name) {
                let node = self.owners.entry(name.clone()).or_default();
                node.zone = zone;
                node.service = Some(service);
            }
        }
        self.fill_ancestors();
    }

    /// Adds empty non-terminals (RFC 4592 section 2.2.2) and the apexes' ancestors.
    fn fill_ancestors(&mut self) {
        let names: Vec<Vec<u8>> = self.owners.keys().cloned().collect();
        for name in names {
            for ancestor in ancestors(&name).skip(1) {
                if self.owners.contains_key(ancestor) {
                    // Its own ancestors are added in its own turn.
                    if self
                        .owners
                        .get(ancestor)
                        .is_some_and(|o| !o.sets.is_empty() || o.service.is_some())
                    {
                        break;
                    }
                    continue;
                }
                let zone = self.zone_of(ancestor);
                let owner = Owner {
                    zone: zone.unwrap_or(0),
                    outside: zone.is_none(),
                    ..Owner::default()
                };
                self.owners.insert(ancestor.to_vec(), owner);
            }
        }
        self.refer_below_cuts();
    }

    /// A zone may be served that lies deeper below a cut than its own: what stands between is referred, as all
    /// else below the cut.
    fn refer_below_cuts(&mut self) {
        let cut_of = |(name, owner): (&Vec<u8>, &Owner<'a>)| {
            let empty = owner.sets.is_empty() && owner.service.is_none() && !owner.outside;
            let cut = ancestors(name)
                .skip(1)
                .filter(|_| empty)
                .find(|n| self.owners.get(*n).is_some_and(|o| o.cut && o.zone == owner.zone))?;
            Some((name.clone(), cut.to_vec()))
        };
        let found: Vec<_> = self.owners.iter().filter_map(cut_of).collect();
        for (name, cut) in found {
            let sets = self.owners.get(&cut).map(|o| o.sets.clone());
            if let Some(owner) = self.owners.get_mut(&name) {
                owner.sets = sets.unwrap_or_default();
                (owner.cut, owner.below_cut) = (true, Some(cut));
            }
        }
    }

    fn encode(mut self, seed: [u64; 4]) -> Result<Compiled> {
        let mut zones = Vec::new();
        for zone in self.zones {
            let mut blob = BlobBuilder::for_suffix(zone.apex.as_slice());
            put_negative(&mut blob, zone).with_context(|| format!("zone {}", zone.apex))?;
            zones.push(tables::Zone {
                negative: self.add(&blob)?,
            });
        }
        let mut names = NamesBuilder::new(seed);
        // In a fixed order, so that equal configurations compile alike.
        let owners: BTreeMap<_, _> = std::mem::take(&mut self.owners).into_iter().collect();
        let mut built = Vec::with_capacity(owners.len());
        for (name, owner) in &owners {
            let (entries, flags) = self
                .node(name, owner, &owners, &zones)
                .with_context(|| format!("name {}", show(name)))?;
            built.push((name, owner.zone as u32, flags, entries, owner.service));
        }
        for (name, zone, flags, entries, service) in built {
            names.add(name, zone, flags, &entries, service);
        }
        Ok(Compiled {
            names: names.build()?,
            answers: self.answers.build()?,
            zones,
        })
    }

    fn add(&mut self, blob: &BlobBuilder) -> Result<u32> {
        self.answers.add(blob).context("more than 4 GiB of records")
    }

    fn node(
        &mut self,
        name: &[u8],
        owner: &Owner<'a>,
        owners: &BTreeMap<Vec<u8>, Owner<'a>>,
        zones: &[tables::Zone],
    ) -> Result<(Vec<Entry>, u8)> {
        let mut flags = 0;
        if owner.outside {
            return Ok((Vec::new(), Node::OUTSIDE));
        }
        let mut wildcard = b"\x01*".to_vec();
        wildcard.extend_from_slice(name);
        if owners.contains_key(&wildcard) {
            flags |= Node::WILDCARD;
        }
        if owner.cut {
            let mut entries = self.cut(owner.below_cut.as_deref().unwrap_or(name), owner, zones)?;
            if owner.below_cut.is_some() {
                // The parent side answers DS for the cut alone.
                entries.retain(|e| e.rtype != rtype::DS);
            }
            return Ok((entries, flags | Node::CUT));
        }
        let mut entries = Vec::new();
        if let Some(cname) = owner.sets.iter().find(|s| s.rtype == rtype::CNAME) {
            entries = self.cname(name, cname, owners)?;
        } else {
            let mut sets = owner.sets.clone();
            // Addresses are what is asked for most: first in the node's own cache line.
            sets.sort_by_key(|s| (!matches!(s.rtype, rtype::A | rtype::AAAA), s.rtype));
            for set in sets {
                let mut blob = BlobBuilder::new(name);
                put_set(&mut blob, Section::Answer, name, set)?;
                entries.push(Entry::fixed(set.rtype, rcode::NOERROR, self.add(&blob)?));
            }
        }
        Ok((entries, flags))
    }

    /// The entries of a zone cut: a referral for all types but DS, which the parent side answers (RFC 4035
    /// section 3.1.4.1).
    fn cut(&mut self, name: &[u8], owner: &Owner<'a>, zones: &[tables::Zone]) -> Result<Vec<Entry>> {
        let mut blob = BlobBuilder::for_suffix(name);
        let mut targets = Vec::new();
        for set in owner.sets.iter().filter(|s| s.rtype == rtype::NS) {
            put_set(&mut blob, Section::Authority, name, set)?;
            targets.extend(set.rdata.iter().map(|r| lowered(r)));
        }
        let mut required = false;
        for target in &targets {
            // What lies at or below the cut can be reached by its glue alone.
            let own = ancestors(target).any(|n| n == name);
            let here: Vec<&Rrset> = owner.sets.iter().copied().filter(|_| target == name).collect();
            for set in self.below.get(target).unwrap_or(&here) {
                if matches!(set.rtype, rtype::A | rtype::AAAA) {
                    put_set(&mut blob, Section::Additional, target, set)?;
                    required |= own;
                }
            }
        }
        if required {
            blob.require_additional();
        }
        let referral = self.add(&blob)?;
        let mut entries =
            vec![Entry::fixed(Entry::DEFAULT, rcode::NOERROR, referral).with_flags(Entry::REFERRAL)];
        let ds = match owner.sets.iter().find(|s| s.rtype == rtype::DS) {
            Some(set) => {
                let mut blob = BlobBuilder::new(name);
                put_set(&mut blob, Section::Answer, name, set)?;
                self.add(&blob)?
            }
            None => zones[owner.zone].negative,
        };
        entries.push(Entry::fixed(rtype::DS, rcode::NOERROR, ds));
        Ok(entries)
    }

    /// The entries of a CNAME: one for CNAME itself, one for each type at the end of the chain, and one for all
    /// others.
    fn cname(
        &mut self,
        name: &[u8],
        set: &'a Rrset,
        owners: &BTreeMap<Vec<u8>, Owner<'a>>,
    ) -> Result<Vec<Entry>> {
        let mut chain = BlobBuilder::new(name);
        put_set(&mut chain, Section::Answer, name, set)?;
        let own = self.add(&chain)?;
        let mut entries = vec![Entry::fixed(rtype::CNAME, rcode::NOERROR, own)];
        let mut seen = HashSet::from([name.to_vec()]);
        let mut target = set.rdata.first().cloned().unwrap_or_default();
        // Where the last target stands in the blob: the owner of what follows.
        let mut target_at = 2 + 10;
        for hop in 0..CNAMES_MAX {
            let key = lowered(&target);
            if !seen.insert(key.clone()) {
                break;
            }
            let Some(zone) = self.zone_of(&key) else { break };
            let (found, exists) = resolve(&key, owners);
            let Some(found) = found else {
                if exists != Exists::No {
                    // Below a cut: whoever resolves asks again there.
                    break;
                }
                let mut blob = chain.clone();
                put_negative(&mut blob, &self.zones[zone])?;
                entries.push(Entry::fixed(Entry::DEFAULT, rcode::NXDOMAIN, self.add(&blob)?));
                return Ok(entries);
            };
            if let Some(next) = found.sets.iter().find(|s| s.rtype == rtype::CNAME) {
                if hop + 1 == CNAMES_MAX {
                    break;
                }
                let at = chain.position();
                put_set(&mut chain, Section::Answer, &target, next)?;
                // Owner pointers are two bytes; a first owner that is written out is longer.
                target_at = rdata_at(&chain, at);
                target = next.rdata.first().cloned().unwrap_or_default();
                continue;
            }
            if let Some((service, _)) = found.service {
                let blob = self.add(&chain)?;
                for rtype in [rtype::A, rtype::AAAA] {
                    entries.push(Entry::fixed(rtype, rcode::NOERROR, blob).with_service(service, target_at));
                }
            }
            for set in &found.sets {
                let mut blob = chain.clone();
                put_set(&mut blob, Section::Answer, &target, set)?;
                entries.push(Entry::fixed(set.rtype, rcode::NOERROR, self.add(&blob)?));
            }
            let mut blob = chain.clone();
            put_negative(&mut blob, &self.zones[zone])?;
            entries.push(Entry::fixed(Entry::DEFAULT, rcode::NOERROR, self.add(&blob)?));
            // The type asked for most first.
            entries.sort_by_key(|e| (!matches!(e.rtype, rtype::A | rtype::AAAA), e.rtype));
            return Ok(entries);
        }
        let partial = self.add(&chain)?;
        entries.push(Entry::fixed(Entry::DEFAULT, rcode::NOERROR, partial));
        Ok(entries)
    }
}

/// Offset in the blob's data of the RDATA of the record at `at`.
fn rdata_at(blob: &BlobBuilder, at: u16) -> u16 {
    let record = blob.data().get(at as usize..).unwrap_or(&[]);
    let owner = dns::skip_name(record, 0).unwrap_or(2) as u16;
    at + owner + 10
}

/// Whether a name that has no owner of its own may exist elsewhere.
#[derive(PartialEq, Eq)]
enum Exists {
    /// Below a cut.
    Elsewhere,
    /// It does not.
    No,
}

/// The owner that answers for a name in a served zone: its own, or the wildcard that covers it.
fn resolve<'b, 'a>(name: &[u8], owners: &'b BTreeMap<Vec<u8>, Owner<'a>>) -> (Option<&'b Owner<'a>>, Exists) {
    if let Some(owner) = owners.get(name) {
        return if owner.cut {
            (None, Exists::Elsewhere)
        } else {
            (Some(owner), Exists::No)
        };
    }
    for ancestor in ancestors(name).skip(1) {
        if let Some(encloser) = owners.get(ancestor) {
            if encloser.cut {
                return (None, Exists::Elsewhere);
            }
            let mut wildcard = b"\x01*".to_vec();
            wildcard.extend_from_slice(ancestor);
            return (owners.get(&wildcard), Exists::No);
        }
    }
    (None, Exists::No)
}

fn put_set(blob: &mut BlobBuilder, section: Section, owner: &[u8], set: &Rrset) -> Result<()> {
    for rdata in &set.rdata {
        if blob.record(section, owner, set.rtype, set.ttl, rdata).is_err() {
            anyhow::bail!(
                "the records of type {} do not fit one message of 65,535 bytes",
                set.rtype
            );
        }
    }
    Ok(())
}

/// The zone's SOA in the authority section, its TTL lowered to MINIMUM (RFC 2308 sections 3 and 5).
fn put_negative(blob: &mut BlobBuilder, zone: &Zone) -> Result<()> {
    let apex = zone.apex.as_slice();
    let soa = zone
        .rrsets
        .iter()
        .find(|s| s.rtype == rtype::SOA && s.owner.as_slice().eq_ignore_ascii_case(apex))
        .with_context(|| format!("zone {} has no SOA", zone.apex))?;
    let rdata = soa.rdata.first().context("empty SOA")?;
    let minimum = rdata.last_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
    let negative = Rrset {
        ttl: soa.ttl.min(minimum),
        ..soa.clone()
    };
    put_set(blob, Section::Authority, apex, &negative)
}

/// A name as text, for messages.
fn show(name: &[u8]) -> String {
    domain::base::Name::from_octets(name).map_or_else(|_| format!("{name:?}"), |n| n.to_string())
}
