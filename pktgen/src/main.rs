//! The `pktgen` program: command line, signals, progress; the library does the work on a thread of its own.

#![forbid(unsafe_code)]

use clap::Parser;
use pktgen::cli::{Cli, Command, DnsArgs};
use pktgen::dns::Settings;
use pktgen::dns::engine::Live;
use pktgen::dns::report::Report;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// More was lost than allowed.
const LOST: u8 = 1;
/// Wrong command line, or the run could not begin. clap uses the same.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Command::Dns(args) = Cli::parse().command;
    match dns(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(USAGE)
        }
    }
}

fn dns(args: &DnsArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings().map_err(anyhow::Error::msg)?;
    let live = Arc::new(Live::default());
    let stop = Arc::clone(&live);
    // The first one ends sending; a second one ends the program.
    ctrlc::set_handler(move || {
        if stop.stop.swap(true, Relaxed) {
            std::process::exit(130);
        }
    })?;
    let engine = start(args, settings, Arc::clone(&live))?;
    if let Some(interval) = args.interval {
        progress(&engine, &live, Duration::from_nanos(interval));
    }
    let report = engine
        .join()
        .map_err(|_| anyhow::anyhow!("the polling thread panicked"))??;

    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    match args.max_loss {
        Some(allowed) if report.loss_percent() > allowed => {
            eprintln!(
                "loss of {:.3} % is more than --max-loss {allowed}",
                report.loss_percent()
            );
            Ok(ExitCode::from(LOST))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a line every `interval` until the engine has ended.
fn progress<T>(engine: &JoinHandle<T>, live: &Live, interval: Duration) {
    let start = Instant::now();
    let mut last = (0, 0);
    let mut due = start + interval;
    while !engine.is_finished() {
        std::thread::sleep(
            due.saturating_duration_since(Instant::now())
                .min(Duration::from_millis(20)),
        );
        if Instant::now() < due {
            continue;
        }
        due += interval;
        let now = (live.sent.load(Relaxed), live.answered.load(Relaxed));
        let per_second = |count: u64| count as f64 / interval.as_secs_f64();
        eprintln!(
            "{:.1} s: {:.0} q/s sent, {:.0} q/s answered; in all {} sent, {} lost, {} wrong",
            start.elapsed().as_secs_f64(),
            per_second(now.0 - last.0),
            per_second(now.1 - last.1),
            now.0,
            live.lost.load(Relaxed),
            live.wrong.load(Relaxed),
        );
        last = now;
    }
}

/// Opens the port and runs, on a thread of its own.
#[cfg(feature = "dpdk")]
fn start(
    args: &DnsArgs,
    settings: Settings,
    live: Arc<Live>,
) -> anyhow::Result<JoinHandle<anyhow::Result<Report>>> {
    use anyhow::Context;
    use dataplane::io::dpdk::{Eal, EalConfig, Mempool, Port, PortConfig, is_pci_address, register_thread};
    use pktgen::clock::Monotonic;

    /// Enough for both rings of a port with the default numbers of descriptors, a thread's cache, and bursts.
    const BUFFERS: u32 = 8_192;

    if let Some(core) = args.core {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        anyhow::ensure!(
            cores.iter().any(|c| c.id == core),
            "--core {core}: no such core is allowed here"
        );
    }
    let (device, core, idle) = (args.port.clone(), args.core, args.idle);
    let work = move || {
        if let Some(core) = core {
            let pinned = core_affinity::set_for_current(core_affinity::CoreId { id: core });
            anyhow::ensure!(pinned, "--core {core}: cannot pin to it");
        }
        // A PCI device is named by its address, which may be followed by arguments.
        let address = device.split(',').next().filter(|a| is_pci_address(a));
        let config = EalConfig {
            name: "pktgen".into(),
            memory_bytes: 128 << 20,
            pci: address.map(str::to_owned).into_iter().collect(),
            ..EalConfig::default()
        };
        let eal = Eal::init(&config)?;
        let _registered = register_thread(&eal)?;
        let pool = Mempool::new(&eal, BUFFERS, None)?;
        let port = PortConfig {
            device: device.clone(),
            ..PortConfig::default()
        };
        let (_port, mut queues) = Port::open(&eal, &port, &[pool]).context("--port")?;
        let queue = queues.first_mut().context("the port has no queue pair")?;
        Ok(pktgen::dns::run(
            queue,
            &mut Monotonic::new(idle),
            settings,
            &live,
        )?)
    };
    Ok(std::thread::Builder::new()
        .name("pktgen-poll".into())
        .spawn(work)?)
}

#[cfg(not(feature = "dpdk"))]
fn start(_: &DnsArgs, _: Settings, _: Arc<Live>) -> anyhow::Result<JoinHandle<anyhow::Result<Report>>> {
    anyhow::bail!("this pktgen was built without DPDK, so it has no ports; build it with the feature `dpdk`")
}
