//! `windrose check FILE`: tells whether a configuration would be taken.
//!
//! Exit code 0 and a summary on standard output; 2 and every finding on standard error if not. With
//! `--json`, both are one object on standard output.

use crate::config::model::{CheckKind, Config, Role, Zone};
use crate::config::{self, Diagnostic, Diagnostics, Severity};
use crate::data::Overlay;
use crate::policy::classes;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code for a configuration that would not be taken.
const REFUSED: u8 = 2;
/// Lines of one kind in the summary before it is cut: it is to fit a screen.
const LISTED_MAX: usize = 8;

/// Check a configuration and its zone files without starting anything.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The TOML file.
    file: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let result = self.load();
        if self.json {
            println!("{:#}", as_json(&result));
            return if result.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(REFUSED)
            };
        }
        match result {
            Ok((config, overlay, warnings)) => {
                report(&warnings);
                print!("{}", summary(&config, &overlay));
                ExitCode::SUCCESS
            }
            Err(found) => {
                report(&found);
                ExitCode::from(REFUSED)
            }
        }
    }
}

impl Args {
    /// Loads the file, and lays the client data over each other, as the appliance does.
    fn load(&self) -> Loaded {
        let (config, mut found) = config::load_with_warnings(&self.file)?;
        match classes::overlay_of(&config) {
            Ok(overlay) => Ok((config, overlay, found)),
            Err(error) => {
                let message = error.to_string();
                found.push(Diagnostic::file(Severity::Error, &self.file, message));
                Err(found)
            }
        }
    }
}

/// What was understood, with the warnings; or everything that is wrong.
type Loaded = Result<(Config, Overlay, Diagnostics), Diagnostics>;

/// Prints findings and how many there are to standard error.
fn report(found: &Diagnostics) {
    let (errors, warnings) = found.counts();
    if errors + warnings > 0 {
        eprintln!(
            "{found}\n{}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        );
    }
}

/// What text says, as one object: `valid`, `findings`, and if valid what was understood.
fn as_json(result: &Loaded) -> serde_json::Value {
    let (config, found) = match result {
        Ok((config, overlay, warnings)) => (Some((config, overlay)), warnings),
        Err(found) => (None, found),
    };
    let findings: Vec<serde_json::Value> = found.iter().map(finding_json).collect();
    let mut object = json!({ "valid": config.is_some(), "findings": findings });
    if let Some((config, overlay)) = config {
        object["data"] = databases(config)
            .map(|(path, rows)| json!({ "file": path, "rows": rows }))
            .collect();
        object["clients"] = config
            .clients
            .iter()
            .map(|clients| json!({ "name": clients.name, "prefixes": clients.prefixes.len() }))
            .collect();
        object["classes"] = json!(overlay.classes.len());
        object["appliance"] = json!(config.appliance.name);
        object["hash"] = json!(config.hash);
        object["cores"] = json!(config.dataplane.cores);
        object["ports"] = config
            .ports
            .iter()
            .map(|port| json!({ "name": port.name, "device": port.device, "addresses": port.addresses }))
            .collect();
        object["zones"] = config
            .zones
            .iter()
            .map(|zone| json!({ "name": zone.apex.to_string(), "records": records(zone), "sets": zone.rrsets.len() }))
            .collect();
        object["isps"] = config.isps.iter().map(|isp| json!(isp.name)).collect();
        object["sites"] = config.sites.iter().map(|site| json!(site.name)).collect();
        object["services"] = config
            .services
            .iter()
            .map(|service| {
                let check = service.check.as_ref().map(|check| kind(&check.kind));
                json!({ "name": service.name.to_string(), "members": service.members.len() + service.cnames.len(), "check": check })
            })
            .collect();
    }
    object
}

/// Line and column are null where a whole file is meant.
fn finding_json(found: &Diagnostic) -> serde_json::Value {
    let place = |number: usize| (number > 0).then_some(number);
    let severity = match found.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    json!({
        "severity": severity,
        "file": found.file.display().to_string(),
        "line": place(found.line),
        "column": place(found.column),
        "message": found.message,
        "help": found.help,
    })
}

/// File and rows of each database.
fn databases(config: &Config) -> impl Iterator<Item = (String, usize)> {
    let asn = config.data.asn.iter().map(|t| (&t.path, t.rows));
    let country = config.data.country.iter().map(|t| (&t.path, t.rows));
    asn.chain(country)
        .map(|(path, rows)| (path.display().to_string(), rows))
}

fn records(zone: &Zone) -> usize {
    zone.rrsets.iter().map(|set| set.rdata.len()).sum()
}

fn kind(kind: &CheckKind) -> &'static str {
    match kind {
        CheckKind::Tcp => "tcp",
        CheckKind::Http { tls: true, .. } => "https",
        CheckKind::Http { .. } => "http",
        CheckKind::Icmp => "icmp",
        CheckKind::Udp { .. } => "udp",
        CheckKind::Dns { .. } => "dns",
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// One screen that says what was understood.
fn summary(config: &Config, overlay: &Overlay) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: String| _ = writeln!(out, "{label:<9} {text}");
    line(
        "appliance",
        format!("{} ({})", config.appliance.name, config.path.display()),
    );
    line("hash", config.hash.clone());
    let cores: Vec<String> = config.dataplane.cores.iter().map(usize::to_string).collect();
    let shared = if config.dataplane.share_cores {
        ", shared"
    } else {
        ""
    };
    line(
        "workers",
        format!("{} on CPU {}{shared}", cores.len(), cores.join(", ")),
    );
    let ports = config.ports.iter().map(|port| {
        let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
        let does = match &port.role {
            Role::Service => format!("answers on {}", addresses.join(", ")),
            Role::Mirror => "gets copies to measure".to_owned(),
            Role::Bridge(pair) => format!("passes traffic on to {pair}, and measures it"),
        };
        format!("{} {} {does}", port.name, port.device)
    });
    list(&mut line, "port", ports);
    let zones = config.zones.iter().map(|zone| {
        format!(
            "{} {} in {} sets",
            zone.apex,
            counted(records(zone), "record"),
            zone.rrsets.len()
        )
    });
    list(&mut line, "zone", zones);
    let data = databases(config).map(|(path, rows)| format!("{path} {}", counted(rows, "row")));
    list(&mut line, "data", data.collect::<Vec<_>>().into_iter());
    let isps = config.isps.iter().map(|isp| {
        let asns = match isp.asns.len() {
            0 => String::new(),
            n => format!("{}, ", counted(n, "autonomous system")),
        };
        format!("{} {asns}{} prefixes", isp.name, isp.prefixes.len())
    });
    list(&mut line, "isp", isps);
    let clients = config
        .clients
        .iter()
        .map(|clients| format!("{} {} prefixes", clients.name, clients.prefixes.len()));
    list(&mut line, "clients", clients);
    list(
        &mut line,
        "site",
        config.sites.iter().map(|site| site.name.clone()),
    );
    let services = config.services.iter().map(|service| {
        let check = match &service.check {
            None => "no check".to_owned(),
            Some(check) => {
                format!(
                    "{} check on port {} every {:?}",
                    kind(&check.kind),
                    check.port,
                    check.interval
                )
            }
        };
        format!(
            "{} {}, {check}",
            service.name,
            counted(service.members.len() + service.cnames.len(), "member")
        )
    });
    list(&mut line, "service", services);
    let coarse = overlay.location_grid.map_or(String::new(), |degrees| {
        format!("; too many places, so locations are rounded to {degrees} degrees")
    });
    let classes = format!(
        "{} by {} prefixes{coarse}",
        overlay.classes.len(),
        overlay.v4.len() + overlay.v6.len()
    );
    line("classes", classes);
    let members: usize = config
        .services
        .iter()
        .map(|s| s.members.len() + s.cnames.len())
        .sum();
    let checked = config
        .services
        .iter()
        .filter(|s| s.check.is_some())
        .map(|s| s.members.len())
        .sum::<usize>();
    line(
        "total",
        format!("{}, {checked} of them checked", counted(members, "member")),
    );
    out
}

/// A line for each item, cut at a few.
fn list(line: &mut impl FnMut(&str, String), label: &str, items: impl ExactSizeIterator<Item = String>) {
    let count = items.len();
    for item in items.take(LISTED_MAX) {
        line(label, item);
    }
    if count > LISTED_MAX {
        line(label, format!("... and {} more", count - LISTED_MAX));
    }
}
