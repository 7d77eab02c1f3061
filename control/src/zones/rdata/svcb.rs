//! SVCB and HTTPS (RFC 9460): SvcParams from presentation format, and what the wire form must keep to. Called by
//! `rdata::parse`.
//!
//! Not the `domain` crate's, which takes no key with a `9` or `z` in it and checks less.

use super::{ScanError, Tokens, base64_text};
use domain::base::scan::{Scan, Scanner};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;
const GROUPS: u16 = 9;

/// Names of keys (IANA, "Service Parameter Keys (SvcParamKeys)").
const KEYS: [(&str, u16); 10] = [
    ("mandatory", MANDATORY),
    ("alpn", ALPN),
    ("no-default-alpn", NO_DEFAULT_ALPN),
    ("port", PORT),
    ("ipv4hint", IPV4HINT),
    ("ech", ECH),
    ("ipv6hint", IPV6HINT),
    ("dohpath", DOHPATH),
    ("ohttp", OHTTP),
    ("tls-supported-groups", GROUPS),
];

/// Parses a record's fields into `wire`, with its parameters in ascending order.
pub(super) fn parse(scanner: &mut Tokens<'_>, wire: &mut Vec<u8>) -> Result<(), ScanError> {
    wire.extend_from_slice(&u16::scan(scanner)?.to_be_bytes());
    // The target is never compressed (RFC 9460 section 2.2), nor is any name of RDATA here.
    wire.extend_from_slice(scanner.scan_name()?.as_slice());
    let mut params: Vec<(u16, Vec<u8>)> = Vec::new();
    while scanner.continues() {
        let octets = scanner.scan_svcb_octets()?;
        let (name, text) = match octets.iter().position(|&byte| byte == b'=') {
            Some(at) => (&octets[..at], octets.get(at + 1..)),
            None => (&octets[..], None),
        };
        let (key, opaque) = key(name)?;
        if params.iter().any(|(known, _)| *known == key) {
            return Err(ScanError("this parameter is there twice"));
        }
        let text = text.unwrap_or_default();
        let value = if opaque { text.to_vec() } else { value(key, text)? };
        params.push((key, value));
    }
    params.sort_unstable();
    for (key, value) in &params {
        let len = u16::try_from(value.len()).map_err(|_| ScanError("value longer than 65,535 octets"))?;
        wire.extend_from_slice(&key.to_be_bytes());
        wire.extend_from_slice(&len.to_be_bytes());
        wire.extend_from_slice(value);
    }
    check(wire)
}

/// A key by its name, or as `keyNNN`: then its value is opaque (RFC 9460 section 2.1).
fn key(name: &[u8]) -> Result<(u16, bool), ScanError> {
    let name = std::str::from_utf8(name).map_err(|_| ScanError("not the name of a parameter"))?;
    if let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) {
        return Ok((*key, false));
    }
    let digits = name
        .strip_prefix("key")
        .filter(|d| *d == "0" || !d.starts_with('0'));
    let digits = digits.filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
    let key = digits.and_then(|d| d.parse().ok());
    key.map(|key| (key, true)).ok_or(ScanError(
        "not the name of a parameter: unknown ones are written key123=value",
    ))
}

/// The value of a parameter in wire form.
fn value(key: u16, text: &[u8]) -> Result<Vec<u8>, ScanError> {
    let mut wire = Vec::new();
    match key {
        MANDATORY => {
            let mut keys = list(text)?
                .iter()
                .map(|name| Ok(self::key(name)?.0))
                .collect::<Result<Vec<u16>, _>>()?;
            keys.sort_unstable();
            keys.iter()
                .for_each(|key| wire.extend_from_slice(&key.to_be_bytes()));
        }
        ALPN => {
            for id in list(text)? {
                let len = u8::try_from(id.len());
                wire.push(len.map_err(|_| ScanError("ALPN identifier longer than 255 octets"))?);
                wire.extend_from_slice(&id);
            }
        }
        PORT => wire.extend_from_slice(&number(text)?.to_be_bytes()),
        GROUPS => {
            for group in list(text)? {
                wire.extend_from_slice(&number(&group)?.to_be_bytes());
            }
        }
        IPV4HINT => {
            for address in list(text)? {
                wire.extend_from_slice(&address_of::<Ipv4Addr>(&address, "not an IPv4 address")?.octets());
            }
        }
        IPV6HINT => {
            for address in list(text)? {
                wire.extend_from_slice(&address_of::<Ipv6Addr>(&address, "not an IPv6 address")?.octets());
            }
        }
        ECH => wire = base64_text(text)?,
        _ => wire.extend_from_slice(text),
    }
    Ok(wire)
}

fn number(text: &[u8]) -> Result<u16, ScanError> {
    let digits = std::str::from_utf8(text).ok();
    let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let number = digits.and_then(|d| d.parse().ok());
    number.ok_or(ScanError("not a number up to 65535"))
}

fn address_of<T: FromStr>(text: &[u8], wrong: &'static str) -> Result<T, ScanError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|t| t.parse().ok()).ok_or(ScanError(wrong))
}

/// A comma-separated list, in which `\,` and `\\` stand for themselves (RFC 9460 appendix A.1).
fn list(text: &[u8]) -> Result<Vec<Vec<u8>>, ScanError> {
    let mut items = vec![Vec::new()];
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, items.last_mut()) {
            (b',', _) => items.push(Vec::new()),
            (b'\\', Some(item)) => match bytes.next() {
                Some(&escaped @ (b',' | b'\\')) => item.push(escaped),
                _ => return Err(ScanError("in a list only `\\,` and `\\\\` can be escaped")),
            },
            (_, Some(item)) => item.push(byte),
            (_, None) => {}
        }
    }
    match items.iter().any(Vec::is_empty) {
        true => Err(ScanError("a list with an empty item")),
        false => Ok(items),
    }
}

/// Checks RDATA in wire form (RFC 9460 sections 2.2, 2.4.2, 7 and 8; RFC 9461, RFC 9540).
pub(super) fn check(wire: &[u8]) -> Result<(), ScanError> {
    const CUT: ScanError = ScanError("the octets end within a field");
    let (priority, rest) = wire.split_first_chunk::<2>().ok_or(CUT)?;
    let name = dataplane::wire::dns::name_len(rest).map_err(|_| ScanError("the target is no name"))?;
    let mut rest = rest.get(name..).unwrap_or_default();
    let mut params: Vec<(u16, &[u8])> = Vec::new();
    while !rest.is_empty() {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(CUT)?;
        let [k0, k1, l0, l1] = *head;
        let key = u16::from_be_bytes([k0, k1]);
        let (value, tail) = tail
            .split_at_checked(u16::from_be_bytes([l0, l1]).into())
            .ok_or(CUT)?;
        if params.last().is_some_and(|(last, _)| *last >= key) {
            return Err(ScanError("the parameters are not in ascending order, each once"));
        }
        params.push((key, value));
        rest = tail;
    }
    // The mode: 0 is AliasMode.
    if *priority == [0, 0] && !params.is_empty() {
        return Err(ScanError("priority 0 (AliasMode) has no parameters"));
    }
    let has = |key: u16| params.iter().any(|(known, _)| *known == key);
    for (key, value) in &params {
        check_value(*key, value)?;
        if *key == MANDATORY {
            let keys: Vec<u16> = value
                .as_chunks::<2>()
                .0
                .iter()
                .map(|k| u16::from_be_bytes(*k))
                .collect();
            if keys.contains(&MANDATORY) {
                return Err(ScanError("`mandatory` names itself"));
            }
            if !keys.is_sorted_by(|a, b| a < b) {
                return Err(ScanError(
                    "`mandatory` names a parameter twice, or not in ascending order",
                ));
            }
            if !keys.iter().all(|key| has(*key)) {
                return Err(ScanError("`mandatory` names a parameter that is not there"));
            }
        }
    }
    if has(NO_DEFAULT_ALPN) && !has(ALPN) {
        return Err(ScanError("`no-default-alpn` without `alpn`"));
    }
    Ok(())
}

fn check_value(key: u16, value: &[u8]) -> Result<(), ScanError> {
    let fine = match key {
        MANDATORY | GROUPS => !value.is_empty() && value.len().is_multiple_of(2),
        ALPN => {
            let mut rest = value;
            while let Some((&len, tail)) = rest.split_first() {
                match tail.split_at_checked(len.into()) {
                    Some((_, tail)) if len > 0 => rest = tail,
                    _ => return Err(ScanError("`alpn` holds an identifier that is empty or cut")),
                }
            }
            !value.is_empty()
        }
        NO_DEFAULT_ALPN | OHTTP => value.is_empty(),
        PORT => value.len() == 2,
        IPV4HINT => !value.is_empty() && value.len().is_multiple_of(4),
        IPV6HINT => !value.is_empty() && value.len().is_multiple_of(16),
        ECH => !value.is_empty(),
        DOHPATH => {
            // RFC 9461 section 5: a relative URI template with the variable `dns`.
            let text = std::str::from_utf8(value).unwrap_or_default();
            text.starts_with('/') && text.contains("dns")
        }
        u16::MAX => return Err(ScanError("65535 is no parameter (RFC 9460 section 14.3.2)")),
        _ => true,
    };
    match fine {
        true => Ok(()),
        false => Err(ScanError(match key {
            MANDATORY => "`mandatory` needs a list of parameters",
            ALPN => "`alpn` needs a list of identifiers",
            NO_DEFAULT_ALPN => "`no-default-alpn` has no value",
            PORT => "`port` needs a number",
            IPV4HINT => "`ipv4hint` needs a list of addresses",
            ECH => "`ech` needs a value in base 64",
            IPV6HINT => "`ipv6hint` needs a list of addresses",
            DOHPATH => "`dohpath` needs a URI template from `/` with the variable `dns`",
            OHTTP => "`ohttp` has no value",
            _ => "`tls-supported-groups` needs a list of numbers",
        })),
    }
}
