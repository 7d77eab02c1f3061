//! The prober: one task per target, the table of what is known of each, and the watchdog over the
//! tasks. Made by the run loop, which calls [`Prober::update`] with each configuration's targets and
//! reads [`Transition`]s from the channel; status and metrics read [`Prober::table`].
//!
//! A target has at most one check in flight and at most one start per interval. After `update`
//! returns, targets that it removed send nothing more.

use super::memory::{CONTINUED_MAX, Known, subject};
use super::probe::{Outcome, Probe};
use super::schedule::Schedule;
use super::{Machine, Standing, State, TargetKey};
use crate::config::model::Check;
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

/// A target changed its state or its standing, or went stale or fresh.
#[derive(Clone, Debug)]
pub struct Transition {
    /// Which target.
    pub target: Arc<TargetKey>,
    /// Its state from now on.
    pub state: State,
    /// How it stands from now on.
    pub standing: Standing,
    /// Its state and standing before, and whether it was stale; the same as now if something else changed.
    pub was: (State, Standing, bool),
    /// Why its share is not whole, if it is not.
    pub remark: Option<String>,
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
    /// How it stands.
    pub standing: Standing,
    /// Why its share is not whole, if it is not.
    pub remark: Option<String>,
    /// No check has completed for three intervals and a timeout.
    pub stale: bool,
    /// Time since the state changed (or the target was added).
    pub since: Duration,
    /// The state is from before the start: no check has completed since.
    pub remembered: bool,
    /// Time since the last check completed, be it before the start; `None`: none has.
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
    /// What was known before the start, by subject, and when that was read.
    memory: HashMap<String, Known>,
    /// How often the watchdog started a task anew, for all targets ever.
    restarts: u64,
}

struct Entry {
    machine: Machine,
    /// Until a check completes: when the state was read from the memory, and how old it was then.
    remembered: Option<(Instant, Duration)>,
    /// As told last.
    standing: Standing,
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

    /// What was known before the start. The targets of the next update take their state from it.
    pub fn remember(&self, memory: HashMap<String, Known>) {
        self.shared.table().memory = memory;
    }

    /// What is known now, for [`super::Memory`]; targets that were never checked are left out.
    pub fn known(&self) -> Vec<Known> {
        let unix = crate::state::now().as_secs_f64();
        let known = |row: TargetStatus| {
            Some(Known {
                checked: unix - row.last_check_age?.as_secs_f64(),
                target: subject(&row.target),
                state: row.state,
                since: unix - row.since.as_secs_f64(),
                reason: row.reason,
            })
        };
        let table = self.table().into_iter();
        table
            .filter(|row| row.state != State::Unknown)
            .filter_map(known)
            .collect()
    }

    /// How often the watchdog had to start a task anew.
    pub fn restarts(&self) -> u64 {
        self.shared.table().restarts
    }

    /// Probes these targets from now on: starts new ones, stops others, keeps the state of those
    /// that stay. A new target that tries the same thing as one known before, at another pace, takes
    /// over its state.
    pub fn update(&self, targets: impl IntoIterator<Item = TargetKey>) -> Updated {
        let wanted: HashSet<TargetKey> = targets.into_iter().collect();
        let now = Instant::now();
        let mut table = self.shared.table();
        let mut stopped = 0;
        let mut legacy: HashMap<IpAddr, Vec<(Arc<TargetKey>, Machine, Instant)>> = HashMap::new();
        table.entries.retain(|target, entry| {
            let keep = wanted.contains(&**target);
            if !keep {
                entry.task.abort();
                stopped += 1;
            }
            // A reload probes the old and the new targets side by side for a while, so those kept count too.
            let known = (target.clone(), entry.machine.clone(), entry.since);
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
            let check = &target.check;
            let old = legacy
                .get(&target.address)
                .and_then(|old| old.iter().find(|(old, ..)| old.same_subject(&target)));
            let known = match old {
                Some(_) => None,
                None => table.memory.get(&subject(&target)).cloned(),
            };
            let (machine, since) = match (old, &known) {
                (Some((_, machine, since)), _) => (machine.taken_over(check, now), *since),
                (None, Some(known)) => recall(check, known, now),
                (None, None) => (Machine::new(check, now), now),
            };
            let remembered = known.as_ref().map(|known| (now, age(known.checked)));
            let reason = match &known {
                Some(known) => format!("before the start: {}", known.reason),
                None => "no check has completed yet".into(),
            };
            let target = Arc::new(target);
            table.last_task += 1;
            let task_number = table.last_task;
            let task = self
                .shared
                .spawn(&self.runtime, target.clone(), task_number, false);
            let entry = Entry {
                standing: machine.standing(now),
                machine,
                remembered,
                stale: false,
                since,
                evidence: now,
                in_flight: None,
                completed: None,
                reason,
                checks: 0,
                checks_failed: 0,
                checks_not_run: 0,
                restarts: 0,
                task,
                task_number,
            };
            table.entries.insert(target, entry);
        }
        // For the targets of the start alone: what it says only grows older.
        table.memory.clear();
        updated
    }

    /// The site of `address` says that `permille` of its requests fail; believed for `good_for`. Counts where a check has
    /// a brown-out rule.
    pub fn report_errors(&self, address: IpAddr, permille: u16, good_for: Duration) {
        let until = Instant::now() + good_for;
        let mut table = self.shared.table();
        for (target, entry) in &mut table.entries {
            if target.address == address {
                entry.machine.report(permille, until);
            }
        }
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

    /// How a target stands; `None` if it is not probed.
    pub fn standing(&self, target: &TargetKey) -> Option<Standing> {
        let now = Instant::now();
        let table = self.shared.table();
        table.entries.get(target).map(|entry| entry.machine.standing(now))
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
            standing: self.machine.standing(now),
            remark: self.machine.remark(now),
            // Judged now, so that a reader sees it even if the watchdog itself stands still.
            stale: self.is_stale(target, now),
            since: now.duration_since(self.since),
            remembered: self.remembered.is_some(),
            last_check_age: match (self.completed, self.remembered) {
                (Some((at, _)), _) => Some(now.duration_since(at)),
                (None, Some((read, age))) => Some(now.duration_since(read) + age),
                (None, None) => None,
            },
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

    fn transition(&self, target: &Arc<TargetKey>, was: (State, Standing, bool), now: Instant) -> Transition {
        Transition {
            target: target.clone(),
            state: self.machine.state(),
            standing: self.standing,
            was,
            remark: self.machine.remark(now),
            stale: self.stale,
            since: now,
            reason: self.reason.clone(),
            successes: self.machine.successes(),
            failures: self.machine.failures(),
        }
    }
}

/// The machine of a target whose state is known from before the start, and since when it has that.
fn recall(check: &Check, known: &Known, now: Instant) -> (Machine, Instant) {
    let mut machine = Machine::resume(check, known.state, now);
    if age(known.checked) > CONTINUED_MAX {
        machine.doubt();
    }
    // A clock that began after it cannot say when that was.
    (machine, now.checked_sub(age(known.since)).unwrap_or(now))
}

/// Time since a moment of Unix time, in seconds.
fn age(unix: f64) -> Duration {
    Duration::try_from_secs_f64(crate::state::now().as_secs_f64() - unix).unwrap_or_default()
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
        let took = now.duration_since(start);
        match outcome {
            Outcome::Success(_) => {}
            Outcome::Failure(..) => entry.checks_failed += 1,
            Outcome::NotRun(_) => {
                entry.checks_not_run += 1;
                return true;
            }
        }
        entry.checks += 1;
        entry.evidence = now;
        entry.remembered = None;
        entry.completed = Some((now, took));
        let was = (entry.machine.state(), entry.standing, entry.stale);
        let changed = entry.machine.record(now, &outcome, took);
        let standing = entry.machine.standing(now);
        entry.standing = standing;
        if let Some(state) = changed {
            entry.since = now;
            let (address, port, reason) = (target.address, target.check.port, entry.reason.as_str());
            tracing::debug!(%address, port, %state, reason, "health changed");
        }
        let freshened = std::mem::take(&mut entry.stale);
        if changed.is_some() || standing != was.1 || freshened {
            // Sent under the lock: the order is that of the states, and nothing follows a removal.
            let _ = self.transitions.send(entry.transition(target, was, now));
        }
        true
    }

    /// One look of the watchdog: reports targets gone stale, starts dead or stuck tasks anew.
    fn inspect(self: &Arc<Self>, runtime: &Handle, now: Instant) {
        let mut table = self.table();
        let Table {
            entries,
            last_task,
            restarts,
            ..
        } = &mut *table;
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
                *restarts += 1;
                entry.task = self.spawn(runtime, target.clone(), entry.task_number, true);
            }
            // Ramps and penalties go on without checks.
            entry.machine.tick(now);
            let was = (entry.machine.state(), entry.standing, entry.stale);
            entry.standing = entry.machine.standing(now);
            let gone_stale = !entry.stale && entry.is_stale(target, now);
            if entry.standing != was.1 && !gone_stale {
                let _ = self.transitions.send(entry.transition(target, was, now));
            }
            if gone_stale {
                entry.stale = true;
                let age_s = now.duration_since(entry.evidence).as_secs_f64();
                let (address, port, reason) = (target.address, target.check.port, entry.reason.as_str());
                tracing::debug!(%address, port, age_s, reason, "no health check has completed for too long");
                let _ = self.transitions.send(entry.transition(target, was, now));
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
use super::probe::Fault;
#[cfg(test)]
#[path = "prober_tests.rs"]
mod tests;
