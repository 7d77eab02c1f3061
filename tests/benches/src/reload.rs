//! A reload of a million names under load: what it costs the worker that answers meanwhile.
//!
//! The worker answers from the memory port without a pause, on the measured CPU; a reload reads the files, compiles
//! and publishes, as the appliance does. The longest gap in the worker's loop is compared with that of an equally long
//! time without a reload: once with control asleep, once with control as busy with nothing as a reload makes it. The
//! second tells what the reload does from what the host does to two CPUs that are busy at once.

use crate::rig::CPU;
use crate::table::{Gate, Row, Spread, Table};
use crate::world::{Running, Size, World};
use anyhow::{Result, bail};
use control::publish::Publisher;
use dataplane::arch::TickRate;
use dataplane::counters::{Counter, Kind};
use dataplane::io::QueuePair;
use dataplane::worker::Worker;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: Size = Size {
    names: 1_000_000,
    prefixes: 10_000,
};
/// A worker that stands still for longer is reported.
const STALL_LIMIT: Duration = Duration::from_secs(2);
/// A snapshot that is not adopted by then is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one span of answering came to.
struct Span {
    gap_us: f64,
    received: u64,
    lost: u64,
    time: Duration,
}

/// Measures pairs with and without a reload.
///
/// # Errors
/// When a reload does not reach the worker.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Reload of 1,000,000 names under load (memory port, replay of 256 frames)");
    let rate = TickRate::calibrate();
    let mut world = World::new(SIZE)?;
    let (mut with, mut asleep, mut busy) = (vec![], vec![], vec![]);
    let (mut lost, mut received) = (0, 0);
    for _ in 0..if quick { 2 } else { 5 } {
        let reloaded = span(&mut world, rate, Control::Reloads)?;
        let time = reloaded.time;
        asleep.push(span(&mut world, rate, Control::Sleeps(time))?.gap_us);
        busy.push(span(&mut world, rate, Control::Spins(time))?.gap_us);
        with.push(reloaded.gap_us);
        lost += reloaded.lost;
        received += reloaded.received;
    }
    table.push(Row {
        name: "packets lost".into(),
        measured: lost as f64,
        unit: "",
        gate: Gate::AtMost(0.0),
        note: format!("of {received} received in {} reloads", with.len()),
    });
    for (name, without) in [
        ("longest loop gap, over that with control asleep", asleep),
        ("longest loop gap, over that with control busy", busy),
    ] {
        let more: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a - b).collect();
        let more = Spread::of(&more);
        table.push(Row {
            name: name.into(),
            measured: more.median,
            unit: "us",
            gate: Gate::AtMost(100.0),
            note: format!(
                "{more}; {:.0} us with, {:.0} us without",
                Spread::of(&with).median,
                Spread::of(&without).median
            ),
        });
    }
    Ok(())
}

/// What control does while the worker answers.
#[derive(Clone, Copy)]
enum Control {
    Reloads,
    Sleeps(Duration),
    Spins(Duration),
}

/// Answers for that time, or for as long as a reload takes.
fn span(world: &mut World, rate: TickRate, control: Control) -> Result<Span> {
    let (running, link) = Running::start(world, CPU)?;
    let publisher = Publisher::start(vec![link], STALL_LIMIT, |_| {})?;
    let start = Instant::now();
    match control {
        Control::Sleeps(time) => std::thread::sleep(time),
        Control::Spins(time) => {
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        }
        Control::Reloads => {
            let mac = running.mac();
            let mut next = World::new(SIZE)?;
            std::mem::swap(&mut next.config, &mut world.config);
            let snapshot = world.compile(mac)?;
            let generation = snapshot.generation;
            publisher.publish(Arc::new(snapshot), generation)?;
            while publisher.oldest_generation() != generation {
                if start.elapsed() > PATIENCE + STALL_LIMIT * 10 {
                    bail!("generation {generation} was not adopted");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            // The old tables are freed meanwhile.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let time = start.elapsed();
    let worker = running.stop()?;
    let span = measured(&worker, rate, time);
    drop(publisher);
    Ok(span)
}

fn measured<Q: QueuePair>(worker: &Worker<Q>, rate: TickRate, time: Duration) -> Span {
    let counters = worker.counters();
    // What came before its first turn, in which it takes its first snapshot, has nothing to do with reloads.
    let received = counters.get(Counter::Received) - counters.get(Counter::DropNoSnapshot);
    let dropped = counters.sum(Kind::Drop) - counters.get(Counter::DropNoSnapshot);
    Span {
        gap_us: rate
            .duration(counters.get(Counter::LoopGapTicksMax))
            .as_secs_f64()
            * 1e6,
        received,
        lost: (received - counters.get(Counter::Replied)).max(dropped),
        time,
    }
}
