//! Queries answered per second from memory on one worker, beside testpmd on the same file.
//!
//! Both read one pcap file by net_pcap with infinite_rx=1 and discard what they send; they take turns on one CPU in
//! one run. Windrose's worker runs in this process; its rate is its own counter of replies by the clock.

use crate::queries::Kind;
use crate::rig;
use crate::table::{Gate, Row, Spread, Table};
use crate::testpmd::Testpmd;
use crate::world::{USUAL, World};
use anyhow::Result;
use dataplane::io::dpdk::Eal;
use std::time::Duration;

/// Different queries in turn.
const QUERIES: usize = 256;
/// How long each of a pair is measured.
const TIME: Duration = Duration::from_millis(400);

/// Measures both, in pairs.
///
/// # Errors
/// When a port or testpmd does not start.
pub(crate) fn bench(table: &mut Table, quick: bool, eal: &Eal) -> Result<()> {
    let folder = tempfile::tempdir()?;
    table.section(
        "Packets replayed from memory (net_pcap, infinite_rx=1, 256 queries), one worker in this process",
    );
    let kinds: &[Kind] = if quick {
        &[Kind::GslbA]
    } else {
        &[Kind::GslbA, Kind::StaticA, Kind::GslbEcs]
    };
    let pairs = if quick { 6 } else { 12 };
    for &kind in kinds {
        let port = rig::replay(eal, folder.path(), rig::BUFFERS, |mac| kind.frames(QUERIES, mac))?;
        let mut testpmd = Testpmd::start(&rig::replay_device(0, &port.file), "5tswap", None)?;
        let mut ready = World::new(USUAL)?.worker(port.queues)?;
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..pairs {
            let their_rate = testpmd.rate(TIME)?.0;
            let our_rate = rig::pinned(eal, || {
                rig::warm_up(&mut ready.worker, QUERIES);
                rig::rate(&mut ready.worker, TIME)
            })?;
            ours.push(our_rate / 1e6);
            theirs.push(their_rate / 1e6);
            ratios.push(100.0 * our_rate / their_rate);
        }
        let (ratio, ours, theirs) = (Spread::of(&ratios), Spread::of(&ours), Spread::of(&theirs));
        let bytes = kind.frames(1, [0; 6])[0].len();
        table.push(Row {
            name: format!("{}, to testpmd 5tswap", kind.title()),
            measured: ratio.median,
            unit: "%",
            gate: Gate::AtLeast(40.0),
            note: format!(
                "{ratio}; {:.2} to {:.2} M/s; {bytes}-byte frames",
                ours.median, theirs.median
            ),
        });
    }
    Ok(())
}
