//! GRE (RFC 2784, RFC 2890), and ERSPAN in it (draft-foschiano-erspan): how mirrored frames travel.
//!
//! ```text
//!  GRE                                        ERSPAN II (8 bytes)         ERSPAN III (12 bytes)
//!  0  C, reserved, K, S, reserved (2)         0  version 1 (4 bits) ...   0  version 2 (4 bits) ...
//!  2  protocol type (2)                       4  reserved, index          4  timestamp (4)
//!  4  checksum (2), reserved (2) if C                                     8  SGT (2)
//!  .  key (4) if K                                                       10  P, frame type (5 bits), hardware
//!  .  sequence number (4) if S                                           11  ..., O: 8 bytes more follow
//! ```

/// Header length without what flags add, bytes.
pub const HEADER_LEN: usize = 4;
/// IP protocol number.
pub const PROTOCOL: u8 = 47;
/// Protocol type of ERSPAN I and II.
pub const TYPE_ERSPAN: u16 = 0x88be;
/// Protocol type of ERSPAN III.
pub const TYPE_ERSPAN_3: u16 = 0x22eb;
/// Protocol type of bridged Ethernet.
pub const TYPE_ETHERNET: u16 = 0x6558;

const CHECKSUM: u16 = 1 << 15;
const KEY: u16 = 1 << 13;
const SEQUENCE: u16 = 1 << 12;
/// Routing and the version: of other forms of GRE (RFC 1701, RFC 2637).
const OTHER: u16 = 1 << 14 | 7;

/// A GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    flags: u16,
    /// What is carried: an EtherType, or one of the types above.
    pub protocol: u16,
}

impl Header {
    /// Reads the first four bytes; none for forms of GRE that are not of RFC 2890.
    #[inline]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Option<Self> {
        let flags = u16::from_be_bytes([b[0], b[1]]);
        if flags & OTHER != 0 {
            return None;
        }
        Some(Self {
            flags,
            protocol: u16::from_be_bytes([b[2], b[3]]),
        })
    }

    /// Length with what the flags add.
    #[inline]
    pub const fn header_len(self) -> usize {
        let count = (self.flags & CHECKSUM != 0) as usize
            + (self.flags & KEY != 0) as usize
            + (self.flags & SEQUENCE != 0) as usize;
        HEADER_LEN + 4 * count
    }

    /// Where the key stands, if there is one.
    #[inline]
    pub const fn key_at(self) -> Option<usize> {
        if self.flags & KEY == 0 {
            return None;
        }
        Some(HEADER_LEN + 4 * (self.flags & CHECKSUM != 0) as usize)
    }

    /// True when there is a sequence number, which tells ERSPAN II from ERSPAN I.
    #[inline]
    pub const fn has_sequence(self) -> bool {
        self.flags & SEQUENCE != 0
    }
}

/// What an ERSPAN header of type III says: its length, and whether an Ethernet frame follows (else an IP packet).
/// None for other frame types.
#[inline]
pub const fn read_erspan_3(b: &[u8; 12]) -> Option<(usize, bool)> {
    let frame_type = b[10] >> 2 & 0x1f;
    let len = 12 + 8 * (b[11] & 1) as usize;
    match frame_type {
        0 => Some((len, true)),
        2 => Some((len, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_flags() {
        for (flags, len, key) in [
            (0x0000u16, 4, None),
            (0x1000, 8, None),
            (0x2000, 8, Some(4)),
            (0x3000, 12, Some(4)),
            (0xb000, 16, Some(8)),
        ] {
            let [a, b] = flags.to_be_bytes();
            let header = Header::read(&[a, b, 0x88, 0xbe]).unwrap();
            assert_eq!(
                (header.header_len(), header.key_at(), header.protocol),
                (len, key, TYPE_ERSPAN)
            );
            assert_eq!(header.has_sequence(), flags & 0x1000 != 0);
        }
        // RFC 1701 routing, and version 1 (PPTP, RFC 2637).
        assert_eq!(Header::read(&[0x40, 0, 0x08, 0]), None);
        assert_eq!(Header::read(&[0x30, 0x01, 0x88, 0x0b]), None);
    }

    #[test]
    fn erspan_3_with_and_without_its_subheader() {
        let mut header = [0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read_erspan_3(&header), Some((12, true)));
        header[11] = 1;
        assert_eq!(read_erspan_3(&header), Some((20, true)));
        header[10] = 2 << 2 | 0x80;
        assert_eq!(read_erspan_3(&header), Some((20, false)));
        header[10] = 1 << 2;
        assert_eq!(read_erspan_3(&header), None);
    }
}
