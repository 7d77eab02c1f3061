//! Real wires: af_packet and af_xdp over a veth pair in namespaces of their own, and memif, loaded by pktgen.
//!
//! pktgen sends flat out from the far end, on the other CPU; Windrose's worker in this process and testpmd
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
use windrose_tests::process::{self, Child};

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
        "Over a veth pair or memif, pktgen flat out at the other end on the second CPU; GSLB A, 75-byte frames",
    );
    for (name, gate) in [("af_packet", 90.0), ("af_xdp", 90.0), ("memif", 60.0)] {
        let (mut ratios, mut rows) = (vec![], vec![]);
        for index in 0..if quick { 3 } else { 10 } {
            let wire = || {
                if name == "memif" {
                    Wire::memif(index)
                } else {
                    Wire::veth(name, index)
                }
            };
            let theirs = testpmd(&wire()?)?;
            let ours = windrose(eal, &wire()?)?;
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
            gate: Gate::AtLeast(gate),
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

/// What joins pktgen to what is measured. Made anew for each measurement: an XDP program that a port left behind
/// would keep the next from opening.
struct Wire {
    /// The measured end, as devargs.
    device: String,
    /// pktgen's end, as devargs.
    far_device: String,
    /// MAC address of the measured end.
    mac: String,
    /// Where each end lives; `None`: in no namespace of its own.
    hosts: Option<(Host, Host)>,
    _kept: (Option<Lab>, Option<tempfile::TempDir>),
}

impl Wire {
    fn veth(driver: &str, index: u32) -> Result<Self> {
        let mut lab = Lab::new()?;
        let (near, far) = (lab.host("near")?, lab.host("far")?);
        lab.link(&near, "wr0", &far, "gen0")?;
        for (host, interface) in [(&near, "wr0"), (&far, "gen0")] {
            host.sysctl(&format!("net.ipv6.conf.{interface}.disable_ipv6"), "1")?;
        }
        Ok(Self {
            device: format!("net_{driver}{index},iface=wr0"),
            far_device: "net_af_packet0,iface=gen0".into(),
            mac: near.mac("wr0")?.map(|b| format!("{b:02x}")).join(":"),
            hosts: Some((near, far)),
            _kept: (Some(lab), None),
        })
    }

    fn memif(index: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("memif.sock");
        let ends = |role: &str| format!("role={role},id=0,socket={},socket-abstract=no", socket.display());
        let mac = "02:00:00:00:00:53";
        Ok(Self {
            device: format!("net_memif{index},{},mac={mac}", ends("server")),
            far_device: format!("net_memif0,{}", ends("client")),
            mac: mac.into(),
            hosts: None,
            _kept: (None, Some(folder)),
        })
    }

    fn near(&self) -> Option<&str> {
        self.hosts.as_ref().map(|(near, _)| near.name())
    }

    fn load(&self) -> Result<Child> {
        let pktgen = program("pktgen")?;
        let pktgen = pktgen.to_string_lossy();
        let far = self.hosts.as_ref().map(|(_, far)| far.name());
        process::spawn(
            far,
            &[
                &pktgen,
                "dns",
                "--port",
                &self.far_device,
                "--server",
                "192.0.2.53",
                "--server-mac",
                &self.mac,
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
            ],
        )
    }
}

/// What pktgen sent a second.
fn sent(child: Child) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(&child.wait(PATIENCE)?.success()?)?;
    report["rate_sent"]
        .as_f64()
        .context("pktgen's report has no \"rate_sent\"")
}

fn testpmd(wire: &Wire) -> Result<Rates> {
    let mut testpmd = Testpmd::start(&wire.device, "5tswap", wire.near())?;
    let child = wire.load()?;
    std::thread::sleep(WARM_UP);
    let (received, back) = testpmd.rate(TIME)?;
    // Before the port goes: memif's client does not survive a server that leaves while it transmits.
    let sent = sent(child)?;
    drop(testpmd);
    Ok(Rates { back, received, sent })
}

fn windrose(eal: &Eal, wire: &Wire) -> Result<Rates> {
    let netns = wire.near().map(|name| format!("/run/netns/{name}"));
    let child = wire.load()?;
    let (received, back, sent) = rig::pinned(eal, || {
        // The driver looks for the interface in this thread's namespace.
        if let Some(netns) = &netns {
            setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
        }
        let (_port, queues) = rig::open(eal, &wire.device, BUFFERS)?;
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
        // Before the port goes, as above.
        Ok((rates.0, rates.1, sent(child)?))
    })?;
    Ok(Rates { back, received, sent })
}
