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
pub mod cookie;
pub mod dns;
pub mod edns;
pub mod eth;
pub mod gre;
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

/// The eight bytes of a header from `AT` on, as one word in the machine's order: one load.
#[inline(always)]
pub(crate) fn load_8<const AT: usize, const N: usize>(header: &[u8; N]) -> u64 {
    const { assert!(AT + 8 <= N) };
    header
        .get(AT..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_ne_bytes(*b))
}

/// The four bytes of a header from `AT` on, as one word in the machine's order.
#[inline(always)]
pub(crate) fn load_4<const AT: usize, const N: usize>(header: &[u8; N]) -> u32 {
    const { assert!(AT + 4 <= N) };
    header
        .get(AT..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The two bytes of a header from `AT` on, as one word in the machine's order.
#[inline(always)]
pub(crate) fn load_2<const AT: usize, const N: usize>(header: &[u8; N]) -> u16 {
    const { assert!(AT + 2 <= N) };
    header
        .get(AT..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u16::from_ne_bytes(*b))
}

/// Stores the bytes of a word, in the machine's order, from `AT` on: one store.
#[inline(always)]
pub(crate) fn store<const AT: usize, const N: usize, const LEN: usize>(
    header: &mut [u8; N],
    word: [u8; LEN],
) {
    const { assert!(AT + LEN <= N) };
    if let Some(b) = header.get_mut(AT..).and_then(|b| b.first_chunk_mut()) {
        *b = word;
    }
}
