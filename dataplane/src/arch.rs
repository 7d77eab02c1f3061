//! What differs by processor: the tick counter, prefetch and pause.
//!
//! Workers read [`Ticks`] once a burst, tables prefetch with [`prefetch_read`], control turns ticks
//! into time with a [`TickRate`]. Owns nothing. x86_64 reads the TSC, aarch64 its virtual counter;
//! elsewhere a tick is a nanosecond of the monotonic clock, which is right but slow.
#![allow(unsafe_code)] // One instruction each, behind safe signatures.

use std::time::{Duration, Instant};

/// A point in time on the processor's counter, in ticks since some point before start. Comparable
/// between the cores of one machine when [`counter_is_invariant`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// Reads the counter. A few nanoseconds; does not order itself against other instructions.
    #[inline(always)]
    pub fn now() -> Self {
        Self(read_counter())
    }

    /// Ticks since `earlier`; 0 when `earlier` lies ahead, as counters of two cores may be a few
    /// ticks apart.
    #[inline(always)]
    pub const fn since(self, earlier: Ticks) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The point `ticks` later, wrapping.
    #[inline(always)]
    pub const fn plus(self, ticks: u64) -> Self {
        Self(self.0.wrapping_add(ticks))
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read_counter() -> u64 {
    // SAFETY: RDTSC is part of every x86_64 processor and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn read_counter() -> u64 {
    let ticks: u64;
    // SAFETY: CNTVCT_EL0 is readable from user space on Linux; the instruction touches no memory.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read_counter() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// True when the counter runs at one rate in every power state, so that ticks measure time.
/// On x86_64 this is CPUID 0x80000007 EDX bit 8 (invariant TSC, AMD APM volume 3 and Intel SDM volume 2).
pub fn counter_is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        true
    }
}

/// How many ticks make a second. Found once at start; never on a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickRate {
    per_second: f64,
}

impl TickRate {
    /// From a known frequency, ticks per second; at least 1.
    pub fn from_hz(hz: u64) -> Self {
        Self {
            per_second: hz.max(1) as f64,
        }
    }

    /// The rate of this machine: what the processor states of itself, else measured against the
    /// monotonic clock, which takes 20 ms and is good to about 50 ppm.
    pub fn calibrate() -> Self {
        match stated_hz() {
            Some(hz) => Self::from_hz(hz),
            None => Self::measure(Duration::from_millis(20)),
        }
    }

    /// Measures the rate over at least `span`.
    pub fn measure(span: Duration) -> Self {
        let (start, first) = read_both();
        std::thread::sleep(span);
        let (end, last) = read_both();
        let seconds = end.duration_since(start).as_secs_f64();
        let per_second = last.since(first) as f64 / seconds;
        Self {
            per_second: per_second.max(1.0),
        }
    }

    /// Ticks per second.
    pub fn hz(self) -> f64 {
        self.per_second
    }

    /// That many ticks as time.
    pub fn duration(self, ticks: u64) -> Duration {
        Duration::try_from_secs_f64(ticks as f64 / self.per_second).unwrap_or(Duration::MAX)
    }

    /// That much time in ticks, saturating.
    pub fn ticks(self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.per_second) as u64
    }
}

/// Both clocks at nearly one instant: of several tries the one least disturbed.
fn read_both() -> (Instant, Ticks) {
    let mut best = (u64::MAX, Instant::now(), Ticks::now());
    for _ in 0..16 {
        let before = Ticks::now();
        let clock = Instant::now();
        let after = Ticks::now();
        let width = after.since(before);
        if width < best.0 {
            best = (width, clock, before.plus(width / 2));
        }
    }
    (best.1, best.2)
}

/// The counter's frequency where the processor states it exactly.
fn stated_hz() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // Leaf 0x15: crystal frequency (ECX, Hz) times EBX / EAX. Any of them 0: not stated, and leaf
        // 0x16 gives only the nominal base frequency, which is off by up to some per cent.
        use core::arch::x86_64::__cpuid;
        if __cpuid(0).eax < 0x15 {
            return None;
        }
        let leaf = __cpuid(0x15);
        (leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0)
            .then(|| u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax))
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hz: u64;
        // SAFETY: CNTFRQ_EL0 is readable from user space on Linux; the instruction touches no memory.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags))
        };
        (hz != 0).then_some(hz)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Some(1_000_000_000)
    }
}

/// Asks for the cache line at `at` to be brought in for reading. A hint: any address is allowed and
/// none faults. `&T` coerces.
#[inline(always)]
pub fn prefetch_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 is a hint; it does not fault and reads no memory that the program sees.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint; it does not fault and reads no memory that the program sees.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Asks for the line where entry `index` of `table` starts. An index past the end is harmless.
#[inline(always)]
pub fn prefetch_entry<T>(table: &[T], index: usize) {
    prefetch_read(table.as_ptr().wrapping_add(index));
}

/// Eight words in a cache line of their own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// What [`Kernel`]s for which it matters are told of the processor at compile time.
pub trait Vectors: Copy {
    /// Which of eight words equal `value`: a bit each, in the order of [`WORD_OF_BIT`].
    fn equal_longs(self, words: &Line, value: u64) -> u32;
}

/// The words that the bits of [`Vectors::equal_longs`] stand for. As vectors of 32 bytes are packed into halves.
pub const WORD_OF_BIT: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

/// No more than the build is for.
#[derive(Clone, Copy, Debug)]
pub struct Base;

/// AVX2 and the rest of x86-64-v3. Made where the processor has them, and nowhere else.
#[derive(Clone, Copy, Debug)]
pub struct V3(());

/// As [`Kernel`], told which of the two it is.
pub trait VectorKernel {
    /// What it gives.
    type Output;
    /// Does it. To be inlined always, with all that it calls and that is to profit.
    fn run(self, vectors: impl Vectors) -> Self::Output;
}

impl Vectors for Base {
    #[inline(always)]
    fn equal_longs(self, words: &Line, value: u64) -> u32 {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse4.1"))]
        // SAFETY: the build is for processors with SSE4.1; the loads are aligned ones inside the line.
        unsafe {
            use core::arch::x86_64::{
                _mm_cmpeq_epi64, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
                _mm_set1_epi64x, _mm_setzero_si128,
            };
            let wanted = _mm_set1_epi64x(value as i64);
            let pair = |at: usize| _mm_cmpeq_epi64(_mm_load_si128(words.0.as_ptr().add(at).cast()), wanted);
            // 64 bits of ones become 32, 16, 8: a byte a word, then a bit.
            let low = _mm_packs_epi32(pair(0), pair(4));
            let high = _mm_packs_epi32(pair(2), pair(6));
            let bytes = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
            _mm_movemask_epi8(bytes) as u32
        }
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.1")))]
        WORD_OF_BIT
            .iter()
            .enumerate()
            .fold(0, |bits, (i, &at)| bits | u32::from(words.0[at] == value) << i)
    }
}

impl Vectors for V3 {
    #[inline(always)]
    fn equal_longs(self, words: &Line, value: u64) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a `V3` only where `Isa::detect` has seen AVX2; the loads are aligned ones inside the line.
        unsafe {
            use core::arch::x86_64::{
                _mm256_castsi256_ps, _mm256_cmpeq_epi64, _mm256_load_si256, _mm256_movemask_ps,
                _mm256_packs_epi32, _mm256_set1_epi64x,
            };
            let wanted = _mm256_set1_epi64x(value as i64);
            let four =
                |at: usize| _mm256_cmpeq_epi64(_mm256_load_si256(words.0.as_ptr().add(at).cast()), wanted);
            // 64 bits of ones become 32, in each half of the vectors by itself.
            let packed = _mm256_packs_epi32(four(0), four(4));
            _mm256_movemask_ps(_mm256_castsi256_ps(packed)) as u32
        }
        #[cfg(not(target_arch = "x86_64"))]
        Base.equal_longs(words, value)
    }
}

/// Work whose code is made twice: for the processors that the build is for, and for newer ones.
pub trait Kernel {
    /// What it gives.
    type Output;
    /// Does it. To be inlined always, with all that it calls and that is to profit.
    fn run(self) -> Self::Output;
}

/// Which instructions this processor has beyond those that the build is for. Found once, when a worker starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    /// Those of x86-64-v3 that compilers make use of: AVX2, BMI1, BMI2, LZCNT, MOVBE.
    v3: bool,
}

impl Isa {
    /// What this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let v3 = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("movbe");
        #[cfg(not(target_arch = "x86_64"))]
        let v3 = false;
        Self { v3 }
    }

    /// What every processor has that the build is for.
    pub const BASE: Self = Self { v3: false };

    /// Its name among the levels of the x86-64 psABI, or "base".
    pub fn name(self) -> &'static str {
        if self.v3 { "x86-64-v3" } else { "base" }
    }

    /// Runs the kernel as made for these instructions.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self.v3 {
            // SAFETY: `detect` has seen each of the features on this processor.
            return unsafe { run_v3(kernel) };
        }
        run_base(kernel)
    }
}

impl Isa {
    /// Runs the kernel as made for these instructions, and tells it which.
    #[inline(always)]
    pub fn run_vectors<K: VectorKernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self.v3 {
            // SAFETY: `detect` has seen each of the features on this processor.
            return unsafe { run_v3(With(kernel, V3(()))) };
        }
        run_base(With(kernel, Base))
    }
}

/// A kernel with what it is told.
struct With<K, V>(K, V);

impl<K: VectorKernel, V: Vectors> Kernel for With<K, V> {
    type Output = K::Output;
    #[inline(always)]
    fn run(self) -> K::Output {
        self.0.run(self.1)
    }
}

#[inline(never)]
fn run_base<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
fn run_v3<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Which bytes of a block are zero: bit i for byte i.
#[inline(always)]
pub fn zero_bytes(block: &[u8; 32]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of every x86_64 processor; the loads are unaligned ones inside the block.
    unsafe {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_setzero_si128};
        let half = |at: usize| {
            let bytes = _mm_loadu_si128(block.as_ptr().add(at).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) as u32
        };
        half(0) | half(16) << 16
    }
    #[cfg(not(target_arch = "x86_64"))]
    block
        .iter()
        .enumerate()
        .fold(0, |bits, (i, &byte)| bits | u32::from(byte == 0) << i)
}

/// Which of four words equal `value`: bit i for word i.
#[inline(always)]
pub fn equal_words(words: &[u32; 4], value: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of every x86_64 processor; the load is an unaligned one of the whole array.
    unsafe {
        use core::arch::x86_64::{
            _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_ps, _mm_set1_epi32,
        };
        let equal = _mm_cmpeq_epi32(
            _mm_loadu_si128(words.as_ptr().cast()),
            _mm_set1_epi32(value as i32),
        );
        _mm_movemask_ps(_mm_castsi128_ps(equal)) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    words
        .iter()
        .enumerate()
        .fold(0, |bits, (i, &word)| bits | u32::from(word == value) << i)
}

/// True when the bits of `block` that `mask` looks at are those of `want`, which has no others.
#[inline(always)]
pub fn equal_under(block: &[u8; 16], mask: &[u8; 16], want: &[u8; 16]) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of every x86_64 processor; the loads are unaligned ones of whole arrays.
    unsafe {
        use core::arch::x86_64::{_mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
        let [block, mask, want] = [block, mask, want].map(|b| _mm_loadu_si128(b.as_ptr().cast()));
        _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(block, mask), want)) == 0xffff
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let [block, mask, want] = [block, mask, want].map(|b| u128::from_ne_bytes(*b));
        block & mask == want
    }
}

/// 32 bits of 128, each from many of them: a remainder (CRC-32C), which has nothing in common with sums and products.
#[inline(always)]
pub fn remainder(low: u64, high: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse4.2"))]
    // SAFETY: the build is for processors with SSE4.2; the instruction touches no memory.
    unsafe {
        core::arch::x86_64::_mm_crc32_u64(low, high) as u32
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.2")))]
    {
        // Bit by bit, as the instruction does: slow, and right.
        let mut rest = low as u32;
        for byte in high.to_le_bytes() {
            rest ^= u32::from(byte);
            for _ in 0..8 {
                rest = rest >> 1 ^ (0x82f6_3b78 & 0u32.wrapping_sub(rest & 1));
            }
        }
        rest
    }
}

/// Byte i of the result is byte `order[i]` of `block`, or 0 where that is above 127, joined with byte i of `with`.
#[inline(always)]
pub fn shuffled_with(block: &[u8; 16], order: &[u8; 16], with: &[u8; 16]) -> [u8; 16] {
    #[cfg(all(target_arch = "x86_64", target_feature = "ssse3"))]
    // SAFETY: the build is for processors with SSSE3; loads and the store are unaligned ones of whole arrays.
    unsafe {
        use core::arch::x86_64::{_mm_loadu_si128, _mm_or_si128, _mm_shuffle_epi8, _mm_storeu_si128};
        let [block, order, with] = [block, order, with].map(|b| _mm_loadu_si128(b.as_ptr().cast()));
        let mut out = [0; 16];
        _mm_storeu_si128(
            out.as_mut_ptr().cast(),
            _mm_or_si128(_mm_shuffle_epi8(block, order), with),
        );
        out
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "ssse3")))]
    std::array::from_fn(|i| {
        let from = order[i];
        let byte = if from > 127 {
            0
        } else {
            block[usize::from(from & 15)]
        };
        byte | with[i]
    })
}

/// Tells the processor that this is a polling loop.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

// Named by its path: the models of `loom` take this file in from elsewhere.
#[cfg(test)]
#[path = "arch_tests.rs"]
mod tests;
