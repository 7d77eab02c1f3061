//! Reads `[[service]]`: the members; the check is `check`'s, what they are chosen by is `selection`'s. Names of sites are
//! resolved here, so the sites are read first. Called by `config::load`.

use super::check::check;
use super::model::{AllDown, CnameMember, Member, Metric, Name, Service, Spread};
use super::reader::{At, Report, Table, Value};
use super::sections::{PlacedSite, domain_name};
use super::selection::{self, Known};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

/// Longest TTL, seconds (RFC 2181 section 8).
pub(crate) const TTL_MAX: i64 = i32::MAX as i64;
/// Members of one family at one site: a site's members are one 64-bit health word.
const SITE_MEMBERS_MAX: usize = 64;
/// Sites of one service: what one cell of the answer plans ranks.
const SITES_MAX: usize = 28;

/// `[[service]]` with its places.
pub(crate) struct PlacedService {
    pub(crate) name: At<Name>,
    /// Places of the members' addresses and of the fixed ones.
    pub(crate) addresses: Vec<At<IpAddr>>,
    pub(crate) service: Service,
}

/// `[[service]]`.
pub(crate) fn service(table: &Table<'_>, known: &Known<'_>) -> Option<PlacedService> {
    let (sites, defaults) = (known.sites, known.defaults);
    let name = table.need("name").and_then(|value| {
        let name = domain_name(&value)?;
        Some(At {
            value: name,
            span: value.span,
        })
    });
    let ttl = table
        .get("ttl")
        .and_then(|value| value.integer(0..=TTL_MAX))
        .unwrap_or(30);
    let ttl_degraded = table
        .get("ttl_degraded")
        .and_then(|value| value.integer(0..=TTL_MAX))
        .unwrap_or_else(|| (ttl / 2).max(1).min(ttl));
    let answers = table
        .get("answers")
        .and_then(|value| value.integer(1..=16))
        .unwrap_or(1);
    let fill = table
        .get("fill")
        .and_then(|value| value.boolean())
        .unwrap_or(false);
    let ecs = table.get("ecs").and_then(|value| value.boolean()).unwrap_or(true);
    let chain = table.get("chain").and_then(|value| selection::chain(&value));
    let spread = table.get("static").and_then(|value| selection::spread(&value));
    let parameters = selection::parameters(table, &defaults.parameters);
    let (when_all_down, fixed) = when_all_down(table);
    let (members, cnames) = members(table, sites);
    let preference = table
        .get("preference")
        .map(|value| preference(&value, sites))
        .unwrap_or_default();
    let prefer = table.get("prefer").map(|value| selection::prefer(&value, known));
    let check = table
        .get("check")
        .and_then(|v| v.table("check = { ... }"))
        .and_then(|t| t.read(|t| check(t)));

    let on_silence = table
        .get("on_silence")
        .and_then(|value| super::reports::on_silence(&value));

    let name = name?;
    for cname in &cnames {
        if cname.value.name == name.value {
            let message = "the service itself cannot be a member of it";
            table.report.error(cname.span.clone(), message);
        }
    }
    let mut addresses: Vec<At<IpAddr>> = Vec::new();
    addresses.extend(members.iter().map(|m| At {
        value: m.value.address,
        span: m.span.clone(),
    }));
    addresses.extend(fixed);
    let service = Service {
        name: name.value.clone(),
        ttl,
        ttl_degraded,
        answers,
        fill,
        ecs,
        chain: chain
            .or_else(|| defaults.chain.clone())
            .unwrap_or_else(|| Metric::USUAL.to_vec()),
        spread: spread.or(defaults.spread).unwrap_or(Spread::RoundRobin),
        when_all_down,
        members: members.into_iter().map(|member| member.value).collect(),
        cnames: cnames.into_iter().map(|cname| cname.value).collect(),
        preference,
        prefer: prefer.unwrap_or_default(),
        parameters,
        on_silence,
        check,
    };
    Some(PlacedService {
        name,
        addresses,
        service,
    })
}

/// `when_all_down = "last-good" | "open" | "closed" | { fixed = [...] }`, and the places of fixed ones.
fn when_all_down(table: &Table<'_>) -> (AllDown, Vec<At<IpAddr>>) {
    let Some(value) = table.get("when_all_down") else {
        return (AllDown::LastGood, Vec::new());
    };
    if !value.is_table() {
        let choices = [
            ("last-good", AllDown::LastGood),
            ("open", AllDown::Open),
            ("closed", AllDown::Closed),
        ];
        return (value.choice(&choices).unwrap_or(AllDown::LastGood), Vec::new());
    }
    let fixed = value.table("when_all_down = { ... }").and_then(|table| {
        table.read(|table| {
            let value = table.need("fixed")?;
            let items = value.items()?;
            if items.is_empty() || items.len() > 16 {
                return value.wrong("`fixed` must hold 1 to 16 addresses");
            }
            let mut fixed: Vec<At<IpAddr>> = Vec::new();
            for item in items {
                let Some(address) = item.address() else {
                    continue;
                };
                if fixed.iter().any(|other| other.value == address) {
                    item.wrong::<()>(format!("{address} is in `fixed` twice"));
                }
                fixed.push(At {
                    value: address,
                    span: item.span,
                });
            }
            Some(fixed)
        })
    });
    let fixed = fixed.unwrap_or_default();
    (
        AllDown::Fixed(fixed.iter().map(|address| address.value).collect()),
        fixed,
    )
}

/// One entry of `member`.
enum Given {
    Address(At<Member>),
    Name(At<CnameMember>),
}

/// `member = [ { address, site, weight }, { cname, site, weight }, ... ]`.
fn members(table: &Table<'_>, sites: &[PlacedSite]) -> (Vec<At<Member>>, Vec<At<CnameMember>>) {
    let Some(value) = table.need("member") else {
        return (Vec::new(), Vec::new());
    };
    let items = value.some_items("a service has at least one member");
    let mut members: Vec<At<Member>> = Vec::new();
    let mut cnames: Vec<At<CnameMember>> = Vec::new();
    let mut seen: HashMap<String, Range<usize>> = HashMap::new();
    let mut per_site: HashMap<(usize, bool), usize> = HashMap::new();
    for item in items {
        let Some(table) = item.table("member") else {
            continue;
        };
        let Some(member) = table.read(|table| member(table, sites)) else {
            continue;
        };
        let (shown, span, site, families): (_, _, _, &[bool]) = match &member {
            Given::Address(m) if m.value.address.is_ipv4() => {
                (m.value.address.to_string(), m.span.clone(), m.value.site, &[true])
            }
            Given::Address(m) => (
                m.value.address.to_string(),
                m.span.clone(),
                m.value.site,
                &[false],
            ),
            // A name may be drawn among the addresses of either family.
            Given::Name(m) => {
                let shown = m.value.name.to_string().to_ascii_lowercase();
                (shown, m.span.clone(), m.value.site, &[true, false])
            }
        };
        if let Some(first) = seen.get(&shown) {
            let message = format!(
                "member {shown} is there twice, first in {}",
                value.report.line(first)
            );
            value.report.error(span, message);
            continue;
        }
        seen.insert(shown, span.clone());
        for &is_v4 in families {
            let count = per_site.entry((site, is_v4)).or_default();
            *count += 1;
            if *count == SITE_MEMBERS_MAX + 1 {
                let family = if is_v4 { "IPv4" } else { "IPv6" };
                let message = format!("more than {SITE_MEMBERS_MAX} {family} members at one site");
                let help = Some("split the site in two".into());
                value.report.error_help(span.clone(), message, help);
            }
        }
        match member {
            Given::Address(member) => members.push(member),
            Given::Name(cname) => cnames.push(cname),
        }
    }
    let mut used: Vec<usize> = members.iter().map(|member| member.value.site).collect();
    used.extend(cnames.iter().map(|cname| cname.value.site));
    used.sort_unstable();
    used.dedup();
    if used.len() > SITES_MAX {
        value.wrong::<()>(format!(
            "the members stand at {} sites; a service has at most {SITES_MAX}",
            used.len()
        ));
    }
    (members, cnames)
}

fn member(table: &Table<'_>, sites: &[PlacedSite]) -> Option<Given> {
    let cname = table.get("cname").map(|v| {
        Some(At {
            value: domain_name(&v)?,
            span: v.span.clone(),
        })
    });
    let address = match (&cname, table.get("address")) {
        (None, _) => table.need("address"),
        (Some(_), Some(value)) => return value.wrong("a member is an `address` or a `cname`, not both"),
        (Some(_), None) => None,
    };
    let address = address.and_then(|v| {
        Some(At {
            value: v.address()?,
            span: v.span.clone(),
        })
    });
    let site = table.need("site").and_then(|value| {
        let name = value.string()?;
        find_site(value.report, value.span.clone(), name, sites)
    });
    let weight = table
        .get("weight")
        .and_then(|value| value.integer(0..=65535))
        .unwrap_or(1);
    if let Some(cname) = cname {
        let cname = cname?;
        return Some(Given::Name(At {
            value: CnameMember {
                name: cname.value,
                site: site?,
                weight,
            },
            span: cname.span,
        }));
    }
    let address = address?;
    Some(Given::Address(At {
        value: Member {
            address: address.value,
            site: site?,
            weight,
        },
        span: address.span,
    }))
}

fn find_site(report: &Report, span: Range<usize>, name: &str, sites: &[PlacedSite]) -> Option<usize> {
    let names = sites.iter().map(|site| site.name.value.as_str());
    selection::find(report, span, ("site", name), names)
}

/// `preference = { "seoul-kt" = 200 }`.
fn preference(value: &Value<'_>, sites: &[PlacedSite]) -> Vec<(usize, u8)> {
    let Some(table) = value.table("preference = { SITE = 0 to 255 }") else {
        return Vec::new();
    };
    let pair = |(name, value): (At<&str>, Value<'_>)| {
        let site = find_site(value.report, name.span, name.value, sites);
        let preference = value.integer(0..=255);
        Some((site?, preference?))
    };
    let mut pairs: Vec<(usize, u8)> = table.pairs().filter_map(pair).collect();
    pairs.sort_unstable();
    pairs
}
