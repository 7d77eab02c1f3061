//! VLAN tags: IEEE 802.1Q, 802.1ad (QinQ) and the older 0x9100.
//!
//! ```text
//!  0  TPID (2)                      stands where the EtherType would
//!  2  PCP (3 bits) DEI (1) VID (12) VID 0: a priority tag, no VLAN
//! ```

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 4;
/// TPID of a customer tag (802.1Q).
pub const TPID_8021Q: u16 = 0x8100;
/// TPID of a service tag (802.1ad).
pub const TPID_8021AD: u16 = 0x88a8;
/// TPID of stacked tags before 802.1ad.
pub const TPID_9100: u16 = 0x9100;

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol identifier.
    pub tpid: u16,
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0 to 4095.
    pub vid: u16,
}

/// True when an EtherType announces a tag.
#[inline(always)]
pub const fn is_tpid(ether_type: u16) -> bool {
    matches!(ether_type, TPID_8021Q | TPID_8021AD | TPID_9100)
}

impl Tag {
    /// Reads a tag.
    #[inline(always)]
    pub const fn read(b: &[u8; TAG_LEN]) -> Self {
        let tci = u16::from_be_bytes([b[2], b[3]]);
        Self {
            tpid: u16::from_be_bytes([b[0], b[1]]),
            pcp: (tci >> 13) as u8,
            dei: tci & 0x1000 != 0,
            vid: tci & 0x0fff,
        }
    }

    /// Writes the tag.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; TAG_LEN]) {
        [b[0], b[1]] = self.tpid.to_be_bytes();
        let tci = (self.pcp as u16) << 13 | (self.dei as u16) << 12 | self.vid & 0x0fff;
        [b[2], b[3]] = tci.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_standard_puts_them() {
        let tag = Tag::read(&[0x88, 0xa8, 0xb1, 0x23]);
        assert_eq!(
            tag,
            Tag {
                tpid: TPID_8021AD,
                pcp: 5,
                dei: true,
                vid: 0x123
            }
        );
    }

    #[test]
    fn only_the_three_tpids_are_tags() {
        let tpids: Vec<u16> = (0..=u16::MAX).filter(|&t| is_tpid(t)).collect();
        assert_eq!(tpids, [0x8100, 0x88a8, 0x9100]);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: [u8; TAG_LEN]) {
            let mut out = [0; TAG_LEN];
            Tag::read(&bytes).write(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
