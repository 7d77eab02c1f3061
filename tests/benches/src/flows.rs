//! What a packet of a measured flow costs: instructions of the stage alone and through the worker on a mirror port, and what it
//! costs DNS beside it. [`crowd`] has what it costs at growing numbers of flows.

use crate::crowd;
use crate::instructions::{counted, counted_without_and_with};
use crate::queries::Kind;
use crate::table::{Gate, Row, Spread, Table as Rows};
use crate::world::{POLLS_PER_TURN, Ready, Size, USUAL, World, measured_polls_at};
use anyhow::{Result, bail};
use dataplane::arch::{TickRate, Ticks};
use dataplane::counters::{Counter, Counters};
use dataplane::flow::Span;
use dataplane::io::memory::{MemoryBuffer, MemoryConfig, MemoryPort, MemoryWire};
use dataplane::io::{BURST_MAX, Buffer, Burst, QueuePair};
use dataplane::link::samples::sample_ring;
use dataplane::stages::classify::Role;
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables};
use dataplane::tables::Classes;
use dataplane::tables::servers::{Server, Servers, Watching};
use std::time::{Duration, Instant};

/// Kinds of runs under callgrind.
const MIXED: &str = "flows-mixed";
const REQUESTS: &str = "flows-requests";
const MIXED_V6: &str = "flows-v6";
const QUIC: &str = "flows-quic";
/// The port alone: packets come, and are freed.
const PORT: &str = "flows-port";
/// Ends the name of a kind of which the stage alone is run.
const STAGE: &str = "+stage";
/// Flows of those runs.
const HOT: usize = 10_000;
/// Packets between two looks at housekeeping, as in the worker.
pub(crate) const TURN: usize = POLLS_PER_TURN * BURST_MAX;
const SERVER: [u8; 4] = [203, 0, 113, 9];
/// 2001:db8:5::9
const SERVER_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

/// Measures all.
///
/// # Errors
/// When valgrind is missing, a run fails, or there is no memory.
pub(crate) fn bench(table: &mut Rows, quick: bool) -> Result<()> {
    table.section(
        "Instructions per packet of a measured flow, 10 K flows: the stage (reads headers, hashes, looks up, estimates, tells, ages)",
    );
    let port = counted(PORT)?;
    for (kind, title, gate) in [
        (
            MIXED,
            "TCP: a request, one more, two acknowledgments",
            Gate::AtMost(150.0),
        ),
        (REQUESTS, "TCP: every packet a request with a sample", Gate::None),
        (MIXED_V6, "the same as the first, over IPv6", Gate::None),
        (QUIC, "QUIC: two requests, two acknowledgments", Gate::None),
    ] {
        let (stage, whole) = (counted(&format!("{kind}{STAGE}"))?, counted(kind)?);
        table.push(Row {
            name: title.into(),
            measured: stage,
            unit: "instructions",
            gate,
            note: format!(
                "rx to verdict on a mirror port {whole:.0}: stage {stage:.0}, worker around it {:.0}, port {port:.0}",
                whole - port - stage
            ),
        });
    }
    table.section("Instructions per DNS query (GSLB A) with a flow table in the worker and without");
    let [without, with] = counted_without_and_with("gslb-a")?;
    table.push(Row {
        name: "with, less without".into(),
        measured: with - without,
        unit: "instructions",
        gate: Gate::AtMost(1.0),
        note: format!("{with:.1} and {without:.1}"),
    });
    dns_beside(table, if quick { 10 } else { 20 })?;
    crowd::bench(table, quick)?;
    Ok(())
}

/// The tables of all runs: no classes, and the servers of both families.
pub(crate) fn servers() -> Result<(Classes, Servers)> {
    let server = |address, len| Server {
        address,
        len,
        site: None,
    };
    let list = vec![server(SERVER.into(), 32), server(SERVER_V6.into(), 128)];
    Ok((
        Classes::build(vec![], vec![], 1)?,
        Servers::build(list, Watching::default())?,
    ))
}

/// An IP packet of flow `n` with what it carries.
fn packet(n: usize, v6: bool, protocol: u8, l4: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let len = l4.len() as u16;
    let client = ((n >> 8) as u32).to_be_bytes();
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([protocol, 60, 0x20, 1, 0x0d, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0]);
        frame.extend(client);
        frame.extend(SERVER_V6);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + len).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 60, protocol, 0, 0, 10]);
        frame.extend(&client[1..]);
        frame.extend(SERVER);
    }
    frame.extend(l4);
    frame
}

/// A segment of flow `n`.
pub(crate) fn segment(n: usize, v6: bool, sequence: u32, acknowledgment: u32, payload: u16) -> Vec<u8> {
    let mut tcp = (0x4000 + (n & 0xff) as u16).to_be_bytes().to_vec();
    tcp.extend(443u16.to_be_bytes());
    tcp.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
    tcp.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    tcp.resize(20 + usize::from(payload), 7);
    packet(n, v6, 6, &tcp)
}

/// A short-header packet of flow `n`, told by its connection id.
fn quic(n: usize, payload: u16) -> Vec<u8> {
    let mut udp = 40_000u16.to_be_bytes().to_vec();
    udp.extend(443u16.to_be_bytes());
    udp.extend([(8 + payload).to_be_bytes(), [0, 0]].concat());
    udp.push(0x41);
    udp.extend((n as u64).to_be_bytes());
    udp.resize(8 + usize::from(payload), 7);
    packet(n, false, 17, &udp)
}

/// Users' traffic of a kind: each flow has its packet in turn.
struct Traffic {
    kind: String,
    /// Sequence and acknowledgment number of each flow.
    flows: Vec<(u32, u32)>,
    next: usize,
    /// How many packets each flow had.
    round: usize,
}

impl Traffic {
    fn new(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            flows: vec![(1000, 5000); HOT],
            next: 0,
            round: 0,
        }
    }

    /// Packets until every flow was created and has told of two responses.
    fn warm(&self) -> usize {
        3 * HOT * self.phases().len()
    }

    /// What a packet adds to the sequence and to the acknowledgment number, and its payload.
    fn phases(&self) -> &'static [(u32, u32, u16)] {
        match self.kind.as_str() {
            REQUESTS => &[(100, 900, 100)],
            _ => &[(100, 900, 100), (100, 0, 100), (0, 450, 0), (0, 450, 0)],
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let phases = self.phases();
        // Every flow begins with data, or it would not be measured; then neighbours are in different phases, as users are.
        let phase = match self.round {
            0 => 0,
            round => (round + self.next) % phases.len(),
        };
        let (sequence, acknowledgment, payload) = phases[phase];
        let state = &mut self.flows[self.next];
        let before = state.0;
        state.0 = state.0.wrapping_add(sequence);
        state.1 = state.1.wrapping_add(acknowledgment);
        let frame = match self.kind.as_str() {
            QUIC => quic(self.next, 40 + payload),
            kind => segment(self.next, kind == MIXED_V6, before, state.1, payload),
        };
        self.next += 1;
        if self.next == HOT {
            (self.next, self.round) = (0, self.round + 1);
        }
        frame
    }

    fn turn(&mut self) -> Vec<Vec<u8>> {
        (0..TURN).map(|_| self.frame()).collect()
    }
}

fn limits() -> FlowLimits {
    FlowLimits {
        flows: HOT * 2,
        idle: Span::millis(60_000),
    }
}

/// Ticks of a turn, a nanosecond each: each flow gets a packet every millisecond.
const TURN_TICKS: u64 = 25_000;

fn memory() -> (MemoryPort, MemoryWire) {
    MemoryPort::new(MemoryConfig {
        buffers: 2 * TURN,
        frames: 2 * TURN,
        ..MemoryConfig::default()
    })
}

/// True for kinds of this file.
pub(crate) fn is_kind(kind: &str) -> bool {
    kind.starts_with("flows-")
}

/// What runs under callgrind: `turns` turns of 256 packets each, after every flow was created.
///
/// # Errors
/// When a packet is not measured.
pub(crate) fn inner(kind: &str, turns: usize) -> Result<()> {
    if let Some(flows) = kind.strip_prefix(crowd::KIND) {
        return crowd::inner(flows.parse()?, turns);
    }
    match (kind, kind.strip_suffix(STAGE)) {
        (PORT, _) => {
            inner_port(turns);
            Ok(())
        }
        (_, Some(kind)) => inner_stage(kind, turns),
        _ => inner_worker(kind, turns),
    }
}

fn inner_port(turns: usize) {
    let (mut port, wire) = memory();
    let mut traffic = Traffic::new(MIXED);
    for _ in 0..turns {
        wire.stage(&traffic.turn());
        measured_polls_and_frees(&mut port);
    }
}

#[inline(never)]
fn measured_polls_and_frees(port: &mut MemoryPort) {
    let mut burst = Burst::default();
    for _ in 0..POLLS_PER_TURN {
        port.rx(&mut burst);
        port.free(&mut burst);
    }
}

fn inner_stage(kind: &str, turns: usize) -> Result<()> {
    let (mut port, _wire) = memory();
    let mut buffers: Vec<MemoryBuffer> = (0..TURN).map_while(|_| port.alloc()).collect();
    let (classes, servers) = servers()?;
    let tables = Tables {
        classes: &classes,
        servers: &servers,
    };
    let mut stage = FlowLatency::new(limits(), 7, TickRate::from_hz(1_000_000_000))?;
    let (mut sender, mut receiver) = sample_ring(4 * TURN);
    let (mut counters, mut traffic) = (Counters::default(), Traffic::new(kind));
    let warm = traffic.warm().div_ceil(TURN);
    let mut now = 1_000_000_000;
    for turn in 0..turns + warm {
        for buffer in &mut buffers {
            let frame = traffic.frame();
            buffer.window()[..frame.len()].copy_from_slice(&frame);
            buffer.set_len(frame.len());
        }
        if turn < warm {
            for burst in buffers.chunks_mut(BURST_MAX) {
                stage.burst(burst, Ticks(now), tables, None, &mut sender, &mut counters);
            }
        } else {
            measured_polls_of_stage(&mut stage, &mut buffers, now, tables, &mut sender, &mut counters);
        }
        now += TURN_TICKS;
        while receiver.receive().is_some() {}
    }
    check(&counters, ((turns + warm) * TURN) as u64)
}

/// The stage's part of a worker's turn.
#[inline(never)]
fn measured_polls_of_stage(
    stage: &mut FlowLatency,
    buffers: &mut [MemoryBuffer],
    now: u64,
    tables: Tables<'_>,
    samples: &mut dataplane::link::SampleSender,
    counters: &mut Counters,
) {
    for burst in buffers.chunks_mut(BURST_MAX) {
        stage.burst(burst, Ticks(now), tables, None, samples, counters);
    }
    stage.housekeep(Ticks(now), counters);
}

fn inner_worker(kind: &str, turns: usize) -> Result<()> {
    let (port, wire) = memory();
    let mut world = World::new(Size {
        names: 10,
        prefixes: 10,
    })?;
    let mut ready = world.mirror(port, Role::Mirror, limits(), servers()?)?;
    let mut traffic = Traffic::new(kind);
    let warm = traffic.warm().div_ceil(TURN);
    let mut now = 1_000_000_000;
    for turn in 0..turns + warm {
        wire.stage(&traffic.turn());
        if turn < warm {
            for _ in 0..POLLS_PER_TURN {
                ready.worker.poll(Ticks(now));
            }
            ready.worker.housekeep(Ticks(now));
        } else {
            measured_polls_at(&mut ready.worker, Ticks(now));
        }
        now += TURN_TICKS;
        while ready.link.samples.receive().is_some() {}
    }
    let counters = ready.worker.counters();
    check(counters, counters.get(Counter::Received))
}

/// Whether all packets were measured.
fn check(counters: &Counters, packets: u64) -> Result<()> {
    if packets != counters.get(Counter::FlowPackets)
        || counters.get(Counter::LatencySamples) == 0
        || counters.get(Counter::LatencySamplesDropped) != 0
    {
        bail!("{packets} packets, not all of them measured; {counters:?}");
    }
    Ok(())
}

/// A worker that answers on one port and measures on another.
struct Beside {
    ready: Ready<MemoryPort>,
    wires: [MemoryWire; 2],
    traffic: Option<Traffic>,
    answered: u64,
    took: Duration,
}

impl Beside {
    fn new(flows: Option<FlowLimits>, traffic: Option<Traffic>) -> Result<Self> {
        let ((service, wire), (mirror, copies)) = (memory(), memory());
        wire.discard_sent(true);
        let ready = World::new(USUAL)?.service_and_mirror(service, mirror, flows, servers()?.1)?;
        Ok(Self {
            ready,
            wires: [wire, copies],
            traffic,
            answered: 0,
            took: Duration::ZERO,
        })
    }

    /// Turns of queries, and of as many packets of users if there are any; the clock runs while the worker works.
    fn turns(&mut self, queries: &[Vec<u8>], turns: usize) {
        for _ in 0..turns {
            self.wires[0].stage(queries);
            if let Some(traffic) = &mut self.traffic {
                self.wires[1].stage(&traffic.turn());
            }
            let begun = Instant::now();
            for _ in 0..POLLS_PER_TURN {
                self.ready.worker.poll(Ticks::now());
            }
            self.ready.worker.housekeep(Ticks::now());
            self.took += begun.elapsed();
            self.answered += queries.len() as u64;
            while self.ready.link.samples.receive().is_some() {}
            while self.ready.link.clients.receive().is_some() {}
        }
    }

    /// Million queries answered in a second.
    fn rate(&mut self, queries: &[Vec<u8>]) -> f64 {
        (self.answered, self.took) = (0, Duration::ZERO);
        self.turns(queries, 400);
        self.answered as f64 / self.took.as_secs_f64() / 1e6
    }
}

/// DNS throughput of one core with the stage off, on, and on with as many packets of users as queries.
fn dns_beside(table: &mut Rows, pairs: usize) -> Result<()> {
    table.section(
        "DNS throughput (GSLB A, memory port) of one worker with the stage off and on, on the same core",
    );
    let queries = Kind::GslbA.frames(TURN, MemoryConfig::default().mac);
    let mut off = Beside::new(None, None)?;
    let mut on = Beside::new(Some(limits()), None)?;
    let mut busy = Beside::new(Some(limits()), Some(Traffic::new(MIXED)))?;
    let all = [&mut off, &mut on, &mut busy];
    for beside in all {
        beside.turns(&queries, 12 * HOT.div_ceil(TURN));
        let counters = beside.ready.worker.counters();
        let packets = counters.get(Counter::FlowPackets);
        if counters.get(Counter::Replied) != beside.answered
            || beside.traffic.is_some() != (packets > 0)
            || packets + counters.get(Counter::Replied) != counters.get(Counter::Received)
        {
            bail!("not every query was answered and every packet measured: {counters:?}");
        }
    }
    let (mut rates, mut idle, mut working) = (vec![], vec![], vec![]);
    for _ in 0..pairs {
        let rate = off.rate(&queries);
        rates.push(rate);
        idle.push(100.0 * on.rate(&queries) / rate);
        working.push(100.0 * busy.rate(&queries) / rate);
    }
    let (rates, idle, working) = (Spread::of(&rates), Spread::of(&idle), Spread::of(&working));
    for (name, spread, gate) in [
        ("on, no traffic of users", idle, Gate::AtLeast(97.0)),
        ("on, a packet of users for each query", working, Gate::None),
    ] {
        table.push(Row {
            name: name.into(),
            measured: spread.median,
            unit: "%",
            gate,
            note: format!("{spread}; of {:.2} M queries/s with the stage off", rates.median),
        });
    }
    Ok(())
}
