//! Messages as text: mnemonics, names, options. Called by [`super::Reply::line`] and by tests that say what they asked.

use super::rtype;
use std::fmt::Write as _;

/// Mnemonic of an RCODE (IANA).
pub fn rcode_name(rcode: u16) -> String {
    let names = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN",
    ];
    match (names.get(usize::from(rcode)), rcode) {
        (Some(name), _) => (*name).to_owned(),
        (None, 9) => "NOTAUTH".into(),
        (None, 16) => "BADVERS".into(),
        (None, 23) => "BADCOOKIE".into(),
        (None, other) => format!("RCODE{other}"),
    }
}

/// Mnemonic of a type, or TYPEn (RFC 3597).
pub fn type_name(rtype: u16) -> String {
    let known = [
        (rtype::A, "A"),
        (rtype::NS, "NS"),
        (rtype::CNAME, "CNAME"),
        (rtype::SOA, "SOA"),
        (rtype::PTR, "PTR"),
        (rtype::HINFO, "HINFO"),
        (rtype::MX, "MX"),
        (rtype::TXT, "TXT"),
        (rtype::AAAA, "AAAA"),
        (rtype::SRV, "SRV"),
        (rtype::DNAME, "DNAME"),
        (rtype::DS, "DS"),
        (rtype::HTTPS, "HTTPS"),
        (rtype::CAA, "CAA"),
    ];
    let name = known.iter().find(|(known, _)| *known == rtype);
    name.map_or_else(|| format!("TYPE{rtype}"), |(_, name)| (*name).to_owned())
}

/// A name as text, without the last dot; what is not a letter, digit, `-`, `_` or `*` as `\DDD`.
pub fn name_text(wire: &[u8]) -> String {
    let (mut text, mut at) = (String::new(), 0);
    while let Some(length) = wire.get(at).map(|l| usize::from(*l)).filter(|l| *l > 0) {
        if at > 0 {
            text.push('.');
        }
        for byte in wire.get(at + 1..at + 1 + length).unwrap_or(&[]) {
            match byte {
                b'-' | b'_' | b'*' => text.push(char::from(*byte)),
                b if b.is_ascii_alphanumeric() => text.push(char::from(*b)),
                other => {
                    let _ = write!(text, "\\{other:03}");
                }
            }
        }
        at += 1 + length;
    }
    if text.is_empty() { ".".into() } else { text }
}

pub(super) fn option_text(code: u16, data: &[u8]) -> String {
    match (code, data) {
        (3, text) => format!("nsid={}", String::from_utf8_lossy(text)),
        (8, [0, family @ 1..=2, source, scope, address @ ..]) => {
            let mut octets = address.to_vec();
            octets.resize(if *family == 1 { 4 } else { 16 }, 0);
            let address: std::net::IpAddr = match <[u8; 4]>::try_from(&octets[..]) {
                Ok(v4) => v4.into(),
                Err(_) => <[u8; 16]>::try_from(&octets[..]).unwrap_or([0; 16]).into(),
            };
            format!("ecs={address}/{source}/{scope}")
        }
        (10, cookie) => format!("cookie={}", cookie.len()),
        (11, [high, low]) => format!("keepalive={}", u16::from_be_bytes([*high, *low])),
        (15, [high, low, ..]) => format!("ede={}", u16::from_be_bytes([*high, *low])),
        _ => format!("{code}={}", hex(data)),
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
