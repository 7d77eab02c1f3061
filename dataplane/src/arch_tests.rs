//! The counter beside the clock, and each way to compare, shuffle or divide beside plain code or a published value.

use super::*;

#[test]
fn ticks_go_forward() {
    let first = Ticks::now();
    std::thread::sleep(Duration::from_millis(1));
    let second = Ticks::now();
    assert!(second > first);
    assert_eq!(first.since(second), 0, "a later point gives 0, not a huge number");
    assert_eq!(Ticks(7).plus(5).since(Ticks(7)), 5);
}

#[test]
fn rate_converts_both_ways() {
    let rate = TickRate::from_hz(2_000_000_000);
    assert_eq!(rate.duration(3_000_000), Duration::from_micros(1500));
    assert_eq!(rate.ticks(Duration::from_micros(1500)), 3_000_000);
    assert_eq!(TickRate::from_hz(0).hz(), 1.0);
}

#[test]
fn calibrated_ticks_measure_time() {
    assert!(
        counter_is_invariant(),
        "this machine's counter does not measure time"
    );
    let rate = TickRate::calibrate();
    // The true time between the two tick readings lies between these, however often we are preempted.
    let (outer, first, inner) = (Instant::now(), Ticks::now(), Instant::now());
    std::thread::sleep(Duration::from_millis(200));
    let (inner, last, outer) = (inner.elapsed(), Ticks::now(), outer.elapsed());
    let measured = rate.duration(last.since(first));
    assert!(
        inner.mul_f64(0.99) < measured && measured < outer.mul_f64(1.01),
        "{inner:?} {measured:?} {outer:?}"
    );
}

#[test]
fn zero_bytes_are_found_where_they_are() {
    let mut block = [0x80u8; 32];
    assert_eq!(zero_bytes(&block), 0);
    for at in [0, 7, 15, 16, 31] {
        block[at] = 0;
    }
    block[8] = 1;
    assert_eq!(zero_bytes(&block), 1 | 1 << 7 | 1 << 15 | 1 << 16 | 1 << 31);
    assert_eq!(zero_bytes(&[0; 32]), u32::MAX);
}

#[test]
fn equal_words_are_found_where_they_are() {
    let words = [7, u32::MAX, 0, 7];
    assert_eq!(equal_words(&words, 7), 0b1001);
    assert_eq!(equal_words(&words, u32::MAX), 0b0010);
    assert_eq!(equal_words(&words, 8), 0);
}

/// Compares by both ways that this processor has.
struct Compare(Line, u64);

impl VectorKernel for Compare {
    type Output = Vec<usize>;
    #[inline(always)]
    fn run(self, vectors: impl Vectors) -> Vec<usize> {
        let bits = vectors.equal_longs(&self.0, self.1);
        assert_eq!(bits >> 8, 0);
        let mut words: Vec<usize> = (0..8)
            .filter(|&i| bits >> i & 1 == 1)
            .map(|i| WORD_OF_BIT[i])
            .collect();
        words.sort_unstable();
        words
    }
}

#[test]
fn equal_longs_are_found_where_they_are() {
    for isa in [Isa::BASE, Isa::detect()] {
        for at in 0..8 {
            let mut words = [u64::MAX, 0, 1 << 63, 1, 1 << 32, 0x7fff_ffff, 6, 7];
            words[at] = 0x0123_4567_89ab_cdef;
            assert_eq!(isa.run_vectors(Compare(Line(words), 0x0123_4567_89ab_cdef)), [at]);
        }
        assert_eq!(isa.run_vectors(Compare(Line([5; 8]), 5)).len(), 8);
        assert!(isa.run_vectors(Compare(Line([1 << 32; 8]), 1 << 33)).is_empty());
        let half = isa.run_vectors(Compare(Line([0xffff_ffff; 8]), u64::MAX));
        assert!(half.is_empty(), "half of a word is not the word");
    }
}

#[test]
fn bits_are_looked_at_where_the_mask_is() {
    let block: [u8; 16] = std::array::from_fn(|i| i as u8 * 17);
    assert!(equal_under(&block, &[0xff; 16], &block));
    for at in 0..16 {
        for bit in 0..8 {
            let (mut other, mut mask) = (block, [0xff; 16]);
            other[at] ^= 1 << bit;
            assert!(!equal_under(&block, &mask, &other), "{at} {bit}");
            mask[at] ^= 1 << bit;
            let want = std::array::from_fn(|i| other[i] & mask[i]);
            assert!(equal_under(&block, &mask, &want), "{at} {bit}");
        }
    }
}

#[test]
fn remainders_are_those_of_crc_32c() {
    // RFC 3720 appendix B.4: 32 bytes of zeros give aa 36 91 8a, least significant first; all bits are turned at both ends.
    let zeros = (0..4).fold(u64::from(u32::MAX), |rest, _| remainder(rest, 0).into());
    assert_eq!(!(zeros as u32), 0x8a91_36aa);
    // What stands above 32 bits of the first word does not count.
    assert_eq!(remainder(7 | 5 << 32, 9), remainder(7, 9));
}

#[test]
fn bytes_are_put_in_another_order() {
    let block: [u8; 16] = std::array::from_fn(|i| i as u8 * 16);
    let order = [15, 0, 0x80, 1, 1, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    let with = [1, 0, 7, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let expected = [
        0xf1, 0, 7, 0x10, 0x10, 9, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb2,
    ];
    assert_eq!(shuffled_with(&block, &order, &with), expected);
}

#[test]
fn prefetch_takes_any_address() {
    prefetch_read(core::ptr::null::<u64>());
    prefetch_entry(&[1_u8, 2], usize::MAX);
    prefetch_read(&5_u32);
}
