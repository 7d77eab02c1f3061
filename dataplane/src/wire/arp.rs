//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  0  hardware type (2) = 1       8  sender hardware address (6)
//!  2  protocol type (2) = 0x0800 14  sender protocol address (4)
//!  4  hardware length (1) = 6    18  target hardware address (6)
//!  5  protocol length (1) = 4    24  target protocol address (4)
//!  6  operation (2)
//! ```

use super::eth::ETHER_TYPE_IPV4;

/// Length in bytes.
pub const PACKET_LEN: usize = 28;
/// Operation: request.
pub const REQUEST: u16 = 1;
/// Operation: reply.
pub const REPLY: u16 = 2;

/// The first six bytes of every ARP packet for IPv4 over Ethernet.
const TYPES: [u8; 6] = [
    0,
    1,
    ETHER_TYPE_IPV4.to_be_bytes()[0],
    ETHER_TYPE_IPV4.to_be_bytes()[1],
    6,
    4,
];

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Operation: [`REQUEST`], [`REPLY`] or another.
    pub operation: u16,
    /// Sender hardware address.
    pub sender_mac: [u8; 6],
    /// Sender protocol address; 0.0.0.0 in a probe (RFC 5227).
    pub sender_ip: [u8; 4],
    /// Target hardware address; without meaning in a request.
    pub target_mac: [u8; 6],
    /// Target protocol address.
    pub target_ip: [u8; 4],
}

impl Packet {
    /// Reads a packet; `None` for other hardware or protocol types or lengths.
    #[inline]
    pub fn read(b: &[u8; PACKET_LEN]) -> Option<Self> {
        if b.first_chunk() != Some(&TYPES) {
            return None;
        }
        Some(Self {
            operation: u16::from_be_bytes([b[6], b[7]]),
            sender_mac: [b[8], b[9], b[10], b[11], b[12], b[13]],
            sender_ip: [b[14], b[15], b[16], b[17]],
            target_mac: [b[18], b[19], b[20], b[21], b[22], b[23]],
            target_ip: [b[24], b[25], b[26], b[27]],
        })
    }

    /// Writes the packet.
    #[inline]
    pub const fn write(&self, b: &mut [u8; PACKET_LEN]) {
        [b[0], b[1], b[2], b[3], b[4], b[5]] = TYPES;
        [b[6], b[7]] = self.operation.to_be_bytes();
        [b[8], b[9], b[10], b[11], b[12], b[13]] = self.sender_mac;
        [b[14], b[15], b[16], b[17]] = self.sender_ip;
        [b[18], b[19], b[20], b[21], b[22], b[23]] = self.target_mac;
        [b[24], b[25], b[26], b[27]] = self.target_ip;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Who has 192.0.2.53? Tell 192.0.2.1.
    const REQUEST_BYTES: [u8; PACKET_LEN] = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 53,
    ];

    #[test]
    fn fields_are_where_rfc_826_puts_them() {
        let packet = Packet::read(&REQUEST_BYTES).unwrap();
        assert_eq!(packet.operation, REQUEST);
        assert_eq!(packet.sender_mac, [2, 0, 0, 0, 0, 9]);
        assert_eq!(packet.sender_ip, [192, 0, 2, 1]);
        assert_eq!(packet.target_mac, [0; 6]);
        assert_eq!(packet.target_ip, [192, 0, 2, 53]);
    }

    #[test]
    fn other_types_and_lengths_are_not_read() {
        for i in 0..6 {
            let mut bytes = REQUEST_BYTES;
            bytes[i] ^= 0x10;
            assert_eq!(Packet::read(&bytes), None, "byte {i}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_comes_back(mut bytes: [u8; PACKET_LEN]) {
            let _ = Packet::read(&bytes);
            bytes[..6].copy_from_slice(&REQUEST_BYTES[..6]);
            let mut out = [0; PACKET_LEN];
            Packet::read(&bytes).unwrap().write(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
