//! `windrose run`: starts the appliance step by step, keeps it running, and stops it in reverse.
//!
//! Called by the command line. Owns the order of things: configuration, admin socket, EAL, ports,
//! health, first snapshot, workers; then signals and reloads. Nothing is half started: whatever fails undoes
//! what came before it.

mod cpus;
mod events;
mod explain;
mod fresh;
mod live;
mod ports;
mod status;
mod workers;

use crate::admin::{self, Appliance as _};
use crate::config::model::Config;
use crate::config::{self, Diagnostics, machine};
use crate::health::{Prober, Transition};
use crate::latency::{self, Collector, file::SampleFile};
use crate::publish::Publisher;
use crate::reports::{self, ReportStore};
use crate::tcp::{self, Tcp};
use anyhow::{Context, Result};
use dataplane::arch::Isa;
use dataplane::io::dpdk::Port;
use dataplane::link::{ControlLink, SampleReceiver};
use dataplane::tables::Snapshot;
use live::Live;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

/// How often the workers are told the time: the counter's drift in between is below a millisecond.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
/// How often overrides are looked through for those whose time is over, and reports for who is silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often health is kept: what a crash loses at most.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// A worker that has not turned for this long is reported.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// Why the appliance did not start, or not end well.
#[derive(Debug)]
pub enum RunError {
    /// The configuration would not be taken.
    Config(Diagnostics),
    /// Something failed before it ran: nothing is left of it.
    Start(anyhow::Error),
}

/// Runs the appliance until SIGINT or SIGTERM; prints totals at the end.
///
/// # Errors
/// See [`RunError`]. What was started is stopped again.
pub fn run(path: &Path) -> Result<(), RunError> {
    let config = config::load(path).map_err(RunError::Config)?;
    machine::check_cores(&config.dataplane).map_err(|e| RunError::Start(anyhow::anyhow!(e)))?;
    let runtime = cpus::runtime(&config.dataplane).map_err(RunError::Start)?;
    // Before any port: a second appliance on the same socket ends here.
    let bound = admin::Bound::bind(&config.admin).map_err(|e| RunError::Start(e.into()))?;
    let receiver = reports::Bound::bind(&config).map_err(|e| RunError::Start(e.into()))?;
    let mut signals = Signals::take(&runtime).map_err(RunError::Start)?;
    let opened = ports::open(&config).map_err(RunError::Start)?;
    let guard = runtime.enter();
    let (prober, transitions) = Prober::new();
    let rate = dataplane::arch::TickRate::calibrate();
    let workers::Started {
        threads,
        links,
        published,
    } = workers::prepare(&config, opened.queues, rate).map_err(RunError::Start)?;
    let mut links = links;
    let rings = links.iter_mut().map(ControlLink::take_samples).collect();
    let (publisher, tcp) = start_publisher(&config, links, &opened.ports).map_err(RunError::Start)?;
    let (collector, latency) = start_collector(&config, rings).map_err(RunError::Start)?;
    let store = Arc::new(ReportStore::new(&config, Instant::now()));
    // From now on, so that reports may be there with the first snapshot.
    let receiver = receiver.map(|bound| bound.serve(store.clone())).transpose();
    let receiver = receiver.context("receiver of reports").map_err(RunError::Start)?;
    let live = Live::new(
        path,
        Arc::new(config),
        opened.ports,
        prober,
        live::Reports { store, receiver },
        latency,
        tcp,
        publisher,
        published,
        rate,
    )
    .map_err(RunError::Start)?;
    let live = Arc::new(live);
    // Compiled and on its way before a worker runs: a configuration that cannot be compiled starts nothing.
    let first = runtime.block_on(async {
        tokio::select! {
            first = live.first_snapshot() => first.map(|()| true),
            () = signals.stop() => Ok(false),
        }
    });
    if !first.map_err(RunError::Start)? {
        return Ok(());
    }
    let running = threads.start(&opened.eal).map_err(RunError::Start)?;
    let served = match bound.serve(live.clone()).context("admin API") {
        Ok(served) => served,
        Err(error) => {
            drop(running.stop());
            return Err(RunError::Start(error));
        }
    };
    drop(guard);
    runtime.block_on(main_loop(&live, transitions, &mut signals));
    drop(served);
    let totals = running.stop();
    drop(collector);
    drop(runtime);
    // A closed standard output is no reason to end badly.
    let _ = std::io::stdout().write_all(status::totals(&totals).as_bytes());
    // In reverse: what the workers own (queues, snapshots) before the ports, these before EAL.
    drop(totals);
    drop(live);
    drop(opened.eal);
    Ok(())
}

/// Starts the publisher, and DNS over TCP behind it where it is enabled.
fn start_publisher(
    config: &Config,
    mut links: Vec<ControlLink<Snapshot>>,
    ports: &[Port],
) -> Result<(Publisher<Snapshot>, Option<Tcp>)> {
    const WHAT: &str = "cannot start the publisher";
    let settings = &config.dns.tcp;
    if !settings.enabled {
        // Punted packets end here: the worker has counted them.
        return Ok((Publisher::start(links, STALL_LIMIT, |_| {}).context(WHAT)?, None));
    }
    let (link, control) = tcp::link();
    // Behind the workers', whose places are their indices.
    links.push(control);
    let (sink, inbox) = tcp::queue(settings.packets_per_second);
    let publisher = Publisher::start_with(links, STALL_LIMIT, sink).context(WHAT)?;
    let mtu = ports.iter().map(|port| port.info().mtu).min();
    let tcp = tcp::start(
        settings,
        mtu.unwrap_or(tcp::MTU_MAX),
        live::addresses_of(config),
        inbox,
        publisher.injector(),
        link,
    )?;
    Ok((publisher, Some(tcp)))
}

/// Starts to sum what workers measure on users' traffic, and to write it down where that is configured.
fn start_collector(config: &Config, rings: Vec<SampleReceiver>) -> Result<(Collector, live::Latency)> {
    let store = Arc::new(latency::Store::new(config, Instant::now()));
    let settings = &config.latency;
    let file = settings.file.as_deref();
    let file = file.map(|path| SampleFile::open(path, settings.file_size, settings.file_keep));
    let file = file.transpose()?.map(Arc::new);
    let collector = Collector::start(rings, store.clone(), file.clone());
    let collector = collector.context("cannot start the collector of latency samples")?;
    Ok((collector, live::Latency { store, file }))
}

/// The signals that the appliance takes, from before anything is started.
struct Signals {
    interrupt: Arc<Notify>,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn take(runtime: &tokio::runtime::Runtime) -> Result<Self> {
        let interrupt = Arc::new(Notify::new());
        let interrupted = interrupt.clone();
        ctrlc::set_handler(move || interrupted.notify_one()).context("cannot take SIGINT")?;
        let _guard = runtime.enter();
        Ok(Self {
            interrupt,
            terminate: signal(SignalKind::terminate()).context("cannot take SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("cannot take SIGHUP")?,
        })
    }

    /// Comes back at SIGINT or SIGTERM.
    async fn stop(&mut self) {
        tokio::select! {
            () = self.interrupt.notified() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Health and signals, until told to stop.
async fn main_loop(live: &Arc<Live>, mut transitions: UnboundedReceiver<Transition>, signals: &mut Signals) {
    live.announce(&live.started_by, |_| true);
    let isa = Isa::detect().name();
    tracing::info!(generation = live.status().generation, isa, "ready");
    let mut clock = tokio::time::interval(CLOCK_EVERY);
    // By itself: a compilation must not delay words.
    let fresh = tokio::spawn({
        let live = live.clone();
        async move { live.keep_fresh().await }
    });
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut keep = tokio::time::interval(KEEP_EVERY);
    let mut keeping = tokio::spawn(async {});
    loop {
        tokio::select! {
            () = signals.interrupt.notified() => break,
            _ = signals.terminate.recv() => break,
            _ = signals.hangup.recv() => {
                let live = live.clone();
                tokio::spawn(async move {
                    // What came of it stands in the log already.
                    let _ = live.reload().await;
                });
            }
            Some(transition) = transitions.recv() => live.health_changed(&transition),
            _ = look.tick() => {
                live.expire_overrides();
                live.hear_sites();
            }
            // Not twice at once, however slow the disk is.
            _ = keep.tick(), if live.memory.is_some() && keeping.is_finished() => {
                let live = live.clone();
                keeping = tokio::task::spawn_blocking(move || live.keep_health());
            }
            _ = clock.tick() => {
                if let Err(error) = live.send_clock() {
                    tracing::error!(%error, "the time does not reach the workers");
                }
            }
        }
    }
    fresh.abort();
    tracing::info!("stopping");
    _ = keeping.await;
    live.keep_health();
}
