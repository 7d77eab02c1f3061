//! What the keys of `[selection]`, and the same in a service, are read as; what is wrong with them is said where it is.

use super::diagnostics::Source;
use super::model::{Metric, Spread};
use super::reader::{Report, Table};
use super::selection::{self, Defaults};
use crate::policy::chain::geo::Level;
use crate::policy::chain::latency::NoEvidence;
use crate::policy::chain::{self, NoData, Parameters, Permille};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeTable;

/// Reads a text by `read`; the findings as "line:column: message (help)".
fn read<T>(text: &str, read: impl FnOnce(&Table<'_>) -> T) -> (T, Vec<String>) {
    let source = Source::new(Path::new("w.toml"), Arc::new(text.as_bytes().to_vec()));
    let report = Report::new(source);
    let document = DeTable::parse(text).expect("TOML");
    let table = Table::new(&report, document.get_ref(), "[selection]", 0..0);
    let value = table.read(read);
    let found = report.into_found();
    let shown = found.iter().map(|d| {
        let help = d.help.as_deref().unwrap_or_default();
        format!("{}:{}: {} ({help})", d.line, d.column, d.message)
    });
    (value, shown.collect())
}

fn good(text: &str) -> Defaults {
    let (defaults, found) = read(text, selection::selection);
    assert!(found.is_empty(), "{found:?}");
    defaults
}

#[test]
fn nothing_said_is_the_default() {
    let defaults = good("");
    assert_eq!(defaults.parameters, Parameters::default());
    assert_eq!((defaults.chain, defaults.spread), (None, None));
}

#[test]
fn every_key_is_read() {
    let defaults = good(
        r#"
        chain = ["health", "capacity", "isp", "latency", "geo", "connection-load", "available-sessions", "preference",
                 "least-selected", "static"]
        static = { kind = "consistent-hash", ipv4_prefix = 20, ipv6_prefix = 40 }
        capacity = { low = "70%", high = "95.5%", max_age = "30s" }
        latency = { sources = ["agent"], tolerance = "12.5%", tolerance_time = "2ms", max_age = "5m", no_data = "keep",
                    explore = "1%" }
        geo = { by = ["distance", "country"], tolerance = "250km", no_data = "keep" }
        connection_load = { limit = 5000, max_age = "10s" }
        available_sessions = { tolerance = "20%", no_data = "drop", max_age = "15s" }
        least_selected = { window = "2m" }
        "#,
    );
    let p = &defaults.parameters;
    assert_eq!(defaults.chain.as_deref(), Some(&Metric::ALL[..]));
    let hash = Spread::ConsistentHash {
        prefix_v4: 20,
        prefix_v6: 40,
    };
    assert_eq!(defaults.spread, Some(hash));
    assert_eq!((p.capacity.low, p.capacity.high), (Permille(700), Permille(955)));
    assert_eq!(p.capacity.max_age, Duration::from_secs(30));
    assert_eq!(defaults.selection().capacity, p.capacity);
    assert_eq!(p.latency.sources, [chain::Source::Agent]);
    assert_eq!(
        (p.latency.relative, p.latency.explore),
        (Permille(125), Permille(10))
    );
    assert_eq!(p.latency.absolute, Duration::from_millis(2));
    assert_eq!(p.latency.max_age, Duration::from_secs(300));
    assert_eq!(p.latency.no_data, NoEvidence::Keep);
    assert_eq!(p.geo.by, [Level::Distance, Level::Country]);
    assert_eq!((p.geo.tolerance_m, p.geo.no_data), (250_000, NoData::Keep));
    assert_eq!(p.connection_load.limit, Some(5000));
    assert_eq!(p.connection_load.max_age, Duration::from_secs(10));
    assert_eq!(p.available_sessions.tolerance, Permille(200));
    assert_eq!(p.available_sessions.no_data, NoData::Drop);
    assert_eq!(p.available_sessions.max_age, Duration::from_secs(15));
    assert_eq!(p.least_selected.window, Duration::from_secs(120));
}

/// A service's keys count over `[selection]`, one by one.
#[test]
fn services_override_key_by_key() {
    let defaults = good("latency = { tolerance = \"20%\", explore = \"1%\" }\ngeo = { tolerance = \"5km\" }");
    let text = "latency = { tolerance = \"30%\" }";
    let (p, found) = read(text, |table| selection::parameters(table, &defaults.parameters));
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(
        (p.latency.relative, p.latency.explore),
        (Permille(300), Permille(10))
    );
    assert_eq!(p.geo.tolerance_m, 5000);
    // Capacity acts on sites, for all services at once.
    let text = "capacity = { high = \"50%\" }";
    let (_, found) = read(text, |table| selection::parameters(table, &defaults.parameters));
    assert!(found[0].contains("unknown key `capacity`"), "{found:?}");
}

#[test]
fn what_is_wrong_is_said_where_it_is() {
    for (text, place, fragment) in [
        (
            "latency = { tolerence = \"10%\" }",
            "1:13",
            "did you mean `tolerance`?",
        ),
        ("latancy = {}", "1:1", "did you mean `latency`?"),
        ("latency = { tolerance = 10 }", "1:25", "a share such as \"10%\""),
        ("latency = { tolerance = \"1001%\" }", "1:25", "at most 1000%"),
        ("latency = { explore = \"51%\" }", "1:23", "at most 50%"),
        (
            "latency = { sources = [\"agents\"] }",
            "1:24",
            "did you mean `agent`?",
        ),
        (
            "latency = { sources = [\"agent\", \"agent\"] }",
            "1:33",
            "in the list already",
        ),
        ("latency = { sources = [] }", "1:23", "name at least one"),
        (
            "latency = { no_data = \"leave\" }",
            "1:23",
            "\"explore\" or \"keep\" or \"drop\"",
        ),
        ("latency = { max_age = \"0s\" }", "1:23", "from 1s to 24h"),
        ("geo = { tolerance = \"100\" }", "1:21", "write km or m"),
        ("geo = { by = [\"city\"] }", "1:15", "cannot be \"city\""),
        (
            "capacity = { low = \"95%\", high = \"90%\" }",
            "1:20",
            "`low` is above `high` (90%)",
        ),
        ("connection_load = { limit = 0 }", "1:29", "from 1 to"),
        (
            "available_sessions = { no_data = \"explore\" }",
            "1:34",
            "\"keep\" or \"drop\"",
        ),
        (
            "static = { kind = \"weighted\", ipv4_prefix = 24 }",
            "1:45",
            "\"consistent-hash\" only",
        ),
        (
            "static = { kind = \"consistent-hash\", ipv6_prefix = 65 }",
            "1:52",
            "from 0 to 64",
        ),
        ("static = { ipv4_prefix = 24 }", "1:10", "has no `kind`"),
        (
            "chain = [\"least-selected\", \"isp\", \"static\"]",
            "1:9",
            "right before \"static\"",
        ),
        (
            "chain = [\"isp\", \"isp\", \"static\"]",
            "1:17",
            "in the chain already",
        ),
    ] {
        let (_, found) = read(text, selection::selection);
        let hit = |f: &String| f.starts_with(&format!("{place}:")) && f.contains(fragment);
        assert!(found.iter().any(hit), "{text}: {found:?}");
    }
    // A high mark below the usual low one brings that down with it.
    assert_eq!(
        good("capacity = { high = \"50%\" }").parameters.capacity.low,
        Permille(500)
    );
}
