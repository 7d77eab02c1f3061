//! What is kept of one flow: 64 bytes, one cache line.
//!
//! Filled when the flow is created, by the stage that creates it, then worked on by [`super::estimate`]. What is
//! watched is a choice by what can be seen of the flow's transport.

use super::estimate::{Epoch, Hidden, Tcp};
use crate::{zeroable, zeroable_choice};

zeroable_choice! {
    /// What a flow is watched by.
    pub enum Watch {
        /// By nothing yet.
        Nothing,
        /// Readable TCP.
        Tcp(Tcp),
        /// A transport whose headers are hidden: QUIC, ESP, WireGuard, other tunnels, any protocol.
        Hidden(Hidden),
    }
}

/// One flow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Entry {
    /// Class of the client, as [`crate::tables::Classes`] numbers them.
    pub class: u16,
    /// The server, as the table of servers numbers them.
    pub server: u16,
    /// The mean of this epoch.
    pub(super) epoch: Epoch,
    /// The estimator's state.
    pub watch: Watch,
}

zeroable!(Entry {
    class,
    server,
    epoch,
    watch
});

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// A flow between a client of that class and that server.
    pub const fn new(class: u16, server: u16, watch: Watch) -> Self {
        Self {
            class,
            server,
            epoch: Epoch::NONE,
            watch,
        }
    }
}
