//! What a policy depends on: which attributes of a client class and which facts. The compiler asks, to compile a cell
//! once for all classes that are the same to it, and again only when something that it goes by has changed.

use super::{Candidate, Chain, ClientClass, geo::Level};
use crate::config::model::Metric;

/// What a policy depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs {
    /// The class's ISP.
    pub isp: bool,
    /// Its country.
    pub country: bool,
    /// Its continent.
    pub continent: bool,
    /// Its place.
    pub location: bool,
    /// The named prefixes that hold it.
    pub named: bool,
    /// The prefix that RTTs are measured to.
    pub measured: bool,
    /// Sessions of its sites.
    pub sessions: bool,
    /// Bandwidth of its sites.
    pub bandwidth: bool,
    /// New connections of its sites.
    pub connections: bool,
    /// Evidence of the class at its sites.
    pub latency: bool,
    /// Which sites are down: a metric compares sites with the best of them, and the chain looks at health. In other chains a
    /// site that is down holds back nobody, wherever it stands.
    pub down: bool,
}

impl Needs {
    /// What a chain over these sites depends on.
    pub fn of(chain: &Chain, candidates: &[Candidate]) -> Self {
        let mut needs = Self::default();
        // One site is all there is to choose, unless it can be out.
        let several = candidates.len() > 1;
        let any = |what: fn(&Candidate) -> bool| candidates.iter().any(what);
        for metric in &chain.metrics {
            let compares = matches!(metric, Metric::Latency | Metric::Geo | Metric::AvailableSessions);
            needs.down |= several && compares && chain.has(Metric::Health);
            match metric {
                Metric::Preference => {
                    for bound in candidates.iter().flat_map(|c| &c.bound) {
                        needs.isp |= bound.isp.is_some();
                        needs.country |= bound.country.is_some();
                        needs.named |= bound.named.is_some();
                    }
                }
                _ if !several => {}
                Metric::Isp => needs.isp |= any(|c| c.isp.is_some()),
                Metric::Capacity => {
                    needs.sessions |= any(|c| c.limits.sessions.is_some());
                    needs.bandwidth |= any(|c| c.limits.bandwidth_bps.is_some());
                }
                Metric::AvailableSessions => needs.sessions |= any(|c| c.limits.sessions.is_some()),
                Metric::ConnectionLoad => {
                    let limit = chain.parameters.connection_load.limit.is_some();
                    needs.connections |= limit || any(|c| c.connections_max.is_some());
                }
                Metric::Latency => {
                    needs.latency = true;
                    needs.isp = true;
                    needs.country = true;
                    needs.measured = true;
                }
                Metric::Geo => {
                    for level in &chain.parameters.geo.by {
                        match level {
                            Level::Clients => needs.named |= any(|c| !c.serves.is_empty()),
                            Level::Country => needs.country |= any(|c| c.country.is_some()),
                            Level::Continent => needs.continent |= any(|c| c.continent.is_some()),
                            Level::Distance => needs.location |= any(|c| c.location.is_some()),
                        }
                    }
                }
                Metric::Health | Metric::LeastSelected | Metric::Static => {}
            }
        }
        needs
    }

    /// Whether cells differ by class.
    pub fn by_class(&self) -> bool {
        self.isp || self.country || self.continent || self.location || self.named || self.measured
    }

    /// Whether cells change by what sites report.
    pub fn by_site_facts(&self) -> bool {
        self.sessions || self.bandwidth || self.connections
    }

    /// The class as the policy sees it: classes that are equal then have equal cells.
    pub fn seen(&self, class: &ClientClass) -> ClientClass {
        ClientClass {
            isp: class.isp.filter(|_| self.isp),
            country: class.country.filter(|_| self.country),
            continent: class.continent.filter(|_| self.continent),
            location: class.location.filter(|_| self.location),
            named: if self.named {
                class.named.clone()
            } else {
                Vec::new()
            },
            measured: class.measured.filter(|_| self.measured),
        }
    }
}
