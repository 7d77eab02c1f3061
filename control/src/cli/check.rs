//! `windrose check FILE`: tells whether a configuration would be taken.
//!
//! Exit code 0 and a summary on standard output; 2 and every finding on standard error if not.

use crate::config::model::{CheckKind, Config};
use crate::config::{self, Diagnostics};
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
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        match config::load_with_warnings(&self.file) {
            Ok((config, warnings)) => {
                report(&warnings);
                print!("{}", summary(&config));
                ExitCode::SUCCESS
            }
            Err(found) => {
                report(&found);
                ExitCode::from(REFUSED)
            }
        }
    }
}

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

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// One screen that says what was understood.
fn summary(config: &Config) -> String {
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
        format!(
            "{} {} answers on {}",
            port.name,
            port.device,
            addresses.join(", ")
        )
    });
    list(&mut line, "port", ports);
    let zones = config.zones.iter().map(|zone| {
        let records: usize = zone.rrsets.iter().map(|set| set.rdata.len()).sum();
        format!(
            "{} {} in {} sets",
            zone.apex,
            counted(records, "record"),
            zone.rrsets.len()
        )
    });
    list(&mut line, "zone", zones);
    let isps = config
        .isps
        .iter()
        .map(|isp| format!("{} {} prefixes", isp.name, isp.prefixes.len()));
    list(&mut line, "isp", isps);
    list(
        &mut line,
        "site",
        config.sites.iter().map(|site| site.name.clone()),
    );
    let services = config.services.iter().map(|service| {
        let check = match &service.check {
            None => "no check".to_owned(),
            Some(check) => {
                let kind = match &check.kind {
                    CheckKind::Tcp => "tcp",
                    CheckKind::Http { tls: true, .. } => "https",
                    CheckKind::Http { .. } => "http",
                };
                format!("{kind} check on port {} every {:?}", check.port, check.interval)
            }
        };
        format!(
            "{} {}, {check}",
            service.name,
            counted(service.members.len(), "member")
        )
    });
    list(&mut line, "service", services);
    let members: usize = config.services.iter().map(|service| service.members.len()).sum();
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
