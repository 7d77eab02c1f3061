//! The table of measured servers: every address that a service hands out, with its site. Called by the compiler.

use crate::config::latency::Latency;
use crate::config::model::Config;
use anyhow::{Context, Result};
use dataplane::flow::Span;
use dataplane::flow::estimate::Rules;
use dataplane::tables::servers::{Server, Servers, Watching};
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

/// A member's address is one server, whatever the number of services that hand it out; the first one's site counts.
pub(super) fn servers(config: &Config) -> Result<Servers> {
    let mut seen = HashSet::new();
    let members = config.services.iter().flat_map(|service| &service.members);
    let list = members
        .filter(|member| seen.insert(member.address))
        .map(|member| Server {
            address: member.address,
            len: match member.address {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            },
            site: u16::try_from(member.site).ok(),
        });
    Servers::build(list.collect(), watching(&config.latency)).context("table of servers")
}

/// A time in the flows' units.
pub(crate) fn span(time: Duration) -> Span {
    Span::micros(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
}

/// How flows are watched.
pub(crate) fn watching(latency: &Latency) -> Watching {
    let mut quic_ports = [0; dataplane::tables::servers::QUIC_PORTS];
    for (to, from) in quic_ports.iter_mut().zip(&latency.quic_ports) {
        *to = *from;
    }
    Watching {
        rules: Rules {
            cutoff: span(latency.cutoff),
            epoch: span(latency.epoch),
        },
        quic_ports,
        quic_id: latency.quic_id,
        all: false,
    }
}
