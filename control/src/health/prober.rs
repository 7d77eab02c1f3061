//! The prober: one task per target, the table of what is known of each, and the watchdog over the
//! tasks. Made by the run loop, which calls [`Prober::update`] with each configuration's targets and
//! reads [`Transition`]s from the channel; status and metrics read [`Prober::table`].
//!
//! A target has at most one check in flight and at most one start per interval. After `update`
//! returns, targets that it removed send nothing more.

use super::probe::{Outcome, Probe};
use super::schedule::Schedule;
use super::{RiseFall, State, TargetKey};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

/// How often the watchdog looks.
const WATCHDOG_TICK: Duration = Duration::from_millis(500);

/// A target changed state, or went stale or fresh.
#[derive(Clone, Debug)]
pub struct Transition {
    /// Which target.
    pub target: Arc<TargetKey>,
    /// Its state from now on.
    pub state: State,
    /// True while no check has completed for three intervals and a timeout: `state` is old.
    pub stale: bool,
    /// When it happened.
    pub since: Instant,
    /// What the last check found.
    pub reason: String,
    /// Successes in a row.
    pub successes: u32,
    /// Failures in a row.
    pub failures: u32,
}

/// One row of the table. Ages are measured when it is read.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    /// Which target.
    pub target: Arc<TargetKey>,
    /// Its state.
    pub state: State,
    /// No check has completed for three intervals and a timeout.
    pub stale: bool,
    /// Time since the state changed (or the target was added).
    pub since: Duration,
    /// Time since the last check completed; `None`: none has.
    pub last_check_age: Option<Duration>,
    /// How long that check took.
    pub last_duration: Option<Duration>,
    /// What the last check found, or why none could run.
    pub reason: String,
    /// Successes in a row.
    pub successes: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Checks that succeeded or failed since the target was added.
    pub checks: u64,
    /// Those that failed.
    pub checks_failed: u64,
    /// Checks that this host could not carry out.
    pub checks_not_run: u64,
    /// How often the watchdog had to start the target's task anew.
    pub restarts: u64,
}

/// What an update did, in targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// New ones.
    pub started: usize,
    /// Ones no longer wanted.
    pub stopped: usize,
    /// Ones that went on, with their state.
    pub kept: usize,
}

/// Future of one check.
pub type CheckFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;
/// How a check is carried out: the network, or a test's own.
pub type CheckFn = dyn Fn(Arc<TargetKey>) -> CheckFuture + Send + Sync;

/// The prober. Dropping it stops every check.
pub struct Prober {
    shared: Arc<Shared>,
    runtime: Handle,
    watchdog: JoinHandle<()>,
}

struct Shared {
    table: Mutex<Table>,
    transitions: UnboundedSender<Transition>,
    check: Box<CheckFn>,
    seeds: RandomState,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Arc<TargetKey>, Entry>,
    /// Number of the last task started; a task whose number is not its entry's is a leftover.
    last_task: u64,
}

struct Entry {
    machine: RiseFall,
    stale: bool,
    since: Instant,
    /// Last completion, or when the target was added.
    evidence: Instant,
    in_flight: Option<Instant>,
    completed: Option<(Instant, Duration)>,
    reason: String,
    checks: u64,
    checks_failed: u64,
    checks_not_run: u64,
    restarts: u64,
    task: JoinHandle<()>,
    task_number: u64,
}

impl Prober {
    /// A prober over the network without targets, and where its transitions come out. Each target
    /// sends at most one per interval; the receiver is expected to keep up.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub fn new() -> (Self, UnboundedReceiver<Transition>) {
        let probe = Probe::new();
        Self::with_check(Box::new(move |target| {
            let probe = probe.clone();
            Box::pin(async move { probe.run(&target).await })
        }))
    }

    /// A prober whose checks are carried out by `check`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time.
    pub fn with_check(check: Box<CheckFn>) -> (Self, UnboundedReceiver<Transition>) {
        let (transitions, receiver) = unbounded_channel();
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            transitions,
            check,
            seeds: RandomState::new(),
        });
        let runtime = Handle::current();
        let watchdog = runtime.spawn(watch(Arc::downgrade(&shared), runtime.clone()));
        (
            Self {
                shared,
                runtime,
                watchdog,
            },
            receiver,
        )
    }

    /// Probes these targets from now on: starts new ones, stops others, keeps the state of those
    /// that stay. A new target that tries the same thing as one known before, at another pace, takes
    /// over its state.
    pub fn update(&self, targets: impl IntoIterator<Item = TargetKey>) -> Updated {
        let wanted: HashSet<TargetKey> = targets.into_iter().collect();
        let now = Instant::now();
        let mut table = self.shared.table();
        let mut stopped = 0;
        let mut legacy: HashMap<IpAddr, Vec<(Arc<TargetKey>, State, Instant)>> = HashMap::new();
        table.entries.retain(|target, entry| {
            let keep = wanted.contains(&**target);
            if !keep {
                entry.task.abort();
                stopped += 1;
            }
            // A reload probes the old and the new targets side by side for a while, so those kept count too.
            let known = (target.clone(), entry.machine.state(), entry.since);
            legacy.entry(target.address).or_default().push(known);
            keep
        });
        let mut updated = Updated {
            kept: table.entries.len(),
            stopped,
            started: 0,
        };
        for target in wanted {
            if table.entries.contains_key(&target) {
                continue;
            }
            updated.started += 1;
            let (state, since) = legacy
                .get(&target.address)
                .and_then(|old| old.iter().find(|(old, ..)| old.same_subject(&target)))
                .map_or((State::Unknown, now), |&(_, state, since)| (state, since));
            let check = &target.check;
            let machine = RiseFall::resume(check.rise, check.fall, state);
            let target = Arc::new(target);
            table.last_task += 1;
            let task_number = table.last_task;
            let task = self
                .shared
                .spawn(&self.runtime, target.clone(), task_number, false);
            let entry = Entry {
                machine,
                stale: false,
                since,
                evidence: now,
                in_flight: None,
                completed: None,
                reason: "no check has completed yet".into(),
                checks: 0,
                checks_failed: 0,
                checks_not_run: 0,
                restarts: 0,
                task,
                task_number,
            };
            table.entries.insert(target, entry);
        }
        updated
    }

    /// Every target as it stands, sorted by address and port.
    pub fn table(&self) -> Vec<TargetStatus> {
        let now = Instant::now();
        let table = self.shared.table();
        let mut rows: Vec<_> = table
            .entries
            .iter()
            .map(|(target, entry)| entry.status(target, now))
            .collect();
        rows.sort_by_key(|row| (row.target.address, row.target.check.port));
        rows
    }

    /// One target as it stands; `None` if it is not probed.
    pub fn get(&self, target: &TargetKey) -> Option<TargetStatus> {
        let now = Instant::now();
        let table = self.shared.table();
        let (target, entry) = table.entries.get_key_value(target)?;
        Some(entry.status(target, now))
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.watchdog.abort();
        for entry in self.shared.table().entries.values() {
            entry.task.abort();
        }
    }
}

impl Entry {
    fn is_stale(&self, target: &TargetKey, now: Instant) -> bool {
        now.duration_since(self.evidence) > patience(target)
    }

    fn status(&self, target: &Arc<TargetKey>, now: Instant) -> TargetStatus {
        TargetStatus {
            target: target.clone(),
            state: self.machine.state(),
            // Judged now, so that a reader sees it even if the watchdog itself stands still.
            stale: self.is_stale(target, now),
            since: now.duration_since(self.since),
            last_check_age: self.completed.map(|(at, _)| now.duration_since(at)),
            last_duration: self.completed.map(|(_, took)| took),
            reason: self.reason.clone(),
            successes: self.machine.successes(),
            failures: self.machine.failures(),
            checks: self.checks,
            checks_failed: self.checks_failed,
            checks_not_run: self.checks_not_run,
            restarts: self.restarts,
        }
    }

    fn transition(&self, target: &Arc<TargetKey>, now: Instant) -> Transition {
        Transition {
            target: target.clone(),
            state: self.machine.state(),
            stale: self.stale,
            since: now,
            reason: self.reason.clone(),
            successes: self.machine.successes(),
            failures: self.machine.failures(),
        }
    }
}

/// How long a target may go without a completed check.
fn patience(target: &TargetKey) -> Duration {
    target.check.interval * 3 + target.check.timeout
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No step under the lock leaves the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(
        self: &Arc<Self>,
        runtime: &Handle,
        target: Arc<TargetKey>,
        number: u64,
        again: bool,
    ) -> JoinHandle<()> {
        let seed = self.seeds.hash_one(&*target);
        runtime.spawn(run_target(Arc::downgrade(self), target, number, seed, again))
    }

    /// Notes that a check starts; false if the task is no longer wanted.
    fn begin(&self, target: &TargetKey, number: u64, start: Instant) -> bool {
        match self.table().entries.get_mut(target) {
            Some(entry) if entry.task_number == number => {
                entry.in_flight = Some(start);
                true
            }
            _ => false,
        }
    }

    /// Takes the outcome of a check; false if the task is no longer wanted.
    fn finish(&self, target: &Arc<TargetKey>, number: u64, start: Instant, outcome: Outcome) -> bool {
        let mut table = self.table();
        let Some(entry) = table
            .entries
            .get_mut(target)
            .filter(|entry| entry.task_number == number)
        else {
            return false;
        };
        let now = Instant::now();
        entry.in_flight = None;
        entry.reason = outcome.reason().to_owned();
        let success = match outcome {
            Outcome::Success(_) => true,
            Outcome::Failure(_) => false,
            Outcome::NotRun(_) => {
                entry.checks_not_run += 1;
                return true;
            }
        };
        entry.checks += 1;
        entry.checks_failed += u64::from(!success);
        entry.evidence = now;
        entry.completed = Some((now, now.duration_since(start)));
        let changed = entry.machine.record(success);
        if let Some(state) = changed {
            entry.since = now;
            let (address, port, reason) = (target.address, target.check.port, entry.reason.as_str());
            tracing::info!(%address, port, %state, reason, "health changed");
        }
        let freshened = std::mem::take(&mut entry.stale);
        if changed.is_some() || freshened {
            // Sent under the lock: the order is that of the states, and nothing follows a removal.
            let _ = self.transitions.send(entry.transition(target, now));
        }
        true
    }

    /// One look of the watchdog: reports targets gone stale, starts dead or stuck tasks anew.
    fn inspect(self: &Arc<Self>, runtime: &Handle, now: Instant) {
        let mut table = self.table();
        let Table { entries, last_task } = &mut *table;
        for (target, entry) in entries {
            let stuck = entry
                .in_flight
                .is_some_and(|start| now.duration_since(start) > patience(target));
            if stuck || entry.task.is_finished() {
                let what = if stuck { "stuck" } else { "dead" };
                tracing::error!(address = %target.address, port = target.check.port, "check task {what}, starting it anew");
                entry.task.abort();
                *last_task += 1;
                entry.task_number = *last_task;
                entry.in_flight = None;
                entry.restarts += 1;
                entry.task = self.spawn(runtime, target.clone(), entry.task_number, true);
            }
            if !entry.stale && entry.is_stale(target, now) {
                entry.stale = true;
                let age_s = now.duration_since(entry.evidence).as_secs_f64();
                let (address, port, reason) = (target.address, target.check.port, entry.reason.as_str());
                tracing::error!(%address, port, age_s, reason, "no health check has completed for too long");
                let _ = self.transitions.send(entry.transition(target, now));
            }
        }
    }
}

/// The task of one target. `again`: it replaces one that died, and keeps the gap to its last start.
async fn run_target(shared: Weak<Shared>, target: Arc<TargetKey>, number: u64, seed: u64, again: bool) {
    let mut schedule = Schedule::new(target.check.interval, seed);
    let delay = if again { schedule.gap() } else { schedule.first() };
    tokio::time::sleep(delay).await;
    loop {
        let start = Instant::now();
        let check = {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            if !shared.begin(&target, number, start) {
                return;
            }
            (shared.check)(target.clone())
        };
        let outcome = check.await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if !shared.finish(&target, number, start, outcome) {
            return;
        }
        drop(shared);
        // From the actual start: a late check delays the next, it never brings two close together.
        tokio::time::sleep_until(start + schedule.gap()).await;
    }
}

/// The watchdog's task.
async fn watch(shared: Weak<Shared>, runtime: Handle) {
    let mut tick = tokio::time::interval(WATCHDOG_TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = tick.tick().await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.inspect(&runtime, now);
    }
}

#[cfg(test)]
#[path = "prober_tests.rs"]
mod tests;
