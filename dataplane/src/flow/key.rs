//! What tells flows apart: a seeded 128-bit hash.
//!
//! Made by stages from a packet's addresses, a selector (protocol, ports, SPI, receiver index ...) and, for QUIC, the
//! connection id, by sums of 128 bits: 64 are compared, and 32 more say in which two buckets a flow may stand.
//! The seed is drawn at start: nobody can choose addresses that meet in one bucket.

use crate::arch;

/// The hash of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Says where: the home bucket by the upper half. The other half is 0.
    pub(super) place: u64,
    /// Compared; its lower half says where the other bucket is.
    pub(super) tag: u64,
}

impl Key {
    /// 32 bits that tell flows apart where a few that are taken for one do no harm.
    #[inline(always)]
    pub const fn short(self) -> u32 {
        (self.tag >> 32) as u32
    }
}

/// Makes keys: sums of products of words under secret masks, as in NH (Black, Halevi, Krawczyk, Krovetz, Rogaway 1999;
/// RFC 4418 section 5.2), of 128 bits; both halves of the sum go into each word of the key, in two ways.
///
/// **Chosen collisions.** Whoever chooses two different inputs without knowing the masks gets the same sum with a chance
/// of 2^-64, whatever the inputs are (shown there; masks are added, as the proof asks). Inputs whose difference is known
/// give products that differ by that times an unknown word, so neither bucket can be aimed at. Nothing that is made
/// of a key leaves the appliance but 32 bits in samples, which go to its owner, so there is nothing to learn masks by.
/// And who met others in a bucket all the same could push out flows that nobody answers: busy proven ones stay.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    masks: [u64; 8],
}

/// A product of two masked words, all of it.
#[inline(always)]
const fn product(a: u64, mask_a: u64, b: u64, mask_b: u64) -> u128 {
    a.wrapping_add(mask_a) as u128 * b.wrapping_add(mask_b) as u128
}

/// A changed bit of a word changes the lower half of the product from that bit on upwards, and the upper half below it: joined
/// they change throughout. Products of neighbouring words lie in equal steps, which would meet in few buckets now and
/// then: a remainder has no such steps.
#[inline(always)]
fn key(sum: u128) -> Key {
    let (high, low) = ((sum >> 64) as u64, sum as u64);
    Key {
        place: u64::from(arch::remainder(low, high)) << 32,
        tag: low ^ high,
    }
}

impl Hasher {
    /// A hasher of this seed (any number; drawn at start).
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        // SplitMix64 (Steele, Lea, Flood 2014): eight words without pattern from one.
        let masks = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { masks }
    }

    /// The key of two words: both IPv4 addresses, and a selector.
    #[inline(always)]
    pub fn two(&self, addresses: u64, selector: u64) -> Key {
        let [a, b, ..] = self.masks;
        key(product(addresses, a, selector, b))
    }

    /// The key of a selector, a word, and up to two pairs of words: IPv6 addresses, and what does not fit a selector.
    /// Different from [`Hasher::two`] for any words.
    #[inline(always)]
    pub fn many(&self, selector: u64, word: u64, pairs: [[u64; 2]; 2]) -> Key {
        let [_, _, a, b, c, d, e, f] = self.masks;
        let [[p, q], [r, s]] = pairs;
        let sum = product(selector, a, word, b);
        key(sum
            .wrapping_add(product(p, c, q, d))
            .wrapping_add(product(r, e, s, f)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_bit_of_the_input_changes_half_of_the_key() {
        let bits = |a: Key, b: Key| ((a.place ^ b.place).count_ones(), (a.tag ^ b.tag).count_ones());
        let words = [0xc633_6407_c000_0235, 0x06_9c40_01bb];
        let (mut places, mut tags, mut least, mut cases) = (0, 0, 64, 0);
        for seed in 0..64 {
            let hasher = Hasher::new(seed);
            for bit in 0..128 {
                let mut other = words;
                other[bit / 64] ^= 1 << (bit % 64);
                let two = bits(hasher.two(words[0], words[1]), hasher.two(other[0], other[1]));
                let many = |words| hasher.many(0, 0, [words, [0; 2]]);
                for (place, tag) in [two, bits(many(words), many(other))] {
                    (places, tags, cases) = (places + place, tags + tag, cases + 1);
                    least = least.min(tag);
                }
            }
        }
        // Half of 64 and of 32 bits.
        let mean = |sum| f64::from(sum) / f64::from(cases);
        assert!((31.0..33.0).contains(&mean(tags)), "{}", mean(tags));
        assert!((15.5..16.5).contains(&mean(places)), "{}", mean(places));
        assert!(least >= 8, "{least}");
    }

    /// 65,536 flows over 4,096 buckets, 16 each: what a bucket holds then varies by 4, and none of so many holds 48.
    #[test]
    fn flows_of_any_pattern_are_spread_over_buckets() {
        // As read from packets: bytes of network order in a word.
        let addresses = |from: u32, to: u32| u64::from(from.to_be()) | u64::from(to.to_be()) << 32;
        let ports = |from: u32| 0x0106_0000_0000_0000 | u64::from((from << 16 | 443).to_be());
        let server = 0xcb00_7109;
        /// Of the nth flow: the client, by how much the server differs, the client's port.
        type Pattern = fn(u32) -> (u32, u32, u32);
        let patterns: [Pattern; 5] = [
            |n| (0x0a00_0000 + n, 0, 0x4000),
            |n| (n.rotate_right(8), 0, 0x4000),
            |n| (0x0a00_0001, 0, n),
            |n| (0x0a00_0001, n, 0x4000),
            |n| (0x0a00_0000 + (n >> 8), 0, 0x4000 + (n & 0xff)),
        ];
        for seed in 0..100 {
            let hasher = Hasher::new(seed);
            for (at, pattern) in patterns.iter().enumerate() {
                let mut held = vec![0u32; 4096];
                for n in 0..65_536 {
                    let (from, to, port) = pattern(n);
                    let key = hasher.two(addresses(from, server ^ to), ports(port));
                    held[(key.place >> 52) as usize] += 1;
                }
                let (most, squares) = (held.iter().max(), held.iter().map(|h| h.pow(2)).sum::<u32>());
                let variance = f64::from(squares) / 4096.0 - 256.0;
                assert!(
                    most < Some(&48) && variance < 32.0,
                    "{seed} {at}: {most:?} {variance}"
                );
            }
        }
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
                    one.many(s, 0, [[a, 0], [0, 0]]),
                    one.many(s, 0, [[0, a], [0, 0]]),
                    one.many(s, 0, [[0, 0], [a, 0]]),
                ] {
                    assert!(seen.insert(key));
                }
            }
        }
    }
}
