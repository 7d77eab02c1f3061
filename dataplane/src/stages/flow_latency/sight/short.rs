//! Usual packets in one look: TCP and QUIC over IPv4 or IPv6 without options, extension headers or tags.
//!
//! Called by [`super::read`]. Each way tells what [`super::steps`] tells, or says that it does not know: whatever is odd is judged
//! step by step.

use super::{
    CONNECTION, HIDDEN_SEEN, Head, PORT_DNS, PORTS, Pair, Reading, Sight, Size, TCP_SEEN, Upper,
    connection_id, selector,
};
use crate::arch;
use crate::flow::Hasher;
use crate::flow::estimate::Datagram;
use crate::io::Window;
use crate::wire::{at, eth, ipv4, ipv6, load_2, load_4, load_8, tcp, udp};

const TCP: u8 = ipv4::PROTOCOL_TCP;
const UDP: u8 = ipv4::PROTOCOL_UDP;
/// A UDP header, QUIC's first byte, and a connection id.
const QUIC_LEN: usize = udp::HEADER_LEN + 9;
/// EtherType, version and header length; neither offset, more fragments nor the reserved flag; protocol.
const V4_MASK: [u8; 16] = [255, 255, 255, 0, 0, 0, 0, 0, 0xbf, 255, 0, 255, 0, 0, 0, 0];
const fn v4(protocol: u8) -> [u8; 16] {
    [0x08, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, protocol, 0, 0, 0, 0]
}
/// EtherType and version; next header.
const V6_MASK: [u8; 16] = [255, 255, 0xf0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0];
const fn v6(protocol: u8) -> [u8; 16] {
    [0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0, 0]
}
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
    pub(super) fn read_tcp_v4(&mut self, window: &Window, len: usize, hasher: &Hasher) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv4::HEADER_LEN;
        const N: usize = L4 + tcp::HEADER_LEN;
        if !is_kind(window, &V4_MASK, &v4(TCP)) || len < N {
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
    pub(super) fn read_tcp_v6(&mut self, window: &Window, len: usize, hasher: &Hasher) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv6::HEADER_LEN;
        const N: usize = L4 + tcp::HEADER_LEN;
        if !is_kind(window, &V6_MASK, &v6(TCP)) || len < N {
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

    /// Packets of QUIC connections, behind the handshake, over IPv4.
    #[inline(always)]
    pub(super) fn read_quic_v4(&mut self, window: &Window, len: usize, by: &Reading<'_>) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv4::HEADER_LEN;
        const N: usize = L4 + QUIC_LEN;
        if !is_kind(window, &V4_MASK, &v4(UDP)) || len < N {
            return false;
        }
        let Some(frame) = at::<N>(window, 0) else {
            return false;
        };
        let total = u16::from_be(load_2::<{ L3 + 2 }, N>(frame));
        let pair = Pair::V4(load_8::<{ L3 + 12 }, N>(frame));
        usize::from(total) >= ipv4::HEADER_LEN && self.write_quic::<L3, L4, N>(frame, pair, by)
    }

    /// The same over IPv6.
    #[inline(always)]
    pub(super) fn read_quic_v6(&mut self, window: &Window, len: usize, by: &Reading<'_>) -> bool {
        const L3: usize = eth::HEADER_LEN;
        const L4: usize = L3 + ipv6::HEADER_LEN;
        const N: usize = L4 + QUIC_LEN;
        if !is_kind(window, &V6_MASK, &v6(UDP)) || len < N {
            return false;
        }
        let Some(frame) = at::<N>(window, 0) else {
            return false;
        };
        let pair = Pair::V6([
            [load_8::<{ L3 + 8 }, N>(frame), load_8::<{ L3 + 16 }, N>(frame)],
            [load_8::<{ L3 + 24 }, N>(frame), load_8::<{ L3 + 32 }, N>(frame)],
        ]);
        self.write_quic::<L3, L4, N>(frame, pair, by)
    }

    /// All, of a UDP header at `L4` and what follows it. False when it is not of a QUIC connection.
    #[inline(always)]
    fn write_quic<const L3: usize, const L4: usize, const N: usize>(
        &mut self,
        frame: &[u8; N],
        pair: Pair,
        by: &Reading<'_>,
    ) -> bool {
        const { assert!(L4 + QUIC_LEN == N) };
        let Some(udp) = frame.get(L4..).and_then(|b| b.first_chunk::<QUIC_LEN>()) else {
            return false;
        };
        let to = u16::from_be(load_2::<2, QUIC_LEN>(udp));
        let size = u16::from_be(load_2::<4, QUIC_LEN>(udp));
        let is_long = udp[udp::HEADER_LEN] & 0x80 != 0;
        if is_long
            || usize::from(size) <= udp::HEADER_LEN
            || to == PORT_DNS
            || !by.watching.quic_ports.contains(&to)
        {
            return false;
        }
        let id = load_8::<{ udp::HEADER_LEN + 1 }, QUIC_LEN>(udp).to_ne_bytes();
        let selector = selector(CONNECTION, UDP, load_4::<0, QUIC_LEN>(udp));
        self.key = pair.key_with(selector, connection_id(id, by.watching), by.hasher);
        self.head = const {
            let upper = Upper {
                pair: Pair::V4(0),
                protocol: UDP,
                l3: L3,
                l4: L4,
                size: 0,
                v6: L4 - L3 == ipv6::HEADER_LEN,
            };
            Head::new(0, 0, 0, HIDDEN_SEEN, &upper)
        };
        self.size = Size::new(size - udp::HEADER_LEN as u16, Datagram::ACK_MAX_QUIC);
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
