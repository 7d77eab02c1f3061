//! Response latency of users' traffic, as the workers' samples tell it: summed by clients, site and member, made into evidence
//! for the chain, shown and written to a file.
//!
//! * [`collect`]: the thread that drains the workers' rings.
//! * [`store`]: cells ([`cell`], in `figures`), whose they are (`names`), and what the chain is told (`hold`).
//! * [`mod@file`]: samples as CSV.
//!
//! Made by the appliance's run loop. Owns no plan: what follows from evidence is the compiler's.

pub mod cell;
pub mod collect;
mod figures;
pub mod file;
mod hold;
#[cfg(test)]
mod loop_tests;
mod names;
pub mod store;

pub use collect::Collector;
pub use store::Store;
