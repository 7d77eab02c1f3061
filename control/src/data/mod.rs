//! Client data: who a client is, by its address. ASN and country databases, operators' prefix lists, and what
//! the configuration says over both, laid over each other into client classes.
//!
//! `config` loads the files by [`load_asn`] and [`load_places`]; the policy compiler lays all over each other by
//! [`overlay::overlay`] and builds the table that workers read. `csv` and `mmdb` read databases, `prefix_file`
//! operators' lists; `files` keeps what was parsed, so that a reload reads only what changed on disk.

pub mod countries;
mod csv;
mod files;
mod mmdb;
pub mod overlay;
pub(crate) mod prefix_file;
pub mod ranges;

pub use files::{Failure, Table, load_asn, load_places};
pub use overlay::{Attributes, Overlay};

use crate::policy::chain::facts::{Continent, Country, Location};
use std::net::IpAddr;
use std::sync::Arc;

/// `[data]`: the databases, in the order of the configuration. Of two that know an address, the later one counts.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// `asn = [...]`: which autonomous system an address belongs to.
    pub asn: Vec<Arc<Table<As>>>,
    /// `country = [...]`: where an address is.
    pub country: Vec<Arc<Table<Place>>>,
}

impl Data {
    /// What the databases say of an address, in words: "AS4766 Korea Telecom, KR". Empty if nothing.
    pub fn describe(&self, address: IpAddr) -> String {
        let system = self.asn.iter().rev().find_map(|table| table.find(address));
        let place = self.country.iter().rev().find_map(|table| table.find(address));
        let mut words = Vec::new();
        words.extend(system.map(|a| format!("AS{} {}", a.number, a.name).trim_end().to_owned()));
        words.extend(place.and_then(|p| p.country).map(|c| c.to_string()));
        words.join(", ")
    }
}

/// An autonomous system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct As {
    /// Its number (RFC 6793).
    pub number: u32,
    /// What the database calls it; may be empty.
    pub name: Box<str>,
}

/// Where clients are, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Country.
    pub country: Option<Country>,
    /// Continent; if not given, the country's.
    pub continent: Option<Continent>,
    /// About where; if not given, the middle of the country.
    pub location: Option<Location>,
}

impl Place {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// With what follows from the country filled in.
    pub fn resolved(self) -> Self {
        let known = self.country.and_then(countries::find);
        Self {
            country: self.country,
            continent: self.continent.or(known.map(|k| k.continent)),
            location: self.location.or(known.map(|k| k.middle)),
        }
    }
}

impl Location {
    /// From degrees; `None` outside the globe, or if not a number.
    pub fn from_degrees(latitude: f64, longitude: f64) -> Option<Self> {
        // Written so that NaN is refused as well.
        (latitude.abs() <= 90.0 && longitude.abs() <= 180.0).then(|| Self {
            latitude: (latitude * 1e4).round() as i32,
            longitude: (longitude * 1e4).round() as i32,
        })
    }
}
