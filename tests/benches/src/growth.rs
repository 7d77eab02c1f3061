//! How the time of a query grows with the tables: many names and prefixes against one of each.
//!
//! On net_pcap, rx to tx: 65,536 sampled queries over the large tables against 65,536 copies of one query over tables
//! of one entry, so that both read equally many frames from memory. The two workers take turns on one CPU.

use crate::queries::Kind;
use crate::rig;
use crate::table::{Gate, Row, Spread, Table};
use crate::world::{Size, World};
use anyhow::Result;
use dataplane::io::dpdk::Eal;
use std::time::Duration;

/// Frames replayed by each of a pair.
const QUERIES: usize = 65_536;
const BUFFERS: u32 = QUERIES as u32 + rig::BUFFERS;
/// How long each of a pair is measured: several rounds through its frames.
const TIME: Duration = Duration::from_millis(300);
const SMALL: Size = Size {
    names: 1,
    prefixes: 1,
};
const LARGE: Size = Size {
    names: 1_000_000,
    prefixes: 565_000,
};

/// Measures names by static A, prefixes by the service.
///
/// # Errors
/// When a port does not open or a query is not answered.
pub(crate) fn bench(table: &mut Table, quick: bool, eal: &Eal) -> Result<()> {
    table.section(
        "Growth: 65,536 sampled queries to 65,536 copies of one (net_pcap, infinite_rx=1), rx to tx",
    );
    let folder = tempfile::tempdir()?;
    let (mut small_world, mut large_world) = (World::new(SMALL)?, World::new(LARGE)?);
    for (kind, name) in [
        (Kind::StaticA, "1 to 1,000,000 names, static A"),
        (Kind::GslbA, "1 to 565,000 prefixes, GSLB A"),
    ] {
        let small = rig::replay(eal, folder.path(), BUFFERS, |mac| {
            vec![kind.frame(0, mac, SMALL); QUERIES]
        })?;
        let large = rig::replay(eal, folder.path(), BUFFERS, |mac| {
            (0..QUERIES).map(|i| kind.frame(i, mac, LARGE)).collect()
        })?;
        let mut small = small_world.worker(small.queues)?;
        let mut large = large_world.worker(large.queues)?;
        let (mut ratios, mut times) = (vec![], vec![]);
        for _ in 0..if quick { 5 } else { 12 } {
            let (one, many) = rig::pinned(eal, || {
                rig::warm_up(&mut small.worker, QUERIES);
                let one = rig::rate(&mut small.worker, TIME)?;
                rig::warm_up(&mut large.worker, QUERIES);
                Ok((one, rig::rate(&mut large.worker, TIME)?))
            })?;
            ratios.push(one / many);
            times.push((1e9 / one, 1e9 / many));
        }
        let ratio = Spread::of(&ratios);
        let one = Spread::of(&times.iter().map(|t| t.0).collect::<Vec<_>>());
        let many = Spread::of(&times.iter().map(|t| t.1).collect::<Vec<_>>());
        table.push(Row {
            name: name.into(),
            measured: ratio.median,
            unit: "x",
            gate: Gate::AtMost(2.5),
            note: format!("{ratio}; {:.0} to {:.0} ns a query", one.median, many.median),
        });
    }
    Ok(())
}
