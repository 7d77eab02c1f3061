//! Described packets for the stages' tests: what a frame is to hold, written out plainly and by other
//! code than the stages'. Starts from a good query; a test changes the one thing that it is about.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use crate::io::{WINDOW, Window};
use crate::stages::classify::PortView;
use crate::tables::addresses::{AddressKind, Addresses};

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x53];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc1];
pub(crate) const SERVICE_V4: [u8; 4] = [192, 0, 2, 53];
pub(crate) const CLIENT_V4: [u8; 4] = [198, 51, 100, 7];
/// 2001:db8::53
pub(crate) const SERVICE_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
/// 2001:db8:c::7
pub(crate) const CLIENT_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// A DNS query for example.com A; 29 bytes.
pub(crate) const QUERY: [u8; 29] =
    *b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";

/// A port with one service address of each family, and a second IPv4 one.
pub(crate) fn port() -> PortView {
    let entries = [SERVICE_V4.into(), [192, 0, 2, 54].into(), SERVICE_V6.into()];
    let addresses = Addresses::new(
        entries.map(|a: std::net::IpAddr| (a, AddressKind::Service)),
        0x5eed,
    )
    .unwrap();
    PortView::new(OUR_MAC, addresses, true)
}

/// The Internet checksum as RFC 1071 section 4.1 writes it, over a whole message.
pub(crate) fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[derive(Clone, Debug)]
pub(crate) enum Ip {
    V4 {
        src: [u8; 4],
        dst: [u8; 4],
        flags_fragment: u16,
        /// Multiple of four bytes.
        options: Vec<u8>,
    },
    V6 {
        src: [u8; 16],
        dst: [u8; 16],
        /// Traffic class and flow label, 28 bits.
        class_and_label: u32,
        hop_limit: u8,
        /// Type, and bytes with the first one free for the next header.
        extensions: Vec<(u8, Vec<u8>)>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) mac_dst: [u8; 6],
    pub(crate) mac_src: [u8; 6],
    /// TPID and TCI, outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) ip: Ip,
    pub(crate) protocol: u8,
    /// The upper layer's bytes; a checksum is filled in at the protocol's place.
    pub(crate) l4: Vec<u8>,
    /// False leaves the checksum as it stands in `l4`.
    pub(crate) fill_checksum: bool,
    /// Bytes after the IP packet.
    pub(crate) padding: usize,
}

/// UDP header with length, checksum zero, and payload.
pub(crate) fn udp(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let mut bytes = [src_port, dst_port, len, 0].map(u16::to_be_bytes).concat();
    bytes.extend_from_slice(payload);
    bytes
}

impl Packet {
    pub(crate) fn query_v4() -> Self {
        let ip = Ip::V4 {
            src: CLIENT_V4,
            dst: SERVICE_V4,
            flags_fragment: 0,
            options: vec![],
        };
        Self {
            mac_dst: OUR_MAC,
            mac_src: CLIENT_MAC,
            tags: vec![],
            ip,
            protocol: 17,
            l4: udp(40000, 53, &QUERY),
            fill_checksum: true,
            padding: 0,
        }
    }

    pub(crate) fn query_v6() -> Self {
        let ip = Ip::V6 {
            src: CLIENT_V6,
            dst: SERVICE_V6,
            class_and_label: 0,
            hop_limit: 57,
            extensions: vec![],
        };
        Self {
            ip,
            ..Self::query_v4()
        }
    }

    /// The same addresses with another upper layer.
    pub(crate) fn with(self, protocol: u8, l4: Vec<u8>) -> Self {
        Self { protocol, l4, ..self }
    }

    /// The frame's bytes.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut frame = [self.mac_dst, self.mac_src].concat();
        for &(tpid, tci) in &self.tags {
            frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        let mut l4 = self.l4.clone();
        let pseudo = match &self.ip {
            Ip::V4 { src, dst, .. } => [
                &src[..],
                dst,
                &[0, self.protocol],
                &(l4.len() as u16).to_be_bytes(),
            ]
            .concat(),
            Ip::V6 { src, dst, .. } => [
                &src[..],
                dst,
                &[0, self.protocol],
                &(l4.len() as u16).to_be_bytes(),
            ]
            .concat(),
        };
        let place = match self.protocol {
            1 | 58 => 2,
            17 => 6,
            _ => 16,
        };
        if self.fill_checksum && l4.len() >= place + 2 {
            l4[place..place + 2].fill(0);
            let covered = if self.protocol == 1 {
                l4.clone()
            } else {
                [&pseudo[..], &l4].concat()
            };
            let sum = match plain_sum(&covered) {
                0 if self.protocol == 17 => 0xffff,
                sum => sum,
            };
            l4[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        match &self.ip {
            Ip::V4 {
                src,
                dst,
                flags_fragment,
                options,
            } => {
                let len = (20 + options.len() + l4.len()) as u16;
                let mut header = vec![0x45 + (options.len() / 4) as u8, 0xb8];
                header.extend([len, 0x1234, *flags_fragment].map(u16::to_be_bytes).concat());
                header.extend([57, self.protocol, 0, 0]);
                header.extend([&src[..], dst, options].concat());
                let sum = plain_sum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([&[0x08, 0x00][..], &header].concat());
            }
            Ip::V6 {
                src,
                dst,
                class_and_label,
                hop_limit,
                extensions,
            } => {
                let mut chain = Vec::new();
                let mut types: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).collect();
                types.push(self.protocol);
                for ((_, bytes), &next) in extensions.iter().zip(&types[1..]) {
                    chain.push(next);
                    chain.extend(&bytes[1..]);
                }
                frame.extend([0x86, 0xdd]);
                frame.extend((6 << 28 | class_and_label).to_be_bytes());
                frame.extend(((chain.len() + l4.len()) as u16).to_be_bytes());
                frame.extend([types[0], *hop_limit]);
                frame.extend([&src[..], dst, &chain].concat());
            }
        }
        frame.extend(l4);
        frame.resize(frame.len() + self.padding, 0x5a);
        frame
    }

    /// The frame in a window whose other bytes are dirty, and its length.
    pub(crate) fn window(&self) -> (Window, usize) {
        window_of(&self.build())
    }
}

/// A frame in a window whose other bytes are dirty, and its length.
pub(crate) fn window_of(frame: &[u8]) -> (Window, usize) {
    let mut window = [0xd7; WINDOW];
    window[..frame.len()].copy_from_slice(frame);
    (window, frame.len())
}
