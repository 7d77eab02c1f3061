//! Instructions per answered query, counted by callgrind on the memory port.
//!
//! The bench starts itself under valgrind, twice with different numbers of queries, and divides the difference: what
//! happens once cancels. Only what [`measured_polls`] and below execute is counted. Where a name lies in the table is by
//! chance, and costs some: each kind is counted for several tables, the same ones each time, and the median is what counts.

use crate::flows;
use crate::queries::{Kind, read_reply};
use crate::table::{Gate, Row, Spread, Table};
use crate::world::{POLLS_PER_TURN, USUAL, World, measured_polls, measured_polls_at, this_program};
use anyhow::{Context, Result, bail};
use dataplane::arch::Ticks;
use dataplane::counters::Counter;
use dataplane::io::memory::{MemoryConfig, MemoryPort};
use dataplane::io::{BURST_MAX, Burst, QueuePair};
use dataplane::stages::flow_latency::FlowLimits;
use dataplane::worker::Worker;
use std::process::Command;

/// Different queries in turn: those of one turn.
const QUERIES: usize = POLLS_PER_TURN * BURST_MAX;
/// Turns of the worker's loop in the two runs; 8 bursts of 32 each.
const TURNS: [usize; 2] = [100, 500];
/// Tables that each kind is asked of, by the seeds of their keys.
const TABLES: [u64; 7] = [1, 2, 3, 4, 5, 6, 7];
/// How many of them when it has to be quick.
const TABLES_QUICK: usize = 3;
/// The kind that stands for the port alone.
pub(crate) const PORT: &str = "port";
/// Ends the name of a kind that is run with a flow table in the worker, and of its twin without: both by a clock of their own,
/// since flows age by time, of which there is fifty times more under callgrind.
const WITH_FLOWS: &str = "+flows";
const WITHOUT_FLOWS: &str = "+no-flows";
/// Ticks of a turn by that clock, a nanosecond each: 256 queries at 6.4 million a second.
const TURN_TICKS: u64 = 40_000;

/// Gates of the kinds: the whole path, the port with it.
const fn gate(kind: Kind) -> Option<f64> {
    match kind {
        Kind::StaticA => Some(530.0),
        Kind::GslbA => Some(600.0),
        Kind::GslbEdns => Some(680.0),
        Kind::GslbEcs => Some(850.0),
        Kind::GslbCookie => Some(1_050.0),
        Kind::GslbEcsCookie => Some(1_150.0),
        Kind::NxDomain4 => Some(850.0),
        Kind::NxDomain127 => Some(3_000.0),
        Kind::GslbIsp | Kind::GslbChain | Kind::GslbWeighted | Kind::BigTxt => None,
        Kind::LimitedStaticA | Kind::LimitedGslbA | Kind::LimitedNxDomain4 | Kind::Flood => None,
    }
}

/// Measures all kinds.
///
/// # Errors
/// When valgrind is missing or a run fails.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    let tables = if quick { TABLES_QUICK } else { TABLES.len() };
    table.section("Instructions per query, rx to tx on the memory port (256 frames, bursts of 32, buffers handed over as by net_ring)");
    let port = per_query(PORT, TABLES[0])?;
    let (mut hit, mut short_chain) = (None, None);
    for kind in Kind::ALL {
        let counts: Result<Vec<f64>> = TABLES[..tables]
            .iter()
            .map(|&seed| per_query(kind.name(), seed))
            .collect();
        let spread = Spread::of(&counts?);
        let measured = spread.median;
        match kind {
            Kind::GslbA => hit = Some(measured),
            Kind::GslbIsp => short_chain = Some(measured),
            _ => {}
        }
        table.push(Row {
            name: kind.title().into(),
            measured,
            unit: "instructions",
            gate: gate(kind).map_or(Gate::None, Gate::AtMost),
            note: format!(
                "{spread} in other tables; of these the port's own {port:.0}, the rest {:.0}",
                measured - port
            ),
        });
        if let (Kind::GslbChain, Some(short)) = (kind, short_chain) {
            table.push(Row {
                name: "a chain of nine metrics, to one of three".into(),
                measured: measured / short,
                unit: "x",
                gate: Gate::AtMost(1.1),
                note: "same run".into(),
            });
        }
        if let (Kind::NxDomain4, Some(hit)) = (kind, hit) {
            table.push(Row {
                name: "NXDOMAIN, 4 labels, to a hit (GSLB A)".into(),
                measured: measured / hit,
                unit: "x",
                gate: Gate::AtMost(1.4),
                note: "same run".into(),
            });
        }
    }
    Ok(())
}

/// Instructions of one packet of that kind.
///
/// # Errors
/// As [`bench()`].
pub(crate) fn counted(kind: &str) -> Result<f64> {
    per_query(kind, TABLES[0])
}

/// The same without and with a flow table in the worker.
///
/// # Errors
/// As [`bench()`].
pub(crate) fn counted_without_and_with(kind: &str) -> Result<[f64; 2]> {
    let counted = |end| per_query(&format!("{kind}{end}"), TABLES[0]);
    Ok([counted(WITHOUT_FLOWS)?, counted(WITH_FLOWS)?])
}

/// Instructions of one packet of a kind of which nothing but packets is counted: one run is enough.
///
/// # Errors
/// As [`bench()`].
pub(crate) fn counted_at_once(kind: &str) -> Result<f64> {
    let turns = TURNS[1];
    let packets = turns * POLLS_PER_TURN * BURST_MAX;
    Ok(count(kind, turns, TABLES[0])? as f64 / packets as f64)
}

fn per_query(kind: &str, seed: u64) -> Result<f64> {
    let [few, many] = TURNS;
    let (few_count, many_count) = (count(kind, few, seed)?, count(kind, many, seed)?);
    let queries = (many - few) * POLLS_PER_TURN * BURST_MAX;
    Ok((many_count - few_count) as f64 / queries as f64)
}

/// Instructions of one run under callgrind.
fn count(kind: &str, turns: usize, seed: u64) -> Result<u64> {
    let out = tempfile::NamedTempFile::new()?;
    callgrind(kind, turns, seed, out.path(), &[])?;
    let text = std::fs::read_to_string(out.path())?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total
        .and_then(|n| n.trim().parse().ok())
        .context("callgrind wrote no total: is valgrind 3.19 or later installed?")
}

fn callgrind(kind: &str, turns: usize, seed: u64, out: &std::path::Path, more: &[&str]) -> Result<()> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured_polls*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(more)
        .arg(this_program()?)
        .args(["inner-instructions", kind, &turns.to_string(), &seed.to_string()])
        .output()
        .context("cannot start valgrind: install it (packages.apt)")?;
    if !output.status.success() {
        bail!(
            "the run under valgrind failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Prints where the instructions of one kind go, by function and by source line.
///
/// # Errors
/// As [`bench()`].
pub(crate) fn profile(kind: &str) -> Result<()> {
    let out = tempfile::NamedTempFile::new()?;
    let (turns, seed) = (TURNS[1], TABLES[0]);
    let more = ["--dump-line=yes", "--dump-instr=no"];
    callgrind(kind, turns, seed, out.path(), &more)?;
    let queries = turns * POLLS_PER_TURN * BURST_MAX;
    println!(
        "{kind}: {queries} queries; {:.1} instructions each\n",
        per_query(kind, seed)?
    );
    let run = |args: &[&str]| -> Result<String> {
        let output = Command::new("callgrind_annotate")
            .args(args)
            .arg(out.path())
            .output()
            .context("cannot start callgrind_annotate: install valgrind")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    println!("{}", run(&["--auto=no", "--threshold=99.5"])?);
    println!("{}", run(&["--auto=yes", "--threshold=99", "--context=0"])?);
    Ok(())
}

/// What runs under valgrind.
///
/// # Errors
/// When a reply is not what the kind expects.
pub(crate) fn inner(kind: &str, turns: usize, seed: u64) -> Result<()> {
    if flows::is_kind(kind) {
        return flows::inner(kind, turns);
    }
    let (plain, with_flows) = match kind.strip_suffix(WITH_FLOWS) {
        Some(plain) => (plain, true),
        None => (kind.strip_suffix(WITHOUT_FLOWS).unwrap_or(kind), false),
    };
    let (kind, own_clock) = (plain, plain != kind);
    let config = MemoryConfig {
        buffers: 2 * QUERIES,
        frames: 2 * QUERIES,
        ..MemoryConfig::default()
    };
    let (mut port, wire) = MemoryPort::new(config);
    if kind == PORT {
        wire.discard_sent(true);
        let frames = Kind::StaticA.frames(QUERIES, config.mac);
        for _ in 0..turns {
            wire.stage(&frames);
            measured_polls_of_port(&mut port);
        }
        return Ok(());
    }
    let kind = parse(kind)?;
    let frames = kind.frames(QUERIES, config.mac);
    let mut world = World::new(USUAL)?.limited(kind.rate_limit());
    let mut keys = fastrand::Rng::with_seed(seed);
    world.compiler.name_keys = Some(std::array::from_fn(|_| keys.u64(..)));
    world.flows = with_flows.then(FlowLimits::default);
    let mut ready = world.worker(port)?;
    let worker = &mut ready.worker;
    // Each query is answered as it should be, before any is counted.
    for frame in &frames {
        wire.inject(frame);
    }
    while worker.poll(Ticks::now()) > 0 {}
    let replies = wire.take_all();
    match kind {
        Kind::Flood => check_flood(worker)?,
        _ => check(kind, &frames, &replies, worker)?,
    }
    wire.discard_sent(true);
    let (mut received, mut now) = (0, Ticks::now());
    for _ in 0..turns {
        // The sender's work, and not counted: it fills the buffers that the port hands over.
        wire.stage(&frames);
        received += match own_clock {
            true => measured_polls_at(worker, now),
            false => measured_polls(worker, 1),
        };
        now = now.plus(TURN_TICKS);
    }
    if kind == Kind::Flood {
        return check_flood(worker);
    }
    let replied = worker.counters().get(Counter::Replied) as usize;
    if replied != received + QUERIES || received != turns * POLLS_PER_TURN * BURST_MAX {
        bail!("{received} received while {replied} replied");
    }
    Ok(())
}

/// Whether the replies are what the kind expects.
fn check(kind: Kind, frames: &[Vec<u8>], replies: &[Vec<u8>], worker: &Worker<MemoryPort>) -> Result<()> {
    let wrong = replies.iter().find(|r| read_reply(r) != Some(kind.expected()));
    if replies.len() != frames.len() || wrong.is_some() {
        bail!(
            "{} of {} queries answered; a wrong reply: {:?}; {:?}",
            replies.len(),
            frames.len(),
            wrong.map(|r| read_reply(r)),
            worker.counters()
        );
    }
    if matches!(kind, Kind::GslbCookie | Kind::GslbEcsCookie) {
        // The option ends the query and the reply.
        let echoed = |(asked, given): (&Vec<u8>, &Vec<u8>)| given.ends_with(&asked[asked.len() - 28..]);
        if !frames.iter().zip(replies).all(echoed) {
            bail!("a good cookie did not come back as it was");
        }
    }
    Ok(())
}

/// Whether a flood got a reply a second, and of the rest every second query an empty one.
fn check_flood(worker: &Worker<MemoryPort>) -> Result<()> {
    let counters = worker.counters();
    let [received, answered, slipped, dropped] = [
        Counter::Received,
        Counter::DnsNxdomain,
        Counter::DnsSlipped,
        Counter::DropRateLimit,
    ]
    .map(|counter| counters.get(counter));
    // A run takes seconds, on the clock that the tokens come by.
    let few = (1..64).contains(&answered);
    if !few || slipped + dropped + answered != received || dropped.abs_diff(slipped) > 1 {
        bail!("{received} received, {answered} answered, {slipped} slipped, {dropped} dropped");
    }
    Ok(())
}

/// The port alone: what came goes out as it is.
#[inline(never)]
fn measured_polls_of_port(port: &mut MemoryPort) {
    let mut burst = Burst::default();
    for _ in 0..POLLS_PER_TURN {
        port.rx(&mut burst);
        port.tx(&mut burst);
    }
}

/// The kind of that name.
///
/// # Errors
/// The names there are.
pub(crate) fn parse(name: &str) -> Result<Kind> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .with_context(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("no kind of query \"{name}\"; there are {names}, and {PORT}")
        })
}
