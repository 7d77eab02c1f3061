//! The policy compiler: from a checked configuration and the members' health to a snapshot and words.
//!
//! Called by `run` for each configuration and each change of health; also by `check`. [`names`] compiles
//! zones, [`chain`] runs the metrics, [`classes`] keeps the client classes, [`slots`] keeps member slots stable, `pools` lays
//! out members.

pub mod cells;
pub mod chain;
pub mod classes;
#[cfg(test)]
mod cname_tests;
mod limits;
pub mod names;
mod pools;
#[cfg(test)]
mod refresh_tests;
pub(crate) mod servers;
pub mod site_words;
pub mod slots;
#[cfg(test)]
pub(crate) mod tests;

use crate::config::model::{AllDown, Config, Metric, OnSilence, Service, Site, Spread};
use crate::health::Standing;
use crate::reports::silence;
use anyhow::{Context, Result};
use cells::{Cells, Changed};
use chain::{Candidate, Chain, ClientClass, Facts, Needs, SiteFacts, Sites};
use classes::Sizes;
use dataplane::stages::classify::PortView;
use dataplane::tables::answers::AnswersBuilder;
use dataplane::tables::plans;
use dataplane::tables::words::ALWAYS_WHOLE;
use dataplane::tables::{NONE, Snapshot};
use dataplane::wire::cookie::Secret;
use ipnet::IpNet;
#[cfg_attr(
    not(feature = "dpdk"),
    allow(unused_imports, reason = "explain's, which comes with ports")
)]
pub(crate) use pools::{Given, Which, members};
use site_words::{Shares, Watch};
use slots::{PoolKey, Slots, Target};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What makes two policies one: services with equal keys share cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyKey {
    /// The chain, with what its metrics go by.
    pub chain: Chain,
    /// Whether the client may be a client subnet.
    pub ecs: bool,
    /// Bits of the client's address that choose among equals, IPv4 and IPv6; 0 unless `static` hashes.
    pub hashed: (u8, u8),
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
            hashed: match service.spread {
                Spread::ConsistentHash { prefix_v4, prefix_v6 } => (prefix_v4, prefix_v6),
                Spread::RoundRobin | Spread::Weighted => (0, 0),
            },
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
    /// Client classes by id.
    pub classes: Arc<Vec<ClientClass>>,
    /// How much there is of what makes them.
    pub sizes: Arc<Sizes>,
    /// Members by their index in the A records, as text, with the site.
    pub members_v4: Vec<(String, usize)>,
    /// The same for AAAA records.
    pub members_v6: Vec<(String, usize)>,
}

impl Index {
    /// The client class with this id.
    pub fn class(&self, id: u16) -> &ClientClass {
        static NOTHING: ClientClass = ClientClass::NOTHING;
        self.classes.get(usize::from(id)).unwrap_or(&NOTHING)
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
    /// What is known of sites and clients: what the next compilation goes by.
    pub facts: Arc<Facts>,
    /// Prefixes that RTTs are measured to: classes of their own, where a policy looks at them.
    pub measured: Vec<IpNet>,
    classes: classes::Kept,
    /// Keys for the hash of names; `None`: secret ones from the kernel, new ones each time. For benches alone, which
    /// compare one place in the table with itself.
    pub name_keys: Option<[u64; 4]>,
    generation: u64,
    /// Secret for cookies where none is configured.
    cookie_secret: Option<Secret>,
    kept: Option<Kept>,
}

/// What was compiled last, to compile parts of it again.
#[derive(Debug)]
struct Kept {
    snapshot: Snapshot,
    cells: Cells,
    records: Vec<pools::Records>,
    config: Arc<Config>,
    policies: Vec<PolicyKey>,
    /// The pools of each policy's services.
    pools: Vec<HashSet<PoolKey>>,
    sizes: Arc<Sizes>,
    /// Prefixes that are classes of their own.
    measured: Vec<IpNet>,
}

/// What came out otherwise.
#[derive(Debug)]
pub struct Refreshed {
    /// Shares all else with the last.
    pub snapshot: Snapshot,
    /// Client classes by id.
    pub classes: Arc<Vec<ClientClass>>,
    /// How much there is of what makes them.
    pub sizes: Arc<Sizes>,
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
        let mut pools_of: Vec<HashSet<PoolKey>> = Vec::new();
        for service in &config.services {
            let key = PolicyKey::of(&config, service);
            let policy = *policy_index.entry(key.clone()).or_insert_with(|| {
                policies.push(key.clone());
                pools_of.push(HashSet::new());
                policies.len() as u32 - 1
            });
            let mut pool = |which: Which| -> Result<u32> {
                let Some(pool_key) = pool_key(service, &key, which) else {
                    return Ok(NONE);
                };
                let mut slots = lock(&self.slots);
                let firsts = slots
                    .place(&pool_key, &standing)
                    .with_context(|| format!("service {}", service.name))?;
                let site_words = site_words(&mut slots, &config, service, &key)?;
                drop(slots);
                let placed = pools::Placed {
                    pool: &pool_key,
                    firsts: &firsts,
                    site_words: &site_words,
                };
                let index = layout.pool(service, &key, which, placed, &mut answers)?;
                pools_of[policy as usize].insert(pool_key.clone());
                used.insert(pool_key);
                Ok(index)
            };
            services.push(plans::Service {
                policy,
                v4: pool(Which::V4)?,
                v6: pool(Which::V6)?,
                decides: pool(Which::Decides)?,
            });
        }
        let classes = self.classes.of(&config, &policies, &self.measured)?;
        let room = room_for(&config, &policies, classes.list.len());
        let down = self.down(&policies, &pools_of);
        let cells = Cells::compile(&policies, classes.list.clone(), room, &self.facts, &down)?;
        let policy_table = cells.policies();
        for (i, (service, compiled)) in config.services.iter().zip(&services).enumerate() {
            let policy = policy_table.get(compiled.policy as usize).copied();
            let service_name = names::ServiceName {
                service: i as u32,
                place: policy.unwrap_or_default().place(),
                cnames: !service.cnames.is_empty(),
            };
            service_names.insert(service.name.as_slice().to_ascii_lowercase(), service_name);
        }
        let keys = self.name_keys.map_or_else(random_seed, Ok)?;
        let names = names::compile(&config.zones, &service_names, answers, keys)?;
        self.generation += 1;
        let generation = self.generation;
        let mut slots = lock(&self.slots);
        slots.retain(generation, &used, oldest_in_use);
        let sites = config.sites.iter().map(|site| site.name.as_str()).collect();
        slots.sites.retain(generation, &sites, oldest_in_use);
        drop(slots);
        pools::set_ttls(
            &layout.records,
            |pool| lock(&self.slots).is_degraded(pool),
            &mut layout.records_a,
            &mut layout.records_aaaa,
        );
        let records = std::mem::take(&mut layout.records);
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
            classes: classes.table,
            servers: Arc::new(servers::servers(&config)?),
            plans: Arc::new(layout.plans(services, policy_table)?),
            cells: cells.table(),
            limits: limits::limits(&config.dns, &mut self.cookie_secret)?,
        };
        self.kept = Some(Kept {
            snapshot: snapshot.clone(),
            cells,
            records,
            config: config.clone(),
            policies: policies.clone(),
            pools: pools_of,
            sizes: classes.sizes.clone(),
            measured: self.measured.clone(),
        });
        Ok(Compiled {
            snapshot,
            index: Index {
                config,
                policies,
                classes: classes.list,
                sizes: classes.sizes,
                members_v4,
                members_v6,
            },
        })
    }

    /// Compiles again what goes by facts that changed, by the measured prefixes and by how members stand: cells, classes, and
    /// the TTLs of degraded pools. `None` when all came out as it was.
    ///
    /// # Errors
    /// When the kernel has no memory. Measured prefixes that make more classes than there is room for are left out.
    pub fn refresh(&mut self, changed: &Changed) -> Result<Option<Refreshed>> {
        let down = match &self.kept {
            Some(kept) => self.down(&kept.policies, &kept.pools),
            None => return Ok(None),
        };
        let Some(kept) = &mut self.kept else {
            return Ok(None);
        };
        let mut others = kept.cells.refresh(changed, &self.facts, &down) > 0;
        let room = kept.cells.room();
        let classes = self.classes.of(&kept.config, &kept.policies, &self.measured);
        let fitting = classes.and_then(|classes| match classes.list.len() {
            count if count <= room => Ok(classes),
            count => anyhow::bail!("{count} client classes, and room for {room} until the next reload"),
        });
        match fitting {
            Ok(classes) => {
                if !Arc::ptr_eq(&classes.table, &kept.snapshot.classes) {
                    kept.cells.set_classes(classes.list.clone(), &self.facts);
                    kept.snapshot.classes = classes.table.clone();
                    // An id may be another class's now: flows look theirs up again.
                    kept.snapshot.servers = Arc::new(servers::servers(&kept.config)?);
                    others = true;
                }
                kept.sizes = classes.sizes;
                kept.measured.clone_from(&self.measured);
            }
            // The classes stay as they are; nothing else waits for that.
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "measured prefixes do not become classes"
                );
                self.measured.clone_from(&kept.measured);
            }
        }
        if others {
            kept.snapshot.cells = kept.cells.table();
        }
        let plans = &kept.snapshot.plans;
        let (mut a, mut aaaa) = (plans.records_a.to_vec(), plans.records_aaaa.to_vec());
        let degraded = |pool: &PoolKey| lock(&self.slots).is_degraded(pool);
        let ttls = pools::set_ttls(&kept.records, degraded, &mut a, &mut aaaa);
        if ttls {
            kept.snapshot.plans = Arc::new(plans.with_records(a, aaaa)?);
            others = true;
        }
        if !others {
            return Ok(None);
        }
        self.generation += 1;
        kept.snapshot.generation = self.generation;
        Ok(Some(Refreshed {
            snapshot: kept.snapshot.clone(),
            classes: kept.cells.classes().clone(),
            sizes: kept.sizes.clone(),
        }))
    }

    /// Of each policy that needs to know, the sites that have no member up in any of its services' pools.
    fn down(&self, policies: &[PolicyKey], pools: &[HashSet<PoolKey>]) -> Vec<Sites> {
        let down = |(policy, pools): (&PolicyKey, &HashSet<PoolKey>)| {
            if !policy.needs().down {
                return Sites::default();
            }
            let up = |pool| {
                lock(&self.slots)
                    .groups_up(pool)
                    .map(|group| group as u8)
                    .collect()
            };
            let mut down = Sites::first(policy.sites.len());
            for pool in pools {
                // Nearly always after the first: to look a pool up takes a hash of all its members.
                if down.is_empty() {
                    break;
                }
                down = down.without(up(pool));
            }
            down
        };
        policies.iter().zip(pools).map(down).collect()
    }

    /// The generation compiled last.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// Locked for one pool at a time: changes of health do not wait for a whole configuration.
fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many classes policies need room for: where RTTs count, a measured prefix may cut two classes each of its own.
fn room_for(config: &Config, policies: &[PolicyKey], classes: usize) -> usize {
    let measured = config.reports.as_ref().map_or(0, |reports| reports.rtt_prefixes);
    match policies.iter().any(|policy| policy.needs().measured) {
        true => (classes + 3 * measured).min(usize::from(u16::MAX)),
        false => classes,
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

/// The site word of each site of a service's policy.
fn site_words(slots: &mut Slots, config: &Config, service: &Service, policy: &PolicyKey) -> Result<Vec<u16>> {
    let word = |candidate: &Candidate| {
        let site = &config.sites[candidate.site];
        let watch = Watch {
            capacity: policy.chain.has(Metric::Capacity),
            silence: service.on_silence.unwrap_or(site.on_silence) == OnSilence::Avoid,
        };
        match watch.is_nothing() {
            true => Some(ALWAYS_WHOLE),
            false => slots.sites.place(&site.name, watch),
        }
    };
    let words: Option<Vec<u16>> = policy.sites.iter().map(word).collect();
    words.with_context(|| {
        format!(
            "more than {} sites; after reloads with ever other sites a restart helps",
            site_words::PLACES
        )
    })
}

/// What there is against each site of a configuration, in its order.
pub fn site_shares(config: &Config, facts: &Facts) -> Vec<Shares> {
    let feed_down = silence::is_feed_down(config, facts);
    let shares = |(site, facts): (&Site, &SiteFacts)| Shares {
        capacity: chain::capacity::site_share(facts, site, &config.selection.capacity),
        // When all are silent it is the reports that fail, not the sites.
        silent: facts.silent && !feed_down,
    };
    config.sites.iter().zip(&facts.sites).map(shares).collect()
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
