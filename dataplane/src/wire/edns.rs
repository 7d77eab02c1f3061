//! EDNS on the wire (RFC 6891): the OPT record, its options, and client subnet (RFC 7871).
//!
//! Called by `stages::dns_answer` and pktgen. Parses into plain values; decides nothing.

use super::dns::rtype;
use super::store;

use super::cookie::{self, COOKIE_LEN};

/// Length of an OPT record without options: root owner, type, class, TTL, RDLENGTH.
pub const OPT_LEN: usize = 11;

/// Option codes (IANA).
pub mod option {
    /// Name server identifier (RFC 5001).
    pub const NSID: u16 = 3;
    /// Client subnet (RFC 7871).
    pub const ECS: u16 = 8;
    /// Cookie (RFC 7873).
    pub const COOKIE: u16 = 10;
    /// edns-tcp-keepalive (RFC 7828).
    pub const KEEPALIVE: u16 = 11;
    /// Extended error (RFC 8914).
    pub const EXTENDED_ERROR: u16 = 15;
}

/// A client subnet option (RFC 7871 section 6), validated: as on the wire with code and length, SCOPE 0, and the
/// address padded to 16 bytes. Bytes of the address past its octets mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct ClientSubnet([u8; Self::LEN]);

impl ClientSubnet {
    /// Option code, length, family, two prefix lengths.
    const HEAD: usize = 8;
    const LEN: usize = Self::HEAD + 16;
    const NONE: Self = Self([0; Self::LEN]);

    /// 1 for IPv4, 2 for IPv6, 0 for the opt-out form with no address.
    #[inline(always)]
    pub fn family(&self) -> u8 {
        self.0[5]
    }

    /// SOURCE PREFIX-LENGTH, bits.
    #[inline(always)]
    pub fn source(&self) -> u8 {
        self.0[6]
    }

    /// Length of the option with code and length, bytes.
    #[inline(always)]
    pub fn wire_len(&self) -> usize {
        Self::HEAD + (self.source() as usize).div_ceil(8)
    }

    /// The address of family 1, zero beyond the prefix.
    #[inline(always)]
    pub fn v4(&self) -> [u8; 4] {
        let [.., a, b, c, d, _, _, _, _, _, _, _, _, _, _, _, _] = self.0;
        // At most 32 with this family.
        let mask = u64::MAX << (32u32.wrapping_sub(self.source() as u32) & 63);
        (u32::from_be_bytes([a, b, c, d]) & mask as u32).to_be_bytes()
    }

    /// The address of family 2, zero beyond the prefix.
    pub fn v6(&self) -> [u8; 16] {
        let address = self.0.last_chunk::<16>().copied().unwrap_or_default();
        let mask = u128::MAX.checked_shl(128 - (self.source() as u32).min(128));
        (u128::from_be_bytes(address) & mask.unwrap_or(0)).to_be_bytes()
    }

    /// Reads the option at the start of `bytes`, its code with it; bytes behind the option may be anything.
    ///
    /// # Errors
    /// [`BadEdns`] for a wrong length, unknown family with a prefix, prefix too long, bits set past the
    /// prefix, or a SCOPE that is not 0 in a query (RFC 7871 section 6 and 7.1.2).
    #[inline(always)]
    pub fn read(bytes: &[u8; Self::LEN]) -> Result<Self, BadEdns> {
        let [_, _, l0, l1, f0, family, source, scope, address @ ..] = *bytes;
        let octets = (source as usize).div_ceil(8);
        let len = u16::from_be_bytes([l0, l1]) as usize;
        if (f0 | scope != 0) | (len != 4 + octets) {
            return Err(BadEdns);
        }
        let good = if family == 1 {
            let [a, b, c, d, ..] = address;
            let left = (u32::from_be_bytes([a, b, c, d]) as u64) << 32;
            // What the option holds of it, with the prefix shifted out.
            source <= 32 && (left & !(u64::MAX >> (8 * octets))) << source == 0
        } else {
            Self::good_other(family, source, address)
        };
        if good { Ok(Self(*bytes)) } else { Err(BadEdns) }
    }

    #[inline(never)]
    fn good_other(family: u8, source: u8, address: [u8; 16]) -> bool {
        let octets = u32::from(source).div_ceil(8);
        let held = u128::from_be_bytes(address) & !u128::MAX.checked_shr(8 * octets).unwrap_or(0);
        match family {
            2 => source <= 128 && held.checked_shl(source.into()).unwrap_or(0) == 0,
            // Seen in the field as an opt-out: no family, no address.
            0 => source == 0,
            _ => false,
        }
    }
}

/// As much of an option as is looked at, bytes: code, length, a whole cookie.
const OPTION_ROOM: usize = 4 + COOKIE_LEN;

/// What a query's OPT record says.
#[derive(Clone, Copy, Debug)]
pub struct Edns {
    /// Which of these there were: [`Edns::PRESENT`] and the following.
    pub flags: u8,
    /// EDNS version; above 0 is BADVERS.
    pub version: u8,
    /// DO (RFC 3225): 0x80 or 0, as in the reply.
    pub dnssec_ok: u8,
    /// Requestor's UDP payload size as sent, bytes.
    pub udp_size: u16,
    /// With [`Edns::SUBNET`].
    pub subnet: ClientSubnet,
    /// With [`Edns::COOKIE`]: the client's, and the first 16 bytes of the server's behind it, if there is one. Once
    /// [`Edns::SETTLED`], what the reply has.
    pub cookie: [u8; COOKIE_LEN],
    /// Length of the option that it came in, bytes.
    pub cookie_len: u8,
}

impl Default for Edns {
    fn default() -> Self {
        Self {
            flags: 0,
            version: 0,
            dnssec_ok: 0,
            udp_size: 0,
            subnet: ClientSubnet::NONE,
            cookie: [0; COOKIE_LEN],
            cookie_len: 0,
        }
    }
}

/// The OPT record cannot be read: FORMERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEdns;

impl Edns {
    /// An OPT record was read. The other fields mean nothing without.
    pub const PRESENT: u8 = 1;
    /// The requestor asked for NSID.
    pub const NSID: u8 = 2;
    /// A client subnet was sent.
    pub const SUBNET: u8 = 4;
    /// edns-tcp-keepalive (RFC 7828 section 3.2.1): the client asks for the idle timeout.
    pub const KEEPALIVE: u8 = 8;
    /// It names one itself, which only servers may: FORMERR over TCP; over UDP the option means nothing.
    pub const KEEPALIVE_DATA: u8 = 16;
    /// A cookie was sent.
    pub const COOKIE: u8 = 32;
    /// The cookie was judged, and `cookie` is the reply's.
    pub const SETTLED: u8 = 64;
    /// With [`Edns::SETTLED`]: the query's cookie was good.
    pub const GOOD_COOKIE: u8 = 128;

    /// Whether `flag` is set.
    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Reads an OPT record whose class, TTL and RDLENGTH are the eight bytes of `fixed` and whose RDATA is
    /// `message[at..end]`, which lies in the message. Unknown options are skipped (RFC 6891 section 6.1.2); of several client
    /// subnets the first counts.
    ///
    /// # Errors
    /// [`BadEdns`] when an option overruns RDATA, a client subnet is invalid, or a cookie has a length that RFC 7873
    /// section 4 forbids. The version is not judged, and for a version above 0 the options are not read.
    #[inline(always)]
    pub fn read(&mut self, fixed: [u8; 8], message: &[u8], mut at: usize, end: usize) -> Result<(), BadEdns> {
        let [s0, s1, _, version, f0, _, _, _] = fixed;
        self.udp_size = u16::from_be_bytes([s0, s1]);
        self.version = version;
        self.dnssec_ok = f0 & 0x80;
        self.flags = Self::PRESENT;
        if version > 0 {
            return Ok(());
        }
        // Each turn consumes 4 bytes or more, so the loop is bounded by RDATA.
        while at < end {
            // Longer than most options, so that most are read in place; near the end of the buffer by a copy.
            let Some(bytes) = message.get(at..).and_then(|b| b.first_chunk::<OPTION_ROOM>()) else {
                return self.read_last(message.get(at..end).unwrap_or(&[]));
            };
            at = self.option(bytes, at, end)?;
        }
        Ok(())
    }

    /// Reads the option at the start of `bytes`, which is at `at`; the offset behind it.
    #[inline(always)]
    fn option(&mut self, bytes: &[u8; OPTION_ROOM], at: usize, end: usize) -> Result<usize, BadEdns> {
        let [c0, c1, l0, l1, ..] = *bytes;
        let len = u16::from_be_bytes([l0, l1]) as usize;
        let next = at + 4 + len;
        if next > end {
            return Err(BadEdns);
        }
        match u16::from_be_bytes([c0, c1]) {
            option::ECS => {
                let subnet = ClientSubnet::read(bytes.first_chunk().ok_or(BadEdns)?)?;
                if !self.has(Self::SUBNET) {
                    self.subnet = subnet;
                    self.flags |= Self::SUBNET;
                }
            }
            option::COOKIE => {
                if !matches!(len, cookie::CLIENT_LEN | 16..=40) {
                    return Err(BadEdns);
                }
                // Of several the first counts (RFC 7873 section 5.2).
                if !self.has(Self::COOKIE) {
                    self.cookie = *bytes.last_chunk().unwrap_or(&[0; COOKIE_LEN]);
                    self.cookie_len = len as u8;
                    self.flags |= Self::COOKIE;
                }
            }
            code => self.rare_option(code, len),
        }
        Ok(next)
    }

    /// An option that few queries have.
    #[inline(never)]
    fn rare_option(&mut self, code: u16, len: usize) {
        self.flags |= match code {
            option::NSID => Self::NSID,
            option::KEEPALIVE if len == 0 => Self::KEEPALIVE,
            option::KEEPALIVE => Self::KEEPALIVE_DATA,
            _ => 0,
        };
    }

    #[cold]
    #[inline(never)]
    fn read_last(&mut self, rest: &[u8]) -> Result<(), BadEdns> {
        let mut at = 0;
        while at < rest.len() {
            let left = rest.get(at..).unwrap_or(&[]);
            let mut bytes = [0; OPTION_ROOM];
            for (to, from) in bytes.iter_mut().zip(left) {
                *to = *from;
            }
            if left.len() < 4 {
                return Err(BadEdns);
            }
            at = self.option(&bytes, at, rest.len())?;
        }
        Ok(())
    }
}

/// Writes an OPT record header at `at`: owner root, our UDP size, extended RCODE, version 0, DO (0x80 or 0), and
/// RDLENGTH. Returns the offset behind it. The caller has checked the room.
#[inline(always)]
pub fn put_opt(
    message: &mut [u8],
    at: usize,
    udp_size: u16,
    rcode_high: u8,
    dnssec_ok: u8,
    rdlen: u16,
) -> usize {
    if let Some(b) = message.get_mut(at..).and_then(|b| b.first_chunk_mut::<OPT_LEN>()) {
        // Two words that overlap by one byte: two stores.
        let head = (rtype::OPT as u64) << 40
            | (udp_size as u64) << 24
            | (rcode_high as u64) << 16
            | dnssec_ok as u64;
        store::<0, OPT_LEN, 8>(b, head.to_be_bytes());
        store::<7, OPT_LEN, 4>(b, ((dnssec_ok as u32) << 24 | rdlen as u32).to_be_bytes());
    }
    at + OPT_LEN
}

/// Appends a client subnet option with `scope` at `at`. Returns the offset behind it; needs room for 24 bytes.
#[inline(always)]
pub fn put_subnet(message: &mut [u8], at: usize, subnet: &ClientSubnet, scope: u8) -> usize {
    if let Some(b) = message
        .get_mut(at..)
        .and_then(|b| b.first_chunk_mut::<{ ClientSubnet::LEN }>())
    {
        *b = subnet.0;
        b[7] = scope;
    }
    at + subnet.wire_len()
}

/// Appends an option with `data` at `at`. Returns the offset behind it; without room nothing is written and `at`
/// returned.
pub fn put_option(message: &mut [u8], at: usize, code: u16, data: &[u8]) -> usize {
    let len = 4 + data.len();
    let Some(to) = message.get_mut(at..at + len) else {
        return at;
    };
    let (head, body) = to.split_at_mut(4);
    let [c0, c1] = code.to_be_bytes();
    let [l0, l1] = (data.len() as u16).to_be_bytes();
    head.copy_from_slice(&[c0, c1, l0, l1]);
    body.copy_from_slice(data);
    at + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dns::be16;
    use proptest::prelude::*;

    /// Reads an OPT record whose RDATA is this, with stale bytes behind.
    fn parse(class: u16, ttl: u32, rdata: &[u8]) -> Result<Edns, BadEdns> {
        let mut message = rdata.to_vec();
        message.extend([0xa5; 40]);
        let mut fixed = [0; 8];
        fixed[..2].copy_from_slice(&class.to_be_bytes());
        fixed[2..6].copy_from_slice(&ttl.to_be_bytes());
        let mut edns = Edns::default();
        edns.read(fixed, &message, 0, rdata.len())?;
        // The same at the very end of the buffer.
        let mut last = Edns::default();
        last.read(fixed, rdata, 0, rdata.len())?;
        assert_eq!(
            (last.flags, last.subnet.0[4..7].to_vec()),
            (edns.flags, edns.subnet.0[4..7].to_vec())
        );
        Ok(edns)
    }

    fn parse_subnet(data: &[u8]) -> Result<ClientSubnet, BadEdns> {
        parse(1232, 0, &[&[0, 8, 0, data.len() as u8], data].concat()).map(|edns| edns.subnet)
    }

    #[test]
    fn subnet_of_rfc_7871() {
        // 192.0.2.0/24 as a query carries it: family 1, source 24, scope 0, three octets.
        let ok = parse_subnet(&[0, 1, 24, 0, 192, 0, 2]).unwrap();
        assert_eq!((ok.family(), ok.source(), ok.v4()), (1, 24, [192, 0, 2, 0]));
        for (what, bad) in [
            ("short", &[0, 1, 24][..]),
            ("scope set", &[0, 1, 24, 24, 192, 0, 2]),
            ("too few octets", &[0, 1, 24, 0, 192, 0]),
            ("too many octets", &[0, 1, 24, 0, 192, 0, 2, 0]),
            ("bits past the prefix", &[0, 1, 23, 0, 192, 0, 3]),
            ("v4 over 32", &[0, 1, 33, 0, 1, 2, 3, 4, 128]),
            (
                "v6 over 128",
                &[0, 2, 129, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
            ),
            ("family 3", &[0, 3, 8, 0, 1]),
            ("family 257", &[1, 1, 8, 0, 1]),
            ("family 0 with a prefix", &[0, 0, 8, 0, 1]),
        ] {
            assert!(parse_subnet(bad).is_err(), "{what}");
        }
        assert!(parse_subnet(&[0, 0, 0, 0]).is_ok());
        assert!(parse_subnet(&[0, 1, 0, 0]).is_ok());
        assert!(parse_subnet(&[0, 1, 1, 0, 0x80]).is_ok());
        assert!(parse_subnet(&[0, 1, 1, 0, 0x40]).is_err());
    }

    #[test]
    fn options_are_bounded() {
        assert!(parse(1232, 0, &[0, 3, 0, 0]).unwrap().has(Edns::NSID));
        assert!(parse(1232, 0, &[0, 3, 0]).is_err());
        assert!(parse(1232, 0, &[0, 99, 0, 2, 1]).is_err());
        assert_eq!(parse(1232, 0x8000, &[0, 99, 0, 1, 1]).unwrap().dnssec_ok, 0x80);
        for (option, keepalive) in [
            (&[][..], 0),
            (&[0, 11, 0, 0], Edns::KEEPALIVE),
            (&[0, 11, 0, 2, 0, 100], Edns::KEEPALIVE_DATA),
        ] {
            assert_eq!(parse(1232, 0, option).unwrap().flags, Edns::PRESENT | keepalive);
        }
        // RFC 7873 section 4: 8 bytes, or 16 to 40.
        for len in 0..=48usize {
            let mut opt = vec![0, 10, 0, len as u8];
            opt.extend(vec![7; len]);
            assert_eq!(
                parse(1232, 0, &opt).is_ok(),
                len == 8 || (16..=40).contains(&len),
                "{len}"
            );
        }
    }

    proptest! {
        #[test]
        fn subnet_round_trips(v6: bool, source in 0u8..=128, bytes: [u8; 16], scope: u8, dirty: bool) {
            let bits = if v6 { 128 } else { 32 };
            let source = source.min(bits);
            let masked = if source == 0 { 0 } else { u128::from_be_bytes(bytes) & (u128::MAX << (128 - source as u32)) };
            let octets = &masked.to_be_bytes()[..(source as usize).div_ceil(8)];
            let mut rdata = vec![0, 8, 0, 4 + octets.len() as u8, 0, if v6 { 2 } else { 1 }, source, 0];
            rdata.extend(octets);
            let sent = rdata.clone();
            if dirty {
                // What follows the option is none of its address.
                rdata.extend([0, 99, 0, 20]);
                rdata.extend([0xff; 20]);
            }
            let subnet = parse(1232, 0x8000, &rdata).unwrap().subnet;
            prop_assert_eq!((subnet.family(), subnet.source()), (if v6 { 2 } else { 1 }, source));
            if v6 {
                prop_assert_eq!(subnet.v6(), masked.to_be_bytes());
            } else {
                prop_assert_eq!(&subnet.v4()[..], &masked.to_be_bytes()[..4]);
            }
            let mut message = vec![0xee; 64];
            let at = put_opt(&mut message, 3, 1232, 0, 0x80, subnet.wire_len() as u16);
            let end = put_subnet(&mut message, at, &subnet, scope);
            prop_assert_eq!(be16(&message, 3 + 9) as usize, end - at);
            // A reply's option is a query's with the scope set; clear it to read it back.
            prop_assert_eq!(message[at + 7], scope);
            message[at + 7] = 0;
            prop_assert_eq!(&message[at..end], &sent[..]);
        }

        #[test]
        fn every_bit_past_the_prefix_is_found(v6: bool, source in 0u8..128, bytes: [u8; 16], bit in 0u32..8) {
            let source = if v6 { source } else { source % 32 };
            let octets = (source as usize).div_ceil(8);
            let spare = octets as u32 * 8 - source as u32;
            prop_assume!(spare > 0);
            let mask = if source == 0 { 0 } else { u128::MAX << (128 - source as u32) };
            let wrong = u128::from_be_bytes(bytes) & mask | 1u128 << (128 - octets as u32 * 8 + bit % spare);
            let mut data = vec![0, if v6 { 2 } else { 1 }, source, 0];
            data.extend(&wrong.to_be_bytes()[..octets]);
            prop_assert!(parse_subnet(&data).is_err());
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..80), ttl: u32) {
            let _ = parse(512, ttl, &bytes);
            let _ = parse_subnet(&bytes);
        }
    }
}
