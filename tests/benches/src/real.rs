//! How near the estimators come on real servers: polled by a worker of ours on af_packet, on one of the cores that servers and
//! users run on; the same packets, as the kernel stamped them, offline; and the published algorithms beside both.

use crate::rig;
use crate::table::{Gate, Row, Table};
use crate::world::{Size, World};
use anyhow::{Context, Result, bail, ensure};
use dataplane::arch::Ticks;
use dataplane::flow::Moment;
use dataplane::flow::estimate::Kind;
use dataplane::stages::classify::Role;
use dataplane::stages::flow_latency::FlowLimits;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use windrose_real::case::{Case, FLOOR, Server, cases, run};
use windrose_real::judge::{hear, tables};
use windrose_real::user::now;
use windrose_tests::process::eventually;
use windrose_traffic::score::{Said, Score, score_above};
use windrose_traffic::sim::Trace;
use windrose_traffic::table::{Line, references};

/// Seeds that the gates hold for.
const SEEDS: [u64; 2] = [1, 2];
/// Time that a user asks.
const TIME: Duration = Duration::from_secs(6);

/// Runs all cases with each seed.
///
/// # Errors
/// When the machine has no room for namespaces; a case that fails is a row of its own.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    let seeds = if quick { &SEEDS[..1] } else { &SEEDS[..] };
    for case in cases() {
        table.section(&format!("Real: {}", case.name));
        for &seed in seeds {
            if let Err(error) = one(table, &case, seed) {
                table.broken(case.name, &error);
            }
        }
    }
    Ok(())
}

fn one(table: &mut Table, case: &Case, seed: u64) -> Result<()> {
    let (run, mut watcher) = run(case, seed, TIME, Duration::ZERO, |wires| {
        let own = std::env::current_exe()?;
        let (said, stop) = (wires.lab.folder().join("said"), wires.lab.folder().join("stop"));
        // A worker has its core to itself. Here servers and users run on it too, so nearest to that is to go before them.
        let argv = [
            "nice".into(),
            "-n".into(),
            "-20".into(),
            own.to_string_lossy(),
            "inner-watch".into(),
            said.to_string_lossy(),
            stop.to_string_lossy(),
        ];
        let argv: Vec<&str> = argv.iter().map(|argument| &**argument).collect();
        let mut child = wires.vantage.spawn(&argv)?;
        eventually("the worker polls", Duration::from_secs(20), || {
            if !child.is_running()? {
                bail!("the worker ended:\n{}", child.output());
            }
            Ok(child.output().contains("polling"))
        })?;
        Ok(child)
    })?;
    std::fs::write(run.wires.lab.folder().join("stop"), "")?;
    eventually("the worker ends", Duration::from_secs(10), || {
        Ok(!watcher.is_running()?)
    })?;
    let polled = read(&run.wires.lab.folder().join("said")).with_context(|| watcher.output())?;
    let heard = hear(&run.capture)?;
    let trace = Trace {
        packets: heard.packets,
        bursts: run.bursts,
    };
    let floor = if case.server == Server::Memcached {
        0
    } else {
        FLOOR
    };
    let live = score_above(&trace, &polled, floor);
    row(table, "polled by our worker", seed, &live, case);
    row(
        table,
        "the same, offline, stamps of the kernel",
        seed,
        &score_above(&trace, &heard.responses, floor),
        case,
    );
    if seed != SEEDS[0] {
        return Ok(());
    }
    let ungated = Case { gate: None, ..*case };
    row(
        table,
        "  to the last acknowledgment",
        seed,
        &score_above(&trace, &heard.answers, floor),
        &ungated,
    );
    for Line { estimator, score, .. } in references(&trace) {
        row(table, &format!("  {estimator}"), seed, &score, &ungated);
    }
    if matches!(case.server, Server::WireGuard(n) if n > 1) {
        table.push(Row {
            name: "  samples marked as not to be believed".into(),
            measured: live.low,
            unit: "%",
            gate: Gate::AtLeast(70.0),
            note: String::new(),
        });
    }
    Ok(())
}

fn row(table: &mut Table, name: &str, seed: u64, s: &Score, case: &Case) {
    let seeded = if seed == SEEDS[0] {
        String::new()
    } else {
        format!(", seed {seed}")
    };
    table.push(Row {
        name: format!("{name}{seeded}"),
        measured: if s.samples == 0 { f64::INFINITY } else { s.absolute },
        unit: "%",
        gate: case.gate.map_or(Gate::None, |gate| Gate::AtMost(gate.median)),
        note: format!(
            "signed {:.2} %, in 15 % {:.1} %, bursts {:.1} %, low confidence {:.1} %, p99 x{:.2}, {} samples",
            s.signed, s.within, s.bursts, s.low, s.p99, s.samples
        ),
    });
    let Some(gate) = case.gate else { return };
    for (name, measured, least) in [
        ("    samples within 15 %", s.within, gate.within),
        ("    bursts told right", s.bursts, gate.bursts),
    ] {
        table.push(Row {
            name: name.into(),
            measured,
            unit: "%",
            gate: Gate::AtLeast(least),
            note: String::new(),
        });
    }
}

/// What [`watch`] wrote.
fn read(path: &Path) -> Result<Vec<Said>> {
    let text = std::fs::read_to_string(path)?;
    let parse = |line: &str| -> Result<Said> {
        let mut words = line.split(' ');
        let mut next = || words.next().context("a short line");
        let (start, took, low) = (next()?.parse()?, next()?.parse()?, next()? == "low");
        let confidence = if low {
            dataplane::flow::estimate::Confidence::Low
        } else {
            dataplane::flow::estimate::Confidence::Fair
        };
        Ok(Said {
            start,
            took,
            confidence,
        })
    };
    text.lines().map(parse).collect()
}

/// The worker of a mirror port on `in` of this namespace: polls until the file `stop` is there, then writes what flows told.
///
/// # Errors
/// When the port does not open.
pub(crate) fn watch(said: &str, stop: &str) -> Result<()> {
    let eal = rig::eal_of(128 << 20)?;
    let (_port, queues) = rig::open(&eal, "net_af_packet0,iface=in", rig::BUFFERS)?;
    let mut world = World::new(Size {
        names: 10,
        prefixes: 10,
    })?;
    let limits = FlowLimits {
        flows: 1024,
        ..FlowLimits::default()
    };
    rig::pinned(&eal, move || {
        let mut ready = world.mirror(queues, Role::Mirror, limits, tables()?)?;
        println!("polling");
        // A clock of nanoseconds, as the world's workers take; 32 bits of time last for 17 minutes.
        let begun = now();
        let (mut text, mut turns) = (String::new(), 0u32);
        loop {
            let at = now() - begun + 1_000_000_000;
            let received = ready.worker.poll(Ticks(at));
            turns = turns.wrapping_add(1);
            if received == 0 && turns.is_multiple_of(8) {
                ready.worker.housekeep(Ticks(at));
            }
            while let Some(sample) = ready.link.samples.receive() {
                let (took, behind) = (
                    sample.sample.value.nanos(),
                    Moment::from_nanos(at).since(sample.at),
                );
                ensure!(
                    behind.is_none_or(|span| span.nanos() < 1_000_000),
                    "a sample was left behind"
                );
                if sample.sample.kind == Kind::Response {
                    let start = (at + begun - 1_000_000_000).saturating_sub(took);
                    writeln!(
                        text,
                        "{start} {took} {}",
                        sample.sample.doubts.confidence().name()
                    )?;
                }
            }
            if turns.is_multiple_of(1 << 16) && Path::new(stop).exists() {
                break;
            }
        }
        std::fs::write(said, text)?;
        Ok(())
    })
}
