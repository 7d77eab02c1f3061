//! Whose samples are summed where: from the numbers of a sample's tables to clients, sites and members.
//!
//! Owned by the store. Classes and servers are numbered anew by every reload; what they stand for is kept by name, so that a
//! reload loses nothing. Samples that were under way while tables changed are resolved by the tables that they name.

use crate::config::model::Config;
use crate::policy::chain::ClientClass;
use crate::policy::chain::facts::{Clients, Country};
use dataplane::link::{Cell as Numbers, LatencySample};
use dataplane::tables::Servers;
use indexmap::IndexSet;
use ipnet::IpNet;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Tables whose numbers are still understood.
const TABLES_KEPT: usize = 8;

/// The place of a name in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name(u32);

/// Names of ISPs and sites: as many as configurations have had.
#[derive(Debug, Default)]
pub(super) struct Names(IndexSet<Arc<str>>);

impl Names {
    fn intern(&mut self, name: &str) -> Name {
        let place = match self.0.get_index_of(name) {
            Some(place) => place,
            None => self.0.insert_full(name.into()).0,
        };
        Name(place as u32)
    }

    pub(super) fn get(&self, name: Name) -> Arc<str> {
        self.0
            .get_index(name.0 as usize)
            .cloned()
            .unwrap_or_else(|| "".into())
    }
}

/// As [`Clients`], by names; and those of whom nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    /// Those of a prefix.
    Prefix(IpNet),
    /// Those of an ISP in a country.
    IspCountry(Name, Country),
    /// Those of an ISP.
    Isp(Name),
    /// Those of a country.
    Country(Country),
    /// Those of no known ISP or country.
    Others,
}

/// Where servers stand: a site, or one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The site.
    pub(super) site: Name,
    /// The member; `None`: all of them.
    pub(super) member: Option<IpAddr>,
}

/// What a cell is of.
pub(super) type Key = (Who, Place);

/// Tables of one numbering.
#[derive(Debug)]
struct Tables {
    numbering: u16,
    /// By class: who it is of, the narrowest first, and that one in words.
    classes: Vec<(Vec<Who>, Arc<str>)>,
    /// By server number less one; `None`: of no site.
    servers: Vec<Option<Place>>,
}

/// Whose a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved<'a> {
    /// Everybody that it is of, the narrowest first; not empty.
    pub(super) who: &'a [Who],
    /// The narrowest, in words.
    pub(super) label: &'a Arc<str>,
    /// The member.
    pub(super) place: Place,
}

/// The tables that samples may name.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    tables: VecDeque<Tables>,
    pub(super) names: Names,
}

impl Resolver {
    /// Takes tables that are about to be published: before, so that no sample comes that cannot be told.
    pub(super) fn learn(&mut self, config: &Config, classes: &[ClientClass], servers: &Servers) {
        let numbering = servers.numbering();
        let names = &mut self.names;
        let class = |class: &ClientClass| {
            let mut list: Vec<Who> = class.clients().filter_map(|c| who(config, names, c)).collect();
            if list.is_empty() {
                list.push(Who::Others);
            }
            let label = list.first().map_or_else(String::new, |who| who.describe(names));
            (list, label.into())
        };
        let classes = classes.iter().map(class).collect();
        let server = |server: &dataplane::tables::servers::Server| {
            let site = config.sites.get(usize::from(server.site?))?;
            Some(Place {
                site: names.intern(&site.name),
                member: Some(server.address),
            })
        };
        let servers = servers.list().iter().map(server).collect();
        self.tables.retain(|known| known.numbering != numbering);
        self.tables.push_front(Tables {
            numbering,
            classes,
            servers,
        });
        self.tables.truncate(TABLES_KEPT);
    }

    /// Whose a sample is; `None` when its tables are not known any more, or it is of no site.
    pub(super) fn resolve(&self, sample: &LatencySample) -> Option<Resolved<'_>> {
        let tables = self
            .tables
            .iter()
            .find(|tables| tables.numbering == sample.numbering)?;
        let Numbers { class, server } = sample.cell;
        let place = *tables.servers.get(usize::from(server).checked_sub(1)?)?;
        let (who, label) = tables.classes.get(usize::from(class))?;
        Some(Resolved {
            who,
            label,
            place: place?,
        })
    }

    /// See [`Who::describe`].
    pub(super) fn describe(&self, who: Who) -> String {
        who.describe(&self.names)
    }
}

impl Who {
    /// In words: "KT in KR", "KT", "KR", "10.1.2.0/24", "others".
    fn describe(self, names: &Names) -> String {
        match self {
            Self::Prefix(prefix) => prefix.to_string(),
            Self::IspCountry(isp, country) => format!("{} in {country}", names.get(isp)),
            Self::Isp(isp) => names.get(isp).to_string(),
            Self::Country(country) => country.to_string(),
            Self::Others => "others".into(),
        }
    }
}

fn who(config: &Config, names: &mut Names, clients: Clients) -> Option<Who> {
    let mut isp = |isp: usize| Some(names.intern(&config.isps.get(isp)?.name));
    Some(match clients {
        Clients::Prefix(prefix) => Who::Prefix(prefix),
        Clients::IspCountry(index, country) => Who::IspCountry(isp(index)?, country),
        Clients::Isp(index) => Who::Isp(isp(index)?),
        Clients::Country(country) => Who::Country(country),
    })
}

/// What names are in a configuration.
#[derive(Debug, Default)]
pub(super) struct Indices {
    isps: HashMap<Name, usize>,
    sites: HashMap<Name, usize>,
}

impl Indices {
    pub(super) fn of(config: &Config, names: &mut Names) -> Self {
        let isps = config
            .isps
            .iter()
            .enumerate()
            .map(|(i, isp)| (names.intern(&isp.name), i));
        let isps = isps.collect();
        let sites = config
            .sites
            .iter()
            .enumerate()
            .map(|(i, site)| (names.intern(&site.name), i));
        Self {
            isps,
            sites: sites.collect(),
        }
    }

    /// As the chain knows them; `None` for those that evidence cannot be about.
    pub(super) fn clients(&self, who: Who) -> Option<Clients> {
        let isp = |name| self.isps.get(&name).copied();
        Some(match who {
            Who::Prefix(prefix) => Clients::Prefix(prefix),
            Who::IspCountry(name, country) => Clients::IspCountry(isp(name)?, country),
            Who::Isp(name) => Clients::Isp(isp(name)?),
            Who::Country(country) => Clients::Country(country),
            Who::Others => return None,
        })
    }

    pub(super) fn site(&self, name: Name) -> Option<usize> {
        self.sites.get(&name).copied()
    }
}
