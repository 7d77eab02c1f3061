//! Databases as CSV, in the form of the npm packages `@ip-location-db/asn` (first address, last address, ASN, name)
//! and `@ip-location-db/asn-country` (first address, last address, country code). Read by [`super::files`].
//!
//! Addresses may be numbers too, as in the packages' `-num` files: those below 2^32 are IPv4.

use super::files::{Collected, Failure};
use super::{As, Place};
use crate::policy::chain::facts::Country;
use ::csv::{ByteRecord, ReaderBuilder};
use std::net::IpAddr;
use std::path::Path;

/// Reads an ASN database.
pub(super) fn asn(path: &Path, bytes: &[u8]) -> Result<Collected<As>, Failure> {
    let mut out = Collected::default();
    rows(
        path,
        bytes,
        4,
        "first address, last address, ASN, name",
        |first, last, record| {
            let text = field(record, 2);
            // Some databases write AS4766.
            let number = text.strip_prefix("AS").unwrap_or(&text).parse::<u32>();
            let number = number.map_err(|_| format!("`{text}` is not the number of an autonomous system"))?;
            let value = out.value(number, || As {
                number,
                name: field(record, 3).into(),
            });
            out.range(first, last, value)
        },
    )?;
    Ok(out)
}

/// Reads a country database.
pub(super) fn places(path: &Path, bytes: &[u8]) -> Result<Collected<Place>, Failure> {
    let mut out = Collected::default();
    rows(
        path,
        bytes,
        3,
        "first address, last address, country code",
        |first, last, record| {
            let code = record.get(2).unwrap_or_default();
            if code.is_empty() {
                return Ok(());
            }
            let country = country_code(code)
                .ok_or_else(|| format!("`{}` is not a country code of two letters", field(record, 2)))?;
            let key = u32::from(u16::from_be_bytes(country.0));
            let value = out.value(key, || Place {
                country: Some(country),
                ..Place::default()
            });
            out.range(first, last, value)
        },
    )?;
    Ok(out)
}

/// Two letters, whether or not they are a country today: databases may know newer ones.
pub(super) fn country_code(code: &[u8]) -> Option<Country> {
    let code = <[u8; 2]>::try_from(code).ok()?;
    code.iter()
        .all(u8::is_ascii_alphabetic)
        .then(|| Country(code.map(|c| c.to_ascii_uppercase())))
}

fn field(record: &ByteRecord, at: usize) -> String {
    String::from_utf8_lossy(record.get(at).unwrap_or_default()).into_owned()
}

/// Gives each row, with its range, to `take`. The first that is wrong ends it.
fn rows(
    path: &Path,
    bytes: &[u8],
    fields: usize,
    form: &str,
    mut take: impl FnMut(IpAddr, IpAddr, &ByteRecord) -> Result<(), String>,
) -> Result<(), Failure> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    loop {
        let start = reader.position().clone();
        let failure = |message: String| {
            // The reader skips empty lines before a record.
            let skipped = bytes.get(start.byte() as usize..).unwrap_or_default();
            let blank = skipped.iter().take_while(|b| matches!(b, b'\r' | b'\n'));
            let line = start.line() + blank.filter(|b| **b == b'\n').count() as u64;
            let help = format!("each line is: {form}");
            Failure::new(path, message).line(line).help(help)
        };
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(failure(format!("not CSV: {error}"))),
        }
        if record.len() != fields {
            return Err(failure(format!("{} fields instead of {fields}", record.len())));
        }
        let (first, last) = (
            address(&record, 0).map_err(&failure)?,
            address(&record, 1).map_err(&failure)?,
        );
        if first.is_ipv4() != last.is_ipv4() {
            return Err(failure(format!("{first} and {last} are not of one family")));
        }
        if first > last {
            return Err(failure(format!("{first} lies behind {last}")));
        }
        take(first, last, &record).map_err(failure)?;
    }
}

fn address(record: &ByteRecord, at: usize) -> Result<IpAddr, String> {
    let text = std::str::from_utf8(record.get(at).unwrap_or_default()).unwrap_or_default();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address);
    }
    match text.parse::<u128>() {
        Ok(number) => {
            Ok(u32::try_from(number).map_or_else(|_| IpAddr::V6(number.into()), |n| IpAddr::V4(n.into())))
        }
        Err(_) => Err(format!("`{}` is not an IP address", field(record, at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> String {
        let failure = asn(Path::new("a.csv"), text.as_bytes()).unwrap_err();
        failure.to_string()
    }

    #[test]
    fn asns_with_names_in_quotes() {
        let text = "1.0.0.0,1.0.0.255,13335,\"Cloudflare, Inc.\"\n1.0.4.0,1.0.7.255,38803,Gtelecom Pty Ltd\n\
                    2001:200::,2001:200:1b9:ffff:ffff:ffff:ffff:ffff,2500,WIDE Project\n16781312,16781567,2519,A\n";
        let found = asn(Path::new("a.csv"), text.as_bytes())
            .unwrap()
            .finish(Path::new("a.csv"))
            .unwrap();
        let at = |address: &str| found.find(address.parse().unwrap()).map(|a| (a.number, &*a.name));
        assert_eq!(at("1.0.0.77"), Some((13335, "Cloudflare, Inc.")));
        assert_eq!(at("1.0.1.0"), None);
        assert_eq!(at("1.0.7.255"), Some((38803, "Gtelecom Pty Ltd")));
        // 16781312 is 1.0.16.0.
        assert_eq!(at("1.0.16.9"), Some((2519, "A")));
        assert_eq!(at("2001:200:1b9::1"), Some((2500, "WIDE Project")));
        assert_eq!(at("2001:200:1ba::"), None);
        assert_eq!((found.rows, found.values.len()), (4, 4));
    }

    #[test]
    fn countries() {
        let text = "1.0.0.0,1.0.0.255,AU\n1.0.1.0,1.0.3.255,cn\n1.0.4.0,1.0.4.255,\n";
        let found = places(Path::new("c.csv"), text.as_bytes())
            .unwrap()
            .finish(Path::new("c.csv"))
            .unwrap();
        let at = |address: &str| found.find(address.parse().unwrap()).and_then(|p| p.country);
        assert_eq!(at("1.0.0.0"), Some(Country(*b"AU")));
        assert_eq!(at("1.0.2.0"), Some(Country(*b"CN")));
        assert_eq!(at("1.0.4.0"), None);
        let wrong = places(
            Path::new("c.csv"),
            b"1.0.0.0,1.0.0.255,AU\n1.0.1.0,1.0.1.9,Korea\n",
        )
        .unwrap_err();
        assert!(
            wrong
                .to_string()
                .starts_with("c.csv:2: `Korea` is not a country code"),
            "{wrong}"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = "1.0.0.0,1.0.0.255,1,a\n";
        assert!(lines(&format!("{good}1.0.1.0,1.0.1.255,1\n")).starts_with("a.csv:2: 3 fields instead of 4"));
        assert!(
            lines(&format!("{good}\n\n1.0.1.0,1.0.1.256,1,b\n"))
                .starts_with("a.csv:4: `1.0.1.256` is not an IP")
        );
        assert!(lines("1.0.1.9,1.0.1.0,1,b\n").starts_with("a.csv:1: 1.0.1.9 lies behind 1.0.1.0"));
        assert!(lines("1.0.1.9,::1,1,b\n").starts_with("a.csv:1: 1.0.1.9 and ::1 are not of one family"));
        assert!(lines("1.0.1.0,1.0.1.9,x,b\n").starts_with("a.csv:1: `x` is not the number"));
        assert!(
            lines("network,geoname_id\n").contains("each line is: first address, last address, ASN, name")
        );
        assert!(lines(&format!("{good}1.0.0.9,1.0.0.9\n")).contains("2 fields instead of 4"));
    }
}
