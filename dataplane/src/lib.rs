//! Windrose data plane: everything that may run on a poll core.
//!
//! A [`worker`] polls its ports in bursts, [`stages`] turn each packet into exactly one
//! [`stages::Verdict`], [`tables`] are the read side of what control compiles, [`link`] is the pair
//! of rings between a worker and control, and [`io`] is the ports. Nothing here allocates, locks
//! or makes a system call after start.

pub mod arch;
pub mod clock;
pub mod counters;
pub mod flow;
pub mod io;
pub mod link;
pub mod mmap;
pub mod stages;
pub mod tables;
pub mod wire;
pub mod worker;
