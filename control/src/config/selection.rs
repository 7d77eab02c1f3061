//! Reads what answers are chosen by: `[selection]`, the same keys in a `[[service]]`, and `prefer`. Called by
//! `config::load` and `service`.

use super::clients::PlacedClients;
use super::diagnostics::suggestion;
use super::model::{Metric, Prefer, Selection, Spread};
use super::reader::{Report, Table, Value};
use super::sections::{PlacedIsp, PlacedSite};
use crate::data::countries;
use crate::policy::chain::latency::NoEvidence;
use crate::policy::chain::preference::Bound;
use crate::policy::chain::{
    Continent, Country, NoData, Parameters, Permille, Source, available_sessions, capacity, connection_load,
    geo, latency, least_selected,
};
use std::ops::Range;
use std::time::Duration;

/// Limits of every `max_age` and window.
const SECONDS: (Duration, Duration, &str) = (
    Duration::from_secs(1),
    Duration::from_secs(86_400),
    "from 1s to 24h",
);
/// Tolerances may be more than the whole: ten times.
const TOLERANCE_MAX: u32 = 10_000;

/// `[selection]`: what services have that say nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) chain: Option<Vec<Metric>>,
    pub(crate) spread: Option<Spread>,
    pub(crate) parameters: Parameters,
}

impl Defaults {
    /// What has no place in services.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            capacity: self.parameters.capacity.clone(),
        }
    }
}

/// What a service's keys refer to.
pub(crate) struct Known<'a> {
    pub(crate) sites: &'a [PlacedSite],
    pub(crate) isps: &'a [PlacedIsp],
    pub(crate) clients: &'a [PlacedClients],
    pub(crate) defaults: &'a Defaults,
}

/// `[selection]`.
pub(crate) fn selection(table: &Table<'_>) -> Defaults {
    let mut parameters = parameters(table, &Parameters::default());
    if let Some(table) = table.get("capacity").and_then(|v| v.table("capacity = { ... }")) {
        parameters.capacity = table.read(|table| capacity(table, &parameters.capacity));
    }
    Defaults {
        chain: table.get("chain").and_then(|value| chain(&value)),
        spread: table.get("static").and_then(|value| spread(&value)),
        parameters,
    }
}

/// The parameters in `[selection]` or a `[[service]]`, over `defaults`.
pub(crate) fn parameters(table: &Table<'_>, defaults: &Parameters) -> Parameters {
    fn part<'a, T: Clone>(
        table: &Table<'a>,
        (key, what): (&'static str, &'static str),
        default: &T,
        read: impl FnOnce(&Table<'a>, &T) -> T,
    ) -> T {
        match table.get(key).and_then(|value| value.table(what)) {
            Some(table) => table.read(|table| read(table, default)),
            None => default.clone(),
        }
    }
    let d = defaults;
    Parameters {
        capacity: d.capacity.clone(),
        latency: part(table, ("latency", "latency = { ... }"), &d.latency, latency),
        geo: part(table, ("geo", "geo = { ... }"), &d.geo, geo),
        connection_load: part(
            table,
            ("connection_load", "connection_load = { ... }"),
            &d.connection_load,
            connection_load,
        ),
        available_sessions: part(
            table,
            ("available_sessions", "available_sessions = { ... }"),
            &d.available_sessions,
            available_sessions,
        ),
        least_selected: part(
            table,
            ("least_selected", "least_selected = { ... }"),
            &d.least_selected,
            least_selected,
        ),
    }
}

fn capacity(table: &Table<'_>, default: &capacity::Parameters) -> capacity::Parameters {
    let high = share(table, "high", 1000).unwrap_or(default.high);
    let given_low = table.get("low");
    let low = share(table, "low", 1000).unwrap_or(default.low.min(high));
    if low > high {
        let span = given_low.map_or(table.span.clone(), |value| value.span);
        let help = "a site is shed between `low` and `high`, and out at `high`".to_owned();
        table
            .report
            .error_help(span, format!("`low` is above `high` ({high})"), Some(help));
    }
    capacity::Parameters {
        low,
        high,
        max_age: age(table, "max_age").unwrap_or(default.max_age),
    }
}

fn latency(table: &Table<'_>, default: &latency::Parameters) -> latency::Parameters {
    let sources = table.get("sources").and_then(|value| {
        let choices = [("passive", Source::Passive), ("agent", Source::Agent)];
        each_once(&value, &choices)
    });
    let rules = [
        ("explore", NoEvidence::Explore),
        ("keep", NoEvidence::Keep),
        ("drop", NoEvidence::Drop),
    ];
    let longest = Duration::from_secs(10);
    latency::Parameters {
        sources: sources.unwrap_or_else(|| default.sources.clone()),
        relative: share(table, "tolerance", TOLERANCE_MAX).unwrap_or(default.relative),
        absolute: table
            .get("tolerance_time")
            .and_then(|value| value.duration(Duration::ZERO..=longest, "from 0ms to 10s"))
            .unwrap_or(default.absolute),
        max_age: age(table, "max_age").unwrap_or(default.max_age),
        no_data: table
            .get("no_data")
            .and_then(|value| value.choice(&rules))
            .unwrap_or(default.no_data),
        explore: share(table, "explore", 500).unwrap_or(default.explore),
    }
}

fn geo(table: &Table<'_>, default: &geo::Parameters) -> geo::Parameters {
    let choices = geo::Level::ALL.map(|level| (level.name(), level));
    geo::Parameters {
        by: table
            .get("by")
            .and_then(|value| each_once(&value, &choices))
            .unwrap_or_else(|| default.by.clone()),
        tolerance_m: table
            .get("tolerance")
            .and_then(|value| value.distance())
            .unwrap_or(default.tolerance_m),
        no_data: no_data(table).unwrap_or(default.no_data),
    }
}

fn connection_load(table: &Table<'_>, default: &connection_load::Parameters) -> connection_load::Parameters {
    let limit = table.get("limit").and_then(|value| value.integer(1..=i64::MAX));
    connection_load::Parameters {
        limit: limit.or(default.limit),
        max_age: age(table, "max_age").unwrap_or(default.max_age),
    }
}

fn available_sessions(
    table: &Table<'_>,
    default: &available_sessions::Parameters,
) -> available_sessions::Parameters {
    available_sessions::Parameters {
        tolerance: share(table, "tolerance", 1000).unwrap_or(default.tolerance),
        no_data: no_data(table).unwrap_or(default.no_data),
        max_age: age(table, "max_age").unwrap_or(default.max_age),
    }
}

fn least_selected(table: &Table<'_>, default: &least_selected::Parameters) -> least_selected::Parameters {
    least_selected::Parameters {
        window: age(table, "window").unwrap_or(default.window),
    }
}

fn share(table: &Table<'_>, key: &'static str, max: u32) -> Option<Permille> {
    table.get(key)?.share(max).map(Permille)
}

fn age(table: &Table<'_>, key: &'static str) -> Option<Duration> {
    let (least, most, limits) = SECONDS;
    table.get(key)?.duration(least..=most, limits)
}

fn no_data(table: &Table<'_>) -> Option<NoData> {
    let choices = [("keep", NoData::Keep), ("drop", NoData::Drop)];
    table.get("no_data")?.choice(&choices)
}

/// A list of words, at least one, none twice.
fn each_once<T: Clone + PartialEq>(value: &Value<'_>, choices: &[(&str, T)]) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for item in value.some_items("name at least one") {
        let Some(one) = item.choice(choices) else { continue };
        if all.contains(&one) {
            item.wrong::<()>("this is in the list already");
        }
        all.push(one);
    }
    (!all.is_empty()).then_some(all)
}

/// `chain = [...]`: known metrics, none twice, `static` last.
pub(crate) fn chain(value: &Value<'_>) -> Option<Vec<Metric>> {
    let mut chain = Vec::new();
    let items = value.items()?;
    let mut complete = true;
    for item in &items {
        match item.string().and_then(|text| metric(item, text)) {
            Some(metric) if chain.contains(&metric) => {
                item.wrong::<()>("this metric is in the chain already");
            }
            Some(metric) => chain.push(metric),
            None => complete = false,
        }
    }
    if complete && chain.last() != Some(&Metric::Static) {
        let span = items.last().map_or(value.span.clone(), |item| item.span.clone());
        let help = Some("add \"static\" as the last: it draws among what the others left".into());
        value
            .report
            .error_help(span, "the chain must end with \"static\"", help);
    }
    let drawn = chain.iter().position(|m| *m == Metric::LeastSelected);
    if complete && drawn.is_some_and(|place| place + 2 < chain.len()) {
        value.report.warning(
            value.span.clone(),
            "\"least-selected\" draws among what all other metrics left, wherever it stands",
            "put it right before \"static\"",
        );
    }
    Some(chain)
}

fn metric(item: &Value<'_>, text: &str) -> Option<Metric> {
    let found = Metric::ALL.iter().find(|metric| metric.name() == text);
    if found.is_none() {
        let names = Metric::ALL.map(Metric::name);
        let available = format!("available: {}", names.join(", "));
        let help =
            suggestion(text, names).map_or(available.clone(), |guess| format!("{guess} ({available})"));
        item.report
            .error_help(item.span.clone(), format!("unknown metric `{text}`"), Some(help));
    }
    found.copied()
}

/// `static = "round-robin" | "weighted" | "consistent-hash" | { kind = "consistent-hash", ... }`.
pub(crate) fn spread(value: &Value<'_>) -> Option<Spread> {
    const CHOICES: [(&str, Spread); 3] = [
        ("round-robin", Spread::RoundRobin),
        ("weighted", Spread::Weighted),
        (
            "consistent-hash",
            Spread::ConsistentHash {
                prefix_v4: 24,
                prefix_v6: 48,
            },
        ),
    ];
    if !value.is_table() {
        return value.choice(&CHOICES);
    }
    value.table("static = { ... }")?.read(|table| {
        let kind = table.need("kind")?.choice(&CHOICES)?;
        let (v4, v6) = (table.get("ipv4_prefix"), table.get("ipv6_prefix"));
        let Spread::ConsistentHash { prefix_v4, prefix_v6 } = kind else {
            for value in [v4, v6].into_iter().flatten() {
                value.wrong::<()>("prefix lengths have a meaning for kind = \"consistent-hash\" only");
            }
            return Some(kind);
        };
        Some(Spread::ConsistentHash {
            prefix_v4: v4.and_then(|v| v.integer(0..=32)).unwrap_or(prefix_v4),
            prefix_v6: v6.and_then(|v| v.integer(0..=64)).unwrap_or(prefix_v6),
        })
    })
}

/// The index of something that has a name, or an error with a suggestion.
pub(crate) fn find<'a>(
    report: &Report,
    span: Range<usize>,
    (what, name): (&str, &str),
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<usize> {
    let found = names.clone().position(|known| known == name);
    if found.is_none() {
        let help =
            suggestion(name, names).unwrap_or_else(|| format!("add a [[{what}]] with name = \"{name}\""));
        report.error_help(span, format!("unknown {what} `{name}`"), Some(help));
    }
    found
}

/// `prefer = [ { isp, country, clients, site, preference }, ... ]`.
pub(crate) fn prefer(value: &Value<'_>, known: &Known<'_>) -> Vec<Prefer> {
    let items = value.items().unwrap_or_default();
    let one = |item: &Value<'_>| item.table("prefer")?.read(|table| prefer_one(table, known));
    items.iter().filter_map(one).collect()
}

fn prefer_one(table: &Table<'_>, known: &Known<'_>) -> Option<Prefer> {
    fn reference<'a>(
        table: &Table<'_>,
        (key, what): (&'static str, &'static str),
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<Option<usize>> {
        let Some(value) = table.get(key) else {
            return Some(None);
        };
        find(value.report, value.span.clone(), (what, value.string()?), names).map(Some)
    }
    let names = known.isps.iter().map(|isp| isp.name.value.as_str());
    let isp = reference(table, ("isp", "isp"), names);
    let names = known.clients.iter().map(|c| c.name.value.as_str());
    let named = reference(table, ("clients", "clients"), names);
    let country = match table.get("country") {
        Some(value) => country(&value).map(Some),
        None => Some(None),
    };
    let preference = table.get("preference").map(|value| value.integer(0..=255));
    let names = known.sites.iter().map(|site| site.name.value.as_str());
    table.need("site")?;
    let site = reference(table, ("site", "site"), names)??;
    let bound = Bound {
        isp: isp?,
        country: country?,
        named: named?.map(|named| named as u32),
        preference: match preference {
            Some(given) => Some(given?),
            None => None,
        },
    };
    if bound.isp.is_none() && bound.country.is_none() && bound.named.is_none() {
        let help =
            "add `isp`, `country` or `clients`, or use `preference` of the service or the site".to_owned();
        table.report.error_help(
            table.span.clone(),
            "this preference is for no clients",
            Some(help),
        );
        return None;
    }
    Some(Prefer { site, bound })
}

/// An ISO 3166-1 alpha-2 code.
pub(crate) fn country(value: &Value<'_>) -> Option<Country> {
    countries::country(value.string()?).map_or_else(|message| value.wrong(message), Some)
}

/// The name of a continent, or its code.
pub(crate) fn continent(value: &Value<'_>) -> Option<Continent> {
    countries::continent(value.string()?).map_or_else(|message| value.wrong(message), Some)
}
