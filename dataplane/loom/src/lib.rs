//! The link between a worker and control, compiled against loom: the very files of the data plane, with
//! another `sync` under them. Used by the tests beside it alone; a crate of its own so that no ordinary
//! build sees loom.
//!
//! `cargo test -p link-model --release`: seconds once built.
#![allow(clippy::duplicate_mod)] // The ring is compiled once as it is and once with each fault.

#[path = "../../src/arch.rs"]
pub mod arch;

/// As the data plane runs it.
#[path = "."]
pub mod link {
    #[path = "../../src/link/delivery.rs"]
    pub mod delivery;
    #[path = "../../src/link/spsc.rs"]
    pub mod spsc;

    mod sync {
        pub(super) use loom::cell::UnsafeCell;
        pub(super) use loom::sync::Arc;
        pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
        pub(super) const HAND_OVER: Ordering = Ordering::Release;
        pub(super) const TAKE_OVER: Ordering = Ordering::Acquire;
    }
}

/// The ring with a relaxed store where a slot is handed over: the model must refuse it.
#[path = "."]
pub mod careless_producer {
    #[path = "../../src/link/spsc.rs"]
    pub mod spsc;

    mod sync {
        pub(super) use loom::cell::UnsafeCell;
        pub(super) use loom::sync::Arc;
        pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
        pub(super) const HAND_OVER: Ordering = Ordering::Relaxed;
        pub(super) const TAKE_OVER: Ordering = Ordering::Acquire;
    }
}

/// The ring with a relaxed load where a slot is taken over: the model must refuse it.
#[path = "."]
pub mod careless_consumer {
    #[path = "../../src/link/spsc.rs"]
    pub mod spsc;

    mod sync {
        pub(super) use loom::cell::UnsafeCell;
        pub(super) use loom::sync::Arc;
        pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
        pub(super) const HAND_OVER: Ordering = Ordering::Release;
        pub(super) const TAKE_OVER: Ordering = Ordering::Relaxed;
    }
}
