//! All that is known of prefixes, laid over each other into client classes.
//!
//! Called by the policy compiler. Clients for whom the configured policies see the same attributes are one class: only
//! attributes that some policy looks at ([`Attributes`]) split classes, so that there are few, and scopes are wide.
//!
//! For each attribute, who knows better comes first: what the configuration says of a prefix counts over every
//! database, a later database over an earlier one, whatever the lengths; of two from one source the longest prefix
//! counts. (Databases are ranges cut into prefixes, so their lengths mean nothing.) What a source does not say of
//! an attribute leaves what others say. A location alone refines; a country or continent brings its own location.

use super::ranges::{Address, Range, Ranges, cut, join};
use super::{As, Place};
use crate::config::model::Config;
use crate::policy::chain::facts::{ClientClass, Continent, Country, Location};
use anyhow::{Result, bail};
use dataplane::tables::classes::Prefix;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};

/// Classes at most, class 0 with them: ids are 16 bits, and one value stays free.
pub const CLASSES_MAX: usize = 65_534;
/// Steps in which locations are made coarser while there are too many classes, ten-thousandths of a degree.
const GRIDS: [i32; 5] = [1, 1_000, 10_000, 50_000, 100_000];

/// Which attributes of clients the configured policies look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The ISP.
    pub isp: bool,
    /// The country.
    pub country: bool,
    /// The continent.
    pub continent: bool,
    /// The location.
    pub location: bool,
    /// Lists of prefixes with a name: indices in the configuration's `clients`.
    pub named: BTreeSet<u32>,
    /// Prefixes that RTTs are measured to.
    pub measured: bool,
}

impl Attributes {
    /// What either needs.
    pub fn and(mut self, other: &Self) -> Self {
        self.isp |= other.isp;
        self.country |= other.country;
        self.continent |= other.continent;
        self.location |= other.location;
        self.named.extend(&other.named);
        self.measured |= other.measured;
        self
    }
}

/// Client classes and the prefixes that lead to them.
#[derive(Debug)]
pub struct Overlay {
    /// The classes by id. Class 0 knows nothing.
    pub classes: Vec<ClientClass>,
    /// IPv4 prefixes; the longest that holds an address gives its class, no prefix gives class 0.
    pub v4: Vec<Prefix>,
    /// The same for IPv6.
    pub v6: Vec<Prefix>,
    /// How coarse locations had to be made to stay within [`CLASSES_MAX`], degrees; `None`: not at all.
    pub location_grid: Option<f64>,
}

/// Lays over each other what `config` and its databases say, and the prefixes that RTTs are measured to.
///
/// # Errors
/// More classes than there can be, with what to do.
pub fn overlay(config: &Config, needs: &Attributes, measured: &[IpNet]) -> Result<Overlay> {
    let mut entries = Entries::default();
    entries.databases(config, needs);
    entries.said(config, needs);
    if needs.measured {
        let numbered = (0..).zip(measured);
        numbered.for_each(|(i, net)| entries.prefix(*net, SAID, What::Measured(i)));
    }
    for list in [&mut entries.v4, &mut entries.v6] {
        // Stable: of equal prefixes with equal rank the later counts. Each source comes sorted, and runs merge fast.
        list.sort_by_key(|e| (e.address, e.len, e.rank));
    }
    let grids = if needs.location { &GRIDS[..] } else { &GRIDS[..1] };
    for &grid in grids {
        let mut interner = Interner::new(grid);
        let made = interner
            .walk(&entries.v4)
            .and_then(|v4| Some((v4, interner.walk(&entries.v6)?)));
        if let Some((v4, v6)) = made {
            return Ok(Overlay {
                classes: interner.classes(measured),
                v4,
                v6,
                location_grid: (grid > 1).then(|| f64::from(grid) / 1e4),
            });
        }
    }
    bail!(
        "more than {CLASSES_MAX} client classes, as many combinations of ISP, country, location and named prefixes \
         are looked at by the chains of services: configure fewer [[isp]] or [[clients]], or coarser lists of prefixes"
    )
}

/// Rank of what the configuration itself says; databases have their place in the list.
const SAID: u16 = u16::MAX;
/// Stands for "none" where an index is packed.
const NO: u32 = u32::MAX;

/// One thing that is said of a prefix.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Left-aligned in 128 bits.
    address: u128,
    len: u8,
    rank: u16,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// Its ISP; [`NO`]: an autonomous system of none.
    Isp(u32),
    /// Its country and continent.
    Country(Option<Country>, Option<Continent>),
    /// Its location; `None`: not known, whatever is said of prefixes around it.
    Location(Option<Location>),
    /// It is on this list.
    Named(u32),
    /// RTTs are measured to it.
    Measured(u32),
}

/// What a place says, of the attributes that are looked at.
fn of_place(place: Place, needs: &Attributes) -> Vec<What> {
    let resolved = place.resolved();
    let (country, continent) = (resolved.country, resolved.continent);
    let mut out = Vec::new();
    let region = country.is_some() || continent.is_some();
    if region && (needs.country || needs.continent) {
        out.push(What::Country(
            country.filter(|_| needs.country),
            continent.filter(|_| needs.continent),
        ));
    }
    if needs.location && !place.is_empty() {
        out.push(What::Location(resolved.location));
    }
    out
}

/// All that is said, by family.
#[derive(Default)]
struct Entries {
    v4: Vec<Entry>,
    v6: Vec<Entry>,
}

impl Entries {
    fn prefix(&mut self, net: IpNet, rank: u16, what: What) {
        let (list, address) = match net.trunc() {
            IpNet::V4(n) => (&mut self.v4, u128::from(u32::from(n.network())) << 96),
            IpNet::V6(n) => (&mut self.v6, u128::from(n.network())),
        };
        list.push(Entry {
            address,
            len: net.prefix_len(),
            rank,
            what,
        });
    }

    fn databases(&mut self, config: &Config, needs: &Attributes) {
        if needs.isp && config.isps.iter().any(|isp| !isp.asns.is_empty()) {
            let isp_of: HashMap<u32, u32, RandomState> = (0..)
                .zip(&config.isps)
                .flat_map(|(i, isp)| isp.asns.iter().map(move |asn| (*asn, i)))
                .collect();
            let none = config.isps.len() as u32;
            for (rank, table) in (0..).zip(&config.data.asn) {
                let number = |a: &As| isp_of.get(&a.number).copied().unwrap_or(none);
                let of: Vec<u32> = table.values.iter().map(number).collect();
                let mut said: Vec<Vec<What>> = (0..none).map(|isp| vec![What::Isp(isp)]).collect();
                // In the first database an autonomous system of no ISP hides nothing.
                said.push(if rank == 0 { vec![] } else { vec![What::Isp(NO)] });
                self.ranges(&table.ranges, rank, &of, &said);
            }
        }
        if needs.country || needs.continent || needs.location {
            for (rank, table) in (0..).zip(&config.data.country) {
                // Places that are equal in what is looked at are one, so that their ranges join.
                let mut index: HashMap<Vec<What>, u32> = HashMap::new();
                let mut said: Vec<Vec<What>> = Vec::new();
                let of: Vec<u32> = table
                    .values
                    .iter()
                    .map(|place| {
                        *index.entry(of_place(*place, needs)).or_insert_with_key(|whats| {
                            said.push(whats.clone());
                            said.len() as u32 - 1
                        })
                    })
                    .collect();
                self.ranges(&table.ranges, rank, &of, &said);
            }
        }
    }

    /// The ranges of a database: of a value `v` all of `said[of[v]]` is said.
    fn ranges(&mut self, ranges: &Ranges, rank: u16, of: &[u32], said: &[Vec<What>]) {
        cut_ranges(&ranges.v4, 32, rank, of, said, &mut self.v4);
        cut_ranges(&ranges.v6, 128, rank, of, said, &mut self.v6);
    }

    /// What the configuration says itself.
    fn said(&mut self, config: &Config, needs: &Attributes) {
        if needs.isp {
            for (i, isp) in (0..).zip(&config.isps) {
                for prefix in &isp.prefixes {
                    self.prefix(*prefix, SAID, What::Isp(i));
                }
            }
        }
        for (i, clients) in (0..).zip(&config.clients) {
            for of in &clients.prefixes {
                if needs.named.contains(&i) {
                    self.prefix(of.prefix, SAID, What::Named(i));
                }
                if let Some(isp) = of.isp.filter(|_| needs.isp) {
                    self.prefix(of.prefix, SAID, What::Isp(isp as u32));
                }
                for what in of_place(of.place, needs) {
                    self.prefix(of.prefix, SAID, what);
                }
            }
        }
    }
}

/// Cuts ranges into prefixes, neighbours of which the same is said joined before.
fn cut_ranges<A: Address + Into<u128>>(
    ranges: &[Range<A>],
    bits: u8,
    rank: u16,
    of: &[u32],
    said: &[Vec<What>],
    out: &mut Vec<Entry>,
) {
    let index = |range: &Range<A>| of.get(range.value as usize).copied().unwrap_or(NO);
    let whats = |value: u32| said.get(value as usize).map_or(&[][..], Vec::as_slice);
    let mut joined: Vec<Range<A>> = ranges
        .iter()
        .map(|range| Range {
            value: index(range),
            ..*range
        })
        .filter(|range| !whats(range.value).is_empty())
        .collect();
    join(&mut joined);
    for range in joined {
        cut(range.first.into(), range.last.into(), bits, |address, len| {
            out.extend(whats(range.value).iter().map(|&what| Entry {
                address,
                len,
                rank,
                what,
            }));
        });
    }
}

/// What holds for a prefix, with the rank of who said it.
#[derive(Clone, Copy, Debug)]
struct State {
    isp: (u16, u32),
    country: (u16, Option<Country>, Option<Continent>),
    location: (u16, Option<Location>),
    /// Index in [`Interner::lists`].
    named: u32,
    measured: u32,
}

/// What of a state makes a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    isp: u32,
    country: Option<Country>,
    continent: Option<Continent>,
    location: Option<Location>,
    named: u32,
    measured: u32,
}

/// Gives classes and sets of named lists their numbers.
struct Interner {
    grid: i32,
    keys: Vec<Key>,
    ids: HashMap<Key, u16, RandomState>,
    /// Sets of named lists, the narrowest first; the first set is empty.
    lists: IndexSet<Vec<u32>, RandomState>,
    list_ids: HashMap<(u32, Vec<u32>), u32, RandomState>,
}

impl Interner {
    fn new(grid: i32) -> Self {
        let mut new = Self {
            grid,
            keys: vec![],
            ids: HashMap::default(),
            lists: std::iter::once(vec![]).collect(),
            list_ids: HashMap::default(),
        };
        // Class 0.
        new.class(&State::NOTHING);
        new
    }

    /// Walks sorted prefixes with those that enclose them on a stack. Gives the prefixes that change the class;
    /// `None` if there are more classes than ids.
    fn walk(&mut self, entries: &[Entry]) -> Option<Vec<Prefix>> {
        let mut out = Vec::new();
        // Last address, what holds, and its class.
        let mut around: Vec<(u128, State, u16)> = vec![(u128::MAX, State::NOTHING, 0)];
        for group in entries.chunk_by(|a, b| (a.address, a.len) == (b.address, b.len)) {
            let &[Entry { address, len, .. }, ..] = group else {
                continue;
            };
            let last = address | u128::MAX.checked_shr(len.into()).unwrap_or(0);
            while around.len() > 1 && around.last().is_some_and(|(end, ..)| *end < address) {
                around.pop();
            }
            let &(_, mut state, outer) = around.last()?;
            let mut named = Vec::new();
            for entry in group {
                apply(&mut state, entry);
                if let What::Named(list) = entry.what {
                    named.push(list);
                }
            }
            // A list may have a prefix twice: in its file too.
            named.dedup();
            if !named.is_empty() {
                state.named = self.with_lists(state.named, named);
            }
            let class = self.class(&state)?;
            if class != outer {
                out.push(Prefix { address, len, class });
            }
            around.push((last, state, class));
        }
        Some(out)
    }

    /// The set of lists `set`, with `nearer` before it: those of a narrower prefix, in the order of the configuration.
    fn with_lists(&mut self, set: u32, nearer: Vec<u32>) -> u32 {
        let key = (set, nearer);
        if let Some(id) = self.list_ids.get(&key) {
            return *id;
        }
        let mut members = key.1.clone();
        let farther = self.lists.get_index(set as usize).into_iter().flatten();
        members.extend(farther.filter(|list| !key.1.contains(list)));
        let id = self.lists.insert_full(members).0 as u32;
        self.list_ids.insert(key, id);
        id
    }

    /// The class of a state.
    fn class(&mut self, state: &State) -> Option<u16> {
        let key = Key {
            isp: state.isp.1,
            country: state.country.1,
            continent: state.country.2,
            location: state.location.1.map(|at| on_grid(at, self.grid)),
            named: state.named,
            measured: state.measured,
        };
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let id = u16::try_from(self.keys.len())
            .ok()
            .filter(|id| usize::from(*id) < CLASSES_MAX)?;
        self.keys.push(key);
        self.ids.insert(key, id);
        Some(id)
    }

    /// The classes by id.
    fn classes(&self, measured: &[IpNet]) -> Vec<ClientClass> {
        let class = |key: &Key| ClientClass {
            isp: (key.isp != NO).then_some(key.isp as usize),
            country: key.country,
            continent: key.continent,
            location: key.location,
            named: self
                .lists
                .get_index(key.named as usize)
                .cloned()
                .unwrap_or_default(),
            measured: measured.get(key.measured as usize).copied(),
        };
        self.keys.iter().map(class).collect()
    }
}

/// What a state becomes by what is said of a prefix; named lists are taken together.
fn apply(state: &mut State, entry: &Entry) {
    let rank = entry.rank;
    match entry.what {
        What::Isp(isp) if rank >= state.isp.0 => state.isp = (rank, isp),
        What::Country(country, continent) if rank >= state.country.0 => {
            state.country = (rank, country, continent);
        }
        What::Location(location) if rank >= state.location.0 => state.location = (rank, location),
        What::Measured(prefix) => state.measured = prefix,
        What::Isp(_) | What::Country(..) | What::Location(_) | What::Named(_) => {}
    }
}

impl State {
    const NOTHING: Self = Self {
        isp: (0, NO),
        country: (0, None, None),
        location: (0, None),
        named: 0,
        measured: NO,
    };
}

/// The middle of the square that a location lies in.
fn on_grid(at: Location, grid: i32) -> Location {
    let middle = |x: i32| x.div_euclid(grid) * grid + grid / 2;
    Location {
        latitude: middle(at.latitude).min(900_000),
        longitude: middle(at.longitude).min(1_800_000),
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
