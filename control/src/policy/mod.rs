//! The policy compiler: from a checked configuration and the members' health to a snapshot and words.
//!
//! Called by `run` for each configuration and each change of health; also by `check`. [`names`] compiles
//! zones, [`chain`] runs the metrics, [`slots`] keeps member slots stable, `pools` lays out members.

pub mod chain;
#[cfg(test)]
mod cname_tests;
mod limits;
pub mod names;
mod pools;
pub mod slots;
#[cfg(test)]
pub(crate) mod tests;

use crate::config::model::{AllDown, Config, Service};
use crate::health::Standing;
use anyhow::{Context, Result};
use chain::{Candidate, Chain, ClientClass, Facts, Needs};
use dataplane::stages::classify::PortView;
use dataplane::tables::answers::AnswersBuilder;
use dataplane::tables::classes::{Classes, Prefix};
use dataplane::tables::plans::{self, Cell, Policy};
use dataplane::tables::{NONE, Paged, Snapshot};
use dataplane::wire::cookie::Secret;
use ipnet::IpNet;
#[cfg_attr(
    not(feature = "dpdk"),
    allow(unused_imports, reason = "explain's, which comes with ports")
)]
pub(crate) use pools::{Given, Which, members};
use slots::{PoolKey, Slots, Target};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// What makes two policies one: services with equal keys share cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyKey {
    /// The chain, with what its metrics go by.
    pub chain: Chain,
    /// Whether the client may be a client subnet.
    pub ecs: bool,
    /// The sites that the services' members stand at, ascending, with their preference.
    pub sites: Vec<Candidate>,
}

impl PolicyKey {
    /// The policy of a service.
    pub fn of(config: &Config, service: &Service) -> Self {
        let mut sites: Vec<usize> = service.members.iter().map(|m| m.site).collect();
        sites.extend(service.cnames.iter().map(|m| m.site));
        sites.sort_unstable();
        sites.dedup();
        Self {
            chain: Chain::of(service),
            ecs: service.ecs,
            sites: sites
                .into_iter()
                .map(|site| Candidate::of(config, service, site))
                .collect(),
        }
    }

    /// Which attributes of a client class, and which facts, its cells depend on.
    pub fn needs(&self) -> Needs {
        Needs::of(&self.chain, &self.sites)
    }

    /// Whether cells differ by client class.
    pub fn by_class(&self) -> bool {
        self.needs().by_class()
    }
}

/// What the compiled tables mean, for `status` and `explain`: read by control only.
#[derive(Debug)]
pub struct Index {
    /// The configuration that was compiled.
    pub config: Arc<Config>,
    /// Policies by their index in the plans.
    pub policies: Vec<PolicyKey>,
    /// Members by their index in the A records, as text, with the site.
    pub members_v4: Vec<(String, usize)>,
    /// The same for AAAA records.
    pub members_v6: Vec<(String, usize)>,
}

impl Index {
    /// The client class with this id: the name of its ISP, `None` for class 0.
    pub fn class_isp(&self, class: u16) -> Option<usize> {
        (class as usize)
            .checked_sub(1)
            .filter(|isp| *isp < self.config.isps.len())
    }
}

/// A compiled configuration.
pub struct Compiled {
    /// For the workers.
    pub snapshot: Snapshot,
    /// For control.
    pub index: Index,
}

/// Compiles configurations, one after the other, for one appliance.
#[derive(Debug, Default)]
pub struct Compiler {
    /// Member slots, and the words that say their health: shared with whoever takes changes of health,
    /// which must not wait for a compilation.
    pub slots: Arc<Mutex<Slots>>,
    generation: u64,
    /// Secret for cookies where none is configured.
    cookie_secret: Option<Secret>,
}

impl Compiler {
    /// Compiles `config` for these ports; `standing` says how a target stands now. `oldest_in_use` is the lowest
    /// generation that a worker may still read. The snapshot's generation is one above the last.
    ///
    /// # Errors
    /// What exceeds a limit of the tables, by name. Nothing changes then but slots that were taken for new pools.
    pub fn compile(
        &mut self,
        config: Arc<Config>,
        ports: Vec<PortView>,
        standing: impl Fn(&Target) -> Standing,
        oldest_in_use: u64,
    ) -> Result<Compiled> {
        let mut answers = AnswersBuilder::default();
        let mut policies: Vec<PolicyKey> = Vec::new();
        let mut policy_index: HashMap<PolicyKey, u32> = HashMap::new();
        let mut layout = pools::Layout::new(self.generation as u32 + 1);
        let mut services = Vec::new();
        let mut service_names = names::ServiceNames::new();
        let mut used = HashSet::new();
        for service in &config.services {
            let key = PolicyKey::of(&config, service);
            let policy = *policy_index.entry(key.clone()).or_insert_with(|| {
                policies.push(key.clone());
                policies.len() as u32 - 1
            });
            let mut pool = |which: Which| -> Result<u32> {
                let Some(pool_key) = pool_key(service, &key, which) else {
                    return Ok(NONE);
                };
                // Locked for one pool at a time: changes of health do not wait for a whole configuration.
                let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
                let firsts = slots
                    .place(&pool_key, &standing)
                    .with_context(|| format!("service {}", service.name))?;
                drop(slots);
                used.insert(pool_key);
                layout.pool(service, &key, which, &firsts, &mut answers)
            };
            services.push(plans::Service {
                policy,
                v4: pool(Which::V4)?,
                v6: pool(Which::V6)?,
                decides: pool(Which::Decides)?,
            });
        }
        let (classes, class_count) = classes(&config)?;
        let (policy_table, cells) = cells(&policies, class_count, &Facts::none(&config))?;
        for (i, (service, compiled)) in config.services.iter().zip(&services).enumerate() {
            let policy = policy_table.get(compiled.policy as usize).copied();
            let service_name = names::ServiceName {
                service: i as u32,
                place: policy.unwrap_or_default().place(),
                cnames: !service.cnames.is_empty(),
            };
            service_names.insert(service.name.as_slice().to_ascii_lowercase(), service_name);
        }
        let names = names::compile(&config.zones, &service_names, answers, random_seed()?)?;
        self.generation += 1;
        let generation = self.generation;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(generation, &used, oldest_in_use);
        drop(slots);
        let (members_v4, members_v6) = (
            std::mem::take(&mut layout.members_v4),
            std::mem::take(&mut layout.members_v6),
        );
        let snapshot = Snapshot {
            generation,
            ports: Arc::new(ports),
            names: Arc::new(names.names),
            answers: Arc::new(names.answers),
            zones: Arc::new(names.zones),
            classes: Arc::new(classes),
            plans: Arc::new(layout.plans(services, policy_table)?),
            cells: Paged::new(cells),
            limits: limits::limits(&config.dns, &mut self.cookie_secret)?,
        };
        Ok(Compiled {
            snapshot,
            index: Index {
                config,
                policies,
                members_v4,
                members_v6,
            },
        })
    }

    /// The generation compiled last.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The members of one pool of a service, by site of its policy; `None` when there is none.
fn pool_key(service: &Service, policy: &PolicyKey, which: Which) -> Option<PoolKey> {
    let target = |member: Given<'_>| match member {
        Given::Address(m) => Target {
            address: m.address,
            check: service.check.clone(),
        },
        // Nothing is checked of a name: whoever answers for it does that.
        Given::Cname(_) => Target {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            check: None,
        },
    };
    let group = |site: usize| pools::members(service, site, which).map(target).collect();
    let groups: Vec<Vec<Target>> = policy.sites.iter().map(|c| group(c.site)).collect();
    // The fixed addresses themselves are no business of the slots.
    let when_all_down = match &service.when_all_down {
        AllDown::Fixed(_) => AllDown::Closed,
        other => other.clone(),
    };
    groups.iter().any(|g| !g.is_empty()).then_some(PoolKey {
        groups,
        when_all_down,
    })
}

/// Client classes: one for each ISP, from 1.
fn classes(config: &Config) -> Result<(Classes, u32)> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (i, isp) in config.isps.iter().enumerate() {
        let class = u16::try_from(i + 1)
            .ok()
            .filter(|c| *c < u16::MAX)
            .context("more than 65,533 ISPs")?;
        for prefix in &isp.prefixes {
            match prefix.trunc() {
                IpNet::V4(p) => v4.push(Prefix::v4(p.network().octets(), p.prefix_len(), class)),
                IpNet::V6(p) => v6.push(Prefix::v6(p.network().octets(), p.prefix_len(), class)),
            }
        }
    }
    let count = config.isps.len() as u32 + 1;
    Ok((Classes::build(v4, v6, count)?, count))
}

/// The cell [policy][class] of all policies.
fn cells(policies: &[PolicyKey], class_count: u32, facts: &Facts) -> Result<(Vec<Policy>, Vec<Cell>)> {
    let mut table = Vec::new();
    let mut cells: Vec<Cell> = Vec::new();
    for key in policies {
        let mut flags = 0;
        if key.by_class() {
            flags |= Policy::BY_CLASS;
        }
        if !key.ecs {
            flags |= Policy::BY_SOURCE;
        }
        let first = u32::try_from(cells.len())
            .ok()
            .filter(|first| *first < Policy::CELLS_MAX)
            .context("more than 1 G cells: fewer policies or ISPs")?;
        table.push(Policy {
            cells: first,
            flags,
            ..Policy::default()
        });
        let classes = if key.by_class() { class_count } else { 1 };
        for class in 0..classes {
            let client = ClientClass {
                isp: (class as usize).checked_sub(1),
                ..ClientClass::default()
            };
            let tiers = chain::rank(&key.chain, &key.sites, &client, facts);
            cells.push(Cell::new(tiers.iter().map(Vec::as_slice)));
        }
    }
    Ok((table, cells))
}

/// Secret keys for the hash of names, from the kernel.
fn random_seed() -> Result<[u64; 4]> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no random bytes from the kernel: {e}"))?;
    let mut seed = [0; 4];
    for (word, chunk) in seed.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(seed)
}
