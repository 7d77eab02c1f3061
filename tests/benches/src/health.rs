//! From a change of health to the worker that answers by it: stamps of the tick counter at
//! `Publisher::set_words` and at the worker's taking.

use crate::rig::CPU;
use crate::table::{Gate, Row, Table};
use crate::world::{self, Running};
use anyhow::{Context, Result};
use control::publish::Publisher;
use dataplane::arch::TickRate;
use dataplane::link::WordTarget;
use std::time::Duration;

/// Changes, one after the other.
const CHANGES: u64 = 1_000;
/// Time between two.
const PAUSE: Duration = Duration::from_millis(2);
/// A worker that stands still for longer is reported.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// Measures it under load.
///
/// # Errors
/// When a thread cannot be started.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Health change to adoption (one worker answering from the memory port without a pause)");
    let rate = TickRate::calibrate();
    let mut world = world::World::new(world::USUAL)?;
    let (running, link) = Running::start(&mut world, CPU)?;
    let publisher = Publisher::start(vec![link], STALL_LIMIT, |_| {})?;
    let changes = if quick { CHANGES / 2 } else { CHANGES };
    for change in 0..changes {
        // A word that no pool uses: what is answered stays the same.
        publisher.set_words(vec![(WordTarget::Members(1_000), [change, 0, 0, 0, 0, 0])])?;
        std::thread::sleep(PAUSE);
    }
    let delays = publisher.delays();
    let worker = running.stop()?;
    drop(publisher);
    drop(worker);
    let delays = delays.first().context("no worker")?;
    let us = |quantile: f64| -> Result<f64> {
        let ticks = delays.quantile(quantile).context("no word arrived")?;
        Ok(rate.duration(ticks).as_secs_f64() * 1e6)
    };
    table.push(Row {
        name: "set_words to adoption, p99".into(),
        measured: us(0.99)?,
        unit: "us",
        gate: Gate::AtMost(1_000.0),
        note: format!(
            "{} changes; median {:.0} us, largest {:.0} us; a busy machine adds to it",
            delays.count(),
            us(0.5)?,
            us(1.0)?
        ),
    });
    Ok(())
}
