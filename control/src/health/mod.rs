//! Health: probes every member's target and tells which are up. Called by the appliance's run loop,
//! which hands in the targets of each configuration and turns the transitions into health words.
//!
//! * [`rise_fall`]: results in, state out; [`window`] and [`brownout`]: error rates; [`slow_start`],
//!   [`dampening`]: what becomes of a target that comes back; [`machine`]: all of them together; pure.
//! * [`schedule`]: when a target is probed next; pure.
//! * [`probe`]: one check over the network: TCP, HTTP, HTTPS, ICMP, UDP, DNS.
//! * [`prober`]: one task per target, the table of states, the watchdog.
//! * [`memory`]: what was known last, over restarts.

pub mod brownout;
pub mod dampening;
pub mod machine;
pub mod memory;
pub mod probe;
pub mod prober;
pub mod rise_fall;
pub mod schedule;
pub mod slow_start;
mod standing;
pub mod window;

pub use machine::Machine;
pub use memory::Memory;
pub use prober::{Prober, TargetStatus, Transition};
pub use rise_fall::{RiseFall, State};
pub use standing::Standing;

use crate::config::model::{Check, Config};
use std::collections::HashSet;
use std::net::IpAddr;

/// What one prober probes. Members with equal address and equal check share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetKey {
    /// The member's address.
    pub address: IpAddr,
    /// How it is checked.
    pub check: Check,
}

impl TargetKey {
    /// True when both try the same thing in the same place, perhaps at another pace: the state of
    /// one says what the state of the other would be.
    fn same_subject(&self, other: &Self) -> bool {
        let (a, b) = (&self.check, &other.check);
        self.address == other.address
            && (&a.kind, a.port, &a.interface, &a.netns) == (&b.kind, b.port, &b.interface, &b.netns)
    }
}

/// The targets of a configuration: one per distinct address and check. Services without a check have none.
pub fn targets(config: &Config) -> HashSet<TargetKey> {
    config
        .services
        .iter()
        .filter_map(|service| Some((service, service.check.as_ref()?)))
        .flat_map(|(service, check)| {
            service.members.iter().map(|member| TargetKey {
                address: member.address,
                check: check.clone(),
            })
        })
        .collect()
}
