//! A flood on measured servers, through the stage as the worker calls it: busy flows go on being measured, the table stays as large
//! as it was made, every flow that is made or goes is counted, and nothing calls the allocator.

use allocation_counter::measure;
use dataplane::arch::{TickRate, Ticks};
use dataplane::counters::{Counter, Counters};
use dataplane::flow::Span;
use dataplane::flow::estimate::Kind;
use dataplane::io::memory::{MemoryBuffer, MemoryConfig, MemoryPort};
use dataplane::io::{BURST_MAX, Buffer, QueuePair};
use dataplane::link::LatencySample;
use dataplane::link::samples::{SampleReceiver, SampleSender, sample_ring};
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables};
use dataplane::tables::Classes;
use dataplane::tables::servers::{Server, Servers, Watching};

const SERVER: [u8; 4] = [192, 0, 2, 80];
/// Busy flows, as many as the table is made for.
const BUSY: u32 = 500;
/// Ticks of a microsecond.
const MICRO: u64 = 1000;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A segment over IPv4: what it is of TCP, 54 bytes, of which `payload` more are said to follow.
fn segment(client: u32, port: u16, numbers: [u32; 2], flags: u8, payload: u16) -> [u8; 54] {
    let mut frame = [0; 54];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(40 + payload).to_be_bytes());
    frame[22..24].copy_from_slice(&[60, 6]);
    frame[26..30].copy_from_slice(&client.to_be_bytes());
    frame[30..34].copy_from_slice(&SERVER);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&443u16.to_be_bytes());
    frame[38..42].copy_from_slice(&numbers[0].to_be_bytes());
    frame[42..46].copy_from_slice(&numbers[1].to_be_bytes());
    frame[46..48].copy_from_slice(&[0x50, flags]);
    frame
}

struct Rig {
    stage: FlowLatency,
    tables: (Classes, Servers),
    buffers: Vec<MemoryBuffer>,
    filled: usize,
    samples: (SampleSender, SampleReceiver),
    counters: Counters,
    now: u64,
    told: [u64; 2],
}

impl Rig {
    fn new() -> Self {
        let limits = FlowLimits {
            flows: BUSY as usize,
            idle: Span::millis(10_000),
        };
        let (mut port, _wire) = MemoryPort::new(MemoryConfig::default());
        let server = Server {
            address: SERVER.into(),
            len: 32,
            site: Some(0),
        };
        Self {
            stage: FlowLatency::new(limits, 3, TickRate::from_hz(1_000_000_000)).unwrap(),
            tables: (
                Classes::build(vec![], vec![], 1).unwrap(),
                Servers::build(vec![server], Watching::default()).unwrap(),
            ),
            buffers: (0..BURST_MAX).map(|_| port.alloc().unwrap()).collect(),
            filled: 0,
            samples: sample_ring(1024),
            counters: Counters::default(),
            now: 1_000_000_000,
            told: [0; 2],
        }
    }

    /// A packet; bursts go to the stage when they are full.
    fn packet(&mut self, frame: [u8; 54]) {
        let buffer = &mut self.buffers[self.filled];
        buffer.window()[..54].copy_from_slice(&frame);
        buffer.set_len(54);
        self.filled += 1;
        if self.filled == BURST_MAX {
            self.burst();
        }
    }

    fn burst(&mut self) {
        let tables = Tables {
            classes: &self.tables.0,
            servers: &self.tables.1,
        };
        let buffers = &mut self.buffers[..self.filled];
        let (sender, counters) = (&mut self.samples.0, &mut self.counters);
        self.stage
            .burst(buffers, Ticks(self.now), tables, None, sender, counters);
        self.filled = 0;
        while let Some(LatencySample { sample, .. }) = self.samples.1.receive() {
            if sample.kind == Kind::Response {
                // Requests come 100 ms apart, each of them caused by an answer.
                self.told[usize::from(sample.value == Span::millis(100))] += 1;
            }
        }
    }

    /// One request of each busy flow, 100 ms after the last one.
    fn requests(&mut self, round: u32) {
        self.now += 100_000 * MICRO;
        for n in 0..BUSY {
            let numbers = [1000 + 100 * round, 5000 + 900 * round];
            self.packet(segment(0xc633_6400 + n, 40_000, numbers, ACK, 100));
        }
        self.burst();
        for _ in 0..8 {
            self.stage.housekeep(Ticks(self.now), &mut self.counters);
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }
}

/// 1,000 packets between two requests of each busy flow, each from a sender of its own, for 20 seconds; then 11 without.
fn flooded(flags: u8, payload: u16) {
    let mut rig = Rig::new();
    for round in 0..4 {
        rig.requests(round);
    }
    let (slots, bytes) = (rig.stage.table().slots(), rig.stage.table().bytes());
    let found = rig.count(Counter::FlowsCreated);
    assert!(found * 1000 >= u64::from(BUSY) * 998, "{found}");
    assert_eq!(rig.told, [0, 3 * found]);

    let mut sender = 0u32;
    let spent = measure(|| {
        for round in 4..204 {
            for _ in 0..1000 {
                sender += 1;
                let client = 0x0a00_0000 | sender.wrapping_mul(0x9e37_79b1) >> 8;
                rig.packet(segment(client, sender as u16, [sender, 1], flags, payload));
            }
            rig.burst();
            rig.requests(round);
        }
        (204..314).for_each(|round| rig.requests(round));
    });
    assert_eq!((spent.count_total, spent.count_current), (0, 0));
    assert_eq!(
        rig.told,
        [0, 313 * found],
        "each request of each busy flow is told, as if there were no flood"
    );
    assert_eq!(
        (rig.stage.table().slots(), rig.stage.table().bytes()),
        (slots, bytes)
    );
    let [created, expired, evicted, refused] = [
        Counter::FlowsCreated,
        Counter::FlowsExpired,
        Counter::FlowsEvicted,
        Counter::FlowsRefused,
    ]
    .map(|counter| rig.count(counter));
    assert_eq!(rig.stage.table().len(), created - expired - evicted);
    assert_eq!(rig.stage.table().len(), found, "those of the flood have aged");
    // Busy flows that found no room ask for it each time, with the flood's.
    let lost = u64::from(BUSY) - found;
    assert!(created + refused >= found + u64::from(sender));
    assert!(created + refused <= found + u64::from(sender) + 314 * lost);
    assert!(
        evicted > 100_000 && expired > 10,
        "{evicted} evicted, {expired} expired"
    );
    let packets = rig.count(Counter::FlowPackets) + rig.count(Counter::FlowUnmeasured);
    assert_eq!(packets, u64::from(sender) + 314 * u64::from(BUSY));
}

#[test]
fn a_flood_of_syns_takes_no_busy_flow() {
    flooded(SYN, 0);
}

#[test]
fn a_flood_of_requests_that_nobody_answers_takes_no_busy_flow() {
    flooded(ACK, 50);
}
