//! What can be seen of a client's packet: which flow it belongs to, and what its estimator is to know of it.
//!
//! Reads headers alone, each as far as it is there: mirrors often cut frames short. Checksums are not verified, since nothing is
//! answered. Fragments belong to no flow.

use super::mirror::{self, Inner};
use crate::arch;
use crate::flow::estimate::{Datagram, Segment};
use crate::flow::{Hasher, Key};
use crate::io::Window;
use crate::tables::addresses::Addresses;
use crate::tables::servers::Watching;
use crate::tables::{Classes, Servers};
use crate::wire::ipv6_ext::{self, Walk};
use crate::wire::{at, eth, gre, ipv4, ipv6, load_2, load_4, load_8, tcp, udp, vlan};

/// VLAN tags skipped at most.
const TAGS_MAX: usize = 4;
/// ESP in UDP (RFC 3948).
const PORT_ESP: u16 = 4500;
/// DNS: one query a flow, and its own business.
const PORT_DNS: u16 = 53;
/// IP protocols that are no traffic of users: IGMP, OSPF, VRRP.
const ROUTING: [u8; 3] = [2, 89, 112];

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

/// Reads the frame in `window[..len]`: TCP over IPv4 or IPv6 without options, extension headers or tags, which is nearly all
/// that there is, in one look; all else step by step. `hasher` is that of `by`: a copy, which stays in registers over a burst.
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
        *sight = read_step_by_step(window, len, by);
    }
}

/// What [`read`] does without its short ways, which must tell the same.
pub(super) fn read_step_by_step(window: &Window, len: usize, by: &Reading<'_>) -> Sight {
    let mut context = Context {
        window,
        len,
        mirror: by.mirror,
        offline: by.offline,
        watching: by.watching,
        hasher: by.hasher,
    };
    context.frame(0).unwrap_or_default()
}

const TCP: u8 = ipv4::PROTOCOL_TCP;
/// EtherType, version and header length; neither offset, more fragments nor the reserved flag; protocol.
const V4_MASK: [u8; 16] = [255, 255, 255, 0, 0, 0, 0, 0, 0xbf, 255, 0, 255, 0, 0, 0, 0];
const V4_WANT: [u8; 16] = [0x08, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, TCP, 0, 0, 0, 0];
/// EtherType and version; next header.
const V6_MASK: [u8; 16] = [255, 255, 0xf0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0];
const V6_WANT: [u8; 16] = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, TCP, 0, 0, 0, 0, 0, 0, 0];
/// Sequence and acknowledgment number and flags of a TCP header, where [`Head`] has them.
const ORDER: [u8; 16] = if cfg!(target_endian = "little") {
    [7, 6, 5, 4, 11, 10, 9, 8, 13, 255, 255, 255, 255, 255, 255, 255]
} else {
    [4, 5, 6, 7, 8, 9, 10, 11, 13, 255, 255, 255, 255, 255, 255, 255]
};

/// Whether the bytes from the EtherType on are these.
#[inline(always)]
fn is_kind(window: &Window, mask: &[u8; 16], want: &[u8; 16]) -> bool {
    at(window, eth::HEADER_LEN - 2).is_some_and(|kind| arch::equal_under(kind, mask, want))
}

impl Sight {
    /// TCP over IPv4 without options or tags. False says nothing: whatever is odd is judged step by step.
    #[inline(always)]
    fn read_tcp_v4(&mut self, window: &Window, len: usize, hasher: &Hasher) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv4::HEADER_LEN;
        const N: usize = L4 + tcp::HEADER_LEN;
        if !is_kind(window, &V4_MASK, &V4_WANT) || len < N {
            return false;
        }
        let Some(frame) = at::<N>(window, 0) else {
            return false;
        };
        let size = i32::from(load_2::<{ L3 + 2 }, N>(frame).to_be()) - ipv4::HEADER_LEN as i32;
        if !self.write_segment::<L3, L4, N>(frame, size) {
            return false;
        }
        self.key = hasher.two(
            load_8::<{ L3 + 12 }, N>(frame),
            selector(PORTS, TCP, load_4::<L4, N>(frame)),
        );
        true
    }

    /// The same over IPv6 without extension headers.
    #[inline(always)]
    fn read_tcp_v6(&mut self, window: &Window, len: usize, hasher: &Hasher) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv6::HEADER_LEN;
        const N: usize = L4 + tcp::HEADER_LEN;
        if !is_kind(window, &V6_MASK, &V6_WANT) || len < N {
            return false;
        }
        let Some(frame) = at::<N>(window, 0) else {
            return false;
        };
        let size = i32::from(load_2::<{ L3 + 4 }, N>(frame).to_be());
        if !self.write_segment::<L3, L4, N>(frame, size) {
            return false;
        }
        let addresses = [
            [load_8::<{ L3 + 8 }, N>(frame), load_8::<{ L3 + 16 }, N>(frame)],
            [load_8::<{ L3 + 24 }, N>(frame), load_8::<{ L3 + 32 }, N>(frame)],
        ];
        self.key = hasher.many(selector(PORTS, TCP, load_4::<L4, N>(frame)), 0, addresses);
        true
    }

    /// All but the key, of a TCP header at `L4` with `size` bytes of IP payload. False when the header is shorter or longer than can be.
    #[inline(always)]
    fn write_segment<const L3: usize, const L4: usize, const N: usize>(
        &mut self,
        frame: &[u8; N],
        size: i32,
    ) -> bool {
        const { assert!(L4 + tcp::HEADER_LEN == N) };
        let with = const {
            let upper = Upper {
                pair: Pair::V4(0),
                protocol: TCP,
                l3: L3,
                l4: L4,
                size: 0,
                v6: L4 - L3 == ipv6::HEADER_LEN,
            };
            Head::new(0, 0, 0, TCP_SEEN, &upper).0
        };
        let Some(tcp) = frame
            .get(L4..)
            .and_then(|b| b.first_chunk::<{ tcp::HEADER_LEN }>())
        else {
            return false;
        };
        let Some(first) = tcp.first_chunk() else {
            return false;
        };
        let header = i32::from(tcp[12] >> 2 & 0x3c);
        let payload = size - header;
        // Negative when either is wrong.
        if (header - tcp::HEADER_LEN as i32) | payload < 0 {
            return false;
        }
        self.head = Head(arch::shuffled_with(first, &ORDER, &with));
        // 65,535 at most.
        self.size = Size(payload as u32);
        true
    }
}

struct Context<'a> {
    window: &'a Window,
    len: usize,
    mirror: Option<&'a Addresses>,
    offline: bool,
    watching: &'a Watching,
    hasher: &'a Hasher,
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

impl Context<'_> {
    /// The bytes at `offset`, if the frame goes that far.
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        if offset + N > self.len {
            return None;
        }
        at(self.window, offset)
    }

    /// An Ethernet frame that begins at `start`.
    #[inline(never)]
    fn frame(&mut self, start: usize) -> Option<Sight> {
        let mut l3 = start + eth::HEADER_LEN;
        let mut ether_type = u16::from_be_bytes(*self.bytes(l3 - 2)?);
        for _ in 0..TAGS_MAX {
            if !vlan::is_tpid(ether_type) {
                break;
            }
            l3 += vlan::TAG_LEN;
            ether_type = u16::from_be_bytes(*self.bytes(l3 - 2)?);
        }
        self.packet(l3, ether_type)
    }

    fn packet(&mut self, l3: usize, ether_type: u16) -> Option<Sight> {
        match ether_type {
            eth::ETHER_TYPE_IPV4 => self.v4(l3),
            eth::ETHER_TYPE_IPV6 => self.v6(l3),
            _ => None,
        }
    }

    fn v4(&mut self, l3: usize) -> Option<Sight> {
        let bytes = self.bytes::<{ ipv4::HEADER_LEN }>(l3)?;
        let header = ipv4::Header::read(bytes);
        if header.version != 4 || header.ihl < 5 || header.is_fragment() {
            return None;
        }
        let addresses = load_8::<12, { ipv4::HEADER_LEN }>(bytes);
        self.upper(Upper {
            pair: Pair::V4(addresses),
            protocol: header.protocol,
            l3,
            l4: l3 + header.header_len(),
            size: usize::from(header.total_len).checked_sub(header.header_len())?,
            v6: false,
        })
    }

    fn v6(&mut self, l3: usize) -> Option<Sight> {
        const N: usize = ipv6::HEADER_LEN;
        let bytes = self.bytes::<N>(l3)?;
        let header = ipv6::Header::read(bytes);
        if header.version != 6 {
            return None;
        }
        let pair = Pair::V6([
            [load_8::<8, N>(bytes), load_8::<16, N>(bytes)],
            [load_8::<24, N>(bytes), load_8::<32, N>(bytes)],
        ]);
        let l4 = l3 + N;
        let size = usize::from(header.payload_len);
        // ESP is an extension header by IANA's list, and an upper layer to us.
        let (protocol, skipped) =
            if header.next_header == ipv6_ext::ESP || !ipv6_ext::is_extension(header.next_header) {
                (header.next_header, 0)
            } else {
                let end = self.len.min(l4 + size);
                match ipv6_ext::walk(header.next_header, self.window.get(l4..end)?) {
                    Walk::Upper { next_header, offset } => (next_header, offset),
                    Walk::Fragment | Walk::Refused => return None,
                }
            };
        self.upper(Upper {
            pair,
            protocol,
            l3,
            l4: l4 + skipped,
            size: size.checked_sub(skipped)?,
            v6: true,
        })
    }

    fn upper(&mut self, upper: Upper) -> Option<Sight> {
        match upper.protocol {
            ipv4::PROTOCOL_TCP => self.tcp(upper),
            ipv4::PROTOCOL_UDP => self.udp(upper),
            ipv6_ext::ESP => {
                let [index, number] = self.words(upper.l4)?;
                Some(self.tunnel(upper, index, number, upper.size))
            }
            gre::PROTOCOL => self.gre(upper),
            ipv4::PROTOCOL_ICMP | ipv6::NEXT_ICMPV6 | ipv6_ext::NO_NEXT => None,
            protocol if ROUTING.contains(&protocol) => None,
            _ => Some(self.hidden(upper, ADDRESSES, 0, Datagram::ACK_MAX_TUNNEL)),
        }
    }

    fn tcp(&self, upper: Upper) -> Option<Sight> {
        let bytes = self.bytes::<{ tcp::HEADER_LEN }>(upper.l4)?;
        let header = tcp::Header::read(bytes);
        let payload = upper.size - header.header_len(upper.size)?;
        let ports = load_4::<0, { tcp::HEADER_LEN }>(bytes);
        let key = upper
            .pair
            .key(selector(PORTS, ipv4::PROTOCOL_TCP, ports), self.hasher);
        Some(Sight {
            key,
            head: Head::new(
                header.sequence,
                header.acknowledgment,
                header.flags,
                TCP_SEEN,
                &upper,
            ),
            size: Size::new(payload as u16, 0),
        })
    }

    fn udp(&self, upper: Upper) -> Option<Sight> {
        const N: usize = udp::HEADER_LEN;
        let bytes = self.bytes::<N>(upper.l4)?;
        let header = udp::Header::read(bytes);
        let size = usize::from(header.len).checked_sub(N)?;
        let ports = load_4::<0, N>(bytes);
        let payload = upper.l4 + N;
        if size == 0 || header.dst_port == PORT_DNS {
            return None;
        }
        let [first] = *self.bytes(payload)?;
        if self.watching.quic_ports.contains(&header.dst_port) {
            return self.quic(upper, ports, payload, first, size);
        }
        if header.dst_port == PORT_ESP {
            let [index, number] = self.words(payload)?;
            // 0 marks IKE, one byte of ones keeps a NAT's mapping.
            return (index != 0 && size > 8).then(|| self.tunnel(upper, index, number, size));
        }
        // WireGuard: type 4 and three zeros, receiver, a counter, whole blocks of 16. An empty one keeps alive.
        if first == 4
            && size % 16 == 0
            && size >= 32
            && let Some(message) = self.bytes::<16>(payload)
            && message.starts_with(&[4, 0, 0, 0])
        {
            let receiver = load_4::<4, 16>(message);
            let counter = u32::from_le_bytes(load_4::<8, 16>(message).to_ne_bytes());
            return (size > 32).then(|| self.tunnel(upper, receiver, counter, size));
        }
        Some(Sight {
            size: Size::new(size as u16, Datagram::ACK_MAX_QUIC),
            ..self.hidden(upper, PORTS, ports, Datagram::ACK_MAX_QUIC)
        })
    }

    /// QUIC (RFC 9000 section 17): long headers are handshakes. The id stands behind the first byte.
    fn quic(&self, upper: Upper, ports: u32, payload: usize, first: u8, size: usize) -> Option<Sight> {
        if first & 0x80 != 0 {
            return None;
        }
        let bytes = usize::from(self.watching.quic_id.min(8));
        let id = match bytes {
            0 => 0,
            _ => u64::from_be_bytes(*self.bytes(payload + 1)?) >> (64 - 8 * bytes),
        };
        let selector = selector(CONNECTION, ipv4::PROTOCOL_UDP, ports);
        Some(Sight {
            key: upper.pair.key_with(selector, id, self.hasher),
            head: Head::new(0, 0, 0, HIDDEN_SEEN, &upper),
            size: Size::new(size as u16, Datagram::ACK_MAX_QUIC),
        })
    }

    fn gre(&mut self, upper: Upper) -> Option<Sight> {
        // A tunnel in a tunnel is not looked into.
        let nobody = Addresses::default();
        let ours = self
            .mirror
            .take()
            .or(std::mem::take(&mut self.offline).then_some(&nobody));
        if let Some(ours) = ours
            && let Some(inner) = mirror::unwrap(self.window, upper.l3, upper.l4, upper.v6, ours)
        {
            return match inner {
                Inner::Frame(start) => self.frame(start),
                Inner::Packet(l3, ether_type) => self.packet(l3, ether_type),
            };
        }
        let header = gre::Header::read(self.bytes(upper.l4)?);
        let key = header
            .and_then(|h| h.key_at())
            .and_then(|at| self.bytes::<4>(upper.l4 + at));
        let key = key.map_or(0, |b| u32::from_be_bytes(*b));
        Some(self.hidden(upper, ADDRESSES, key, Datagram::ACK_MAX_TUNNEL))
    }

    /// Two words in network order: an index and a number.
    fn words(&self, offset: usize) -> Option<[u32; 2]> {
        let b: &[u8; 8] = self.bytes(offset)?;
        let [a, b, c, d, e, f, g, h] = *b;
        Some([u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])])
    }

    fn tunnel(&self, upper: Upper, index: u32, number: u32, size: usize) -> Sight {
        let sight = self.hidden(upper, INDEX, index, Datagram::ACK_MAX_TUNNEL);
        Sight {
            head: Head::new(number, 0, 1, HIDDEN_SEEN, &upper),
            size: Size::new(size as u16, Datagram::ACK_MAX_TUNNEL),
            ..sight
        }
    }

    fn hidden(&self, upper: Upper, kind: u8, bits: u32, ack_max: u16) -> Sight {
        Sight {
            key: upper.pair.key(selector(kind, upper.protocol, bits), self.hasher),
            head: Head::new(0, 0, 0, HIDDEN_SEEN, &upper),
            size: Size::new(upper.size as u16, ack_max),
        }
    }
}
