//! `windrose agent`: runs at a site, checks its members, reads its numbers, measures round-trip times, and reports all of
//! it to appliances. Needs no DPDK.
//!
//! * [`config`]: its TOML file.
//! * `readings`: sessions, bandwidth, connections per second.
//! * `measure`, `ping`: round-trip times to prefixes that appliances ask about.
//! * `reporter`, `link`: one task an appliance, which reports to it and is told what to measure.
//!
//! Checks are the appliance's own prober. An appliance that cannot be reached holds nothing up for the others.

pub mod config;
mod link;
mod measure;
mod ping;
mod readings;
mod reporter;

use crate::config::Diagnostics;
use crate::health::Prober;
use crate::reports::report::Report;
use anyhow::{Context, Result};
use config::AgentConfig;
use link::Link;
use measure::Measurer;
use readings::Sources;
use reporter::{Reporter, Site};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// How long `--dry-run` waits for the first result of every check.
const FIRST_CHECKS_MAX: Duration = Duration::from_secs(10);

/// Why an agent did not start.
#[derive(Debug)]
pub enum AgentError {
    /// The configuration would not be taken.
    Config(Diagnostics),
    /// Something failed before it ran.
    Start(anyhow::Error),
}

fn load(path: &Path) -> Result<AgentConfig, AgentError> {
    let (config, warnings) = config::load(path).map_err(AgentError::Config)?;
    for warning in warnings.iter() {
        tracing::warn!(file = %warning.file.display(), line = warning.line, "{}", warning.message);
    }
    Ok(config)
}

fn runtime() -> Result<Runtime, AgentError> {
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("agent")
        .enable_all()
        .build();
    built.context("cannot start threads").map_err(AgentError::Start)
}

/// Runs an agent until SIGINT or SIGTERM.
///
/// # Errors
/// See [`AgentError`].
pub fn run(path: &Path) -> Result<(), AgentError> {
    let config = load(path)?;
    let links: Result<Vec<(String, Link)>> = config
        .appliances
        .iter()
        .map(|appliance| {
            let name = format!("{}:{}", appliance.host, appliance.port);
            let link = Link::new(appliance, &config.token.0).map_err(anyhow::Error::msg);
            Ok((name.clone(), link.with_context(|| format!("appliance {name}"))?))
        })
        .collect();
    let links = links.map_err(AgentError::Start)?;
    runtime()?
        .block_on(serve(config, links))
        .map_err(AgentError::Start)
}

async fn serve(config: AgentConfig, links: Vec<(String, Link)>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot take SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot take SIGINT")?;
    let (prober, mut transitions) = Prober::new();
    prober.update(config.members.iter().filter_map(config::Member::target));
    let measurer = config.rtt.enabled.then(|| Measurer::start(config.rtt.clone()));
    let (appliances, members) = (links.len(), config.members.len());
    let mut sources = Sources::new(
        &config.readings,
        config.members.iter().map(|m| m.address).collect(),
    );
    let site = Arc::new(Site::new(config, prober));
    site.set_numbers(sources.read().await);
    tracing::info!(site = site.name(), appliances, members, "ready");
    for (name, link) in links {
        tokio::spawn(Reporter::new(name, link, site.clone(), measurer.clone()).run());
    }
    let reader = site.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(reader.interval()).await;
            let numbers = sources.read().await;
            reader.set_numbers(numbers);
        }
    });
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // Appliances hear of it at once.
            Some(_) = transitions.recv() => site.hurry(),
        }
    }
    tracing::info!("stopping");
    Ok(())
}

/// Checks and reads once; the report that would be sent.
///
/// # Errors
/// See [`AgentError`].
pub fn dry_run(path: &Path) -> Result<Report, AgentError> {
    let config = load(path)?;
    runtime()?.block_on(async {
        let (prober, _transitions) = Prober::new();
        let targets: Vec<_> = config.members.iter().filter_map(config::Member::target).collect();
        prober.update(targets.iter().cloned());
        let addresses = config.members.iter().map(|m| m.address).collect();
        let numbers = Sources::new(&config.readings, addresses).read().await;
        let end = Instant::now() + FIRST_CHECKS_MAX;
        let unknown = |target| prober.get(target).is_none_or(|status| status.checks == 0);
        while targets.iter().any(unknown) && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let site = Site::new(config, prober);
        site.set_numbers(numbers);
        Ok(site.report(0, Instant::now()))
    })
}
