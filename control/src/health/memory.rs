//! What was known last: each target's state with its age, kept in the state folder, so that a start does not know
//! less than the run before it. Filled by the prober, read once at start.

use super::{State, TargetKey};
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A memory that is younger is continued as if there had been no restart: changing it takes the whole row of
/// checks. Of an older one the first check decides.
pub const CONTINUED_MAX: Duration = Duration::from_secs(60);
/// Raised when the meaning of the file changes.
const VERSION: u32 = 1;

/// What is known of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Its [`subject`].
    pub target: String,
    /// Its state.
    pub state: State,
    /// When that changed, Unix time in seconds.
    pub since: f64,
    /// When a check last completed, Unix time in seconds.
    pub checked: f64,
    /// What that found.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    targets: Vec<Known>,
}

/// What is tried where, without its pace, in words that do not change while the check means the same.
pub fn subject(target: &TargetKey) -> String {
    let TargetKey { address, check } = target;
    let (kind, port) = (&check.kind, check.port);
    let mut text = format!("{address} {kind:?} port {port}");
    for (what, name) in [("interface", &check.interface), ("netns", &check.netns)] {
        if let Some(name) = name {
            text.push_str(&format!(" {what} {name}"));
        }
    }
    text
}

/// The file.
#[derive(Clone, Debug)]
pub struct Memory {
    path: PathBuf,
}

impl Memory {
    /// In that folder.
    pub fn new(folder: &Path) -> Self {
        Self {
            path: folder.join("health.json"),
        }
    }

    /// What was known, by [`subject`], of targets that were checked at most `max_age` ago.
    pub fn load(&self, max_age: Duration) -> HashMap<String, Known> {
        let contents: Option<Contents> = state::read(&self.path);
        let now = state::now().as_secs_f64();
        let Some(contents) = contents.filter(|c| c.version == VERSION) else {
            return HashMap::new();
        };
        let all = contents.targets.len();
        // From the future: the clock was set back, and no age can be told.
        let young = |known: &Known| (0.0..=max_age.as_secs_f64()).contains(&(now - known.checked));
        let targets = contents.targets.into_iter().filter(young);
        let targets: HashMap<_, _> = targets.map(|known| (known.target.clone(), known)).collect();
        tracing::info!(
            targets = targets.len(),
            too_old = all - targets.len(),
            "last known health read"
        );
        targets
    }

    /// Replaces the file. Targets of which nothing is known are left out.
    ///
    /// # Errors
    /// The file stays as it was.
    pub fn save(&self, targets: Vec<Known>) -> io::Result<()> {
        let version = VERSION;
        state::write(&self.path, &Contents { version, targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_young_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::new(folder.path());
        assert!(memory.load(Duration::from_secs(3600)).is_empty());
        let now = state::now().as_secs_f64();
        let known = |target: &str, age: f64| Known {
            target: target.into(),
            state: State::Up,
            since: now - 9000.0,
            checked: now - age,
            reason: "HTTP 200".into(),
        };
        memory
            .save(vec![
                known("young", 3500.0),
                known("old", 3700.0),
                known("future", -60.0),
            ])
            .unwrap();
        let loaded = memory.load(Duration::from_secs(3600));
        assert_eq!(loaded.keys().collect::<Vec<_>>(), ["young"]);
        assert_eq!(loaded["young"], known("young", 3500.0));
    }
}
