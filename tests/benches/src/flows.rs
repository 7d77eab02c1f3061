//! What a packet of a measured flow costs: instructions through the worker on a mirror port, and time at growing numbers of flows
//! beside a random read-modify-write of one cache line over as much memory.

use crate::instructions::{counted, counted_with};
use crate::table::{Gate, Row, Spread, Table as Rows};
use crate::world::{POLLS_PER_TURN, Size, World};
use anyhow::{Result, bail};
use dataplane::arch::{TickRate, Ticks};
use dataplane::counters::{Counter, Counters};
use dataplane::flow::Span;
use dataplane::io::memory::{MemoryBuffer, MemoryConfig, MemoryPort};
use dataplane::io::{BURST_MAX, Buffer, QueuePair};
use dataplane::link::samples::sample_ring;
use dataplane::mmap::{Pages, Table};
use dataplane::stages::classify::Role;
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables};
use dataplane::tables::Classes;
use dataplane::tables::servers::{Server, Servers, Watching};
use std::hint::black_box;
use std::time::Instant;

/// Kinds of runs under callgrind.
pub(crate) const KINDS: [&str; 2] = ["flows-mixed", "flows-requests"];
/// Flows of those runs.
const HOT: usize = 10_000;
/// Buffers of a measured round.
const ROUND: usize = 64 * BURST_MAX;
/// Flows for each timing.
const FLOWS: [(usize, &str); 5] = [
    (1_000, "1 K"),
    (10_000, "10 K"),
    (1_000_000, "1 M"),
    (4_000_000, "4 M"),
    (16_000_000, "16 M"),
];
const SERVER: [u8; 4] = [203, 0, 113, 9];

/// Measures all.
///
/// # Errors
/// When valgrind is missing, a run fails, or there is no memory.
pub(crate) fn bench(table: &mut Rows, quick: bool) -> Result<()> {
    table.section("Instructions per packet of a measured flow, rx to verdict on a mirror port, 10 K flows");
    let port = counted(crate::instructions::PORT)?;
    for (kind, title, gate) in [
        (
            KINDS[0],
            "TCP: a request, one more, two acknowledgments",
            Gate::AtMost(150.0),
        ),
        (KINDS[1], "TCP: every packet a request with a sample", Gate::None),
    ] {
        let measured = counted(kind)?;
        table.push(Row {
            name: title.into(),
            measured: measured - port,
            unit: "instructions",
            gate,
            note: format!("{measured:.0} with the port's own {port:.0}"),
        });
    }
    table.section("Instructions per DNS query (GSLB A) with a flow table in the worker and without");
    let (without, with) = (counted("gslb-a")?, counted_with("gslb-a")?);
    table.push(Row {
        name: "with, less without".into(),
        measured: with - without,
        unit: "instructions",
        gate: Gate::AtMost(1.0),
        note: format!("{with:.1} and {without:.1}"),
    });
    table.section(
        "Time per packet of a random flow (TCP, half of them requests with a sample), of the stage alone",
    );
    let counts = if quick { &FLOWS[..3] } else { &FLOWS[..] };
    for &(flows, name) in counts {
        timed(table, flows, name, if quick { 10 } else { 20 })?;
    }
    Ok(())
}

fn servers() -> Result<(Classes, Servers)> {
    let server = Server {
        address: SERVER.into(),
        len: 32,
        site: None,
    };
    Ok((
        Classes::build(vec![], vec![], 1)?,
        Servers::build(vec![server], Watching::default())?,
    ))
}

/// A segment of flow `n`.
fn segment(n: usize, sequence: u32, acknowledgment: u32, payload: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend((40 + payload).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 60, 6, 0, 0]);
    frame.extend((0x0a00_0000 + (n >> 8) as u32).to_be_bytes());
    frame.extend(SERVER);
    frame.extend((0x4000 + (n & 0xff) as u16).to_be_bytes());
    frame.extend(443u16.to_be_bytes());
    frame.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
    frame.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(54 + usize::from(payload), 7);
    frame
}

/// What runs under callgrind: `turns` turns of the worker, 256 packets each, after every flow was created.
///
/// # Errors
/// When a packet is not measured.
pub(crate) fn inner(kind: &str, turns: usize) -> Result<()> {
    let frames_of_turn = POLLS_PER_TURN * BURST_MAX;
    let config = MemoryConfig {
        buffers: 2 * frames_of_turn,
        frames: 2 * frames_of_turn,
        ..MemoryConfig::default()
    };
    let (port, wire) = MemoryPort::new(config);
    let limits = FlowLimits {
        flows: HOT * 2,
        idle: Span::millis(60_000),
    };
    let mut world = World::new(Size {
        names: 10,
        prefixes: 10,
    })?;
    let mut ready = world.mirror(port, Role::Mirror, limits, servers()?)?;
    let mut now = 1_000_000_000u64;
    let phases: &[(u32, u32, u16)] = match kind {
        "flows-mixed" => &[(100, 900, 100), (100, 0, 100), (0, 450, 0), (0, 450, 0)],
        _ => &[(100, 900, 100)],
    };
    let mut flows = vec![(1000u32, 5000u32); HOT];
    let (mut flow, mut phase) = (0, 0);
    for turn in 0..turns + HOT.div_ceil(frames_of_turn) * phases.len() {
        let frames: Vec<Vec<u8>> = (0..frames_of_turn)
            .map(|_| {
                let (sequence, acknowledgment, payload) = phases[phase];
                let state = &mut flows[flow];
                let frame_sequence = state.0;
                state.0 = state.0.wrapping_add(sequence);
                state.1 = state.1.wrapping_add(acknowledgment);
                let frame = segment(flow, frame_sequence, state.1, payload);
                flow += 1;
                if flow == HOT {
                    (flow, phase) = (0, (phase + 1) % phases.len());
                }
                frame
            })
            .collect();
        wire.stage(&frames);
        let warm = turn < HOT.div_ceil(frames_of_turn) * phases.len();
        if warm {
            for _ in 0..POLLS_PER_TURN {
                ready.worker.poll(Ticks(now));
            }
            ready.worker.housekeep(Ticks(now));
        } else {
            measured_polls_of_flows(&mut ready.worker, now);
        }
        // A turn is 25 us: each flow gets a packet every millisecond.
        now += 25_000;
        while ready.link.samples.receive().is_some() {}
    }
    let counters = ready.worker.counters();
    let (packets, received) = (
        counters.get(Counter::FlowPackets),
        counters.get(Counter::Received),
    );
    if packets != received
        || counters.get(Counter::FlowsCreated) != HOT as u64
        || counters.get(Counter::LatencySamples) == 0
    {
        bail!("{packets} of {received} packets measured; {counters:?}");
    }
    Ok(())
}

/// One turn at that time.
#[inline(never)]
fn measured_polls_of_flows<Q: QueuePair>(worker: &mut dataplane::worker::Worker<Q>, now: u64) {
    for _ in 0..POLLS_PER_TURN {
        worker.poll(Ticks(now));
    }
    worker.housekeep(Ticks(now));
}

/// One cache line.
type Line = [u64; 8];

fn timed(table: &mut Rows, flows: usize, name: &str, pairs: usize) -> Result<()> {
    let (classes, servers) = servers()?;
    let tables = Tables {
        classes: &classes,
        servers: &servers,
    };
    let limits = FlowLimits {
        flows,
        idle: Span::millis(240_000),
    };
    let mut stage = FlowLatency::new(limits, 7, TickRate::from_hz(1_000_000_000))?;
    let bytes = stage.table().bytes();
    let mut lines = Table::<Line>::zeroed(bytes / size_of::<Line>())?;
    lines.populate();
    let (mut port, _wire) = MemoryPort::new(MemoryConfig {
        buffers: ROUND,
        ..MemoryConfig::default()
    });
    let mut buffers: Vec<MemoryBuffer> = (0..ROUND).map_while(|_| port.alloc()).collect();
    let (mut sender, mut receiver) = sample_ring(4 * ROUND);
    let mut counters = Counters::default();
    let mut random = fastrand::Rng::with_seed(3);
    let mut now = 1_000_000_000u64;
    let mut round = |stage: &mut FlowLatency, pick: &mut dyn FnMut(usize) -> (usize, u32, bool)| {
        for (at, buffer) in buffers.iter_mut().enumerate() {
            let (flow, step, data) = pick(at);
            let frame = segment(
                flow,
                step.wrapping_mul(100),
                step.wrapping_mul(900),
                if data { 100 } else { 0 },
            );
            buffer.window()[..frame.len()].copy_from_slice(&frame);
            buffer.set_len(frame.len());
        }
        now += 1_000_000;
        let begun = Instant::now();
        for burst in buffers.chunks_mut(BURST_MAX) {
            stage.burst(burst, Ticks(now), tables, None, &mut sender, &mut counters);
        }
        let took = begun.elapsed().as_nanos() as f64 / ROUND as f64;
        while receiver.receive().is_some() {}
        took
    };
    for first in (0..flows).step_by(ROUND) {
        round(&mut stage, &mut |at| ((first + at).min(flows - 1), 0, true));
    }
    let there = stage.table().len() as usize;
    if there * 100 < flows * 99 {
        bail!("{there} of {flows} flows found room");
    }
    let rounds = 64;
    let (mut step, mut ours, mut theirs, mut chained, mut ratios) = (1, vec![], vec![], vec![], vec![]);
    for _ in 0..pairs {
        let mut sum = 0.0;
        for _ in 0..rounds {
            step += 1;
            sum += round(&mut stage, &mut |at| (random.usize(0..flows), step, at % 2 == 0));
        }
        let (one, chain) = (
            read_modify_write(&mut lines, rounds * ROUND),
            chain(&mut lines, rounds * ROUND / 4),
        );
        ours.push(sum / rounds as f64);
        theirs.push(one);
        chained.push(chain);
        ratios.push(sum / rounds as f64 / chain);
    }
    let (ours, theirs, chained, ratios) = (
        Spread::of(&ours),
        Spread::of(&theirs),
        Spread::of(&chained),
        Spread::of(&ratios),
    );
    let pages = match stage.table().pages() {
        Pages::HugeAdvised => "huge pages advised",
        Pages::Ordinary(_) | Pages::Small => "ordinary pages",
    };
    table.push(Row {
        name: format!("{name} flows, {} MB", bytes >> 20),
        measured: ours.median,
        unit: "ns",
        gate: Gate::None,
        note: format!("{ours}; {pages}; {:.1} bytes a flow", bytes as f64 / flows as f64),
    });
    table.push(Row {
        name: "  to one read-modify-write of 64 random bytes".into(),
        measured: ratios.median,
        unit: "x",
        gate: if flows == 4_000_000 {
            Gate::AtMost(2.0)
        } else {
            Gate::None
        },
        note: format!(
            "{ratios}; one by one {:.1} ns; as many at once as the processor can, {:.1} ns",
            chained.median, theirs.median
        ),
    });
    Ok(())
}

/// Random lines, each changed; the processor may work on several at once. Nanoseconds each.
#[inline(never)]
fn read_modify_write(lines: &mut [Line], count: usize) -> f64 {
    let mut state = fastrand::u64(..);
    let begun = Instant::now();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        change(lines, state);
    }
    black_box(&lines);
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The same, each line found by what stood in the one before. Nanoseconds each.
#[inline(never)]
fn chain(lines: &mut [Line], count: usize) -> f64 {
    let mut state = fastrand::u64(..);
    let begun = Instant::now();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state ^= black_box(change(lines, state));
    }
    black_box(state);
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// Reads and writes all of a line.
#[inline(always)]
fn change(lines: &mut [Line], state: u64) -> u64 {
    let at = ((u128::from(state) * lines.len() as u128) >> 64) as usize;
    let mut all = 0;
    if let Some(line) = lines.get_mut(at) {
        for word in line.iter_mut() {
            *word = word.wrapping_add(state);
            all |= *word;
        }
    }
    all
}
