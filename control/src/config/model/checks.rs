//! The part of the checked configuration that says how members are checked.

use super::Name;
use std::net::IpAddr;
use std::time::Duration;

/// A health check, the same for all members of a service. Members with equal address and equal
/// check share one prober.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// What is tried.
    pub kind: CheckKind,
    /// TCP port.
    pub port: u16,
    /// Time between the starts of two checks of one member; jittered by 10 %.
    pub interval: Duration,
    /// A check that has not succeeded by then has failed. At most the interval.
    pub timeout: Duration,
    /// Successes in a row that bring a member up.
    pub rise: u32,
    /// Failures in a row that take it down.
    pub fall: u32,
    /// Kernel interface that checks leave by (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// Named network namespace (`/run/netns/NAME`) that checks run in.
    pub netns: Option<String>,
    /// What is made of results beyond up and down.
    pub grade: Grade,
}

/// The rules of a check beyond `rise` and `fall`. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grade {
    /// `brownout = { ... }`: sheds and takes down by the share of bad checks.
    pub brownout: Option<BrownoutRule>,
    /// `slow_start = "60s"`: how long a member that comes back takes to its whole share; 0: at once.
    pub slow_start: Duration,
    /// `dampening = { ... }`: who flaps too much is given only when no other is left.
    pub dampening: Option<DampeningRule>,
}

/// `brownout = { window = 20, shed_above = "10%", down_above = "50%", slower_than = "300ms" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BrownoutRule {
    /// How many checks are looked at.
    pub window: u16,
    /// Share of bad checks in thousandths: above it the member sheds in proportion.
    pub shed_above: u16,
    /// Above this share the member is down.
    pub down_above: u16,
    /// A check that takes longer is bad, though it succeeds.
    pub slower_than: Option<Duration>,
}

/// `dampening = { half_life = "15m", suppress = 2000, reuse = 750, max = "60m" }` (RFC 2439). A fall adds 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DampeningRule {
    /// In this time a penalty halves.
    pub half_life: Duration,
    /// From this penalty on the member is suppressed.
    pub suppress: u32,
    /// Below this one it is used again.
    pub reuse: u32,
    /// Longest time that it is suppressed after its last fall.
    pub max: Duration,
}

/// What a health check tries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// A TCP connection is accepted.
    Tcp,
    /// An HTTP/1.1 GET is answered with an expected status.
    Http {
        /// Over TLS.
        tls: bool,
        /// `verify = true`: the certificate must be valid for `host`.
        verify: bool,
        /// Path and query of the request, from "/".
        path: String,
        /// Host header and TLS server name; the member's address if none.
        host: Option<String>,
        /// Lowest and highest status that counts as success. Default 200 to 399.
        expect: (u16, u16),
    },
    /// An ICMP echo is answered. The port is 0.
    Icmp,
    /// A datagram is answered.
    Udp {
        /// What is sent.
        payload: Vec<u8>,
        /// What the answer must hold; anything will do if none.
        expect: Option<Vec<u8>>,
    },
    /// A DNS query over UDP is answered.
    Dns {
        /// The name asked for.
        query: Name,
        /// The RR type asked for.
        rtype: u16,
        /// RCODE of the answer.
        rcode: u8,
        /// An address that must be among the answers.
        address: Option<IpAddr>,
    },
}
