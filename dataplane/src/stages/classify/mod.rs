//! Reads a frame's layers once and names its lane. Called by the worker for every packet of a burst.
//!
//! Plain DNS queries (no options, at most one tag) take the paths in `fast`, whose header tests are
//! merged into few branches; untagged IPv4 comes first and inlined. Everything else, and whatever
//! those paths doubt, is judged by `slow`, which alone defines what is right; a test holds them together.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod fast;
mod slow;
#[cfg(test)]
mod tests;

use super::{Lane, Layers};
use crate::io::{Shape, Window};
use crate::tables::addresses::Addresses;
use crate::wire::eth;

/// The port that DNS is served on.
pub const DNS_PORT: u16 = 53;
/// VLAN tags answered at most; a frame with more is dropped as `vlan_depth`.
pub const TAGS_MAX: usize = 2;

/// What a port is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Packets for its service addresses are answered.
    #[default]
    Service,
    /// It gets copies of users' traffic, which are measured and consumed.
    Mirror,
    /// Users' traffic passes: what comes goes out of the port of this index, unchanged, and is measured.
    Bridge(u8),
}

/// What the stages need to know of the port that a packet came from.
#[derive(Clone, Debug)]
pub struct PortView {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The same as the first bytes of a frame, in the machine's order; then zeros.
    mac_word: u64,
    /// The port's service addresses.
    pub addresses: Addresses,
    /// Verify UDP checksums. False only for virtual ports whose peer leaves them unfinished.
    pub verify_udp_checksum: bool,
    /// What it is for.
    pub role: Role,
}

impl PortView {
    /// A port with that MAC address and those service addresses.
    pub fn new(mac: [u8; 6], addresses: Addresses, verify_udp_checksum: bool) -> Self {
        let [m0, m1, m2, m3, m4, m5] = mac;
        Self {
            mac,
            mac_word: u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, 0, 0]),
            addresses,
            verify_udp_checksum,
            role: Role::Service,
        }
    }

    /// The same port in another role.
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }
}

/// The service address that the last plain query of a burst went to: most go to the same, which needs to be looked up
/// once.
#[derive(Clone, Copy, Debug)]
pub struct LastAddress(u64);

impl LastAddress {
    /// Equal to no address.
    pub const NONE: Self = Self(u64::MAX);
}

/// Accepts a plain query, which nearly every packet is: whole, untagged, IPv4 without options, for DNS at a service
/// address. The bytes behind the datagram are cleared. Returns where it ends; its layers are [`Layers::plain`]. `None` says nothing: [`classify`] judges.
/// `last` is of this port and these tables.
#[inline(always)]
pub fn plain(
    window: &mut Window,
    len: usize,
    shape: Shape,
    port: &PortView,
    last: &mut LastAddress,
) -> Option<u16> {
    fast::v4::<{ eth::HEADER_LEN }>(window, len, shape, port, last)
}

/// Finds the layers of the frame in `window[..len]` and the lane that it takes. What it takes for a plain query has
/// lost the bytes behind it, which are no part of the datagram; otherwise it reads only.
///
/// The layers hold what was found before the verdict; offsets of later layers are then 0.
#[inline(never)]
pub fn classify(window: &mut Window, len: usize, shape: Shape, port: &PortView) -> (Layers, Lane) {
    if let Some(end) = plain(window, len, shape, port, &mut LastAddress::NONE.clone()) {
        return (Layers::plain(end), Lane::DnsAnswer);
    }
    match fast::tagged_or_v6(window, len, shape, port) {
        Some(layers) => (layers, Lane::DnsAnswer),
        None => slow::classify(window, len, shape, port),
    }
}
