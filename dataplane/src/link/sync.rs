//! What the rings are built on: atomics, the shared cell and the reference count.
//!
//! The model in `dataplane/loom` compiles `spsc.rs` and `delivery.rs` against its own module of this
//! name, where each of these is a type that loom can see into.
#![allow(unsafe_code)] // Only hands out the raw pointer of a cell.

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

/// Order of the store that hands a slot over. A constant, so that the model can weaken it and see
/// itself fail.
pub(super) const HAND_OVER: Ordering = Ordering::Release;
/// Order of the load that takes a slot over.
pub(super) const TAKE_OVER: Ordering = Ordering::Acquire;

/// `std::cell::UnsafeCell` with loom's interface.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
