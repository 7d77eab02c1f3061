//! Real ports, by DPDK (cargo feature `dpdk`). Called by control and pktgen at start-up, and by the
//! worker through [`DpdkQueues`]. The order is: [`Eal`] once a process, one [`Mempool`] a worker,
//! [`Port::open`] for each port, then each worker takes its queue pairs and calls
//! [`register_thread`]. Handles keep alive what they need, so any order of dropping is sound: a port
//! closes with its last queue pair, EAL is cleaned up last.

#![allow(unsafe_code)] // calls of C, and packet memory by address

mod devargs;
mod eal;
mod error;
mod mbuf;
mod mempool;
mod port;
mod queue;

pub use devargs::is_pci_address;
pub use dpdk_sys::shim_port_stats as PortStats;
pub use eal::{Eal, EalConfig, RegisteredThread, register_thread};
pub use error::DpdkError;
pub use mbuf::Mbuf;
pub use mempool::{Mempool, numa_node_of_cpu};
pub use port::{Multicast, Port, PortConfig, PortInfo};
pub use queue::DpdkQueues;
