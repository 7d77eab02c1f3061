//! DNS messages on the wire (RFC 1035 section 4.1): header, names, questions, and skipping records.
//!
//! Called by `stages::dns_answer`, by control's DNS over TCP and by pktgen. Works on byte slices
//! that start at the message; reads are bounded, and total over any bytes.

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 12;
/// Longest name in wire form with its root label, bytes (RFC 1035 section 2.3.4).
pub const NAME_MAX: usize = 255;
/// Longest label, bytes.
pub const LABEL_MAX: usize = 63;
/// Room for a lower-cased name, padded with zeros to whole 32-byte blocks.
pub const NAME_ROOM: usize = 256;
/// Header, the longest question and its type and class: every fixed-offset read lies in it.
pub const QUESTION_ROOM: usize = HEADER_LEN + NAME_ROOM + 4 + 16;

/// RR types that the engine itself knows (IANA DNS parameters).
pub mod rtype {
    /// A host address (RFC 1035).
    pub const A: u16 = 1;
    /// An authoritative name server (RFC 1035).
    pub const NS: u16 = 2;
    /// The canonical name (RFC 1035).
    pub const CNAME: u16 = 5;
    /// Start of a zone of authority (RFC 1035).
    pub const SOA: u16 = 6;
    /// Host information (RFC 1035); the answer to ANY (RFC 8482).
    pub const HINFO: u16 = 13;
    /// Mail exchange (RFC 1035).
    pub const MX: u16 = 15;
    /// Text strings (RFC 1035).
    pub const TXT: u16 = 16;
    /// IPv6 host address (RFC 3596).
    pub const AAAA: u16 = 28;
    /// Subtree redirection (RFC 6672).
    pub const DNAME: u16 = 39;
    /// EDNS pseudo record (RFC 6891).
    pub const OPT: u16 = 41;
    /// Delegation signer (RFC 4034).
    pub const DS: u16 = 43;
    /// Incremental transfer (RFC 1995).
    pub const IXFR: u16 = 251;
    /// Transfer of a zone (RFC 5936).
    pub const AXFR: u16 = 252;
    /// Any type (RFC 8482).
    pub const ANY: u16 = 255;
}

/// The class of the Internet.
pub const CLASS_IN: u16 = 1;
/// The class CHAOS, which servers tell about themselves in (RFC 4892).
pub const CLASS_CH: u16 = 3;

/// Response codes (RFC 1035, RFC 6891).
pub mod rcode {
    /// No error.
    pub const NOERROR: u8 = 0;
    /// The query could not be read.
    pub const FORMERR: u8 = 1;
    /// The server failed.
    pub const SERVFAIL: u8 = 2;
    /// The name does not exist.
    pub const NXDOMAIN: u8 = 3;
    /// The kind of query is not implemented.
    pub const NOTIMP: u8 = 4;
    /// Refused by policy, or not served here.
    pub const REFUSED: u8 = 5;
    /// A DNAME makes a name that is too long (RFC 6672 section 3.2).
    pub const YXDOMAIN: u8 = 6;
    /// Extended: EDNS version not implemented; high bits 1, low bits 0.
    pub const BADVERS: u16 = 16;
    /// Extended: the server cookie is bad or missing (RFC 7873); high bits 1, low bits 7.
    pub const BADCOOKIE: u16 = 23;
}

/// Bits of the header's second 16-bit word.
pub mod flags {
    /// Response.
    pub const QR: u16 = 0x8000;
    /// Four bits of opcode.
    pub const OPCODE: u16 = 0x7800;
    /// Authoritative answer.
    pub const AA: u16 = 0x0400;
    /// Truncated.
    pub const TC: u16 = 0x0200;
    /// Recursion desired.
    pub const RD: u16 = 0x0100;
    /// Checking disabled.
    pub const CD: u16 = 0x0010;
}

/// Reads a big-endian word; 0 past the end (callers have checked the length).
#[inline(always)]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..).and_then(|b| b.first_chunk::<2>()) {
        Some(b) => u16::from_be_bytes(*b),
        None => 0,
    }
}

/// Writes a big-endian word; nothing past the end.
#[inline(always)]
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(b) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<2>()) {
        *b = value.to_be_bytes();
    }
}

/// A name that cannot be read: over 255 bytes, a pointer or reserved label type where none may be,
/// or cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

/// Lower-cases ASCII letters and nothing else (RFC 4343). Label lengths are below 64, so they stay.
#[inline(always)]
pub const fn lower(byte: u8) -> u8 {
    byte | ((byte.wrapping_sub(b'A') < 26) as u8) << 5
}

/// Length of the uncompressed name at the start of `bytes`, root label included.
///
/// # Errors
/// [`BadName`] for pointers, reserved label types, over 255 bytes, or when `bytes` ends first.
pub fn name_len(bytes: &[u8]) -> Result<usize, BadName> {
    let mut at = 0usize;
    // At most 128 labels fit into 255 bytes.
    loop {
        let len = *bytes.get(at).ok_or(BadName)?;
        if len == 0 {
            return if at < NAME_MAX { Ok(at + 1) } else { Err(BadName) };
        }
        if len as usize > LABEL_MAX {
            return Err(BadName);
        }
        at += 1 + len as usize;
        if at >= NAME_MAX {
            return Err(BadName);
        }
    }
}

/// The offset behind a name that may end in a compression pointer, from `at` on. The pointer is
/// not followed: to skip a record that is not needed.
///
/// # Errors
/// [`BadName`] when the message ends first, or for a reserved label type.
pub fn skip_name(message: &[u8], mut at: usize) -> Result<usize, BadName> {
    let end = at + NAME_MAX;
    while at < end {
        let len = *message.get(at).ok_or(BadName)?;
        match len >> 6 {
            0 if len == 0 => return Ok(at + 1),
            0 => at += 1 + len as usize,
            3 => return Ok(at + 2),
            _ => return Err(BadName),
        }
    }
    Err(BadName)
}

/// Where the labels of a name start: `offsets[i]` for the i-th label from the left, and how many
/// labels there are, root not counted.
pub fn label_offsets(name: &[u8], offsets: &mut [u8; 128]) -> usize {
    let mut at = 0usize;
    let mut count = 0usize;
    while let Some(&len) = name.get(at) {
        if len == 0 {
            break;
        }
        match offsets.get_mut(count) {
            // A valid name is at most 255 bytes, so an offset fits one byte.
            Some(slot) => *slot = at as u8,
            None => break,
        }
        count += 1;
        at += 1 + len as usize;
    }
    count
}

/// A resource record's fixed part, found by [`next_record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Offset of the owner name.
    pub owner: usize,
    /// RR type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// TTL, or for OPT the extended RCODE, version and flags.
    pub ttl: u32,
    /// Offset of RDATA.
    pub rdata: usize,
    /// Length of RDATA, bytes.
    pub rdlen: usize,
}

impl Record {
    /// Offset behind the record.
    pub fn end(&self) -> usize {
        self.rdata + self.rdlen
    }
}

/// Reads the record at `at` in `message` (RFC 1035 section 4.1.3).
///
/// # Errors
/// [`BadName`] when it is cut or its owner cannot be skipped.
pub fn next_record(message: &[u8], at: usize) -> Result<Record, BadName> {
    let fixed = skip_name(message, at)?;
    let b = message
        .get(fixed..)
        .and_then(|b| b.first_chunk::<10>())
        .ok_or(BadName)?;
    let [t0, t1, c0, c1, l0, l1, l2, l3, d0, d1] = *b;
    let record = Record {
        owner: at,
        rtype: u16::from_be_bytes([t0, t1]),
        class: u16::from_be_bytes([c0, c1]),
        ttl: u32::from_be_bytes([l0, l1, l2, l3]),
        rdata: fixed + 10,
        rdlen: u16::from_be_bytes([d0, d1]) as usize,
    };
    if record.end() > message.len() {
        return Err(BadName);
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lower_folds_ascii_letters_alone() {
        // RFC 4343 section 3: only 0x41 to 0x5A fold.
        for b in 0..=255u8 {
            assert_eq!(lower(b), b.to_ascii_lowercase(), "{b}");
        }
    }

    #[test]
    fn name_lengths() {
        assert_eq!(name_len(b"\x00rest"), Ok(1));
        assert_eq!(name_len(b"\x03www\x07example\x03com\x00"), Ok(17));
        assert_eq!(name_len(b"\x03ww"), Err(BadName));
        assert_eq!(name_len(b"\xc0\x0c"), Err(BadName));
        assert_eq!(name_len(b"\x40"), Err(BadName));
        assert_eq!(name_len(b"\x80a\x00"), Err(BadName));
        // 3 labels of 63 and one of 61: 3*64 + 62 + 1 = 255, the longest name.
        let mut name = Vec::new();
        for len in [63usize, 63, 63, 61] {
            name.push(len as u8);
            name.extend(std::iter::repeat_n(b'a', len));
        }
        name.push(0);
        assert_eq!(name.len(), 255);
        assert_eq!(name_len(&name), Ok(255));
        // One byte more does not fit.
        let mut long = Vec::new();
        for len in [63usize, 63, 63, 62] {
            long.push(len as u8);
            long.extend(std::iter::repeat_n(b'a', len));
        }
        long.push(0);
        assert_eq!(name_len(&long), Err(BadName));
    }

    #[test]
    fn skip_stops_at_pointer() {
        assert_eq!(skip_name(b"\x01a\xc0\x00zz", 0), Ok(4));
        assert_eq!(skip_name(b"\x01a\x00zz", 0), Ok(3));
        assert_eq!(skip_name(b"\x01a\x81", 0), Err(BadName));
        assert_eq!(skip_name(b"", 0), Err(BadName));
    }

    #[test]
    fn labels() {
        let mut offsets = [0; 128];
        assert_eq!(label_offsets(b"\x03www\x02ex\x00", &mut offsets), 2);
        assert_eq!(offsets[..2], [0, 4]);
        assert_eq!(label_offsets(b"\x00", &mut offsets), 0);
    }

    proptest! {
        #[test]
        fn readers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..700) {
            let _ = name_len(&bytes);
            if let Ok(end) = skip_name(&bytes, at) { prop_assert!(end > at); }
            if let Ok(r) = next_record(&bytes, at) { prop_assert!(r.end() <= bytes.len()); }
            let mut offsets = [0; 128];
            prop_assert!(label_offsets(&bytes, &mut offsets) <= 128);
        }
    }
}
