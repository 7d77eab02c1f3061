//! Checks between sections, once each has been read: names that are there twice, addresses that
//! overlap, services against zones. Called by `config::load`; every finding has its place.

use super::clients::PlacedClients;
use super::diagnostics::suggestion;
use super::model::{Dataplane, Dns};
use super::reader::{At, Report, Table};
use super::sections::{PlacedIsp, PlacedPort, PlacedSite, PlacedZone};
use super::selection::find;
use super::service::PlacedService;
use crate::zones::{Loaded, lower, parents};
use domain::base::iana::Rtype;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::Range;

/// What IPv6 and UDP headers take of an MTU, bytes.
const HEADERS: u16 = 48;

/// Reports each item of `items` that an earlier one equals.
fn unique<'a, T: Eq + Hash, U: 'a>(
    report: &Report,
    what: &str,
    items: impl IntoIterator<Item = (&'a At<U>, T, String)>,
) {
    let mut seen: HashMap<T, Range<usize>> = HashMap::new();
    for (item, key, shown) in items {
        if let Some(first) = seen.get(&key) {
            let message = format!("{what} `{shown}` is there twice, first in {}", report.line(first));
            report.error(item.span.clone(), message);
        } else {
            seen.insert(key, item.span.clone());
        }
    }
}

fn named(item: &At<String>) -> (&At<String>, &str, String) {
    (item, item.value.as_str(), item.value.clone())
}

/// Names that must differ.
pub(crate) fn names(
    report: &Report,
    ports: &[PlacedPort],
    isps: &[PlacedIsp],
    clients: &[PlacedClients],
    sites: &[PlacedSite],
    zones: &[PlacedZone],
    services: &[PlacedService],
) {
    unique(report, "port", ports.iter().map(|port| named(&port.name)));
    unique(report, "device", ports.iter().map(|port| named(&port.device)));
    unique(report, "isp", isps.iter().map(|isp| named(&isp.name)));
    unique(report, "clients", clients.iter().map(|c| named(&c.name)));
    unique(report, "site", sites.iter().map(|site| named(&site.name)));
    unique(
        report,
        "zone",
        zones
            .iter()
            .map(|z| (&z.name, lower(&z.name.value), z.name.value.to_string())),
    );
    unique(
        report,
        "service",
        services
            .iter()
            .map(|s| (&s.name, lower(&s.name.value), s.name.value.to_string())),
    );
}

/// Addresses of ports: none twice on one port; replies fit the MTU; descriptors leave buffers over.
pub(crate) fn ports(report: &Report, ports: &[PlacedPort], dataplane: &Dataplane, dns: &Dns) {
    let mut descriptors = 0;
    for port in ports {
        unique(
            report,
            "address",
            port.addresses.iter().map(|a| (a, a.value, a.value.to_string())),
        );
        if let Some(mtu) = port.port.mtu
            && mtu < dns.udp_size_max + HEADERS
        {
            let message = format!("replies of {} bytes do not fit an MTU of {mtu}", dns.udp_size_max);
            let help = format!(
                "set `udp_size_max` in [dns] to at most {}, or a larger `mtu`",
                mtu - HEADERS
            );
            report.error_help(port.span.clone(), message, Some(help));
        }
        descriptors += u32::from(port.port.rx_descriptors) + u32::from(port.port.tx_descriptors);
    }
    if let Some(port) = ports.first()
        && descriptors >= dataplane.buffers
    {
        let message = format!(
            "{} buffers cannot fill the {descriptors} descriptors of all ports",
            dataplane.buffers
        );
        report.error_help(
            port.span.clone(),
            message,
            Some("raise `buffers` in [dataplane]".into()),
        );
    }
}

/// Members and fixed addresses are no addresses of this appliance.
pub(crate) fn members(report: &Report, ports: &[PlacedPort], services: &[PlacedService]) {
    let own: HashMap<IpAddr, &str> = ports
        .iter()
        .flat_map(|p| p.addresses.iter().map(|a| (a.value, p.name.value.as_str())))
        .collect();
    for address in services.iter().flat_map(|service| &service.addresses) {
        if let Some(port) = own.get(&address.value) {
            let message = format!(
                "{} is a service address of this appliance, on port `{port}`",
                address.value
            );
            let help = Some("members are the servers that clients are sent to".into());
            report.error_help(address.span.clone(), message, help);
        }
    }
}

/// A prefix or an autonomous system belongs to one ISP. Nested prefixes are fine: the longest wins. `data`: whether there
/// is a section that says which prefixes an autonomous system has.
pub(crate) fn isps(report: &Report, isps: &[PlacedIsp], data: bool) {
    let mut prefixes: HashMap<IpNet, (&str, Range<usize>)> = HashMap::new();
    let mut asns: HashMap<u32, (&str, Range<usize>)> = HashMap::new();
    for isp in isps {
        for prefix in &isp.prefixes {
            once(report, &mut prefixes, isp, prefix, "prefix ");
        }
        for asn in &isp.asns {
            once(report, &mut asns, isp, asn, "AS");
        }
    }
    if let Some(asn) = isps.iter().flat_map(|isp| &isp.asns).next()
        && !data
    {
        report.warning(
            asn.span.clone(),
            "`asns` has no effect without a database that says which prefixes they have",
            "add `asn = [\"asn-ipv4.csv\", ...]` in [data]",
        );
    }
}

fn once<'a, T: Copy + Eq + Hash + Display>(
    report: &Report,
    seen: &mut HashMap<T, (&'a str, Range<usize>)>,
    isp: &'a PlacedIsp,
    item: &At<T>,
    what: &str,
) {
    match seen.get(&item.value) {
        Some((other, first)) => {
            let line = report.line(first);
            let message = format!("{what}{} is there twice, first in `{other}`, {line}", item.value);
            report.error(item.span.clone(), message);
        }
        None => _ = seen.insert(item.value, (&isp.name.value, item.span.clone())),
    }
}

/// Resolves the ISPs of sites, and the clients that they serve.
pub(crate) fn sites(
    report: &Report,
    sites: &mut [PlacedSite],
    isps: &[PlacedIsp],
    clients: &[PlacedClients],
) {
    for site in sites {
        for wanted in &site.serves {
            let names = clients.iter().map(|c| c.name.value.as_str());
            let found = find(report, wanted.span.clone(), ("clients", &wanted.value), names);
            site.site.serves.extend(found.map(|index| index as u32));
        }
        let Some(wanted) = &site.isp else { continue };
        site.site.isp = isps.iter().position(|isp| isp.name.value == wanted.value);
        if site.site.isp.is_none() {
            let help = suggestion(&wanted.value, isps.iter().map(|isp| isp.name.value.as_str()))
                .unwrap_or_else(|| format!("add an [[isp]] with name = \"{}\"", wanted.value));
            report.error_help(
                wanted.span.clone(),
                format!("unknown isp `{}`", wanted.value),
                Some(help),
            );
        }
    }
}

/// The names of all services, as [`lower`] gives them.
pub(crate) fn service_keys(services: &[PlacedService]) -> HashSet<Vec<u8>> {
    services
        .iter()
        .map(|service| lower(&service.name.value))
        .collect()
}

/// Each service lies in a zone, not below a cut of it, and its name has no addresses in the zone file.
/// `zones` are those that could be read; `names` are all that are configured.
pub(crate) fn services(report: &Report, services: &[PlacedService], names: &[PlacedZone], zones: &[Loaded]) {
    let configured: HashSet<Vec<u8>> = names.iter().map(|zone| lower(&zone.name.value)).collect();
    let loaded: HashMap<Vec<u8>, &Loaded> = zones.iter().map(|zone| (lower(&zone.apex), zone)).collect();
    for service in services {
        let name = &service.name.value;
        let key = lower(name);
        let span = || service.name.span.clone();
        let Some(apex) = parents(&key, 1).find(|parent| configured.contains(*parent)) else {
            let help = names
                .first()
                .map_or("there is no [[zone]] yet: add one".to_owned(), |_| {
                    let all: Vec<String> = names.iter().map(|zone| format!("{}", zone.name.value)).collect();
                    format!(
                        "zones are {}: choose a name in one of them, or add a [[zone]]",
                        all.join(", ")
                    )
                });
            report.error_help(span(), format!("service `{name}` lies in no zone"), Some(help));
            continue;
        };
        let Some(zone) = loaded.get(apex) else {
            continue;
        };
        for (set, place) in zone.sets.at(&key) {
            let rtype = Rtype::from_int(set.rtype);
            let addresses = matches!(rtype, Rtype::A | Rtype::AAAA | Rtype::CNAME);
            if !service.service.cnames.is_empty() && !addresses {
                // RFC 1034 section 3.6.2, RFC 4034 section 3.
                if !matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::KEY) {
                    let message = format!(
                        "service `{name}` has names for members, and {rtype} records in {}",
                        zone.line(place)
                    );
                    let help = Some("a name that can be a CNAME has no other data".into());
                    report.error_help(span(), message, help);
                }
            } else if addresses {
                let rtype = Rtype::from_int(set.rtype);
                let message = format!("service `{name}` has {rtype} records in {}", zone.line(place));
                let help = Some("the service answers for that name: remove them from the zone file".into());
                report.error_help(span(), message, help);
            }
        }
        for parent in parents(&key, apex.len()) {
            let delegated = parent != apex && zone.sets.get(parent, Rtype::NS.to_int()).is_some();
            let renamed = parent != key && zone.sets.get(parent, Rtype::DNAME.to_int()).is_some();
            if delegated || renamed {
                let what = if delegated {
                    "delegated"
                } else {
                    "renamed by a DNAME"
                };
                let message = format!("service `{name}` lies where its zone is {what}");
                report.error(span(), message);
            }
        }
    }
}

/// What there must be at least one of.
pub(crate) fn present(document: &Table<'_>, ports: usize, zones: usize) {
    if ports == 0 && document.get("port").is_none() {
        let help = Some("add one with `name`, `device` and `addresses`".into());
        document.report.error_help(0..0, "there is no [[port]]", help);
    }
    if zones == 0 && document.get("zone").is_none() {
        let help = "add a [[zone]] with `name` and `file`";
        document
            .report
            .warning(0..0, "there is no [[zone]]: every query is refused", help);
    }
}
