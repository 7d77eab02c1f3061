//! Ranges of addresses with a value each, and how they become prefixes. Databases give ranges; the overlay and
//! the table of classes want prefixes.

use std::net::IpAddr;

/// A range of addresses of one family, first and last with it. IPv4 addresses are numbers below 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<A> {
    /// First address.
    pub first: A,
    /// Last address.
    pub last: A,
    /// Index of what holds for it.
    pub value: u32,
}

/// Disjoint ranges of both families, ascending.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// IPv4.
    pub v4: Vec<Range<u32>>,
    /// IPv6.
    pub v6: Vec<Range<u128>>,
}

impl Ranges {
    /// Sorts, makes ranges that overlap disjoint, and joins neighbours of one value. Of ranges that hold an address the one that
    /// begins last counts, of those the narrowest. Gives what overlapped.
    pub(crate) fn tidy(&mut self) -> Option<Overlaps> {
        let v4 = tidy(&mut self.v4, |a| IpAddr::V4(a.into()));
        let v6 = tidy(&mut self.v6, |a| IpAddr::V6(a.into()));
        match (v4, v6) {
            (Some(a), Some(b)) => Some(Overlaps {
                count: a.count + b.count,
                ..a
            }),
            (a, b) => a.or(b),
        }
    }

    /// The value that holds for an address.
    pub fn find(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(a) => find(&self.v4, u32::from(a)),
            IpAddr::V6(a) => find(&self.v6, u128::from(a)),
        }
    }
}

/// What arithmetic on addresses needs.
pub(crate) trait Address: Copy + Ord {
    /// The one behind it; `None` behind the last.
    fn next(self) -> Option<Self>;
    /// The one before it; `None` before the first.
    fn previous(self) -> Option<Self>;
}

impl Address for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

impl Address for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

/// Ranges of a file that are not disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlaps {
    /// Ranges that begin within another.
    pub count: usize,
    /// First and last address of the first of them, and of the one that it begins in.
    pub first: [(IpAddr, IpAddr); 2],
}

fn tidy<A: Address>(ranges: &mut Vec<Range<A>>, shown: impl Fn(A) -> IpAddr) -> Option<Overlaps> {
    ranges.sort_by(|a, b| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
    let overlap = ranges.windows(2).find(|pair| pair[0].last >= pair[1].first);
    let ends = |r: &Range<A>| (shown(r.first), shown(r.last));
    let overlaps = overlap.map(|pair| [ends(&pair[1]), ends(&pair[0])]);
    let overlaps = overlaps.map(|first| Overlaps {
        count: flatten(ranges),
        first,
    });
    join(ranges);
    ranges.shrink_to_fit();
    overlaps
}

/// Makes sorted ranges disjoint; how many began within another.
fn flatten<A: Address>(ranges: &mut Vec<Range<A>>) -> usize {
    let mut out: Vec<Range<A>> = Vec::with_capacity(ranges.len());
    let mut count = 0;
    // Ranges that have begun, the last of which counts, and the first address that nothing is said of yet.
    let mut begun: Vec<Range<A>> = Vec::new();
    let mut next: Option<A> = None;
    let mut say = |next: &mut Option<A>, last: A, value: u32| {
        if let Some(first) = next.filter(|first| *first <= last) {
            out.push(Range { first, last, value });
            *next = last.next();
        }
    };
    for range in ranges.drain(..) {
        while let Some(top) = begun.pop_if(|top| top.last < range.first) {
            say(&mut next, top.last, top.value);
        }
        if let Some(top) = begun.last() {
            count += 1;
            if let Some(last) = range.first.previous() {
                say(&mut next, last, top.value);
            }
        }
        next = Some(range.first);
        begun.push(range);
    }
    while let Some(top) = begun.pop() {
        say(&mut next, top.last, top.value);
    }
    *ranges = out;
    count
}

/// Joins neighbours of one value, of ascending ranges.
pub(crate) fn join<A: Address>(ranges: &mut Vec<Range<A>>) {
    ranges.dedup_by(|next, kept| {
        let joins = next.value == kept.value && kept.last.next() == Some(next.first);
        if joins {
            kept.last = next.last;
        }
        joins
    });
}

fn find<A: Address>(ranges: &[Range<A>], address: A) -> Option<u32> {
    let behind = ranges.partition_point(|r| r.first <= address);
    let range = ranges.get(behind.checked_sub(1)?)?;
    (address <= range.last).then_some(range.value)
}

/// Cuts a range of addresses of `bits` bits into the fewest prefixes, ascending: each the address, left-aligned in 128
/// bits, and the length.
pub fn cut(mut first: u128, last: u128, bits: u8, mut emit: impl FnMut(u128, u8)) {
    let width = u32::from(bits);
    loop {
        // The largest block that begins here and ends within the range.
        let aligned = first.trailing_zeros().min(width);
        let rest = last - first;
        let fits = if rest == u128::MAX {
            128
        } else {
            (rest + 1).ilog2()
        };
        let block = aligned.min(fits);
        emit(first.checked_shl(128 - width).unwrap_or(0), (width - block) as u8);
        let size_less_one = if block == 128 { u128::MAX } else { (1 << block) - 1 };
        if size_less_one == rest {
            return;
        }
        first += size_less_one + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Subnets, Ipv6Subnets};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn cuts(first: u128, last: u128, bits: u8) -> Vec<(u128, u8)> {
        let mut out = vec![];
        cut(first, last, bits, |address, len| out.push((address, len)));
        out
    }

    #[test]
    fn by_hand() {
        // 1.0.128.0 to 1.0.196.255: a /18, a /22 and a /24 behind the first /18's end.
        let v4 = |text: &str| u128::from(u32::from(text.parse::<Ipv4Addr>().unwrap()));
        let p = |text: &str, len| (v4(text) << 96, len);
        assert_eq!(
            cuts(v4("1.0.128.0"), v4("1.0.196.255"), 32),
            [p("1.0.128.0", 18), p("1.0.192.0", 22), p("1.0.196.0", 24)]
        );
        assert_eq!(cuts(0, u128::from(u32::MAX), 32), [(0, 0)]);
        assert_eq!(cuts(0, u128::MAX, 128), [(0, 0)]);
        assert_eq!(cuts(u128::MAX, u128::MAX, 128), [(u128::MAX, 128)]);
        assert_eq!(
            cuts(v4("255.255.255.255"), v4("255.255.255.255"), 32),
            [p("255.255.255.255", 32)]
        );
    }

    proptest! {
        /// As the crate `ipnet` cuts.
        #[test]
        fn as_ipnet(a: u32, b: u32, c: u128, d: u128, near in 0u32..300) {
            for (first, last) in [(a.min(b), a.max(b)), (a, a.saturating_add(near))] {
                let want: Vec<_> = Ipv4Subnets::new(first.into(), last.into(), 0)
                    .map(|n| (u128::from(u32::from(n.network())) << 96, n.prefix_len()))
                    .collect();
                prop_assert_eq!(cuts(first.into(), last.into(), 32), want);
            }
            for (first, last) in [(c.min(d), c.max(d)), (c, c.saturating_add(near.into()))] {
                let want: Vec<_> = Ipv6Subnets::new(Ipv6Addr::from(first), Ipv6Addr::from(last), 0)
                    .map(|n| (u128::from(n.network()), n.prefix_len()))
                    .collect();
                prop_assert_eq!(cuts(first, last, 128), want);
            }
        }
    }

    #[test]
    fn neighbours_join_and_overlaps_are_told() {
        let r = |first, last, value| Range { first, last, value };
        let mut ranges = Ranges {
            v4: vec![
                r(10, 19, 1),
                r(0, 9, 1),
                r(20, 29, 2),
                r(31, 40, 2),
                r(u32::MAX, u32::MAX, 2),
            ],
            v6: vec![],
        };
        assert_eq!(ranges.tidy(), None);
        assert_eq!(
            ranges.v4,
            [r(0, 19, 1), r(20, 29, 2), r(31, 40, 2), r(u32::MAX, u32::MAX, 2)]
        );
        let at = |n: u32| ranges.find(IpAddr::V4(n.into()));
        assert_eq!(
            [at(0), at(19), at(20), at(30), at(31), at(41), at(u32::MAX)],
            [Some(1), Some(1), Some(2), None, Some(2), None, Some(2)]
        );
        // One that begins within another and goes on behind it, as in a real file; one within another.
        let mut wrong = Ranges {
            v4: vec![r(5, 9, 2), r(0, 5, 1), r(20, 29, 3), r(22, 23, 4)],
            v6: vec![],
        };
        let v4 = |n: u32| IpAddr::V4(n.into());
        assert_eq!(
            wrong.tidy(),
            Some(Overlaps {
                count: 2,
                first: [(v4(5), v4(9)), (v4(0), v4(5))]
            })
        );
        assert_eq!(
            wrong.v4,
            [r(0, 4, 1), r(5, 9, 2), r(20, 21, 3), r(22, 23, 4), r(24, 29, 3)]
        );
    }

    proptest! {
        /// Whatever overlaps: each address has the value of the range that begins last, of those the narrowest.
        #[test]
        fn overlaps_come_out_as_a_scan_of_all_says(
            points in proptest::collection::vec((0u32..40, 0u32..12), 0..16),
            high: bool,
        ) {
            // At either end of the addresses.
            let base = if high { u32::MAX - 51 } else { 0 };
            let mut seen = std::collections::BTreeSet::new();
            let all: Vec<Range<u32>> = points
                .into_iter()
                .filter(|p| seen.insert(*p))
                .zip(0..)
                .map(|((first, more), value)| Range { first: base + first, last: base + first + more, value })
                .collect();
            let mut ranges = Ranges { v4: all.clone(), v6: vec![] };
            ranges.tidy();
            prop_assert!(ranges.v4.windows(2).all(|pair| pair[0].last < pair[1].first));
            for address in base..=base + 51 {
                let holds = all.iter().filter(|r| (r.first..=r.last).contains(&address));
                let want = holds.max_by_key(|r| (r.first, std::cmp::Reverse(r.last))).map(|r| r.value);
                prop_assert_eq!(ranges.find(IpAddr::V4(address.into())), want, "{}", address);
            }
        }
    }
}
