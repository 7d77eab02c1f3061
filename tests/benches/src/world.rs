//! What the benches measure on: a configuration written to files and loaded as the appliance does, compiled, and a
//! worker that has adopted it.
//!
//! Called by every bench. The files live in a temporary folder that goes with the [`World`].

use crate::queries::Kind;
use anyhow::{Context, Result, bail};
use control::config::{self, model::Config, model::RateLimit};
use control::health::Standing;
use control::policy::{Compiled, Compiler};
use dataplane::arch::{TickRate, Ticks};
use dataplane::clock::clock_word;
use dataplane::counters::Published;
use dataplane::io::QueuePair;
use dataplane::io::memory::{MemoryConfig, MemoryPort};
use dataplane::link::{ControlLink, LinkSlots, StopFlag, WordTarget, WordValue, connect};
use dataplane::stages::classify::{PortView, Role};
use dataplane::stages::flow_latency::FlowLimits;
use dataplane::tables::addresses::{AddressKind, Addresses};
use dataplane::tables::{Classes, Servers, Snapshot};
use dataplane::wire::cookie::{Secret, Secrets};
use dataplane::worker::{Idle, Worker, WorkerConfig};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The service address that queries go to.
pub(crate) const SERVICE: [u8; 4] = [192, 0, 2, 53];
/// Members of the service.
pub(crate) const MEMBERS: usize = 27;
/// Sites that they stand at.
pub(crate) const SITES: usize = 6;

/// What cookies of the queries are made with, and when, Unix time in seconds.
pub(crate) const SECRETS: Secrets = Secrets {
    current: Secret::new(*b"a bench's secret"),
    other: None,
};
/// See [`SECRETS`].
pub(crate) const COOKIE_TIME: u32 = 1_700_000_000;

/// The configuration with these secrets.
fn with_secrets(mut config: Config) -> Config {
    config.dns.cookies.secrets = Some(SECRETS);
    config
}

/// How large the configuration is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Names with an A record: see [`name`].
    pub(crate) names: usize,
    /// Client prefixes, over [`ISPS`] ISPs.
    pub(crate) prefixes: usize,
}

/// What the instruction counts and rates are measured on.
pub(crate) const USUAL: Size = Size {
    names: 1_000,
    prefixes: 10_000,
};
/// ISPs: the first [`SITES`] / 2 have a site.
pub(crate) const ISPS: usize = 20;

/// A compiled configuration.
pub(crate) struct World {
    /// The configuration, as loaded.
    pub(crate) config: Arc<Config>,
    /// Compiles it again.
    pub(crate) compiler: Compiler,
    /// The worker's flow table.
    pub(crate) flows: Option<FlowLimits>,
}

/// A worker that has adopted its snapshot, with control's side of it.
pub(crate) struct Ready<Q: QueuePair> {
    /// The worker.
    pub(crate) worker: Worker<Q>,
    /// Control's end of its link.
    pub(crate) link: ControlLink<Snapshot>,
    /// Ends its loop.
    pub(crate) stop: StopFlag,
}

/// The i-th client prefix: an address and a length of 20 to 24 bits, disjoint from all others, in 11.0.0.0 and on.
/// Up to 800,000 of them.
pub(crate) fn prefix(i: usize) -> ([u8; 4], u8) {
    // A /20 has room for 16 /24: each 16th prefix is followed by its more specific ones.
    let network = 0x0b00_0000 + ((i as u32) << 8);
    let length = if i.is_multiple_of(16) { 20 } else { 24 };
    (network.to_be_bytes(), length)
}

/// The i-th name with an A record; all are of one length.
pub(crate) fn name(i: usize) -> String {
    format!("n{i:07}.example.com")
}

/// The ISP of the i-th prefix: neighbours differ, so that nothing can be merged. The first is in one without a site.
fn isp_of(i: usize) -> usize {
    (i + SITES / 2) % ISPS
}

/// The lowest prefix of an ISP; every [`ISPS`]-th from there on is its too.
pub(crate) fn first_prefix_of(isp: usize) -> usize {
    (isp + ISPS - SITES / 2) % ISPS
}

fn toml(size: Size) -> String {
    let mut out = String::from(
        "[dataplane]\ncores = [0]\nshare_cores = true\n\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\n\
         addresses = [\"192.0.2.53\"]\n",
    );
    for isp in 0..ISPS {
        _ = write!(
            out,
            "\n[[isp]]\nname = \"isp{isp}\"\nprefixes = [\"2001:db8:{isp}::/48\","
        );
        for i in (0..size.prefixes).filter(|i| isp_of(*i) == isp) {
            let ([a, b, c, d], length) = prefix(i);
            _ = write!(out, "\"{a}.{b}.{c}.{d}/{length}\",");
        }
        out.push_str("]\n");
    }
    for site in 0..SITES {
        _ = write!(out, "\n[[site]]\nname = \"site{site}\"\n");
        if site < SITES / 2 {
            _ = writeln!(out, "isp = \"isp{site}\"");
        }
    }
    out.push_str("\n[[zone]]\nname = \"example.com\"\nfile = \"example.zone\"\n");
    out.push_str("\n[[zone]]\nname = \"x\"\nfile = \"x.zone\"\n");
    let short = "\"health\", \"isp\", \"static\"";
    let long = "\"health\", \"capacity\", \"isp\", \"latency\", \"geo\", \"connection-load\", \"available-sessions\", \
                \"preference\", \"static\"";
    for (name, spread, chain) in [
        ("vod", "round-robin", short),
        ("weighted", "weighted", short),
        ("chain", "round-robin", long),
    ] {
        _ = write!(
            out,
            "\n[[service]]\nname = \"{name}.example.com\"\nttl = 30\nanswers = 2\n\
             chain = [{chain}]\nstatic = \"{spread}\"\nmember = [\n"
        );
        for member in 0..MEMBERS {
            _ = writeln!(
                out,
                "  {{ address = \"198.51.100.{}\", site = \"site{}\", weight = {} }},",
                member + 1,
                member % SITES,
                member % 5 + 1
            );
        }
        out.push_str("]\n");
    }
    out
}

fn example_zone(names: usize) -> String {
    let mut out = String::from(
        "$ORIGIN example.com.\n$TTL 300\n@ SOA ns1 hostmaster 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.53\n",
    );
    // Five strings of 200 bytes.
    _ = writeln!(out, "big TXT{}", format!(" {}", "x".repeat(200)).repeat(5));
    for i in 0..names {
        _ = writeln!(out, "n{i:07} A 203.0.{}.{}", i / 250 % 250, i % 250 + 1);
    }
    out
}

/// A zone whose names may have 127 labels, as the apex is one letter.
const X_ZONE: &str =
    "$ORIGIN x.\n$TTL 300\n@ SOA ns1 h 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.53\nw.w A 192.0.2.1\n";

impl World {
    /// Writes and loads the configuration.
    ///
    /// # Errors
    /// What the loader says against it.
    pub(crate) fn new(size: Size) -> Result<Self> {
        let zone = example_zone(size.names);
        Self::of(&toml(size), &[("example.zone", &zone), ("x.zone", X_ZONE)])
    }

    /// Writes and loads a configuration and its zone files.
    ///
    /// # Errors
    /// What the loader says against it.
    pub(crate) fn of(toml: &str, zones: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("bench.toml");
        std::fs::write(&path, toml)?;
        for (name, text) in zones {
            std::fs::write(folder.path().join(name), text)?;
        }
        let (config, _warnings) =
            config::load_with_warnings(&path).map_err(|found| anyhow::anyhow!("{found}"))?;
        Ok(Self {
            config: Arc::new(with_secrets(config)),
            compiler: Compiler::default(),
            flows: None,
        })
    }

    /// The same under rate limits.
    pub(crate) fn limited(mut self, rate_limit: Option<RateLimit>) -> Self {
        Arc::make_mut(&mut self.config).dns.rate_limit = rate_limit;
        self
    }

    /// Compiles it, for one port with this MAC address.
    ///
    /// # Errors
    /// What exceeds a limit.
    pub(crate) fn compile(&mut self, mac: [u8; 6]) -> Result<Snapshot> {
        let address = (IpAddr::from(SERVICE), AddressKind::Service);
        let view = PortView::new(mac, Addresses::new([address], fastrand::u64(..))?, true);
        let Compiled { snapshot, .. } =
            self.compiler
                .compile(self.config.clone(), vec![view], |_| Standing::UP, 0)?;
        Ok(snapshot)
    }

    /// The health words that changed since the last call.
    pub(crate) fn words(&mut self) -> Result<Vec<(WordTarget, WordValue)>> {
        let mut slots = self
            .compiler
            .slots
            .lock()
            .map_err(|_| anyhow::anyhow!("the slots' owner panicked"))?;
        Ok(slots.take_changes())
    }

    /// A worker over one queue pair that has adopted the compiled configuration, and control's end of its link.
    ///
    /// # Errors
    /// As [`World::compile`].
    pub(crate) fn worker<Q: QueuePair>(&mut self, queues: Q) -> Result<Ready<Q>> {
        let mut ready = self.waiting_worker(queues)?;
        // The words of many services take many turns, and go before the snapshot.
        for _ in 0..4096 {
            ready.link.delivery.pump(|_| {});
            ready.worker.housekeep(Ticks::now());
            if ready.worker.generation() == self.compiler.generation() {
                break;
            }
        }
        if ready.worker.generation() != self.compiler.generation() {
            bail!("the worker has not adopted its snapshot");
        }
        Ok(ready)
    }

    /// A worker that will adopt the compiled configuration in its first turns.
    fn waiting_worker<Q: QueuePair>(&mut self, queues: Q) -> Result<Ready<Q>> {
        let snapshot = self.compile(queues.mac())?;
        self.waiting_worker_on(vec![queues], snapshot)
    }

    /// A worker whose port has that role, with other classes and servers.
    ///
    /// # Errors
    /// As [`World::compile`].
    pub(crate) fn mirror<Q: QueuePair>(
        &mut self,
        queues: Q,
        role: Role,
        flows: FlowLimits,
        (classes, servers): (Classes, Servers),
    ) -> Result<Ready<Q>> {
        self.flows = Some(flows);
        let snapshot = self.compile(queues.mac())?;
        let view = PortView::new(queues.mac(), Addresses::default(), true).with_role(role);
        let snapshot = Snapshot {
            ports: Arc::new(vec![view]),
            classes: Arc::new(classes),
            servers: Arc::new(servers),
            ..snapshot
        };
        let mut ready = self.waiting_worker_on(vec![queues], snapshot)?;
        for _ in 0..16 {
            ready.link.delivery.pump(|_| {});
            ready.worker.housekeep(Ticks(1));
        }
        Ok(ready)
    }

    /// A worker that answers on the first port and measures copies on the second one.
    ///
    /// # Errors
    /// As [`World::compile`].
    pub(crate) fn service_and_mirror<Q: QueuePair>(
        &mut self,
        service: Q,
        mirror: Q,
        flows: Option<FlowLimits>,
        servers: Servers,
    ) -> Result<Ready<Q>> {
        self.flows = flows;
        let snapshot = self.compile(service.mac())?;
        let view = PortView::new(mirror.mac(), Addresses::default(), true).with_role(Role::Mirror);
        let snapshot = Snapshot {
            ports: Arc::new([&snapshot.ports[..], &[view]].concat()),
            servers: Arc::new(servers),
            ..snapshot
        };
        let mut ready = self.waiting_worker_on(vec![service, mirror], snapshot)?;
        for _ in 0..16 {
            ready.link.delivery.pump(|_| {});
            ready.worker.housekeep(Ticks::now());
        }
        Ok(ready)
    }

    fn waiting_worker_on<Q: QueuePair>(&mut self, queues: Vec<Q>, snapshot: Snapshot) -> Result<Ready<Q>> {
        let generation = snapshot.generation;
        let stop = StopFlag::default();
        let (worker_link, mut link) = connect(LinkSlots::default(), stop.clone());
        let worker = Worker::new(
            queues,
            worker_link,
            Arc::new(Published::default()),
            WorkerConfig {
                idle: Idle::Spin,
                seed: 7,
                rate: TickRate::from_hz(1_000_000_000),
                workers: 1,
                flows: self.flows,
            },
        )?;
        let now = Ticks::now();
        for (target, value) in self.words()? {
            link.delivery.set_word(target, value, now);
        }
        link.delivery.set_word(
            WordTarget::Clock,
            clock_word(u64::from(COOKIE_TIME) * 1000, now),
            now,
        );
        // Nothing was published before, so nothing is superseded.
        let _ = link.delivery.publish(Arc::new(snapshot), generation, now);
        link.delivery.pump(|_| {});
        Ok(Ready { worker, link, stop })
    }
}

/// Polls as the worker's own loop does while packets come: housekeeping after every eight bursts.
#[inline(never)]
pub(crate) fn measured_polls<Q: QueuePair>(worker: &mut Worker<Q>, turns: usize) -> usize {
    let mut received = 0;
    for _ in 0..turns {
        for _ in 0..POLLS_PER_TURN {
            received += worker.poll(Ticks::now());
        }
        worker.housekeep(Ticks::now());
    }
    received
}

/// One turn of the same, at that time.
#[inline(never)]
pub(crate) fn measured_polls_at<Q: QueuePair>(worker: &mut Worker<Q>, now: Ticks) -> usize {
    let received = (0..POLLS_PER_TURN).map(|_| worker.poll(now)).sum();
    worker.housekeep(now);
    received
}

/// Polls between two housekeeping turns, as in the worker.
pub(crate) const POLLS_PER_TURN: usize = 8;

/// This program, to be started again.
///
/// # Errors
/// When the system does not tell.
pub(crate) fn this_program() -> Result<String> {
    let path = std::env::current_exe().context("own path")?;
    Ok(path.to_string_lossy().into_owned())
}

/// A worker that answers GSLB queries from the memory port without a pause, on a thread of its own.
pub(crate) struct Running {
    thread: JoinHandle<Option<Worker<MemoryPort>>>,
    stop: StopFlag,
    mac: [u8; 6],
    /// The CPUs of this thread before.
    before: CpuSet,
}

impl Running {
    /// Starts it pinned to `cpu`; until it stops this thread, and those that it starts, keep off that CPU. Gives control's end
    /// of the link.
    ///
    /// # Errors
    /// As [`World::compile`], or when threads cannot be started.
    pub(crate) fn start(world: &mut World, cpu: usize) -> Result<(Self, ControlLink<Snapshot>)> {
        let config = MemoryConfig::default();
        let (port, wire) = MemoryPort::new(config);
        wire.replay(&Kind::GslbA.frames(256, config.mac));
        // It takes its first turn on its own thread: the time until then is no gap of its loop.
        let Ready { worker, link, stop } = world.waiting_worker(port)?;
        let before = sched_getaffinity(Pid::from_raw(0)).context("cannot read the CPU affinity")?;
        let others = core_affinity::get_core_ids().unwrap_or_default();
        if let Some(other) = others.into_iter().find(|core| core.id != cpu) {
            core_affinity::set_for_current(other);
        }
        let thread = std::thread::Builder::new()
            .name("bench-worker".into())
            .spawn(move || {
                let pinned = core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
                pinned.then(|| worker.run())
            })?;
        let mac = config.mac;
        Ok((
            Self {
                thread,
                stop,
                mac,
                before,
            },
            link,
        ))
    }

    /// The port's MAC address.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Ends its loop and gives it back.
    ///
    /// # Errors
    /// When it could not be pinned, or panicked.
    pub(crate) fn stop(self) -> Result<Worker<MemoryPort>> {
        self.stop.stop();
        let worker = self
            .thread
            .join()
            .map_err(|_| anyhow::anyhow!("the worker panicked"))?;
        // Or whatever this process starts next finds itself on one CPU.
        sched_setaffinity(Pid::from_raw(0), &self.before).context("cannot set the CPU affinity")?;
        worker.context("cannot pin the worker to its CPU")
    }
}
