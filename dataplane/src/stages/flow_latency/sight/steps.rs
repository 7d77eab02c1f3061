//! Any packet, step by step: tags, options, extension headers, tunnels, and copies that are taken out of what carries them.
//!
//! Called by [`super::read`] for what has no short way.

use super::super::mirror::{self, Inner};
use super::{
    ADDRESSES, CONNECTION, HIDDEN_SEEN, Head, INDEX, PORT_DNS, PORTS, Pair, Reading, Sight, Size, TCP_SEEN,
    Upper, connection_id, selector,
};
use crate::flow::Hasher;
use crate::flow::estimate::Datagram;
use crate::io::Window;
use crate::tables::addresses::Addresses;
use crate::tables::servers::Watching;
use crate::wire::ipv6_ext::{self, Walk};
use crate::wire::{at, eth, gre, ipv4, ipv6, load_4, load_8, tcp, udp, vlan};

/// VLAN tags skipped at most.
const TAGS_MAX: usize = 4;
/// ESP in UDP (RFC 3948).
const PORT_ESP: u16 = 4500;
/// IP protocols that are no traffic of users: IGMP, OSPF, VRRP.
const ROUTING: [u8; 3] = [2, 89, 112];

/// The frame in `window[..len]`, if it belongs to a flow.
pub(super) fn read(window: &Window, len: usize, by: &Reading<'_>) -> Option<Sight> {
    let mut context = Context {
        window,
        len,
        mirror: by.mirror,
        offline: by.offline,
        watching: by.watching,
        hasher: by.hasher,
    };
    context.frame(0)
}

struct Context<'a> {
    window: &'a Window,
    len: usize,
    mirror: Option<&'a Addresses>,
    offline: bool,
    watching: &'a Watching,
    hasher: &'a Hasher,
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
        let id = match self.watching.quic_id {
            0 => 0,
            _ => connection_id(*self.bytes(payload + 1)?, self.watching),
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
