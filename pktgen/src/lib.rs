//! The packet generator of Windrose, as a library: the `pktgen` binary and end-to-end tests drive it.
//!
//! [`dns`] loads a DNS server. All of it runs on any [`dataplane::io::QueuePair`], the memory port
//! among them, and needs no libdpdk.

#![forbid(unsafe_code)]
// Waiting and the system's clock are denied to workers of the data plane; a generator is none.
#![allow(clippy::disallowed_methods)]

pub mod cli;
pub mod clients;
pub mod clock;
pub mod dns;
mod frame;
pub mod neighbour;
