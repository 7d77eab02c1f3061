//! What the chain is told: of client classes, of sites, and of what is known of a class at a site.
//!
//! Client classes are made by `data`, facts of sites by `reports`, evidence by `reports` (agents' RTTs) and by
//! `latency` (passive estimates). Metrics read them; nothing here decides.

use crate::config::model::Config;
use ipnet::IpNet;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// An ISO 3166-1 alpha-2 country code, upper case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country(pub [u8; 2]);

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&c| write!(f, "{}", char::from(c)))
    }
}

/// The continents that country databases name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Continent {
    Africa,
    Antarctica,
    Asia,
    Europe,
    NorthAmerica,
    Oceania,
    SouthAmerica,
}

/// A place on the globe, in ten-thousandths of a degree (11 m).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// North of the equator, -900,000 to 900,000.
    pub latitude: i32,
    /// East of Greenwich, -1,800,000 to 1,800,000.
    pub longitude: i32,
}

/// What is known of a client class: whatever metrics look at. Clients whose attributes are equal are one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientClass {
    /// The ISP that it belongs to: index in the configuration's ISPs.
    pub isp: Option<usize>,
    /// Country.
    pub country: Option<Country>,
    /// Continent.
    pub continent: Option<Continent>,
    /// About where it is.
    pub location: Option<Location>,
    /// Prefixes that the configuration names (for preferences bound to a source, for regions of operators) and that
    /// hold it: indices in the configuration's `[[clients]]`, each once, the one with the narrowest prefix first, of equals
    /// in the order of the configuration.
    pub named: Vec<u32>,
    /// The prefix that RTTs are measured to, when it is a class of its own.
    pub measured: Option<IpNet>,
}

impl ClientClass {
    /// The class of clients of whom nothing is known: class 0.
    pub const NOTHING: Self = Self {
        isp: None,
        country: None,
        continent: None,
        location: None,
        named: Vec::new(),
        measured: None,
    };

    /// Whose evidence counts for it: the narrowest first.
    pub fn clients(&self) -> impl Iterator<Item = Clients> {
        let prefix = self.measured.map(Clients::Prefix);
        let both = self.isp.zip(self.country);
        let isp_country = both.map(|(isp, country)| Clients::IspCountry(isp, country));
        let isp = self.isp.map(Clients::Isp);
        let country = self.country.map(Clients::Country);
        [prefix, isp_country, isp, country].into_iter().flatten()
    }
}

/// Who measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A site's agent: round-trip time to the client's prefix.
    Agent,
    /// The appliance, from passing traffic: response latency of the site's servers as its clients see it.
    Passive,
}

/// What is known of a client class at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The latency: median.
    pub value: Duration,
    /// Samples or flows that it rests on.
    pub count: u64,
    /// Since the newest of them.
    pub age: Duration,
    /// Who measured.
    pub source: Source,
}

/// Why passive evidence has another value than what was measured: the site counts the same as the best and shares the clients with
/// it, so that they do not go back and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What was measured.
    pub measured: Duration,
    /// How long that goes on at most.
    pub rest: Duration,
}

/// Whose evidence it is, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clients {
    /// Those of a prefix.
    Prefix(IpNet),
    /// Those of an ISP in a country.
    IspCountry(usize, Country),
    /// Those of an ISP.
    Isp(usize),
    /// Those of a country.
    Country(Country),
}

/// A number that a site reported, with its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number.
    pub value: u64,
    /// Since it was read at the site.
    pub age: Duration,
}

/// What is known of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFacts {
    /// Sessions open now: the sum over its servers.
    pub sessions: Option<Reading>,
    /// Bandwidth in use, bits per second.
    pub bandwidth_bps: Option<Reading>,
    /// New connections per second, averaged.
    pub connections_per_second: Option<Reading>,
    /// It is to report and has not for too long.
    pub silent: bool,
}

/// Everything that changes without a change of the configuration, as of one moment. Ages count up to that moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// By site of the configuration.
    pub sites: Vec<SiteFacts>,
    /// Evidence by clients and site; of several sources, each once.
    pub latency: HashMap<(Clients, usize), Vec<Evidence>>,
    /// Passive evidence whose value is not what was measured.
    pub held: HashMap<(Clients, usize), Held>,
}

impl Facts {
    /// Nothing known of any site.
    pub fn none(config: &Config) -> Self {
        Self {
            sites: vec![SiteFacts::default(); config.sites.len()],
            latency: HashMap::new(),
            held: HashMap::new(),
        }
    }

    /// Evidence of a class at a site that is no older than `max_age`, of the narrowest clients that have any from that source.
    pub fn latency(
        &self,
        class: &ClientClass,
        site: usize,
        source: Source,
        max_age: Duration,
    ) -> Option<&Evidence> {
        self.latency_of(class, site, source, max_age)
            .map(|(_, evidence)| evidence)
    }

    /// The same, with whose it is.
    pub fn latency_of(
        &self,
        class: &ClientClass,
        site: usize,
        source: Source,
        max_age: Duration,
    ) -> Option<(Clients, &Evidence)> {
        let of = |clients| {
            let list = self.latency.get(&(clients, site))?;
            let found = list.iter().find(|e| e.source == source && e.age <= max_age)?;
            Some((clients, found))
        };
        class.clients().find_map(of)
    }
}
