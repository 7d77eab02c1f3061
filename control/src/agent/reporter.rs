//! What is reported, and when: the site's state, shared by all, and one task an appliance that tells it.
//!
//! A report goes out at the interval that the appliance asks for, and at once when a member goes up or down. When the
//! appliance cannot be reached, it is tried again after a second, then two, four and so on up to a minute; what was
//! measured meanwhile is in the next report.

use super::config::AgentConfig;
use super::link::Link;
use super::measure::Measurer;
use super::readings::Numbers;
use crate::health::{Prober, State};
use crate::reports::report::{Answer, ITEMS_MAX, MemberReport, Report, Rtt, Totals, VERSION, Wanted};
use ipnet::IpNet;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Between reports before an appliance has said otherwise.
const INTERVAL: Duration = Duration::from_secs(5);
/// What an appliance may ask for.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// See [`INTERVAL_MIN`].
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Two reports to one appliance are no closer, whatever happens.
const GAP_MIN: Duration = Duration::from_millis(100);
/// After the first failure; doubles.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Checks of the last so many reports make the error rate of a member.
const HISTORY: usize = 12;

/// The state of the site.
pub(super) struct Site {
    config: AgentConfig,
    prober: Prober,
    state: Mutex<SiteState>,
    /// Milliseconds: the shortest that an appliance asks for.
    interval_ms: AtomicU64,
    hurry: watch::Sender<u64>,
}

#[derive(Default)]
struct SiteState {
    numbers: Numbers,
    read_at: Option<Instant>,
    /// Checks completed and failed, at each of the last readings.
    history: HashMap<IpAddr, VecDeque<(u64, u64)>>,
}

impl Site {
    pub(super) fn new(config: AgentConfig, prober: Prober) -> Self {
        Self {
            config,
            prober,
            state: Mutex::default(),
            interval_ms: AtomicU64::new(INTERVAL.as_millis() as u64),
            hurry: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SiteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &str {
        &self.config.site
    }

    /// How often numbers are read.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Ordering::Relaxed))
    }

    /// Has every appliance told now.
    pub(super) fn hurry(&self) {
        self.hurry.send_modify(|count| *count += 1);
    }

    /// Takes what the sources gave, and how the checks' counters stand.
    pub(super) fn set_numbers(&self, numbers: Numbers) {
        let mut state = self.lock();
        state.numbers = numbers;
        state.read_at = Some(Instant::now());
        for member in &self.config.members {
            let Some(status) = member.target().and_then(|target| self.prober.get(&target)) else {
                continue;
            };
            let history = state.history.entry(member.address).or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back((status.checks, status.checks_failed));
        }
    }

    /// The report as of now, without round-trip times.
    pub(super) fn report(&self, sequence: u64, now: Instant) -> Report {
        let state = self.lock();
        let members = self.config.members.iter().map(|member| {
            let status = member.target().and_then(|target| self.prober.get(&target));
            let told = state.numbers.members.get(&member.address);
            let up = status.as_ref().and_then(|status| match status.state {
                State::Unknown => None,
                known => Some(known == State::Up),
            });
            let checked = status.as_ref().and_then(|status| {
                let history = state.history.get(&member.address)?;
                error_rate(history, (status.checks, status.checks_failed))
            });
            let took = status.as_ref().and_then(|status| status.last_duration);
            MemberReport {
                address: member.address,
                // What the operator's own sources say goes before what the checks guess.
                up: told.and_then(|told| told.up).or(up),
                error_rate: told.and_then(|told| told.error_rate).or(checked),
                latency_us: told
                    .and_then(|told| told.latency_us)
                    .or(took.map(|took| took.as_micros() as u64)),
                sessions: told.and_then(|told| told.sessions),
            }
        });
        let age = state
            .read_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        Report {
            version: VERSION,
            site: self.config.site.clone(),
            sequence,
            sent_at_ms: Some(unix_ms()),
            members: members.collect(),
            totals: Totals {
                sessions: state.numbers.sessions,
                bandwidth_bps: state.numbers.bandwidth,
                connections_per_second: state.numbers.connections,
                age_ms: age.as_millis() as u64,
            },
            ..Report::default()
        }
    }
}

/// Share of the checks that failed since the oldest reading that is remembered; `None` while there was none.
fn error_rate(history: &VecDeque<(u64, u64)>, now: (u64, u64)) -> Option<f64> {
    // Counters of a check that was added anew begin at 0 again.
    let from = history
        .front()
        .copied()
        .filter(|from| from.0 < now.0)
        .unwrap_or_default();
    let (checks, failed) = (now.0 - from.0, now.1.saturating_sub(from.1));
    (checks > 0).then(|| failed as f64 / checks as f64)
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

/// Tells one appliance.
pub(super) struct Reporter {
    appliance: String,
    link: Link,
    site: std::sync::Arc<Site>,
    measurer: Option<Measurer>,
    sequence: u64,
    /// Prefixes that this appliance asks about, and since when it knows the newest result.
    asked: HashMap<IpNet, Option<Instant>>,
    failures: u32,
}

impl Reporter {
    pub(super) fn new(
        appliance: String,
        link: Link,
        site: std::sync::Arc<Site>,
        measurer: Option<Measurer>,
    ) -> Self {
        Self {
            appliance,
            link,
            site,
            measurer,
            sequence: 0,
            asked: HashMap::new(),
            failures: 0,
        }
    }

    /// Reports for ever.
    pub(super) async fn run(mut self) {
        let mut hurry = self.site.hurry.subscribe();
        loop {
            let start = Instant::now();
            hurry.mark_unchanged();
            let wait = match self.report(start).await {
                Some(answer) => {
                    let asked = Duration::from_millis(answer.interval_ms);
                    let interval = asked.clamp(INTERVAL_MIN, INTERVAL_MAX);
                    self.site
                        .interval_ms
                        .store(interval.as_millis() as u64, Ordering::Relaxed);
                    self.measure(answer.measure, start);
                    interval
                }
                None => backoff(self.failures),
            };
            let reached = self.failures == 0;
            let next = tokio::time::Instant::from_std(start + wait);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                _ = hurry.changed(), if reached => tokio::time::sleep(GAP_MIN).await,
            }
        }
    }

    /// Sends one report; `None` when it was not taken.
    async fn report(&mut self, now: Instant) -> Option<Answer> {
        // Rises also when the clock is set back while this runs.
        self.sequence = unix_ms().max(self.sequence + 1);
        let mut report = self.site.report(self.sequence, now);
        let told = self.add_rtts(&mut report, now);
        match self.link.send(&report).await {
            Ok(answer) => {
                if std::mem::take(&mut self.failures) > 0 {
                    tracing::info!(appliance = self.appliance, "reports are taken again");
                }
                tracing::debug!(
                    appliance = self.appliance,
                    sequence = self.sequence,
                    "report taken"
                );
                for (prefix, at) in told {
                    self.asked.insert(prefix, Some(at));
                }
                Some(answer)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let again_in = backoff(self.failures);
                tracing::warn!(appliance = self.appliance, %error, ?again_in, "report not taken");
                None
            }
        }
    }

    /// Puts what was found since into the report; which results these are.
    fn add_rtts(&self, report: &mut Report, now: Instant) -> Vec<(IpNet, Instant)> {
        let mut told = Vec::new();
        let Some(measurer) = &self.measurer else {
            return told;
        };
        for (prefix, known) in &self.asked {
            if told.len() >= ITEMS_MAX {
                break;
            }
            let Some(found) = measurer.found(prefix, *known) else {
                continue;
            };
            told.push((*prefix, found.at));
            match found.rtt {
                Some((rtt, method, samples)) => report.rtts.push(Rtt {
                    prefix: *prefix,
                    rtt_us: rtt.as_micros() as u64,
                    method,
                    samples,
                    age_ms: now.saturating_duration_since(found.at).as_millis() as u64,
                }),
                None => report.silent_prefixes.push(*prefix),
            }
        }
        told
    }

    fn measure(&mut self, wanted: Vec<Wanted>, now: Instant) {
        let Some(measurer) = &self.measurer else { return };
        // What was told and is not asked about again is not kept for ever.
        if self.asked.len() > ITEMS_MAX * 2 {
            self.asked.retain(|_, told| told.is_none());
        }
        for wanted in wanted.into_iter().take(ITEMS_MAX) {
            self.asked.entry(wanted.prefix).or_default();
            measurer.ask(wanted, now);
        }
    }
}

/// How long to wait after so many failures in a row: up to a fifth less, so that agents of a site do not come at once.
fn backoff(failures: u32) -> Duration {
    let whole = BACKOFF
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(BACKOFF_MAX);
    whole.mul_f64(1.0 - 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let seconds = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0];
        for (failures, longest) in (1..).zip(seconds) {
            let wait = backoff(failures).as_secs_f64();
            assert!((longest * 0.8..=longest).contains(&wait), "{failures}: {wait}");
        }
        assert!(backoff(u32::MAX) <= BACKOFF_MAX);
    }

    #[test]
    fn the_error_rate_is_that_of_the_last_checks() {
        let history = VecDeque::from([(100, 50), (110, 53)]);
        assert_eq!(error_rate(&history, (120, 56)), Some(0.3));
        assert_eq!(error_rate(&VecDeque::new(), (4, 1)), Some(0.25));
        assert_eq!(error_rate(&VecDeque::from([(0, 0)]), (0, 0)), None);
        assert_eq!(
            error_rate(&history, (2, 1)),
            Some(0.5),
            "counters that began again"
        );
    }
}
