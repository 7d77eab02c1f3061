//! A burst of owned packet buffers, in an array. Owned by the worker; filled by receive, emptied by
//! transmit. Holds at most [`BURST_MAX`] buffers, in order, and frees what is left in it on drop.
//! The waiting buffers lie side by side, so that a driver may fill and read the array directly.

#![allow(unsafe_code)] // the array is partly uninitialised, so that an empty burst costs nothing

use super::BURST_MAX;
use core::fmt;
use core::mem::MaybeUninit;

/// Up to [`BURST_MAX`] owned buffers in order.
///
/// Invariant: exactly the slots `head..end` are initialised, and `head <= end <= BURST_MAX`.
#[repr(C)]
pub struct Burst<B> {
    slots: [MaybeUninit<B>; BURST_MAX],
    head: usize,
    end: usize,
}

impl<B> Burst<B> {
    /// An empty burst.
    pub const fn new() -> Self {
        Self {
            slots: [const { MaybeUninit::uninit() }; BURST_MAX],
            head: 0,
            end: 0,
        }
    }

    /// How many buffers it holds.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.end - self.head
    }

    /// True when it holds none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.head == self.end
    }

    /// How many more it takes.
    #[inline(always)]
    pub const fn free(&self) -> usize {
        BURST_MAX - self.len()
    }

    /// Adds a buffer behind the last. A full burst gives it back.
    #[inline]
    pub fn push(&mut self, buffer: B) -> Result<(), B> {
        if self.end == BURST_MAX {
            if self.head == 0 {
                return Err(buffer);
            }
            self.close_up();
        }
        self.slots[self.end].write(buffer);
        self.end += 1;
        Ok(())
    }

    /// Takes the first buffer out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<B> {
        if self.head == self.end {
            return None;
        }
        // SAFETY: the slot at `head` is initialised; moving `head` past it gives up our claim to it.
        let buffer = unsafe { self.slots[self.head].assume_init_read() };
        self.head += 1;
        if self.head == self.end {
            self.head = 0;
            self.end = 0;
        }
        Some(buffer)
    }

    /// Takes the buffers out one by one, first to last. What is not taken stays.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = B> + '_ {
        core::iter::from_fn(|| self.pop_front())
    }

    /// The buffers, first to last.
    #[inline]
    pub fn as_slice(&self) -> &[B] {
        // SAFETY: the slots `head..end` are initialised, and MaybeUninit<B> is laid out as B.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().add(self.head).cast(), self.len()) }
    }

    /// The buffers, first to last, mutable.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [B] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.slots.as_mut_ptr().add(self.head).cast(), self.len()) }
    }

    /// The buffers, first to last.
    pub fn iter(&self) -> core::slice::Iter<'_, B> {
        self.as_slice().iter()
    }

    /// The buffers, first to last, mutable.
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, B> {
        self.as_mut_slice().iter_mut()
    }

    /// Frees all buffers.
    pub fn clear(&mut self) {
        let held: *mut [B] = self.as_mut_slice();
        // Empty first: a drop that unwinds leaks the others and frees none twice.
        self.head = 0;
        self.end = 0;
        // SAFETY: `held` are the slots that were initialised, and no field claims them any more.
        unsafe { core::ptr::drop_in_place(held) };
    }

    /// The slots behind the last buffer, [`Burst::free`] of them, for a backend to fill in order.
    #[inline]
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))] // used by the DPDK backend alone
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<B>] {
        self.close_up();
        &mut self.slots[self.end..]
    }

    /// Takes over `count` buffers that were written to the front of [`Burst::spare`].
    ///
    /// # Safety
    /// The first `count` slots of the last `spare` are initialised, `count` is at most its length,
    /// and nothing was pushed or popped in between.
    #[inline]
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))] // used by the DPDK backend alone
    pub(crate) unsafe fn filled(&mut self, count: usize) {
        debug_assert!(
            count <= BURST_MAX - self.end,
            "{count} buffers past the burst's end"
        );
        self.end += count;
    }

    /// Gives up the first `count` buffers without dropping them: somebody else owns them now.
    ///
    /// # Safety
    /// `count` is at most [`Burst::len`], and the caller moved those buffers away.
    #[inline]
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))] // used by the DPDK backend alone
    pub(crate) unsafe fn gave_away(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "{count} buffers of {}", self.len());
        self.head += count;
        if self.head == self.end {
            self.head = 0;
            self.end = 0;
        }
    }

    /// Takes the last of `buffers` over, as many as there is room for, the last one first.
    pub(crate) fn take_last(&mut self, buffers: &mut Vec<B>) {
        self.close_up();
        let count = buffers.len().min(BURST_MAX - self.end);
        let from = buffers.len() - count;
        for (slot, buffer) in self.slots[self.end..].iter_mut().zip(buffers.drain(from..).rev()) {
            slot.write(buffer);
        }
        self.end += count;
    }

    /// Gives the first `count` buffers away, to the end of `buffers`.
    pub(crate) fn give_first(&mut self, count: usize, buffers: &mut Vec<B>) {
        let count = count.min(self.len());
        buffers.reserve(count);
        // SAFETY: the slots `head..head + count` are initialised and are given up below; `buffers` has room for
        // as many behind its end, and takes them over.
        unsafe {
            let from = self.slots.as_ptr().add(self.head).cast::<B>();
            core::ptr::copy_nonoverlapping(from, buffers.as_mut_ptr().add(buffers.len()), count);
            buffers.set_len(buffers.len() + count);
            self.gave_away(count);
        }
    }

    /// Moves the buffers to the array's front.
    #[inline]
    fn close_up(&mut self) {
        if self.head > 0 {
            let (head, len) = (self.head, self.len());
            let first = self.slots.as_mut_ptr();
            // SAFETY: both ranges lie in the array; `copy` allows overlap; the bytes are moved, since
            // the fields below claim only the new place.
            unsafe { core::ptr::copy(first.add(head), first, len) };
            self.head = 0;
            self.end = len;
        }
    }
}

impl<B> Default for Burst<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Drop for Burst<B> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<B: fmt::Debug> fmt::Debug for Burst<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, B> IntoIterator for &'a Burst<B> {
    type Item = &'a B;
    type IntoIter = core::slice::Iter<'a, B>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, B> IntoIterator for &'a mut Burst<B> {
    type Item = &'a mut B;
    type IntoIter = core::slice::IterMut<'a, B>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::VecDeque;

    /// Counts how many of its kind were dropped.
    struct Counted<'a>(u32, &'a Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
        }
    }

    fn values(burst: &Burst<Counted<'_>>) -> Vec<u32> {
        burst.iter().map(|c| c.0).collect()
    }

    #[test]
    fn a_full_burst_gives_the_buffer_back() {
        let dropped = Cell::new(0);
        let mut burst = Burst::new();
        for n in 0..32 {
            assert!(burst.push(Counted(n, &dropped)).is_ok());
        }
        assert_eq!((burst.len(), burst.free(), dropped.get()), (32, 0, 0));
        let refused = burst.push(Counted(99, &dropped)).err().map(|c| c.0);
        assert_eq!((refused, dropped.get()), (Some(99), 1));
        assert_eq!(values(&burst), (0..32).collect::<Vec<_>>());
        drop(burst);
        assert_eq!(dropped.get(), 33);
    }

    #[test]
    fn drained_half_way_the_rest_stays_in_order() {
        let dropped = Cell::new(0);
        let mut burst = Burst::new();
        for n in 0..5 {
            assert!(burst.push(Counted(n, &dropped)).is_ok());
        }
        let taken: Vec<_> = burst.drain().take(2).collect();
        assert_eq!((taken[0].0, taken[1].0, dropped.get()), (0, 1, 0));
        assert_eq!(values(&burst), [2, 3, 4]);
        burst.clear();
        assert_eq!((burst.len(), dropped.get()), (0, 3));
        drop(taken);
        assert_eq!(dropped.get(), 5);
    }

    #[test]
    fn a_backend_fills_behind_and_takes_from_the_front() {
        let dropped = Cell::new(0);
        let mut burst = Burst::new();
        for n in 0..3 {
            assert!(burst.push(Counted(n, &dropped)).is_ok());
        }
        drop(burst.pop_front());
        let spare = burst.spare();
        assert_eq!(spare.len(), 30);
        spare[0].write(Counted(3, &dropped));
        spare[1].write(Counted(4, &dropped));
        // SAFETY: two slots were written just above.
        unsafe { burst.filled(2) };
        assert_eq!(values(&burst), [1, 2, 3, 4]);
        for sent in &mut burst.as_mut_slice()[..3] {
            // SAFETY: the three are given up below, so that each is dropped once.
            unsafe { core::ptr::drop_in_place(sent) };
        }
        // SAFETY: the first three were moved away.
        unsafe { burst.gave_away(3) };
        assert_eq!((values(&burst), dropped.get()), (vec![4], 4));
    }

    proptest! {
        /// Any run of operations agrees with a queue, and nothing is dropped twice or never.
        #[test]
        fn behaves_as_a_bounded_queue(ops in prop::collection::vec(0u8..8, 0..200)) {
            let dropped = Cell::new(0);
            let mut model = VecDeque::new();
            let mut burst = Burst::new();
            let mut made = 0;
            for op in ops {
                match op {
                    0..=4 => {
                        let fits = burst.push(Counted(made, &dropped)).is_ok();
                        prop_assert_eq!(fits, model.len() < 32);
                        if fits {
                            model.push_back(made);
                        }
                        made += 1;
                    }
                    5..=6 => prop_assert_eq!(burst.pop_front().map(|c| c.0), model.pop_front()),
                    _ => prop_assert_eq!(burst.spare().len(), 32 - model.len()),
                }
                prop_assert_eq!(values(&burst), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(dropped.get() as usize, made as usize - model.len());
            }
            drop(burst);
            prop_assert_eq!(dropped.get(), made);
        }
    }
}
