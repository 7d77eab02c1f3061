//! TCP (RFC 9293) and the options that flows are measured by (RFC 7323, RFC 2018).
//!
//! ```text
//!  0  source port (2)              12  data offset (4 bits) reserved (4)
//!  2  destination port (2)         13  flags CWR ECE URG ACK PSH RST SYN FIN
//!  4  sequence number (4)          14  window (2)
//!  8  acknowledgment number (4)    16  checksum (2)   18  urgent pointer (2)
//!                                  20  options (data offset - 5 words)
//! ```

/// Header length without options, bytes.
pub const HEADER_LEN: usize = 20;
/// Flag: the sender is done.
pub const FLAG_FIN: u8 = 0x01;
/// Flag: synchronise sequence numbers.
pub const FLAG_SYN: u8 = 0x02;
/// Flag: reset.
pub const FLAG_RST: u8 = 0x04;
/// Flag: push.
pub const FLAG_PSH: u8 = 0x08;
/// Flag: the acknowledgment number counts.
pub const FLAG_ACK: u8 = 0x10;

/// The first 20 bytes of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Header length in 32-bit words, 5 to 15.
    pub data_offset: u8,
    /// The four reserved bits.
    pub reserved: u8,
    /// Flags.
    pub flags: u8,
    /// Receive window, unscaled.
    pub window: u16,
    /// Checksum field, as on the wire.
    pub checksum: [u8; 2],
    /// Urgent pointer.
    pub urgent: u16,
}

impl Header {
    /// Reads a header.
    #[inline(always)]
    pub const fn read(b: &[u8; HEADER_LEN]) -> Self {
        Self {
            src_port: u16::from_be_bytes([b[0], b[1]]),
            dst_port: u16::from_be_bytes([b[2], b[3]]),
            sequence: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
            acknowledgment: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            data_offset: b[12] >> 4,
            reserved: b[12] & 0x0f,
            flags: b[13],
            window: u16::from_be_bytes([b[14], b[15]]),
            checksum: [b[16], b[17]],
            urgent: u16::from_be_bytes([b[18], b[19]]),
        }
    }

    /// Writes the header.
    #[inline(always)]
    pub const fn write(&self, b: &mut [u8; HEADER_LEN]) {
        [b[0], b[1]] = self.src_port.to_be_bytes();
        [b[2], b[3]] = self.dst_port.to_be_bytes();
        [b[4], b[5], b[6], b[7]] = self.sequence.to_be_bytes();
        [b[8], b[9], b[10], b[11]] = self.acknowledgment.to_be_bytes();
        b[12] = self.data_offset << 4 | self.reserved & 0x0f;
        b[13] = self.flags;
        [b[14], b[15]] = self.window.to_be_bytes();
        [b[16], b[17]] = self.checksum;
        [b[18], b[19]] = self.urgent.to_be_bytes();
    }

    /// Header length in bytes with options; `None` when below 20 or past `segment_len`.
    #[inline(always)]
    pub const fn header_len(&self, segment_len: usize) -> Option<usize> {
        let len = self.data_offset as usize * 4;
        if len < HEADER_LEN || len > segment_len {
            None
        } else {
            Some(len)
        }
    }
}

/// What the options of a segment say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size, bytes.
    pub mss: Option<u16>,
    /// Window scale: a shift.
    pub window_scale: Option<u8>,
    /// Timestamps: TSval, TSecr.
    pub timestamps: Option<(u32, u32)>,
}

/// Walks the options (the bytes between the fixed header and the data offset). Stops at the end of
/// the list, and at an option that lies about its length: what came before stays valid.
#[inline]
pub fn read_options(mut bytes: &[u8]) -> Options {
    let mut options = Options::default();
    loop {
        let (&kind, after) = match bytes.split_first() {
            // End of option list.
            None | Some((0, _)) => return options,
            // No operation.
            Some((1, rest)) => {
                bytes = rest;
                continue;
            }
            Some(split) => split,
        };
        let (Some(&len @ 2..), rest) = (after.first(), bytes) else {
            return options;
        };
        let Some((option, rest)) = rest.split_at_checked(usize::from(len)) else {
            return options;
        };
        match (kind, option.get(2..)) {
            (2, Some(&[a, b])) => options.mss = Some(u16::from_be_bytes([a, b])),
            (3, Some(&[shift])) => options.window_scale = Some(shift),
            (8, Some(&[a, b, c, d, e, f, g, h])) => {
                options.timestamps =
                    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            _ => {}
        }
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A SYN of Linux: MSS 1460, SACK permitted, timestamps 1 and 0, no operation, window scale 7.
    const LINUX_SYN_OPTIONS: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];

    #[test]
    fn fields_are_where_rfc_9293_puts_them() {
        let h = Header::read(&[
            0xc0, 1, 1, 0xbb, 0, 0, 0, 9, 0, 0, 1, 0, 0xa3, 0x12, 0xff, 0xfe, 0xab, 0xcd, 0, 5,
        ]);
        assert_eq!(
            (h.src_port, h.dst_port, h.sequence, h.acknowledgment),
            (0xc001, 443, 9, 256)
        );
        assert_eq!((h.data_offset, h.reserved, h.flags), (10, 3, FLAG_SYN | FLAG_ACK));
        assert_eq!((h.window, h.checksum, h.urgent), (0xfffe, [0xab, 0xcd], 5));
        assert_eq!(h.header_len(40), Some(40));
        assert_eq!(h.header_len(39), None);
        assert_eq!(Header { data_offset: 4, ..h }.header_len(100), None);
    }

    #[test]
    fn the_options_of_a_linux_syn() {
        let want = Options {
            mss: Some(1460),
            window_scale: Some(7),
            timestamps: Some((1, 0)),
        };
        assert_eq!(read_options(&LINUX_SYN_OPTIONS), want);
    }

    #[test]
    fn an_option_length_of_0_or_1_or_past_the_data_offset_stops_the_walk() {
        let before = Options {
            window_scale: Some(7),
            ..Options::default()
        };
        for bad in [[8, 0], [8, 1], [8, 10], [8, 255]] {
            let bytes = [&[3, 3, 7][..], &bad, &[0; 4]].concat();
            assert_eq!(read_options(&bytes), before, "{bad:?}");
        }
        assert_eq!(read_options(&[3, 3, 7, 8]), before);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: [u8; HEADER_LEN]) {
            let mut out = [0; HEADER_LEN];
            Header::read(&bytes).write(&mut out);
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn options_of_every_kind_agree_with_etherparse(
            list in proptest::collection::vec(prop_oneof![
                Just(vec![1]),
                any::<[u8; 2]>().prop_map(|mss| [&[2, 4][..], &mss].concat()),
                any::<u8>().prop_map(|shift| vec![3, 3, shift]),
                Just(vec![4, 2]),
                any::<[u8; 8]>().prop_map(|times| [&[8, 10][..], &times].concat()),
                any::<[u8; 8]>().prop_map(|edges| [&[5, 10][..], &edges].concat()),
            ], 0..6),
            cut in 0usize..3,
        ) {
            use etherparse::{TcpOptionElement, TcpOptionsIterator};
            let mut bytes = list.concat();
            bytes.truncate(40);
            bytes.truncate(bytes.len().saturating_sub(cut));
            let mut want = Options::default();
            for element in TcpOptionsIterator::from_slice(&bytes) {
                match element {
                    Ok(TcpOptionElement::MaximumSegmentSize(mss)) => want.mss = Some(mss),
                    Ok(TcpOptionElement::WindowScale(shift)) => want.window_scale = Some(shift),
                    Ok(TcpOptionElement::Timestamp(a, b)) => want.timestamps = Some((a, b)),
                    Ok(_) => {}
                    // Cut short: both stop here.
                    Err(_) => break,
                }
            }
            prop_assert_eq!(read_options(&bytes), want);
        }

        #[test]
        fn any_options_end(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let _ = read_options(&bytes);
        }
    }
}
