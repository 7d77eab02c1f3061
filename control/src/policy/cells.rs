//! The cells `[policy][class]`: compiled whole for a configuration, and again where something that they go by changed.
//!
//! Owned by the compiler. A policy looks at some attributes of a class only, so classes that are the same to it are
//! ranked once. What changes is found by whose it is: a site's readings touch the policies that have the site and a metric that
//! reads them; evidence of clients touches the classes of these clients in the policies with `latency`; a site that went
//! down or came up touches the policies that compare sites. A cell that comes out as it was leaves its page shared with the
//! snapshots before.

use super::PolicyKey;
use super::chain::facts::Clients;
use super::chain::{ClientClass, Facts, Needs, Sites, rank, rank_explore};
use crate::config::model::Metric;
use anyhow::{Context, Result};
use dataplane::tables::paged::Paged;
use dataplane::tables::plans::{Cell, Policy};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// What changed of the facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Sites whose readings or silence did.
    pub sites: BTreeSet<usize>,
    /// Clients of whom there is other evidence.
    pub clients: HashSet<Clients>,
}

impl Changed {
    /// Whether nothing did.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.clients.is_empty()
    }
}

/// The cells of one policy.
#[derive(Clone, Debug)]
struct Of {
    key: PolicyKey,
    needs: Needs,
    /// Index of the first.
    first: usize,
    explores: bool,
    /// Sites that are down, as the cells have them; none unless the policy needs to know.
    down: Sites,
}

/// All cells of a configuration.
#[derive(Clone, Debug)]
pub struct Cells {
    policies: Vec<Of>,
    /// By id.
    classes: Arc<Vec<ClientClass>>,
    /// Classes that each policy has room for: those to come for measured prefixes too.
    room: usize,
    /// Classes by whose evidence counts for them.
    whose: HashMap<Clients, Vec<u16>>,
    cells: Paged<Cell>,
}

impl Cells {
    /// Compiles all cells, with room for `room` classes. `down`: of each policy, the sites that have no member up in any of its
    /// services.
    ///
    /// # Errors
    /// More cells than a place can name.
    pub fn compile(
        policies: &[PolicyKey],
        classes: Arc<Vec<ClientClass>>,
        room: usize,
        facts: &Facts,
        down: &[Sites],
    ) -> Result<Self> {
        let room = room.max(classes.len());
        let mut next = 0usize;
        let mut of = Vec::new();
        for (p, key) in policies.iter().enumerate() {
            let needs = key.needs();
            let explores = needs.by_class() && key.chain.explores().is_some();
            // Pairs share a cache line.
            let first = next.next_multiple_of(2);
            next = first
                + match (needs.by_class(), explores) {
                    (false, _) => 1,
                    (true, false) => room,
                    (true, true) => 2 * room,
                };
            of.push(Of {
                key: key.clone(),
                needs,
                first,
                explores,
                down: down.get(p).copied().filter(|_| needs.down).unwrap_or_default(),
            });
        }
        u32::try_from(next)
            .ok()
            .filter(|count| *count < Policy::CELLS_MAX)
            .context("more than 500 M cells: fewer policies or client classes")?;
        let mut cells = Self {
            policies: of,
            whose: whose(&classes),
            classes,
            room,
            cells: Paged::new(std::iter::repeat_n(Cell::default(), next)),
        };
        let all: Vec<u16> = cells.ids();
        for policy in 0..cells.policies.len() {
            cells.rank_again(policy, &all, facts);
        }
        Ok(cells)
    }

    /// The table of policies.
    pub fn policies(&self) -> Vec<Policy> {
        self.policies.iter().map(Of::policy).collect()
    }

    /// The table of cells.
    pub fn table(&self) -> Paged<Cell> {
        self.cells.clone()
    }

    /// The classes, by id.
    pub fn classes(&self) -> &Arc<Vec<ClientClass>> {
        &self.classes
    }

    /// How many classes there is room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Takes other classes, whose ids are below the [room](Self::room): ranks those that are new or were others.
    pub fn set_classes(&mut self, classes: Arc<Vec<ClientClass>>, facts: &Facts) -> usize {
        let is_new = |(id, class): &(usize, &ClientClass)| self.classes.get(*id) != Some(*class);
        let new: Vec<u16> = classes
            .iter()
            .enumerate()
            .filter(is_new)
            .map(|(id, _)| id as u16)
            .collect();
        self.whose = whose(&classes);
        self.classes = classes;
        let by_class = |p: &usize| self.policies[*p].needs.by_class();
        let policies: Vec<usize> = (0..self.policies.len()).filter(by_class).collect();
        policies
            .into_iter()
            .map(|p| self.rank_again(p, &new, facts))
            .sum()
    }

    /// Ranks again what `changed` touches, and policies with other sites `down` than before; how many cells came out
    /// otherwise.
    pub fn refresh(&mut self, changed: &Changed, facts: &Facts, down: &[Sites]) -> usize {
        let touched: BTreeSet<u16> = changed
            .clients
            .iter()
            .filter_map(|c| self.whose.get(c))
            .flatten()
            .copied()
            .collect();
        let touched: Vec<u16> = touched.into_iter().collect();
        let all = self.ids();
        let mut others = 0;
        for p in 0..self.policies.len() {
            let of = &mut self.policies[p];
            let down = down.get(p).copied().filter(|_| of.needs.down).unwrap_or_default();
            let sites = of.down != down
                || of.needs.by_site_facts() && of.key.sites.iter().any(|c| changed.sites.contains(&c.site));
            of.down = down;
            if sites {
                others += self.rank_again(p, &all, facts);
            } else if of.needs.latency && !touched.is_empty() {
                others += self.rank_again(p, &touched, facts);
            }
        }
        others
    }

    fn ids(&self) -> Vec<u16> {
        (0..self.classes.len()).map(|id| id as u16).collect()
    }

    /// Ranks the sites of a policy for these classes; how many cells came out otherwise.
    fn rank_again(&mut self, policy: usize, classes: &[u16], facts: &Facts) -> usize {
        let of = &self.policies[policy];
        let (chain, sites) = (&of.key.chain, &of.key.sites);
        let cell = |tiers: Vec<Vec<u8>>| Cell::new(tiers.iter().map(Vec::as_slice));
        let mut known: HashMap<ClientClass, (Cell, Cell)> = HashMap::new();
        let mut others = 0;
        let classes = if of.needs.by_class() { classes } else { &[0] };
        for &id in classes {
            let Some(class) = self.classes.get(usize::from(id)) else {
                continue;
            };
            let ranked = *known.entry(of.needs.seen(class)).or_insert_with_key(|class| {
                let explored = match of.explores {
                    true => cell(rank_explore(chain, sites, class, facts, of.down)),
                    false => Cell::default(),
                };
                (cell(rank(chain, sites, class, facts, of.down)), explored)
            });
            let step = 1 + usize::from(of.explores);
            let at = of.first + step * usize::from(id);
            for (at, cell) in [(at, ranked.0), (at + 1, ranked.1)].into_iter().take(step) {
                if self.cells.get(at) != Some(&cell) {
                    self.cells.set(at, cell);
                    others += 1;
                }
            }
        }
        others
    }
}

impl Of {
    fn policy(&self) -> Policy {
        let mut flags = 0;
        if self.needs.by_class() {
            flags |= Policy::BY_CLASS;
        }
        if self.explores {
            flags |= Policy::EXPLORES;
        }
        if !self.key.ecs {
            flags |= Policy::BY_SOURCE;
        }
        let (hashed_v4, hashed_v6) = self.key.hashed;
        let explore = self.key.chain.explores().filter(|_| self.explores);
        let window = match self.key.chain.has(Metric::LeastSelected) {
            true => self
                .key
                .chain
                .parameters
                .least_selected
                .window
                .as_secs()
                .clamp(1, 65_535) as u16,
            false => 0,
        };
        Policy {
            cells: self.first as u32,
            flags,
            window,
            explore: explore.map_or(0, |share| share.of(65_536).min(65_535) as u16),
            hashed_v4,
            hashed_v6,
        }
    }
}

/// Classes by whose evidence counts for them.
fn whose(classes: &[ClientClass]) -> HashMap<Clients, Vec<u16>> {
    let mut whose: HashMap<Clients, Vec<u16>> = HashMap::new();
    for (id, class) in classes.iter().enumerate() {
        for clients in class.clients() {
            whose.entry(clients).or_default().push(id as u16);
        }
    }
    whose
}
