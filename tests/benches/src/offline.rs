//! `windrose latency --pcap` on a capture of a gigabyte, which is written for it: packets per second.

use crate::table::{Gate, Row, Table};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;
use windrose_tests::appliance::program;
use windrose_tests::process;

/// Bytes of the capture.
const SIZE: usize = 1 << 30;
/// Connections in it.
const FLOWS: u32 = 100_000;

/// Writes the capture, and has it read.
///
/// # Errors
/// When there is no room for it, or the command fails.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Offline: a capture of requests of 100,000 connections, read by windrose latency --pcap");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("synthetic.pcap");
    let packets = write(&path, if quick { SIZE / 8 } else { SIZE })?;
    let (program, file) = (program("windrose")?, path.to_string_lossy());
    let argv = [&*program.to_string_lossy(), "latency", "--pcap", &*file, "--json"];
    let text = process::run(None, &argv, Duration::from_secs(300))?.success()?;
    let got: serde_json::Value = serde_json::from_str(&text)?;
    ensure!(
        got["packets"] == packets,
        "{} of {packets} packets were read",
        got["packets"]
    );
    let rate = got["packets_per_second"]
        .as_f64()
        .context("no packets_per_second")?;
    table.push(Row {
        name: format!("{} MB, {packets} packets", std::fs::metadata(&path)?.len() >> 20),
        measured: rate / 1e6,
        unit: "M packets/s",
        gate: Gate::None,
        note: format!("{} flows", got["flows"].as_array().map_or(0, Vec::len)),
    });
    Ok(())
}

/// Requests of 100 to 1,000 bytes in turn, each acknowledging an answer.
fn write(path: &Path, size: usize) -> Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        out.write_all(&word.to_le_bytes())?;
    }
    let (mut written, mut packets, mut random) = (24, 0u64, fastrand::Rng::with_seed(1));
    while written < size {
        let (flow, round) = (
            (packets % u64::from(FLOWS)) as u32,
            (packets / u64::from(FLOWS)) as u32,
        );
        let payload = random.u16(100..1000);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((40 + payload).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 60, 6, 0, 0]);
        frame.extend((0x0a00_0000 + (flow >> 4)).to_be_bytes());
        frame.extend([203, 0, 113, 9]);
        frame.extend((0x4000 + (flow & 15) as u16).to_be_bytes());
        frame.extend(443u16.to_be_bytes());
        frame.extend((round * 1000).to_be_bytes());
        frame.extend((round * 5000).to_be_bytes());
        frame.extend([0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.resize(54 + usize::from(payload), 7);
        // A microsecond apart, so each flow asks every 100 ms.
        let at = packets * 1000;
        let length = frame.len() as u32;
        for word in [
            (at / 1_000_000_000) as u32,
            (at % 1_000_000_000) as u32,
            length,
            length,
        ] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&frame)?;
        written += 16 + frame.len();
        packets += 1;
    }
    out.flush()?;
    Ok(packets)
}
