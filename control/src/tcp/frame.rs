//! Frames to packets and back: what stands before the IP header is taken off a punted frame and kept, and
//! put before a packet that the kernel sends. Also the policy of what passes. Called by `exception`.

use dataplane::wire::ipv6_ext::{self, Walk};
use dataplane::wire::{eth, ipv4, ipv6, tcp, vlan};
use std::net::{IpAddr, SocketAddr};

/// VLAN tags of a frame at most: as many as are answered over UDP.
const TAGS_MAX: usize = dataplane::stages::classify::TAGS_MAX;
/// What an Ethernet header with all tags takes, bytes.
pub(super) const LINK_MAX: usize = eth::HEADER_LEN + TAGS_MAX * vlan::TAG_LEN;

/// ICMP types that a TCP connection listens to: destination unreachable (with it "fragmentation
/// needed"), time exceeded, parameter problem (RFC 1122 section 4.2.3.9).
const ICMP_ERRORS: [u8; 3] = [3, 11, 12];
/// ICMPv6 error types 1 to 4: unreachable, packet too big, time exceeded, parameter problem (RFC 4443).
const ICMPV6_ERRORS: std::ops::RangeInclusive<u8> = 1..=4;

/// What stands before the IP header, seen from here: where a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// MAC address of the port: destination of what came, source of what goes.
    pub ours: [u8; 6],
    /// MAC address of the client, or of the router before it.
    pub peer: [u8; 6],
    /// VLAN tags, outermost first: TPID and TCI.
    tags: [[u8; vlan::TAG_LEN]; TAGS_MAX],
    count: u8,
}

/// A punted frame, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<'a> {
    /// What stood before the packet.
    pub link: Link,
    /// The connection that it is of; `None` for an ICMP error.
    pub flow: Option<Flow>,
    /// The IP packet, without padding.
    pub packet: &'a [u8],
}

/// A connection, by address and port of the client and the service address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The client.
    pub client: SocketAddr,
    /// The service address.
    pub service: SocketAddr,
}

impl Flow {
    /// Of a segment from the client, to the service address.
    fn of(client: IpAddr, service: IpAddr, tcp: &tcp::Header) -> Self {
        Self {
            client: (client, tcp.src_port).into(),
            service: (service, tcp.dst_port).into(),
        }
    }

    /// The same seen from the other end.
    fn turned(self) -> Self {
        Self {
            client: self.service,
            service: self.client,
        }
    }
}

/// Why a punted frame does not reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It cannot be read.
    Malformed,
    /// Neither TCP nor an ICMP error: UDP to ports other than 53, other protocols. Nothing is served there, and
    /// saying so by ICMP would be one more thing to have reflected.
    NotTcp,
}

/// Takes a punted frame apart.
pub fn read(frame: &[u8]) -> Result<Inbound<'_>, Refused> {
    let (header, mut rest) = frame.split_first_chunk().ok_or(Refused::Malformed)?;
    let header = eth::Header::read(header);
    let mut link = Link {
        ours: header.dst,
        peer: header.src,
        tags: Default::default(),
        count: 0,
    };
    let mut ether_type = header.ether_type;
    while vlan::is_tpid(ether_type) {
        let (&[t0, t1, a, b], after) = rest.split_first_chunk().ok_or(Refused::Malformed)?;
        let [p0, p1] = ether_type.to_be_bytes();
        let tag = link
            .tags
            .get_mut(usize::from(link.count))
            .ok_or(Refused::Malformed)?;
        *tag = [p0, p1, t0, t1];
        link.count += 1;
        ether_type = u16::from_be_bytes([a, b]);
        rest = after;
    }
    // The kernel goes by the version that the packet itself says.
    let (flow, packet) = match (ether_type, rest.first().map_or(0, |first| first >> 4)) {
        (eth::ETHER_TYPE_IPV4, 4) => read_v4(rest)?,
        (eth::ETHER_TYPE_IPV6, 6) => read_v6(rest)?,
        _ => return Err(Refused::Malformed),
    };
    Ok(Inbound { link, flow, packet })
}

fn read_v4(bytes: &[u8]) -> Result<(Option<Flow>, &[u8]), Refused> {
    let header = ipv4::Header::read(bytes.first_chunk().ok_or(Refused::Malformed)?);
    let packet = bytes
        .get(..usize::from(header.total_len))
        .ok_or(Refused::Malformed)?;
    let payload = packet.get(header.header_len()..).ok_or(Refused::Malformed)?;
    let flow = match (header.protocol, payload.first()) {
        (ipv4::PROTOCOL_TCP, _) => Some(segment(header.src.into(), header.dst.into(), payload)?),
        (ipv4::PROTOCOL_ICMP, Some(kind)) if ICMP_ERRORS.contains(kind) => None,
        _ => return Err(Refused::NotTcp),
    };
    Ok((flow, packet))
}

fn read_v6(bytes: &[u8]) -> Result<(Option<Flow>, &[u8]), Refused> {
    let header = ipv6::Header::read(bytes.first_chunk().ok_or(Refused::Malformed)?);
    let packet = bytes
        .get(..ipv6::HEADER_LEN + usize::from(header.payload_len))
        .ok_or(Refused::Malformed)?;
    let payload = packet.get(ipv6::HEADER_LEN..).ok_or(Refused::Malformed)?;
    let Walk::Upper { next_header, offset } = ipv6_ext::walk(header.next_header, payload) else {
        return Err(Refused::NotTcp);
    };
    let upper = payload.get(offset..).unwrap_or_default();
    let flow = match (next_header, upper.first()) {
        (ipv4::PROTOCOL_TCP, _) => Some(segment(header.src.into(), header.dst.into(), upper)?),
        (ipv6::NEXT_ICMPV6, Some(kind)) if ICMPV6_ERRORS.contains(kind) => None,
        _ => return Err(Refused::NotTcp),
    };
    Ok((flow, packet))
}

/// The flow of a segment that a client sent.
fn segment(client: IpAddr, service: IpAddr, segment: &[u8]) -> Result<Flow, Refused> {
    let header = segment.first_chunk().ok_or(Refused::NotTcp)?;
    Ok(Flow::of(client, service, &tcp::Header::read(header)))
}

/// Whom a packet that the kernel sends is for, and whether it shows that the kernel knows the connection: a
/// segment with ACK alone is sent only to who has proved its address. `None`: not TCP, and not sent.
pub fn read_outbound(packet: &[u8]) -> Option<(Flow, bool)> {
    let (source, destination, protocol, segment): (IpAddr, IpAddr, _, _) = match packet.first()? >> 4 {
        4 => {
            let header = ipv4::Header::read(packet.first_chunk()?);
            let segment = packet.get(header.header_len()..)?;
            (header.src.into(), header.dst.into(), header.protocol, segment)
        }
        6 => {
            // The kernel puts no extension headers before TCP unless a socket asks for them.
            let header = ipv6::Header::read(packet.first_chunk()?);
            let segment = packet.get(ipv6::HEADER_LEN..)?;
            (header.src.into(), header.dst.into(), header.next_header, segment)
        }
        _ => return None,
    };
    if protocol != ipv4::PROTOCOL_TCP {
        return None;
    }
    let tcp = tcp::Header::read(segment.first_chunk()?);
    let proved = tcp.flags & (tcp::FLAG_SYN | tcp::FLAG_RST | tcp::FLAG_ACK) == tcp::FLAG_ACK;
    Some((Flow::of(source, destination, &tcp).turned(), proved))
}

impl Link {
    /// The whole frame around an IP packet for the peer.
    pub fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(LINK_MAX + packet.len());
        frame.extend(self.peer);
        frame.extend(self.ours);
        self.tags
            .iter()
            .take(usize::from(self.count))
            .for_each(|tag| frame.extend(tag));
        let ether_type = match packet.first() {
            Some(first) if first >> 4 == 6 => eth::ETHER_TYPE_IPV6,
            _ => eth::ETHER_TYPE_IPV4,
        };
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    pub(in crate::tcp) const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    pub(in crate::tcp) const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn build(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>) -> Vec<u8> {
        let mut frame = Vec::new();
        builder.write(&mut frame, &[]).unwrap();
        frame
    }

    #[test]
    fn a_frame_gives_its_packet_and_a_reply_carries_the_same_tags() {
        for (tags, ether_len) in [(0, 14), (1, 18), (2, 22)] {
            let eth = PacketBuilder::ethernet2(PEER, OURS);
            let v4 = ([198, 51, 100, 7], [192, 0, 2, 53], 64);
            let frame = match tags {
                0 => build(eth.ipv4(v4.0, v4.1, v4.2).tcp(40000, 53, 1, 1000).syn()),
                1 => build(
                    eth.single_vlan(5.try_into().unwrap())
                        .ipv4(v4.0, v4.1, v4.2)
                        .tcp(40000, 53, 1, 1000)
                        .syn(),
                ),
                _ => build(
                    eth.double_vlan(9.try_into().unwrap(), 5.try_into().unwrap())
                        .ipv4(v4.0, v4.1, v4.2)
                        .tcp(40000, 53, 1, 1000)
                        .syn(),
                ),
            };
            // Padding to the Ethernet minimum is no part of the packet.
            let padded = [&frame[..], &[0; 6]].concat();
            let inbound = read(&padded).unwrap();
            assert_eq!(inbound.packet, &frame[ether_len..]);
            let flow = inbound.flow.unwrap();
            assert_eq!(flow.client, ([198, 51, 100, 7], 40000).into());
            assert_eq!(flow.service, ([192, 0, 2, 53], 53).into());
            let back = inbound.link.frame(inbound.packet);
            assert_eq!((&back[..6], &back[6..12]), (&PEER[..], &OURS[..]));
            assert_eq!(back[12..], frame[12..]);
        }
    }

    #[test]
    fn ipv6_behind_an_extension_header_is_read() {
        let (client, service) = ([0xfd; 16], [0xfc; 16]);
        let plain = build(
            PacketBuilder::ethernet2(PEER, OURS)
                .ipv6(client, service, 64)
                .tcp(40000, 53, 1, 1000),
        );
        assert_eq!(read(&plain).unwrap().flow.unwrap().client, (client, 40000).into());
        // Destination options (60): next header TCP, 8 bytes, PadN of 4.
        let mut with_options = plain.clone();
        with_options.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]);
        with_options[20] = 60;
        with_options[19] += 8;
        let inbound = read(&with_options).unwrap();
        assert_eq!(inbound.flow.unwrap().service, (service, 53).into());
        assert_eq!(inbound.link.frame(inbound.packet), {
            let mut back = with_options.clone();
            back[..6].copy_from_slice(&PEER);
            back[6..12].copy_from_slice(&OURS);
            back
        });
    }

    #[test]
    fn tcp_and_icmp_errors_pass_and_nothing_else() {
        let eth = || PacketBuilder::ethernet2(PEER, OURS).ipv4([198, 51, 100, 7], [192, 0, 2, 53], 64);
        let mut udp = Vec::new();
        eth().udp(4000, 853).write(&mut udp, b"x").unwrap();
        assert_eq!(read(&udp), Err(Refused::NotTcp));
        for (kind, passes) in [
            (3, true),
            (11, true),
            (12, true),
            (0, false),
            (5, false),
            (13, false),
        ] {
            let mut icmp = Vec::new();
            eth()
                .icmpv4_raw(kind, 4, [0; 4])
                .write(&mut icmp, &[0; 28])
                .unwrap();
            let read = read(&icmp).map(|inbound| inbound.flow);
            assert_eq!(read == Ok(None), passes, "ICMP type {kind}");
        }
        let eth = || PacketBuilder::ethernet2(PEER, OURS).ipv6([0xfd; 16], [0xfc; 16], 64);
        for (kind, passes) in [(1, true), (2, true), (4, true), (129, false), (137, false)] {
            let mut icmp = Vec::new();
            eth()
                .icmpv6_raw(kind, 0, [0; 4])
                .write(&mut icmp, &[0; 48])
                .unwrap();
            let read = read(&icmp).map(|inbound| inbound.flow);
            assert_eq!(read == Ok(None), passes, "ICMPv6 type {kind}");
        }
    }

    #[test]
    fn cut_frames_are_refused_without_a_panic() {
        let frame = build(
            PacketBuilder::ethernet2(PEER, OURS)
                .double_vlan(9.try_into().unwrap(), 5.try_into().unwrap())
                .ipv4([198, 51, 100, 7], [192, 0, 2, 53], 64)
                .tcp(40000, 53, 1, 1000),
        );
        for len in 0..frame.len() {
            assert_eq!(read(&frame[..len]), Err(Refused::Malformed), "{len}");
            let _ = read_outbound(&frame[22.min(len)..len]);
        }
    }

    #[test]
    fn only_a_plain_ack_proves_the_client() {
        type Step = etherparse::PacketBuilderStep<etherparse::TcpHeader>;
        type Flags = fn(Step) -> Step;
        let cases: [(Flags, bool); 5] = [
            (|s| s.syn().ack(1), false),
            (|s| s.rst().ack(1), false),
            (|s| s.rst(), false),
            (|s| s.ack(1), true),
            (|s| s.fin().ack(1).psh(), true),
        ];
        for (flags, proved) in cases {
            let builder = PacketBuilder::ipv6([0xfc; 16], [0xfd; 16], 64).tcp(53, 40000, 1, 1000);
            let mut packet = Vec::new();
            flags(builder).write(&mut packet, &[]).unwrap();
            let (flow, got) = read_outbound(&packet).unwrap();
            assert_eq!((flow.client, got), (([0xfd; 16], 40000).into(), proved));
            assert_eq!(flow.service, ([0xfc; 16], 53).into());
        }
        let mut udp = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 53], [198, 51, 100, 7], 64)
            .udp(1, 2)
            .write(&mut udp, &[])
            .unwrap();
        assert_eq!(read_outbound(&udp), None);
    }
}
