//! `geo`: sites for the client's region, in its country or continent, or the nearest, stay.
//!
//! Levels are tried in the order of `by`. `clients` and `country` decide where a site matches: clients of a name that the
//! configuration gives to sites (`serves`, an operator's prefix table), else sites in the client's country. `continent`
//! narrows, and so does the distance, by more than the tolerance. What is not known of the client tells no sites apart. A
//! site of no known country, continent or place drops out where others match or are measured, or stays, by `no_data`.

use super::tell::{self, Finding, Says};
use super::{Ask, Location, NoData, Sites};
use crate::config::model::Config;

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
    levels(ask, left).last().map_or(left, |(_, kept)| *kept)
}

/// The levels that tell something, in order, with what each leaves.
fn levels(ask: &Ask<'_>, left: Sites) -> Vec<(Level, Sites)> {
    let mut left = left;
    let mut told = Vec::new();
    for &by in &ask.chain.parameters.geo.by {
        if let Some(kept) = level(ask, by, left) {
            left = kept;
            told.push((by, kept));
            if matches!(by, Level::Clients | Level::Country) {
                break;
            }
        }
    }
    told
}

/// In words.
pub(super) fn says(ask: &Ask<'_>, config: &Config, left: Sites) -> Says {
    let p = &ask.chain.parameters.geo;
    let told = levels(ask, left);
    let names = |clients: &[u32]| {
        let names = clients.iter().filter_map(|c| config.clients.get(*c as usize));
        names.map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let by = told.iter().map(|(level, _)| match level {
        Level::Clients => format!("clients of {}", names(&ask.client.named)),
        Level::Country => ask
            .client
            .country
            .map_or(String::new(), |c| format!("country {c}")),
        Level::Continent => "continent".to_owned(),
        Level::Distance => format!(
            "distance, {} more than the nearest is as good",
            tell::distance(p.tolerance_m)
        ),
    });
    let by: Vec<String> = by.collect();
    let text = match by.is_empty() {
        true => "nothing tells which site is nearer to the client: nothing dropped".to_owned(),
        false => format!("by {}", by.join(", then ")),
    };
    let finding = |i: u8| {
        let site = ask.site(i);
        let mut parts = Vec::new();
        for (level, _) in &told {
            parts.push(match level {
                Level::Clients if site.serves.is_empty() => "serves no named clients".to_owned(),
                Level::Clients => format!("serves {}", names(&site.serves)),
                Level::Country => site.country.map_or("country not known".into(), |c| c.to_string()),
                Level::Continent => site
                    .continent
                    .map_or("continent not known".into(), |c| format!("{c:?}")),
                Level::Distance => distance(ask, i).map_or("place not known".into(), |m| match site.bias {
                    0 => tell::distance(m),
                    bias => format!("{} with bias {bias}", tell::distance(m)),
                }),
            });
        }
        let out = told.iter().find(|(_, kept)| !kept.has(i));
        let why = match out {
            Some((Level::Clients, _)) => "not the place for them",
            Some((Level::Country, _)) => "another country",
            Some((Level::Continent, _)) => "another continent",
            Some((Level::Distance, _)) => "farther",
            None => "",
        };
        let value = (!parts.is_empty()).then(|| parts.join(", "));
        Finding::new(i, value).why(why)
    };
    (text, left.iter().map(finding).collect())
}
