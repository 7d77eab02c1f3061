//! Measures round-trip times to the prefixes that appliances ask about. One task takes them from a bounded queue and
//! measures some side by side, never more probes a second than configured; the results are kept until they are
//! reported, the least recently measured going first.
//!
//! A prefix is probed at the address that the appliance heard of in it, else at its first host. ICMP first; when that
//! gets no reply, TCP handshakes with ports that resolvers and servers have open or closed, but rarely silent.

use super::config::Rtt as Settings;
use super::ping::{self, Reply};
use crate::reports::report::{Method, Wanted};
use ipnet::IpNet;
use lru::LruCache;
use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Prefixes that wait; more are not taken, and asked for again by the appliance.
const QUEUE_MAX: usize = 4096;
/// Prefixes measured side by side: while one waits for a reply that does not come, others are measured.
const SIDE_BY_SIDE: usize = 32;
/// Results that are kept.
const RESULTS_MAX: NonZeroUsize = NonZeroUsize::new(8192).expect("not zero");
/// A prefix is not measured again within this time, whoever asks: several appliances ask for the same.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Probes without any reply before the next way is tried.
const TRIES: u32 = 2;

/// What was found of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The median, how, and of how many samples; `None`: no reply.
    pub(super) rtt: Option<(Duration, Method, u32)>,
    /// When.
    pub(super) at: Instant,
}

/// Takes prefixes and keeps results. Cheap to clone.
#[derive(Clone)]
pub(super) struct Measurer {
    queue: mpsc::Sender<Wanted>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    results: LruCache<IpNet, Found>,
    /// Waiting or being measured.
    pending: HashSet<IpNet>,
}

impl Measurer {
    /// Starts the task, in the current runtime.
    pub(super) fn start(settings: Settings) -> Self {
        let (queue, wanted) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Mutex::new(Shared {
            results: LruCache::new(RESULTS_MAX),
            pending: HashSet::new(),
        }));
        tokio::spawn(work(settings, wanted, shared.clone()));
        Self { queue, shared }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Has a prefix measured, unless it waits already or was measured just now.
    pub(super) fn ask(&self, wanted: Wanted, now: Instant) {
        let mut shared = self.lock();
        let known = shared.results.peek(&wanted.prefix);
        let fresh = known.is_some_and(|found| now.saturating_duration_since(found.at) < AGAIN_AFTER);
        let prefix = wanted.prefix;
        if fresh || !shared.pending.insert(prefix) {
            return;
        }
        if self.queue.try_send(wanted).is_err() {
            shared.pending.remove(&prefix);
        }
    }

    /// What was found of `prefix` after `since`.
    pub(super) fn found(&self, prefix: &IpNet, since: Option<Instant>) -> Option<Found> {
        let found = *self.lock().results.peek(prefix)?;
        since.is_none_or(|since| found.at > since).then_some(found)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn work(settings: Settings, mut wanted: mpsc::Receiver<Wanted>, shared: Arc<Mutex<Shared>>) {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / settings.per_second.max(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pace = Arc::new(tokio::sync::Mutex::new(pace));
    let settings = Arc::new(settings);
    let mut tasks = JoinSet::new();
    while let Some(next) = wanted.recv().await {
        while tasks.len() >= SIDE_BY_SIDE {
            tasks.join_next().await;
        }
        while tasks.try_join_next().is_some() {}
        let (settings, shared, pace) = (settings.clone(), shared.clone(), pace.clone());
        tasks.spawn(async move {
            let rtt = measure(&settings, &next, &pace).await;
            tracing::debug!(prefix = %next.prefix, ?rtt, "measured");
            let mut shared = lock(&shared);
            shared.pending.remove(&next.prefix);
            let at = Instant::now();
            shared.results.push(next.prefix, Found { rtt, at });
        });
    }
}

type Pace = tokio::sync::Mutex<tokio::time::Interval>;

/// Where a prefix is probed: the address that was heard of, then its first host.
fn targets(wanted: &Wanted) -> Vec<IpAddr> {
    let first = match wanted.prefix {
        IpNet::V4(net) if net.prefix_len() < 31 => IpAddr::from((u32::from(net.network()) + 1).to_be_bytes()),
        IpNet::V6(net) if net.prefix_len() < 127 => {
            IpAddr::from((u128::from(net.network()) + 1).to_be_bytes())
        }
        whole => whole.network(),
    };
    let heard = wanted.address.filter(|address| wanted.prefix.contains(address));
    let mut targets: Vec<IpAddr> = heard
        .into_iter()
        .chain([first])
        .filter(|address| may_probe(*address))
        .collect();
    targets.dedup();
    targets
}

/// Whether an appliance may have this address probed: hosts of a network, not this host, not groups, not the link.
fn may_probe(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

async fn measure(settings: &Settings, wanted: &Wanted, pace: &Pace) -> Option<(Duration, Method, u32)> {
    for target in targets(wanted) {
        let icmp = sample(settings, pace, || ping::echo(target, settings.timeout)).await;
        if let Some((median, samples)) = icmp {
            return Some((median, Method::Icmp, samples));
        }
        for &port in &settings.tcp_ports {
            let tcp = sample(settings, pace, || ping::handshake(target, port, settings.timeout)).await;
            if let Some((median, samples)) = tcp {
                return Some((median, Method::Tcp, samples));
            }
        }
    }
    None
}

/// The median of some probes and how many it is of; given up early when none gets a reply.
async fn sample<F: Future<Output = Reply>>(
    settings: &Settings,
    pace: &Pace,
    probe: impl Fn() -> F,
) -> Option<(Duration, u32)> {
    let mut replies = Vec::new();
    for sent in 0..settings.samples {
        if sent >= TRIES && replies.is_empty() {
            break;
        }
        pace.lock().await.tick().await;
        match probe().await {
            Reply::After(after) => replies.push(after),
            Reply::None => {}
            Reply::Cannot(error) => {
                tracing::debug!(%error, "a probe cannot be sent");
                break;
            }
        }
    }
    Some((median(&mut replies)?, replies.len() as u32))
}

/// The middle one; of an even number the mean of the two in the middle.
fn median(list: &mut [Duration]) -> Option<Duration> {
    list.sort_unstable();
    let half = list.len() / 2;
    let upper = *list.get(half)?;
    if list.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *list.get(half.checked_sub(1)?)?;
    Some((lower + upper) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(list: &[u64]) -> Option<u128> {
        let mut list: Vec<Duration> = list.iter().map(|&ms| Duration::from_millis(ms)).collect();
        median(&mut list).map(|median| median.as_millis())
    }

    #[test]
    fn medians() {
        assert_eq!(
            (ms(&[]), ms(&[7]), ms(&[30, 200, 31]), ms(&[40, 10])),
            (None, Some(7), Some(31), Some(25))
        );
    }

    fn shown(prefix: &str, address: Option<&str>) -> Vec<String> {
        let wanted = Wanted {
            prefix: prefix.parse().expect("a prefix"),
            address: address.map(|text| text.parse().expect("an address")),
        };
        targets(&wanted).iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn a_prefix_is_probed_where_somebody_was_heard_and_never_at_home() {
        assert_eq!(shown("198.51.100.0/24", None), ["198.51.100.1"]);
        assert_eq!(
            shown("198.51.100.0/24", Some("198.51.100.53")),
            ["198.51.100.53", "198.51.100.1"]
        );
        assert_eq!(shown("198.51.100.0/24", Some("203.0.113.9")), ["198.51.100.1"]);
        assert_eq!(shown("198.51.100.7/32", Some("198.51.100.7")), ["198.51.100.7"]);
        assert_eq!(shown("2001:db8::/48", None), ["2001:db8::1"]);
        for home in [
            "127.0.0.0/8",
            "0.0.0.0/8",
            "224.0.0.0/4",
            "169.254.0.0/16",
            "::1/128",
            "fe80::/64",
            "::/0",
        ] {
            assert_eq!(shown(home, None), [""; 0], "{home}");
        }
    }

    #[tokio::test]
    async fn what_waits_or_was_just_measured_is_not_taken_twice() {
        let (queue, mut receiver) = mpsc::channel(2);
        let shared = Shared {
            results: LruCache::new(RESULTS_MAX),
            pending: HashSet::new(),
        };
        let measurer = Measurer {
            queue,
            shared: Arc::new(Mutex::new(shared)),
        };
        let now = Instant::now();
        let ask = |prefix: &str, now| {
            let prefix = prefix.parse().expect("a prefix");
            measurer.ask(
                Wanted {
                    prefix,
                    address: None,
                },
                now,
            );
        };
        ask("198.51.100.0/24", now);
        ask("198.51.100.0/24", now);
        let first = receiver.try_recv().expect("queued").prefix;
        assert!(receiver.try_recv().is_err());
        let found = Found { rtt: None, at: now };
        measurer.lock().results.push(first, found);
        measurer.lock().pending.clear();
        ask("198.51.100.0/24", now + AGAIN_AFTER - Duration::from_millis(1));
        assert!(receiver.try_recv().is_err());
        ask("198.51.100.0/24", now + AGAIN_AFTER);
        assert!(receiver.try_recv().is_ok());
        assert_eq!(measurer.found(&first, None), Some(found));
        assert_eq!(measurer.found(&first, Some(now)), None);
        // A full queue forgets what it could not take, so that it can be asked for again.
        for third in 0..3 {
            ask(&format!("10.0.{third}.0/24"), now);
        }
        assert_eq!(measurer.lock().pending.len(), 3, "the first one and two of three");
    }
}
