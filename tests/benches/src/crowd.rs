//! What a packet costs at growing numbers of flows: instructions and time of the stage alone, beside a random read-modify-write of
//! one cache line over as much memory in the same run. Part of the group `flows`.

use crate::flows::{TURN, segment, servers};
use crate::instructions::counted_at_once;
use crate::table::{Gate, Row, Spread, Table as Rows};
use anyhow::{Context, Result, anyhow, bail};
use dataplane::arch::{TickRate, Ticks};
use dataplane::counters::Counters;
use dataplane::flow::Span;
use dataplane::flow::table::WAYS;
use dataplane::io::memory::{MemoryBuffer, MemoryConfig, MemoryPort};
use dataplane::io::{BURST_MAX, Buffer, QueuePair};
use dataplane::link::samples::{SampleReceiver, SampleSender, sample_ring};
use dataplane::mmap::{Pages, Table};
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables};
use dataplane::tables::{Classes, Servers};
use std::hint::black_box;
use std::time::Instant;

/// Begins the name of the kind that is run under callgrind; the number of flows ends it.
pub(crate) const KIND: &str = "flows-random-";
/// Bytes of a frame, and where in it stand: the packet's length, the last three bytes of the client's address, the lower one of its
/// port, and both numbers.
const FRAME: usize = 54;
const LEN: usize = 16;
const CLIENT: usize = 27;
const PORT: usize = 35;
const SEQUENCE: usize = 38;
const ACKNOWLEDGMENT: usize = 42;
/// Buffers of a measured round.
const ROUND: usize = 64 * BURST_MAX;
/// Flows of each row.
const FLOWS: [(usize, &str); 5] = [
    (1_000, "1 K"),
    (10_000, "10 K"),
    (1_000_000, "1 M"),
    (4_000_000, "4 M"),
    (16_000_000, "16 M"),
];
/// How many of them when it has to be quick.
const FLOWS_QUICK: usize = 3;
/// Rounds of a timing.
const ROUNDS: usize = 50;
/// Timings at most.
const PAIRS: usize = 20;
/// Ticks of a round, a nanosecond each: short, so that no flow waits for longer than answers take.
const ROUND_TICKS: u64 = 50_000;
/// Bytes that a request says it has. A flow's next request comes any number of rounds later, each a byte further on: it
/// goes on where the last one was, whatever came between.
const PAYLOAD: u16 = 1100;
const _: () = assert!(ROUNDS * PAIRS < PAYLOAD as usize);

/// Measures all rows.
///
/// # Errors
/// When valgrind is missing, a run fails, or flows find no room.
pub(crate) fn bench(table: &mut Rows, quick: bool) -> Result<()> {
    table.section(
        "A packet of a random flow (TCP, half of them requests with a sample) in growing tables, of the stage alone",
    );
    let counts = if quick { &FLOWS[..FLOWS_QUICK] } else { &FLOWS[..] };
    for &(flows, name) in counts {
        let (needed, available) = (needed_mb(flows), available_mb()?);
        if needed > available {
            let why = format!("{needed} MB of memory needed, {available} MB available");
            table.left_out(&format!("{name} flows"), &why);
            continue;
        }
        row(table, flows, name, if quick { PAIRS / 2 } else { PAIRS })?;
    }
    Ok(())
}

/// The table, as much memory for the yardstick, and some for the rest.
fn needed_mb(flows: usize) -> usize {
    ((2 * 96 * flows) >> 20) + 256
}

fn available_mb() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kb = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok());
    Ok(kb.context("no MemAvailable in /proc/meminfo")? >> 10)
}

/// One cache line.
type Line = [u64; 8];

/// A stage with that many flows, each with a response behind it, as those of busy users have.
struct Crowd {
    flows: usize,
    stage: FlowLatency,
    classes: Classes,
    servers: Servers,
    buffers: Vec<MemoryBuffer>,
    sender: SampleSender,
    receiver: SampleReceiver,
    counters: Counters,
    random: fastrand::Rng,
    template: [u8; FRAME],
    step: u32,
    now: u64,
}

impl Crowd {
    fn new(flows: usize) -> Result<Self> {
        let (classes, servers) = servers()?;
        let limits = FlowLimits {
            flows,
            idle: Span::millis(240_000),
        };
        let stage = FlowLatency::new(limits, 7, TickRate::from_hz(1_000_000_000))?;
        let (mut port, _wire) = MemoryPort::new(MemoryConfig {
            buffers: ROUND,
            ..MemoryConfig::default()
        });
        let buffers = (0..ROUND).map_while(|_| port.alloc()).collect();
        let (sender, receiver) = sample_ring(4 * ROUND);
        let mut crowd = Self {
            flows,
            stage,
            classes,
            servers,
            buffers,
            sender,
            receiver,
            counters: Counters::default(),
            random: fastrand::Rng::with_seed(3),
            template: segment(0, false, 0, 0, 0)
                .try_into()
                .map_err(|_| anyhow!("a segment of another length"))?,
            step: 0,
            now: 1_000_000_000,
        };
        for step in 0..2 {
            crowd.step = step;
            for first in (0..flows).step_by(ROUND) {
                crowd.fill(|at, _| ((first + at).min(flows - 1), true));
                crowd.polls();
                crowd.end_round();
            }
        }
        let there = crowd.stage.table().len() as usize;
        if there * 100 < flows * 99 {
            bail!("{there} of {flows} flows found room");
        }
        Ok(crowd)
    }

    /// Puts a packet in each buffer: of which flow, and whether it has data.
    fn fill(&mut self, pick: impl Fn(usize, &mut fastrand::Rng) -> (usize, bool)) {
        // As `segment` makes it, changed where flows and steps differ: under callgrind every instruction takes its time.
        let mut frame = self.template;
        frame[LEN..LEN + 2].copy_from_slice(&40u16.to_be_bytes());
        frame[SEQUENCE..SEQUENCE + 4].copy_from_slice(&self.step.to_be_bytes());
        frame[ACKNOWLEDGMENT..ACKNOWLEDGMENT + 4].copy_from_slice(&self.step.wrapping_mul(900).to_be_bytes());
        let mut request = frame;
        // Cut behind its headers, as mirrors do.
        request[LEN..LEN + 2].copy_from_slice(&(40 + PAYLOAD).to_be_bytes());
        for (at, buffer) in self.buffers.iter_mut().enumerate() {
            let (flow, data) = pick(at, &mut self.random);
            let client = (flow as u32).to_be_bytes();
            let window = buffer.window();
            window[..FRAME].copy_from_slice(if data { &request } else { &frame });
            window[CLIENT..CLIENT + 3].copy_from_slice(&client[..3]);
            window[PORT] = client[3];
            buffer.set_len(FRAME);
        }
    }

    /// Random flows; every second packet is a request that tells of a response, the others acknowledge.
    fn fill_randomly(&mut self) {
        self.step += 1;
        let flows = self.flows;
        self.fill(|at, random| (random.usize(0..flows), at % 2 == 0));
    }

    #[inline(never)]
    fn measured_polls(&mut self) {
        self.polls();
    }

    /// The stage over all buffers.
    #[inline(always)]
    fn polls(&mut self) {
        let tables = Tables {
            classes: &self.classes,
            servers: &self.servers,
        };
        for burst in self.buffers.chunks_mut(BURST_MAX) {
            let (sender, counters) = (&mut self.sender, &mut self.counters);
            self.stage
                .burst(burst, Ticks(self.now), tables, None, sender, counters);
        }
    }

    fn end_round(&mut self) {
        self.now += ROUND_TICKS;
        while self.receiver.receive().is_some() {}
    }

    /// Nanoseconds of a packet.
    fn time(&mut self) -> f64 {
        let mut sum = 0;
        for _ in 0..ROUNDS {
            self.fill_randomly();
            let begun = Instant::now();
            self.measured_polls();
            sum += begun.elapsed().as_nanos();
            self.end_round();
        }
        sum as f64 / (ROUNDS * ROUND) as f64
    }
}

/// What runs under callgrind; only [`Crowd::measured_polls`] is counted.
///
/// # Errors
/// When flows find no room.
pub(crate) fn inner(flows: usize, turns: usize) -> Result<()> {
    let mut crowd = Crowd::new(flows)?;
    for _ in 0..turns * TURN / ROUND {
        crowd.fill_randomly();
        crowd.measured_polls();
        crowd.end_round();
    }
    Ok(())
}

fn row(table: &mut Rows, flows: usize, name: &str, pairs: usize) -> Result<()> {
    let instructions = counted_at_once(&format!("{KIND}{flows}"))?;
    let mut crowd = Crowd::new(flows)?;
    let bytes = crowd.stage.table().bytes();
    let mut lines = Table::<Line>::zeroed(bytes / size_of::<Line>())?;
    lines.populate();
    let (mut ours, mut theirs, mut chained, mut ratios) = (vec![], vec![], vec![], vec![]);
    for _ in 0..pairs {
        let time = crowd.time();
        let several = read_modify_write(&mut lines, ROUNDS * ROUND);
        let one = chain(&mut lines, ROUNDS * ROUND / 4);
        ours.push(time);
        theirs.push(several);
        chained.push(one);
        ratios.push(time / one);
    }
    let [ours, theirs, chained, ratios] = [ours, theirs, chained, ratios].map(|v| Spread::of(&v));
    let pages = match crowd.stage.table().pages() {
        Pages::HugeAdvised => "huge pages advised",
        Pages::Ordinary(_) | Pages::Small => "ordinary pages",
    };
    table.push(Row {
        name: format!("{name} flows, {} MB", bytes >> 20),
        measured: ours.median,
        unit: "ns",
        gate: Gate::None,
        note: format!(
            "{ours}; {instructions:.0} instructions; {pages}; {:.1} bytes a flow, {:.1} in whole pages",
            (crowd.stage.table().slots() / WAYS * 512) as f64 / flows as f64,
            bytes as f64 / flows as f64
        ),
    });
    table.push(Row {
        name: "  to one read-modify-write of 64 random bytes".into(),
        measured: ratios.median,
        unit: "x",
        gate: match flows {
            4_000_000 => Gate::AtMost(2.0),
            _ => Gate::None,
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
