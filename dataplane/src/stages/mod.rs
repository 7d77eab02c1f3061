//! The stages of the packet path, one folder each, and what they share: the packet's layers and
//! the one verdict that each packet gets.
//!
//! `classify` reads the layers and names the lane; the worker hands each lane's packets to its
//! stage. A new stage is a new folder, a [`Lane`] and an arm in the worker's dispatch.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

pub mod classify;
pub mod dns_answer;
pub mod flow_latency;
pub mod neighbour;
pub mod punt;
pub mod rate_limit;
pub mod reply;
#[cfg(test)]
pub(crate) mod testkit;

use crate::counters::Counter;
use crate::wire::{eth, ipv4, udp};

/// What became of a packet. Exactly one per received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Rewritten into a reply; goes out of the port that it came from.
    Reply,
    /// Goes out of the given port (index in the worker's port list).
    Forward(u8),
    /// Copied to control by the punt ring.
    Punt,
    /// Measured, and gone.
    Consume,
    /// Dropped; the counter is of kind [`crate::counters::Kind::Drop`].
    Drop(Counter),
}

/// Which stage a packet goes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// ARP, neighbour discovery or echo for a service address.
    Neighbour,
    /// UDP to port 53 of a service address, checksum verified.
    DnsAnswer,
    /// Anything else for a service address.
    Punt,
    /// No stage: the packet is done.
    Done(Verdict),
}

/// Address family of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// Where the layers of a frame start, found once by `classify`. Offsets and lengths in bytes from
/// the frame's first byte; `l4` and `payload` are meaningful for the lanes that need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Address family, or of the payload for ARP: V4.
    pub family: Family,
    /// Start of the IP header (or of the ARP body): Ethernet header and tags before it.
    pub l3: u16,
    /// Start of the UDP, TCP or ICMP header, behind IPv4 options and IPv6 extension headers; of the ARP
    /// body, as `l3`, for ARP.
    pub l4: u16,
    /// First byte after the IP payload: header plus total length, not the frame's length.
    pub end: u16,
}

impl Layers {
    /// Start of a DNS message in a plain query: untagged, IPv4 without options.
    pub const PLAIN_MESSAGE: usize = eth::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;

    /// The layers of a plain query that ends at `end`.
    #[inline(always)]
    pub const fn plain(end: u16) -> Self {
        Self {
            family: Family::V4,
            l3: eth::HEADER_LEN as u16,
            l4: (eth::HEADER_LEN + ipv4::HEADER_LEN) as u16,
            end,
        }
    }
}
