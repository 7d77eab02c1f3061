//! `windrose explain`: asks the engine itself, on the live tables, with a tracer that listens.
//!
//! The round-robin position and the random draw are each worker's own, so which of the candidates comes
//! first may differ; candidates, tiers, scope and TTL do not.

mod path;
mod reply;

use crate::admin::api::{ClientSource, ExplainRequest, Explanation, Explore, SiteStep, Step};
use crate::config::model::{AllDown, Metric, Service, Spread};
use crate::policy::chain::tell::{Finding, Told};
use crate::policy::chain::{self, ClientClass, Facts};
use crate::policy::classes::describe;
use crate::policy::{self, Index, PolicyKey, Which};
use dataplane::link::{WordTarget, WordValue};
use dataplane::stages::dns_answer::{Client, Engine, Event, Located, Outcome, Transport};
use dataplane::tables::plans::{Cell, Policy};
use dataplane::tables::{NONE, Snapshot, Words};
use domain::base::iana::Rtype;
use domain::base::{MessageBuilder, Name};
use ipnet::IpNet;
use std::net::IpAddr;
use std::str::FromStr;

/// Room for a reply over UDP.
const BUFFER: usize = 4096;

/// What is to be said of a member beside whether it is up, by service, site and address.
pub(super) type Note<'a> = dyn Fn(&Service, &str, &str) -> Option<String> + 'a;

/// Explains one query.
///
/// # Errors
/// What is wrong with the question.
pub(super) fn explain(
    snapshot: &Snapshot,
    index: &Index,
    words: &[(WordTarget, WordValue)],
    facts: &Facts,
    request: &ExplainRequest,
    note: &Note<'_>,
) -> Result<Explanation, String> {
    let name: Name<Vec<u8>> =
        Name::from_str(&request.name).map_err(|e| format!("\"{}\" is not a DNS name: {e}", request.name))?;
    let rtype = Rtype::from_str(&request.rtype.to_ascii_uppercase())
        .map_err(|_| format!("\"{}\" is not a record type", request.rtype))?;
    let query = query(&name, rtype, request.ecs)?;
    let mut buffer = [0; BUFFER];
    buffer[..query.len()].copy_from_slice(&query);
    let client = match request.from {
        IpAddr::V4(a) => Client::V4(a.octets()),
        IpAddr::V6(a) => Client::V6(a.octets()),
    };
    let mut engine = Engine::new(0);
    for &(target, value) in words {
        engine.chooser.words.set(target, value);
    }
    let mut located = Located::default();
    let mut events: Vec<Event> = Vec::new();
    located.locate(snapshot, &buffer, query.len(), client);
    engine.find(snapshot, &mut located);
    let outcome = engine.answer(snapshot, &mut located, &mut buffer, Transport::Udp, &mut events);
    let Outcome::Reply {
        len,
        counter,
        truncated,
        ..
    } = outcome
    else {
        return Err("the query gets no reply".into());
    };
    let mut told = Story {
        words: &engine.chooser.words,
        snapshot,
        index,
        facts,
        request,
        events: &events,
        rtype,
        note,
    }
    .tell(&name, reply::read(&buffer[..len]));
    (told.outcome, told.truncated) = (counter.name().into(), truncated);
    Ok(told)
}

/// The query as a resolver sends it.
fn query(name: &Name<Vec<u8>>, rtype: Rtype, subnet: Option<IpNet>) -> Result<Vec<u8>, String> {
    let mut question = MessageBuilder::new_vec().question();
    question.push((name, rtype)).map_err(|e| e.to_string())?;
    let mut additional = question.additional();
    additional
        .opt(|opt| {
            opt.set_udp_payload_size(1232);
            match subnet.map(|s| s.trunc()) {
                Some(s) => opt.push(&domain::base::opt::ClientSubnet::new(
                    s.prefix_len(),
                    0,
                    s.network(),
                )),
                None => Ok(()),
            }
        })
        .map_err(|e| e.to_string())?;
    Ok(additional.finish())
}

/// What is needed to put the events into words.
struct Story<'a> {
    snapshot: &'a Snapshot,
    index: &'a Index,
    facts: &'a Facts,
    request: &'a ExplainRequest,
    events: &'a [Event],
    rtype: Rtype,
    words: &'a Words,
    note: &'a Note<'a>,
}

impl Story<'_> {
    fn tell(&self, name: &Name<Vec<u8>>, reply: reply::Read) -> Explanation {
        let chosen = self.events.iter().find_map(|e| match e {
            Event::Client {
                service,
                policy,
                class,
                subnet,
                ..
            } => Some((*service, *policy, *class, *subnet)),
            _ => None,
        });
        let by_subnet = chosen.is_some_and(|c| c.3);
        let client = chosen.map(|c| self.index.class(c.2.id));
        let isp = client.and_then(|c| c.isp);
        let isp_name = isp.map(|i| self.index.config.isps[i].name.clone());
        let mut out = Explanation {
            question: format!("{name} {}", self.rtype),
            client: match self.request.ecs {
                Some(subnet) if by_subnet => subnet.trunc().to_string(),
                _ => self.request.from.to_string(),
            },
            client_source: if by_subnet {
                ClientSource::Ecs
            } else {
                ClientSource::Transport
            },
            class: match chosen {
                None => "not looked up: the answer is the same for all".into(),
                Some((_, _, class, _)) => {
                    let text = describe(&self.index.config, self.index.class(class.id));
                    let address = match self.request.ecs {
                        Some(subnet) if by_subnet => subnet.network(),
                        _ => self.request.from,
                    };
                    let known = self.index.config.data.describe(address);
                    let known = match known.as_str() {
                        "" => known,
                        said => format!(" (databases: {said})"),
                    };
                    format!("{text}, matched to /{}{known}", class.depth)
                }
            },
            isp: isp_name,
            zone: self.zone(),
            path: path::path(&self.snapshot.names, self.events),
            service: None,
            policy: None,
            steps: Vec::new(),
            tiers: Vec::new(),
            explore: None,
            draw: None,
            answer: reply.answer,
            authority: reply.authority,
            rcode: reply.rcode,
            outcome: String::new(),
            truncated: false,
            extended_error: reply.extended_error,
            ttl: reply.ttl,
            scope: self.request.ecs.map(|_| self.scope()),
            generation: self.snapshot.generation,
        };
        if let Some((service, policy, class, _)) = chosen {
            let class = class.id;
            self.choice(&mut out, service, (policy, class), self.index.class(class));
        }
        out
    }

    fn zone(&self) -> Option<String> {
        let zone = |node: u32| -> Option<String> {
            let node = self.snapshot.names.node(node)?;
            self.index
                .config
                .zones
                .get(node.zone as usize)
                .map(|z| z.apex.to_string())
        };
        self.events.iter().rev().find_map(|e| match e {
            Event::Name { node, .. } => zone(*node),
            Event::ClosestEncloser { node } => {
                let outside = dataplane::tables::names::Node::OUTSIDE;
                self.snapshot
                    .names
                    .node(*node)
                    .filter(|n| !n.has(outside))
                    .and_then(|_| zone(*node))
            }
            _ => None,
        })
    }

    fn scope(&self) -> u8 {
        let last = self.events.iter().rev().find_map(|e| match e {
            Event::Scope(scope) => Some(*scope),
            _ => None,
        });
        last.unwrap_or(0)
    }

    /// Fills in how the service's policy chose.
    fn choice(&self, out: &mut Explanation, service: u32, (policy, class): (u32, u16), client: &ClientClass) {
        let config = &self.index.config;
        let (Some(service_config), Some(key)) = (
            config.services.get(service as usize),
            self.index.policies.get(policy as usize),
        ) else {
            return;
        };
        let chain_text: Vec<&str> = key.chain.metrics.iter().map(|m| m.name()).collect();
        out.service = Some(service_config.name.to_string());
        out.policy = Some(format!(
            "{}; {} of {} members; when all down: {}",
            chain_text.join(", "),
            service_config.answers,
            service_config.members.len() + service_config.cnames.len(),
            all_down_text(&service_config.when_all_down),
        ));
        let site_name = |i: u8| config.sites[key.sites[i as usize].site].name.clone();
        let live = self.live(service, key);
        let (up, health) = (
            |i: u8| live[i as usize] != 0,
            |i: u8| self.members_up(service, key, i, live[i as usize]),
        );
        let told = chain::tell::tell(config, (&key.chain, &key.sites), client, self.facts, &up, &health);
        let sites = |told: &Told| {
            let of = |finding: &Finding| SiteStep {
                site: site_name(finding.site),
                value: finding.value.clone(),
                age_s: finding.age.map(|age| age.as_secs_f64()),
                kept: finding.kept,
                why: finding.why.clone(),
            };
            told.sites.iter().map(of).collect()
        };
        out.steps = told
            .iter()
            .map(|told| Step {
                metric: told.metric.name().into(),
                before: told.before.iter().map(site_name).collect(),
                after: told.after.iter().map(site_name).collect(),
                text: match told.metric {
                    Metric::Static => spread_text(service_config.spread).into(),
                    _ => told.text.clone(),
                },
                sites: sites(told),
            })
            .collect();
        let members = |i: &u8| self.members_text(service, key, *i, live[*i as usize]);
        let shown = |tiers: Vec<Vec<u8>>| -> Vec<Vec<String>> {
            let tier = |tier: &Vec<u8>| tier.iter().map(members).collect();
            tiers.iter().map(tier).collect()
        };
        let [tiers, explored] = self.plans(policy, class);
        // A name is drawn in silence: its site tells the tier.
        let tier_of = |site: usize| {
            let holds = |tier: &Vec<u8>| tier.iter().any(|i| key.sites[usize::from(*i)].site == site);
            tiers.iter().position(holds)
        };
        out.draw = Some(self.draw_text(service, service_config.spread, tier_of));
        out.tiers = shown(tiers);
        if let Some(share) = key.chain.explores().filter(|_| !explored.is_empty()) {
            out.explore = Some(Explore {
                share: share.to_string(),
                tiers: shown(explored),
            });
        }
    }

    /// Which members are up at each site of the policy, in the family asked for: bits in file order.
    fn live(&self, service: u32, key: &PolicyKey) -> Vec<u64> {
        let plans = &self.snapshot.plans;
        let pool = plans.service(service).and_then(|s| {
            let index = match self.which(service) {
                Which::Decides => s.decides,
                Which::V6 => s.v6,
                Which::V4 => s.v4,
            };
            plans.pools.get(index as usize)
        });
        let groups = pool.map_or(&[][..], |pool| plans.groups(pool));
        let any_health = !key.chain.has(Metric::Health);
        (0..key.sites.len())
            .map(|site| {
                let Some(group) = groups.get(site).filter(|g| g.mask != 0) else {
                    return 0;
                };
                let up = if any_health {
                    u64::MAX
                } else {
                    {
                        let members = self.words.members(group.word);
                        members.up | members.last_resort()
                    }
                };
                (up & group.mask) >> group.mask.trailing_zeros()
            })
            .collect()
    }

    /// The pool whose members are shown: where names are among them, the one that decides.
    fn which(&self, service: u32) -> Which {
        let service = self.index.config.services.get(service as usize);
        match self.rtype {
            _ if service.is_some_and(|s| !s.cnames.is_empty()) => Which::Decides,
            Rtype::AAAA => Which::V6,
            _ => Which::V4,
        }
    }

    /// The tiers of a policy for a class, as the workers have them: those of all queries, and of those that explore.
    fn plans(&self, policy: u32, class: u16) -> [Vec<Vec<u8>>; 2] {
        let policy = self.snapshot.plans.policy(policy).copied().unwrap_or_default();
        let has = |flag: u32| policy.flags & flag != 0;
        let cells_each = if has(Policy::EXPLORES) { 2 } else { 1 };
        let class = if has(Policy::BY_CLASS) {
            usize::from(class)
        } else {
            0
        };
        let first = policy.cells as usize + class * cells_each;
        let tiers = |cell: Option<&Cell>| {
            let mut tiers = vec![Vec::new()];
            for (site, last) in cell.into_iter().flat_map(Cell::ranked) {
                tiers.last_mut().expect("there is always one").push(site);
                if last {
                    tiers.push(Vec::new());
                }
            }
            tiers.pop();
            tiers
        };
        let explored = (cells_each == 2).then(|| self.snapshot.cells.get(first + 1));
        [tiers(self.snapshot.cells.get(first)), tiers(explored.flatten())]
    }

    /// How many of a site's members are up.
    fn members_up(&self, service: u32, key: &PolicyKey, site: u8, up: u64) -> String {
        let config = &self.index.config;
        let site = key.sites[site as usize].site;
        let all = policy::members(&config.services[service as usize], site, self.which(service)).count();
        format!("{} of {all} members up", up.count_ones().min(all as u32))
    }

    /// A site with its members, for a tier; `up` are the bits of those that are up.
    fn members_text(&self, service: u32, key: &PolicyKey, site: u8, up: u64) -> String {
        let config = &self.index.config;
        let site_index = key.sites[site as usize].site;
        let members: Vec<String> = policy::members(
            &config.services[service as usize],
            site_index,
            self.which(service),
        )
        .enumerate()
        .map(|(i, member)| {
            let text = member.to_string();
            let service = &config.services[service as usize];
            let note = (self.note)(service, &config.sites[site_index].name, &text);
            let down = if up >> i & 1 == 1 { "" } else { " down" };
            match note {
                Some(note) => format!("{text}{down} [{note}]"),
                None => format!("{text}{down}"),
            }
        })
        .collect();
        format!("{} ({})", config.sites[site_index].name, members.join(", "))
    }

    fn draw_text(&self, service: u32, spread: Spread, tier_of: impl Fn(usize) -> Option<usize>) -> String {
        let members = match self.rtype {
            Rtype::AAAA => &self.index.members_v6,
            _ => &self.index.members_v4,
        };
        let mut tier = None;
        let mut drawn: Vec<String> = Vec::new();
        for event in self.events {
            let member = match event {
                Event::Candidates { tier: at, .. } => {
                    tier = Some(usize::from(*at));
                    None
                }
                Event::Drawn { member } if *member != NONE => members.get(*member as usize),
                Event::DrawnName { member } => {
                    let member = self.index.members_v4.get(*member as usize);
                    tier = member.and_then(|(_, site)| tier_of(*site));
                    member
                }
                _ => None,
            };
            if let Some((address, site)) = member {
                drawn.push(format!("{address} at {}", self.index.config.sites[*site].name));
            }
        }
        let all_down = self.events.contains(&Event::AllDown);
        let rule = if all_down { "all down, by that rule: " } else { "" };
        if !drawn.is_empty() {
            let (tier, drawn) = (tier.unwrap_or(0) + 1, drawn.join(", "));
            return format!("{rule}{} from tier {tier}: {drawn}", spread_text(spread));
        }
        if !all_down && self.which(service) == Which::Decides {
            return "an address was drawn, so the answer is no name; no member has this type".into();
        }
        format!("{rule}no member drawn")
    }
}

fn spread_text(spread: Spread) -> &'static str {
    match spread {
        Spread::RoundRobin => "round robin",
        Spread::Weighted => "by weight",
        Spread::ConsistentHash { .. } => "by consistent hash",
    }
}

fn all_down_text(rule: &AllDown) -> String {
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
