//! From members' health to events of services: all down, failover from sites to others, and back. Pure; owned by the
//! run loop, which says which members are up.
//!
//! Clients of a service are watched in groups that its policy may treat differently: those of each ISP, and all
//! others; A and AAAA answers apart. A group's sites are ranked in tiers, best first; those of the best tier
//! with a member up serve it.

use super::{Event, Kind};
use crate::config::model::{self, AllDown, Check, Config};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// What is known of all services.
#[derive(Debug)]
pub struct Watch {
    config: Arc<Config>,
    services: Vec<Service>,
    /// Services by the address of a member.
    users: HashMap<IpAddr, Vec<usize>>,
    sites: Vec<String>,
}

#[derive(Debug)]
struct Service {
    name: String,
    /// Address and site.
    members: Vec<(IpAddr, usize)>,
    /// A and AAAA, as far as it has members of them.
    families: Vec<Family>,
    when_all_down: String,
}

#[derive(Debug)]
struct Family {
    v6: bool,
    groups: Vec<Group>,
    any_up: bool,
}

/// Clients that get the same answers.
#[derive(Clone, Debug)]
struct Group {
    /// "clients of KT"
    clients: String,
    /// Sites by tier, best first.
    tiers: Vec<Vec<usize>>,
    /// The tier that serves them; stays as it was while none does.
    serving: usize,
}

impl Watch {
    /// Watches the services of `config` as they stand, and tells nothing yet. `tiers` ranks the sites of a service for the
    /// clients of an ISP (indices of the configuration), `None`: of no known ISP. `up` says whether a member of a
    /// service can be given.
    pub fn new(
        config: Arc<Config>,
        tiers: impl Fn(&model::Service, Option<usize>) -> Vec<Vec<usize>>,
        up: impl Fn(&model::Service, IpAddr) -> bool,
    ) -> Self {
        let mut watch = Self {
            config: config.clone(),
            services: Vec::new(),
            users: HashMap::new(),
            sites: config.sites.iter().map(|site| site.name.clone()).collect(),
        };
        for (index, service) in config.services.iter().enumerate() {
            let members: Vec<_> = service.members.iter().map(|m| (m.address, m.site)).collect();
            for (address, _) in &members {
                watch.users.entry(*address).or_default().push(index);
            }
            let rest = tiers(service, None);
            let mut groups = Vec::new();
            for (isp, of) in config.isps.iter().enumerate() {
                let own = tiers(service, Some(isp));
                if own != rest {
                    groups.push(Group {
                        clients: format!("clients of {}", of.name),
                        tiers: own,
                        serving: 0,
                    });
                }
            }
            groups.push(Group {
                clients: if groups.is_empty() {
                    "all clients"
                } else {
                    "all other clients"
                }
                .into(),
                tiers: rest,
                serving: 0,
            });
            let has = |v6: &bool| members.iter().any(|(address, _)| address.is_ipv6() == *v6);
            let family = |v6| Family {
                v6,
                groups: groups.clone(),
                any_up: true,
            };
            watch.services.push(Service {
                name: service.name.to_string(),
                families: [false, true].into_iter().filter(has).map(family).collect(),
                members,
                when_all_down: rule(&service.when_all_down),
            });
        }
        for index in 0..watch.services.len() {
            watch.judge(index, &up, "");
        }
        watch
    }

    /// What a member is called, `SITE/ADDRESS`, and the services that have it by this check.
    pub fn member(&self, address: IpAddr, check: &Check) -> Option<(String, Vec<String>)> {
        let users = self
            .users
            .get(&address)?
            .iter()
            .map(|index| &self.config.services[*index]);
        let users: Vec<_> = users
            .filter(|service| service.check.as_ref() == Some(check))
            .collect();
        let members = users.iter().flat_map(|service| &service.members);
        let site = members.into_iter().find(|m| m.address == address)?.site;
        let names = users.iter().map(|service| service.name.to_string()).collect();
        Some((format!("{}/{address}", self.sites[site]), names))
    }

    /// Something changed of a member: what became of the services that have it. `why` is what was seen.
    pub fn changed(
        &mut self,
        address: IpAddr,
        up: impl Fn(&model::Service, IpAddr) -> bool,
        why: &str,
    ) -> Vec<Event> {
        let users = self.users.get(&address).cloned().unwrap_or_default();
        let mut events = Vec::new();
        for index in users {
            events.extend(self.judge(index, &up, why));
        }
        events
    }

    fn judge(&mut self, index: usize, up: &dyn Fn(&model::Service, IpAddr) -> bool, why: &str) -> Vec<Event> {
        let configured = &self.config.services[index];
        let service = &mut self.services[index];
        // Names are always up.
        let always = !configured.cnames.is_empty();
        let mut events = Vec::new();
        for family in &mut service.families {
            let of_family =
                |(address, _): &&(IpAddr, usize)| address.is_ipv6() == family.v6 && up(configured, *address);
            let live = service.members.iter().filter(of_family).map(|(_, site)| *site);
            let live: BTreeSet<usize> = live.collect();
            let any_up = always || !live.is_empty();
            let records = if family.v6 { "AAAA" } else { "A" };
            if any_up != family.any_up {
                let (kind, done) = if any_up {
                    (
                        Kind::ServiceUp,
                        format!("{records} answers are of its members again"),
                    )
                } else {
                    let rule = &service.when_all_down;
                    (
                        Kind::ServiceDown,
                        format!("{records} answers are by when_all_down: {rule}"),
                    )
                };
                events.push(Event::new(kind, &service.name, why, done).with("records", records));
            }
            family.any_up = any_up;
            for group in &mut family.groups {
                if let Some(event) = group.judge(&live, &self.sites, records, &service.name, why) {
                    events.push(event);
                }
            }
        }
        events
    }
}

impl Group {
    fn judge(
        &mut self,
        live: &BTreeSet<usize>,
        sites: &[String],
        records: &str,
        service: &str,
        why: &str,
    ) -> Option<Event> {
        let named = |tier: &[usize], only_live: bool| -> String {
            let tier = tier.iter().filter(|site| !only_live || live.contains(site));
            let names = tier.filter_map(|site| sites.get(*site)).map(String::as_str);
            names.collect::<Vec<_>>().join(", ")
        };
        let is_live = |tier: &Vec<usize>| tier.iter().any(|site| live.contains(site));
        // While none is up there is nowhere to go.
        let serving = self.tiers.iter().position(is_live)?;
        let before = std::mem::replace(&mut self.serving, serving);
        if before == serving {
            return None;
        }
        let from = named(self.tiers.get(before)?, false);
        let (to, clients) = (named(&self.tiers[serving], true), &self.clients);
        let kind = if serving == 0 {
            Kind::Failback
        } else {
            Kind::Failover
        };
        let done = format!("{records} answers for {clients} are of {to} instead of {from}");
        Some(
            Event::new(kind, service, why, done)
                .with("records", records)
                .with("clients", clients.as_str())
                .with("from", from)
                .with("to", to),
        )
    }
}

fn rule(rule: &AllDown) -> String {
    match rule {
        AllDown::LastGood => "last-good".into(),
        AllDown::Open => "open".into(),
        AllDown::Closed => "closed".into(),
        AllDown::Fixed(addresses) => {
            let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("fixed {}", list.join(", "))
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
