//! A set of address prefixes: whether an address lies in one of them. For access lists, where only membership
//! counts and all look-ups are on a slow path.
//!
//! Built by control from prefixes in any order; nested and adjacent ones become one range, so that a binary
//! search over disjoint ranges decides.

/// Disjoint ranges of addresses, ascending: first and last of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Prefixes {
    /// From prefixes: the address, of which bits beyond the length do not count, and the length in bits.
    pub fn new(
        v4: impl IntoIterator<Item = ([u8; 4], u8)>,
        v6: impl IntoIterator<Item = ([u8; 16], u8)>,
    ) -> Self {
        let v4 = v4.into_iter().map(|(address, len)| {
            let spare = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let first = u32::from_be_bytes(address) & !spare;
            (first, first | spare)
        });
        let v6 = v6.into_iter().map(|(address, len)| {
            let spare = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            let first = u128::from_be_bytes(address) & !spare;
            (first, first | spare)
        });
        Self {
            v4: merged(v4.collect()),
            v6: merged(v6.collect()),
        }
    }

    /// Whether an IPv4 address lies in the set.
    #[inline]
    pub fn holds_v4(&self, address: [u8; 4]) -> bool {
        holds(&self.v4, u32::from_be_bytes(address))
    }

    /// Whether an IPv6 address lies in the set.
    #[inline]
    pub fn holds_v6(&self, address: [u8; 16]) -> bool {
        holds(&self.v6, u128::from_be_bytes(address))
    }

    /// Whether it holds no address.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// Sorts ranges that nest or lie apart, as prefixes do, and drops the nested ones.
fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    // Of those with one start the widest comes first.
    ranges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    ranges.dedup_by(|next, kept| next.0 <= kept.1);
    ranges
}

fn holds<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|range| range.0 <= address);
    behind
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|range| address <= range.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_and_everything() {
        let none = Prefixes::default();
        assert!(none.is_empty() && !none.holds_v4([0; 4]) && !none.holds_v6([0; 16]));
        let all = Prefixes::new([([9; 4], 0)], [([9; 16], 0)]);
        assert!(all.holds_v4([0; 4]) && all.holds_v4([255; 4]) && all.holds_v6([255; 16]));
    }

    proptest! {
        #[test]
        fn membership_is_that_of_any_prefix(
            v4 in proptest::collection::vec((any::<[u8; 4]>(), 0u8..=32), 0..12),
            v6 in proptest::collection::vec((any::<[u8; 16]>(), 0u8..=128), 0..12),
            near in 0usize..12, flip in 0u32..128, other: [u8; 4],
        ) {
            let set = Prefixes::new(v4.clone(), v6.clone());
            let bits = |address: u128, len: u8, width: u32| if len == 0 { 0 } else { address >> (width - len as u32) };
            let mut ask4 = vec![other];
            if let Some((address, _)) = v4.get(near) {
                ask4.push((u32::from_be_bytes(*address) ^ 1 << (flip % 32)).to_be_bytes());
            }
            for ask in ask4 {
                let a = u32::from_be_bytes(ask) as u128;
                let want = v4.iter().any(|(p, len)| bits(a, *len, 32) == bits(u32::from_be_bytes(*p) as u128, *len, 32));
                prop_assert_eq!(set.holds_v4(ask), want);
            }
            if let Some((address, _)) = v6.get(near) {
                let a = u128::from_be_bytes(*address) ^ 1 << flip;
                let want = v6.iter().any(|(p, len)| bits(a, *len, 128) == bits(u128::from_be_bytes(*p), *len, 128));
                prop_assert_eq!(set.holds_v6(a.to_be_bytes()), want);
            }
        }
    }
}
