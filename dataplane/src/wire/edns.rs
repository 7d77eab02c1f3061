//! EDNS on the wire (RFC 6891): the OPT record, its options, and client subnet (RFC 7871).
//!
//! Called by `stages::dns_answer` and pktgen. Parses into plain values; decides nothing.

use super::dns::{be16, put16};

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
}

/// A client subnet option (RFC 7871 section 6), validated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSubnet {
    /// 1 for IPv4, 2 for IPv6, 0 for the opt-out form with no address.
    pub family: u8,
    /// SOURCE PREFIX-LENGTH, bits.
    pub source: u8,
    /// The address, left-aligned, zero beyond `source` bits.
    pub address: [u8; 16],
}

/// What a query says by edns-tcp-keepalive (RFC 7828 section 3.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keepalive {
    /// Nothing.
    #[default]
    Absent,
    /// It asks for the idle timeout.
    Asked,
    /// It names one itself, which only servers may: FORMERR over TCP; over UDP the option means nothing.
    WithData,
}

/// What a query's OPT record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edns {
    /// EDNS version; above 0 is BADVERS.
    pub version: u8,
    /// DO bit (RFC 3225).
    pub dnssec_ok: bool,
    /// The requestor asked for NSID.
    pub nsid: bool,
    /// edns-tcp-keepalive.
    pub keepalive: Keepalive,
    /// Requestor's UDP payload size as sent, bytes.
    pub udp_size: u16,
    /// Client subnet, if one was sent.
    pub subnet: Option<ClientSubnet>,
}

/// The OPT record cannot be read: FORMERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEdns;

/// Parses an OPT record's class, TTL and RDATA. Unknown options are skipped (RFC 6891 section 6.1.2); of
/// several client subnets the first counts.
///
/// # Errors
/// [`BadEdns`] when an option overruns RDATA, a client subnet is invalid (RFC 7871 section 7.1.2 and
/// 6), or a cookie has a length that RFC 7873 section 4 forbids. The version is not judged, and for a
/// version above 0 the options are not read.
pub fn parse(class: u16, ttl: u32, rdata: &[u8]) -> Result<Edns, BadEdns> {
    let mut edns = Edns {
        version: (ttl >> 16) as u8,
        dnssec_ok: ttl & 0x8000 != 0,
        nsid: false,
        keepalive: Keepalive::Absent,
        udp_size: class,
        subnet: None,
    };
    if edns.version > 0 {
        return Ok(edns);
    }
    let mut rest = rdata;
    // Each turn consumes 4 bytes or more, so the loop is bounded by RDATA.
    while !rest.is_empty() {
        let Some((head, tail)) = rest.split_first_chunk::<4>() else {
            return Err(BadEdns);
        };
        let [c0, c1, l0, l1] = *head;
        let len = u16::from_be_bytes([l0, l1]) as usize;
        let Some((data, next)) = tail.split_at_checked(len) else {
            return Err(BadEdns);
        };
        match u16::from_be_bytes([c0, c1]) {
            option::ECS if edns.subnet.is_none() => edns.subnet = Some(parse_subnet(data)?),
            option::ECS => {
                parse_subnet(data)?;
            }
            option::NSID => edns.nsid = true,
            option::KEEPALIVE if len == 0 => edns.keepalive = Keepalive::Asked,
            option::KEEPALIVE => edns.keepalive = Keepalive::WithData,
            option::COOKIE if !matches!(len, 8 | 16..=40) => return Err(BadEdns),
            _ => {}
        }
        rest = next;
    }
    Ok(edns)
}

/// Parses the data of a client subnet option (RFC 7871 section 6).
///
/// # Errors
/// [`BadEdns`] for a wrong length, unknown family with a prefix, prefix too long, bits set past the
/// prefix, or a SCOPE that is not 0 in a query.
pub fn parse_subnet(data: &[u8]) -> Result<ClientSubnet, BadEdns> {
    let (head, address) = data.split_first_chunk::<4>().ok_or(BadEdns)?;
    let [f0, f1, source, scope] = *head;
    let family = u16::from_be_bytes([f0, f1]);
    let bits_max = match family {
        1 => 32,
        2 => 128,
        // Seen in the field as an opt-out: no family, no address.
        0 if source == 0 => 0,
        _ => return Err(BadEdns),
    };
    if scope != 0 || source > bits_max || address.len() != (source as usize).div_ceil(8) {
        return Err(BadEdns);
    }
    let mut out = ClientSubnet {
        family: family as u8,
        source,
        address: [0; 16],
    };
    for (to, from) in out.address.iter_mut().zip(address) {
        *to = *from;
    }
    let spare = (8 - source % 8) % 8;
    match address.last() {
        Some(last) if last & ((1u16 << spare) - 1) as u8 != 0 => Err(BadEdns),
        _ => Ok(out),
    }
}

/// Writes an OPT record header at `at`: owner root, our UDP size, extended RCODE, version 0, DO, and
/// RDLENGTH 0. Returns the offset behind it. The caller has checked the room.
#[inline]
pub fn put_opt(message: &mut [u8], at: usize, udp_size: u16, rcode_high: u8, dnssec_ok: bool) -> usize {
    if let Some(b) = message.get_mut(at..).and_then(|b| b.first_chunk_mut::<OPT_LEN>()) {
        let [s0, s1] = udp_size.to_be_bytes();
        *b = [0, 0, 41, s0, s1, rcode_high, 0, (dnssec_ok as u8) << 7, 0, 0, 0];
    }
    at + OPT_LEN
}

/// Appends a client subnet option with `scope` at `at` and adds its length to the RDLENGTH of the OPT
/// record at `opt`. Returns the offset behind it.
#[inline]
pub fn put_subnet(message: &mut [u8], opt: usize, at: usize, subnet: &ClientSubnet, scope: u8) -> usize {
    let octets = (subnet.source as usize).div_ceil(8);
    if let Some(b) = message.get_mut(at..).and_then(|b| b.first_chunk_mut::<24>()) {
        let (head, address) = b.split_at_mut(8);
        head.copy_from_slice(&[0, 8, 0, 4 + octets as u8, 0, subnet.family, subnet.source, scope]);
        address.copy_from_slice(&subnet.address);
    }
    let len = 8 + octets;
    let rdlen = be16(message, opt + 9);
    put16(message, opt + 9, rdlen.wrapping_add(len as u16));
    at + len
}

/// Appends an option with `data` at `at` and adds its length to the RDLENGTH of the OPT record at `opt`.
/// Returns the offset behind it; without room nothing is written and `at` returned.
pub fn put_option(message: &mut [u8], opt: usize, at: usize, code: u16, data: &[u8]) -> usize {
    let len = 4 + data.len();
    let Some(to) = message.get_mut(at..at + len) else {
        return at;
    };
    let (head, body) = to.split_at_mut(4);
    let [c0, c1] = code.to_be_bytes();
    let [l0, l1] = (data.len() as u16).to_be_bytes();
    head.copy_from_slice(&[c0, c1, l0, l1]);
    body.copy_from_slice(data);
    let rdlen = be16(message, opt + 9);
    put16(message, opt + 9, rdlen.wrapping_add(len as u16));
    at + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subnet_of_rfc_7871() {
        // 192.0.2.0/24 as a query carries it: family 1, source 24, scope 0, three octets.
        let ok = parse_subnet(&[0, 1, 24, 0, 192, 0, 2]).unwrap();
        assert_eq!(
            (ok.family, ok.source, &ok.address[..4]),
            (1, 24, &[192, 0, 2, 0][..])
        );
        for (what, bad) in [
            ("short", &[0, 1, 24][..]),
            ("scope set", &[0, 1, 24, 24, 192, 0, 2]),
            ("too few octets", &[0, 1, 24, 0, 192, 0]),
            ("too many octets", &[0, 1, 24, 0, 192, 0, 2, 0]),
            ("bits past the prefix", &[0, 1, 23, 0, 192, 0, 3]),
            ("v4 over 32", &[0, 1, 33, 0, 1, 2, 3, 4, 128]),
            ("family 3", &[0, 3, 8, 0, 1]),
            ("family 0 with a prefix", &[0, 0, 8, 0, 1]),
        ] {
            assert_eq!(parse_subnet(bad), Err(BadEdns), "{what}");
        }
        assert!(parse_subnet(&[0, 0, 0, 0]).is_ok());
        assert!(parse_subnet(&[0, 1, 0, 0]).is_ok());
        assert!(parse_subnet(&[0, 1, 1, 0, 0x80]).is_ok());
        assert_eq!(parse_subnet(&[0, 1, 1, 0, 0x40]), Err(BadEdns));
    }

    #[test]
    fn options_are_bounded() {
        assert_eq!(parse(1232, 0, &[0, 3, 0, 0]).map(|e| e.nsid), Ok(true));
        assert_eq!(parse(1232, 0, &[0, 3, 0]), Err(BadEdns));
        assert_eq!(parse(1232, 0, &[0, 99, 0, 2, 1]), Err(BadEdns));
        assert_eq!(
            parse(1232, 0x8000, &[0, 99, 0, 1, 1]).map(|e| e.dnssec_ok),
            Ok(true)
        );
        for (option, keepalive) in [
            (&[][..], Keepalive::Absent),
            (&[0, 11, 0, 0], Keepalive::Asked),
            (&[0, 11, 0, 2, 0, 100], Keepalive::WithData),
        ] {
            assert_eq!(parse(1232, 0, option).map(|e| e.keepalive), Ok(keepalive));
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
        fn subnet_round_trips(v6: bool, source in 0u8..=128, bytes: [u8; 16], scope: u8) {
            let bits = if v6 { 128 } else { 32 };
            let source = source.min(bits);
            let masked = if source == 0 { 0 } else { u128::from_be_bytes(bytes) & (u128::MAX << (128 - source as u32)) };
            let subnet = ClientSubnet { family: if v6 { 2 } else { 1 }, source, address: masked.to_be_bytes() };
            let mut message = vec![0xee; 64];
            let opt = 3;
            let at = put_opt(&mut message, opt, 1232, 0, true);
            let end = put_subnet(&mut message, opt, at, &subnet, scope);
            let rdlen = be16(&message, opt + 9) as usize;
            prop_assert_eq!(end, at + rdlen);
            // A reply's option is a query's with the scope set; clear it to read it back.
            prop_assert_eq!(message[at + 7], scope);
            message[at + 7] = 0;
            let read = parse(be16(&message, opt + 3), 0x8000, &message[at..end]).unwrap();
            prop_assert_eq!(read.subnet, Some(subnet));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..80), ttl: u32) {
            let _ = parse(512, ttl, &bytes);
            let _ = parse_subnet(&bytes);
        }
    }
}
