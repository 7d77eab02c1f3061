//! What can be seen of a client's packet: which flow it belongs to, and what its estimator is to know of it.
//!
//! Reads headers alone, each as far as it is there: mirrors often cut frames short. Checksums are not verified, since nothing is
//! answered. Fragments belong to no flow. `short` tells the usual packet in one look, `steps` any.

mod short;
mod steps;

use crate::flow::estimate::{Datagram, Segment};
use crate::flow::{Hasher, Key};
use crate::io::Window;
use crate::tables::addresses::Addresses;
use crate::tables::servers::Watching;
use crate::tables::{Classes, Servers};
use crate::wire::{at, ipv4, tcp};

/// DNS: one query a flow, and its own business.
const PORT_DNS: u16 = 53;

/// What an estimator is to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// The packet belongs to no flow.
    #[default]
    Nothing,
    /// A TCP segment.
    Tcp(Segment),
    /// A packet whose transport is hidden.
    Hidden(Datagram),
}

/// A packet as the stage sees it, in an order in which the usual packet is written by three stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Sight {
    /// Its flow.
    pub key: Key,
    head: Head,
    size: Size,
}

/// Bytes of payload, of hidden transports as [`Datagram::len`], and above them [`Datagram::ack_max`]. One word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size(u32);

impl Size {
    #[inline(always)]
    const fn new(len: u16, ack_max: u16) -> Self {
        Self(len as u32 | (ack_max as u32) << 16)
    }

    #[inline(always)]
    const fn len(self) -> u16 {
        self.0 as u16
    }

    const fn ack_max(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// What is written at once, by [`Sight::write_segment`]; bytes, and words in the machine's order:
///
/// ```text
///  0  sequence number; of hidden transports the number in clear     10  IP protocol
///  4  acknowledgment number                                         11  1 for IPv6
///  8  TCP flags; of hidden transports 1 if there is a number        12  start of the IP header
///  9  which of `Seen`: TCP_SEEN, HIDDEN_SEEN, or 0 for nothing      14  start of what follows it
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head([u8; 16]);

const TCP_SEEN: u8 = 1;
const HIDDEN_SEEN: u8 = 2;

impl Head {
    #[inline(always)]
    const fn new(number: u32, acknowledgment: u32, flags: u8, what: u8, upper: &Upper) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (number.to_ne_bytes(), acknowledgment.to_ne_bytes());
        let ([i, j], [k, l]) = ((upper.l3 as u16).to_ne_bytes(), (upper.l4 as u16).to_ne_bytes());
        let (protocol, v6) = (upper.protocol, upper.v6 as u8);
        Self([a, b, c, d, e, f, g, h, flags, what, protocol, v6, i, j, k, l])
    }

    #[inline(always)]
    const fn number(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_ne_bytes([a, b, c, d])
    }

    #[inline(always)]
    const fn acknowledgment(self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = self.0;
        u32::from_ne_bytes([a, b, c, d])
    }

    #[inline(always)]
    const fn flags(self) -> u8 {
        self.0[8]
    }

    #[inline(always)]
    const fn what(self) -> u8 {
        self.0[9]
    }
}

impl Sight {
    /// What its estimator is to know.
    #[inline(always)]
    pub fn seen(&self) -> Seen {
        match self.head.what() {
            TCP_SEEN => Seen::Tcp(self.segment()),
            HIDDEN_SEEN => Seen::Hidden(Datagram {
                len: self.size.len(),
                ack_max: self.size.ack_max(),
                sequence: (self.head.flags() != 0).then_some(self.head.number()),
            }),
            _ => Seen::Nothing,
        }
    }

    /// Of a flow whose TCP is readable: its segment.
    #[inline(always)]
    pub(super) fn segment(&self) -> Segment {
        Segment {
            sequence: self.head.number(),
            acknowledgment: self.head.acknowledgment(),
            payload: self.size.len(),
            flags: self.head.flags(),
        }
    }

    /// IPv6; else IPv4.
    pub fn v6(&self) -> bool {
        self.head.0[11] != 0
    }

    /// IP protocol.
    pub fn protocol(&self) -> u8 {
        self.head.0[10]
    }

    /// Start of the IP header that counts, behind tags and wrappings.
    pub fn l3(&self) -> usize {
        let [.., a, b, _, _] = self.head.0;
        usize::from(u16::from_ne_bytes([a, b]))
    }

    /// Start of what follows it.
    pub fn l4(&self) -> usize {
        let [.., a, b] = self.head.0;
        usize::from(u16::from_ne_bytes([a, b]))
    }

    /// True when the packet belongs to a flow.
    #[inline(always)]
    pub fn is_of_flow(&self) -> bool {
        self.head.what() != 0
    }

    /// May begin a flow: a SYN, or data; hidden packets all.
    pub fn begins(&self) -> bool {
        let flags = self.head.flags() & (tcp::FLAG_SYN | tcp::FLAG_RST | tcp::FLAG_FIN | tcp::FLAG_ACK);
        match self.head.what() {
            TCP_SEEN => flags == tcp::FLAG_SYN || (self.size.len() > 0 && flags == tcp::FLAG_ACK),
            what => what == HIDDEN_SEEN,
        }
    }

    /// Ends its flow.
    pub fn ends(&self) -> bool {
        self.head.what() == TCP_SEEN && self.head.flags() & (tcp::FLAG_RST | tcp::FLAG_FIN) != 0
    }

    /// Where servers are not known: a SYN goes to one, and so do other packets to the lower port of two.
    pub(super) fn seems_to_server(&self, window: &Window) -> bool {
        if self.head.what() == TCP_SEEN && self.head.flags() & tcp::FLAG_SYN != 0 {
            return true;
        }
        let ports = at::<4>(window, self.l4())
            .filter(|_| matches!(self.protocol(), ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP));
        ports.is_none_or(|&[a, b, c, d]| u16::from_be_bytes([c, d]) <= u16::from_be_bytes([a, b]))
    }

    /// Number of the server, by the packet's destination; 0: none.
    pub(super) fn server(&self, window: &Window, servers: &Servers) -> u16 {
        let l3 = self.l3();
        if self.v6() {
            at(window, l3 + 24).map_or(0, |to| servers.find_v6(*to))
        } else {
            at(window, l3 + 16).map_or(0, |to| servers.find_v4(*to))
        }
    }

    /// Class of the client, by the packet's source.
    pub(super) fn class(&self, window: &Window, classes: &Classes) -> u16 {
        let l3 = self.l3();
        if self.v6() {
            at(window, l3 + 8).map_or(0, |from| classes.find_v6(*from).id)
        } else {
            at(window, l3 + 12).map_or(0, |from| classes.find_v4(*from).id)
        }
    }
}

/// What tells the flows between two addresses apart: kind, protocol, and 32 bits of it.
#[inline(always)]
const fn selector(kind: u8, protocol: u8, bits: u32) -> u64 {
    (kind as u64) << 56 | (protocol as u64) << 48 | bits as u64
}

/// Kinds of flows.
const PORTS: u8 = 1;
const INDEX: u8 = 2;
const ADDRESSES: u8 = 3;
const CONNECTION: u8 = 4;

/// Both addresses of a packet.
#[derive(Clone, Copy)]
enum Pair {
    V4(u64),
    V6([[u64; 2]; 2]),
}

impl Pair {
    #[inline(always)]
    fn key(self, selector: u64, hasher: &Hasher) -> Key {
        match self {
            Pair::V4(both) => hasher.two(both, selector),
            Pair::V6(both) => hasher.many(selector, 0, both),
        }
    }

    #[inline(always)]
    fn key_with(self, selector: u64, id: u64, hasher: &Hasher) -> Key {
        match self {
            Pair::V4(both) => hasher.many(selector, id, [[both, 0], [0; 2]]),
            Pair::V6(both) => hasher.many(selector, id, both),
        }
    }
}

/// Where a packet's upper layer stands.
#[derive(Clone, Copy)]
struct Upper {
    pair: Pair,
    protocol: u8,
    l3: usize,
    l4: usize,
    /// Bytes from `l4` to the end of the packet, as its header says.
    size: usize,
    v6: bool,
}

/// What packets are read by.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The port's addresses where copies arrive, which are then taken out of GRE.
    pub mirror: Option<&'a Addresses>,
    /// A capture, in which ERSPAN is unwrapped too.
    pub offline: bool,
    /// Which UDP ports are QUIC's.
    pub watching: &'a Watching,
    /// Makes keys.
    pub hasher: &'a Hasher,
}

/// Reads the frame in `window[..len]`: TCP and QUIC over IPv4 or IPv6 without options, extension headers or tags, which is nearly
/// all that there is, in one look; all else step by step. `hasher` is that of `by`: a copy, which stays in registers over a burst.
#[inline(always)]
pub fn read(sight: &mut Sight, window: &Window, len: usize, hasher: &Hasher, by: &Reading<'_>) {
    if !sight.read_tcp_v4(window, len, hasher) {
        std::hint::cold_path();
        read_other(sight, window, len, by);
    }
}

#[inline(never)]
fn read_other(sight: &mut Sight, window: &Window, len: usize, by: &Reading<'_>) {
    if !sight.read_tcp_v6(window, len, by.hasher) {
        read_udp(sight, window, len, by);
    }
}

/// By itself, so that TCP does not save the registers that this takes.
#[inline(never)]
fn read_udp(sight: &mut Sight, window: &Window, len: usize, by: &Reading<'_>) {
    if !sight.read_quic_v4(window, len, by) && !sight.read_quic_v6(window, len, by) {
        *sight = read_step_by_step(window, len, by);
    }
}

/// What [`read`] does without its short ways, which must tell the same.
pub(super) fn read_step_by_step(window: &Window, len: usize, by: &Reading<'_>) -> Sight {
    steps::read(window, len, by).unwrap_or_default()
}

/// The connection id that a flow is told by, of the eight bytes behind the first one.
#[inline(always)]
fn connection_id(bytes: [u8; 8], watching: &Watching) -> u64 {
    match watching.quic_id.min(8) {
        0 => 0,
        len => u64::from_be_bytes(bytes) >> (64 - 8 * u32::from(len)),
    }
}
