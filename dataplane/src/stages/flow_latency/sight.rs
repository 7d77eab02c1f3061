//! What can be seen of a client's packet: which flow it belongs to, and what its estimator is to know of it.
//!
//! Reads headers alone, each as far as it is there: mirrors often cut frames short. Checksums are not verified, since nothing is
//! answered. Fragments belong to no flow.

use super::Tables;
use super::mirror::{self, Inner};
use crate::flow::estimate::{Datagram, Segment};
use crate::flow::{Hasher, Key};
use crate::io::Window;
use crate::tables::addresses::Addresses;
use crate::tables::servers::Watching;
use crate::wire::ipv6_ext::{self, Walk};
use crate::wire::{at, eth, gre, ipv4, ipv6, load_4, load_8, tcp, udp, vlan};

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

/// A packet as the stage sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Its flow.
    pub key: Key,
    /// What its estimator is to know.
    pub seen: Seen,
    /// May begin a flow.
    pub begins: bool,
    /// Ends its flow.
    pub ends: bool,
    /// IPv6; else IPv4.
    pub v6: bool,
    /// IP protocol.
    pub protocol: u8,
    /// Start of the IP header that counts, behind tags and wrappings.
    pub l3: u16,
    /// Start of what follows it.
    pub l4: u16,
}

impl Sight {
    /// Where servers are not known: a SYN goes to one, and so do other packets to the lower port of two.
    pub(super) fn seems_to_server(&self, window: &Window) -> bool {
        if let Seen::Tcp(segment) = self.seen
            && segment.flags & tcp::FLAG_SYN != 0
        {
            return true;
        }
        let ports = at::<4>(window, usize::from(self.l4))
            .filter(|_| matches!(self.protocol, ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP));
        ports.is_none_or(|&[a, b, c, d]| u16::from_be_bytes([c, d]) <= u16::from_be_bytes([a, b]))
    }

    /// Class of the client and number of the server, by its addresses.
    pub(super) fn resolve(&self, window: &Window, tables: Tables<'_>) -> (u16, u16) {
        let l3 = usize::from(self.l3);
        if self.v6 {
            let header = at(window, l3).map(ipv6::Header::read);
            header.map_or((0, 0), |h| {
                (tables.classes.find_v6(h.src).id, tables.servers.find_v6(h.dst))
            })
        } else {
            let header = at(window, l3).map(ipv4::Header::read);
            header.map_or((0, 0), |h| {
                (tables.classes.find_v4(h.src).id, tables.servers.find_v4(h.dst))
            })
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
            Pair::V6(both) => hasher.many(selector, &both),
        }
    }

    #[inline(always)]
    fn key_with(self, selector: u64, id: u64, hasher: &Hasher) -> Key {
        match self {
            Pair::V4(both) => hasher.many(selector, &[[both, id]]),
            Pair::V6([from, to]) => hasher.many(selector, &[from, to, [id, 0]]),
        }
    }
}

/// Reads the frame in `window[..len]`. `mirror`: the port's addresses where copies arrive, which are then taken out of GRE.
/// `offline`: a capture, in which ERSPAN is unwrapped too.
#[inline(always)]
pub fn read(
    window: &Window,
    len: usize,
    mirror: Option<&Addresses>,
    offline: bool,
    watching: &Watching,
    hasher: &Hasher,
) -> Sight {
    let ether_type = at::<2>(window, eth::HEADER_LEN - 2).map_or(0, |b| u16::from_be_bytes(*b));
    if ether_type == eth::ETHER_TYPE_IPV4
        && let Some(sight) = plain_tcp(window, len, hasher)
    {
        return sight;
    }
    let mut context = Context {
        window,
        len,
        mirror,
        offline,
        watching,
        hasher,
    };
    context.frame(0).unwrap_or_default()
}

/// TCP over IPv4 without options or tags: nearly all that there is. None says nothing.
#[inline(always)]
fn plain_tcp(window: &Window, len: usize, hasher: &Hasher) -> Option<Sight> {
    const L3: usize = eth::HEADER_LEN;
    const L4: usize = L3 + ipv4::HEADER_LEN;
    const BOTH: usize = ipv4::HEADER_LEN + tcp::HEADER_LEN;
    let both: &[u8; BOTH] = at(window, L3)?;
    // Version, length; neither offset nor more fragments.
    let plain = both[0] == 0x45 && both[9] == ipv4::PROTOCOL_TCP && both[6] & 0x3f == 0 && both[7] == 0;
    if !plain || len < L3 + BOTH {
        return None;
    }
    let addresses = load_8::<12, BOTH>(both);
    let ports = load_4::<20, BOTH>(both);
    let total = u16::from_be_bytes([both[2], both[3]]);
    let headers = ipv4::HEADER_LEN as u16 + u16::from(both[32] >> 4) * 4;
    let payload = total.checked_sub(headers)?;
    let segment = Segment {
        sequence: u32::from_be_bytes([both[24], both[25], both[26], both[27]]),
        acknowledgment: u32::from_be_bytes([both[28], both[29], both[30], both[31]]),
        payload,
        flags: both[33],
    };
    let key = hasher.two(addresses, selector(PORTS, ipv4::PROTOCOL_TCP, ports));
    Some(of_tcp(key, segment, L3, L4, false))
}

#[inline(always)]
fn of_tcp(key: Key, segment: Segment, l3: usize, l4: usize, v6: bool) -> Sight {
    let flags = segment.flags & (tcp::FLAG_SYN | tcp::FLAG_RST | tcp::FLAG_FIN | tcp::FLAG_ACK);
    let opens = flags == tcp::FLAG_SYN;
    let carries = segment.payload > 0 && flags == tcp::FLAG_ACK;
    // A SYN-ACK is a server's.
    let servers = flags & (tcp::FLAG_SYN | tcp::FLAG_ACK) == tcp::FLAG_SYN | tcp::FLAG_ACK;
    Sight {
        key,
        seen: if servers {
            Seen::Nothing
        } else {
            Seen::Tcp(segment)
        },
        begins: opens | carries,
        ends: flags & (tcp::FLAG_RST | tcp::FLAG_FIN) != 0,
        v6,
        protocol: ipv4::PROTOCOL_TCP,
        l3: l3 as u16,
        l4: l4 as u16,
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
        let segment = Segment {
            sequence: header.sequence,
            acknowledgment: header.acknowledgment,
            payload: payload as u16,
            flags: header.flags,
        };
        let ports = load_4::<0, { tcp::HEADER_LEN }>(bytes);
        let key = upper
            .pair
            .key(selector(PORTS, ipv4::PROTOCOL_TCP, ports), self.hasher);
        Some(of_tcp(key, segment, upper.l3, upper.l4, upper.v6))
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
        let sight = self.hidden(upper, PORTS, ports, Datagram::ACK_MAX_QUIC);
        let datagram = Datagram {
            len: size as u16,
            ack_max: Datagram::ACK_MAX_QUIC,
            sequence: None,
        };
        Some(Sight {
            seen: Seen::Hidden(datagram),
            ..sight
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
        let datagram = Datagram {
            len: size as u16,
            ack_max: Datagram::ACK_MAX_QUIC,
            sequence: None,
        };
        Some(Sight {
            key: upper.pair.key_with(selector, id, self.hasher),
            seen: Seen::Hidden(datagram),
            ..self.hidden(upper, CONNECTION, ports, 0)
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
        let datagram = Datagram {
            len: size as u16,
            ack_max: Datagram::ACK_MAX_TUNNEL,
            sequence: Some(number),
        };
        Sight {
            seen: Seen::Hidden(datagram),
            ..self.hidden(upper, INDEX, index, 0)
        }
    }

    fn hidden(&self, upper: Upper, kind: u8, bits: u32, ack_max: u16) -> Sight {
        let datagram = Datagram {
            len: upper.size as u16,
            ack_max,
            sequence: None,
        };
        Sight {
            key: upper.pair.key(selector(kind, upper.protocol, bits), self.hasher),
            seen: Seen::Hidden(datagram),
            begins: true,
            ends: false,
            v6: upper.v6,
            protocol: upper.protocol,
            l3: upper.l3 as u16,
            l4: upper.l4 as u16,
        }
    }
}
