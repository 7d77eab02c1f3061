//! Keeps answers from swinging when load follows them: what the chain is told of the sites that some clients go to.
//!
//! A site gets faster when its clients leave, and the one that they go to gets slower: whoever goes by the newest figures
//! alone sends them back and forth for ever. The rule, for one group of clients:
//!
//! * The *leader* is the best site. Another takes its place when it is better by more than the tolerance, which is the narrowest of
//!   the services. Sites within the tolerance of the leader are *in*, the others *out*. Bad news counts at once.
//! * A site that was out and comes in is *shared*: for the time of the hold it counts the same as the leader, whatever is measured, since
//!   half of the load may be what each is good for. That ends early when it gets worse by four tolerances.
//! * A leader that was *left* cannot lead again within the hold, however good it looks without its clients: it is shared at best. It
//!   can when the one that leads now gets worse by four tolerances; and when, after the time that clients need to move, sharing
//!   has not brought the two nearer by half: then load is not the reason.
//! * A hold that begins within twice the last one after the last change is twice as long as that, up to an hour.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The longest hold.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Tolerances by which a site may get worse while it is shared.
const PATIENCE: u32 = 4;

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
    /// By how much others may be worse than `best`, for the service that takes it most exactly.
    fn tolerance(&self, best: Duration) -> Duration {
        let over = |&(permille, absolute): &(u32, Duration)| (best * permille / 1000).max(absolute);
        self.tolerances.iter().map(over).min().unwrap_or_default()
    }

    fn is_within(&self, value: Duration, best: Duration, tolerances: u32) -> bool {
        value <= best.saturating_add(self.tolerance(best) * tolerances)
    }
}

/// Why a site is told otherwise than measured: it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// When that ends at the latest.
    pub(super) until: Instant,
}

/// A site with what the chain is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told<S> {
    pub(super) site: S,
    pub(super) value: Duration,
    /// `None`: as measured.
    pub(super) shared: Option<Shared>,
}

#[derive(Clone, Copy, Debug)]
struct Sharing {
    since: Instant,
    until: Instant,
    hold: Duration,
    /// What the leader was when it began.
    leads: Duration,
    /// By how much the site was better than the leader at most.
    gap: Duration,
    /// Of a leader that was left.
    of_left: bool,
}

/// A site that does not lead.
#[derive(Clone, Copy, Debug)]
struct Follower {
    is_in: bool,
    sharing: Option<Sharing>,
    /// It led, and cannot lead again until then; and the hold that it was.
    left: Option<(Instant, Duration)>,
}

impl Follower {
    /// Ends what is over at `now`.
    fn review(&mut self, value: Duration, leads: Duration, rules: &Rules, now: Instant) {
        self.left = self.left.filter(|(until, _)| *until > now);
        let Some(sharing) = &mut self.sharing else { return };
        let gap = leads.saturating_sub(value);
        sharing.gap = sharing.gap.max(gap);
        let tried = now.saturating_duration_since(sharing.since) >= rules.trial.max(sharing.hold / 2);
        let no_help = tried && !rules.is_within(leads, value, 1) && gap * 2 > sharing.gap;
        if no_help || !rules.is_within(leads, sharing.leads, PATIENCE) {
            self.left = None;
        }
        if sharing.until <= now || !rules.is_within(value, leads, PATIENCE) {
            self.sharing = None;
        }
    }
}

/// The state of one group of clients.
#[derive(Debug)]
pub(super) struct Group<S> {
    leader: Option<S>,
    followers: HashMap<S, Follower>,
    /// The last hold, and when the last change was.
    last: Option<(Duration, Instant)>,
    changes: u64,
}

impl<S> Default for Group<S> {
    fn default() -> Self {
        Self {
            leader: None,
            followers: HashMap::new(),
            last: None,
            changes: 0,
        }
    }
}

impl<S: Copy + Eq + Hash> Group<S> {
    /// How often another site took the lead.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// What the chain is told of the sites measured, in their order.
    pub(super) fn tell(&mut self, measured: &[(S, Duration)], rules: &Rules, now: Instant) -> Vec<Told<S>> {
        if rules.hold.is_zero() {
            self.leader = None;
            self.followers.clear();
        } else {
            self.judge(measured, rules, now);
        }
        let leads = self.leader.and_then(|leader| value(measured, leader));
        let told = |&(site, value): &(S, Duration)| {
            let sharing = self.followers.get(&site).and_then(|follower| follower.sharing);
            match sharing.zip(leads) {
                Some((sharing, leads)) => Told {
                    site,
                    value: leads,
                    shared: Some(Shared { until: sharing.until }),
                },
                None => Told {
                    site,
                    value,
                    shared: None,
                },
            }
        };
        measured.iter().map(told).collect()
    }

    fn judge(&mut self, measured: &[(S, Duration)], rules: &Rules, now: Instant) {
        self.followers.retain(|site, _| value(measured, *site).is_some());
        let best = |of: &dyn Fn(S) -> bool| {
            let free = measured.iter().filter(|(site, _)| of(*site));
            free.min_by_key(|(_, value)| *value).copied()
        };
        let known = self
            .leader
            .and_then(|leader| Some((leader, value(measured, leader)?)));
        let Some((leader, leads)) = known.or_else(|| best(&|_| true)) else {
            self.leader = None;
            return;
        };
        self.leader = Some(leader);
        self.followers.remove(&leader);
        for (site, follower) in &mut self.followers {
            if let Some(value) = value(measured, *site) {
                follower.review(value, leads, rules, now);
            }
        }
        let may_lead = |site| site != leader && self.followers.get(&site).is_none_or(|f| f.left.is_none());
        let better = best(&may_lead).filter(|&(_, value)| !rules.is_within(leads, value, 1));
        let (leader, leads) = match better {
            // Nobody was sent away for one that was never measured before.
            Some((site, value)) if !self.followers.contains_key(&site) => {
                self.leader = Some(site);
                (site, value)
            }
            Some((site, value)) => {
                self.change(leader, site, rules, now);
                (site, value)
            }
            None => (leader, leads),
        };
        for &(site, value) in measured.iter().filter(|(site, _)| *site != leader) {
            self.follow(site, value, leads, rules, now);
        }
    }

    /// Notes whether a site comes in or goes out.
    fn follow(&mut self, site: S, value: Duration, leads: Duration, rules: &Rules, now: Instant) {
        let within = rules.is_within(value, leads, 1);
        let mut follower = self.followers.get(&site).copied().unwrap_or(Follower {
            is_in: within,
            sharing: None,
            left: None,
        });
        if follower.sharing.is_none() && within != follower.is_in {
            if within {
                // Of one that was left the hold has begun already.
                let of_left = follower.left.is_some();
                let (until, hold) = follower.left.unwrap_or_else(|| self.hold(rules, now));
                follower.sharing = Some(Sharing {
                    since: now,
                    until,
                    hold,
                    leads,
                    gap: leads.saturating_sub(value),
                    of_left,
                });
            } else if let Some((_, at)) = &mut self.last {
                *at = now;
            }
            follower.is_in = within;
        }
        self.followers.insert(site, follower);
    }

    /// `site` leads from now on.
    fn change(&mut self, leader: S, site: S, rules: &Rules, now: Instant) {
        self.changes += 1;
        self.leader = Some(site);
        // One that was out may come in a moment before it leads: that is one change.
        let shared = self.followers.remove(&site).and_then(|follower| follower.sharing);
        let left = match shared.filter(|sharing| !sharing.of_left) {
            Some(sharing) => {
                self.last = Some((sharing.hold, now));
                (now + sharing.hold, sharing.hold)
            }
            None => self.hold(rules, now),
        };
        // Sharing was with the leader that was.
        for follower in self.followers.values_mut() {
            (follower.is_in, follower.sharing) = (false, None);
        }
        self.followers.insert(
            leader,
            Follower {
                is_in: false,
                sharing: None,
                left: Some(left),
            },
        );
    }

    /// A hold that begins now: when it ends, and how long it is.
    fn hold(&mut self, rules: &Rules, now: Instant) -> (Instant, Duration) {
        let hold = match self.last {
            Some((hold, at)) if now.saturating_duration_since(at) < hold * 2 => {
                (hold * 2).min(HOLD_MAX.max(rules.hold))
            }
            _ => rules.hold,
        };
        self.last = Some((hold, now));
        (now + hold, hold)
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
