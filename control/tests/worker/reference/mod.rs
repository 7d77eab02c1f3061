//! The engine over generated zones against a slow, plain reading of RFC 1034 section 4.3.2 as clarified by RFC 4592
//! (wildcards), RFC 2308 (negative answers), RFC 6672 (DNAME) and RFC 4035 section 3.1.4.1 (DS). What Windrose
//! decides where the RFCs leave room: ANY gets one HINFO (RFC 8482), a chain of CNAMEs is followed eight long, and a
//! query for CNAME or ANY ends with the first of them. This is the reading; `cases` compares.

mod cases;

use crate::lab::{base, name, set, target, zone};
use control::config::model::*;
use domain::base::iana::{Rcode, Rtype};
use domain::base::message::RecordSection;
use domain::rdata::AllRecordData;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

/// Zones that may be served: the first always is.
const APEXES: [&str; 5] = [
    "example.com.",
    "s.example.com.",
    "b.a.example.com.",
    "c.b.a.example.com.",
    "example.net.",
];
const CNAMES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Data {
    A(u8),
    Txt(u8),
    Mx(String),
    Ns(String),
    Cname(String),
    Dname(String),
    /// Key tag. At the apex of a zone: what the zone above says.
    Ds(u8),
    /// IPv4 and IPv6 members.
    Service(u8, u8),
    /// A service that hands out a name.
    Given(String),
}

/// Owner names with their data, all zones together; a name belongs to the deepest zone.
#[derive(Clone, Debug)]
struct World {
    apexes: Vec<&'static str>,
    names: BTreeMap<String, BTreeSet<Data>>,
    /// DS at apexes, by the zones above them.
    parent_ds: BTreeMap<String, BTreeSet<Data>>,
}

/// What ends a zone's own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends<'a> {
    Cut(&'a str),
    Dname(&'a str),
}

fn below_or_at(name: &str, ancestor: &str) -> bool {
    name == ancestor || name.ends_with(&format!(".{ancestor}"))
}

/// The name without its first label.
fn parent(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, rest)| rest)
}

/// From the name up to and with the apex.
fn up_to<'a>(name: &'a str, apex: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(name), |n| Some(parent(n))).take_while(move |n| below_or_at(n, apex))
}

impl World {
    fn new(served: [bool; 4], records: Vec<(String, Data)>) -> Self {
        let apexes = APEXES
            .into_iter()
            .enumerate()
            .filter(|&(i, _)| i == 0 || served[i - 1])
            .map(|(_, apex)| apex)
            .collect();
        let mut world = Self {
            apexes,
            names: BTreeMap::new(),
            parent_ds: BTreeMap::new(),
        };
        for (owner, data) in records {
            let Some(apex) = world.zone_of(&owner) else {
                continue;
            };
            if let (Data::Ds(_), true) = (&data, owner == apex) {
                if world.zone_of(parent(&owner)).is_some() {
                    world.parent_ds.entry(owner).or_default().insert(data);
                }
                continue;
            }
            let there = world.names.entry(owner.clone()).or_default();
            let ns = there.iter().any(|d| matches!(d, Data::Ns(_)));
            let dname = there.iter().any(|d| matches!(d, Data::Dname(_)));
            let alone = |d: &Data| matches!(d, Data::Cname(_) | Data::Service(..) | Data::Given(_));
            let allowed = match data {
                // A CNAME stands alone and not at an apex; addresses of a service are chosen, not written.
                Data::Cname(_) | Data::Given(_) => there.is_empty() && owner != apex,
                Data::Service(..) => there.is_empty(),
                Data::Ns(_) => {
                    owner != apex && !owner.starts_with("*.") && !dname && !there.iter().any(alone)
                }
                Data::Dname(_) => !ns && !dname && !owner.starts_with("*.") && !there.iter().any(alone),
                _ => !there.iter().any(alone),
            };
            if allowed {
                there.insert(data);
            }
        }
        world.names.retain(|_, data| !data.is_empty());
        // A service that would lie at or below a cut, or below a DNAME, is refused by the configuration.
        let ended = |n: &&String| world.ends(n, world.zone_of(n).unwrap()).is_some();
        let ended: Vec<String> = world.names.keys().filter(ended).cloned().collect();
        for name in ended {
            if let Some(data) = world.names.get_mut(&name) {
                data.retain(|d| !matches!(d, Data::Service(..) | Data::Given(_)));
            }
        }
        world.names.retain(|_, data| !data.is_empty());
        world
    }

    fn zone_of(&self, name: &str) -> Option<&'static str> {
        self.apexes
            .iter()
            .copied()
            .filter(|apex| below_or_at(name, apex))
            .max_by_key(|apex| apex.len())
    }

    fn has(&self, name: &str, kind: impl Fn(&Data) -> bool) -> bool {
        self.names.get(name).is_some_and(|data| data.iter().any(kind))
    }

    /// The highest zone cut at or above a name, or DNAME above it, within a zone.
    fn ends<'a>(&self, name: &'a str, apex: &'static str) -> Option<Ends<'a>> {
        let ends = |n: &'a str| {
            if self.zone_of(n) != Some(apex) {
                None
            } else if n != apex && self.has(n, |d| matches!(d, Data::Ns(_))) {
                Some(Ends::Cut(n))
            } else if n != name && self.has(n, |d| matches!(d, Data::Dname(_))) {
                Some(Ends::Dname(n))
            } else {
                None
            }
        };
        up_to(name, apex).filter_map(ends).last()
    }

    /// Addresses of the name servers of a cut that lie below a cut themselves, or at one.
    fn glue(&self, cut: &str) -> BTreeSet<String> {
        let mut glue = BTreeSet::new();
        for data in &self.names[cut] {
            let Data::Ns(server) = data else { continue };
            let Some(apex) = self.zone_of(server) else {
                continue;
            };
            if let Some(Ends::Cut(_)) = self.ends(server, apex) {
                glue.extend(self.records(server, server, Rtype::A));
            }
        }
        glue
    }

    /// A name exists when data stands at it or below it (RFC 4592 section 2.2.2).
    fn exists(&self, name: &str) -> bool {
        self.names.keys().any(|n| below_or_at(n, name)) || self.apexes.iter().any(|a| below_or_at(a, name))
    }

    fn config(&self) -> Config {
        let mut zones = Vec::new();
        for apex in &self.apexes {
            let mut sets = Vec::new();
            for (owner, data) in self.names.iter().filter(|(n, _)| self.zone_of(n) == Some(apex)) {
                let all = |pick: &dyn Fn(&Data) -> Option<Vec<u8>>| -> Vec<Vec<u8>> {
                    data.iter().filter_map(pick).collect()
                };
                let wire = |n: &String| name(n).as_slice().to_vec();
                for (rtype, rdata) in [
                    (
                        1,
                        all(&|d| {
                            if let Data::A(n) = d {
                                Some(vec![192, 0, 2, *n])
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        16,
                        all(&|d| {
                            if let Data::Txt(n) = d {
                                Some(vec![1, *n])
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        15,
                        all(&|d| {
                            if let Data::Mx(n) = d {
                                Some([vec![0, 10], wire(n)].concat())
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        2,
                        all(&|d| if let Data::Ns(n) = d { Some(wire(n)) } else { None }),
                    ),
                    (
                        39,
                        all(&|d| {
                            if let Data::Dname(n) = d {
                                Some(wire(n))
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        43,
                        all(&|d| {
                            if let Data::Ds(n) = d {
                                Some(vec![0, *n, 13, 2, 0xab])
                            } else {
                                None
                            }
                        }),
                    ),
                    (
                        5,
                        all(&|d| {
                            if let Data::Cname(n) = d {
                                Some(wire(n))
                            } else {
                                None
                            }
                        }),
                    ),
                ] {
                    if !rdata.is_empty() {
                        sets.push(set(owner, rtype, rdata));
                    }
                }
            }
            for (owner, data) in &self.parent_ds {
                let tag = |d: &Data| matches!(d, Data::Ds(_)).then_some(d.clone());
                if self.zone_of(parent(owner)) == Some(apex) {
                    let rdata = data.iter().filter_map(tag).map(|d| match d {
                        Data::Ds(n) => vec![0, n, 13, 2, 0xab],
                        _ => unreachable!(),
                    });
                    sets.push(set(owner, 43, rdata.collect()));
                }
            }
            // What lies in a child zone is no business of the parent, though it may say so.
            if *apex == "example.com." && self.apexes.contains(&"s.example.com.") {
                sets.push(target("s.example.com.", 2, "ns1.s.example.com."));
                sets.push(target("occluded.s.example.com.", 5, "example.com."));
            }
            zones.push(zone(apex, sets));
        }
        let mut config = base(zones);
        config.sites = vec![Site {
            name: "s".into(),
            isp: None,
            location: None,
            preference: 128,
            ..Site::default()
        }];
        for (owner, data) in &self.names {
            for d in data {
                let (v4, v6, given) = match d {
                    Data::Service(v4, v6) => (*v4, *v6, None),
                    Data::Given(to) => (0, 0, Some(to)),
                    _ => continue,
                };
                let v4 = (0..v4).map(|n| IpAddr::from([198, 51, 100, n]));
                let v6 = (0..v6).map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n) + 1]));
                config.services.push(Service {
                    name: name(owner),
                    ttl: 30,
                    answers: 16,
                    ecs: true,
                    chain: vec![Metric::Health, Metric::Static],
                    spread: Spread::RoundRobin,
                    when_all_down: AllDown::Closed,
                    members: v4
                        .chain(v6)
                        .map(|address| Member {
                            address,
                            site: 0,
                            weight: 1,
                        })
                        .collect(),
                    cnames: given
                        .map(|to| CnameMember {
                            name: name(to),
                            site: 0,
                            weight: 1,
                        })
                        .into_iter()
                        .collect(),
                    ..Service::default()
                });
            }
        }
        config
    }

    /// Data of one type at a node, as records of `owner`.
    fn records(&self, node: &str, owner: &str, rtype: Rtype) -> Vec<String> {
        let mut out = Vec::new();
        if self.apexes.contains(&node) {
            match rtype {
                Rtype::SOA => out.push(soa(node, 300)),
                Rtype::NS => out.push(record(owner, 300, &format!("NS ns1.{node}"))),
                _ => {}
            }
        }
        for data in self.names.get(node).into_iter().flatten() {
            match (data, rtype) {
                (Data::A(n), Rtype::A) => out.push(record(owner, 300, &format!("A 192.0.2.{n}"))),
                (Data::Txt(n), Rtype::TXT) => {
                    out.push(record(owner, 300, &format!("TXT \"{}\"", *n as char)))
                }
                (Data::Mx(n), Rtype::MX) => out.push(record(owner, 300, &format!("MX 10 {n}"))),
                (Data::Ns(n), Rtype::NS) => out.push(record(owner, 300, &format!("NS {n}"))),
                (Data::Cname(n), Rtype::CNAME) => out.push(record(owner, 300, &format!("CNAME {n}"))),
                (Data::Dname(n), Rtype::DNAME) => out.push(record(owner, 300, &format!("DNAME {n}"))),
                (Data::Ds(n), Rtype::DS) => out.push(record(owner, 300, &format!("DS {n} 13 2 ab"))),
                (Data::Service(v4, _), Rtype::A) => {
                    out.extend((0..*v4).map(|n| record(owner, 30, &format!("A 198.51.100.{n}"))));
                }
                (Data::Service(_, v6), Rtype::AAAA) => {
                    out.extend((1..=*v6).map(|n| record(owner, 30, &format!("AAAA 2001:db8::{n}"))));
                }
                _ => {}
            }
        }
        out
    }

    /// RFC 1034 section 4.3.2.
    fn reference(&self, qname: &str, qtype: Rtype) -> Reply {
        let mut reply = Reply {
            rcode: Rcode::NOERROR,
            aa: true,
            answer: BTreeSet::new(),
            authority: BTreeSet::new(),
            additional: BTreeSet::new(),
        };
        let mut owner = qname.to_string();
        let mut seen = HashSet::from([owner.clone()]);
        let mut begun_at = None;
        for cnames in 0.. {
            // Step 2: the nearest zone; for DS the one above an apex.
            let above = self
                .zone_of(parent(&owner))
                .filter(|_| qtype == Rtype::DS && self.apexes.contains(&&owner[..]));
            let Some(apex) = above.or_else(|| self.zone_of(&owner)) else {
                if cnames == 0 {
                    (reply.rcode, reply.aa) = (Rcode::REFUSED, false);
                }
                return reply;
            };
            match self.ends(&owner, apex) {
                // Step 3b: a referral.
                Some(Ends::Cut(cut)) if cut != owner || qtype != Rtype::DS => {
                    reply.aa = cnames > 0;
                    reply.authority.extend(self.records(cut, cut, Rtype::NS));
                    reply.additional.extend(self.glue(cut));
                    return reply;
                }
                // RFC 6672 section 3.2, step 3c.
                Some(Ends::Dname(dname)) => {
                    if cnames == CNAMES_MAX {
                        return reply;
                    }
                    reply.answer.extend(self.records(dname, dname, Rtype::DNAME));
                    let target = self.names[dname].iter().find_map(|d| match d {
                        Data::Dname(to) => Some(to.clone()),
                        _ => None,
                    });
                    let to = format!("{}{}", owner.strip_suffix(dname).unwrap(), target.unwrap());
                    // A text form without escapes is as long as the wire form less one octet.
                    if to.len() > 254 {
                        reply.rcode = Rcode::YXDOMAIN;
                        return reply;
                    }
                    reply.answer.insert(record(&owner, 300, &format!("CNAME {to}")));
                    if matches!(qtype, Rtype::CNAME | Rtype::ANY) || !seen.insert(to.clone()) {
                        return reply;
                    }
                    owner = to;
                    continue;
                }
                _ => {}
            }
            if above.is_some() {
                for data in self.parent_ds.get(&owner).into_iter().flatten() {
                    if let Data::Ds(n) = data {
                        reply
                            .answer
                            .insert(record(&owner, 300, &format!("DS {n} 13 2 ab")));
                    }
                }
                if !self.parent_ds.contains_key(&owner) {
                    reply.authority.insert(soa(apex, 60));
                }
                return reply;
            }
            // Steps 3a and 3c: the node, or the asterisk at the closest encloser.
            let node = if self.exists(&owner) {
                owner.clone()
            } else {
                let encloser = up_to(parent(&owner), apex).find(|n| self.exists(n)).unwrap();
                let wildcard = format!("*.{encloser}");
                if !self.exists(&wildcard) {
                    reply.rcode = Rcode::NXDOMAIN;
                    reply.authority.insert(soa(apex, 60));
                    return reply;
                }
                wildcard
            };
            // A loop through a wildcard ends where it began: the question may be any name that it covers.
            match &begun_at {
                None if cnames == 0 => begun_at = Some(node.clone()),
                Some(begun) if *begun == node => return reply,
                _ => {}
            }
            let alias = self.names.get(&node).into_iter().flatten().find_map(|d| match d {
                Data::Cname(to) => Some(to.clone()),
                _ => None,
            });
            if qtype == Rtype::ANY && alias.is_none() && (self.names.contains_key(&node) || node == apex) {
                reply
                    .answer
                    .insert(record(&owner, 3600, "HINFO \"RFC8482\" \"\""));
                return reply;
            }
            if let Some(to) = alias {
                if cnames == CNAMES_MAX {
                    return reply;
                }
                reply.answer.extend(self.records(&node, &owner, Rtype::CNAME));
                if matches!(qtype, Rtype::CNAME | Rtype::ANY) || !seen.insert(to.clone()) {
                    return reply;
                }
                owner = to;
                continue;
            }
            let given = self.names.get(&node).into_iter().flatten().find_map(|d| match d {
                Data::Given(to) => Some(to),
                _ => None,
            });
            if let Some(to) = given {
                // A choice is not followed.
                reply.answer.insert(record(&owner, 30, &format!("CNAME {to}")));
                return reply;
            }
            let records = self.records(&node, &owner, qtype);
            if records.is_empty() {
                reply.authority.insert(soa(apex, 60));
            }
            reply.answer.extend(records);
            return reply;
        }
        unreachable!()
    }
}

fn record(owner: &str, ttl: u32, data: &str) -> String {
    format!("{} {ttl} {data}", owner.trim_end_matches('.'))
}

fn soa(apex: &str, ttl: u32) -> String {
    record(
        apex,
        ttl,
        &format!("SOA ns1.{apex} hostmaster.ns1.{apex} 1 3600 600 86400 60"),
    )
}

#[derive(Debug, PartialEq, Eq)]
struct Reply {
    rcode: Rcode,
    aa: bool,
    answer: BTreeSet<String>,
    authority: BTreeSet<String>,
    additional: BTreeSet<String>,
}

/// A section's records, each of which stands there once.
fn lines(section: RecordSection<'_, &[u8]>) -> BTreeSet<String> {
    let mut count = 0;
    let lines: BTreeSet<String> = section
        .limit_to::<AllRecordData<_, _>>()
        .map(Result::unwrap)
        .filter(|r| r.rtype() != Rtype::OPT)
        .map(|r| {
            count += 1;
            let owner = r.owner().to_string();
            let data = if r.rtype() == Rtype::HINFO {
                r.data().to_string()
            } else {
                r.data().to_string().to_ascii_lowercase()
            };
            format!(
                "{} {} {} {data}",
                owner.trim_end_matches('.').to_ascii_lowercase(),
                r.ttl().as_secs(),
                r.rtype()
            )
        })
        .collect();
    assert_eq!(lines.len(), count, "twice in one section: {lines:?}");
    lines
}
