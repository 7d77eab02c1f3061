//! Types that are a row of plain fields, as a table: those of IANA's registry that the `domain` crate does not read
//! from zone files, or not as RFC 4034 writes them. Called by `rdata::parse`.

use super::{ScanError, Tokens, loc};
use domain::base::iana::Rtype;
use domain::base::scan::{Scan, Scanner, ScannerError};
use domain::rdata::dnssec::{RtypeBitmap, Timestamp};
use domain::utils::{base16, base64};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    U8,
    U16,
    U32,
    /// A name, never compressed.
    Name,
    /// A string of up to 255 octets.
    Str,
    /// Strings up to the end, possibly none.
    Strs,
    /// One token as it is, up to the end of RDATA (URI).
    Text,
    /// Hexadecimal to the end, so many octets at least.
    Hex(usize),
    /// Base 64 to the end, one octet at least.
    Base64,
    /// A key in base 64 to the end; none where flags say so (RFC 2535 section 3.1.2).
    Key,
    V4,
    /// Four groups of 16 bits, as in IPv6 (RFC 6742).
    Locator,
    /// Octets with dashes: EUI-48 and EUI-64 (RFC 7043).
    Octets(usize),
    /// `0x`, then hexadecimal with dots (RFC 1706).
    Nsap,
    /// A certificate type (RFC 4398 section 2.1), by name or number.
    CertType,
    /// A DNSSEC algorithm in 8 bits, by name or number.
    Algorithm,
    /// Seconds since 1970, or a date (RFC 4034 section 3.2).
    Time,
    /// A record type, by name or number.
    Type,
    /// NOTIFY or a number (RFC 9859).
    Scheme,
    /// Bit map of types (RFC 4034 section 4.1.2).
    Types,
    /// TCP, UDP or a number, then port numbers (RFC 1035 section 3.4.2).
    Services,
    /// Address prefixes (RFC 3123).
    Prefixes,
    /// A location (RFC 1876).
    Place,
    /// Host identity: algorithm, tag and key, each with its length before it (RFC 8005).
    HostIdentity,
    /// Names up to the end, possibly none.
    Names,
    /// Discovery bit and type of a relay, and the relay (RFC 8777).
    Relay,
}

/// The fields of a type; `None` if it is the `domain` crate's, or unknown.
pub(super) fn of(rtype: Rtype) -> Option<&'static [Field]> {
    use Field::*;
    Some(match rtype {
        Rtype::WKS => &[V4, Services],
        Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => &[U16, Name],
        Rtype::X25 => &[Str],
        Rtype::ISDN => &[Str, Strs],
        Rtype::NSAP => &[Nsap],
        Rtype::NSAPPTR => &[Name],
        Rtype::PX => &[U16, Name, Name],
        Rtype::GPOS => &[Str, Str, Str],
        Rtype::LOC => &[Place],
        Rtype::CERT => &[CertType, U16, Algorithm, Base64],
        Rtype::APL => &[Prefixes],
        Rtype::DHCID | Rtype::HHIT | Rtype::BRID => &[Base64],
        Rtype::HIP => &[HostIdentity, Names],
        Rtype::TALINK => &[Name, Name],
        Rtype::CSYNC => &[U32, U16, Types],
        Rtype::DSYNC => &[Type, Scheme, U16, Name],
        Rtype::NID | Rtype::L64 => &[U16, Locator],
        Rtype::L32 => &[U16, V4],
        Rtype::EUI48 => &[Octets(6)],
        Rtype::EUI64 => &[Octets(8)],
        Rtype::URI => &[U16, U16, Text],
        Rtype::AMTRELAY => &[U8, Relay],
        Rtype::SPF | Rtype::AVC | Rtype::RESINFO | Rtype::WALLET | Rtype::NINFO | Rtype::CLA => &[Str, Strs],
        Rtype::TLSA | Rtype::SMIMEA => &[U8, U8, U8, Hex(1)],
        Rtype::SSHFP => &[U8, U8, Hex(1)],
        Rtype::OPENPGPKEY => &[Base64],
        // RFC 8976 section 2.2.4: a digest has 12 octets or more.
        Rtype::ZONEMD => &[U32, U8, U8, Hex(12)],
        Rtype::DS | Rtype::CDS | Rtype::TA | Rtype::DLV => &[U16, Algorithm, U8, Hex(1)],
        Rtype::DNSKEY | Rtype::CDNSKEY | Rtype::KEY => &[U16, U8, Algorithm, Key],
        Rtype::RRSIG | Rtype::SIG => &[Type, Algorithm, U8, U32, Time, Time, U16, Name, Base64],
        _ => return None,
    })
}

/// Names of certificate types.
const CERTS: [(&str, u16); 10] = [
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

/// Names of algorithms (IANA, "DNS Security Algorithm Numbers").
const ALGORITHMS: [(&str, u8); 15] = [
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// Parses one field.
pub(super) fn parse(field: Field, scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    match field {
        Field::U8 => wire.push(u8::scan(scanner)?),
        Field::U16 => wire.extend_from_slice(&u16::scan(scanner)?.to_be_bytes()),
        Field::U32 => wire.extend_from_slice(&u32::scan(scanner)?.to_be_bytes()),
        Field::Name => wire.extend_from_slice(scanner.scan_name()?.as_slice()),
        Field::Names => {
            while scanner.continues() {
                wire.extend_from_slice(scanner.scan_name()?.as_slice());
            }
        }
        Field::Str => string(&scanner.scan_octets()?, wire)?,
        Field::Strs => {
            while scanner.continues() {
                string(&scanner.scan_octets()?, wire)?;
            }
        }
        Field::Text => match scanner.scan_octets()? {
            text if text.is_empty() => return Err(ScanError("an empty target")),
            text => wire.extend_from_slice(&text),
        },
        Field::Hex(least) => {
            let octets = scanner.convert_entry(base16::SymbolConverter::new())?;
            if octets.len() < least {
                return Err(ScanError("too few octets"));
            }
            wire.extend_from_slice(&octets);
        }
        Field::Base64 | Field::Key => {
            let octets = scanner.convert_entry(base64::SymbolConverter::new())?;
            if octets.is_empty() && field == Field::Base64 {
                return Err(ScanError::end_of_entry());
            }
            wire.extend_from_slice(&octets);
        }
        Field::V4 => wire.extend_from_slice(&address::<Ipv4Addr>(scanner, "not an IPv4 address")?.octets()),
        Field::Locator => locator(&word(scanner)?, wire)?,
        Field::Octets(count) => octets(&word(scanner)?, count, wire)?,
        Field::Nsap => {
            let text = word(scanner)?.replace('.', "");
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
            hex(digits.unwrap_or(""), wire)?;
        }
        Field::CertType => {
            let text = word(scanner)?;
            let known = CERTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
            let value = known.map(|(_, value)| *value).or_else(|| text.parse().ok());
            let value = value.ok_or(ScanError("not a certificate type such as PKIX or 1"))?;
            wire.extend_from_slice(&value.to_be_bytes());
        }
        Field::Algorithm => {
            let text = word(scanner)?;
            let known = ALGORITHMS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(&text));
            let value = known.map(|(_, value)| *value).or_else(|| text.parse().ok());
            wire.push(value.ok_or(ScanError("not an algorithm such as ED25519 or 15"))?);
        }
        Field::Time => wire.extend_from_slice(&Timestamp::scan(scanner)?.into_int().to_be_bytes()),
        Field::Type => {
            let rtype: Result<Rtype, _> = word(scanner)?.parse();
            let rtype = rtype.map_err(|_| ScanError("not a record type"))?;
            wire.extend_from_slice(&rtype.to_int().to_be_bytes());
        }
        Field::Scheme => {
            let text = word(scanner)?;
            let value = match text.eq_ignore_ascii_case("NOTIFY") {
                true => 1,
                false => text
                    .parse()
                    .map_err(|_| ScanError("not a scheme: NOTIFY or a number"))?,
            };
            wire.push(value);
        }
        Field::Types => {
            let types = RtypeBitmap::scan(scanner)?;
            wire.extend_from_slice(types.as_slice());
        }
        Field::Services => services(scanner, wire)?,
        Field::Prefixes => {
            while scanner.continues() {
                prefix(&word(scanner)?, wire)?;
            }
        }
        Field::Place => loc::parse(scanner, wire)?,
        Field::HostIdentity => host_identity(scanner, wire)?,
        Field::Relay => relay(scanner, wire)?,
    }
    Ok(())
}

/// A token as text.
pub(super) fn word(scanner: &mut Tokens<'_>) -> Result<String, ScanError> {
    scanner.scan_ascii_str(|text| Ok(text.to_owned()))
}

fn address<T: std::str::FromStr>(scanner: &mut Tokens<'_>, wrong: &'static str) -> Result<T, ScanError> {
    word(scanner)?.parse().map_err(|_| ScanError(wrong))
}

fn string(octets: &[u8], wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let len = u8::try_from(octets.len()).map_err(|_| ScanError("string longer than 255 octets"))?;
    wire.push(len);
    wire.extend_from_slice(octets);
    Ok(())
}

fn hex(digits: &str, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    const WRONG: ScanError = ScanError("not hexadecimal octets");
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err(WRONG);
    }
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    for pair in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(WRONG);
        let [high, low] = *pair;
        wire.push((digit(high)? << 4 | digit(low)?) as u8);
    }
    Ok(())
}

fn locator(text: &str, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    const WRONG: ScanError = ScanError("not four groups of hexadecimal digits such as 2001:db8:1140:1000");
    let groups: Vec<&str> = text.split(':').collect();
    if groups.len() != 4 {
        return Err(WRONG);
    }
    for group in groups {
        let fine = (1..=4).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_hexdigit());
        let value = u16::from_str_radix(group, 16).ok().filter(|_| fine);
        wire.extend_from_slice(&value.ok_or(WRONG)?.to_be_bytes());
    }
    Ok(())
}

fn octets(text: &str, count: usize, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() != count || parts.iter().any(|part| part.len() != 2) {
        return Err(ScanError("not octets with dashes such as 00-00-5e-00-53-2a"));
    }
    parts.iter().try_for_each(|part| hex(part, wire))
}

/// Protocol and bit map of ports.
fn services(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let protocol = word(scanner)?;
    wire.push(match protocol.to_ascii_uppercase().as_str() {
        "TCP" => 6,
        "UDP" => 17,
        other => other
            .parse()
            .map_err(|_| ScanError("not a protocol: TCP, UDP or a number"))?,
    });
    let mut ports = Vec::new();
    while scanner.continues() {
        let port: u16 = word(scanner)?
            .parse()
            .map_err(|_| ScanError("not a port number"))?;
        let at = usize::from(port / 8);
        if ports.len() <= at {
            ports.resize(at + 1, 0u8);
        }
        ports[at] |= 0x80 >> (port % 8);
    }
    wire.extend_from_slice(&ports);
    Ok(())
}

/// `[!]FAMILY:ADDRESS/LENGTH`.
fn prefix(text: &str, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    const WRONG: ScanError = ScanError("not a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32");
    let (negated, rest) = text.strip_prefix('!').map_or((0, text), |rest| (0x80, rest));
    let (family, rest) = rest.split_once(':').ok_or(WRONG)?;
    let (address, length) = rest.split_once('/').ok_or(WRONG)?;
    let (family, octets): (u16, Vec<u8>) = match (family, address.parse().map_err(|_| WRONG)?) {
        ("1", IpAddr::V4(address)) => (1, address.octets().to_vec()),
        ("2", IpAddr::V6(address)) => (2, address.octets().to_vec()),
        _ => return Err(WRONG),
    };
    let length: u8 = length.parse().map_err(|_| WRONG)?;
    if usize::from(length) > octets.len() * 8 {
        return Err(WRONG);
    }
    // Trailing zero octets are left out (RFC 3123 section 4).
    let kept = octets.len() - octets.iter().rev().take_while(|&&octet| octet == 0).count();
    wire.extend_from_slice(&family.to_be_bytes());
    wire.extend_from_slice(&[length, negated | kept as u8]);
    wire.extend_from_slice(&octets[..kept]);
    Ok(())
}

/// Algorithm, tag in hexadecimal, key in base 64, one token each (RFC 8005 section 6).
fn host_identity(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let algorithm = u8::scan(scanner)?;
    let mut tag = Vec::new();
    hex(&word(scanner)?, &mut tag)?;
    let key = scanner.convert_token(base64::SymbolConverter::new())?;
    let tag_len = u8::try_from(tag.len()).map_err(|_| ScanError("tag longer than 255 octets"))?;
    let key_len = u16::try_from(key.len()).map_err(|_| ScanError("key longer than 65,535 octets"))?;
    wire.extend_from_slice(&[tag_len, algorithm]);
    wire.extend_from_slice(&key_len.to_be_bytes());
    wire.extend_from_slice(&tag);
    wire.extend_from_slice(&key);
    Ok(())
}

/// Discovery bit, type, and the relay of that type (RFC 8777 section 4.3).
fn relay(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    let discovery = match u8::scan(scanner)? {
        bit @ 0..=1 => bit << 7,
        _ => return Err(ScanError("the discovery bit is 0 or 1")),
    };
    let kind = u8::scan(scanner)?;
    wire.push(discovery | kind);
    match kind {
        0 => match word(scanner)?.as_str() {
            "." => {}
            _ => return Err(ScanError("without a relay this is `.`")),
        },
        1 => wire.extend_from_slice(&address::<Ipv4Addr>(scanner, "not an IPv4 address")?.octets()),
        2 => wire.extend_from_slice(&address::<Ipv6Addr>(scanner, "not an IPv6 address")?.octets()),
        3 => wire.extend_from_slice(scanner.scan_name()?.as_slice()),
        _ => return Err(ScanError("types of relays are 0 to 3")),
    }
    Ok(())
}

/// Whether wire RDATA, written in the generic form, can be of these fields.
pub(super) fn check(fields: &[Field], wire: &[u8]) -> bool {
    fn rest<'a>(field: Field, wire: &'a [u8]) -> Option<&'a [u8]> {
        let skip = |count: usize| wire.get(count..);
        let string = |wire: &'a [u8]| -> Option<&'a [u8]> {
            let len = usize::from(*wire.first()?);
            wire.get(1 + len..)
        };
        let name = |wire: &'a [u8]| wire.get(dataplane::wire::dns::name_len(wire).ok()?..);
        let all = |take: &dyn Fn(&'a [u8]) -> Option<&'a [u8]>| {
            let mut left = wire;
            while !left.is_empty() {
                left = take(left)?;
            }
            Some(left)
        };
        match field {
            Field::U8 | Field::Algorithm | Field::Scheme => skip(1),
            Field::U16 | Field::CertType | Field::Type => skip(2),
            Field::U32 | Field::V4 | Field::Time => skip(4),
            Field::Locator => skip(8),
            Field::Octets(count) => skip(count),
            Field::Name => name(wire),
            Field::Names => all(&name),
            Field::Str => string(wire),
            Field::Strs => all(&string),
            Field::Text | Field::Nsap | Field::Base64 => (!wire.is_empty()).then_some(&[]),
            Field::Hex(least) => (wire.len() >= least).then_some(&[]),
            Field::Key => Some(&[]),
            Field::Services => skip(1).map(|_| &[][..]),
            Field::Place => (wire.first() != Some(&0) || wire.len() == 16).then_some(&[]),
            Field::Types => all(&|w| {
                let [_, len, rest @ ..] = w else { return None };
                rest.get(usize::from(*len)..).filter(|_| (1..=32).contains(len))
            }),
            Field::Prefixes => all(&|w| {
                let [_, _, _, len, rest @ ..] = w else { return None };
                rest.get(usize::from(len & 0x7f)..)
            }),
            Field::HostIdentity => {
                let [tag, _, k0, k1, rest @ ..] = wire else {
                    return None;
                };
                rest.get(usize::from(*tag) + usize::from(u16::from_be_bytes([*k0, *k1]))..)
            }
            Field::Relay => match wire.first()? & 0x7f {
                0 => skip(1),
                1 => skip(5),
                2 => skip(17),
                3 => name(skip(1)?),
                _ => None,
            },
        }
    }
    let mut left = Some(wire);
    for field in fields {
        left = left.and_then(|wire| rest(*field, wire));
    }
    left.is_some_and(<[u8]>::is_empty)
}
