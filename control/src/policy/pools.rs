//! Lays out pools for the workers: groups, pre-encoded records, weights. Called by the compiler alone.

use super::PolicyKey;
use super::slots::{PoolKey, group_mask};
use crate::config::model::{AllDown, CnameMember, Member, Metric, Name, Service, Spread};
use anyhow::{Context, Result};
use dataplane::mmap::Table;
use dataplane::tables::NONE;
use dataplane::tables::answers::{AnswersBuilder, BlobBuilder, Section};
use dataplane::tables::plans::{
    self, Group, Hot, Plans, Policy, Pool, RecordA, RecordAaaa, record_a, record_aaaa, record_cname, set_ttl,
};
use dataplane::tables::words::ALWAYS_UP;
use dataplane::wire::dns::rtype;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

/// A member of a pool.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Address(&'a Member),
    Cname(&'a CnameMember),
}

impl Given<'_> {
    fn weight(&self) -> u16 {
        match self {
            Self::Address(m) => m.weight,
            Self::Cname(m) => m.weight,
        }
    }
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(m) => m.address.fmt(f),
            Self::Cname(m) => write!(f, "{}.", m.name),
        }
    }
}

/// The pools of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    /// IPv4 addresses.
    V4,
    /// IPv6 addresses.
    V6,
    /// Names, and the addresses that they are drawn among: those of IPv4, of IPv6 if there is no IPv4. Empty without names.
    Decides,
}

/// The members of a service at a site in one pool: addresses, then names, each in file order.
pub(crate) fn members(service: &Service, site: usize, which: Which) -> impl Iterator<Item = Given<'_>> {
    let v6 = match which {
        Which::V4 => false,
        Which::V6 => true,
        Which::Decides => service.members.iter().all(|m| m.address.is_ipv6()),
    };
    let decides = which == Which::Decides;
    let all = !decides || !service.cnames.is_empty();
    let addresses = service.members.iter().filter(move |_| all);
    let addresses = addresses.filter(move |m| m.site == site && m.address.is_ipv6() == v6);
    let cnames = service.cnames.iter().filter(move |m| decides && m.site == site);
    addresses.map(Given::Address).chain(cnames.map(Given::Cname))
}

/// What makes two laid-out pools one, beside their slots.
#[derive(PartialEq, Eq, Hash)]
struct Shape {
    firsts: Vec<u32>,
    which: Which,
    ttl: (u32, u32),
    answers: u8,
    flags: u8,
    any_health: bool,
    site_words: Vec<u16>,
    weights: Vec<u16>,
    fixed: Vec<IpAddr>,
    sites: Vec<usize>,
    cnames: Vec<Name>,
}

/// Where a pool stands among the words.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) pool: &'a PoolKey,
    /// First slot of each group.
    pub(super) firsts: &'a [u32],
    /// Site word of each group.
    pub(super) site_words: &'a [u16],
}

/// The records of a pool, whose TTL hangs on how its members stand.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pool: PoolKey,
    v6: bool,
    /// Indices in the records of their family.
    members: Range<usize>,
    ttl: u32,
    ttl_degraded: u32,
}

/// Sets the TTLs of records by whether their pools are degraded. True when any is another than before.
pub(super) fn set_ttls(
    records: &[Records],
    is_degraded: impl Fn(&PoolKey) -> bool,
    a: &mut [RecordA],
    aaaa: &mut [RecordAaaa],
) -> bool {
    fn set<const N: usize>(records: Option<&mut [[u8; N]]>, ttl: u32) -> bool {
        let mut others = false;
        for record in records.into_iter().flatten() {
            let before = *record;
            set_ttl(record, ttl);
            others |= *record != before;
        }
        others
    }
    let mut others = false;
    for pool in records {
        let ttl = if is_degraded(&pool.pool) {
            pool.ttl_degraded
        } else {
            pool.ttl
        };
        others |= match pool.v6 {
            true => set(aaaa.get_mut(pool.members.clone()), ttl),
            false => set(a.get_mut(pool.members.clone()), ttl),
        };
    }
    others
}

/// How members of a policy's pools are drawn.
fn flags(policy: &PolicyKey, service: &Service) -> u8 {
    let by_count = match policy.chain.has(Metric::LeastSelected) {
        true => Pool::LEAST_SELECTED,
        false => 0,
    };
    let fills = if service.fill { Pool::FILLS } else { 0 };
    let by_spread = match service.spread {
        Spread::RoundRobin => by_count,
        Spread::Weighted => by_count | Pool::WEIGHTED,
        // Each client has its members: there is nothing to even out.
        Spread::ConsistentHash { .. } => Pool::HASHED | Pool::WEIGHTED,
    };
    by_spread | fills
}

/// Pools being laid out.
#[derive(Default)]
pub(super) struct Layout {
    shapes: HashMap<Shape, u32>,
    pools: Vec<Pool>,
    groups: Vec<Group>,
    pub(super) records_a: Vec<RecordA>,
    pub(super) records_aaaa: Vec<RecordAaaa>,
    weights_a: Vec<u16>,
    weights_aaaa: Vec<u16>,
    identities_a: Vec<u64>,
    identities_aaaa: Vec<u64>,
    layout: u32,
    pub(super) records: Vec<Records>,
    pub(super) members_v4: Vec<(String, usize)>,
    pub(super) members_v6: Vec<(String, usize)>,
}

impl Layout {
    /// A layout of that number.
    pub(super) fn new(layout: u32) -> Self {
        Self {
            layout,
            ..Self::default()
        }
    }

    /// A pool of a service at its place; equal pools are one.
    pub(super) fn pool(
        &mut self,
        service: &Service,
        policy: &PolicyKey,
        which: Which,
        placed: Placed<'_>,
        answers: &mut AnswersBuilder,
    ) -> Result<u32> {
        let firsts = placed.firsts;
        let v6 = which == Which::V6;
        let sites: Vec<usize> = policy.sites.iter().map(|c| c.site).collect();
        let all = || sites.iter().flat_map(|&site| members(service, site, which));
        let fixed = match &service.when_all_down {
            AllDown::Fixed(addresses) if which != Which::Decides => {
                addresses.iter().copied().filter(|a| a.is_ipv6() == v6).collect()
            }
            _ => Vec::new(),
        };
        let shape = Shape {
            firsts: firsts.to_vec(),
            which,
            ttl: (service.ttl, service.ttl_degraded),
            answers: if which == Which::Decides {
                1
            } else {
                service.answers
            },
            flags: flags(policy, service),
            any_health: !policy.chain.has(Metric::Health),
            site_words: placed.site_words.to_vec(),
            weights: all().map(|m| m.weight()).collect(),
            fixed,
            sites: sites.clone(),
            cnames: all()
                .filter_map(|m| match m {
                    Given::Cname(m) => Some(m.name.clone()),
                    Given::Address(_) => None,
                })
                .collect(),
        };
        if let Some(&pool) = self.shapes.get(&shape) {
            return Ok(pool);
        }
        let total = shape.weights.len();
        let first_member = if v6 {
            self.records_aaaa.len()
        } else {
            self.records_a.len()
        } as u32;
        let counts = sites
            .iter()
            .map(|&site| members(service, site, which).count() as u32);
        let mut pool = Pool {
            fixed: fixed_blob(service.ttl, &shape.fixed, answers)?,
            weight_max: shape.weights.iter().copied().max().unwrap_or(0),
            answers: shape.answers,
            flags: shape.flags,
            ..Pool::default()
        }
        .with_groups(
            self.groups.len() as u32,
            u16::try_from(sites.len()).context("more than 65,535 sites")?,
        );
        let word_of = |slot: u32| match shape.any_health {
            true => ALWAYS_UP,
            false => (slot / 64) as u16,
        };
        if let Some(start) = one_run(firsts, counts).filter(|start| start % 64 + total as u32 <= 64) {
            pool = pool.in_one_word(word_of(start), group_mask(start, total), first_member);
        }
        for ((&site, &first_slot), &word_of_site) in sites.iter().zip(firsts).zip(placed.site_words) {
            let first = if v6 {
                self.records_aaaa.len()
            } else {
                self.records_a.len()
            } as u32;
            let mut count = 0;
            for member in members(service, site, which) {
                self.member(member, site, v6, service.ttl, answers)?;
                count += 1;
            }
            self.groups.push(Group {
                mask: if count == 0 {
                    0
                } else {
                    group_mask(first_slot, count)
                },
                first,
                word: word_of(first_slot),
                site: word_of_site,
            });
        }
        self.pools.push(pool);
        self.records.push(Records {
            pool: placed.pool.clone(),
            v6,
            members: first_member as usize..first_member as usize + total,
            ttl: service.ttl,
            // Who does not look at health is never degraded.
            ttl_degraded: if shape.any_health {
                service.ttl
            } else {
                service.ttl_degraded
            },
        });
        let index = self.pools.len() as u32 - 1;
        self.shapes.insert(shape, index);
        Ok(index)
    }

    fn member(
        &mut self,
        member: Given<'_>,
        site: usize,
        v6: bool,
        ttl: u32,
        answers: &mut AnswersBuilder,
    ) -> Result<()> {
        let (mut four, mut six) = (RecordA::default(), RecordAaaa::default());
        match member {
            Given::Address(m) => match m.address {
                IpAddr::V4(a) => four = record_a(ttl, a.octets()),
                IpAddr::V6(a) => six = record_aaaa(ttl, a.octets()),
            },
            Given::Cname(m) => four = record_cname(cname_blob(ttl, &m.name, answers)?),
        }
        let known = (member.to_string(), site);
        // The same wherever and whenever it is worked out.
        let digest = Sha256::digest(known.0.as_bytes());
        let identity = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        if v6 {
            self.records_aaaa.push(six);
            self.weights_aaaa.push(member.weight());
            self.identities_aaaa.push(identity);
            self.members_v6.push(known);
        } else {
            self.records_a.push(four);
            self.weights_a.push(member.weight());
            self.identities_a.push(identity);
            self.members_v4.push(known);
        }
        Ok(())
    }

    /// The tables.
    pub(super) fn plans(self, services: Vec<plans::Service>, policies: Vec<Policy>) -> Result<Plans> {
        Ok(Plans {
            hot: Table::from_vec(Hot::of(&services, &self.pools))?,
            services: Table::from_vec(services)?,
            policies: Table::from_vec(policies)?,
            pools: Table::from_vec(self.pools)?,
            groups: Table::from_vec(self.groups)?,
            records_a: Table::from_vec(self.records_a)?,
            records_aaaa: Table::from_vec(self.records_aaaa)?,
            weights_a: Table::from_vec(self.weights_a)?,
            weights_aaaa: Table::from_vec(self.weights_aaaa)?,
            identities_a: Table::from_vec(self.identities_a)?,
            identities_aaaa: Table::from_vec(self.identities_aaaa)?,
            layout: self.layout,
        })
    }
}

/// The first slot of groups that stand one after the other; `None` if they do not.
fn one_run(firsts: &[u32], counts: impl Iterator<Item = u32>) -> Option<u32> {
    let start = *firsts.first()?;
    let mut next = start;
    for (&first, count) in firsts.iter().zip(counts) {
        if count > 0 && first != next {
            return None;
        }
        next += count;
    }
    Some(start)
}

/// The addresses that are given when all is down, or [`NONE`] without any.
fn fixed_blob(ttl: u32, addresses: &[IpAddr], answers: &mut AnswersBuilder) -> Result<u32> {
    if addresses.is_empty() {
        return Ok(NONE);
    }
    // The owner is a pointer to the question, so any question serves.
    let question = b"\x01x\x00";
    let mut blob = BlobBuilder::new(question);
    for address in addresses {
        let (rtype, rdata) = match address {
            IpAddr::V4(a) => (rtype::A, a.octets().to_vec()),
            IpAddr::V6(a) => (rtype::AAAA, a.octets().to_vec()),
        };
        if blob
            .record(Section::Answer, question, rtype, ttl, &rdata)
            .is_err()
        {
            anyhow::bail!("too many fixed addresses");
        }
    }
    answers.add(&blob).context("more than 4 GiB of records")
}

/// The CNAME record of a member that is a name, whatever the question.
fn cname_blob(ttl: u32, name: &Name, answers: &mut AnswersBuilder) -> Result<u32> {
    // The owner is a pointer to the question, and nothing of the target stands in the shortest one.
    let question = b"\0";
    let mut blob = BlobBuilder::new(question);
    let record = blob.record(Section::Answer, question, rtype::CNAME, ttl, name.as_slice());
    record.ok().context("a name that does not fit")?;
    answers.add(&blob).context("more than 4 GiB of records")
}
