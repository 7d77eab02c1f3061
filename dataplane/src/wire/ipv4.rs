//! IPv4 (RFC 791).
//!
//! ```text
//!  0  version (4 bits) IHL (4)     8  time to live (1)
//!  1  DSCP (6 bits) ECN (2)        9  protocol (1)
//!  2  total length (2)            10  header checksum (2)
//!  4  identification (2)          12  source address (4)
//!  6  reserved, DF, MF (3 bits)   16  destination address (4)
//!     fragment offset (13)        20  options (IHL - 5 words)
//! ```

/// Header length without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Reserved flag, in the flags word.
pub const FLAG_RESERVED: u16 = 0x8000;
/// Don't fragment, in the flags word.
pub const FLAG_DF: u16 = 0x4000;
/// More fragments, in the flags word.
pub const FLAG_MF: u16 = 0x2000;

/// The first 20 bytes of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version: 4.
    pub version: u8,
    /// Header length in 32-bit words, 5 to 15.
    pub ihl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload, bytes.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset.
    pub flags_fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum field, as on the wire.
    pub checksum: [u8; 2],
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Self {
        Self {
            version: b[0] >> 4,
            ihl: b[0] & 0x0f,
            tos: b[1],
            total_len: u16::from_be_bytes([b[2], b[3]]),
            id: u16::from_be_bytes([b[4], b[5]]),
            flags_fragment: u16::from_be_bytes([b[6], b[7]]),
            ttl: b[8],
            protocol: b[9],
            checksum: [b[10], b[11]],
            src: [b[12], b[13], b[14], b[15]],
            dst: [b[16], b[17], b[18], b[19]],
        }
    }

    /// Writes the header, checksum field as given.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; HEADER_LEN]) {
        b[0] = self.version << 4 | self.ihl & 0x0f;
        b[1] = self.tos;
        [b[2], b[3]] = self.total_len.to_be_bytes();
        [b[4], b[5]] = self.id.to_be_bytes();
        [b[6], b[7]] = self.flags_fragment.to_be_bytes();
        b[8] = self.ttl;
        b[9] = self.protocol;
        [b[10], b[11]] = self.checksum;
        [b[12], b[13], b[14], b[15]] = self.src;
        [b[16], b[17], b[18], b[19]] = self.dst;
    }

    /// Header length in bytes with options.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        self.ihl as usize * 4
    }

    /// True for any fragment, the first included, and for the reserved flag, which no sender sets.
    #[inline(always)]
    pub const fn is_fragment(&self) -> bool {
        self.flags_fragment & !FLAG_DF != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::checksum::Sum;
    use proptest::prelude::*;

    /// A header with a checksum known from outside: the worked example of Wikipedia's "Internet checksum" (b861).
    const BYTES: [u8; HEADER_LEN] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn fields_are_where_rfc_791_puts_them() {
        let h = Header::read(&BYTES);
        assert_eq!((h.version, h.ihl, h.tos, h.total_len), (4, 5, 0, 0x73));
        assert_eq!(
            (h.id, h.flags_fragment, h.ttl, h.protocol),
            (0, FLAG_DF, 64, PROTOCOL_UDP)
        );
        assert_eq!((h.src, h.dst), ([192, 168, 0, 1], [192, 168, 0, 199]));
        assert!(!h.is_fragment() && h.header_len() == 20);
        assert!(Sum::of(&BYTES).verifies());
    }

    #[test]
    fn every_flag_and_offset_but_df_is_a_fragment() {
        let mut h = Header::read(&BYTES);
        for bit in 0..16 {
            h.flags_fragment = 1 << bit;
            assert_eq!(h.is_fragment(), bit != 14, "bit {bit}");
        }
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
