//! Answers ARP, neighbour discovery and echo for the service addresses, in place, tags kept. Called by
//! the worker for the neighbour lane; `announce` is called by control when a port comes up.
//!
//! Owns the echo rate limit of one worker. Nothing is learned from neighbours: a reply goes back to
//! where its request came from.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

mod announce;
mod arp;
mod echo;
mod nd;
mod rate;
#[cfg(test)]
mod tests;

pub use announce::announce;
pub use rate::RateLimit;

use super::classify::PortView;
use super::{Family, Layers, Verdict};
use crate::arch::Ticks;
use crate::counters::Counters;
use crate::io::Window;
use crate::wire::{at, icmp};

/// Echo replies a second of one worker, unless configured: enough for every monitor, little for a flood.
pub const ECHO_PER_SECOND: u32 = 1000;
/// Echo replies at once, unless configured.
pub const ECHO_BURST: u32 = 100;

/// The neighbour stage of one worker.
#[derive(Clone, Debug)]
pub struct Neighbour {
    echo: RateLimit,
}

impl Neighbour {
    /// A stage that answers echo within `echo`.
    pub const fn new(echo: RateLimit) -> Self {
        Self { echo }
    }

    /// Answers the packet that `classify` read as `layers`. Returns the verdict, and for a reply the
    /// frame length (0 otherwise). `now` is the burst's clock reading. Conflicts go to `counters`.
    pub fn process(
        &mut self,
        window: &mut Window,
        layers: &Layers,
        port: &PortView,
        now: Ticks,
        counters: &mut Counters,
    ) -> (Verdict, usize) {
        let replied = match (layers.family, layers.l4 == layers.l3) {
            (_, true) => arp::reply(window, layers, port, counters),
            (Family::V4, _) => echo::reply(window, layers, &mut self.echo, now),
            (Family::V6, _) => {
                let kind = at(window, usize::from(layers.l4)).map(|bytes| icmp::Header::read(bytes).kind);
                match kind {
                    Some(icmp::V6_NEIGHBOUR_SOLICITATION) => nd::advertise(window, layers, port, counters),
                    Some(icmp::V6_NEIGHBOUR_ADVERTISEMENT) => Err(nd::watch(window, layers, port, counters)),
                    _ => echo::reply(window, layers, &mut self.echo, now),
                }
            }
        };
        match replied {
            Ok(len) => (Verdict::Reply, len),
            Err(reason) => (Verdict::Drop(reason), 0),
        }
    }
}

/// Writes both MAC addresses.
fn write_macs(window: &mut Window, dst: [u8; 6], src: [u8; 6]) {
    if let Some(macs) = window.first_chunk_mut::<12>() {
        let (to, from) = macs.split_at_mut(6);
        to.copy_from_slice(&dst);
        from.copy_from_slice(&src);
    }
}

/// The frame's source MAC address.
fn source_mac(window: &Window) -> [u8; 6] {
    let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *window;
    [a, b, c, d, e, f]
}
