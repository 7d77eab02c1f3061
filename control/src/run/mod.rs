//! `windrose run`: starts the appliance step by step, keeps it running, and stops it in reverse.
//!
//! Called by the command line. Owns the order of things: configuration, admin socket, EAL, ports,
//! health, first snapshot, workers; then signals and reloads. Nothing is half started: whatever fails undoes
//! what came before it.

mod cpus;
mod explain;
mod live;
mod ports;
mod status;
mod workers;

use crate::admin::{self, Appliance as _};
use crate::config::{self, Diagnostics, machine};
use crate::health::Prober;
use crate::publish::Publisher;
use anyhow::{Context, Result};
use live::Live;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// A worker that has not turned for this long is reported.
const STALL_LIMIT: Duration = Duration::from_secs(2);
/// How often control looks after its workers and writes what changed to the log.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Why the appliance did not start, or not end well.
#[derive(Debug)]
pub enum RunError {
    /// The configuration would not be taken.
    Config(Diagnostics),
    /// Something failed before the workers ran: nothing was started.
    Start(anyhow::Error),
    /// It ran, and something went wrong.
    Running(anyhow::Error),
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
    let stop = Arc::new(Notify::new());
    let interrupted = stop.clone();
    ctrlc::set_handler(move || interrupted.notify_one())
        .context("cannot take SIGINT")
        .map_err(RunError::Start)?;
    let opened = ports::open(&config).map_err(RunError::Start)?;
    let guard = runtime.enter();
    let (prober, transitions) = Prober::new();
    let rate = dataplane::arch::TickRate::calibrate();
    let workers::Started {
        threads,
        links,
        published,
    } = workers::prepare(&config, opened.queues, rate).map_err(RunError::Start)?;
    // Until the exception interface takes them, punted packets end here: the worker has counted them.
    let publisher = Publisher::start(links, STALL_LIMIT, |_| {})
        .context("cannot start the publisher")
        .map_err(RunError::Start)?;
    let live = Live::new(
        path,
        Arc::new(config),
        opened.ports,
        prober,
        publisher,
        published,
        rate,
    )
    .map_err(RunError::Start)?;
    let running = threads.start(&opened.eal).map_err(RunError::Start)?;
    let live = Arc::new(live);
    let served = bound
        .serve(live.clone())
        .context("admin API")
        .map_err(RunError::Start)?;
    drop(guard);
    let ran = runtime.block_on(main_loop(&live, transitions, &stop));
    drop(served);
    let totals = running.stop();
    drop(runtime);
    print!("{}", status::totals(&totals));
    // In reverse: what the workers own (queues, snapshots) before the ports, these before EAL.
    drop(totals);
    drop(live);
    drop(opened.eal);
    ran.map_err(RunError::Running)
}

/// Health, signals and the watch over the workers, until told to stop.
async fn main_loop(
    live: &Arc<Live>,
    mut transitions: tokio::sync::mpsc::UnboundedReceiver<crate::health::Transition>,
    stop: &Notify,
) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot take SIGTERM")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot take SIGHUP")?;
    live.first_snapshot(&mut transitions).await?;
    live.announce();
    tracing::info!(generation = live.status().generation, "ready");
    let mut watch = tokio::time::interval(WATCH_INTERVAL);
    watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.notified() => break,
            _ = terminate.recv() => break,
            _ = hangup.recv() => {
                let live = live.clone();
                tokio::spawn(async move {
                    // What came of it stands in the log already.
                    let _ = live.reload().await;
                });
            }
            Some(transition) = transitions.recv() => live.health_changed(&transition),
            _ = watch.tick() => live.watch(),
        }
    }
    tracing::info!("stopping");
    Ok(())
}
