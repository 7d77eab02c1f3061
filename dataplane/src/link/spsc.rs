//! The ring: bounded, wait-free, one producer, one consumer, slots written and read in place.
//!
//! Every ring between a worker and control is one of these. Own code rather than the `rtrb` crate
//! because the model in `dataplane/loom` must see inside it, and because a slot of 2 KiB is filled in
//! place. Each end works on its own copy of its index and re-reads the other end's only when the
//! ring looks full (empty), so an idle ring costs one load of a line that stays in cache.
#![allow(unsafe_code)] // The slots are shared cells; the indices say whose each one is.

use super::sync::{Arc, AtomicUsize, HAND_OVER, TAKE_OVER, UnsafeCell};
use crossbeam::utils::CachePadded;

struct Ring<T> {
    /// Slots taken out so far; written by the consumer alone.
    head: CachePadded<AtomicUsize>,
    /// Slots filled so far; written by the producer alone.
    tail: CachePadded<AtomicUsize>,
    /// A power of two of them; index & (length - 1) is the slot of an index.
    slots: Box<[UnsafeCell<T>]>,
}

// SAFETY: a slot is touched by the producer while tail <= index < head + capacity and by the consumer
// while head <= index < tail, so never by both; indices are handed over release to acquire. Values
// move between the two threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its slots.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&UnsafeCell<T>> {
        // The mask keeps it in range, which the compiler cannot know: `get`, to have no panic path.
        self.slots.get(index & (self.slots.len() - 1))
    }
}

/// The end that fills slots.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    /// The consumer's index as last read: never ahead of the true one.
    head_seen: usize,
}

/// The end that empties slots.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// The producer's index as last read: never ahead of the true one.
    tail_seen: usize,
}

/// A ring of at least `capacity` slots (rounded up to a power of two, 1 at least), all default.
/// The only allocation that it ever makes.
pub fn ring<T: Default>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity, 0)
}

/// The same, with indices that start at `first`.
pub(super) fn ring_from<T: Default>(capacity: usize, first: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.next_power_of_two();
    let ring = Arc::new(Ring {
        head: CachePadded::new(AtomicUsize::new(first)),
        tail: CachePadded::new(AtomicUsize::new(first)),
        slots: (0..capacity).map(|_| UnsafeCell::new(T::default())).collect(),
    });
    (
        Producer {
            ring: Arc::clone(&ring),
            tail: first,
            head_seen: first,
        },
        Consumer {
            ring,
            head: first,
            tail_seen: first,
        },
    )
}

impl<T> Producer<T> {
    /// True when the next [`Producer::write`] finds a slot. Stays true until then.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let capacity = self.ring.slots.len();
        if self.tail.wrapping_sub(self.head_seen) < capacity {
            return true;
        }
        self.head_seen = self.ring.head.load(TAKE_OVER);
        self.tail.wrapping_sub(self.head_seen) < capacity
    }

    /// Lets `fill` write the next slot, which holds whatever was in it last, and hands it over.
    /// `None` when the ring is full: `fill` is not called. Never waits.
    #[inline]
    pub fn write<R>(&mut self, fill: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.has_room() {
            return None;
        }
        let slot = self.ring.slot(self.tail)?;
        // SAFETY: there is room, so the consumer has given up this slot (its head was loaded with
        // acquire) and will not look at it before the store below.
        let result = slot.with_mut(|slot| fill(unsafe { &mut *slot }));
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.store(self.tail, HAND_OVER);
        Some(result)
    }

    /// How many slots were written so far, wrapping.
    pub fn written(&self) -> usize {
        self.tail
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }
}

impl<T> Consumer<T> {
    /// True when the next [`Consumer::read`] finds something. Stays true until then.
    #[inline]
    fn has_next(&mut self) -> bool {
        if self.head != self.tail_seen {
            return true;
        }
        self.tail_seen = self.ring.tail.load(TAKE_OVER);
        self.head != self.tail_seen
    }

    /// Lets `look` see the oldest slot without taking it. `None` when the ring is empty.
    #[inline]
    pub fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: head < tail, so the producer handed this slot over (its tail was loaded with
        // acquire) and does not touch it before head passes it.
        Some(self.ring.slot(self.head)?.with(|slot| look(unsafe { &*slot })))
    }

    /// Lets `empty` use the oldest slot, then gives the slot back. `None` when the ring is empty.
    /// Never waits.
    #[inline]
    pub fn read<R>(&mut self, empty: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: as in `peek`.
        let result = self
            .ring
            .slot(self.head)?
            .with_mut(|slot| empty(unsafe { &mut *slot }));
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, HAND_OVER);
        Some(result)
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }
}

/// Rings whose values are moved in and out: a free slot holds `None`.
impl<V> Producer<Option<V>> {
    /// Moves `value` in, or gives it back when the ring is full.
    #[inline]
    pub fn push(&mut self, value: V) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        self.write(|slot| *slot = Some(value));
        Ok(())
    }
}

impl<V> Consumer<Option<V>> {
    /// Moves the oldest value out.
    #[inline]
    pub fn pop(&mut self) -> Option<V> {
        self.read(Option::take).flatten()
    }
}
