//! The publisher: the one thread that holds control's ends of all links.
//!
//! Everybody in control calls a [`Publisher`] to publish a snapshot, set words or inject a packet; the
//! thread delivers to every worker in the same turn, retries what found no room, and passes punted packets
//! on. Retired snapshots are freed on a second thread, since freeing millions of entries would delay the words.

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use crossbeam::queue::ArrayQueue;
use dataplane::arch::Ticks;
use dataplane::link::{
    ControlLink, Delays, Ledger, Liveness, PulseReader, StallDetector, WordTarget, WordValue,
};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the rings are looked after when no command comes.
const IDLE_TURN: Duration = Duration::from_millis(1);
/// The same while something waits for room in a ring or packets are left: a worker's turn is shorter.
const BUSY_TURN: Duration = Duration::from_micros(50);
/// Packets passed on per worker and turn, so that a flood of them does not delay the words.
const PUNTS_PER_TURN: usize = 64;
/// Commands taken in one turn, so that a flood of them does not delay the rings.
const COMMANDS_PER_TURN: usize = 256;
/// Seen clients that wait to be asked for.
const CLIENTS_KEPT: usize = 1024;

/// A packet that a worker punted, as the exception interface gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntedPacket<'a> {
    /// Index of the worker.
    pub worker: usize,
    /// Index of the port that it came from.
    pub port: u8,
    /// The frame, from its first Ethernet byte on.
    pub frame: &'a [u8],
}

/// Who takes punted packets. Called on the publisher's thread, so neither may wait.
pub trait PuntSink: Send + 'static {
    /// Whether it would take a packet now. What it would not stays in the worker's ring; once that is full the
    /// worker drops and counts, without copying.
    fn ready(&mut self) -> bool;
    /// Takes one packet; called only after [`PuntSink::ready`] said so.
    fn take(&mut self, packet: PuntedPacket<'_>);
}

/// A callback that takes every packet.
struct Always<F>(F);

impl<F: FnMut(PuntedPacket<'_>) + Send + 'static> PuntSink for Always<F> {
    fn ready(&mut self) -> bool {
        true
    }
    fn take(&mut self, packet: PuntedPacket<'_>) {
        (self.0)(packet);
    }
}

/// Hands packets to workers; a copy that may go to another thread. See [`Publisher::injector`].
pub struct Injector<S>(Sender<Command<S>>);

impl<S> Injector<S> {
    /// As [`Publisher::inject`].
    pub fn inject(&self, worker: usize, port: u8, frame: Vec<u8>) -> Result<(), PublishError> {
        self.0
            .send(Command::Inject { worker, port, frame })
            .map_err(|_| PublishError::Stopped)
    }
}

/// How delivery to one worker stands.
#[derive(Clone, Debug, Default)]
pub struct PublishStatus {
    /// Counts of both halves, with the laws between them. In flight is what is published and neither
    /// adopted nor superseded.
    pub ledger: Ledger,
    /// Since when the worker has not turned, if for longer than the limit.
    pub stalled_since: Option<Instant>,
    /// Whether the worker has turned at all.
    pub started: bool,
    /// Packets that the worker punted and the callback got.
    pub punts: u64,
    /// Packets for the worker that found the ring full or were longer than a slot.
    pub injections_refused: u64,
}

/// Why something was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Generations must rise.
    #[error(
        "generation {given} is not above {newest}, which was published already: number snapshots upwards"
    )]
    StaleGeneration {
        /// What was to be published.
        given: u64,
        /// The newest published.
        newest: u64,
    },
    /// The thread has ended, by [`Publisher::stop`] or because a callback panicked.
    #[error("the publisher has stopped, so nothing reaches the workers: restart the appliance")]
    Stopped,
}

enum Command<S> {
    Publish {
        tables: Arc<S>,
        generation: u64,
        at: Ticks,
    },
    Words {
        words: Vec<(WordTarget, WordValue)>,
        at: Ticks,
    },
    Inject {
        worker: usize,
        port: u8,
        frame: Vec<u8>,
    },
    Stop,
}

/// The handle. Dropping it stops the thread.
pub struct Publisher<S> {
    commands: Sender<Command<S>>,
    /// Newest generation; locked while a snapshot is sent, so that they go in order.
    newest: Mutex<u64>,
    status: Arc<Mutex<Vec<PublishStatus>>>,
    pulses: Vec<PulseReader>,
    clients: Arc<ArrayQueue<IpAddr>>,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Send + Sync + 'static> Publisher<S> {
    /// Starts the thread over the links of all workers, in worker order. `stall_limit`: a worker that does
    /// no turn for longer is reported. `on_punt` gets every punted packet, on the thread itself, so it must not wait.
    /// Errors when the system refuses a thread.
    pub fn start(
        links: Vec<ControlLink<S>>,
        stall_limit: Duration,
        on_punt: impl FnMut(PuntedPacket<'_>) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_with(links, stall_limit, Always(on_punt))
    }

    /// As [`Publisher::start`], with a sink that may leave packets in the rings for a while.
    pub fn start_with(
        links: Vec<ControlLink<S>>,
        stall_limit: Duration,
        sink: impl PuntSink,
    ) -> std::io::Result<Self> {
        let (commands, inbox) = unbounded();
        let (reaper, retired) = unbounded::<Arc<S>>();
        let status = Arc::new(Mutex::new(vec![PublishStatus::default(); links.len()]));
        let clients = Arc::new(ArrayQueue::new(CLIENTS_KEPT));
        let pulses = links.iter().map(|link| link.pulse.clone()).collect();
        let workers = links
            .into_iter()
            .map(|link| Worker {
                link,
                stall: StallDetector::new(stall_limit),
                status: PublishStatus::default(),
            })
            .collect();
        let turn = Turn {
            workers,
            reaper,
            sink,
            status: Arc::clone(&status),
            clients: Arc::clone(&clients),
        };
        let mut publisher = Self {
            commands,
            newest: Mutex::new(0),
            status,
            pulses,
            clients,
            threads: Vec::new(),
        };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body)
        };
        // Ends when the publishing thread drops its sender.
        publisher.threads.push(spawn(
            "windrose-reap",
            Box::new(move || retired.into_iter().for_each(drop)),
        )?);
        publisher
            .threads
            .push(spawn("windrose-pub", Box::new(move || turn.run(&inbox)))?);
        Ok(publisher)
    }

    /// Publishes a snapshot to every worker. `generation` must be above all earlier ones.
    pub fn publish(&self, tables: Arc<S>, generation: u64) -> Result<(), PublishError> {
        let mut newest = lock(&self.newest);
        if generation <= *newest {
            return Err(PublishError::StaleGeneration {
                given: generation,
                newest: *newest,
            });
        }
        self.send(Command::Publish {
            tables,
            generation,
            at: Ticks::now(),
        })?;
        *newest = generation;
        Ok(())
    }

    /// Sets words on every worker. One caller's words take effect in order per target, and before a
    /// snapshot that it publishes afterwards.
    pub fn set_words(&self, words: Vec<(WordTarget, WordValue)>) -> Result<(), PublishError> {
        self.send(Command::Words {
            words,
            at: Ticks::now(),
        })
    }

    /// Has a worker transmit `frame` from the port of that index. Refusals are counted in the status.
    pub fn inject(&self, worker: usize, port: u8, frame: Vec<u8>) -> Result<(), PublishError> {
        self.send(Command::Inject { worker, port, frame })
    }

    /// A handle that injects alone. It does not keep the publisher running.
    pub fn injector(&self) -> Injector<S> {
        Injector(self.commands.clone())
    }

    /// Clients that workers' services chose for, a sample: those that came since this was last called, the newest at most
    /// 1,024.
    pub fn take_clients(&self) -> Vec<IpAddr> {
        std::iter::from_fn(|| self.clients.pop())
            .take(CLIENTS_KEPT)
            .collect()
    }

    /// How delivery stands, per worker; at most about a millisecond old.
    pub fn status(&self) -> Vec<PublishStatus> {
        lock(&self.status).clone()
    }

    /// The oldest generation that a worker may still use: slot ids that only older snapshots named are free.
    pub fn oldest_generation(&self) -> u64 {
        self.pulses
            .iter()
            .map(|pulse| pulse.counts().generation)
            .min()
            .unwrap_or(0)
    }

    /// Delays from [`Publisher::publish`] or [`Publisher::set_words`] to the worker's taking, per worker, in ticks.
    pub fn delays(&self) -> Vec<Delays> {
        self.pulses.iter().map(PulseReader::delays).collect()
    }

    /// Ends the thread after what was sent before, frees what came back and tells how delivery stood. Call
    /// it when the workers have ended; their links may be dropped before or after.
    pub fn stop(mut self) -> Vec<PublishStatus> {
        self.end();
        self.status()
    }

    fn send(&self, command: Command<S>) -> Result<(), PublishError> {
        self.commands.send(command).map_err(|_| PublishError::Stopped)
    }
}

impl<S> Publisher<S> {
    fn end(&mut self) {
        // An error means that the thread has ended already.
        self.commands.send(Command::Stop).ok();
        for thread in self.threads.drain(..).rev() {
            if thread.join().is_err() {
                tracing::error!("a publisher thread panicked");
            }
        }
    }
}

impl<S> Drop for Publisher<S> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A panic elsewhere leaves these values whole: each is written in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker<S> {
    link: ControlLink<S>,
    stall: StallDetector,
    status: PublishStatus,
}

/// What the thread owns.
struct Turn<S, P> {
    workers: Vec<Worker<S>>,
    reaper: Sender<Arc<S>>,
    sink: P,
    status: Arc<Mutex<Vec<PublishStatus>>>,
    clients: Arc<ArrayQueue<IpAddr>>,
}

impl<S, P: PuntSink> Turn<S, P> {
    fn run(mut self, inbox: &Receiver<Command<S>>) {
        let mut wait = IDLE_TURN;
        loop {
            let first = match inbox.recv_timeout(wait) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                // The handle is gone, and its drop sends Stop: only a handle that was forgotten.
                Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
            };
            let mut stop = false;
            for command in first.into_iter().chain(inbox.try_iter().take(COMMANDS_PER_TURN)) {
                stop |= self.obey(command);
            }
            let busy = self.look_after_rings();
            self.report();
            if stop {
                return;
            }
            wait = if busy { BUSY_TURN } else { IDLE_TURN };
        }
    }

    /// Takes one command in; true for the last.
    fn obey(&mut self, command: Command<S>) -> bool {
        match command {
            Command::Publish {
                tables,
                generation,
                at,
            } => {
                for worker in &mut self.workers {
                    let superseded = worker.link.delivery.publish(Arc::clone(&tables), generation, at);
                    superseded.into_iter().for_each(|old| reap(&self.reaper, old));
                }
                reap(&self.reaper, tables);
            }
            Command::Words { words, at } => {
                for worker in &mut self.workers {
                    for &(target, value) in &words {
                        worker.link.delivery.set_word(target, value, at);
                    }
                }
            }
            Command::Inject { worker, port, frame } => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    let sent = worker.link.injections.send(port, &frame);
                    worker.status.injections_refused += u64::from(sent.is_err());
                }
            }
            Command::Stop => return true,
        }
        false
    }

    /// Delivers, collects and passes punts on; true when there is more to do soon.
    fn look_after_rings(&mut self) -> bool {
        let mut busy = false;
        // All deliveries first: a callback may be slow.
        for worker in &mut self.workers {
            let pumped = worker.link.delivery.pump(|old| reap(&self.reaper, old));
            busy |= pumped.undelivered;
        }
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let mut punts = 0;
            while punts < PUNTS_PER_TURN
                && self.sink.ready()
                && worker
                    .link
                    .punts
                    .receive(|port, frame| {
                        self.sink.take(PuntedPacket {
                            worker: index,
                            port,
                            frame,
                        })
                    })
                    .is_some()
            {
                punts += 1;
            }
            worker.status.punts += punts as u64;
            // The newest count.
            while let Some(client) = worker.link.clients.receive() {
                self.clients.force_push(client);
            }
            // Where a packet came from its connection's next one is likely soon.
            busy |= punts > 0;
        }
        busy
    }

    /// Puts the status where the handle reads it, and says when a worker stalls or turns again.
    fn report(&mut self) {
        let now = Instant::now();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let liveness = worker.stall.observe(worker.link.pulse.turns(), now);
            let stalled_since = match liveness {
                Liveness::Stalled { since } => Some(since),
                Liveness::NotStarted | Liveness::Running => None,
            };
            match (worker.status.stalled_since, stalled_since) {
                (None, Some(_)) => tracing::error!(worker = index, "worker does not turn"),
                (Some(_), None) => tracing::warn!(worker = index, "worker turns again"),
                _ => {}
            }
            worker.status.started = liveness != Liveness::NotStarted;
            worker.status.stalled_since = stalled_since;
            worker.status.ledger = worker.link.ledger();
        }
        let mut shown = lock(&self.status);
        shown
            .iter_mut()
            .zip(&self.workers)
            .for_each(|(shown, worker)| shown.clone_from(&worker.status));
    }
}

/// Lets the other thread drop it.
fn reap<S>(reaper: &Sender<Arc<S>>, old: Arc<S>) {
    // That thread ends after this one; if it panicked, drop here.
    drop(reaper.send(old));
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
