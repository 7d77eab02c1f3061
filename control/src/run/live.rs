//! The running appliance: what is published, and how it changes by health and by reload.
//!
//! Shared by the main loop and the admin API. Words go out in the turn of the health change that made them,
//! also while a reload compiles: only the slots are locked for both.

use super::fresh::measured;
use super::ports;
use crate::admin::api::ReloadReport;
use crate::alerts::{Alerts, Event, Kind, Watch};
use crate::config::model::{Config, CookieMode, Role};
use crate::config::{self};
use crate::health::{self, Memory, Prober, Standing, State, TargetKey, Transition};
use crate::latency::{self, file::SampleFile};
use crate::overrides::Overrides;
use crate::policy::slots::{Slots, Target};
use crate::policy::{Compiled, Compiler, Index};
use crate::publish::Publisher;
use crate::reports::{Receiver, ReportStore};
use crate::state;
use crate::tcp::Tcp;
use anyhow::{Context, Result};
use dataplane::arch::{TickRate, Ticks};
use dataplane::clock::clock_word;
use dataplane::counters::Published;
use dataplane::io::WINDOW;
use dataplane::io::dpdk::Port;
use dataplane::link::{WordTarget, WordValue};
use dataplane::stages::neighbour::announce;
use dataplane::tables::Snapshot;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Longest wait for the first result of new checks before their members count as down.
const FIRST_CHECK_MAX: Duration = Duration::from_secs(5);

/// What is published now.
pub(super) struct Current {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) index: Index,
    /// Unix time, seconds.
    pub(super) loaded_at: u64,
}

/// What sites say of themselves.
pub(super) struct Reports {
    pub(super) store: Arc<ReportStore>,
    /// Where they say it, if anywhere.
    pub(super) receiver: Option<Receiver>,
}

/// What is known of response latency on users' traffic.
pub(super) struct Latency {
    pub(super) store: Arc<latency::Store>,
    /// Where samples are written to, if anywhere.
    pub(super) file: Option<Arc<SampleFile>>,
}

/// The running appliance.
pub(super) struct Live {
    path: PathBuf,
    pub(super) started: Instant,
    pub(super) ports: Vec<Port>,
    pub(super) prober: Prober,
    pub(super) reports: Reports,
    pub(super) latency: Latency,
    /// DNS over TCP, if enabled. Before the publisher, which it goes through.
    pub(super) tcp: Option<Tcp>,
    pub(super) publisher: Publisher<Snapshot>,
    pub(super) published: Vec<Arc<Published>>,
    pub(super) rate: TickRate,
    macs: Vec<[u8; 6]>,
    current: Mutex<Option<Current>>,
    /// What people say of members over what health says.
    pub(super) overrides: Overrides,
    /// What is told of all this.
    pub(super) alerts: Alerts,
    /// Which sites serve whom; `None` before the first snapshot.
    pub(super) watch: Mutex<Option<Watch>>,
    /// Sites that were told to be silent.
    pub(super) silent: Mutex<HashSet<String>>,
    /// Where health is kept over restarts.
    pub(super) memory: Option<Memory>,
    /// The configuration that workers and ports were started by.
    pub(super) started_by: Arc<Config>,
    pub(super) compiler: tokio::sync::Mutex<Compiler>,
    pub(super) slots: Arc<Mutex<Slots>>,
    /// Something that compiled plans go by changed: see [`Live::keep_fresh`].
    pub(super) stale: Notify,
    /// Held over a whole reload, so that of two the later one's file is what stays.
    reloading: tokio::sync::Mutex<()>,
}

/// Locks; a thread that panicked while it held a lock has ended the process already.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    #[allow(
        clippy::too_many_arguments,
        reason = "one call: what `run` has started, in order"
    )]
    pub(super) fn new(
        path: &Path,
        config: Arc<Config>,
        ports: Vec<Port>,
        prober: Prober,
        reports: Reports,
        latency: Latency,
        tcp: Option<Tcp>,
        publisher: Publisher<Snapshot>,
        published: Vec<Arc<Published>>,
        rate: TickRate,
    ) -> Result<Self> {
        let macs = ports.iter().map(|p| p.info().mac).collect::<Vec<_>>();
        // Found out now, when nothing runs yet.
        ports::views(&config, &macs)?;
        let compiler = Compiler::default();
        let folder = config.appliance.state.as_deref();
        if let Some(folder) = folder {
            state::prepare(folder).with_context(|| {
                let shown = folder.display();
                format!("cannot use {shown}, the folder that `state` of [appliance] names")
            })?;
        }
        let memory = folder.map(Memory::new);
        if let Some(memory) = &memory {
            prober.remember(memory.load(config.appliance.state_max_age));
        }
        Ok(Self {
            overrides: Overrides::load(folder),
            alerts: Alerts::new(&config.appliance.name),
            watch: Mutex::new(None),
            silent: Mutex::default(),
            memory,
            path: path.to_owned(),
            started: Instant::now(),
            ports,
            prober,
            reports,
            latency,
            tcp,
            publisher,
            published,
            rate,
            macs,
            current: Mutex::new(None),
            started_by: config,
            slots: compiler.slots.clone(),
            compiler: tokio::sync::Mutex::new(compiler),
            stale: Notify::new(),
            reloading: tokio::sync::Mutex::default(),
        })
    }

    /// What is published; `None` before the first snapshot.
    pub(super) fn current(&self) -> MutexGuard<'_, Option<Current>> {
        lock(&self.current)
    }

    /// All words as they stand.
    pub(super) fn words(&self) -> Vec<(WordTarget, WordValue)> {
        lock(&self.slots).words()
    }

    /// How a member stands: what health says of it, and over that what people say.
    pub(super) fn standing(&self, target: &Target) -> Standing {
        let health = match &target.check {
            None => Standing::UP,
            Some(check) => {
                let key = TargetKey {
                    address: target.address,
                    check: check.clone(),
                };
                self.prober.standing(&key).unwrap_or(Standing::DOWN)
            }
        };
        self.overrides.apply(target.address, health)
    }

    pub(super) fn is_up(&self, target: &Target) -> bool {
        self.standing(target).up
    }

    /// Compiles and publishes `config`; words first, so that a new member's state is known with its first plan.
    async fn publish(&self, config: Arc<Config>) -> Result<u64> {
        let mut compiler = self.compiler.lock().await;
        let views = ports::views(&config, &self.macs)?;
        self.overrides.set_places(places(&config));
        let oldest = self.publisher.oldest_generation();
        compiler.facts = Arc::new(self.facts(&config));
        compiler.measured = measured(&compiler.facts);
        let compiled = tokio::task::block_in_place(|| {
            compiler.compile(config.clone(), views, |target| self.standing(target), oldest)
        });
        let Compiled { snapshot, index } = compiled.inspect_err(|_| {
            if let Some(current) = self.current().as_ref() {
                self.overrides.set_places(places(&current.index.config));
            }
        })?;
        let generation = snapshot.generation;
        let snapshot = Arc::new(snapshot);
        self.latency
            .store
            .learn(&config, &index.classes, &snapshot.servers);
        self.send_clock()?;
        self.set_site_shares(&config, &compiler.facts);
        self.send_words()?;
        self.publisher.publish(snapshot.clone(), generation)?;
        let loaded_at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_secs());
        *lock(&self.watch) = Some(self.watch(&config));
        self.alerts.configure(&config.appliance.name, &config.alerts);
        *self.current() = Some(Current {
            snapshot,
            index,
            loaded_at,
        });
        Ok(generation)
    }

    /// Sends the words that changed. The slots stay locked until they are handed over: of two that send at once
    /// neither may send an older value last. Handing over never waits.
    pub(super) fn send_words(&self) -> Result<()> {
        let mut slots = lock(&self.slots);
        let changes = slots.take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        Ok(self.publisher.set_words(changes)?)
    }

    /// Tells the workers what time it is.
    pub(super) fn send_clock(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let word = clock_word(now.as_millis() as u64, Ticks::now());
        Ok(self.publisher.set_words(vec![(WordTarget::Clock, word)])?)
    }

    /// Waits until each target was checked once, or [`FIRST_CHECK_MAX`] is over.
    async fn first_checks(&self, targets: &HashSet<TargetKey>) {
        let deadline = tokio::time::Instant::now() + FIRST_CHECK_MAX;
        let unknown = |target: &&TargetKey| {
            self.prober
                .get(target)
                .is_none_or(|status| status.state == State::Unknown || status.remembered)
        };
        while targets.iter().any(|t| unknown(&t)) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the checks, waits for their first results, and publishes the first snapshot.
    pub(super) async fn first_snapshot(&self) -> Result<()> {
        let targets = health::targets(&self.started_by);
        self.prober.update(targets.clone());
        self.first_checks(&targets).await;
        self.publish(self.started_by.clone())
            .await
            .context("first snapshot")?;
        let cookies = &self.started_by.dns.cookies;
        if cookies.mode != CookieMode::Off && cookies.secrets.is_none() {
            tracing::info!(
                "DNS cookies are made with a secret of this process alone: appliances that share addresses need \
                 the same `secret_file` in [dns.cookies]"
            );
        }
        Ok(())
    }

    /// Takes a change of health: new words go out at once, then it is told.
    pub(super) fn health_changed(&self, transition: &Transition) {
        let target = &transition.target;
        self.member_changed(&Target {
            address: target.address,
            check: Some(target.check.clone()),
        });
        self.tell_transition(transition);
    }

    /// A member stands otherwise than before: new words go out at once.
    pub(super) fn member_changed(&self, target: &Target) {
        let pools = lock(&self.slots).standing_changed(target, |target| self.standing(target));
        if let Err(error) = self.send_words() {
            tracing::error!(%error, "a change of health does not reach the workers");
        }
        self.stale.notify_one();
        tracing::debug!(address = %target.address, pools, "words sent");
    }

    /// Loads the configuration file anew and publishes it, or keeps the old one whole.
    pub(super) async fn load_again(&self) -> Result<ReloadReport, String> {
        let _one_at_a_time = self.reloading.lock().await;
        let path = self.path.clone();
        let loaded = tokio::task::spawn_blocking(move || config::load_with_warnings(&path));
        let (config, warnings) = loaded.await.map_err(|e| e.to_string())?.map_err(|found| {
            self.refused(&found.to_string());
            found.to_string()
        })?;
        let mut warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        warnings.extend(needs_restart(&self.started_by, &config));
        same_ports(&self.started_by, &config).inspect_err(|error| self.refused(error))?;
        let config = Arc::new(config);
        // New targets are checked before the snapshot that names them is published.
        let targets = health::targets(&config);
        let known: HashSet<IpAddr> = self.addresses();
        let old = self
            .current()
            .as_ref()
            .map(|c| health::targets(&c.index.config))
            .unwrap_or_default();
        self.prober.update(targets.union(&old).cloned());
        self.first_checks(&targets).await;
        // New addresses first: a client may connect as soon as a worker knows one.
        let addresses = addresses_of(&config);
        self.set_tcp_addresses(addresses.union(&known).copied().collect());
        let generation = match self.publish(config.clone()).await {
            Ok(generation) => generation,
            Err(error) => {
                self.prober.update(old);
                self.set_tcp_addresses(known);
                self.refused(&format!("{error:#}"));
                return Err(format!("{error:#}"));
            }
        };
        self.prober.update(targets);
        self.reports.store.configure(&config, Instant::now());
        self.latency.store.configure(&config);
        self.set_tcp_addresses(addresses);
        self.announce(&config, |address| !known.contains(address));
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let hash = config.hash.get(..12).unwrap_or(&config.hash);
        let done = format!("live as generation {generation}");
        self.alerts.tell(
            Event::new(Kind::Reload, &self.path.display().to_string(), "read anew", done)
                .with("generation", generation.to_string())
                .with("config_hash", hash),
        );
        Ok(ReloadReport {
            generation,
            config_hash: config.hash.clone(),
            warnings,
        })
    }

    /// Tells that a configuration was refused.
    fn refused(&self, why: &str) {
        let file = self.path.display().to_string();
        // All of it for who reads the log; the first finding for who is woken up.
        tracing::error!("reload refused, the old configuration stays:\n{why}");
        let first = why.lines().next().unwrap_or_default();
        self.alerts.tell(Event::new(
            Kind::ReloadRefused,
            &file,
            first,
            "the old configuration stays",
        ));
    }

    /// The service addresses that are answered now.
    fn addresses(&self) -> HashSet<IpAddr> {
        let current = self.current();
        current
            .as_ref()
            .map(|c| addresses_of(&c.index.config))
            .unwrap_or_default()
    }

    fn set_tcp_addresses(&self, addresses: HashSet<IpAddr>) {
        if let Some(tcp) = &self.tcp {
            tcp.set_addresses(addresses);
        }
    }

    /// Tells the segments which MAC address the service addresses have now: gratuitous ARP and unsolicited
    /// neighbour advertisements, for those who remember another appliance.
    pub(super) fn announce(&self, config: &Config, which: impl Fn(&IpAddr) -> bool) {
        let mut window = [0; WINDOW];
        for (index, (port, &mac)) in config.ports.iter().zip(&self.macs).enumerate() {
            for &address in port.addresses.iter().filter(|a| which(a)) {
                let len = announce(&mut window, mac, address);
                if let Err(error) = self.publisher.inject(0, index as u8, window[..len].to_vec()) {
                    tracing::warn!(port = port.name, %error, "cannot announce {address}");
                }
            }
        }
    }
}

/// Site and address of every member.
fn places(config: &Config) -> impl Iterator<Item = (&str, IpAddr)> {
    let members = config.services.iter().flat_map(|service| &service.members);
    members.map(|m| (config.sites[m.site].name.as_str(), m.address))
}

/// The service addresses of all ports.
pub(super) fn addresses_of(config: &Config) -> HashSet<IpAddr> {
    let ports = config.ports.iter();
    ports.flat_map(|port| port.addresses.iter().copied()).collect()
}

/// Ports are opened at start only, and are told apart by their place: a reload that has others is refused
/// whole, since addresses would move to the wrong port.
fn same_ports(old: &Config, new: &Config) -> Result<(), String> {
    let of = |c: &Config| -> Vec<(String, String, Option<u16>, Role)> {
        c.ports
            .iter()
            .map(|p| (p.name.clone(), p.device.clone(), p.mtu, p.role.clone()))
            .collect()
    };
    if of(old) == of(new) {
        return Ok(());
    }
    Err("the [[port]] sections differ in number, order, name, device, role or mtu from those that the appliance was \
         started with: restart it to open other ports"
        .into())
}

/// What differs between the running process and the new configuration and cannot change without a restart.
fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let mut out = Vec::new();
    let (a, b) = (&old.dataplane, &new.dataplane);
    if (&a.cores, a.idle, a.memory_bytes, a.buffers, &a.eal, a.share_cores)
        != (&b.cores, b.idle, b.memory_bytes, b.buffers, &b.eal, b.share_cores)
    {
        out.push("[dataplane] changed: takes effect at the next start".into());
    }
    for (a, b) in old.ports.iter().zip(&new.ports) {
        if (a.rx_descriptors, a.tx_descriptors) != (b.rx_descriptors, b.tx_descriptors) {
            out.push(format!(
                "port \"{}\" has other descriptors: takes effect at the next start",
                b.name
            ));
        }
    }
    if old.appliance.state != new.appliance.state {
        out.push("`state` of [appliance] changed: takes effect at the next start".into());
    }
    let at_start = |c: &Config| {
        let l = &c.latency;
        (l.flows, l.idle, l.file.clone(), l.file_size, l.file_keep)
    };
    if at_start(old) != at_start(new) {
        out.push(
            "[latency] flows, idle or the file of samples changed: takes effect at the next start".into(),
        );
    }
    if old.dns.tcp != new.dns.tcp {
        out.push("[dns.tcp] changed: takes effect at the next start".into());
    }
    let receiver = |c: &Config| c.reports.as_ref().map(|r| (r.listen, r.certificate.clone()));
    if receiver(old) != receiver(new) {
        out.push("[reports] has another `listen` or certificate: takes effect at the next start".into());
    }
    if (&old.admin.socket, old.admin.listen, &old.admin.token)
        != (&new.admin.socket, new.admin.listen, &new.admin.token)
    {
        out.push("[admin] changed: takes effect at the next start".into());
    }
    out
}
