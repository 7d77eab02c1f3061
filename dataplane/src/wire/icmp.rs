//! ICMP (RFC 792) and ICMPv6 (RFC 4443): the fixed header and echo.
//!
//! ```text
//!  0  type (1)       4  identifier (2)       (echo)
//!  1  code (1)       6  sequence number (2)  (echo)
//!  2  checksum (2)   8  data, kept in a reply
//! ```

/// Header length in bytes.
pub const HEADER_LEN: usize = 8;
/// ICMP type: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// ICMP type: echo request.
pub const ECHO_REQUEST: u8 = 8;
/// ICMPv6 type: echo request.
pub const V6_ECHO_REQUEST: u8 = 128;
/// ICMPv6 type: echo reply.
pub const V6_ECHO_REPLY: u8 = 129;
/// ICMPv6 type: neighbour solicitation (RFC 4861).
pub const V6_NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type: neighbour advertisement (RFC 4861).
pub const V6_NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The header of every message, with the two words of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum field, as on the wire.
    pub checksum: [u8; 2],
    /// Identifier of an echo.
    pub id: u16,
    /// Sequence number of an echo.
    pub sequence: u16,
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Self {
        Self {
            kind: b[0],
            code: b[1],
            checksum: [b[2], b[3]],
            id: u16::from_be_bytes([b[4], b[5]]),
            sequence: u16::from_be_bytes([b[6], b[7]]),
        }
    }

    /// Writes the header.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; HEADER_LEN]) {
        [b[0], b[1]] = [self.kind, self.code];
        [b[2], b[3]] = self.checksum;
        [b[4], b[5]] = self.id.to_be_bytes();
        [b[6], b[7]] = self.sequence.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_rfc_792_puts_them() {
        let h = Header::read(&[8, 0, 0xf7, 0xff, 0x12, 0x34, 0, 7]);
        assert_eq!((h.kind, h.code, h.checksum), (ECHO_REQUEST, 0, [0xf7, 0xff]));
        assert_eq!((h.id, h.sequence), (0x1234, 7));
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
