//! Reads `[data]` and `[[clients]]`: databases of autonomous systems and countries, and named lists of prefixes. Called by
//! `config::load`; the files are read by `data`.

use super::diagnostics::{Diagnostic, Diagnostics, Severity};
use super::model::{ClientPrefix, Clients};
use super::reader::{At, Table, Value};
use super::sections::{PlacedIsp, location, placed_word, prefix};
use super::selection::{continent, country, find};
use crate::data::{self, Data, Failure, Place, prefix_file};
use crate::policy::chain::facts::Location;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `[data]` and the place of `asn`. What is wrong with the files themselves goes to `found`.
pub(crate) fn data(table: &Table<'_>, base: &Path, found: &mut Diagnostics) -> Data {
    Data {
        asn: databases(table, "asn", base, found, data::load_asn),
        country: databases(table, "country", base, found, data::load_places),
    }
}

type Load<T> = fn(&Path) -> Result<Arc<data::Table<T>>, Failure>;

fn databases<T>(
    table: &Table<'_>,
    key: &'static str,
    base: &Path,
    found: &mut Diagnostics,
    load: Load<T>,
) -> Vec<Arc<data::Table<T>>> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for item in value.some_items("name a file, or leave the key out") {
        let Some(path) = existing(&item, base, "database") else {
            continue;
        };
        match load(&path) {
            Ok(table) => {
                if let Some(warning) = overlap(&table) {
                    found.push(warning);
                }
                out.push(table);
            }
            Err(failure) => found.push(failure.into()),
        }
    }
    out
}

/// The warning of a database whose ranges overlap: published ones have such rows.
fn overlap<T>(table: &data::Table<T>) -> Option<Diagnostic> {
    let overlaps = table.overlaps?;
    let [a, b] = overlaps.first;
    let message = format!(
        "{} of its ranges begin within another: {} to {} in {} to {}{}",
        overlaps.count,
        a.0,
        a.1,
        b.0,
        b.1,
        if overlaps.count > 1 { ", and others" } else { "" }
    );
    let help = "where ranges overlap, the one that begins last counts";
    Some(Diagnostic::file(Severity::Warning, &table.path, message).help(help))
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        let mut diagnostic = Self::file(Severity::Error, &failure.path, failure.message);
        if let Some(line) = failure.line {
            (diagnostic.line, diagnostic.column) = (line as usize, 1);
        }
        diagnostic.help = failure.help;
        diagnostic
    }
}

/// The path of a file that is there.
fn existing(value: &Value<'_>, base: &Path, what: &str) -> Option<PathBuf> {
    let text = value.string()?;
    let path = base.join(text);
    if text.is_empty() || !path.is_file() {
        let help = "a relative file is taken from the folder of the configuration".to_owned();
        let message = format!("no {what} file {}", path.display());
        value.report.error_help(value.span.clone(), message, Some(help));
        return None;
    }
    Some(path)
}

/// Folds into the hash what the databases hold: the configuration is another when they are.
pub(crate) fn hash(data: &Data, hash: &mut Sha256) {
    let digests = data.asn.iter().map(|t| &t.digest);
    for digest in digests.chain(data.country.iter().map(|t| &t.digest)) {
        hash.update(digest);
    }
}

/// `[[clients]]` with its places.
pub(crate) struct PlacedClients {
    pub(crate) name: At<String>,
    pub(crate) clients: Clients,
}

/// `[[clients]]`. `isps` are all that are configured; what is wrong with the file goes to `found`.
pub(crate) fn clients(
    table: &Table<'_>,
    base: &Path,
    isps: &[PlacedIsp],
    found: &mut Diagnostics,
    hash: &mut Sha256,
) -> Option<PlacedClients> {
    let name = placed_word(table.need("name"));
    let names: Vec<&str> = isps.iter().map(|isp| isp.name.value.as_str()).collect();
    let isp = table.get("isp").and_then(|value| {
        let name = value.string()?;
        find(
            value.report,
            value.span.clone(),
            ("isp", name),
            names.iter().copied(),
        )
    });
    let place = Place {
        country: table.get("country").and_then(|value| country(&value)),
        continent: table.get("continent").and_then(|value| continent(&value)),
        location: table
            .get("location")
            .and_then(|value| location(&value))
            .and_then(|(lat, lon)| Location::from_degrees(lat, lon)),
    };
    let mut out = Clients {
        name: name.as_ref().map(|n| n.value.clone()).unwrap_or_default(),
        ..Clients::default()
    };
    let (prefixes, file) = (table.get("prefixes"), table.get("file"));
    if prefixes.is_none() && file.is_none() {
        let help = Some("add `prefixes = [...]`, or `file = ...` with a prefix a line".into());
        let message = "[[clients]] has neither `prefixes` nor `file`";
        table.report.error_help(table.span.clone(), message, help);
    }
    if let Some(value) = prefixes {
        let items = value.some_items("name a prefix, or leave the key out");
        let mut seen: Vec<IpNet> = Vec::new();
        for item in items.iter().filter_map(prefix) {
            if seen.contains(&item.value) {
                let message = format!("prefix {} is there twice", item.value);
                table.report.error(item.span, message);
                continue;
            }
            seen.push(item.value);
            out.prefixes.push(ClientPrefix {
                prefix: item.value,
                isp,
                place,
            });
        }
    }
    if let Some(path) = file.and_then(|value| existing(&value, base, "prefix")) {
        match prefix_file::read(&path, &names, hash) {
            Ok(lines) => out.prefixes.extend(lines.into_iter().map(|line| ClientPrefix {
                prefix: line.prefix,
                isp: line.isp.or(isp),
                // A line that says where it is is believed alone: the list's location is not in the line's country.
                place: match line.place {
                    said if said.is_empty() => place,
                    said => said,
                },
            })),
            Err(wrong) => found.append(wrong),
        }
        out.file = Some(path);
    }
    Some(PlacedClients {
        name: name?,
        clients: out,
    })
}
