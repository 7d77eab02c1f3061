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
use dataplane::io::QueuePair;
use std::time::Duration;
use windrose_tests::capture;

/// Different queries in turn.
const QUERIES: usize = 256;
/// How long each of a pair is measured.
const TIME: Duration = Duration::from_millis(400);
const BUFFERS: u32 = 8192;

/// Measures both, in pairs.
///
/// # Errors
/// When a port or testpmd does not start.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("queries.pcap");
    table.section(
        "Packets replayed from memory (net_pcap, infinite_rx=1, 256 queries), one worker in this process",
    );
    // Any MAC: the port's own is known when it is open, and it needs the file for that.
    let kinds: &[Kind] = if quick {
        &[Kind::GslbA]
    } else {
        &[Kind::GslbA, Kind::StaticA, Kind::GslbEcs]
    };
    let eal = rig::eal(BUFFERS * kinds.len() as u32)?;
    let pairs = if quick { 6 } else { 12 };
    for (index, &kind) in kinds.iter().enumerate() {
        capture::write(&file, &kind.frames(QUERIES, PCAP_MAC))?;
        let device = rig::replay_device(index, &file);
        let (_port, queues) = rig::open(&eal, &device, BUFFERS)?;
        anyhow::ensure!(
            queues.mac() == PCAP_MAC,
            "net_pcap has the address {:?}",
            queues.mac()
        );
        let (mut worker, _link) = World::new(USUAL)?.worker(queues)?;
        let mut testpmd = Testpmd::start(&rig::replay_device(0, &file), "5tswap", None)?;
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..pairs {
            let their_rate = testpmd.rate(TIME)?.0;
            let our_rate = rig::pinned(&eal, || {
                rig::warm_up(&mut worker, QUERIES);
                rig::rate(&mut worker, TIME)
            })?;
            ours.push(our_rate / 1e6);
            theirs.push(their_rate / 1e6);
            ratios.push(100.0 * our_rate / their_rate);
        }
        let (ratio, ours, theirs) = (Spread::of(&ratios), Spread::of(&ours), Spread::of(&theirs));
        let bytes = kind.frames(1, PCAP_MAC)[0].len();
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

/// The address that net_pcap gives its first port ("02:70:63:61:70:00").
pub(crate) const PCAP_MAC: [u8; 6] = [0x02, 0x70, 0x63, 0x61, 0x70, 0x00];
