//! DNS load: asks a server over raw frames at a set rate and judges what comes back.
//!
//! [`run`] is the whole of it on any port: finds the server's MAC address, builds the [`template`]s,
//! and drives the [`engine`], which paces by [`schedule`], pairs replies by [`inflight`], reads
//! them by [`mod@reply`] and counts into [`report`].

pub mod engine;
pub mod expect;
pub mod inflight;
pub mod names;
pub mod reply;
pub mod report;
pub mod schedule;
pub mod template;

use crate::clients::Clients;
use crate::clock::Clock;
use crate::neighbour::{Link, resolve};
use dataplane::io::QueuePair;
use engine::{Engine, Live, Plan};
use expect::Expect;
use ipnet::IpNet;
use names::Queries;
use report::Report;
use schedule::{Limit, Pace, SECOND, Schedule};
use std::net::IpAddr;
use template::{Ecs, Spec, Templates};

/// A run as it was asked for, checked.
#[derive(Debug)]
pub struct Settings {
    /// Whom to ask.
    pub server: IpAddr,
    /// The server's MAC address, if it is given and not looked up.
    pub server_mac: Option<[u8; 6]>,
    /// The way to the server, if it is not on the link.
    pub gateway: Option<IpAddr>,
    /// Source prefix.
    pub source: IpNet,
    /// 802.1Q tag.
    pub vlan: Option<u16>,
    /// How fast.
    pub pace: Pace,
    /// How much.
    pub limit: Limit,
    /// What is asked.
    pub queries: Queries,
    /// What may come back.
    pub expect: Option<Expect>,
    /// EDNS payload size.
    pub edns: Option<u16>,
    /// DO bit.
    pub dnssec_ok: bool,
    /// ECS subnets.
    pub ecs: Option<Ecs>,
    /// 0x20.
    pub mixed_case: bool,
    /// Nanoseconds that a reply may take.
    pub timeout: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source prefix has no usable address.
    #[error(
        "--source {0} has no address to send from: it holds only the server's or gateway's own; give a wider prefix"
    )]
    NoClients(IpNet),
    /// Source and server are of different families.
    #[error("--source {0} and {1} are of different address families; give both as IPv4 or both as IPv6")]
    Families(IpNet, IpAddr),
    /// Too many names.
    #[error("{0} queries need more than {max} GiB of templates; use fewer names or types", max = template::ARENA_MAX >> 30)]
    TooManyNames(usize),
    /// Nobody answered for the server's address.
    #[error(
        "nobody on this link answers for {0} (asked 20 times over 5 s from {1}): is it up, on this link and VLAN, and is \
         {1} inside one of its on-link prefixes? Else name the router by --gateway or the MAC address by --server-mac"
    )]
    NoNeighbour(IpAddr, IpAddr),
}

/// How many queries may be in flight: what rate and timeout ask for and a half more. Flat out, as many as
/// the table can hold while it stays in reach of the caches.
fn in_flight(pace: Pace, timeout: u64) -> u64 {
    match pace {
        Pace::Rate(rate) => {
            let wanted = u128::from(rate) * u128::from(timeout) / u128::from(SECOND) * 3 / 2;
            u64::try_from(wanted).unwrap_or(u64::MAX).min(1 << 22)
        }
        Pace::FlatOut => 1 << 20,
    }
}

impl Settings {
    /// The clients; checks the addresses against each other.
    pub fn clients(&self) -> Result<Clients, Error> {
        let next_hop = self.gateway.unwrap_or(self.server);
        for other in [self.server, next_hop] {
            if other.is_ipv4() != self.source.addr().is_ipv4() {
                return Err(Error::Families(self.source, other));
            }
        }
        Clients::new(self.source, next_hop).ok_or(Error::NoClients(self.source))
    }
}

/// Does the whole run on `port` and returns its report.
pub fn run<Q: QueuePair, C: Clock>(
    port: &mut Q,
    clock: &mut C,
    settings: Settings,
    live: &Live,
) -> Result<Report, Error> {
    let clients = settings.clients()?;
    let link = Link {
        mac: port.mac(),
        vlan: settings.vlan,
        clients,
    };
    let next_hop = settings.gateway.unwrap_or(settings.server);
    let destination_mac = match settings.server_mac {
        Some(mac) => mac,
        None => {
            let from = clients.address(clients.draw(0));
            resolve(port, clock, &link, next_hop, from).ok_or(Error::NoNeighbour(next_hop, from))?
        }
    };
    let spec = Spec {
        source_mac: link.mac,
        destination_mac,
        vlan: settings.vlan,
        server: settings.server,
        clients,
        edns: settings.edns,
        dnssec_ok: settings.dnssec_ok,
        ecs: settings.ecs,
        mixed_case: settings.mixed_case,
    };
    let Queries { queries, mix } = settings.queries;
    let templates = Templates::new(spec, &queries).ok_or(Error::TooManyNames(queries.len()))?;
    drop(queries);
    let plan = Plan {
        templates,
        mix,
        schedule: Schedule::new(settings.pace, settings.limit, 0, settings.timeout),
        link,
        server: settings.server,
        expect: settings.expect,
        timeout: settings.timeout,
        in_flight: in_flight(settings.pace, settings.timeout),
        mixed_case: settings.mixed_case,
        seed: settings.seed,
    };
    Ok(Engine::new(plan, live).run(port, clock).report())
}
