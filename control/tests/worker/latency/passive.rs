//! The loop through a whole worker: packets of users' flows by a mirror port, samples by the ring, evidence, plans, and answers
//! that the same users' next flows go by. One site gets slower for one ISP alone.

use crate::frames::{self, CLIENT_MAC, Kind, OUR_MAC, SERVICE_V4};
use crate::lab::{Lab, base, name, zone};
use control::config::model::*;
use control::latency::Store;
use control::latency::collect::drain;
use control::policy::cells::Changed;
use control::policy::chain::{ClientClass, Facts};
use dataplane::io::memory::MemoryConfig;
use dataplane::link::{LatencySample, LinkSlots, SampleReceiver};
use dataplane::stages::classify::Role;
use domain::base::iana::Rtype;
use etherparse::PacketBuilder;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Clients of each ISP, each with one request under way.
const CLIENTS: u16 = 40;
/// A client asks again after that.
const TTL: u64 = 10 * SECOND;
/// Figures follow within the window of 30 s and a second, clients within the TTL: what README says.
const FOLLOWS: u64 = 31 * SECOND + TTL;

fn config() -> Config {
    let mut config = base(vec![zone("example.com.", vec![])]);
    let isp = |name: &str, prefix: &str| Isp {
        name: name.into(),
        prefixes: vec![prefix.parse().unwrap()],
        ..Isp::default()
    };
    config.isps = vec![isp("one", "10.1.0.0/16"), isp("two", "10.2.0.0/16")];
    let site = |name: &str| Site {
        name: name.into(),
        ..Site::default()
    };
    config.sites = vec![site("near"), site("far")];
    let member = |last: u8, site| Member {
        address: IpAddr::from([203, 0, 113, last]),
        site,
        weight: 1,
    };
    config.services = vec![Service {
        name: name("www.example.com."),
        ttl: 10,
        chain: vec![Metric::Health, Metric::Latency, Metric::Static],
        members: vec![member(1, 0), member(2, 1)],
        ..Service::default()
    }];
    config
}

/// A client with its flow.
#[derive(Clone, Copy)]
struct Client {
    isp: u8,
    number: u16,
    /// The site that it goes to, by the last answer; and when it asks again.
    site: usize,
    asks: u64,
    /// A new one for each flow.
    port: u16,
    sequence: u32,
    acknowledgment: u32,
}

impl Client {
    fn address(&self) -> [u8; 4] {
        [10, 1 + self.isp, 0, 1 + self.number as u8]
    }
}

struct World {
    lab: Lab,
    store: Store,
    rings: Vec<SampleReceiver>,
    batch: Vec<LatencySample>,
    config: Arc<Config>,
    start: Instant,
    clients: Vec<Client>,
    /// Who sends next, and when.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    judged: u64,
    random: fastrand::Rng,
    /// By how much the near site is slower for ISP one, milliseconds.
    slower: u64,
    snapshots: u32,
}

impl World {
    fn new() -> Self {
        let config = config();
        let mut lab = Lab::empty(2, MemoryConfig::default(), LinkSlots::default());
        lab.roles = vec![Role::Service, Role::Mirror];
        let rings = vec![lab.control.take_samples()];
        let start = Instant::now();
        let store = Store::new(&config, start);
        let snapshot = lab.compile(config.clone());
        let class = |isp| ClientClass {
            isp,
            ..ClientClass::default()
        };
        let classes = [class(None), class(Some(0)), class(Some(1))];
        // As the compiler numbers them: the classes are found by address.
        let found = |address: [u8; 4]| usize::from(snapshot.classes.find_v4(address).id);
        let mut numbered = vec![class(None); 3];
        numbered[found([10, 1, 0, 1])] = classes[1].clone();
        numbered[found([10, 2, 0, 1])] = classes[2].clone();
        store.learn(&config, &numbered, &snapshot.servers);
        lab.send(snapshot);
        lab.settle();
        let mut clients = Vec::new();
        for isp in 0..2 {
            clients.extend((0..CLIENTS).map(|number| Client {
                isp,
                number,
                site: 0,
                asks: 0,
                port: 10_000,
                sequence: 1,
                acknowledgment: 1,
            }));
        }
        let mut world = Self {
            store,
            rings,
            batch: Vec::new(),
            config: Arc::new(config),
            start,
            due: BinaryHeap::new(),
            judged: lab.nanos(),
            random: fastrand::Rng::with_seed(5),
            slower: 0,
            snapshots: 0,
            lab,
            clients,
        };
        let now = world.lab.nanos();
        for client in 0..world.clients.len() {
            // Not all at once.
            let at = now + client as u64 * TTL / world.clients.len() as u64;
            world.due.push(Reverse((at, client)));
        }
        world
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.lab.nanos())
    }

    /// What the name is answered with: the site.
    fn ask(&mut self, client: [u8; 4]) -> usize {
        let mut message = frames::message("www.example.com.", Rtype::A, None);
        message[..2].copy_from_slice(&self.random.u16(..).to_be_bytes());
        let mut body = Vec::new();
        let packet = PacketBuilder::ipv4(client, SERVICE_V4, 60).udp(40_000, 53);
        packet.write(&mut body, &message).unwrap();
        let replies = self.lab.exchange(&[frames::ethernet(OUR_MAC, 0, 0x0800, &body)]);
        let [reply] = &replies[..] else { panic!("no reply") };
        let Kind::Udp(reply) = frames::dissect(reply) else {
            panic!("no datagram")
        };
        match frames::addresses(&reply)[0] {
            [203, 0, 113, last] => usize::from(last - 1),
            other => panic!("{other:?} is no member"),
        }
    }

    /// A request, and what it acknowledges, as the mirror sees it.
    fn request(&mut self, client: Client, opens: bool) {
        let server = [203, 0, 113, 1 + client.site as u8];
        let packet = PacketBuilder::ethernet2(CLIENT_MAC, [2, 0, 0, 0, 0, 0xd1])
            .ipv4(client.address(), server, 60)
            .tcp(client.port, 443, client.sequence, 500);
        let (packet, payload) = match opens {
            true => (packet.syn(), 0),
            false => (packet.ack(client.acknowledgment), 200),
        };
        let mut frame = Vec::new();
        packet.write(&mut frame, &vec![7; payload]).unwrap();
        assert!(self.lab.wires[1].inject(&frame));
        self.lab.poll();
    }

    /// Milliseconds from a request to its answer, at the client.
    fn latency(&mut self, client: Client) -> u64 {
        let base = [38, 55][client.site];
        let slower = if (client.isp, client.site) == (0, 0) {
            self.slower
        } else {
            0
        };
        base + slower + self.random.u64(0..8)
    }

    /// The next request.
    fn step(&mut self) {
        let Some(Reverse((at, index))) = self.due.pop() else {
            return;
        };
        let now = self.lab.nanos();
        self.lab.wait(at.saturating_sub(now));
        let mut client = self.clients[index];
        let mut opens = false;
        if at >= client.asks {
            let site = self.ask(client.address());
            client.asks = at + TTL;
            if site != client.site || client.acknowledgment == 1 {
                opens = true;
                client = Client {
                    site,
                    port: client.port + 1,
                    sequence: 1,
                    acknowledgment: 1,
                    ..client
                };
            }
        }
        self.request(client, opens);
        client.sequence += if opens { 1 } else { 200 };
        client.acknowledgment += if opens { 5_000 } else { 1_400 };
        let after = self.latency(client);
        self.due.push(Reverse((self.lab.nanos() + after * MS, index)));
        self.clients[index] = client;
        if self.lab.nanos() >= self.judged + SECOND {
            self.judged += SECOND;
            self.control();
        }
    }

    /// What control does once a second.
    fn control(&mut self) {
        let now = self.now();
        drain(&mut self.rings, &self.store, None, now, &mut self.batch);
        let clients: HashSet<_> = self.store.judge(&self.config, now);
        if clients.is_empty() {
            return;
        }
        let facts: &mut Facts = Arc::make_mut(&mut self.lab.compiler.facts);
        self.store.update(&self.config, Some(&clients), now, facts);
        let changed = Changed {
            clients,
            ..Changed::default()
        };
        if let Some(refreshed) = self.lab.compiler.refresh(&changed).unwrap() {
            self.snapshots += 1;
            self.lab.send(Arc::new(refreshed.snapshot));
            self.lab.settle();
        }
    }

    /// Lets that much time pass.
    fn pass(&mut self, nanos: u64) {
        let end = self.lab.nanos() + nanos;
        while self.lab.nanos() < end {
            self.step();
        }
    }

    /// Clients of an ISP at the near site.
    fn near(&self, isp: u8) -> u16 {
        let near = self.clients.iter().filter(|c| c.isp == isp && c.site == 0);
        near.count() as u16
    }
}

/// Two in 40 explore; more than eight hardly ever do.
const MOST: u16 = CLIENTS - 8;

#[test]
fn one_isp_leaves_a_site_that_got_slower_for_it_and_comes_back() {
    let mut world = World::new();
    world.pass(FOLLOWS + 20 * SECOND);
    assert!(
        world.near(0) >= MOST && world.near(1) >= MOST,
        "{} {}",
        world.near(0),
        world.near(1)
    );
    // 30 ms more for ISP one.
    world.slower = 30;
    world.pass(FOLLOWS);
    assert!(
        world.near(0) <= CLIENTS - MOST,
        "{} of ISP one are still there",
        world.near(0)
    );
    assert!(world.near(1) >= MOST, "{} of ISP two are there", world.near(1));
    // Longer than the hold of two minutes.
    for _ in 0..10 {
        world.pass(13 * SECOND);
        assert!(world.near(0) <= CLIENTS - MOST, "{} of ISP one", world.near(0));
        assert!(world.near(1) >= MOST, "{} of ISP two", world.near(1));
    }
    world.slower = 0;
    world.pass(FOLLOWS);
    assert!(world.near(0) >= MOST, "{} of ISP one are back", world.near(0));
    assert!(world.near(1) >= MOST, "{} of ISP two are there", world.near(1));
    // As often as something happened: not once a second.
    eprintln!(
        "{} snapshots in {} s",
        world.snapshots,
        world.lab.nanos() / SECOND
    );
    assert!(world.snapshots <= 12, "{} snapshots", world.snapshots);
    let counts = world.store.counts();
    assert_eq!((counts.unknown, counts.leaders), (0, 2), "{counts:?}");
    assert!(counts.taken > 100_000, "{counts:?}");
    world.lab.check_laws();
}
