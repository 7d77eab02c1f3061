//! The flow table of a worker, and what is estimated from the one direction of a flow that passes here.
//!
//! Used by the stages that see users' traffic, for one lookup a packet. A [`Key`] is made of a packet's addresses and
//! whatever else tells flows apart; the [`FlowTable`] finds its [`Entry`], one cache line, in steps over a burst
//! (`prefetch`, `find`, then `entry`), so that memory is waited for once a burst and not once a packet; and
//! [`estimate`] works on the entry. Nothing here knows of DPDK, allocates after start or reads a clock.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

pub mod entry;
pub mod estimate;
pub mod key;
pub mod moment;
pub mod table;
#[cfg(test)]
mod table_tests;

pub use entry::{Entry, Parties, Watch};
pub use key::{Hasher, Key};
pub use moment::{Moment, MomentClock, Span};
pub use table::{FlowTable, Place, Tallies};
