//! `geo`: sites for the client's region, in its country or continent, or the nearest, stay.
//!
//! Levels are tried in the order of `by`. `clients` and `country` decide where a site matches: clients of a name that the
//! configuration gives to sites (`serves`, an operator's prefix table), else sites in the client's country. `continent`
//! narrows, and so does the distance, by more than the tolerance. What is not known of the client tells no sites apart. A
//! site of no known country, continent or place drops out where others match or are measured, or stays, by `no_data`.

use super::{Ask, Location, NoData, Sites};

/// `geo = { by = ["clients", "country", "continent", "distance"], tolerance = "100km", no_data = "drop" }`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The levels, in order.
    pub by: Vec<Level>,
    /// Who is farther than the nearest by more than this drops out, metres.
    pub tolerance_m: u64,
    /// What becomes of a site whose place is not known.
    pub no_data: NoData,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            by: Level::ALL.to_vec(),
            tolerance_m: 100_000,
            no_data: NoData::Drop,
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Named clients that a site serves.
    Clients,
    /// Countries.
    Country,
    /// Continents.
    Continent,
    /// Distance over the globe.
    Distance,
}

impl Level {
    /// All, in their usual order.
    pub const ALL: [Self; 4] = [Self::Clients, Self::Country, Self::Continent, Self::Distance];

    /// Its name in `by`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Country => "country",
            Self::Continent => "continent",
            Self::Distance => "distance",
        }
    }
}

/// Mean radius of the Earth (IUGG), metres.
const EARTH_M: f64 = 6_371_008.8;

/// The way over the globe from one place to the other, metres: a sphere, so right to half a percent.
pub fn distance_m(a: Location, b: Location) -> u64 {
    let radians = |tenthousandths: i32| (f64::from(tenthousandths) / 10_000.0).to_radians();
    let (lat_a, lat_b) = (radians(a.latitude), radians(b.latitude));
    let (d_lat, d_lon) = (lat_b - lat_a, radians(b.longitude) - radians(a.longitude));
    // Haversine: exact also for near places.
    let h = (d_lat / 2.0).sin().powi(2) + lat_a.cos() * lat_b.cos() * (d_lon / 2.0).sin().powi(2);
    (2.0 * EARTH_M * h.clamp(0.0, 1.0).sqrt().asin()).round() as u64
}

/// A distance as a site's bias makes it seem: above 0 it is multiplied by (1 - bias/100), below divided by (1 + bias/100).
pub fn biased_m(distance: u64, bias: i8) -> u64 {
    let bias = i64::from(bias.clamp(-99, 99));
    let share = (100 - bias.abs()) as u64;
    if bias >= 0 {
        distance * share / 100
    } else {
        distance * 100 / share
    }
}

/// How far a site seems from the client.
fn distance(ask: &Ask<'_>, i: u8) -> Option<u64> {
    let site = ask.site(i);
    Some(biased_m(
        distance_m(ask.client.location?, site.location?),
        site.bias,
    ))
}

/// The sites of `left` that `matches`, with those of which nothing is known (`None`) if they are to stay; `None` if no
/// site matches.
fn matching(ask: &Ask<'_>, left: Sites, matches: impl Fn(u8) -> Option<bool>) -> Option<Sites> {
    let keep = ask.chain.parameters.geo.no_data == NoData::Keep;
    left.iter()
        .any(|i| matches(i) == Some(true))
        .then(|| left.filter(|i| matches(i).unwrap_or(keep)))
}

/// What one level leaves of `left`; `None`: it tells nothing.
fn level(ask: &Ask<'_>, level: Level, left: Sites) -> Option<Sites> {
    let client = ask.client;
    match level {
        Level::Clients => client.named.iter().find_map(|named| {
            let serving = left.filter(|i| ask.site(i).serves.contains(named));
            (!serving.is_empty()).then_some(serving)
        }),
        Level::Country => {
            let country = client.country?;
            matching(ask, left, |i| ask.site(i).country.map(|c| c == country))
        }
        Level::Continent => {
            let continent = client.continent?;
            matching(ask, left, |i| ask.site(i).continent.map(|c| c == continent))
        }
        Level::Distance => {
            let nearest = left.iter().filter_map(|i| distance(ask, i)).min()?;
            let limit = nearest.saturating_add(ask.chain.parameters.geo.tolerance_m);
            matching(ask, left, |i| distance(ask, i).map(|d| d <= limit))
        }
    }
}

/// What stays of `left`.
pub(super) fn keep(ask: &Ask<'_>, left: Sites) -> Sites {
    let mut left = left;
    for &by in &ask.chain.parameters.geo.by {
        if let Some(kept) = level(ask, by, left) {
            left = kept;
            if matches!(by, Level::Clients | Level::Country) {
                break;
            }
        }
    }
    left
}
