//! Client classes of a compiled configuration: laid over each other by `data::overlay`, built into the table that workers
//! read, and kept from one compilation to the next while nothing that they are made of has changed.

use super::PolicyKey;
use super::chain::ClientClass;
use crate::config::model::{Clients, Config, Isp};
use crate::data::{As, Attributes, Data, Overlay, Place, Table, countries, overlay};
use anyhow::Result;
use dataplane::tables::classes::Classes;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The classes of a configuration.
#[derive(Clone, Debug)]
pub struct ClassSet {
    /// From an address to a class's id.
    pub table: Arc<Classes>,
    /// From an id to the class.
    pub list: Arc<Vec<ClientClass>>,
    /// How much there is of what.
    pub sizes: Arc<Sizes>,
}

/// How much there is of what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Prefixes that the table was built of, IPv4 and IPv6.
    pub prefixes: [usize; 2],
    /// Those that lead to each ISP, in the order of the configuration.
    pub isps: Vec<[usize; 2]>,
    /// Prefixes that RTTs are measured to, which are classes of their own.
    pub measured: usize,
    /// How coarse locations had to be made, degrees: see [`Overlay`].
    pub location_grid: Option<f64>,
}

impl ClassSet {
    fn new(config: &Config, made: Overlay) -> Result<Self> {
        let mut isps = vec![[0; 2]; config.isps.len()];
        for (family, prefixes) in [&made.v4, &made.v6].into_iter().enumerate() {
            for prefix in prefixes {
                let isp = made
                    .classes
                    .get(usize::from(prefix.class))
                    .and_then(|class| class.isp);
                if let Some(count) = isp.and_then(|isp| isps.get_mut(isp)) {
                    count[family] += 1;
                }
            }
        }
        let sizes = Sizes {
            prefixes: [made.v4.len(), made.v6.len()],
            isps,
            measured: made
                .classes
                .iter()
                .filter_map(|c| c.measured)
                .collect::<HashSet<_>>()
                .len(),
            location_grid: made.location_grid,
        };
        Ok(Self {
            table: Arc::new(Classes::build(made.v4, made.v6, made.classes.len() as u32)?),
            list: Arc::new(made.classes),
            sizes: Arc::new(sizes),
        })
    }
}

/// The classes that were made last.
#[derive(Debug, Default)]
pub(super) struct Kept {
    last: Option<(MadeOf, ClassSet)>,
}

/// Everything that classes depend on.
#[derive(Debug)]
struct MadeOf {
    isps: Vec<Isp>,
    clients: Vec<Clients>,
    data: Data,
    needs: Attributes,
    measured: Vec<IpNet>,
}

impl MadeOf {
    fn equals(&self, config: &Config, needs: &Attributes, measured: &[IpNet]) -> bool {
        // A database that has not changed is the same one in memory.
        let asn = |a: &[Arc<Table<As>>], b: &[Arc<Table<As>>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let country = |a: &[Arc<Table<Place>>], b: &[Arc<Table<Place>>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        asn(&self.data.asn, &config.data.asn)
            && country(&self.data.country, &config.data.country)
            && self.isps == config.isps
            && self.clients == config.clients
            && self.needs == *needs
            && (!needs.measured || self.measured == measured)
    }
}

/// What any of the policies looks at.
pub fn needs(policies: &[PolicyKey]) -> Attributes {
    let of = |policy: &PolicyKey| {
        let needs = policy.needs();
        // Only lists that some site is bound to.
        let lists = policy.sites.iter().flat_map(|site| {
            let bound = site.bound.iter().filter_map(|bound| bound.named);
            bound.chain(site.serves.iter().copied())
        });
        Attributes {
            isp: needs.isp,
            country: needs.country,
            continent: needs.continent,
            location: needs.location,
            named: lists.filter(|_| needs.named).collect(),
            measured: needs.measured,
        }
    };
    policies
        .iter()
        .fold(Attributes::default(), |all, policy| all.and(&of(policy)))
}

/// The classes that a configuration will have, without the table: for `windrose check`.
///
/// # Errors
/// As of [`overlay::overlay`].
pub fn overlay_of(config: &Config) -> Result<Overlay> {
    let policies: Vec<PolicyKey> = config.services.iter().map(|s| PolicyKey::of(config, s)).collect();
    overlay::overlay(config, &needs(&policies), &[])
}

impl Kept {
    /// The classes of a configuration with these policies.
    pub(super) fn of(
        &mut self,
        config: &Config,
        policies: &[PolicyKey],
        measured: &[IpNet],
    ) -> Result<ClassSet> {
        let needs = needs(policies);
        if let Some((made_of, set)) = &self.last
            && made_of.equals(config, &needs, measured)
        {
            return Ok(set.clone());
        }
        let mut made = with_measured(config, &needs, measured)?;
        // What was learnt of a class by its id stays true when only the measured prefixes are others.
        if let Some((made_of, set)) = &self.last
            && made_of.equals(config, &needs, &made_of.measured)
        {
            keep_ids(&mut made, &set.list);
        }
        let set = ClassSet::new(config, made)?;
        let made_of = MadeOf {
            isps: config.isps.clone(),
            clients: config.clients.clone(),
            data: config.data.clone(),
            needs,
            measured: measured.to_vec(),
        };
        self.last = Some((made_of, set.clone()));
        Ok(set)
    }
}

/// The overlay with these prefixes, or without them where they are too many: they make answers better, and never
/// refuse a configuration.
fn with_measured(config: &Config, needs: &Attributes, measured: &[IpNet]) -> Result<Overlay> {
    match overlay::overlay(config, needs, measured) {
        Err(error) if needs.measured && !measured.is_empty() => {
            tracing::warn!(%error, "measured prefixes are no classes of their own");
            overlay::overlay(config, needs, &[])
        }
        made => made,
    }
}

/// Numbers the classes so that those of `known` have their ids there. New ones take the ids of those that are gone, then
/// further ones; an id that nothing takes keeps its class.
fn keep_ids(made: &mut Overlay, known: &[ClientClass]) {
    let old: HashMap<&ClientClass, u16> = known.iter().zip(0..).collect();
    let mut list = known.to_vec();
    let mut ids: Vec<Option<u16>> = made.classes.iter().map(|class| old.get(class).copied()).collect();
    let used: HashSet<u16> = ids.iter().flatten().copied().collect();
    let mut free = (1..).filter(|id| !used.contains(id));
    for (class, id) in made.classes.iter().zip(&mut ids) {
        if id.is_none() {
            let next = free.next().unwrap_or(u16::MAX);
            match list.get_mut(usize::from(next)) {
                Some(gone) => *gone = class.clone(),
                None => list.push(class.clone()),
            }
            *id = Some(next);
        }
    }
    for prefix in made.v4.iter_mut().chain(&mut made.v6) {
        prefix.class = ids.get(usize::from(prefix.class)).copied().flatten().unwrap_or(0);
    }
    made.classes = list;
}

/// A class in words: "KT, KR, asia", "none" for class 0.
pub fn describe(config: &Config, class: &ClientClass) -> String {
    let mut words = Vec::new();
    words.extend(
        class
            .isp
            .and_then(|i| config.isps.get(i))
            .map(|isp| isp.name.clone()),
    );
    words.extend(class.country.map(|c| c.to_string()));
    words.extend(class.continent.map(|c| countries::name(c).to_owned()));
    words.extend(class.location.map(|at| {
        let degrees = |x: i32| f64::from(x) / 1e4;
        format!("at {:.2},{:.2}", degrees(at.latitude), degrees(at.longitude))
    }));
    let named = class.named.iter().filter_map(|i| config.clients.get(*i as usize));
    words.extend(named.map(|clients| format!("[{}]", clients.name)));
    words.extend(class.measured.map(|net| format!("measured {net}")));
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::tables::classes::Prefix;

    #[test]
    fn classes_keep_their_ids() {
        let class = |net: u8| ClientClass {
            measured: Some(format!("10.{net}.0.0/16").parse().unwrap()),
            ..ClientClass::default()
        };
        let known = [ClientClass::default(), class(1), class(2), class(3)];
        // 2 and 1 stay, 3 is gone, 4, 5 and 6 are new.
        let nets = [2u8, 4, 1, 5, 6];
        let mut made = Overlay {
            classes: std::iter::once(ClientClass::default())
                .chain(nets.map(class))
                .collect(),
            v4: nets
                .iter()
                .zip(1..)
                .map(|(&net, id)| Prefix::v4([10, net, 0, 0], 16, id))
                .collect(),
            v6: Vec::new(),
            location_grid: None,
        };
        keep_ids(&mut made, &known);
        let ids: Vec<u16> = made.v4.iter().map(|p| p.class).collect();
        assert_eq!(ids, [2, 3, 1, 4, 5]);
        for (net, id) in nets.iter().zip(ids) {
            assert_eq!(made.classes[usize::from(id)], class(*net));
        }
        assert_eq!(
            (made.classes.len(), &made.classes[0]),
            (6, &ClientClass::default())
        );
    }
}
