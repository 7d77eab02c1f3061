//! Compiled policy: which sites answer a client class, in which order, and with which members.
//!
//! Read by `stages::dns_answer`; built by control. A service names its policy and its pools; the cell
//! of policy and class ranks the policy's sites in tiers; the pool says which member slots stand at each site;
//! the records of the members are pre-encoded. The cost of a choice depends on none of the numbers of
//! metrics, services, sites or prefixes.

use super::NONE;
use crate::arch;
use crate::mmap::Table;
use crate::wire::dns::rtype;
use crate::zeroable;
use std::io;

/// Sites that one cell can rank. A policy with more keeps the best.
pub const RANKED_MAX: usize = 28;
/// Members of one pool at one site: the bits of a word.
pub const GROUP_MAX: usize = 64;
/// Addresses in one answer.
pub const ANSWERS_MAX: usize = 16;

/// How sites rank for one class: tiers of equals, best first. 32 bytes, two a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Cell {
    /// Sites by rank: indices into the policy's site list, which pools share.
    order: [u8; RANKED_MAX],
    /// Bit i: the i-th site is the last of its tier. The highest set bit ends the list.
    ends: u32,
}

zeroable!(Cell { order, ends });
zeroable!(Policy {
    cells,
    flags,
    window,
    explore,
    hashed_v4,
    hashed_v6
});
zeroable!(Group {
    mask,
    first,
    word,
    site
});
zeroable!(Pool {
    mask,
    groups,
    fixed,
    base,
    one_tier,
    group_count,
    word,
    weight_max,
    answers,
    flags
});
zeroable!(Hot { v4, v6 });
zeroable!(Service {
    policy,
    v4,
    v6,
    decides
});

const _: () = assert!(size_of::<Cell>() == 32 && size_of::<Group>() == 16 && size_of::<Pool>() == 32);

impl Cell {
    /// A cell from tiers of site indices; what exceeds [`RANKED_MAX`] is cut off. Empty tiers are skipped.
    pub fn new<'a>(tiers: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut cell = Self::default();
        let mut slots = cell.order.iter_mut();
        let mut len = 0u32;
        for tier in tiers {
            let before = len;
            for &site in tier {
                if let Some(slot) = slots.next() {
                    *slot = site;
                    len += 1;
                }
            }
            if len > before {
                cell.ends |= 1 << (len - 1);
            }
        }
        cell
    }

    /// The best site.
    #[inline(always)]
    pub fn first(&self) -> u8 {
        let [first, ..] = self.order;
        first
    }

    /// The tiers behind the one that `site` is in; none if it is in none.
    pub fn behind(&self, site: u8) -> Self {
        let mut ranked = self.ranked().skip_while(|(other, _)| *other != site);
        // To the end of its tier.
        let mut left = ranked.by_ref().skip_while(|(_, last)| !last);
        left.next();
        let mut behind = Self::default();
        for (len, (slot, (site, last))) in behind.order.iter_mut().zip(left).enumerate() {
            *slot = site;
            behind.ends |= u32::from(last) << len;
        }
        behind
    }

    /// Whether the cell is one tier of all groups of a pool.
    #[inline(always)]
    pub fn is_one_tier_of(&self, pool: &Pool) -> bool {
        self.ends == pool.one_tier
    }

    /// The ranked sites with whether each is the last of its tier.
    #[inline(always)]
    pub fn ranked(&self) -> impl Iterator<Item = (u8, bool)> + '_ {
        let len = 32 - self.ends.leading_zeros() as usize;
        self.order
            .iter()
            .take(len)
            .enumerate()
            .map(|(i, &site)| (site, self.ends >> i & 1 == 1))
    }
}

/// A policy: an interned chain with its site list and parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Index of its first cell; its cells are one per class, or two with [`Policy::EXPLORES`].
    pub cells: u32,
    /// [`Policy::BY_CLASS`], [`Policy::BY_SOURCE`] and [`Policy::EXPLORES`].
    pub flags: u32,
    /// Over which time selections are counted, for pools with [`Pool::LEAST_SELECTED`], seconds.
    pub window: u16,
    /// With [`Policy::EXPLORES`]: how many of 65,536 queries take the second cell.
    pub explore: u16,
    /// For pools with [`Pool::HASHED`]: bits of the client's address that choose, IPv4.
    pub hashed_v4: u8,
    /// The same for IPv6.
    pub hashed_v6: u8,
}

impl Policy {
    /// Cells differ by class: the answer depends on the client. Without it the ECS scope is 0, and cell 0 serves all.
    pub const BY_CLASS: u32 = 1;
    /// The client is whoever sent the query, whatever its client subnet says.
    pub const BY_SOURCE: u32 = 2;
    /// With [`Policy::BY_CLASS`]: each class has a second cell behind its first, which some queries take, so that sites of
    /// which nothing is known get clients.
    pub const EXPLORES: u32 = 4;
    /// In a place: cells differ by class.
    pub const PLACE_BY_CLASS: u32 = 1 << 31;
    /// In a place: [`Policy::BY_SOURCE`].
    pub const PLACE_BY_SOURCE: u32 = 1 << 30;
    /// In a place: [`Policy::EXPLORES`].
    pub const PLACE_EXPLORES: u32 = 1 << 29;
    /// Cells of all policies that can have a place.
    pub const CELLS_MAX: u32 = Self::PLACE_EXPLORES;

    /// Where its cells are, in one word: the index of the first, and the bits `PLACE_`.
    pub const fn place(self) -> u32 {
        const { assert!(Self::BY_CLASS == 1 && Self::BY_SOURCE == 2 && Self::EXPLORES == 4) };
        self.cells
            | (self.flags & Self::BY_CLASS) << 31
            | (self.flags & Self::BY_SOURCE) << 29
            | (self.flags & Self::EXPLORES) << 27
    }
}

/// The members of a pool at one site. 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Group {
    /// Which bits of the word are this group's: contiguous.
    pub mask: u64,
    /// Index of the group's first member in the pool's records and weights.
    pub first: u32,
    /// Index of the health word; a group never straddles words.
    pub word: u16,
    /// Its site word.
    pub site: u16,
}

/// The members of a service in one address family. 32 bytes, two a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pool {
    /// With [`Pool::ONE_WORD`]: the bits of all its members.
    pub mask: u64,
    /// Index of its first group; it has one group for each site of the policy's list. No other pool has it, so it stands for
    /// the pool.
    pub groups: u32,
    /// Blob of the addresses that are given when all is down (`fixed`), or [`NONE`].
    pub fixed: u32,
    /// With [`Pool::ONE_WORD`]: what to add, wrapping, to a member's bit for its index in the records and weights.
    pub base: u32,
    /// What [`Cell`] says of one tier of all groups; 0 if none can.
    pub one_tier: u32,
    /// Number of groups.
    pub group_count: u16,
    /// With [`Pool::ONE_WORD`]: index of the health word.
    pub word: u16,
    /// Highest weight of a member; 0: all weights are 0 or not used.
    pub weight_max: u16,
    /// Addresses in an answer, 1 to [`ANSWERS_MAX`].
    pub answers: u8,
    /// [`Pool::WEIGHTED`] and those behind it.
    pub flags: u8,
}

impl Pool {
    /// Draw by weight; otherwise round robin.
    pub const WEIGHTED: u8 = 1;
    /// All members are in one health word, in the order of their records: the usual case.
    pub const ONE_WORD: u8 = 2;
    /// The client's address chooses, by rendezvous hashing in proportion to the weights.
    pub const HASHED: u8 = 4;
    /// The members that were drawn the fewest times for their weight come first.
    pub const LEAST_SELECTED: u8 = 8;
    /// When a tier has fewer members than an answer, those of the next tiers follow, in their order.
    pub const FILLS: u8 = 16;
    /// Any for which the usual draw is no good.
    pub const EVERY_STEP: u8 = Self::HASHED | Self::LEAST_SELECTED | Self::FILLS;
}

impl Pool {
    /// The same with that many groups.
    pub fn with_groups(self, first: u32, count: u16) -> Self {
        let one_tier = match count {
            0 => 0,
            1.. => 1u32.checked_shl(u32::from(count) - 1).unwrap_or(0),
        };
        Self {
            groups: first,
            group_count: count,
            one_tier,
            ..self
        }
    }

    /// The same with all members in the health word `word`: those of `mask`, whose records begin with `first`.
    pub fn in_one_word(self, word: u16, mask: u64, first: u32) -> Self {
        Self {
            word,
            mask,
            base: first.wrapping_sub(mask.trailing_zeros() & 63),
            flags: self.flags | Self::ONE_WORD,
            ..self
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            mask: 0,
            groups: 0,
            fixed: NONE,
            base: 0,
            one_tier: 0,
            group_count: 0,
            word: 0,
            weight_max: 0,
            answers: 1,
            flags: 0,
        }
    }
}

/// A service: where its answers come from.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Its policy.
    pub policy: u32,
    /// Pool of IPv4 members, or [`NONE`].
    pub v4: u32,
    /// Pool of IPv6 members, or [`NONE`].
    pub v6: u32,
    /// Pool whose draw decides between addresses and names, of both; [`NONE`] without names. Its records are among the A
    /// records, those of names as [`record_cname`] makes them.
    pub decides: u32,
}

/// What an answer of a service reads first: copies of its pools, in one cache line. A pool that is not there has no
/// members.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Hot {
    /// Of IPv4 members.
    pub v4: Pool,
    /// Of IPv6 members.
    pub v6: Pool,
}

impl Hot {
    /// Those of all services.
    pub fn of(services: &[Service], pools: &[Pool]) -> Vec<Self> {
        let pool = |index: u32| pools.get(index as usize).copied().unwrap_or_default();
        services
            .iter()
            .map(|service| Self {
                v4: pool(service.v4),
                v6: pool(service.v6),
            })
            .collect()
    }
}

/// A pre-encoded A record, owned by a pointer to the question (RFC 1035 section 4.1.4).
pub type RecordA = [u8; 16];
/// A pre-encoded AAAA record, likewise.
pub type RecordAaaa = [u8; 28];

/// Everything that answers of services are chosen from.
#[derive(Debug)]
pub struct Plans {
    /// Services.
    pub services: Table<Service>,
    /// What answers of services read first, by service.
    pub hot: Table<Hot>,
    /// Policies.
    pub policies: Table<Policy>,
    /// Pools of both families.
    pub pools: Table<Pool>,
    /// Groups of all pools.
    pub groups: Table<Group>,
    /// Records of IPv4 members.
    pub records_a: Table<RecordA>,
    /// Records of IPv6 members.
    pub records_aaaa: Table<RecordAaaa>,
    /// Weights of IPv4 members.
    pub weights_a: Table<u16>,
    /// Weights of IPv6 members.
    pub weights_aaaa: Table<u16>,
    /// What IPv4 members are hashed by: the same on every appliance, whatever the order.
    pub identities_a: Table<u64>,
    /// What IPv6 members are hashed by.
    pub identities_aaaa: Table<u64>,
    /// Rises with each layout of the members: their indices mean others then.
    pub layout: u32,
}

/// What members of one family are drawn by.
#[derive(Clone, Copy, Debug)]
pub struct Family<'a> {
    /// IPv6.
    pub v6: bool,
    /// Weights.
    pub weights: &'a Table<u16>,
    /// What they are hashed by.
    pub identities: &'a Table<u64>,
}

impl Plans {
    /// The same with other records of the same members. Control only: it allocates.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn with_records(&self, a: Vec<RecordA>, aaaa: Vec<RecordAaaa>) -> io::Result<Self> {
        Ok(Self {
            services: self.services.copy()?,
            hot: self.hot.copy()?,
            policies: self.policies.copy()?,
            pools: self.pools.copy()?,
            groups: self.groups.copy()?,
            records_a: Table::from_vec(a)?,
            records_aaaa: Table::from_vec(aaaa)?,
            weights_a: self.weights_a.copy()?,
            weights_aaaa: self.weights_aaaa.copy()?,
            identities_a: self.identities_a.copy()?,
            identities_aaaa: self.identities_aaaa.copy()?,
            layout: self.layout,
        })
    }

    /// What members are drawn by.
    pub fn family(&self, v6: bool) -> Family<'_> {
        match v6 {
            true => Family {
                v6,
                weights: &self.weights_aaaa,
                identities: &self.identities_aaaa,
            },
            false => Family {
                v6,
                weights: &self.weights_a,
                identities: &self.identities_a,
            },
        }
    }

    /// A service.
    #[inline(always)]
    pub fn service(&self, index: u32) -> Option<&Service> {
        self.services.get(index as usize)
    }

    /// A policy.
    #[inline(always)]
    pub fn policy(&self, index: u32) -> Option<&Policy> {
        self.policies.get(index as usize)
    }

    /// Asks for the cache line that an answer of a service reads first.
    #[inline(always)]
    pub fn prefetch(&self, service: u32) {
        arch::prefetch_entry(&self.hot, service as usize);
    }

    /// The groups of a pool, by site of its policy.
    #[inline(always)]
    pub fn groups(&self, pool: &Pool) -> &[Group] {
        let start = pool.groups as usize;
        self.groups
            .get(start..start + pool.group_count as usize)
            .unwrap_or(&[])
    }
}

/// The pre-encoded A record of a member.
pub fn record_a(ttl: u32, address: [u8; 4]) -> RecordA {
    record_a_of(rtype::A, ttl, address)
}

fn record_a_of(rtype: u16, ttl: u32, rdata: [u8; 4]) -> RecordA {
    let ([r0, r1], [t0, t1, t2, t3]) = (rtype.to_be_bytes(), ttl.to_be_bytes());
    let [a, b, c, d] = rdata;
    [0xc0, 12, r0, r1, 0, 1, t0, t1, t2, t3, 0, 4, a, b, c, d]
}

/// Sets the TTL of a pre-encoded address record, of either family. What stands for a name has its TTL in its blob.
pub fn set_ttl(record: &mut [u8], ttl: u32) {
    if let Some([_, _, t0, t1, _, _, seconds @ ..]) = record.first_chunk_mut::<10>()
        && matches!(u16::from_be_bytes([*t0, *t1]), rtype::A | rtype::AAAA)
    {
        *seconds = ttl.to_be_bytes();
    }
}

/// The pre-encoded AAAA record of a member.
pub fn record_aaaa(ttl: u32, address: [u8; 16]) -> RecordAaaa {
    let mut out = [0; 28];
    let (head, tail) = out.split_at_mut(12);
    let [t0, t1, t2, t3] = ttl.to_be_bytes();
    head.copy_from_slice(&[0xc0, 12, 0, 28, 0, 1, t0, t1, t2, t3, 0, 16]);
    tail.copy_from_slice(&address);
    out
}

/// What stands for a member that is a name, in the place of its address record: the blob of its CNAME record. Only in
/// pools that decide (see [`Service::decides`]).
pub fn record_cname(blob: u32) -> RecordA {
    record_a_of(rtype::CNAME, 0, blob.to_be_bytes())
}

/// The blob of a member that is a name.
pub fn cname_of(record: &RecordA) -> Option<u32> {
    let [_, _, t0, t1, .., a, b, c, d] = *record;
    (u16::from_be_bytes([t0, t1]) == rtype::CNAME).then_some(u32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_keeps_tiers_in_order() {
        let cell = Cell::new([&[3u8, 1][..], &[], &[0]]);
        let ranked: Vec<_> = cell.ranked().collect();
        assert_eq!(ranked, [(3, false), (1, true), (0, true)]);
        assert_eq!(Cell::default().ranked().count(), 0);
    }

    #[test]
    fn tiers_behind_a_site() {
        let cell = Cell::new([&[3u8, 1][..], &[0], &[2, 4]]);
        for (site, tiers) in [
            (3, &[&[0u8][..], &[2, 4]][..]),
            (1, &[&[0], &[2, 4]]),
            (0, &[&[2, 4]]),
            (4, &[]),
            (9, &[]),
        ] {
            assert_eq!(cell.behind(site), Cell::new(tiers.iter().copied()), "{site}");
        }
    }

    #[test]
    fn cell_is_cut_at_its_room() {
        let many: Vec<u8> = (0..40).collect();
        let cell = Cell::new([&many[..20], &many[20..]]);
        assert_eq!(cell.ranked().count(), RANKED_MAX);
        assert_eq!(cell.ranked().last(), Some((27, true)));
    }

    #[test]
    fn records_are_rfc_1035() {
        // Owner pointer to offset 12, type A, class IN, TTL 30, RDLENGTH 4.
        assert_eq!(
            record_a(30, [192, 0, 2, 1]),
            [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]
        );
        assert_eq!(
            record_aaaa(1, [0xfe; 16])[..12],
            [0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 1, 0, 16]
        );
    }
}
