//! Ethernet II (IEEE 802.3 clause 3).
//!
//! ```text
//!  0  destination MAC (6)
//!  6  source MAC (6)
//! 12  EtherType (2)
//! ```

/// Header length in bytes, without tags.
pub const HEADER_LEN: usize = 14;
/// EtherType of IPv4.
pub const ETHER_TYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHER_TYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// The broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// EtherType, or the TPID of a tag.
    pub ether_type: u16,
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Self {
        Self {
            dst: [b[0], b[1], b[2], b[3], b[4], b[5]],
            src: [b[6], b[7], b[8], b[9], b[10], b[11]],
            ether_type: u16::from_be_bytes([b[12], b[13]]),
        }
    }

    /// Writes the header.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; HEADER_LEN]) {
        [b[0], b[1], b[2], b[3], b[4], b[5]] = self.dst;
        [b[6], b[7], b[8], b[9], b[10], b[11]] = self.src;
        [b[12], b[13]] = self.ether_type.to_be_bytes();
    }
}

/// True for a group address: multicast or broadcast.
#[inline(always)]
pub const fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 != 0
}

/// The group MAC address of an IPv6 multicast address (RFC 2464 section 7).
#[inline(always)]
pub const fn of_ipv6_multicast(group: [u8; 16]) -> [u8; 6] {
    [0x33, 0x33, group[12], group[13], group[14], group[15]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd];
        let header = Header::read(&bytes);
        assert_eq!(header.dst, [1, 2, 3, 4, 5, 6]);
        assert_eq!(header.src, [7, 8, 9, 10, 11, 12]);
        assert_eq!(header.ether_type, ETHER_TYPE_IPV6);
    }

    #[test]
    fn the_group_address_of_rfc_2464() {
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xaa, 0xbb, 0xcc];
        assert_eq!(of_ipv6_multicast(group), [0x33, 0x33, 0xff, 0xaa, 0xbb, 0xcc]);
        assert!(is_group(of_ipv6_multicast(group)) && is_group(BROADCAST) && !is_group([2; 6]));
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
