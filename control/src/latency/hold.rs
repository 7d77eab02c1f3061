//! Keeps answers from swinging when load follows them: what the chain is told of the sites that some clients go to.
//!
//! A site gets faster when its clients leave, and the one that they go to gets slower: whoever goes by the newest figures
//! alone sends them back and forth for ever. The rule, for one group of clients:
//!
//! * The *leader* is the best site. Another takes its place only when it is better by more than the narrowest tolerance of
//!   the services. Bad news of the leader counts at once.
//! * The site that was *left* is held: for the time of the hold it counts as no better than the leader.
//! * If it would be better by more than the tolerance, clients are *shared*: both count the same, whatever is measured, since
//!   with half of the load on each it may be that each is good enough.
//! * Sharing ends when either is worse than what the leader was alone; and when, after the time that clients need to move, the leader
//!   is still more than half as far behind as it was alone: then load is not the reason, and the one that was left leads again.
//! * A leader that is left within twice the hold since the last change doubles the hold, up to an hour.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The longest hold.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(3600);

/// What the rule goes by.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// `hold`; zero: what is measured is what counts.
    pub(super) hold: Duration,
    /// How long sharing has at least to show that it helps: clients move, and figures follow, within that. Half of the hold
    /// where that is longer.
    pub(super) trial: Duration,
    /// Share of the best and time by which another may be worse, for each service; thousandths.
    pub(super) tolerances: Vec<(u32, Duration)>,
}

impl Rules {
    /// The worst that is as good as `best`, for the service that takes it most exactly.
    pub(super) fn limit(&self, best: Duration) -> Duration {
        let over = |&(permille, absolute): &(u32, Duration)| (best * permille / 1000).max(absolute);
        best.saturating_add(self.tolerances.iter().map(over).min().unwrap_or_default())
    }

    fn better(&self, one: Duration, other: Duration) -> bool {
        self.limit(one) < other
    }
}

/// Why a site is told otherwise than measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It was left a while ago, and until then counts as no better than the leader.
    Held {
        /// When the hold ends.
        until: Instant,
    },
    /// Clients are shared between it and the leader.
    Shared {
        /// When the hold ends.
        until: Instant,
    },
}

/// A site with what the chain is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told<S> {
    pub(super) site: S,
    pub(super) value: Duration,
    /// `None`: as measured.
    pub(super) why: Option<Why>,
}

#[derive(Clone, Copy, Debug)]
struct Sharing {
    since: Instant,
    /// What the leader was alone.
    alone: Duration,
    /// By how much the one that was left was better then.
    gap: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    hold: Duration,
    until: Instant,
    sharing: Option<Sharing>,
}

/// The state of one group of clients.
#[derive(Debug)]
pub(super) struct Group<S> {
    leader: Option<S>,
    left: HashMap<S, Left>,
    /// The hold of the last change, and when that was.
    last: Option<(Duration, Instant)>,
    changes: u64,
}

impl<S> Default for Group<S> {
    fn default() -> Self {
        Self {
            leader: None,
            left: HashMap::new(),
            last: None,
            changes: 0,
        }
    }
}

impl<S: Copy + Eq + Hash> Group<S> {
    /// What the chain is told of the sites measured, in their order.
    pub(super) fn tell(&mut self, measured: &[(S, Duration)], rules: &Rules, now: Instant) -> Vec<Told<S>> {
        if rules.hold.is_zero() {
            self.leader = None;
            self.left.clear();
        } else {
            self.judge(measured, rules, now);
        }
        let leads = self.leader.and_then(|leader| value(measured, leader));
        let told = |&(site, value): &(S, Duration)| match (self.left.get(&site), leads) {
            (Some(left), Some(leads)) if left.sharing.is_some() => Told {
                site,
                value: leads,
                why: Some(Why::Shared { until: left.until }),
            },
            (Some(left), Some(leads)) => Told {
                site,
                value: value.max(leads),
                why: (value < leads).then_some(Why::Held { until: left.until }),
            },
            _ => Told {
                site,
                value,
                why: None,
            },
        };
        measured.iter().map(told).collect()
    }

    /// How often another site took the lead.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn judge(&mut self, measured: &[(S, Duration)], rules: &Rules, now: Instant) {
        self.left
            .retain(|site, left| left.until > now && value(measured, *site).is_some());
        let best = |left: &HashMap<S, Left>| {
            let free = measured.iter().filter(|(site, _)| !left.contains_key(site));
            free.min_by_key(|(_, value)| *value).copied()
        };
        let Some((leader, leads)) = self
            .leader
            .and_then(|leader| Some((leader, value(measured, leader)?)))
            .or_else(|| best(&self.left))
            .or_else(|| {
                // All that are left were held: that is over.
                self.left.clear();
                best(&self.left)
            })
        else {
            self.leader = None;
            return;
        };
        self.leader = Some(leader);
        self.share(measured, leads, rules, now);
        let free = best(&self.left).filter(|&(site, value)| site != leader && rules.better(value, leads));
        if let Some((site, _)) = free {
            self.change(leader, site, rules, now);
        }
    }

    /// Begins and ends sharing between the leader and those that were left.
    fn share(&mut self, measured: &[(S, Duration)], leads: Duration, rules: &Rules, now: Instant) {
        let mut released = Vec::new();
        for (&site, left) in &mut self.left {
            let Some(value) = value(measured, site) else {
                continue;
            };
            let gap = leads.saturating_sub(value);
            let Some(sharing) = left.sharing else {
                if rules.better(value, leads) {
                    left.sharing = Some(Sharing {
                        since: now,
                        alone: leads,
                        gap,
                    });
                }
                continue;
            };
            let limit = rules.limit(sharing.alone);
            let trial = rules.trial.max(left.hold / 2);
            let tried = now.saturating_duration_since(sharing.since) >= trial;
            if leads > limit || (tried && rules.better(value, leads) && gap * 2 > sharing.gap) {
                released.push(site);
            } else if value > limit {
                left.sharing = None;
            }
        }
        for site in released {
            self.left.remove(&site);
        }
    }

    /// `site` leads from now on.
    fn change(&mut self, leader: S, site: S, rules: &Rules, now: Instant) {
        let hold = match self.last {
            Some((hold, at)) if now.saturating_duration_since(at) < hold * 2 => {
                (hold * 2).min(HOLD_MAX.max(rules.hold))
            }
            _ => rules.hold,
        };
        self.last = Some((hold, now));
        self.changes += 1;
        self.leader = Some(site);
        // Sharing was with the leader that was.
        self.left.values_mut().for_each(|left| left.sharing = None);
        self.left.insert(
            leader,
            Left {
                hold,
                until: now + hold,
                sharing: None,
            },
        );
    }
}

fn value<S: Eq>(measured: &[(S, Duration)], site: S) -> Option<Duration> {
    measured
        .iter()
        .find(|(known, _)| *known == site)
        .map(|(_, value)| *value)
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
