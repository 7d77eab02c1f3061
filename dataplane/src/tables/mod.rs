//! The read side of what control compiles: one immutable [`Snapshot`] with a generation, and the
//! worker's own copy of the health [`Words`].
//!
//! Control builds these with the builders beside each table (which allocate) and hands whole
//! snapshots over the ring; workers only read. Every look-up costs a constant.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub mod addresses;
pub mod answers;
pub mod classes;
mod key;
pub mod names;
pub mod paged;
pub mod plans;
pub mod prefixes;
pub mod servers;
pub mod words;

use crate::stages::classify::PortView;
use crate::stages::rate_limit;
use crate::wire::cookie;
use std::sync::Arc;

pub use answers::Answers;
pub use classes::Classes;
pub use key::{Block, Key};
pub use names::Names;
pub use paged::Paged;
pub use plans::Plans;
pub use servers::Servers;
pub use words::Words;

/// An index that stands for "none".
pub const NONE: u32 = u32::MAX;

/// How replies are shaped; from `[dns]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest UDP reply and the advertised EDNS size, bytes, 512 to 1400.
    pub udp_size_max: u16,
    /// NSID value (RFC 5001); empty: not sent.
    pub nsid: Vec<u8>,
    /// Whether client subnets (RFC 7871) are honoured and echoed.
    pub ecs: bool,
    /// Text for version.bind and version.server in class CH (RFC 4892); empty: REFUSED. id.server has `nsid`.
    pub version: Vec<u8>,
    /// Text for hostname.bind; empty: REFUSED.
    pub hostname: Vec<u8>,
    /// Server cookies (RFC 7873); `None`: the option is ignored.
    pub cookies: Option<Cookies>,
    /// Response rate limiting; `None`: off.
    pub rate_limit: Option<rate_limit::Rules>,
}

/// How cookies are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookies {
    /// What they are made with and known by.
    pub secrets: cookie::Secrets,
    /// Who sends a COOKIE option over UDP gets no answer before it holds a server cookie of ours.
    pub require: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            udp_size_max: 1232,
            nsid: Vec::new(),
            ecs: true,
            version: Vec::new(),
            hostname: Vec::new(),
            cookies: None,
            rate_limit: None,
        }
    }
}

/// What a zone says when a name or type does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Its SOA as an authority section, TTL lowered to MINIMUM (RFC 2308 section 3): a blob of
    /// [`Answers`], encoded for a question that is the apex.
    pub negative: u32,
}

/// Everything that a worker answers from: immutable, shared by all workers, freed by control.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub struct Snapshot {
    /// Rises by one with every published snapshot.
    pub generation: u64,
    /// Ports as the stages see them, by port index: MAC and service addresses.
    pub ports: Arc<Vec<PortView>>,
    /// Owner names.
    pub names: Arc<Names>,
    /// Pre-encoded records.
    pub answers: Arc<Answers>,
    /// Served zones.
    pub zones: Arc<Vec<Zone>>,
    /// Client classes by prefix, IPv4 and IPv6.
    pub classes: Arc<Classes>,
    /// Servers whose response latency is measured.
    pub servers: Arc<Servers>,
    /// Services, pools and policies.
    pub plans: Arc<Plans>,
    /// Cells of all policies, one after the other: that of a policy for a class is its first one plus the class, with
    /// [`plans::Policy::BY_CLASS`].
    pub cells: Paged<plans::Cell>,
    /// How replies are shaped.
    pub limits: Limits,
}
