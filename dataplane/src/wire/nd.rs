//! Neighbour solicitation and advertisement (RFC 4861 sections 4.3 and 4.4).
//!
//! ```text
//!  0  type (1) = 135 or 136     8  target address (16)
//!  1  code (1) = 0             24  options: type (1), length in 8 bytes (1), value
//!  2  checksum (2)                 1: source link-layer address
//!  4  flags R S O, reserved (4)    2: target link-layer address
//! ```

use super::icmp;

/// Length of a message without options, bytes.
pub const MESSAGE_LEN: usize = 24;
/// Length of an advertisement with the target link-layer address option for Ethernet, bytes.
pub const ADVERTISEMENT_LEN: usize = 32;
/// Option type: source link-layer address.
pub const OPTION_SOURCE_LINK: u8 = 1;
/// Option type: target link-layer address.
pub const OPTION_TARGET_LINK: u8 = 2;
/// Flag of an advertisement: the answer to a solicitation.
pub const FLAG_SOLICITED: u8 = 0x40;
/// Flag of an advertisement: override what was cached.
pub const FLAG_OVERRIDE: u8 = 0x20;

/// The fixed part of either message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// ICMPv6 type.
    pub kind: u8,
    /// Code: 0.
    pub code: u8,
    /// First byte of the flags word; none in a solicitation.
    pub flags: u8,
    /// Target address.
    pub target: [u8; 16],
}

impl Message {
    /// Reads the fixed part.
    #[inline]
    pub fn read(b: &[u8; MESSAGE_LEN]) -> Self {
        let mut target = [0; 16];
        target.copy_from_slice(&b[8..24]);
        Self {
            kind: b[0],
            code: b[1],
            flags: b[4],
            target,
        }
    }
}

/// Writes an advertisement for Ethernet; the checksum field is left zero.
#[inline]
pub fn write_advertisement(b: &mut [u8; ADVERTISEMENT_LEN], flags: u8, target: [u8; 16], mac: [u8; 6]) {
    *b = [0; ADVERTISEMENT_LEN];
    b[0] = icmp::V6_NEIGHBOUR_ADVERTISEMENT;
    b[4] = flags;
    b[8..24].copy_from_slice(&target);
    b[24..26].copy_from_slice(&[OPTION_TARGET_LINK, 1]);
    b[26..32].copy_from_slice(&mac);
}

/// What the options of a message say. Both are `Some` only for an Ethernet-sized address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Source link-layer address.
    pub source_link: Option<[u8; 6]>,
    /// Target link-layer address.
    pub target_link: Option<[u8; 6]>,
}

/// Walks the options after the fixed part; unknown ones are skipped. `None` when one has length 0
/// or passes the end: the message is then discarded whole (RFC 4861 section 7.1).
pub fn read_options(mut bytes: &[u8]) -> Option<Options> {
    let mut options = Options::default();
    while let Some(&[kind, units]) = bytes.first_chunk() {
        let len = usize::from(units) * 8;
        let (Some(option @ 8..), Some(rest)) = (Some(len), bytes.get(len..)) else {
            return None;
        };
        let value = match bytes.get(2..option) {
            Some(&[a, b, c, d, e, f]) => Some([a, b, c, d, e, f]),
            _ => None,
        };
        match kind {
            OPTION_SOURCE_LINK => options.source_link = value,
            OPTION_TARGET_LINK => options.target_link = value,
            _ => {}
        }
        bytes = rest;
    }
    bytes.is_empty().then_some(options)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_advertisement_as_rfc_4861_section_4_4_draws_it() {
        let target = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53];
        let mut bytes = [0xee; ADVERTISEMENT_LEN];
        write_advertisement(
            &mut bytes,
            FLAG_SOLICITED | FLAG_OVERRIDE,
            target,
            [2, 0, 0, 0, 0, 1],
        );
        assert_eq!(bytes[..8], [136, 0, 0, 0, 0x60, 0, 0, 0]);
        assert_eq!(bytes[8..24], target);
        assert_eq!(bytes[24..], [2, 1, 2, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn options_are_found_behind_unknown_ones() {
        // A nonce (14, RFC 3971), then a source link-layer address.
        let bytes = [14, 1, 9, 9, 9, 9, 9, 9, 1, 1, 2, 0, 0, 0, 0, 7];
        let want = Options {
            source_link: Some([2, 0, 0, 0, 0, 7]),
            target_link: None,
        };
        assert_eq!(read_options(&bytes), Some(want));
        assert_eq!(read_options(&[]), Some(Options::default()));
    }

    #[test]
    fn an_option_of_length_zero_or_past_the_end_discards_the_message() {
        assert_eq!(read_options(&[1, 0, 2, 0, 0, 0, 0, 7]), None);
        assert_eq!(read_options(&[1, 2, 2, 0, 0, 0, 0, 7]), None);
        assert_eq!(read_options(&[1, 1, 2, 0, 0, 0, 0]), None);
        assert_eq!(read_options(&[1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(prop_oneof![Just(1u8), 0..4u8, any::<u8>()], 0..40)) {
            if let Some(options) = read_options(&bytes) {
                prop_assert!(bytes.len() % 8 == 0);
                prop_assert!(options == Options::default() || !bytes.is_empty());
            }
        }
    }
}
