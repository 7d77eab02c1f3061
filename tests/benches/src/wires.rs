//! Real wires: af_packet and af_xdp over a veth pair in namespaces of their own, loaded by pktgen.
//!
//! pktgen sends flat out from the far end of the pair, on the other CPU; Windrose's worker in this process and testpmd
//! take turns on the near one. What each answers or sends back is counted; how much pktgen had sent is told beside it,
//! since where the generator is the slower one the ratio says little.

use crate::rig;
use crate::table::{Gate, Row, Spread, Table};
use crate::testpmd::Testpmd;
use crate::world::{USUAL, World, measured_polls};
use anyhow::{Context, Result};
use dataplane::arch::Ticks;
use dataplane::counters::Counter;
use dataplane::io::dpdk::Eal;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::time::{Duration, Instant};
use windrose_tests::appliance::program;
use windrose_tests::lab::{Host, Lab};
use windrose_tests::process::Child;

/// pktgen's start, until its queries come at a steady rate.
const WARM_UP: Duration = Duration::from_millis(1_200);
/// How long each of a pair is measured.
const TIME: Duration = Duration::from_millis(800);
/// How long pktgen sends.
const LOAD: &str = "3s";
/// Longer than that, and pktgen hangs.
const PATIENCE: Duration = Duration::from_secs(20);
const BUFFERS: u32 = 16_384;

/// Packets per second, back and received.
struct Rates {
    back: f64,
    received: f64,
    /// What pktgen sent, a second.
    sent: f64,
}

/// Measures both ports.
///
/// # Errors
/// When a namespace, port or program does not start.
pub(crate) fn bench(table: &mut Table, quick: bool, eal: &Eal) -> Result<()> {
    table.section(
        "Over a veth pair, pktgen flat out at its other end on the second CPU; GSLB A, 75-byte frames",
    );
    for (driver, name) in [("net_af_packet", "af_packet"), ("net_af_xdp", "af_xdp")] {
        let (mut ratios, mut rows) = (vec![], vec![]);
        for index in 0..if quick { 3 } else { 10 } {
            let device = format!("{driver}{index},iface=wr0");
            let theirs = wired(|near, far| testpmd(near, far, &device))?;
            let ours = wired(|near, far| windrose(eal, near, far, &device))?;
            ratios.push(100.0 * ours.back / theirs.back);
            rows.push((ours, theirs));
        }
        let median = |of: fn(&(Rates, Rates)) -> f64| {
            Spread::of(&rows.iter().map(of).collect::<Vec<_>>()).median / 1e3
        };
        let ratio = Spread::of(&ratios);
        table.push(Row {
            name: format!("{name}, to testpmd 5tswap"),
            measured: ratio.median,
            unit: "%",
            gate: Gate::AtLeast(90.0),
            note: format!(
                "{ratio}; back {:.0} to {:.0} k/s, received {:.0} to {:.0}, pktgen sent {:.0} to {:.0}",
                median(|r| r.0.back),
                median(|r| r.1.back),
                median(|r| r.0.received),
                median(|r| r.1.received),
                median(|r| r.0.sent),
                median(|r| r.1.sent)
            ),
        });
    }
    Ok(())
}

/// Measures over a veth pair of its own: an XDP program that a port left behind would keep the next from opening.
fn wired(measure: impl FnOnce(&Host, &Host) -> Result<Rates>) -> Result<Rates> {
    let mut lab = Lab::new()?;
    let (near, far) = (lab.host("near")?, lab.host("far")?);
    lab.link(&near, "wr0", &far, "gen0")?;
    for (host, interface) in [(&near, "wr0"), (&far, "gen0")] {
        host.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1")?;
    }
    measure(&near, &far)
}

fn load(near: &Host, far: &Host) -> Result<Child> {
    let [a, b, c, d, e, f] = near.mac("wr0")?;
    let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    let pktgen = program("pktgen")?;
    let pktgen = pktgen.to_string_lossy();
    far.spawn(&[
        &pktgen,
        "dns",
        "--port",
        "net_af_packet0,iface=gen0",
        "--server",
        "192.0.2.53",
        "--server-mac",
        &mac,
        "--source",
        "11.1.0.0/16",
        "--name",
        "vod.example.com",
        "--flat-out",
        "--duration",
        LOAD,
        "--timeout",
        "200ms",
        "--core",
        "1",
        "--json",
    ])
}

/// What pktgen sent a second.
fn sent(child: Child) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(&child.wait(PATIENCE)?.success()?)?;
    report["rate_sent"]
        .as_f64()
        .context("pktgen's report has no \"rate_sent\"")
}

fn testpmd(near: &Host, far: &Host, device: &str) -> Result<Rates> {
    let mut testpmd = Testpmd::start(device, "5tswap", Some(near.name()))?;
    let child = load(near, far)?;
    std::thread::sleep(WARM_UP);
    let (received, back) = testpmd.rate(TIME)?;
    drop(testpmd);
    let sent = sent(child)?;
    Ok(Rates { back, received, sent })
}

fn windrose(eal: &Eal, near: &Host, far: &Host, device: &str) -> Result<Rates> {
    let netns = format!("/run/netns/{}", near.name());
    let child = load(near, far)?;
    let (received, back) = rig::pinned(eal, || {
        // The driver looks for the interface in this thread's namespace.
        setns(File::open(&netns)?, CloneFlags::CLONE_NEWNET)?;
        let (_port, queues) = rig::open(eal, device, BUFFERS)?;
        let mut ready = World::new(USUAL)?.worker(queues)?;
        let worker = &mut ready.worker;
        let start = Instant::now();
        while start.elapsed() < WARM_UP {
            measured_polls(worker, 1);
        }
        let count = |counter| worker.counters().get(counter);
        let (received, transmitted) = (count(Counter::Received), count(Counter::Transmitted));
        let start = Instant::now();
        while start.elapsed() < TIME {
            measured_polls(worker, 1);
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = |counter, before| (worker.counters().get(counter) - before) as f64 / seconds;
        let rates = (
            rate(Counter::Received, received),
            rate(Counter::Transmitted, transmitted),
        );
        worker.housekeep(Ticks::now());
        Ok(rates)
    })?;
    let sent = sent(child)?;
    Ok(Rates { back, received, sent })
}
