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

/// What the stages need to know of the port that a packet came from.
#[derive(Clone, Debug, Default)]
pub struct PortView {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The port's service addresses.
    pub addresses: Addresses,
    /// Verify UDP checksums. False only for virtual ports whose peer leaves them unfinished.
    pub verify_udp_checksum: bool,
}

/// Finds the layers of the frame in `window[..len]` and the lane that it takes. Reads only.
///
/// The layers hold what was found before the verdict; offsets of later layers are then 0.
#[inline]
pub fn classify(window: &Window, len: usize, shape: Shape, port: &PortView) -> (Layers, Lane) {
    match fast::v4::<{ eth::HEADER_LEN }>(window, len, shape, port) {
        Some(layers) => (layers, Lane::DnsAnswer),
        None => otherwise(window, len, shape, port),
    }
}

#[inline(never)]
fn otherwise(window: &Window, len: usize, shape: Shape, port: &PortView) -> (Layers, Lane) {
    match fast::tagged_or_v6(window, len, shape, port) {
        Some(layers) => (layers, Lane::DnsAnswer),
        None => slow::classify(window, len, shape, port),
    }
}
