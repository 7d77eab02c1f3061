//! What the metrics of a chain go by, and words that several of them share. Made by `config::selection`.

use super::{available_sessions, capacity, connection_load, geo, latency, least_selected};
use crate::config::model::Metric;
use std::fmt;

/// The parameters of all metrics. Equal ones make equal policies, so there are only integers here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Of `capacity`: the same for all services.
    pub capacity: capacity::Parameters,
    /// Of `latency`.
    pub latency: latency::Parameters,
    /// Of `geo`.
    pub geo: geo::Parameters,
    /// Of `connection-load`.
    pub connection_load: connection_load::Parameters,
    /// Of `available-sessions`.
    pub available_sessions: available_sessions::Parameters,
    /// Of `least-selected`.
    pub least_selected: least_selected::Parameters,
}

impl Parameters {
    /// Those of the metrics in `chain`; the rest as if never touched, so that they keep no policies apart.
    pub fn used_by(&self, chain: &[Metric]) -> Self {
        let mut used = Self::default();
        for metric in chain {
            match metric {
                Metric::Capacity => used.capacity = self.capacity.clone(),
                Metric::Latency => used.latency = self.latency.clone(),
                Metric::Geo => used.geo = self.geo.clone(),
                Metric::ConnectionLoad => used.connection_load = self.connection_load.clone(),
                Metric::AvailableSessions => used.available_sessions = self.available_sessions.clone(),
                Metric::LeastSelected => used.least_selected = self.least_selected.clone(),
                Metric::Health | Metric::Isp | Metric::Preference | Metric::Static => {}
            }
        }
        used
    }
}

/// A share in thousandths: "10%" is 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Permille(pub u32);

impl Permille {
    /// That share of `whole`, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        let part = whole as u128 * self.0 as u128 / 1000;
        if part > u64::MAX as u128 {
            u64::MAX
        } else {
            part as u64
        }
    }
}

impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, tenths) => write!(f, "{whole}.{tenths}%"),
        }
    }
}

/// What becomes of a site that lacks what others have: a reading, a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoData {
    /// It stays, unjudged.
    Keep,
    /// It drops out.
    Drop,
}
