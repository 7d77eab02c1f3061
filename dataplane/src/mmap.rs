//! Memory for big tables: an anonymous mapping of its own, aligned to huge pages, zero-filled.
//!
//! Names, prefixes and flows live in a [`Table`]; control builds them, workers read them. A table
//! owns its memory and gives it back on drop. Small tables are an ordinary boxed slice.
#![allow(unsafe_code)] // mmap, and the slice over what it returns.

use std::io;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Size of a huge page on x86_64 and on aarch64 with 4 KiB pages, bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// Tables of fewer bytes than this are boxed: a mapping would waste most of a huge page.
pub const MAPPED_MIN: usize = 64 << 10;

/// Bytes between two touches of [`Table::populate`]: the smallest page of any supported machine.
const SMALL_PAGE: usize = 4096;

/// Types for which memory full of zero bytes is a value, and which need no drop.
///
/// Implement it for a struct with [`zeroable!`](crate::zeroable), which checks the fields.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, padding aside.
pub unsafe trait Zeroable: Copy + 'static {}

macro_rules! zeroable_integers {
    ($($t:ty)*) => { $(
        // SAFETY: every bit pattern of an integer is a value.
        unsafe impl Zeroable for $t {}
    )* };
}
zeroable_integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

// SAFETY: an array of zeroable elements has no other bytes.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

// SAFETY: every bit pattern of its integers is a value.
unsafe impl Zeroable for crate::arch::Line {}

/// Implements [`Zeroable`](crate::mmap::Zeroable) for a struct, given all of its fields, each of
/// which must be zeroable: `zeroable!(Entry { key, value });`. A field left out does not compile.
#[macro_export]
macro_rules! zeroable {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        const _: () = {
            const fn is_zeroable<T: $crate::mmap::Zeroable>(_: &T) {}
            #[allow(dead_code)]
            const fn check(value: &$name) {
                // Exhaustive: this names every field, and that it is a struct.
                let $name { $($field),+ } = value;
                $( is_zeroable($field); )+
            }
            // SAFETY: `check` proves that each field is zeroable, and padding may hold anything.
            #[allow(unsafe_code)]
            unsafe impl $crate::mmap::Zeroable for $name {}
        };
    };
}

/// Defines an enum of a first variant without fields and others with one [`Zeroable`](crate::mmap::Zeroable)-like value
/// each, which is zeroable: all zeros are the first variant.
#[macro_export]
macro_rules! zeroable_choice {
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident {
            $(#[$first_meta:meta])* $first:ident,
            $( $(#[$variant_meta:meta])* $variant:ident($value:ty) ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default)]
        #[repr(u8)]
        $vis enum $name {
            $(#[$first_meta])*
            #[default]
            $first,
            $( $(#[$variant_meta])* $variant($value), )+
        }
        // SAFETY: with `repr(u8)` the first variant is number 0, in the first byte; it has no fields, so the
        // other bytes may hold anything. Copy, so that there is nothing to drop.
        #[allow(unsafe_code)]
        unsafe impl $crate::mmap::Zeroable for $name {}
    };
}

/// Whether a table got what makes it fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Too small to matter: boxed.
    Small,
    /// Mapped, and the kernel took the advice to use huge pages.
    HugeAdvised,
    /// Mapped with ordinary pages; the kernel refused the advice with this errno.
    Ordinary(i32),
}

enum Backing {
    /// The pointer came from a leaked boxed slice of the table's length.
    Boxed,
    /// The pointer starts a mapping of this many bytes.
    Mapped(usize),
}

/// A fixed-length table of `T`, used as a slice.
pub struct Table<T: Zeroable> {
    start: NonNull<T>,
    len: usize,
    backing: Backing,
    pages: Pages,
}

// SAFETY: a table owns its memory as a box does, and `T` is plain data.
unsafe impl<T: Zeroable + Send> Send for Table<T> {}
// SAFETY: shared access gives out `&[T]` only.
unsafe impl<T: Zeroable + Sync> Sync for Table<T> {}

impl<T: Zeroable> Table<T> {
    /// A table of `len` zeroed entries. Errors when the size overflows or the kernel has no memory.
    /// Pages appear on first touch: see [`Table::populate`].
    pub fn zeroed(len: usize) -> io::Result<Self> {
        const {
            assert!(size_of::<T>() > 0, "a table of nothing");
            assert!(align_of::<T>() <= SMALL_PAGE, "alignment beyond a page");
        }
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes < MAPPED_MIN {
            // SAFETY: `T: Zeroable`, so zeroed entries are initialised.
            return Ok(Self::boxed(unsafe { Box::new_zeroed_slice(len).assume_init() }));
        }
        let mapped = bytes
            .checked_next_multiple_of(HUGE_PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let start = map_aligned(mapped)?;
        Ok(Self {
            start: start.cast(),
            len,
            backing: Backing::Mapped(mapped),
            pages: advise_huge(start, mapped),
        })
    }

    /// A table with the entries of `entries`, copied when it is big. Errors as [`Table::zeroed`].
    pub fn from_vec(entries: Vec<T>) -> io::Result<Self> {
        if size_of_val(entries.as_slice()) < MAPPED_MIN {
            return Ok(Self::boxed(entries.into_boxed_slice()));
        }
        let mut table = Self::zeroed(entries.len())?;
        table.copy_from_slice(&entries);
        Ok(table)
    }

    /// A table with the same entries. Errors as [`Table::zeroed`].
    pub fn copy(&self) -> io::Result<Self>
    where
        T: Copy,
    {
        Self::from_vec(self.to_vec())
    }

    fn boxed(entries: Box<[T]>) -> Self {
        let len = entries.len();
        let start = NonNull::from(Box::leak(entries)).cast();
        Self {
            start,
            len,
            backing: Backing::Boxed,
            pages: Pages::Small,
        }
    }

    /// Which pages it got.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Bytes of address space that it holds.
    pub fn bytes(&self) -> usize {
        match self.backing {
            Backing::Boxed => self.len * size_of::<T>(),
            Backing::Mapped(bytes) => bytes,
        }
    }

    /// Touches every page, so that no worker takes a page fault later. Contents stay.
    pub fn populate(&mut self) {
        let bytes = self.len * size_of::<T>();
        for offset in (0..bytes).step_by(SMALL_PAGE) {
            // SAFETY: `offset` lies inside the table, which we hold exclusively; MaybeUninit bytes
            // because the byte may be padding. Volatile, or the write of what was read would go.
            unsafe {
                let byte = self.start.cast::<std::mem::MaybeUninit<u8>>().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }
}

/// Entries of which there is one at least, so that every hash leads to one.
pub struct Shares<'a, T>(&'a mut [T]);

impl<'a, T> Shares<'a, T> {
    /// None without entries.
    pub fn of(entries: &'a mut [T]) -> Option<Self> {
        (!entries.is_empty()).then_some(Self(entries))
    }

    /// Where a hash leads, all hashes being shared out evenly: below the number of entries.
    #[inline(always)]
    pub fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.0.len() as u128) >> 64) as usize
    }

    /// Asks for the entry that a hash leads to.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        crate::arch::prefetch_entry(self.0, self.index(hash));
    }

    /// The entry that a hash leads to, and its number.
    #[inline(always)]
    pub fn get(&mut self, hash: u64) -> (usize, &mut T) {
        let index = self.index(hash);
        // SAFETY: the hash is below 2^64, so its product with the length, which is not 0, over 2^64 is below the length.
        (index, unsafe { self.0.get_unchecked_mut(index) })
    }

    /// All entries.
    #[inline(always)]
    pub fn all(&mut self) -> &mut [T] {
        self.0
    }
}

/// Maps `bytes` (a multiple of [`HUGE_PAGE`]) of zeroed private memory, aligned to [`HUGE_PAGE`].
fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    // mmap aligns to small pages only, so map one huge page more and give the ends back.
    let mapped = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no other memory.
    let raw = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let raw = NonNull::new(raw.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    let (before, after) = ends(raw.addr().get());
    // SAFETY: `before` is at most one huge page, and `mapped` is that much more than `bytes`: start,
    // start + bytes and both ends lie inside the mapping made above, on page boundaries, and nothing
    // refers to the ends.
    unsafe {
        let start = raw.add(before);
        unmap(raw, before);
        unmap(start.add(bytes), after);
        Ok(start)
    }
}

/// How one huge page too many, in a mapping at `address`, is split so that what lies between is aligned.
/// Newer kernels align big mappings themselves; 6.1 does not.
const fn ends(address: usize) -> (usize, usize) {
    let before = address.wrapping_neg() % HUGE_PAGE;
    (before, HUGE_PAGE - before)
}

/// Unmaps; nothing for 0 bytes.
///
/// # Safety
/// The range must be mapped by us, page-aligned, and no longer referred to.
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises.
        let failed = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
        debug_assert_eq!(failed, 0, "munmap: {}", io::Error::last_os_error());
    }
}

/// Asks for huge pages. Refusal (a kernel without them, or switched off) costs speed only.
fn advise_huge(start: NonNull<u8>, bytes: usize) -> Pages {
    // SAFETY: the range is our own fresh mapping; the advice does not change its contents.
    match unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) } {
        0 => Pages::HugeAdvised,
        _ => Pages::Ordinary(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

impl<T: Zeroable> Drop for Table<T> {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: `boxed` leaked a box of exactly this slice, and nobody else has it.
            Backing::Boxed => drop(unsafe {
                Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len))
            }),
            // SAFETY: the mapping is ours, whole, and the borrow checker saw the last reference end.
            Backing::Mapped(bytes) => unsafe { unmap(self.start.cast(), bytes) },
        }
    }
}

impl<T: Zeroable> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is valid for `len` initialised entries (zeroed or written) as long as we live.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len)
            .field("bytes", &self.bytes())
            .field("pages", &self.pages)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_shared_out_evenly_to_the_last_entry() {
        let mut entries = [10, 11, 12];
        let mut shares = Shares::of(&mut entries).unwrap();
        let third = u64::MAX / 3;
        for (hash, index) in [
            (0, 0),
            (third, 0),
            (third + 1, 1),
            (2 * third + 1, 2),
            (u64::MAX, 2),
        ] {
            assert_eq!(shares.get(hash), (index, &mut (10 + index)), "{hash}");
        }
        assert!(Shares::<u8>::of(&mut []).is_none());
        assert_eq!(Shares::of(&mut [7]).unwrap().get(u64::MAX), (0, &mut 7));
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Entry {
        key: u64,
        tag: [u8; 3],
    }
    zeroable!(Entry { key, tag });

    /// Address space of this process, bytes, by the kernel's own count.
    fn address_space() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse::<usize>().unwrap() * SMALL_PAGE
    }

    #[test]
    fn small_is_boxed_and_zero() {
        let mut table = Table::<Entry>::zeroed(10).unwrap();
        assert_eq!(table.pages(), Pages::Small);
        assert!(table.iter().all(|e| *e == Entry { key: 0, tag: [0; 3] }));
        table[9].key = 5;
        table.populate();
        assert_eq!(table[9].key, 5);
        assert!(Table::<u8>::zeroed(0).unwrap().is_empty());
    }

    #[test]
    fn big_is_mapped_aligned_and_zero() {
        // 300,000 entries of 16 bytes: 4.8 MB, three huge pages.
        let mut table = Table::<Entry>::zeroed(300_000).unwrap();
        assert_eq!(table.bytes(), 3 * HUGE_PAGE);
        assert_eq!(table.as_ptr() as usize % HUGE_PAGE, 0);
        assert_ne!(table.pages(), Pages::Small);
        assert!(table.iter().all(|e| e.key == 0));
        table.last_mut().unwrap().key = 7;
        table.populate();
        assert_eq!(table[299_999].key, 7);
    }

    #[test]
    fn a_choice_of_zeros_is_its_first_variant() {
        zeroable_choice! {
            enum Choice {
                Neither,
                One(u32),
                Other([u64; 2]),
            }
        }
        let mut table = Table::<Choice>::zeroed(3).unwrap();
        table[1] = Choice::One(7);
        table[2] = Choice::Other([8, 9]);
        assert!(matches!(
            table[..],
            [Choice::Neither, Choice::One(7), Choice::Other([8, 9])]
        ));
    }

    #[test]
    fn the_ends_leave_an_aligned_middle() {
        assert_eq!(ends(0x7000_0000_0000), (0, 0x20_0000));
        assert_eq!(ends(0x7000_0000_1000), (0x1f_f000, 0x1000));
        assert_eq!(ends(0x7000_001f_f000), (0x1000, 0x1f_f000));
    }

    #[test]
    fn the_boundary_between_boxed_and_mapped() {
        assert_eq!(Table::<u8>::zeroed(MAPPED_MIN - 1).unwrap().pages(), Pages::Small);
        assert_eq!(Table::<u8>::zeroed(MAPPED_MIN).unwrap().bytes(), HUGE_PAGE);
    }

    #[test]
    fn drop_gives_the_memory_back() {
        // Each maps 2 MiB for itself and 2 MiB of ends: losing either would cost 10 GB here, far more
        // than the other tests of this process map meanwhile.
        let before = address_space();
        for _ in 0..5000 {
            drop(Table::<u8>::zeroed(HUGE_PAGE).unwrap());
        }
        assert!(address_space() < before + (4 << 30));
    }

    #[test]
    fn from_vec_keeps_the_entries() {
        for len in [0_u32, 3, 100_000] {
            let entries: Vec<u32> = (0..len).collect();
            assert_eq!(&Table::from_vec(entries.clone()).unwrap()[..], &entries[..]);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(Table::<u64>::zeroed(usize::MAX).is_err(), "overflows");
        assert!(Table::<u8>::zeroed(usize::MAX).is_err(), "overflows when rounded");
        assert!(
            Table::<u8>::zeroed(1 << 60).is_err(),
            "more than an address space"
        );
    }

    #[test]
    fn shared_between_threads() {
        let table = Table::from_vec((0..50_000_u64).collect()).unwrap();
        let sum = std::thread::scope(|scope| {
            let halves = [&table[..25_000], &table[25_000..]];
            halves
                .map(|half| scope.spawn(|| half.iter().sum::<u64>()))
                .map(|t| t.join().unwrap())
                .iter()
                .sum::<u64>()
        });
        assert_eq!(sum, 49_999 * 50_000 / 2);
    }
}
