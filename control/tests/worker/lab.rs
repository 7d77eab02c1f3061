//! A worker with its ports, its link and a compiler of configurations. Time is what the test says.

use crate::frames::{OUR_MAC, SERVICE_V4, SERVICE_V6};
use control::config::model::*;
use control::data::Data;
use control::health::Standing;
use control::policy::Compiler;
use control::policy::cells::Changed;
use control::policy::slots::Target;
use dataplane::arch::{TickRate, Ticks};
use dataplane::clock::clock_word;
use dataplane::counters::{Counter, Counters, Published};
use dataplane::io::memory::{MemoryConfig, MemoryPort, MemoryWire};
use dataplane::link::{ControlLink, LinkSlots, StopFlag, WordTarget, connect};
use dataplane::stages::classify::{PortView, Role};
use dataplane::stages::flow_latency::FlowLimits;
use dataplane::tables::Snapshot;
use dataplane::tables::addresses::{AddressKind, Addresses};
use dataplane::worker::{Worker, WorkerConfig};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Ticks of one turn; the clock runs at 1 GHz.
const TURN: u64 = 10_000;

pub(crate) fn name(text: &str) -> Name {
    Name::from_str(text).unwrap()
}

pub(crate) fn set(owner: &str, rtype: u16, rdata: Vec<Vec<u8>>) -> Rrset {
    Rrset {
        owner: name(owner),
        rtype,
        ttl: 300,
        rdata,
    }
}

/// A set of one record whose RDATA is a name.
pub(crate) fn target(owner: &str, rtype: u16, to: &str) -> Rrset {
    set(owner, rtype, vec![name(to).as_slice().to_vec()])
}

/// A zone with SOA (MINIMUM 60) and NS.
pub(crate) fn zone(apex: &str, mut rrsets: Vec<Rrset>) -> Zone {
    let mut soa = name(&format!("ns1.{apex}")).as_slice().to_vec();
    soa.extend_from_slice(name(&format!("hostmaster.ns1.{apex}")).as_slice());
    soa.extend([1u32, 3600, 600, 86400, 60].map(u32::to_be_bytes).concat());
    rrsets.push(set(apex, 6, vec![soa]));
    rrsets.push(target(apex, 2, &format!("ns1.{apex}")));
    Zone {
        apex: name(apex),
        file: PathBuf::from("test.zone"),
        rrsets,
    }
}

pub(crate) fn base(zones: Vec<Zone>) -> Config {
    Config {
        path: PathBuf::from("test.toml"),
        hash: String::new(),
        appliance: Appliance {
            name: "test".into(),
            state: None,
            state_max_age: std::time::Duration::ZERO,
        },
        alerts: Vec::new(),
        dataplane: Dataplane {
            cores: vec![0],
            share_cores: true,
            idle: Idle::Sleep,
            memory_bytes: 64 << 20,
            buffers: 1024,
            eal: vec![],
        },
        ports: vec![],
        dns: Dns {
            nsid: Some("edge".into()),
            ..Dns::default()
        },
        data: Data::default(),
        isps: vec![],
        clients: vec![],
        selection: Selection::default(),
        sites: vec![],
        zones,
        services: vec![],
        latency: Latency::default(),
        admin: Admin {
            socket: PathBuf::from("/dev/null"),
            listen: None,
            token: None,
        },
        reports: None,
    }
}

/// A zone with static names, and the service vod.example.com with members 198.51.100.1, .2 (site 0, in the ISP of
/// 10.1/16) and .11, .12 (site 1), two an answer. `net` takes the place of 192.0 and 198.51 in all addresses.
pub(crate) fn example(net: u8) -> Config {
    let mut config = base(vec![zone(
        "example.com.",
        vec![
            set(
                "www.example.com.",
                1,
                vec![vec![net, 0, 2, 1], vec![net, 0, 2, 2]],
            ),
            set("*.wild.example.com.", 1, vec![vec![net, 0, 2, 3]]),
            set(
                "big.example.com.",
                1,
                (0..60).map(|n| vec![net, 0, 3, n]).collect(),
            ),
            target("alias.example.com.", 5, "www.example.com."),
            target("tovod.example.com.", 5, "vod.example.com."),
            target("old.example.com.", 39, "example.com."),
            target("child.example.com.", 2, "ns.child.example.com."),
            set("ns.child.example.com.", 1, vec![vec![net, 0, 2, 99]]),
        ],
    )]);
    config.isps = vec![Isp {
        name: "one".into(),
        prefixes: vec!["10.1.0.0/16".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()],
        ..Isp::default()
    }];
    let site = |name: &str, isp| Site {
        name: name.into(),
        isp,
        location: None,
        preference: 128,
        ..Site::default()
    };
    config.sites = vec![site("s0", Some(0)), site("s1", None)];
    let member = |last: u8, site| Member {
        address: IpAddr::from([net, 51, 100, last]),
        site,
        weight: 1,
    };
    let mut cnames = Service {
        name: name("*.names.example.com."),
        ttl: 30,
        answers: 2,
        ecs: true,
        chain: vec![Metric::Health, Metric::Isp, Metric::Static],
        spread: Spread::Weighted,
        when_all_down: AllDown::Open,
        members: vec![member(1, 0)],
        cnames: vec![],
        ..Service::default()
    };
    cnames.cnames.push(CnameMember {
        name: name("names.example.net."),
        site: 1,
        weight: 2,
    });
    config.services = vec![Service {
        name: name("vod.example.com."),
        ttl: 30,
        answers: 2,
        ecs: true,
        chain: vec![Metric::Health, Metric::Isp, Metric::Static],
        spread: Spread::RoundRobin,
        when_all_down: AllDown::LastGood,
        members: vec![member(1, 0), member(2, 0), member(11, 1), member(12, 1)],
        cnames: vec![],
        ..Service::default()
    }];
    config.services.push(cnames);
    config
}

pub(crate) fn port_view() -> PortView {
    let entries = [IpAddr::from(SERVICE_V4), IpAddr::from(SERVICE_V6)];
    let addresses = Addresses::new(entries.map(|a| (a, AddressKind::Service)), 0x5eed).unwrap();
    PortView::new(OUR_MAC, addresses, true)
}

pub(crate) struct Lab {
    pub(crate) worker: Worker<MemoryPort>,
    pub(crate) wires: Vec<MemoryWire>,
    pub(crate) control: ControlLink<Snapshot>,
    pub(crate) published: Arc<Published>,
    pub(crate) compiler: Compiler,
    /// Whether members are up.
    up: bool,
    /// Those that are down when members are up.
    dead: HashSet<IpAddr>,
    now: u64,
    buffers: usize,
    /// What each port is for.
    pub(crate) roles: Vec<Role>,
}

impl Lab {
    /// A worker without a snapshot.
    pub(crate) fn empty(ports: usize, memory: MemoryConfig, slots: LinkSlots) -> Self {
        let memory = MemoryConfig {
            mac: OUR_MAC,
            ..memory
        };
        let (opened, wires) = (0..ports).map(|_| MemoryPort::new(memory)).unzip();
        let (link, control) = connect(slots, StopFlag::default());
        let published = Arc::new(Published::default());
        let config = WorkerConfig {
            idle: dataplane::worker::Idle::Spin,
            seed: 7,
            rate: TickRate::from_hz(1_000_000_000),
            workers: 1,
            flows: Some(FlowLimits {
                flows: 1000,
                ..FlowLimits::default()
            }),
        };
        let roles = vec![Role::Service; ports];
        Self {
            roles,
            worker: Worker::new(opened, link, Arc::clone(&published), config).unwrap(),
            wires,
            control,
            published,
            compiler: Compiler::default(),
            up: true,
            dead: HashSet::new(),
            now: 1_000_000_000,
            buffers: memory.buffers,
        }
    }

    /// A worker on one port that has adopted `config`.
    pub(crate) fn new(config: Config) -> Self {
        Self::with_members(config, true)
    }

    /// The same with all members down.
    pub(crate) fn down(config: Config) -> Self {
        Self::with_members(config, false)
    }

    fn with_members(config: Config, up: bool) -> Self {
        let memory = MemoryConfig {
            stale: Some(0xa5),
            ..MemoryConfig::default()
        };
        let mut lab = Self::empty(1, memory, LinkSlots::default());
        lab.up = up;
        lab.publish(config);
        lab.settle();
        lab
    }

    /// Compiles a snapshot and the words that belong to it.
    pub(crate) fn compile(&mut self, config: Config) -> Arc<Snapshot> {
        let standing = self.standing();
        let views = self
            .roles
            .iter()
            .map(|&role| port_view().with_role(role))
            .collect();
        let compiled = self
            .compiler
            .compile(Arc::new(config), views, standing, 0)
            .unwrap();
        self.send_words();
        Arc::new(compiled.snapshot)
    }

    /// How members stand, whoever borrows the rest.
    fn standing(&self) -> impl Fn(&Target) -> Standing + use<> {
        let (up, dead) = (self.up, self.dead.clone());
        move |target| match up && !dead.contains(&target.address) {
            true => Standing::UP,
            false => Standing::DOWN,
        }
    }

    /// Members of the running configuration that go down or come up: words alone say so.
    pub(crate) fn set_dead(&mut self, dead: HashSet<IpAddr>) {
        let changed: Vec<IpAddr> = self.dead.symmetric_difference(&dead).copied().collect();
        self.dead = dead;
        for address in changed {
            let target = Target { address, check: None };
            let mut slots = self.compiler.slots.lock().unwrap();
            slots.standing_changed(&target, self.standing());
        }
        self.send_words();
        self.settle();
    }

    /// Hands changed words to the link.
    fn send_words(&mut self) {
        let changes = self.compiler.slots.lock().unwrap().take_changes();
        for (target, value) in changes {
            self.control.delivery.set_word(target, value, Ticks(self.now));
        }
    }

    /// Compiles again what a change of facts touches, and has the worker adopt it.
    pub(crate) fn refresh(&mut self, change: impl FnOnce(&mut Compiler) -> Changed) {
        let changed = change(&mut self.compiler);
        let refreshed = self.compiler.refresh(&changed).unwrap();
        self.send(Arc::new(refreshed.expect("another snapshot").snapshot));
        self.settle();
    }

    /// Hands a compiled snapshot to the link.
    pub(crate) fn send(&mut self, snapshot: Arc<Snapshot>) {
        let generation = snapshot.generation;
        drop(
            self.control
                .delivery
                .publish(snapshot, generation, Ticks(self.now)),
        );
        self.control.delivery.pump(drop);
    }

    pub(crate) fn publish(&mut self, config: Config) {
        let snapshot = self.compile(config);
        self.send(snapshot);
    }

    /// What the clock says, nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.now
    }

    /// The clock, one turn on.
    pub(crate) fn tick(&mut self) -> Ticks {
        self.now += TURN;
        Ticks(self.now)
    }

    /// Tells the worker what time it is, Unix time in seconds.
    pub(crate) fn set_clock(&mut self, seconds: u64) {
        let word = clock_word(seconds * 1000, Ticks(self.now));
        self.control
            .delivery
            .set_word(WordTarget::Clock, word, Ticks(self.now));
        self.settle();
    }

    /// Lets time pass, nanoseconds, and does one housekeeping turn.
    pub(crate) fn wait(&mut self, nanos: u64) {
        self.now += nanos;
        self.housekeep();
    }

    /// One poll.
    pub(crate) fn poll(&mut self) -> usize {
        let now = self.tick();
        self.worker.poll(now)
    }

    /// One housekeeping turn.
    pub(crate) fn housekeep(&mut self) {
        let now = self.tick();
        self.worker.housekeep(now);
    }

    /// Housekeeping on both sides until nothing is under way.
    pub(crate) fn settle(&mut self) {
        for _ in 0..64 {
            self.control.delivery.pump(drop);
            self.housekeep();
        }
        self.control.delivery.pump(drop);
        self.control.ledger().check_at_rest().unwrap();
    }

    /// Gives the port frames, polls until they are gone, and returns what was sent.
    pub(crate) fn exchange(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for frame in frames {
            assert!(self.wires[0].inject(frame));
        }
        while self.poll() > 0 {}
        self.check();
        self.wires[0].take_all()
    }

    /// The packet laws.
    pub(crate) fn check_laws(&self) {
        self.worker.counters().check_laws().unwrap();
    }

    /// The packet laws, and that every buffer is back.
    pub(crate) fn check(&self) {
        self.check_laws();
        for wire in &self.wires {
            assert_eq!(wire.pool_free(), self.buffers, "buffers in the pool");
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.worker.counters().clone()
    }
}

/// The counters of the packet laws and of DNS outcomes that differ, with by how much.
pub(crate) fn changes(before: &Counters, after: &Counters) -> Vec<(Counter, u64)> {
    use dataplane::counters::Kind;
    Counter::ALL
        .iter()
        .filter(|c| c.kind() != Kind::Worker)
        .map(|&c| (c, after.get(c).wrapping_sub(before.get(c))))
        .filter(|&(_, n)| n != 0)
        .collect()
}
