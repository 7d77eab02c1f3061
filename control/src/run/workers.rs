//! The workers' threads: prepared with all they own, pinned, registered with EAL, stopped and joined.

use crate::config::model::Role;
use crate::config::model::{Config, Idle as ConfigIdle};
use crate::policy::servers::span;
use anyhow::{Context, Result, anyhow};
use dataplane::arch::TickRate;
use dataplane::counters::Published;
use dataplane::io::dpdk::{self, DpdkQueues, Eal};
use dataplane::link::{ControlLink, LinkSlots, StopFlag, connect};
use dataplane::stages::flow_latency::FlowLimits;
use dataplane::tables::Snapshot;
use dataplane::worker::{Idle, Worker, WorkerConfig};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long an idle worker sleeps where the configuration says so.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// Workers that are ready to start.
pub(super) struct Prepared {
    workers: Vec<(usize, Worker<DpdkQueues>)>,
    stop: StopFlag,
}

/// Running workers.
pub(super) struct Running {
    threads: Vec<JoinHandle<Worker<DpdkQueues>>>,
    stop: StopFlag,
}

/// What [`prepare`] makes.
pub(super) struct Started {
    /// The workers.
    pub(super) threads: Prepared,
    /// Control's ends of their links.
    pub(super) links: Vec<ControlLink<Snapshot>>,
    /// Their counters.
    pub(super) published: Vec<Arc<Published>>,
}

/// Makes one worker for each core; allocates all that they will use.
pub(super) fn prepare(config: &Config, queues: Vec<Vec<DpdkQueues>>, rate: TickRate) -> Result<Started> {
    let stop = StopFlag::default();
    let idle = match config.dataplane.idle {
        ConfigIdle::Spin => Idle::Spin,
        ConfigIdle::Sleep => Idle::Sleep(IDLE_SLEEP),
    };
    let count = config.dataplane.cores.len() as u32;
    let measured = config.ports.iter().any(|port| port.role != Role::Service);
    let flows = measured.then_some(FlowLimits {
        flows: config.latency.flows as usize,
        idle: span(config.latency.idle),
    });
    let (mut workers, mut links, mut published) = (Vec::new(), Vec::new(), Vec::new());
    for (&core, queues) in config.dataplane.cores.iter().zip(queues) {
        let (worker_link, control_link) = connect(LinkSlots::default(), stop.clone());
        let counters = Arc::new(Published::default());
        let config = WorkerConfig {
            idle,
            seed: fastrand::u64(..),
            rate,
            workers: count,
            flows,
        };
        let worker = Worker::new(queues, worker_link, counters.clone(), config);
        workers.push((core, worker.context("[latency] flows")?));
        links.push(control_link);
        published.push(counters);
    }
    Ok(Started {
        threads: Prepared { workers, stop },
        links,
        published,
    })
}

impl Prepared {
    /// Starts every worker on its CPU.
    ///
    /// # Errors
    /// A thread that could not be started, pinned or registered; those that run are stopped again.
    pub(super) fn start(self, eal: &Eal) -> Result<Running> {
        let mut running = Running {
            threads: Vec::new(),
            stop: self.stop,
        };
        for (index, (core, worker)) in self.workers.into_iter().enumerate() {
            let (report, ready) = channel();
            let eal = eal.clone();
            let body = move || {
                let pinned = core_affinity::set_for_current(core_affinity::CoreId { id: core });
                let registered = match dpdk::register_thread(&eal) {
                    _ if !pinned => Err(anyhow!("cannot pin worker {index} to CPU {core}")),
                    Ok(guard) => Ok(guard),
                    Err(error) => Err(anyhow!(error)),
                };
                match registered {
                    Ok(_guard) => {
                        let _ = report.send(Ok(()));
                        worker.run()
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        worker
                    }
                }
            };
            let started = std::thread::Builder::new()
                .name(format!("windrose-w{index}"))
                .spawn(body)
                .context("cannot start a worker thread")
                .and_then(|thread| {
                    running.threads.push(thread);
                    ready.recv().context("a worker thread ended at once")?
                });
            if let Err(error) = started {
                running.stop();
                return Err(error);
            }
        }
        Ok(running)
    }
}

impl Running {
    /// Tells the workers to stop, waits for them to drain, and gives them back.
    pub(super) fn stop(self) -> Vec<Worker<DpdkQueues>> {
        self.stop.stop();
        self.threads
            .into_iter()
            .enumerate()
            .filter_map(|(index, thread)| {
                thread
                    .join()
                    .map_err(|_| tracing::error!(worker = index, "the worker panicked"))
                    .ok()
            })
            .collect()
    }
}
