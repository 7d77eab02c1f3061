//! The service addresses of one port: what `classify` and `neighbour` look up for every packet.
//!
//! Control builds a set and hands it over in a snapshot; a worker only reads. A lookup reads one
//! bucket whatever the number of addresses: the builder tries multipliers, then sizes, until no bucket
//! overflows.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::wire::ipv6;
use std::net::IpAddr;

/// What an address of a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// Answered here: DNS over UDP in place, the rest by the exception path.
    Service,
}

/// An address that no port can serve: unspecified, loopback, multicast or broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be a service address: give a unicast address that clients can reach")]
pub struct NotUnicast(pub IpAddr);

/// Slots of a bucket: one more costs every lookup a comparison, one less makes large sets too sparse
/// (a thousand addresses take about 100 KB with two).
const SLOTS: usize = 2;
/// Multipliers tried before the table grows.
const TRIES: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Bucket<K> {
    keys: [K; SLOTS],
    kinds: [Option<AddressKind>; SLOTS],
}

/// A set of keys by multiplicative hash, in buckets that never overflow.
#[derive(Clone, Debug)]
struct Table<K> {
    multiplier: u64,
    /// One bit a key, by the highest bits of its product: what is not here is not in the table.
    filter: u64,
    buckets: Box<[Bucket<K>]>,
}

impl<K: Copy + Eq + Default> Table<K> {
    /// `entries` without duplicates; `hash` as given to [`Self::find`].
    fn build(entries: &[(K, AddressKind)], hash: impl Fn(K) -> u64, seed: u64) -> Self {
        let mut len = entries.len().next_power_of_two();
        let mut multiplier = seed | 1;
        loop {
            for _ in 0..TRIES {
                if let Some(buckets) = Self::place(entries, &hash, multiplier, len) {
                    let filter = entries
                        .iter()
                        .fold(0, |bits, &(key, _)| bits | filter_bit(hash(key), multiplier));
                    return Self {
                        multiplier,
                        filter,
                        buckets,
                    };
                }
                multiplier = multiplier.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) | 1;
            }
            // Growing ends: at the square of the entries most multipliers do.
            len *= 2;
        }
    }

    /// The buckets of this size, or `None` when one overflows.
    fn place(
        entries: &[(K, AddressKind)],
        hash: impl Fn(K) -> u64,
        multiplier: u64,
        len: usize,
    ) -> Option<Box<[Bucket<K>]>> {
        let empty = Bucket {
            keys: [K::default(); SLOTS],
            kinds: [None; SLOTS],
        };
        let mut buckets = vec![empty; len].into_boxed_slice();
        for &(key, kind) in entries {
            let bucket = buckets.get_mut(index(hash(key), multiplier, len))?;
            let free = bucket.kinds.iter().position(Option::is_none)?;
            *bucket.keys.get_mut(free)? = key;
            *bucket.kinds.get_mut(free)? = Some(kind);
        }
        Some(buckets)
    }

    #[inline(always)]
    fn find(&self, key: K, hash: u64) -> Option<AddressKind> {
        let bucket = self
            .buckets
            .get(index(hash, self.multiplier, self.buckets.len()))?;
        for (&slot, &kind) in bucket.keys.iter().zip(&bucket.kinds) {
            if slot == key {
                // An unused slot holds the zero key and no kind.
                return kind;
            }
        }
        None
    }
}

/// The filter's bit of a hash.
#[inline(always)]
fn filter_bit(hash: u64, multiplier: u64) -> u64 {
    1 << (hash.wrapping_mul(multiplier) >> 58)
}

/// The bucket of a hash: the high half of the product, scaled to the number of buckets.
#[inline(always)]
fn index(hash: u64, multiplier: u64, len: usize) -> usize {
    (((hash.wrapping_mul(multiplier) >> 32) * len as u64) >> 32) as usize
}

/// IPv4 networks of 16 bits from which a source is looked at twice: those with addresses that never are a source, and
/// those with a service address. One bit each.
#[derive(Clone, Debug)]
struct OddNetworks(Box<[u64; 1 << 10]>);

impl OddNetworks {
    fn of(list: &[(IpAddr, AddressKind)]) -> Self {
        let mut bits = Box::new([0u64; 1 << 10]);
        let never = |a: u8| a == 0 || a == 127 || a >= 224;
        let networks = (0..=u16::MAX).filter(|network| never(network.to_be_bytes()[0]));
        let ours = list.iter().filter_map(|(address, _)| match address {
            IpAddr::V4(a) => Some(u16::from_be_bytes([a.octets()[0], a.octets()[1]])),
            IpAddr::V6(_) => None,
        });
        for network in networks.chain(ours) {
            let network = u16::from_ne_bytes(network.to_be_bytes());
            if let Some(word) = bits.get_mut(usize::from(network >> 6)) {
                *word |= 1 << (network & 63);
            }
        }
        Self(bits)
    }

    /// `network`: as on the wire.
    #[inline(always)]
    fn holds(&self, network: [u8; 2]) -> bool {
        let network = u16::from_ne_bytes(network);
        self.0
            .get(usize::from(network >> 6))
            .is_none_or(|word| word >> (network & 63) & 1 == 1)
    }
}

/// The service addresses of one port.
#[derive(Clone, Debug)]
pub struct Addresses {
    v4: Table<u32>,
    odd: OddNetworks,
    v6: Table<[u64; 2]>,
    solicited: Table<u32>,
    list: Box<[(IpAddr, AddressKind)]>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self::of_sorted(Vec::new(), 0)
    }
}

impl Addresses {
    /// Builds the set; duplicates are one. `seed`: any number, drawn at start.
    pub fn new(
        entries: impl IntoIterator<Item = (IpAddr, AddressKind)>,
        seed: u64,
    ) -> Result<Self, NotUnicast> {
        let mut list: Vec<(IpAddr, AddressKind)> = entries.into_iter().collect();
        for &(address, _) in &list {
            let broadcast = address == IpAddr::from([255; 4]);
            if address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast {
                return Err(NotUnicast(address));
            }
        }
        list.sort_by_key(|&(address, _)| address);
        list.dedup_by_key(|&mut (address, _)| address);
        Ok(Self::of_sorted(list, seed))
    }

    fn of_sorted(list: Vec<(IpAddr, AddressKind)>, seed: u64) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        let mut solicited = Vec::new();
        for &(address, kind) in &list {
            match address {
                IpAddr::V4(a) => v4.push((key_v4(a.octets()), kind)),
                IpAddr::V6(a) => {
                    v6.push((key_v6(a.octets()), kind));
                    solicited.push((key_group(ipv6::solicited_node(a.octets())), kind));
                }
            }
        }
        solicited.sort_by_key(|&(group, _)| group);
        solicited.dedup_by_key(|&mut (group, _)| group);
        Self {
            odd: OddNetworks::of(&list),
            v4: Table::build(&v4, u64::from, seed),
            v6: Table::build(&v6, hash_v6, seed),
            solicited: Table::build(&solicited, u64::from, seed),
            list: list.into_boxed_slice(),
        }
    }

    /// What an IPv4 address is to this port. One bucket.
    #[inline(always)]
    pub fn lookup_v4(&self, address: [u8; 4]) -> Option<AddressKind> {
        let key = key_v4(address);
        self.v4.find(key, u64::from(key))
    }

    /// What an IPv6 address is to this port. One bucket.
    #[inline(always)]
    pub fn lookup_v6(&self, address: [u8; 16]) -> Option<AddressKind> {
        let key = key_v6(address);
        self.v6.find(key, hash_v6(key))
    }

    /// True for a source that is seldom or never one: an address of this port, 0.0.0.0/8, 127.0.0.0/8, and all from
    /// 224.0.0.0 on.
    #[inline(always)]
    pub fn is_odd_source_v4(&self, address: [u8; 4]) -> bool {
        let [a, b, _, _] = address;
        self.odd.holds([a, b]) && self.confirm_odd_source_v4(address)
    }

    #[cold]
    #[inline(never)]
    fn confirm_odd_source_v4(&self, address: [u8; 4]) -> bool {
        let [first, ..] = address;
        first == 0 || first == 127 || first >= 224 || self.lookup_v4(address).is_some()
    }

    /// True for an address of this port, where that is seldom so: a packet's source.
    #[inline(always)]
    pub fn holds_v6(&self, address: [u8; 16]) -> bool {
        let hash = hash_v6(key_v6(address));
        self.v6.filter & filter_bit(hash, self.v6.multiplier) != 0 && self.confirm_v6(address)
    }

    #[cold]
    #[inline(never)]
    fn confirm_v6(&self, address: [u8; 16]) -> bool {
        self.lookup_v6(address).is_some()
    }

    /// True when `group` is the solicited-node group of an address in the set (RFC 4291 section 2.7.1).
    #[inline]
    pub fn is_solicited_group(&self, group: [u8; 16]) -> bool {
        let key = key_group(group);
        ipv6::solicited_node(group) == group && self.solicited.find(key, u64::from(key)).is_some()
    }

    /// Every address in order: what is announced when the port comes up.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, AddressKind)> + '_ {
        self.list.iter().copied()
    }
}

#[inline(always)]
fn key_v4(address: [u8; 4]) -> u32 {
    u32::from_ne_bytes(address)
}

#[inline(always)]
fn key_v6(address: [u8; 16]) -> [u64; 2] {
    let both = u128::from_ne_bytes(address);
    [both as u64, (both >> 64) as u64]
}

/// The last four bytes of a solicited-node group: ff and the 24 bits.
#[inline(always)]
fn key_group(group: [u8; 16]) -> u32 {
    u32::from_ne_bytes([group[12], group[13], group[14], group[15]])
}

#[inline(always)]
fn hash_v6([a, b]: [u64; 2]) -> u64 {
    // The second factor spreads what differs in one half only over the other half's bits.
    a.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ b.rotate_left(32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn set(addresses: impl IntoIterator<Item = IpAddr>, seed: u64) -> Addresses {
        Addresses::new(addresses.into_iter().map(|a| (a, AddressKind::Service)), seed).unwrap()
    }

    #[test]
    fn an_empty_set_holds_nothing() {
        let empty = Addresses::default();
        assert_eq!(empty.lookup_v4([0; 4]), None);
        assert_eq!(empty.lookup_v6([0; 16]), None);
        assert!(!empty.is_solicited_group([0; 16]));
        assert_eq!(empty.iter().count(), 0);
    }

    #[test]
    fn addresses_that_are_not_unicast_are_refused_by_name() {
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
        ] {
            let entry = [(address.parse().unwrap(), AddressKind::Service)];
            let error = Addresses::new(entry, 1).unwrap_err();
            assert!(error.to_string().starts_with(address), "{error}");
        }
    }

    #[test]
    fn the_solicited_node_group_is_that_of_a_member_only() {
        let addresses = set(["2001:db8::53".parse().unwrap()], 7);
        let group = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        assert!(addresses.is_solicited_group(group("ff02::1:ff00:53")));
        assert!(!addresses.is_solicited_group(group("ff02::1:ff00:54")));
        assert!(!addresses.is_solicited_group(group("ff05::1:ff00:53")));
        assert!(!addresses.is_solicited_group(group("ff02::2:ff00:53")));
    }

    #[test]
    fn a_thousand_neighbours_and_the_memory_they_take() {
        let v4 = (0..1000u32).map(|i| IpAddr::V4(Ipv4Addr::from(0xc633_6400 + i)));
        let v6 =
            (0..1000u128).map(|i| IpAddr::V6(Ipv6Addr::from((0x2001_0db8u128 << 96) + (i << 64) + 0x53)));
        let addresses = set(v4.chain(v6), 0x1234_5678_9abc_def1);
        assert_eq!(addresses.iter().count(), 2000);
        for (address, kind) in addresses.iter() {
            let found = match address {
                IpAddr::V4(a) => addresses.lookup_v4(a.octets()),
                IpAddr::V6(a) => addresses.lookup_v6(a.octets()),
            };
            assert_eq!(found, Some(kind), "{address}");
        }
        assert!(
            addresses.v4.buckets.len() <= 1 << 14,
            "{}",
            addresses.v4.buckets.len()
        );
        assert!(
            addresses.v6.buckets.len() <= 1 << 14,
            "{}",
            addresses.v6.buckets.len()
        );
    }

    proptest! {
        #[test]
        fn a_lookup_equals_a_plain_set(
            v4 in proptest::collection::btree_set(0x0a00_0000u32..0x0a00_0400, 0..300),
            v6 in proptest::collection::btree_set(any::<[u8; 2]>(), 0..300),
            asked_v4 in 0x0a00_0000u32..0x0a00_0400,
            asked_v6: [u8; 2],
            seed: u64,
        ) {
            let long = |tail: [u8; 2]| {
                let mut a = [0u8; 16];
                a[0] = 0x20;
                [a[7], a[15]] = tail;
                a
            };
            let v4: BTreeSet<IpAddr> = v4.into_iter().map(|a| IpAddr::V4(a.into())).collect();
            let v6: BTreeSet<IpAddr> = v6.into_iter().map(|a| IpAddr::V6(long(a).into())).collect();
            let addresses = set(v4.union(&v6).copied(), seed);
            let asked = Ipv4Addr::from(asked_v4);
            prop_assert_eq!(addresses.lookup_v4(asked.octets()).is_some(), v4.contains(&asked.into()));
            prop_assert_eq!(addresses.is_odd_source_v4(asked.octets()), v4.contains(&asked.into()));
            let [_, b, c, d] = asked.octets();
            for a in 0..=255 {
                let never = matches!(a, 0 | 127 | 224..);
                let ours = v4.contains(&Ipv4Addr::new(a, b, c, d).into());
                prop_assert_eq!(addresses.is_odd_source_v4([a, b, c, d]), never || ours, "{}", a);
            }
            let asked = Ipv6Addr::from(long(asked_v6));
            prop_assert_eq!(addresses.lookup_v6(asked.octets()).is_some(), v6.contains(&asked.into()));
            prop_assert_eq!(addresses.holds_v6(asked.octets()), v6.contains(&asked.into()));
            prop_assert_eq!(addresses.lookup_v4([0; 4]), None);
        }
    }
}
