//! What tells flows apart: a seeded 128-bit hash.
//!
//! Made by stages from a packet's addresses, a selector (protocol, ports, SPI, receiver index ...) and, for QUIC, the
//! connection id. All 128 bits count in the table: 64 are compared, 64 say in which two buckets a flow may stand.
//! The seed is drawn at start: nobody can choose addresses that meet in one bucket.

/// The hash of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Says where: the upper half for the home bucket, the lower for the other one.
    pub(super) place: u64,
    /// Compared.
    pub(super) tag: u64,
}

impl Key {
    /// 32 bits that tell flows apart where a few that are taken for one do no harm.
    #[inline(always)]
    pub const fn short(self) -> u32 {
        (self.tag >> 32) as u32
    }
}

/// Makes keys: each half is a chain of multiplications with both halves of the product folded into one, of operands that
/// are xored with seeds of their own.
///
/// **Chosen collisions.** Of u * v, u and v are inputs under secret masks. Inputs that differ in u alone give products that
/// lie v apart for each step, and v is as unknown as its seed; the same holds for u; and no input stands in both
/// operands, so no two changes cancel without knowing seeds. Both halves of a key have seeds of their own: what meets in one
/// half says nothing of the other. Nothing that is made of a key leaves the appliance but 32 bits in samples, which go to
/// its owner, so there is nothing to learn the seeds by. And who met others in a bucket all the same
/// could push out flows that nobody answers, since busy proven ones stay whatever comes.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    seeds: [u64; 8],
}

/// Both halves of the product.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    /// A hasher of this seed (any number; drawn at start).
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        // SplitMix64 (Steele, Lea, Flood 2014): eight words without pattern from one.
        let seeds = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { seeds }
    }

    /// The key of two words: both IPv4 addresses, and a selector.
    #[inline(always)]
    pub const fn two(&self, addresses: u64, selector: u64) -> Key {
        let [a, b, c, d, ..] = self.seeds;
        Key {
            place: fold(addresses ^ a, selector ^ b),
            tag: fold(addresses ^ c, selector ^ d),
        }
    }

    /// The key of a selector and any number of words, in pairs: IPv6 addresses, and what does not fit a selector.
    /// Different from [`Hasher::two`] for any words.
    #[inline(always)]
    pub fn many(&self, selector: u64, pairs: &[[u64; 2]]) -> Key {
        let [a, b, c, d, e, f, g, h] = self.seeds;
        let (mut x, mut y) = (e, g);
        for &[first, second] in pairs {
            x = fold(x ^ first ^ a, second ^ b);
            y = fold(y ^ first ^ c, second ^ d);
        }
        Key {
            place: fold(x, selector ^ f),
            tag: fold(y, selector ^ h),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_bit_of_the_input_changes_half_of_the_key() {
        let hasher = Hasher::new(7);
        let bits = |a: Key, b: Key| ((a.place ^ b.place).count_ones(), (a.tag ^ b.tag).count_ones());
        let (words, base) = ([0xc633_6407_c000_0235, 0x06_9c40_01bb], 0);
        let (mut least, mut sum, mut cases) = (64, 0, 0);
        for word in 0..2 {
            for bit in 0..64 {
                let mut other = words;
                other[word] ^= 1 << bit;
                let two = bits(hasher.two(words[0], words[1]), hasher.two(other[0], other[1]));
                let many = bits(hasher.many(base, &[words]), hasher.many(base, &[other]));
                for count in [two.0, two.1, many.0, many.1] {
                    (least, sum, cases) = (least.min(count), sum + count, cases + 1);
                }
            }
        }
        // Half of 64 bits, with a standard deviation of 4: among 512 cases none should lie 5 of them off.
        assert!(least >= 12, "{least}");
        assert!(
            (31.0..33.0).contains(&(f64::from(sum) / f64::from(cases))),
            "{sum} / {cases}"
        );
    }

    #[test]
    fn neighbouring_flows_have_keys_of_their_own_and_seeds_change_all() {
        let (one, other) = (Hasher::new(1), Hasher::new(2));
        let mut seen = HashSet::new();
        for client in 0..300u64 {
            for port in 0..100u64 {
                let (a, s) = (
                    0xc633_0000_c000_0235 + (client << 32),
                    0x06_0000_01bb + (port << 16),
                );
                for key in [
                    one.two(a, s),
                    other.two(a, s),
                    one.many(s, &[[a, 0]]),
                    one.many(s, &[[a, 0], [0, 0]]),
                ] {
                    assert!(seen.insert(key.tag) && seen.insert(key.place));
                }
            }
        }
    }
}
