//! Text of a configuration, beside a good zone: whatever is wrong is said with a place in the file, whatever loads
//! compiles. Input: the text.

use crate::{Runner, Target, seeds};
use control::config::{Severity, load_with_warnings};
use control::health::Standing;
use control::policy::Compiler;
use std::fs;
use std::sync::Arc;

pub(crate) const TARGET: Target = Target {
    name: "config",
    runner,
    seeds: seeds::configs,
    bounded: 1_000,
    len_max: 8000,
};

const ZONE: &str = "$TTL 300\n@ SOA ns1 host 1 3600 900 604800 300\n@ NS ns1\nns1 A 192.0.2.53\n";

fn runner() -> Runner {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windrose.toml");
    fs::write(folder.path().join("example.zone"), ZONE).unwrap();
    Box::new(move |text| {
        // Other files of this machine are nobody's input.
        if text.windows(2).any(|pair| pair == b"\"/") || text.windows(2).any(|pair| pair == b"..") {
            return;
        }
        // `folder` lives as long as this.
        fs::write(folder.path().join("windrose.toml"), text).unwrap();
        match load_with_warnings(&path) {
            Ok((config, _)) => {
                Compiler::default()
                    .compile(Arc::new(config), Vec::new(), |_| Standing::UP, 0)
                    .expect("it loaded");
            }
            Err(found) => {
                let errors: Vec<_> = found.iter().filter(|d| d.severity == Severity::Error).collect();
                assert!(!errors.is_empty(), "refused without an error");
                let lines = text.split(|&b| b == b'\n').count();
                let here = |d: &&&control::config::Diagnostic| d.file == path;
                assert!(
                    errors.iter().filter(here).all(|d| d.line <= lines),
                    "a line past the end: {found}"
                );
            }
        }
    })
}
