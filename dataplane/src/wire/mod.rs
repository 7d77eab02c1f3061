//! Wire formats, one protocol a file: a view over bytes and a plain value. No allocation, no panic,
//! no policy: what a packet means is decided in `stages`.
//!
//! A view is a fixed-size array at the header's place ([`at`], [`at_mut`]); `read` turns it into a
//! value and `write` puts one back, each inlined so that unused fields cost nothing.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub mod arp;
pub mod checksum;
pub mod eth;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod nd;
pub mod tcp;
pub mod udp;
pub mod vlan;

use crate::io::Window;

/// The `N` bytes of a window from `offset` on; `None` when they would pass its end.
#[inline(always)]
pub fn at<const N: usize>(window: &Window, offset: usize) -> Option<&[u8; N]> {
    window.get(offset..)?.first_chunk()
}

/// The `N` bytes of a window from `offset` on, to be written; `None` when they would pass its end.
#[inline(always)]
pub fn at_mut<const N: usize>(window: &mut Window, offset: usize) -> Option<&mut [u8; N]> {
    window.get_mut(offset..)?.first_chunk_mut()
}
