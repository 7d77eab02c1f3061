//! What a zone may not be, though every record is well-formed (RFC 1034, 1035, 2181). Called by
//! `zones::load` once the text had no errors.

use super::master::ZoneText;
use super::sets::{Place, Sets, lower, parents};
use crate::config::Severity;
use crate::config::model::{Name, Rrset};
use domain::base::iana::Rtype;
use std::collections::HashSet;

const A: u16 = Rtype::A.to_int();
const NS: u16 = Rtype::NS.to_int();
const CNAME: u16 = Rtype::CNAME.to_int();
const SOA: u16 = Rtype::SOA.to_int();
const MX: u16 = Rtype::MX.to_int();
const KEY: u16 = 25;
const AAAA: u16 = Rtype::AAAA.to_int();
const SRV: u16 = Rtype::SRV.to_int();
const DNAME: u16 = Rtype::DNAME.to_int();
const DS: u16 = Rtype::DS.to_int();
const RRSIG: u16 = Rtype::RRSIG.to_int();
const NSEC: u16 = Rtype::NSEC.to_int();

/// One finding, kept until the sets are no longer borrowed.
struct Found {
    severity: Severity,
    place: Place,
    message: String,
    help: Option<&'static str>,
}

/// Checks the zone as a whole. `services` are names, in lower case, that have addresses though no
/// record says so.
pub(super) fn check(zone: &mut ZoneText, services: &HashSet<Vec<u8>>) {
    let apex = lower(&zone.apex);
    let mut found = Vec::new();
    apex_sets(zone, &apex, &mut found);
    single_sets(zone, &mut found);
    below_cuts(&zone.sets, &apex, &mut found);
    targets(&zone.sets, &apex, services, &mut found);
    for Found {
        severity,
        place,
        message,
        help,
    } in found
    {
        zone.push(severity, place, message, help);
    }
}

/// SOA once and at the apex alone, NS at the apex (RFC 1034 section 4.2.1, RFC 1035 section 5.2), and neither NS nor
/// DNAME at a wildcard, where it would mean nothing that is defined (RFC 4592 sections 4.2 and 4.4).
fn apex_sets(zone: &mut ZoneText, apex: &[u8], found: &mut Vec<Found>) {
    let name = zone.apex.clone();
    let start = Place { file: 0, offset: 0 };
    let error = |place, message| Found {
        severity: Severity::Error,
        place,
        message,
        help: None,
    };
    match zone.sets.get(apex, SOA) {
        None => found.push(Found {
            help: Some("a zone begins with one: `@ SOA ns1 hostmaster 1 1h 15m 1w 5m`"),
            ..error(start, format!("the zone {name}. has no SOA record"))
        }),
        Some((soa, place)) if soa.rdata.len() > 1 => {
            found.push(error(
                place,
                format!(
                    "the zone {name}. has {} SOA records; there is one",
                    soa.rdata.len()
                ),
            ));
        }
        Some(_) => {}
    }
    if zone.sets.get(apex, NS).is_none() {
        found.push(Found {
            help: Some("name its servers: `@ NS ns1`"),
            ..error(start, format!("the zone {name}. has no NS record"))
        });
    }
    for (set, place) in zone.sets.iter().filter(|(set, _)| set.rtype == SOA) {
        if lower(&set.owner) != apex {
            let message = format!("SOA at {}., which is not the apex {name}.", set.owner);
            found.push(error(place, message));
        }
    }
    for (set, place) in zone
        .sets
        .iter()
        .filter(|(set, _)| matches!(set.rtype, NS | DNAME))
    {
        if set.owner.as_slice().starts_with(b"\x01*") {
            let (message, help) = if set.rtype == NS {
                (
                    format!("NS at {}.: a wildcard cannot be delegated", set.owner),
                    "delegate each name, or let the servers of one zone above answer for all",
                )
            } else {
                (
                    format!(
                        "DNAME at {}.: what it means at a wildcard is not defined",
                        set.owner
                    ),
                    "write one DNAME for each name, or a CNAME at the wildcard (RFC 6672 section 2.3)",
                )
            };
            found.push(Found {
                help: Some(help),
                ..error(place, message)
            });
        }
    }
}

/// CNAME and DNAME: one record, and a CNAME is alone but for DNSSEC's own records (RFC 1034 section
/// 3.6.2, RFC 2181 section 10.1, RFC 4034 section 3, RFC 6672 section 2.4).
fn single_sets(zone: &ZoneText, found: &mut Vec<Found>) {
    for (set, place) in zone.sets.iter() {
        if !matches!(set.rtype, CNAME | DNAME) {
            continue;
        }
        let name = Rtype::from_int(set.rtype);
        let error = |message| Found {
            severity: Severity::Error,
            place,
            message,
            help: None,
        };
        if set.rdata.len() > 1 {
            found.push(error(format!(
                "{}. has {} {name} records; there may be one",
                set.owner,
                set.rdata.len()
            )));
        }
        if set.rtype == DNAME {
            // RFC 6672 section 2.3: at the apex both may stand.
            let key = lower(&set.owner);
            if let Some((_, ns)) = zone.sets.get(&key, NS).filter(|_| key != lower(&zone.apex)) {
                let message = format!(
                    "{}. has a DNAME record and is delegated in {}",
                    set.owner,
                    zone.line(ns)
                );
                found.push(Found {
                    help: Some("keep the DNAME or the NS records"),
                    ..error(message)
                });
            }
            continue;
        }
        let other = zone
            .sets
            .at(&lower(&set.owner))
            .find(|(set, _)| !matches!(set.rtype, CNAME | RRSIG | NSEC | KEY));
        if let Some((other, other_place)) = other {
            let other_type = Rtype::from_int(other.rtype);
            let message = format!(
                "{}. has a CNAME record and other data: {other_type} in {}",
                set.owner,
                zone.line(other_place)
            );
            found.push(Found {
                help: Some("keep the CNAME or the other records"),
                ..error(message)
            });
        }
    }
}

/// Records that no answer ever holds, since they lie at or below a zone cut (RFC 1034 section 4.2.1)
/// or below a DNAME, are warned of. Addresses below a cut are glue.
fn below_cuts(sets: &Sets, apex: &[u8], found: &mut Vec<Found>) {
    let cuts: HashSet<Vec<u8>> = sets
        .iter()
        .filter(|(set, _)| matches!(set.rtype, NS | DNAME))
        .map(|(set, _)| (set, lower(&set.owner)))
        .filter(|(set, key)| set.rtype == DNAME || key != apex)
        .map(|(_, key)| key)
        .collect();
    if cuts.is_empty() {
        return;
    }
    for (set, place) in sets.iter() {
        let key = lower(&set.owner);
        let is_cut = key != apex && sets.get(&key, NS).is_some();
        let at_cut = is_cut && !matches!(set.rtype, NS | DS | NSEC | RRSIG | A | AAAA);
        // The highest decides: nothing at all lives below a DNAME (RFC 6672 section 2.4).
        let above = parents(&key, apex.len())
            .skip(1)
            .filter(|parent| cuts.contains(*parent))
            .last();
        let is_glue = matches!(set.rtype, A | AAAA)
            && above.is_some_and(|cut| cut != apex && sets.get(cut, NS).is_some());
        let below = above.filter(|_| !is_glue);
        let Some(cut) = below.or(at_cut.then_some(&key[..])) else {
            continue;
        };
        let (what, help) = if sets.get(cut, DNAME).is_some() {
            (
                "renamed by a DNAME",
                "names below it are answered as their like below its target: write the record there",
            )
        } else {
            (
                "delegated",
                "the servers of the delegated zone answer there: move the record to them",
            )
        };
        let message = format!(
            "{} of {}. is never answered: {} is {what}",
            Rtype::from_int(set.rtype),
            set.owner,
            show(cut)
        );
        found.push(Found {
            severity: Severity::Warning,
            place,
            message,
            help: Some(help),
        });
    }
}

/// Targets of NS, MX and SRV within the zone have addresses of their own (RFC 1035 section 3.3.11,
/// RFC 2181 section 10.3).
fn targets(sets: &Sets, apex: &[u8], services: &HashSet<Vec<u8>>, found: &mut Vec<Found>) {
    for (set, place) in sets.iter() {
        let skip = match set.rtype {
            NS => 0,
            MX => 2,
            SRV => 6,
            _ => continue,
        };
        for rdata in &set.rdata {
            let Some(target) = rdata.get(skip..).map(<[u8]>::to_ascii_lowercase) else {
                continue;
            };
            if parents(&target, apex.len()).last() != Some(apex) {
                continue;
            }
            if let Some(problem) = target_problem(sets, apex, &target, services, set) {
                let message = format!(
                    "{} target {} {problem}",
                    Rtype::from_int(set.rtype),
                    show(&target)
                );
                found.push(Found {
                    severity: Severity::Warning,
                    place,
                    message,
                    help: None,
                });
            }
        }
    }
}

fn target_problem(
    sets: &Sets,
    apex: &[u8],
    target: &[u8],
    services: &HashSet<Vec<u8>>,
    set: &Rrset,
) -> Option<&'static str> {
    let has = |name: &[u8], rtype| sets.get(name, rtype).is_some();
    if services.contains(target) || has(target, A) || has(target, AAAA) {
        return None;
    }
    if has(target, CNAME) {
        return Some("is an alias (RFC 2181 section 10.3 wants a name with addresses)");
    }
    let owner = lower(&set.owner);
    for parent in parents(target, apex.len()) {
        // Another zone's servers know; only glue for names within the delegated zone must be here.
        if parent != apex && has(parent, NS) {
            let needs_glue = set.rtype == NS && owner == parent;
            return needs_glue.then_some("lies in the delegated zone and has no glue address here");
        }
        if has(parent, DNAME) {
            return None;
        }
        let wildcard = [b"\x01*", parent].concat();
        let covered = has(&wildcard, A) || has(&wildcard, AAAA) || services.contains(&wildcard);
        if parent != target && covered {
            return None;
        }
    }
    Some("has no address in this zone")
}

/// A name in wire form as text.
fn show(wire: &[u8]) -> String {
    Name::from_octets(wire.to_vec()).map_or_else(|_| "?".to_owned(), |name| format!("{name}."))
}
