//! Databases in MaxMind's format (MMDB 2.0): the ASN, Country and City layouts of GeoLite2 and GeoIP2, and the flat
//! `country_code` of others. Read by [`super::files`].
//!
//! IPv4 networks in an IPv6 tree are IPv4; their aliases (6to4, Teredo, mapped addresses) are left out.

use super::csv::country_code;
use super::files::{Collected, Failure};
use super::{As, Place, countries};
use crate::policy::chain::facts::Location;
use ipnet::IpNet;
use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// Leaves that are read for each node before the tree is taken to be damaged: some writers share equal subtrees.
const LEAVES_A_NODE: u64 = 16;

/// The fields of a record that are read; all others are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record<'a> {
    autonomous_system_number: Option<u32>,
    #[serde(borrow)]
    autonomous_system_organization: Option<&'a str>,
    #[serde(borrow)]
    country: Option<Coded<'a>>,
    #[serde(borrow)]
    registered_country: Option<Coded<'a>>,
    #[serde(borrow)]
    continent: Option<Coded<'a>>,
    location: Option<Point>,
    #[serde(borrow)]
    country_code: Option<&'a str>,
}

/// A country (`iso_code`) or continent (`code`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Coded<'a> {
    #[serde(borrow)]
    iso_code: Option<&'a str>,
    #[serde(borrow)]
    code: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Point {
    latitude: Option<f64>,
    longitude: Option<f64>,
}

/// Reads an ASN database.
pub(super) fn asn(path: &Path, bytes: &[u8]) -> Result<Collected<As>, Failure> {
    let mut out = Collected::default();
    networks(
        path,
        bytes,
        &mut out,
        "autonomous_system_number",
        |out, record| {
            let number = record.autonomous_system_number?;
            let name = record.autonomous_system_organization.unwrap_or_default();
            Some(out.value(number, || As {
                number,
                name: name.into(),
            }))
        },
    )?;
    Ok(out)
}

/// Reads a country or city database.
pub(super) fn places(path: &Path, bytes: &[u8]) -> Result<Collected<Place>, Failure> {
    let mut out = Collected::default();
    let mut known: HashMap<Place, u32> = HashMap::new();
    networks(path, bytes, &mut out, "country", |out, record| {
        let place = record.place();
        if place.is_empty() {
            return None;
        }
        let next = known.len() as u32;
        let key = *known.entry(place).or_insert(next);
        Some(out.value(key, || place))
    })?;
    Ok(out)
}

impl Record<'_> {
    fn place(&self) -> Place {
        // Where an address is registered is a guess that MaxMind makes too, where it knows nothing better.
        let iso = |c: &Option<Coded<'_>>| c.as_ref().and_then(|c| c.iso_code).map(str::to_owned);
        let code = iso(&self.country)
            .or_else(|| self.country_code.map(str::to_owned))
            .or_else(|| iso(&self.registered_country));
        let continent = self.continent.as_ref().and_then(|c| c.code);
        let point = self.location.unwrap_or_default();
        Place {
            country: code.and_then(|code| country_code(code.as_bytes())),
            continent: continent.and_then(|code| countries::continent(code).ok()),
            location: point
                .latitude
                .zip(point.longitude)
                .and_then(|(lat, lon)| Location::from_degrees(lat, lon)),
        }
    }
}

/// Gives each network's record to `take`, which says its value, if it has one.
fn networks<T>(
    path: &Path,
    bytes: &[u8],
    out: &mut Collected<T>,
    wanted: &str,
    mut take: impl FnMut(&mut Collected<T>, &Record<'_>) -> Option<u32>,
) -> Result<(), Failure> {
    let failure = |error: MaxMindDbError| Failure::new(path, error.to_string());
    let reader = Reader::from_source(bytes).map_err(failure)?;
    // Many networks share a record: each is decoded once.
    let mut values: HashMap<usize, Option<u32>> = HashMap::new();
    let mut records = 0;
    // A tree of so many nodes has one leaf more; a damaged one can lead back into itself without end.
    let mut leaves = LEAVES_A_NODE * (u64::from(reader.metadata().node_count) + 1);
    let all = WithinOptions::default().include_networks_without_data();
    for found in reader.networks(all).map_err(failure)? {
        let found = found.map_err(failure)?;
        leaves = leaves
            .checked_sub(1)
            .ok_or_else(|| Failure::new(path, "is damaged: its tree has more leaves than nodes allow"))?;
        let Some(offset) = found.offset() else { continue };
        records += 1;
        let value = match values.get(&offset) {
            Some(value) => *value,
            None => {
                let record: Option<Record<'_>> = found.decode().map_err(failure)?;
                let value = record.and_then(|record| take(out, &record));
                values.insert(offset, value);
                value
            }
        };
        let Some(value) = value else { continue };
        let network = found.network().map_err(failure)?;
        let network = IpNet::new(network.ip(), network.prefix())
            .map_err(|error| Failure::new(path, error.to_string()))?;
        out.range(network.network(), last(network), value)
            .map_err(|message| Failure::new(path, message))?;
    }
    if records > 0 && values.values().all(Option::is_none) {
        let kind = &reader.metadata().database_type;
        let message = format!("a database of type {kind}: no record has `{wanted}`");
        return Err(Failure::new(path, message));
    }
    Ok(())
}

/// The last address of a network.
fn last(network: IpNet) -> std::net::IpAddr {
    // The broadcast address of an IPv4 network is its last, for a /31 and a /32 too.
    network.broadcast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::files::Table;
    use crate::policy::chain::facts::{Continent, Country};

    /// Files written by the Python package mmdb-writer: tests/data/mmdb.py, which says what they hold.
    fn file(name: &str) -> (std::path::PathBuf, Vec<u8>) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name);
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    }

    #[test]
    fn asn_layout() {
        let (path, bytes) = file("asn.mmdb");
        let table: Table<As> = asn(&path, &bytes).unwrap().finish(&path).unwrap();
        let at = |address: &str| table.find(address.parse().unwrap()).map(|a| (a.number, &*a.name));
        assert_eq!(at("1.0.0.1"), Some((13335, "CLOUDFLARENET")));
        assert_eq!(at("211.32.5.6"), Some((3786, "LG DACOM Corporation")));
        assert_eq!(at("211.33.0.0"), None);
        assert_eq!(at("2001:200::1"), Some((2500, "WIDE Project")));
        // The IPv4 part of the tree is IPv4 alone.
        assert_eq!(at("::ffff:1.0.0.1"), None);
        assert_eq!(at("::1.0.0.1"), None);
        assert_eq!(at("2002:100::"), None);
        let wrong = places(&path, &bytes).err().unwrap().to_string();
        assert!(wrong.contains("GeoLite2-ASN: no record has `country`"), "{wrong}");
    }

    #[test]
    fn country_layouts() {
        let (path, bytes) = file("country.mmdb");
        let table = places(&path, &bytes).unwrap().finish(&path).unwrap();
        let at = |address: &str| table.find(address.parse().unwrap()).copied();
        let place = |country: &[u8; 2], continent| Place {
            country: Some(Country(*country)),
            continent,
            location: None,
        };
        assert_eq!(at("11.1.1.1"), Some(place(b"HK", Some(Continent::Asia))));
        // Only registered there.
        assert_eq!(at("12.0.0.1"), Some(place(b"US", Some(Continent::NorthAmerica))));
        // The flat layout.
        assert_eq!(at("13.0.0.1"), Some(place(b"KR", None)));
        // A continent alone.
        assert_eq!(
            at("2001:db8::1"),
            Some(Place {
                continent: Some(Continent::Europe),
                ..Place::default()
            })
        );
        assert_eq!(at("14.0.0.1"), None);
    }

    #[test]
    fn city_layout() {
        let (path, bytes) = file("city.mmdb");
        let table = places(&path, &bytes).unwrap().finish(&path).unwrap();
        let seoul = table.find("11.2.0.9".parse().unwrap()).unwrap();
        assert_eq!(seoul.country, Some(Country(*b"KR")));
        assert_eq!(
            seoul.location,
            Some(Location {
                latitude: 375_700,
                longitude: 1_269_800
            })
        );
        // A location without a country, in the southern and western hemisphere.
        let sea = table.find("2001:db8:1::".parse().unwrap()).unwrap();
        assert_eq!(
            (sea.country, sea.location),
            (
                None,
                Some(Location {
                    latitude: -515_000,
                    longitude: -599_999
                })
            )
        );
    }

    #[test]
    fn damaged_files_are_refused_not_believed() {
        let (path, bytes) = file("city.mmdb");
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            assert!(places(&path, &bytes[..cut]).is_err(), "cut at {cut}");
        }
        // Every byte wrong once: read or refused, without a panic.
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0xff;
            _ = places(&path, &wrong).map(|c| c.finish(&path));
        }
    }
}
