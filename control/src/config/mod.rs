//! The configuration: one TOML file and the zone files that it names, checked whole.
//!
//! [`load`] reads and checks; what it gives is right in every reference and limit. Everything that is
//! wrong is found in one go, each with file, line and column. `reader` turns TOML into typed values,
//! `sections` and `service` know the keys, `cross` the checks between sections.

mod abuse;
mod alert;
pub(crate) mod check;
mod clients;
mod cross;
mod diagnostics;
pub mod latency;
pub mod machine;
pub mod model;
pub(crate) mod reader;
pub(crate) mod reports;
mod secrets;
pub(crate) mod sections;
mod selection;
#[cfg(test)]
mod selection_tests;
pub(crate) mod service;
mod tcp;
pub(crate) mod units;

pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub(crate) use diagnostics::{Source, suggestion};

use crate::data::Data;
use crate::zones;
use model::Config;
use reader::{Report, Table};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use toml::de::DeTable;

/// Loads a configuration and the zone files that it names; warnings go to the log.
///
/// # Errors
/// Everything that is wrong, in the order of the files.
pub fn load(path: &Path) -> Result<Config, Diagnostics> {
    let (config, warnings) = load_with_warnings(path)?;
    for warning in warnings.iter() {
        tracing::warn!(file = %warning.file.display(), line = warning.line, "{}", warning.message);
    }
    Ok(config)
}

/// As [`load`], with the warnings for the caller to show.
///
/// # Errors
/// Everything that is wrong, and the warnings, in the order of the files.
pub fn load_with_warnings(path: &Path) -> Result<(Config, Diagnostics), Diagnostics> {
    let text = text_of(path)?;
    let mut found = Diagnostics::default();
    let config = parse(path, &text, &mut found);
    found.sort();
    match config {
        Some(config) if !found.has_errors() => Ok((config, found)),
        _ => Err(found),
    }
}

/// The text of a file.
fn text_of(path: &Path) -> Result<String, Diagnostics> {
    let text = std::fs::read(path).map_err(|error| format!("cannot read the configuration: {error}"));
    let text = text.and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| {
            format!(
                "not UTF-8 text: byte {} is wrong",
                error.utf8_error().valid_up_to() + 1
            )
        })
    });
    text.map_err(|message| {
        let mut found = Diagnostics::default();
        found.push(Diagnostic::file(Severity::Error, path, message));
        found
    })
}

/// Reads a TOML file of another kind by `read`; warnings beside it. `None` from `read` is an error that was reported.
pub(crate) fn read_other<T>(
    path: &Path,
    read: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<(T, Diagnostics), Diagnostics> {
    let text = text_of(path)?;
    let mut found = Diagnostics::default();
    let value = parse_by(path, &text, &mut found, |table| table.read(read)).flatten();
    found.sort();
    match value {
        Some(value) if !found.has_errors() => Ok((value, found)),
        _ => Err(found),
    }
}

/// Reads a document and its zone files. What is wrong is in `found`.
fn parse(path: &Path, text: &str, found: &mut Diagnostics) -> Option<Config> {
    let mut in_zones = Diagnostics::default();
    let config = parse_by(path, text, found, |table| {
        table.read(|table| sections_of(table, path, text, &mut in_zones))
    });
    found.append(in_zones);
    config
}

/// Reads a document by `read`, unless its syntax is wrong.
fn parse_by<T>(
    path: &Path,
    text: &str,
    found: &mut Diagnostics,
    read: impl FnOnce(&Table<'_>) -> T,
) -> Option<T> {
    let report = Report::new(Source::new(path, Arc::new(secrets::mask(text).into_bytes())));
    let (document, errors) = DeTable::parse_recoverable(text);
    let syntax_wrong = !errors.is_empty();
    for error in errors {
        report.error(error.span().unwrap_or(0..0), error.message());
    }
    let table = Table::new(&report, document.get_ref(), "the file", 0..0);
    // What could be recovered of wrong syntax may be half of what was meant: errors in it would mislead.
    let value = (!syntax_wrong).then(|| read(&table));
    found.append(report.into_found());
    value
}

/// Reads all sections in the order in which they refer to each other, then checks them together.
fn sections_of(document: &Table<'_>, path: &Path, text: &str, found: &mut Diagnostics) -> Config {
    let report = document.report;
    let base = path.parent().unwrap_or(Path::new(""));
    let one = |key, what| document.get(key).and_then(|value| value.table(what));

    let appliance = match one("appliance", "[appliance]") {
        Some(table) => table.read(|table| sections::appliance(Some(table))),
        None => sections::appliance(None),
    };
    let reports =
        one("reports", "[reports]").and_then(|table| table.read(|table| reports::reports(table, base)));
    let dataplane = match document
        .need("dataplane")
        .and_then(|value| value.table("[dataplane]"))
    {
        Some(table) => table.read(sections::dataplane),
        None => sections::no_dataplane(),
    };
    let dns = match one("dns", "[dns]") {
        Some(table) => table.read(|table| sections::dns(table, base)),
        None => model::Dns::default(),
    };
    let admin = match one("admin", "[admin]") {
        Some(table) => table.read(|table| sections::admin(Some(table))),
        None => sections::admin(None),
    };
    let latency = match one("latency", "[latency]") {
        Some(table) => table.read(|table| latency::latency(table, base)),
        None => latency::Latency::default(),
    };
    let ports: Vec<_> = document
        .tables("port", "[[port]]", sections::port)
        .into_iter()
        .flatten()
        .collect();
    let isps: Vec<_> = document
        .tables("isp", "[[isp]]", sections::isp)
        .into_iter()
        .flatten()
        .collect();
    let mut hash = Sha256::new();
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
    let data = match one("data", "[data]") {
        Some(table) => table.read(|table| clients::data(table, base, found)),
        None => Data::default(),
    };
    clients::hash(&data, &mut hash);
    let both = RefCell::new((&mut *found, &mut hash));
    let clients = |table: &Table<'_>| {
        let (found, hash) = &mut *both.borrow_mut();
        clients::clients(table, base, &isps, found, hash)
    };
    let clients: Vec<_> = document
        .tables("clients", "[[clients]]", clients)
        .into_iter()
        .flatten()
        .collect();
    let defaults = match one("selection", "[selection]") {
        Some(table) => table.read(selection::selection),
        None => selection::Defaults::default(),
    };
    let site = |table: &Table<'_>| sections::site(table, base);
    let mut sites: Vec<_> = document
        .tables("site", "[[site]]", site)
        .into_iter()
        .flatten()
        .collect();
    let zone = |table: &Table<'_>| sections::zone(table, base);
    let zones: Vec<_> = document
        .tables("zone", "[[zone]]", zone)
        .into_iter()
        .flatten()
        .collect();
    cross::sites(report, &mut sites, &isps, &clients);
    let known = selection::Known {
        sites: &sites,
        isps: &isps,
        clients: &clients,
        defaults: &defaults,
    };
    let service = |table: &Table<'_>| service::service(table, &known);
    let services: Vec<_> = document
        .tables("service", "[[service]]", service)
        .into_iter()
        .flatten()
        .collect();

    let alerts = document.tables("alert", "[[alert]]", alert::alert);

    cross::present(document, ports.len(), zones.len());
    cross::names(report, &ports, &isps, &clients, &sites, &zones, &services);
    cross::ports(report, &ports, &dataplane, &dns);
    latency::pairs(report, &ports);
    let data_given = !data.asn.is_empty() || document.get("data").is_some();
    cross::isps(report, &isps, data_given);
    reports::cross(document, reports.as_ref(), &sites, &appliance);
    cross::members(report, &ports, &services);

    let keys = cross::service_keys(&services);
    let mut loaded = Vec::new();
    for zone in &zones {
        if zone.file.value.is_file() {
            loaded.extend(zones::load(
                &zone.name.value,
                &zone.file.value,
                &keys,
                found,
                &mut hash,
            ));
        } else {
            let shown = zone.file.value.display();
            let help = "a relative file is taken from the folder of the configuration".to_owned();
            report.error_help(
                zone.file.span.clone(),
                format!("no zone file {shown}"),
                Some(help),
            );
        }
    }
    cross::services(report, &services, &zones, &loaded);
    let file_of = |apex: &model::Name| zones.iter().find(|zone| zone.name.value == *apex);
    let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Config {
        path: path.to_path_buf(),
        hash,
        appliance,
        dataplane,
        ports: ports.into_iter().map(|port| port.port).collect(),
        dns,
        data,
        clients: clients.into_iter().map(|c| c.clients).collect(),
        isps: isps.into_iter().map(sections::PlacedIsp::into_isp).collect(),
        selection: defaults.selection(),
        sites: sites.into_iter().map(|site| site.site).collect(),
        zones: loaded
            .into_iter()
            .map(|zone| {
                let file = file_of(&zone.apex)
                    .map(|zone| zone.file.value.clone())
                    .unwrap_or_default();
                zone.into_zone(&file)
            })
            .collect(),
        services: services.into_iter().map(|service| service.service).collect(),
        latency,
        admin,
        reports,
        alerts: alerts.into_iter().flatten().collect(),
    }
}
