//! What pktgen can send, beside testpmd's txonly with many flows, both on net_null and one CPU in turn.

use crate::rig::CPU;
use crate::table::{Gate, Row, Spread, Table};
use crate::testpmd::Testpmd;
use anyhow::{Context, Result};
use std::time::Duration;
use windrose_tests::appliance::program;
use windrose_tests::process;

const DEVICE: &str = "net_null0,no-rx=1";
const TIME: Duration = Duration::from_millis(500);
/// How long pktgen sends.
const DURATION: &str = "500ms";
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures pairs.
///
/// # Errors
/// When a program does not start.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("pktgen flat out on net_null (names, clients and ids varied), frames of about 80 bytes");
    let mut testpmd = Testpmd::start_with(DEVICE, "txonly", None, &["--txonly-multi-flow"])?;
    let (mut ratios, mut ours, mut theirs) = (vec![], vec![], vec![]);
    for _ in 0..if quick { 5 } else { 12 } {
        let their_rate = testpmd.rate(TIME)?.1;
        let our_rate = pktgen()?;
        ratios.push(100.0 * our_rate / their_rate);
        ours.push(our_rate / 1e6);
        theirs.push(their_rate / 1e6);
    }
    let (ratio, ours, theirs) = (Spread::of(&ratios), Spread::of(&ours), Spread::of(&theirs));
    table.push(Row {
        name: "pktgen dns --flat-out, to testpmd txonly".into(),
        measured: ratio.median,
        unit: "%",
        gate: Gate::AtLeast(80.0),
        note: format!("{ratio}; {:.2} to {:.2} M/s", ours.median, theirs.median),
    });
    Ok(())
}

/// Queries sent a second.
fn pktgen() -> Result<f64> {
    let pktgen = program("pktgen")?;
    let core = CPU.to_string();
    let argv = [
        &pktgen.to_string_lossy(),
        "dns",
        "--port",
        DEVICE,
        "--server",
        "192.0.2.1",
        "--server-mac",
        "02:00:00:00:00:02",
        "--source",
        "10.0.0.0/8",
        "--name",
        "host{0-9999}.example.com",
        "--flat-out",
        "--duration",
        DURATION,
        "--timeout",
        "100ms",
        "--core",
        &core,
        "--json",
    ];
    let printed = process::run(None, &argv, PATIENCE)?.success()?;
    let report: serde_json::Value = serde_json::from_str(&printed)?;
    report["rate_sent"]
        .as_f64()
        .context("pktgen's report has no \"rate_sent\"")
}
