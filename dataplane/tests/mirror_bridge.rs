//! Mirror and bridge ports through the worker, on memory ports: what becomes of packets, what is measured, and both packet laws.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use dataplane::arch::{TickRate, Ticks};
use dataplane::counters::{Counter, Counters, Published};
use dataplane::flow::Span;
use dataplane::flow::estimate::Kind;
use dataplane::io::Shape;
use dataplane::io::memory::{MemoryConfig, MemoryPort, MemoryWire};
use dataplane::link::{Cell, ControlLink, LatencySample, LinkSlots, StopFlag, connect};
use dataplane::mmap::Table;
use dataplane::stages::classify::{PortView, Role};
use dataplane::stages::flow_latency::FlowLimits;
use dataplane::tables::addresses::{AddressKind, Addresses};
use dataplane::tables::answers::AnswersBuilder;
use dataplane::tables::classes::Prefix;
use dataplane::tables::names::NamesBuilder;
use dataplane::tables::servers::{Server, Servers, Watching};
use dataplane::tables::{Classes, Limits, Paged, Plans, Snapshot};
use dataplane::worker::{Idle, Worker, WorkerConfig};
use etherparse::PacketBuilder;
use std::sync::Arc;

/// Ticks a second.
const HZ: u64 = 1_000_000_000;
const CLIENT: [u8; 4] = [198, 51, 100, 7];
const SERVER: [u8; 4] = [203, 0, 113, 9];
const MIRROR: [u8; 4] = [192, 0, 2, 9];
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0xc1];

fn snapshot(ports: Vec<PortView>) -> Snapshot {
    fn none<T: dataplane::mmap::Zeroable>() -> Table<T> {
        Table::from_vec(vec![]).unwrap()
    }
    let plans = Plans {
        services: none(),
        hot: none(),
        policies: none(),
        pools: none(),
        groups: none(),
        records_a: none(),
        records_aaaa: none(),
        weights_a: none(),
        weights_aaaa: none(),
        identities_a: none(),
        identities_aaaa: none(),
        layout: 1,
    };
    let server = Server {
        address: SERVER.into(),
        len: 32,
        site: Some(2),
    };
    Snapshot {
        generation: 1,
        ports: Arc::new(ports),
        names: Arc::new(NamesBuilder::new([1, 2, 3, 4]).build().unwrap()),
        answers: Arc::new(AnswersBuilder::default().build().unwrap()),
        zones: Arc::default(),
        classes: Arc::new(Classes::build(vec![Prefix::v4([198, 51, 100, 0], 24, 5)], vec![], 6).unwrap()),
        servers: Arc::new(Servers::build(vec![server], Watching::default()).unwrap()),
        plans: Arc::new(plans),
        cells: Paged::default(),
        limits: Limits::default(),
    }
}

struct Lab {
    worker: Worker<MemoryPort>,
    wires: Vec<MemoryWire>,
    control: ControlLink<Snapshot>,
    now: u64,
}

impl Lab {
    /// A worker on one port a role, with room for that many samples.
    fn new(roles: &[Role], samples: usize) -> Self {
        let memory = MemoryConfig::default();
        let (ports, wires): (Vec<_>, Vec<_>) = roles.iter().map(|_| MemoryPort::new(memory)).unzip();
        let slots = LinkSlots {
            samples,
            ..LinkSlots::default()
        };
        let (link, control) = connect(slots, StopFlag::default());
        let config = WorkerConfig {
            idle: Idle::Spin,
            seed: 3,
            rate: TickRate::from_hz(HZ),
            workers: 1,
            flows: Some(FlowLimits {
                flows: 1000,
                idle: Span::millis(60_000),
            }),
        };
        let worker = Worker::new(ports, link, Arc::new(Published::default()), config).unwrap();
        let views = roles.iter().map(|&role| {
            let ours = (role == Role::Mirror).then_some((MIRROR.into(), AddressKind::Service));
            PortView::new(memory.mac, Addresses::new(ours, 1).unwrap(), true).with_role(role)
        });
        let mut lab = Self {
            worker,
            wires,
            control,
            now: HZ,
        };
        let _ = lab
            .control
            .delivery
            .publish(Arc::new(snapshot(views.collect())), 1, Ticks(lab.now));
        lab.control.delivery.pump(|_| {});
        lab.worker.housekeep(Ticks(lab.now));
        assert_eq!(lab.worker.generation(), 1);
        lab
    }

    /// Frames into a port at that time, all in one burst; the worker polls once.
    fn pass(&mut self, port: usize, micros: u64, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.wires[port].inject(frame));
        }
        self.now = HZ + micros * 1000;
        self.worker.poll(Ticks(self.now));
    }

    fn counters(&mut self) -> Counters {
        self.worker.housekeep(Ticks(self.now));
        let counters = self.worker.counters().clone();
        counters.check_laws().unwrap();
        counters
    }

    fn samples(&mut self) -> Vec<LatencySample> {
        std::iter::from_fn(|| self.control.samples.receive()).collect()
    }
}

/// A client's segment, as etherparse builds it.
fn segment(sequence: u32, acknowledgment: u32, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(STATION, [2, 0, 0, 0, 0, 0xd1])
        .ipv4(CLIENT, SERVER, 60)
        .tcp(40_000, 443, sequence, 500)
        .ack(acknowledgment)
        .write(&mut frame, &vec![7; payload])
        .unwrap();
    frame
}

/// What the server sends back.
fn answer() -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0xd1], STATION)
        .ipv4(SERVER, CLIENT, 60)
        .tcp(443, 40_000, 9, 500)
        .ack(100)
        .write(&mut frame, &[7; 900])
        .unwrap();
    frame
}

/// Who has the address that copies are sent to?
fn arp() -> Vec<u8> {
    let mut frame = [[0xff; 6], STATION].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([&STATION[..], &[192, 0, 2, 1], &[0; 6], &MIRROR].concat());
    frame.resize(60, 0);
    frame
}

fn times(samples: &[LatencySample], kind: Kind) -> Vec<u32> {
    let of = samples.iter().filter(|s| s.sample.kind == kind);
    of.map(|s| s.sample.value.0 / Span::PER_MICRO).collect()
}

#[test]
fn a_mirror_port_measures_and_consumes() {
    let mut lab = Lab::new(&[Role::Mirror], 64);
    lab.pass(
        0,
        0,
        &[segment(0, 0, 100), segment(100, 0, 100), answer(), vec![1; 14]],
    );
    lab.pass(0, 5000, &[segment(200, 900, 100), answer()]);
    lab.pass(0, 8000, &[segment(300, 1800, 100)]);
    let samples = lab.samples();
    assert_eq!(times(&samples, Kind::Response), [5000, 3000]);
    assert!(samples.iter().all(|s| s.cell == Cell { class: 5, server: 1 }));
    let counters = lab.counters();
    let of = |counter| counters.get(counter);
    assert_eq!(
        (
            of(Counter::Received),
            of(Counter::Consumed),
            of(Counter::Transmitted)
        ),
        (7, 7, 0)
    );
    assert_eq!(
        (
            of(Counter::FlowPackets),
            of(Counter::FlowUnmeasured),
            of(Counter::FlowsCreated)
        ),
        (4, 3, 1)
    );
    assert_eq!(
        (of(Counter::LatencySamples), of(Counter::LatencySamplesDropped)),
        (2, 0)
    );
}

#[test]
fn copies_in_gre_are_measured_and_arp_for_their_address_is_answered() {
    let mut lab = Lab::new(&[Role::Mirror], 64);
    let carry = |inner: Vec<u8>| {
        // ERSPAN II: a sequence number, version 1.
        let carried = [
            &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0][..],
            &inner,
        ]
        .concat();
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(STATION, MemoryConfig::default().mac);
        let ip = builder.ipv4([192, 0, 2, 1], MIRROR, 60);
        ip.write(&mut frame, 47.into(), &carried).unwrap();
        frame
    };
    lab.pass(0, 0, &[carry(segment(0, 0, 100)), arp()]);
    lab.pass(0, 4000, &[carry(segment(100, 900, 100))]);
    assert_eq!(times(&lab.samples(), Kind::Response), [4000]);
    let counters = lab.counters();
    let of = |counter| counters.get(counter);
    assert_eq!(
        (
            of(Counter::Consumed),
            of(Counter::Replied),
            of(Counter::Transmitted)
        ),
        (2, 1, 1)
    );
    let replies = lab.wires[0].take_all();
    assert_eq!(replies.len(), 1);
    // An ARP reply with the port's MAC address.
    assert_eq!(
        (replies[0][21], &replies[0][22..28]),
        (2, &MemoryConfig::default().mac[..])
    );
}

#[test]
fn bridge_ports_pass_everything_on_unchanged() {
    let mut lab = Lab::new(&[Role::Bridge(1), Role::Bridge(0)], 64);
    let there = [segment(0, 0, 100), vec![1; 14], arp(), answer()];
    lab.pass(0, 0, &there);
    lab.pass(1, 2000, &[answer()]);
    lab.pass(0, 4000, &[segment(100, 900, 100)]);
    assert_eq!(
        lab.wires[1].take_all(),
        [&there[..], &[segment(100, 900, 100)]].concat()
    );
    assert_eq!(lab.wires[0].take_all(), [answer()]);
    assert_eq!(times(&lab.samples(), Kind::Response), [4000]);
    // Frames of several segments pass too; what the other side refuses is a drop.
    assert!(lab.wires[0].inject_shaped(&vec![9; 3000], Shape::Oversized));
    lab.worker.poll(Ticks(lab.now));
    assert_eq!(lab.wires[1].take_all().len(), 1);
    lab.wires[1].limit_tx(Some(1));
    lab.pass(0, 9000, &[segment(200, 1800, 100), arp(), arp()]);
    let counters = lab.counters();
    let of = |counter| counters.get(counter);
    assert_eq!(
        (
            of(Counter::Received),
            of(Counter::Forwarded),
            of(Counter::DropTxFull)
        ),
        (10, 8, 2)
    );
    assert_eq!(times(&lab.samples(), Kind::Response), [5000]);
}

#[test]
fn samples_that_find_no_room_are_counted() {
    let mut lab = Lab::new(&[Role::Mirror], 2);
    for n in 0..6 {
        lab.pass(0, 3000 * u64::from(n), &[segment(100 * n, 900 * n, 100)]);
    }
    let counters = lab.counters();
    assert_eq!(counters.get(Counter::LatencySamples), 2);
    assert_eq!(counters.get(Counter::LatencySamplesDropped), 3);
    assert_eq!(lab.samples().len(), 2);
}

#[test]
fn idle_flows_go_in_housekeeping() {
    let mut lab = Lab::new(&[Role::Mirror], 64);
    lab.pass(0, 0, &[segment(0, 0, 100)]);
    let mut expired = 0;
    for second in 1..200 {
        lab.now = HZ + second * HZ;
        for _ in 0..8 {
            expired = lab.counters().get(Counter::FlowsExpired);
        }
        if expired > 0 {
            assert!((30..=60).contains(&second), "unproven, idle for {second} s of 60");
            break;
        }
    }
    assert_eq!(expired, 1);
}
