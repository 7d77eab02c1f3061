//! Zone files (RFC 1035 section 5) to record sets. Called by `config::load`, once a `[[zone]]`.
//!
//! `lexer` cuts the text, `rdata` parses RDATA by the `domain` crate, `master` reads entries and
//! directives, `generate` is $GENERATE, `sets` groups records, `check` knows what a zone may not be.

mod check;
mod generate;
mod lexer;
mod master;
mod rdata;
mod sets;

pub(crate) use sets::{Sets, lower, parents};

use crate::config::model::{Name, Zone};
use crate::config::{Diagnostic, Diagnostics, Severity, Source};
use sets::Place;
use sha2::Sha256;
use std::collections::HashSet;
use std::path::Path;

/// Findings of each severity that are shown of one zone; a broken generator breaks every line.
const SHOWN_MAX: usize = 20;

/// A zone with its index, while the configuration is being checked.
pub(crate) struct Loaded {
    pub(crate) apex: Name,
    pub(crate) sets: Sets,
    sources: Vec<Source>,
}

impl Loaded {
    /// "line 12 of FILE", of a record.
    pub(crate) fn line(&self, place: Place) -> String {
        line(&self.sources, place)
    }

    /// The zone alone.
    pub(crate) fn into_zone(self, file: &Path) -> Zone {
        Zone {
            apex: self.apex,
            file: file.to_path_buf(),
            rrsets: self.sets.into_rrsets(),
        }
    }
}

/// Reads and checks a zone; `services` holds the names, as [`lower`] gives them, that have addresses
/// without having records. Findings go to `found`, what was read to `hash`. `None` if there were
/// errors.
pub(crate) fn load(
    apex: &Name,
    file: &Path,
    services: &HashSet<Vec<u8>>,
    found: &mut Diagnostics,
    hash: &mut Sha256,
) -> Option<Loaded> {
    let mut zone = master::read(apex, file, hash);
    if !zone.findings.has_errors() {
        check::check(&mut zone, services);
    }
    let failed = zone.findings.has_errors();
    zone.findings.finish(file, found);
    (!failed).then(|| Loaded {
        apex: zone.apex,
        sets: zone.sets,
        sources: zone.sources,
    })
}

/// "line 12 of FILE", to point at a record.
fn line(sources: &[Source], place: Place) -> String {
    let source = &sources[place.file];
    format!(
        "line {} of {}",
        source.place(place.offset).0,
        source.path.display()
    )
}

/// Findings of one zone, in number limited.
#[derive(Default)]
struct Findings {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether further errors of the text are not worth reading for.
    fn enough(&self) -> bool {
        self.errors >= SHOWN_MAX
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        let count = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= SHOWN_MAX {
            self.list.push(diagnostic);
        }
    }

    fn finish(self, file: &Path, found: &mut Diagnostics) {
        self.list
            .into_iter()
            .for_each(|diagnostic| found.push(diagnostic));
        for (severity, count) in [(Severity::Error, self.errors), (Severity::Warning, self.warnings)] {
            if severity == Severity::Error && count >= SHOWN_MAX {
                let message = format!("{SHOWN_MAX} errors or more in this zone; the rest was not looked for");
                found.push(Diagnostic::file(severity, file, message));
            } else if count > SHOWN_MAX {
                let message = format!("{} warnings more in this zone", count - SHOWN_MAX);
                found.push(Diagnostic::file(severity, file, message));
            }
        }
    }
}
