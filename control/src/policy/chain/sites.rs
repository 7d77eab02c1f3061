//! A set of a policy's sites: what a metric is given and what it leaves.

/// Sites of a policy, by their index among its candidates: 64 at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sites(u64);

impl Sites {
    /// Sites that a policy can have. The configuration allows fewer.
    pub const MAX: usize = 64;

    /// The first `count`.
    pub const fn first(count: usize) -> Self {
        if count >= Self::MAX {
            Self(u64::MAX)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// Their indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = left.trailing_zeros() as u8;
            left &= left.wrapping_sub(1);
            (next < 64).then_some(next)
        })
    }

    /// Those that `keep` says.
    pub fn filter(self, keep: impl Fn(u8) -> bool) -> Self {
        self.iter()
            .filter(|&i| keep(i))
            .fold(Self(0), |set, i| Self(set.0 | 1 << i))
    }

    /// Those that are not in `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether site `i` is one of them.
    pub const fn has(self, i: u8) -> bool {
        i < 64 && self.0 >> i & 1 == 1
    }

    /// How many they are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<u8> for Sites {
    fn from_iter<T: IntoIterator<Item = u8>>(items: T) -> Self {
        items
            .into_iter()
            .filter(|&i| i < 64)
            .fold(Self(0), |set, i| Self(set.0 | 1 << i))
    }
}
