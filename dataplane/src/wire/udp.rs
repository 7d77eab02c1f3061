//! UDP (RFC 768).
//!
//! ```text
//!  0  source port (2)       4  length of header and payload (2)
//!  2  destination port (2)  6  checksum (2)
//! ```

/// Header length in bytes.
pub const HEADER_LEN: usize = 8;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port; 0 means that no reply is wanted.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of header and payload, bytes.
    pub len: u16,
    /// Checksum field, as on the wire; zero for none (IPv4 only).
    pub checksum: [u8; 2],
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Self {
        Self {
            src_port: u16::from_be_bytes([b[0], b[1]]),
            dst_port: u16::from_be_bytes([b[2], b[3]]),
            len: u16::from_be_bytes([b[4], b[5]]),
            checksum: [b[6], b[7]],
        }
    }

    /// Writes the header.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; HEADER_LEN]) {
        [b[0], b[1]] = self.src_port.to_be_bytes();
        [b[2], b[3]] = self.dst_port.to_be_bytes();
        [b[4], b[5]] = self.len.to_be_bytes();
        [b[6], b[7]] = self.checksum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_rfc_768_puts_them() {
        let h = Header::read(&[0x12, 0x34, 0, 53, 0, 25, 0xab, 0xcd]);
        assert_eq!(
            h,
            Header {
                src_port: 0x1234,
                dst_port: 53,
                len: 25,
                checksum: [0xab, 0xcd]
            }
        );
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
