//! The Internet checksum (RFC 1071): sums, pseudo-headers, incremental update.
//!
//! Called by `classify` to verify and by `reply` and `neighbour` to write. Sums are kept modulo
//! 2^64 - 1 in the machine's byte order and folded late: 65535 divides 2^64 - 1, so nothing is
//! lost, and the order of bytes does not matter until the result is stored (RFC 1071 section 2).

use super::{at as at_offset, load_4, load_8};
use crate::io::Window;

/// Bytes summed by one turn of the loop.
const BLOCK: usize = 32;
/// Bytes summed at the end, masked: more than most headers and queries have.
const LAST: usize = 64;

/// Bytes behind a frame's end that [`Sum::of_end`] may overwrite.
pub(crate) const ROOM: usize = 64;

/// Ones, then zeros: the `LAST` bytes from `LAST - n` on keep the first `n` bytes of a block.
static KEEP: [u8; 2 * LAST] = {
    let mut table = [0; 2 * LAST];
    let mut i = 0;
    while i < LAST {
        #[allow(clippy::indexing_slicing)] // Evaluated at compile time.
        {
            table[i] = 0xff;
        }
        i += 1;
    }
    table
};

/// A ones' complement sum of 16-bit words, not yet folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Sum = Sum(0);

    /// A 16-bit field, given as its number.
    #[inline(always)]
    pub const fn of_u16(value: u16) -> Sum {
        Sum(value.to_be() as u64)
    }

    /// A 4-byte field, as on the wire.
    #[inline(always)]
    pub const fn of_4(bytes: [u8; 4]) -> Sum {
        Sum(u32::from_ne_bytes(bytes) as u64)
    }

    /// An 8-byte field, as on the wire.
    #[inline(always)]
    pub const fn of_8(bytes: [u8; 8]) -> Sum {
        Sum(u64::from_ne_bytes(bytes))
    }

    /// A 16-byte field, as on the wire.
    #[inline(always)]
    pub const fn of_16(bytes: [u8; 16]) -> Sum {
        let value = u128::from_ne_bytes(bytes);
        Sum(value as u64).plus(Sum((value >> 64) as u64))
    }

    /// A 20-byte header, as on the wire.
    #[inline(always)]
    pub(crate) fn of_20(b: &[u8; 20]) -> Sum {
        let (sum, carry) = load_8::<0, 20>(b).carrying_add(load_8::<8, 20>(b), false);
        let (sum, carry) = sum.carrying_add(u64::from(load_4::<16, 20>(b)), carry);
        Sum(sum.wrapping_add(carry as u64))
    }

    /// A few words in the machine's order that the caller added up without loss.
    #[inline(always)]
    pub const fn of_words(sum: u64) -> Sum {
        Sum(sum)
    }

    /// Any bytes; an odd last byte is the high half of a word whose low half is zero.
    pub fn of(bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = Sum::ZERO;
        for &word in words {
            sum = sum.plus(Sum::of_8(word));
        }
        let mut last = [0u8; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        sum.plus(Sum::of_8(last))
    }

    /// The bytes `start..end` of a window. An empty or impossible range sums to nothing.
    #[inline(always)]
    pub fn of_window(window: &Window, start: usize, end: usize) -> Sum {
        Self::of_part(window, start, end.saturating_sub(start))
    }

    /// The `len` bytes of a window from `start` on, as [`Self::of_window`]: whole blocks while many are left, then
    /// the last bytes, masked and not copied. One carry chain each.
    #[inline(always)]
    pub(crate) fn of_part(window: &Window, start: usize, len: usize) -> Sum {
        let (mut sum, mut at, mut left) = (Sum::ZERO, start, len);
        while left > LAST {
            let Some(block) = at_offset::<BLOCK>(window, at) else {
                return Self::of_tail(window, start, start.saturating_add(len));
            };
            sum = sum.plus_words(block.as_chunks().0, |word, _| word);
            at += BLOCK;
            left -= BLOCK;
        }
        let keep = KEEP
            .get(LAST - left..)
            .and_then(|keep| keep.first_chunk::<LAST>());
        let (Some(last), Some(keep)) = (at_offset::<LAST>(window, at), keep) else {
            // The masked block would pass the window: only for frames near its full size.
            return Self::of_tail(window, start, start.saturating_add(len));
        };
        sum.plus_words(last.as_chunks().0, |word, i| {
            word & keep
                .as_chunks()
                .0
                .get(i)
                .map_or(0, |mask| u64::from_ne_bytes(*mask))
        })
    }

    /// The `len` bytes of a window from `start` on. The [`ROOM`] bytes behind them are overwritten with zeros, so that
    /// whole blocks can be summed: for the end of a frame that is being written.
    #[inline(always)]
    pub(crate) fn of_end(window: &mut Window, start: usize, len: usize) -> Option<Sum> {
        let end = start + len;
        *crate::wire::at_mut::<ROOM>(window, end)? = [0; ROOM];
        // Callers know `start` when they are compiled: the first block, which holds most queries, needs no test of its place.
        let block = at_offset::<ROOM>(window, start)?;
        let (mut sum, mut at) = (
            Sum::ZERO.plus_words(block.as_chunks().0, |word, _| word),
            start + ROOM,
        );
        while at < end {
            let block = at_offset::<BLOCK>(window, at)?;
            sum = sum.plus_words(block.as_chunks().0, |word, _| word);
            at += BLOCK;
        }
        Some(sum)
    }

    #[cold]
    #[inline(never)]
    fn of_tail(window: &Window, start: usize, end: usize) -> Sum {
        window.get(start..end).map_or(Sum::ZERO, Sum::of)
    }

    /// The words of a block, each as `keep` leaves it, in one carry chain.
    #[inline(always)]
    fn plus_words(self, words: &[[u8; 8]], keep: impl Fn(u64, usize) -> u64) -> Sum {
        let (mut sum, mut carry) = (self.0, false);
        for (i, &word) in words.iter().enumerate() {
            (sum, carry) = sum.carrying_add(keep(u64::from_ne_bytes(word), i), carry);
        }
        // A carry leaves at most 2^64 - 2 behind, so this cannot carry again.
        Sum(sum.wrapping_add(carry as u64))
    }

    /// Both sums together.
    #[inline(always)]
    pub const fn plus(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Sum(sum.wrapping_add(carry as u64))
    }

    /// Folded to 16 bits, in the machine's byte order.
    #[inline(always)]
    const fn fold(self) -> u16 {
        let (half, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let half = half.wrapping_add(carry as u32);
        let (word, carry) = (half as u16).overflowing_add((half >> 16) as u16);
        word.wrapping_add(carry as u16)
    }

    /// The checksum field's bytes: the complement of the sum, which was taken with the field zero.
    #[inline(always)]
    pub const fn checksum(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// The checksum field's bytes for UDP, where zero means none and is sent as all ones (RFC 768).
    #[inline(always)]
    pub const fn udp_checksum(self) -> [u8; 2] {
        match !self.fold() {
            0 => [0xff; 2],
            sum => sum.to_ne_bytes(),
        }
    }

    /// The sum's bytes without complement: what a port that writes the checksum wants to find in the
    /// field, taken over the pseudo-header alone (DPDK, `RTE_MBUF_F_TX_UDP_CKSUM`).
    #[inline(always)]
    pub const fn pseudo_checksum(self) -> [u8; 2] {
        self.fold().to_ne_bytes()
    }

    /// True when the sum over a whole message, its checksum field included, is right. A sum over
    /// nothing but zeros is not.
    #[inline(always)]
    pub const fn verifies(self) -> bool {
        // 65535 has an inverse modulo 2^64, by which only its multiples come out this small.
        const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
        const { assert!(INVERSE.wrapping_mul(0xffff) == 1) };
        self.0.wrapping_mul(INVERSE).wrapping_sub(1) < u64::MAX / 0xffff
    }
}

/// The pseudo-header of UDP, TCP over IPv4 (RFC 768, RFC 9293). `len`: upper-layer bytes.
#[inline(always)]
pub const fn pseudo_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, len: u16) -> Sum {
    Sum(Sum::of_4(src).0 + Sum::of_4(dst).0 + Sum::of_u16(protocol as u16).0 + Sum::of_u16(len).0)
}

/// The pseudo-header of RFC 8200 section 8.1. `len`: upper-layer bytes.
#[inline(always)]
pub const fn pseudo_v6(src: [u8; 16], dst: [u8; 16], next_header: u8, len: u16) -> Sum {
    let small = Sum(Sum::of_u16(next_header as u16).0 + Sum::of_u16(len).0);
    Sum::of_16(src).plus(Sum::of_16(dst)).plus(small)
}

/// A checksum field after one 16-bit word that it covers changed (RFC 1624, equation 3).
#[inline(always)]
pub const fn update(checksum: [u8; 2], old: [u8; 2], new: [u8; 2]) -> [u8; 2] {
    let [checksum, old, new] = [
        u16::from_ne_bytes(checksum),
        u16::from_ne_bytes(old),
        u16::from_ne_bytes(new),
    ];
    Sum(!checksum as u64 + !old as u64 + new as u64).checksum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::WINDOW;
    use proptest::prelude::*;

    /// RFC 1071 section 4.1, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        // Sum ddf2, as the RFC computes it.
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.pseudo_checksum(), [0xdd, 0xf2]);
        assert_eq!(sum.checksum(), [0x22, 0x0d]);
    }

    #[test]
    fn every_length_at_every_alignment_equals_the_plain_sum() {
        let mut window = [0u8; WINDOW];
        let mut seed = 0x2545_f491u32;
        for byte in window.iter_mut() {
            seed = seed.wrapping_mul(0x9e37_79b1).rotate_left(13) ^ 0x55;
            *byte = if seed & 0x300 == 0 { 0xff } else { seed as u8 };
        }
        for start in 0..32 {
            for len in 0..=1500 {
                let bytes = &window[start..start + len];
                let want = plain(bytes).to_be_bytes();
                assert_eq!(
                    Sum::of_window(&window, start, start + len).checksum(),
                    want,
                    "{start} {len}"
                );
                assert_eq!(Sum::of(bytes).checksum(), want, "{start} {len}");
            }
        }
        for start in WINDOW - 70..=WINDOW {
            for end in start..=WINDOW {
                let want = plain(&window[start..end]).to_be_bytes();
                assert_eq!(
                    Sum::of_window(&window, start, end).checksum(),
                    want,
                    "{start}..{end}"
                );
            }
        }
    }

    #[test]
    fn the_end_of_a_frame_is_summed_whatever_stands_behind_it() {
        let mut window = [0u8; WINDOW];
        for start in [0, 1, 26, 42] {
            for len in 0..=400 {
                for (i, byte) in window.iter_mut().enumerate() {
                    *byte = (i * 197 + len) as u8 | 1;
                }
                let before = window;
                let sum = Sum::of_end(&mut window, start, len).unwrap();
                let end = start + len;
                let want = plain(&before[start..end]).to_be_bytes();
                assert_eq!(sum.checksum(), want, "{len} bytes from {start}");
                assert_eq!(window[..end], before[..end]);
                assert_eq!(window[end + ROOM..], before[end + ROOM..]);
            }
        }
        assert!(Sum::of_end(&mut window, 42, WINDOW - 42 - ROOM).is_some());
        assert_eq!(Sum::of_end(&mut window, 42, WINDOW - 42 - ROOM + 1), None);
    }

    #[test]
    fn all_ones_do_not_lose_carries() {
        let window = [0xffu8; WINDOW];
        for len in [1, 2, 31, 32, 33, 64, 1500, 1501] {
            let want = plain(&window[..len]).to_be_bytes();
            assert_eq!(Sum::of_window(&window, 0, len).checksum(), want, "{len}");
        }
    }

    #[test]
    fn zero_is_sent_as_all_ones_by_udp_only() {
        assert_eq!(Sum::of(&[0xff, 0xff]).checksum(), [0, 0]);
        assert_eq!(Sum::of(&[0xff, 0xff]).udp_checksum(), [0xff, 0xff]);
        assert_eq!(Sum::of(&[0xff, 0xfe]).udp_checksum(), [0, 1]);
    }

    proptest! {
        #[test]
        fn any_range_is_summed_or_is_nothing(
            bytes in proptest::collection::vec(any::<u8>(), WINDOW),
            start in 0usize..5000, end in 0usize..5000,
        ) {
            let window: &Window = bytes.as_slice().try_into().unwrap();
            let want = bytes.get(start..end).map_or(0xffff, plain);
            prop_assert_eq!(Sum::of_window(window, start, end).checksum(), want.to_be_bytes());
        }

        #[test]
        fn what_is_written_verifies_and_a_flipped_bit_does_not(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..200), bit in any::<proptest::sample::Index>(),
        ) {
            bytes[..2].fill(0);
            let sum = Sum::of(&bytes);
            prop_assume!(sum != Sum::ZERO);
            bytes[..2].copy_from_slice(&sum.checksum());
            prop_assert!(Sum::of(&bytes).verifies());
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!Sum::of(&bytes).verifies());
        }

        #[test]
        fn an_update_equals_a_fresh_sum(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..80), at in any::<proptest::sample::Index>(), new: [u8; 2],
        ) {
            bytes.truncate(bytes.len() & !1);
            let before = Sum::of(&bytes).checksum();
            let at = at.index(bytes.len() / 2) * 2;
            let old = [bytes[at], bytes[at + 1]];
            bytes[at..at + 2].copy_from_slice(&new);
            // The two zeros of ones' complement are one number (RFC 1624 section 3).
            let same = |sum: [u8; 2]| u16::from_be_bytes(sum) % 0xffff;
            prop_assert_eq!(same(update(before, old, new)), same(plain(&bytes).to_be_bytes()));
        }

        #[test]
        fn pseudo_headers_equal_their_bytes(s4: [u8; 4], d4: [u8; 4], s6: [u8; 16], d6: [u8; 16], p: u8, len: u16) {
            let [hi, lo] = len.to_be_bytes();
            let v4 = [&s4[..], &d4, &[0, p, hi, lo]].concat();
            prop_assert_eq!(pseudo_v4(s4, d4, p, len).checksum(), plain(&v4).to_be_bytes());
            let v6 = [&s6[..], &d6, &[0, 0, hi, lo, 0, 0, 0, p]].concat();
            prop_assert_eq!(pseudo_v6(s6, d6, p, len).checksum(), plain(&v6).to_be_bytes());
        }
    }
}
