//! Fuzz targets over everything that reads bytes from outside: frames, DNS messages over UDP and TCP, EDNS, TCP's
//! byte stream, punted frames, zone files, configurations. Each takes any bytes and holds its laws over them.
//!
//! `tests/bounded.rs` runs every target over its seeds, its kept corpus and a fixed number of mutations, as part of
//! `./run test`; `./run fuzz TARGET` hands one to libFuzzer, guided by coverage, and keeps what it finds
//! in `corpus/TARGET`. A target is a closure with its own state, so that both ways of running make the same.

#[cfg(test)]
mod field_bugs;
pub mod mutate;
pub mod reply;
pub mod seeds;
mod targets;

// The worker in memory and its frames, as control's own worker tests have them.
#[allow(
    dead_code,
    unreachable_pub,
    reason = "not every helper of those tests is of use here"
)]
#[path = "../../../control/tests/worker/frames.rs"]
pub(crate) mod frames;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "not every helper of those tests is of use here"
)]
#[path = "../../../control/tests/worker/lab.rs"]
pub(crate) mod lab;

use control::config::model::Config;
use std::path::{Path, PathBuf};

/// One reader of bytes from outside.
#[derive(Clone, Copy)]
pub struct Target {
    /// As on the command line, and the folder of its corpus.
    pub name: &'static str,
    /// Makes a runner; a panic of it is a finding.
    pub runner: fn() -> Runner,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Mutations of the bounded run.
    pub bounded: u32,
    /// Longest input that makes sense, bytes.
    pub len_max: usize,
}

/// Runs one input.
pub type Runner = Box<dyn FnMut(&[u8])>;

/// All targets.
pub const TARGETS: &[Target] = &[
    targets::frame::TARGET,
    targets::message::TARGET,
    targets::edns::TARGET,
    targets::stream::TARGET,
    targets::exception::TARGET,
    targets::zone::TARGET,
    targets::config::TARGET,
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

/// This crate's folder.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The kept inputs of a target: what libFuzzer found to reach new code, and every input that was a fault once.
///
/// # Panics
/// When the folder cannot be read.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = folder().join("corpus").join(name);
    if !folder.exists() {
        return Vec::new();
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus is readable")
        .map(|entry| entry.expect("the corpus is readable").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).expect("the corpus is readable"))
        .collect()
}

/// The configuration that the packet targets ask: every kind of name and service.
///
/// # Panics
/// When `world/` is not a configuration any more.
pub fn world() -> Config {
    match control::config::load_with_warnings(&folder().join("world/windrose.toml")) {
        Ok((config, _)) => config,
        Err(found) => panic!("{found}"),
    }
}
