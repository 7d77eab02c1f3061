//! A whole worker on the memory port, fed with compiled configurations, with no kernel and no DPDK between:
//! what becomes of each kind of packet, that the packet laws hold whatever comes, that nothing is allocated,
//! that snapshot swaps lose nothing, and that the engine answers as a plain reading of the RFCs does.

mod abuse;
mod cases;
mod client_data;
mod frames;
mod lab;
mod latency;
mod no_alloc;
mod pooq;
mod random;
mod reference;
mod sticky;
mod swap;
