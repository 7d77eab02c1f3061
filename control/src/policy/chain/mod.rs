//! The selection chain: from metrics in order to tiers of sites for one client class.
//!
//! Each metric drops what is worse by its rule; what is left answers. When that dies, the chain is run again
//! over the rest: that is the next tier. Health masks members in every tier at once, in the worker; sites that are known
//! to be down when a plan is made stand behind all others in it, so that nobody is compared with them.
//! Metrics before `health` narrow for good: what they drop is not a fallback.
//!
//! Three laws hold for all metrics and stand in `apply` alone: one that would drop every site drops none; a
//! single site that is left is not asked further; what is not known drops a site only by the metric's stated rule.
//! Each metric has its file: its parameters, its rule, and how it is told (`explain`).

pub mod available_sessions;
pub mod capacity;
pub mod connection_load;
#[cfg(test)]
mod examples;
pub mod facts;
pub mod geo;
mod isp;
pub mod latency;
pub mod least_selected;
mod needs;
mod parameters;
pub mod preference;
#[cfg(test)]
mod reference;
mod sites;
pub mod tell;
#[cfg(test)]
mod tests;

use crate::config::model::{Config, Metric, Service};
pub use facts::{ClientClass, Continent, Country, Evidence, Facts, Location, SiteFacts, Source};
pub use needs::Needs;
pub use parameters::{NoData, Parameters, Permille};
pub use sites::Sites;

/// Metrics in order, with what they go by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The metrics.
    pub metrics: Vec<Metric>,
    /// Their parameters; those of metrics that are not in the chain are the default.
    pub parameters: Parameters,
}

impl Chain {
    /// The chain of a service.
    pub fn of(service: &Service) -> Self {
        Self {
            metrics: service.chain.clone(),
            parameters: service.parameters.used_by(&service.chain),
        }
    }

    /// Whether a metric is in it.
    pub fn has(&self, metric: Metric) -> bool {
        self.metrics.contains(&metric)
    }

    /// The share of the queries that goes by [`rank_explore`], if any does.
    pub fn explores(&self) -> Option<Permille> {
        let latency = &self.parameters.latency;
        (self.has(Metric::Latency) && latency.explores()).then_some(latency.explore)
    }
}

/// A site as a chain sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Index in the configuration's sites.
    pub site: usize,
    /// ISP that it stands in: index in the configuration's ISPs.
    pub isp: Option<usize>,
    /// Preference for the service in question.
    pub preference: u8,
    /// Preferences for some clients, over that.
    pub bound: Vec<preference::Bound>,
    /// Country that it stands in.
    pub country: Option<Country>,
    /// Continent that it stands on.
    pub continent: Option<Continent>,
    /// Where it is.
    pub location: Option<Location>,
    /// How much nearer it is to seem, -99 to 99.
    pub bias: i8,
    /// Named clients that it is the place for: indices in the configuration's.
    pub serves: Vec<u32>,
    /// What it can do.
    pub limits: capacity::Limits,
    /// New connections a second that are too many.
    pub connections_max: Option<u64>,
}

impl Candidate {
    /// A site of the configuration, for a service.
    pub fn of(config: &Config, service: &Service, site: usize) -> Self {
        let own = &config.sites[site];
        let given = service.preference.iter().find(|(s, _)| *s == site);
        let degrees = |value: f64| (value * 10_000.0).round() as i32;
        Self {
            site,
            isp: own.isp,
            preference: given.map_or(own.preference, |(_, p)| *p),
            bound: service
                .prefer
                .iter()
                .filter(|p| p.site == site)
                .map(|p| p.bound.clone())
                .collect(),
            country: own.country,
            continent: own.continent,
            location: own.location.map(|(latitude, longitude)| Location {
                latitude: degrees(latitude),
                longitude: degrees(longitude),
            }),
            bias: own.bias,
            serves: own.serves.clone(),
            limits: capacity::Limits {
                sessions: own.sessions_max,
                bandwidth_bps: own.bandwidth_max_bps,
            },
            connections_max: own.connections_max,
        }
    }
}

/// What a metric is asked: about these sites, for this client, as things stand.
#[derive(Clone, Copy)]
struct Ask<'a> {
    chain: &'a Chain,
    all: &'a [Candidate],
    client: &'a ClientClass,
    facts: &'a Facts,
    /// Sites without a member that is up.
    down: Sites,
    /// For the plan that explores.
    explore: bool,
}

impl<'a> Ask<'a> {
    fn site(&self, i: u8) -> &'a Candidate {
        &self.all[usize::from(i)]
    }

    fn facts_of(&self, i: u8) -> &'a SiteFacts {
        const UNKNOWN: &SiteFacts = &SiteFacts {
            sessions: None,
            bandwidth_bps: None,
            connections_per_second: None,
            silent: false,
        };
        self.facts.sites.get(self.site(i).site).unwrap_or(UNKNOWN)
    }

    /// Sites that the chain considers: all but those whose preference is 0.
    fn considered(&self) -> Sites {
        let all = Sites::first(self.all.len());
        if !self.chain.has(Metric::Preference) {
            return all;
        }
        all.filter(|i| self.site(i).preference_for(self.client) > 0)
    }

    /// Applies one metric: what stays of `left`. Only health can leave nothing.
    fn apply(&self, metric: Metric, left: Sites, up: &dyn Fn(u8) -> bool) -> Sites {
        if metric == Metric::Health {
            return left.filter(up);
        }
        if left.len() < 2 {
            return left;
        }
        let kept = self.judge(metric, left, up);
        if kept.is_empty() { left } else { kept }
    }

    /// What a metric's own rule leaves of `left`.
    fn judge(&self, metric: Metric, left: Sites, up: &dyn Fn(u8) -> bool) -> Sites {
        match metric {
            Metric::Health => left.filter(up),
            Metric::Capacity => capacity::keep(self, left),
            Metric::Isp => isp::keep(self, left),
            Metric::Latency if self.explore => latency::explore(self, left),
            Metric::Latency => latency::keep(self, left),
            Metric::Geo => geo::keep(self, left),
            Metric::ConnectionLoad => connection_load::keep(self, left),
            Metric::AvailableSessions => available_sessions::keep(self, left),
            Metric::Preference => preference::keep(self, left),
            // The worker draws by them.
            Metric::LeastSelected | Metric::Static => left,
        }
    }

    /// Runs metrics in order over `left`, all sites up.
    fn run(&self, metrics: &[Metric], left: Sites) -> Sites {
        metrics
            .iter()
            .fold(left, |left, &metric| self.apply(metric, left, &|_| true))
    }

    fn tiers(&self) -> Vec<Vec<u8>> {
        // What stands before health narrows once and for all; without health everything is a fallback.
        let metrics = &self.chain.metrics;
        let health = metrics.iter().position(|m| *m == Metric::Health);
        let (before, after) = metrics.split_at(health.unwrap_or(0));
        let considered = self.run(before, self.considered());
        let down = match health {
            Some(_) => considered.filter(|i| self.down.has(i)),
            None => Sites::default(),
        };
        let mut tiers = Vec::new();
        for mut rest in [considered.without(down), down] {
            while !rest.is_empty() {
                let tier = self.run(after, rest);
                rest = rest.without(tier);
                tiers.push(tier.iter().collect());
            }
        }
        tiers
    }
}

/// One step of an evaluation, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The metric.
    pub metric: Metric,
    /// Candidates before it.
    pub before: Sites,
    /// Candidates after it.
    pub after: Sites,
}

/// The chain as it reads: each metric in turn drops sites, health those that are not `up`. For `explain`.
pub fn evaluate(
    chain: &Chain,
    candidates: &[Candidate],
    client: &ClientClass,
    facts: &Facts,
    up: &dyn Fn(u8) -> bool,
) -> Vec<Step> {
    let ask = Ask {
        chain,
        all: candidates,
        client,
        facts,
        down: Sites::default(),
        explore: false,
    };
    let mut left = ask.considered();
    let step = |&metric: &Metric| {
        let before = left;
        left = ask.apply(metric, left, up);
        Step {
            metric,
            before,
            after: left,
        }
    };
    chain.metrics.iter().map(step).collect()
}

/// Ranks sites for a class: tiers of indices into `candidates` (64 at most), best first; those of sites that are `down`
/// behind all others, if the chain looks at health. Sites whose preference is 0 are in none.
pub fn rank(
    chain: &Chain,
    candidates: &[Candidate],
    client: &ClientClass,
    facts: &Facts,
    down: Sites,
) -> Vec<Vec<u8>> {
    Ask {
        chain,
        all: candidates,
        client,
        facts,
        down,
        explore: false,
    }
    .tiers()
}

/// As [`rank`], for the share of the queries that explores ([`Chain::explores`]): `latency` does not drop what is worse
/// but prefers what was never measured, or not for longest.
pub fn rank_explore(
    chain: &Chain,
    candidates: &[Candidate],
    client: &ClientClass,
    facts: &Facts,
    down: Sites,
) -> Vec<Vec<u8>> {
    Ask {
        chain,
        all: candidates,
        client,
        facts,
        down,
        explore: true,
    }
    .tiers()
}
