//! IPv6 (RFC 8200 section 3).
//!
//! ```text
//!  0  version (4 bits) traffic class (8) flow label (20)
//!  4  payload length (2)
//!  6  next header (1)
//!  7  hop limit (1)
//!  8  source address (16)
//! 24  destination address (16)
//! ```

/// Header length in bytes.
pub const HEADER_LEN: usize = 40;
/// Next header value of ICMPv6.
pub const NEXT_ICMPV6: u8 = 58;
/// Link-local all-nodes group, ff02::1.
pub const ALL_NODES: [u8; 16] = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version: 6.
    pub version: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header, extension headers included.
    pub payload_len: u16,
    /// Next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub fn read(b: &[u8; HEADER_LEN]) -> Self {
        let first = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        let (src, dst) = addresses(b);
        Self {
            version: (first >> 28) as u8,
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_len: u16::from_be_bytes([b[4], b[5]]),
            next_header: b[6],
            hop_limit: b[7],
            src,
            dst,
        }
    }

    /// Writes the header.
    #[inline(always)]
    pub fn write(&self, b: &mut [u8; HEADER_LEN]) {
        let first = u32::from(self.version) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0x000f_ffff;
        [b[0], b[1], b[2], b[3]] = first.to_be_bytes();
        [b[4], b[5]] = self.payload_len.to_be_bytes();
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.src);
        b[24..40].copy_from_slice(&self.dst);
    }
}

#[inline(always)]
fn addresses(b: &[u8; HEADER_LEN]) -> ([u8; 16], [u8; 16]) {
    let mut src = [0; 16];
    let mut dst = [0; 16];
    src.copy_from_slice(&b[8..24]);
    dst.copy_from_slice(&b[24..40]);
    (src, dst)
}

/// True for ff00::/8.
#[inline(always)]
pub const fn is_multicast(address: [u8; 16]) -> bool {
    address[0] == 0xff
}

/// The solicited-node group of an address (RFC 4291 section 2.7.1): ff02::1:ff00:0/104 and its last 24 bits.
#[inline(always)]
pub const fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    [
        0xff,
        0x02,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
        0xff,
        address[13],
        address[14],
        address[15],
    ]
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_rfc_8200_puts_them() {
        let mut bytes = [0u8; HEADER_LEN];
        bytes[..8].copy_from_slice(&[0x6a, 0xba, 0xbc, 0xde, 0x01, 0x02, 17, 63]);
        for (i, byte) in bytes[8..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        let h = Header::read(&bytes);
        // Traffic class ab, flow label abcde.
        assert_eq!((h.version, h.traffic_class, h.flow_label), (6, 0xab, 0xabcde));
        assert_eq!((h.payload_len, h.next_header, h.hop_limit), (0x0102, 17, 63));
        assert_eq!(h.src, core::array::from_fn(|i| i as u8));
        assert_eq!(h.dst, core::array::from_fn(|i| 16 + i as u8));
    }

    #[test]
    fn the_solicited_node_group_of_rfc_4291() {
        // 4037::01:800:200e:8c6c is in ff02::1:ff0e:8c6c.
        let address = [0x40, 0x37, 0, 0, 0, 0, 0, 0, 0, 1, 8, 0, 0x20, 0x0e, 0x8c, 0x6c];
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x0e, 0x8c, 0x6c];
        assert_eq!(solicited_node(address), group);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: [u8; HEADER_LEN]) {
            let mut out = [0; HEADER_LEN];
            Header::read(&bytes).write(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
