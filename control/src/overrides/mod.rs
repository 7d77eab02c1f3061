//! Overrides: what a person says of members, over what health says. Set by `windrose admin` through the admin API,
//! asked by the run loop for every member whose standing it works out; kept in the state folder.
//!
//! A glob names members as `SITE/ADDRESS`; `*` matches across the slash, and a glob without one means the whole site. Overrides
//! stand in the order in which they were set, and of those that match a member the last one counts. Setting a glob again
//! replaces it and moves it to the end.

use crate::health::Standing;
use crate::state;
use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Overrides at most: a rule of thumb that keeps the standing of a member cheap; one glob covers many members.
pub const OVERRIDES_MAX: usize = 1000;
/// Longest comment, bytes.
const COMMENT_MAX: usize = 500;
/// Raised when the meaning of the file changes.
const VERSION: u32 = 1;

/// What becomes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Never given.
    Down,
    /// Given as if it were up and whole, whatever health says.
    Up,
    /// Given only when no other member is left.
    Drain,
    /// Given in this many percent of the draws that it would be given in, 0 to 100.
    Weight(u8),
}

impl Action {
    /// What becomes of a member that stands so.
    pub fn apply(self, standing: Standing) -> Standing {
        let share = |share| Standing { share, ..standing };
        match self {
            Action::Down => Standing::DOWN,
            Action::Up => Standing::UP,
            Action::Drain | Action::Weight(0) => share(0),
            // Never rounded to nothing: that would be a drain. A share of 0 stays one.
            Action::Weight(percent) => {
                let whole = u32::from(standing.share) * u32::from(percent.min(100));
                share((whole.div_ceil(100)) as u8)
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Down => f.write_str("down"),
            Action::Up => f.write_str("up"),
            Action::Drain => f.write_str("drain"),
            Action::Weight(percent) => write!(f, "weight {percent}%"),
        }
    }
}

/// One override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The members, as `SITE/ADDRESS` with `*`, `?`, `[...]`, `{a,b}`.
    pub glob: String,
    /// What becomes of them.
    pub action: Action,
    /// Why, in the words of who set it.
    #[serde(default)]
    pub comment: Option<String>,
    /// When it was set, Unix time in seconds.
    pub set_at: u64,
    /// When it ends, Unix time in seconds; `None`: when it is cleared.
    #[serde(default)]
    pub until: Option<u64>,
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.glob, self.action)?;
        match &self.comment {
            Some(comment) => write!(f, " ({comment})"),
            None => Ok(()),
        }
    }
}

/// Why an override was not set or cleared.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    /// The glob is not one.
    #[error("\"{0}\" is not a glob over SITE/ADDRESS: {1}")]
    Glob(String, String),
    /// The comment is too long.
    #[error("the comment is longer than {COMMENT_MAX} bytes")]
    Comment,
    /// Too many.
    #[error("there are {OVERRIDES_MAX} overrides already: clear some, or use wider globs")]
    Full,
    /// None has that glob.
    #[error("no override has the glob \"{0}\"; `windrose admin list` shows those that are set")]
    Unknown(String),
    /// It could not be kept.
    #[error("cannot write {0}: {1}; nothing was changed")]
    Write(PathBuf, std::io::Error),
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    overrides: Vec<Override>,
}

/// All overrides of an appliance.
#[derive(Debug, Default)]
pub struct Overrides {
    inner: Mutex<Inner>,
    /// Where they are kept, if anywhere.
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Inner {
    list: Vec<(Override, GlobMatcher)>,
    /// The places, `SITE/ADDRESS`, of each address of the configuration.
    places: HashMap<IpAddr, BTreeSet<String>>,
}

/// A glob over places. One without a slash is a site, or an address wherever it is.
fn matcher(glob: &str) -> Result<GlobMatcher, OverrideError> {
    let wrong = |why: &dyn fmt::Display| OverrideError::Glob(glob.to_owned(), why.to_string());
    if glob.is_empty() || glob.len() > 200 {
        return Err(wrong(&"it must be from 1 to 200 bytes"));
    }
    let whole = match glob.split_once('/') {
        None if glob.parse::<IpAddr>().is_ok() => format!("*/{glob}"),
        None => format!("{glob}/*"),
        Some((site, _)) if site.contains(':') => {
            return Err(wrong(
                &"overrides are for sites and addresses, not for one service",
            ));
        }
        Some(_) => glob.to_owned(),
    };
    Glob::new(&whole)
        .map(|g| g.compile_matcher())
        .map_err(|e| wrong(e.kind()))
}

impl Overrides {
    /// Those that the state folder holds, if there is one; without, they end with the process.
    pub fn load(folder: Option<&Path>) -> Self {
        let path = folder.map(|folder| folder.join("overrides.json"));
        let kept: Option<Contents> = path.as_deref().and_then(state::read);
        let kept = kept.filter(|c| c.version == VERSION).map(|c| c.overrides);
        let mut inner = Inner::default();
        for kept in kept.unwrap_or_default() {
            match matcher(&kept.glob) {
                Ok(matcher) => inner.list.push((kept, matcher)),
                Err(error) => tracing::warn!(%error, "an override of the state folder is left out"),
            }
        }
        Self {
            inner: Mutex::new(inner),
            path,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No step under the lock leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells where each address is: (site, address) of every member.
    pub fn set_places<'a>(&self, members: impl IntoIterator<Item = (&'a str, IpAddr)>) {
        let mut places: HashMap<IpAddr, BTreeSet<String>> = HashMap::new();
        for (site, address) in members {
            let place = format!("{site}/{address}");
            places.entry(address).or_default().insert(place);
        }
        self.inner().places = places;
    }

    /// How a member stands that health says stands so. An address at several sites goes by any of its places.
    pub fn apply(&self, address: IpAddr, standing: Standing) -> Standing {
        let inner = self.inner();
        if inner.list.is_empty() {
            return standing;
        }
        let Some(places) = inner.places.get(&address) else {
            return standing;
        };
        let last = inner
            .list
            .iter()
            .rev()
            .find(|(_, matcher)| places.iter().any(|place| matcher.is_match(place)));
        last.map_or(standing, |(over, _)| over.action.apply(standing))
    }

    /// The override that counts for a member.
    pub fn of(&self, site: &str, address: &str) -> Option<Override> {
        let place = format!("{site}/{address}");
        let inner = self.inner();
        let mut last = inner.list.iter().rev();
        last.find(|(_, matcher)| matcher.is_match(&place))
            .map(|(over, _)| over.clone())
    }

    /// The addresses that a glob matches; none if it is no glob.
    pub fn addresses(&self, glob: &str) -> Vec<IpAddr> {
        let Ok(matcher) = matcher(glob) else {
            return Vec::new();
        };
        let inner = self.inner();
        let matched = |places: &BTreeSet<String>| places.iter().any(|place| matcher.is_match(place));
        let found = inner.places.iter().filter(|(_, places)| matched(places));
        found.map(|(address, _)| *address).collect()
    }

    /// All, in order.
    pub fn list(&self) -> Vec<Override> {
        self.inner().list.iter().map(|(over, _)| over.clone()).collect()
    }

    /// Sets one; returns it and how many members it matches now.
    ///
    /// # Errors
    /// See [`OverrideError`]; nothing changes then.
    pub fn set(
        &self,
        glob: &str,
        action: Action,
        how_long: Option<Duration>,
        comment: Option<String>,
    ) -> Result<(Override, usize), OverrideError> {
        let matcher = matcher(glob)?;
        if comment.as_ref().is_some_and(|text| text.len() > COMMENT_MAX) {
            return Err(OverrideError::Comment);
        }
        let now = state::now().as_secs();
        let over = Override {
            glob: glob.to_owned(),
            action,
            comment,
            set_at: now,
            until: how_long.map(|d| now + d.as_secs().max(1)),
        };
        let mut inner = self.inner();
        let mut list = inner.list.clone();
        list.retain(|(old, _)| old.glob != glob);
        if list.len() >= OVERRIDES_MAX {
            return Err(OverrideError::Full);
        }
        let places = inner.places.values().flatten();
        let count = places.filter(|place| matcher.is_match(place)).count();
        list.push((over.clone(), matcher));
        self.keep(&list)?;
        inner.list = list;
        Ok((over, count))
    }

    /// Clears the one with that glob, or all; returns those that were cleared.
    ///
    /// # Errors
    /// See [`OverrideError`]; nothing changes then.
    pub fn clear(&self, glob: Option<&str>) -> Result<Vec<Override>, OverrideError> {
        let mut inner = self.inner();
        let (gone, left): (Vec<_>, Vec<_>) = inner
            .list
            .iter()
            .cloned()
            .partition(|(over, _)| glob.is_none_or(|glob| over.glob == glob));
        if let (Some(glob), true) = (glob, gone.is_empty()) {
            return Err(OverrideError::Unknown(glob.to_owned()));
        }
        if !gone.is_empty() {
            self.keep(&left)?;
        }
        inner.list = left;
        Ok(gone.into_iter().map(|(over, _)| over).collect())
    }

    /// Drops those whose time is over; returns them.
    pub fn expire(&self) -> Vec<Override> {
        let now = state::now().as_secs();
        let mut inner = self.inner();
        let over = |o: &Override| o.until.is_some_and(|until| until <= now);
        if !inner.list.iter().any(|(o, _)| over(o)) {
            return Vec::new();
        }
        let (gone, left) = inner.list.drain(..).partition::<Vec<_>, _>(|(o, _)| over(o));
        inner.list = left;
        // Its time is over whether the file says so or not: the next start sees that by itself.
        if let Err(error) = self.keep(&inner.list) {
            tracing::error!(%error, "overrides");
        }
        gone.into_iter().map(|(o, _)| o).collect()
    }

    fn keep(&self, list: &[(Override, GlobMatcher)]) -> Result<(), OverrideError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let contents = Contents {
            version: VERSION,
            overrides: list.iter().map(|(over, _)| over.clone()).collect(),
        };
        state::write(path, &contents).map_err(|error| OverrideError::Write(path.clone(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn overrides() -> Overrides {
        let overrides = Overrides::default();
        overrides.set_places([
            ("seoul-kt", address("198.51.100.11")),
            ("seoul-kt", address("2001:db8:a::11")),
            ("seoul-lg", address("198.51.100.75")),
            ("busan", address("198.51.100.139")),
        ]);
        overrides
    }

    fn set(overrides: &Overrides, glob: &str, action: Action) -> usize {
        overrides.set(glob, action, None, None).unwrap().1
    }

    const HALF: Standing = Standing { up: true, share: 8 };

    #[test]
    fn each_action_does_what_it_says() {
        let share = |share| Standing { up: true, share };
        for (action, health, standing) in [
            (Action::Down, Standing::UP, Standing::DOWN),
            (Action::Up, Standing::DOWN, Standing::UP),
            (Action::Up, HALF, Standing::UP),
            (Action::Drain, HALF, share(0)),
            (Action::Weight(25), Standing::UP, share(4)),
            (Action::Weight(50), HALF, share(4)),
            (Action::Weight(1), Standing::UP, share(1)),
            (Action::Weight(0), Standing::UP, share(0)),
            (Action::Weight(100), HALF, HALF),
            (Action::Weight(50), share(0), share(0)),
        ] {
            assert_eq!(action.apply(health), standing, "{action} of {health:?}");
        }
        assert!(!Action::Drain.apply(Standing::DOWN).up && !Action::Weight(50).apply(Standing::DOWN).up);
    }

    #[test]
    fn the_last_that_matches_counts() {
        let overrides = overrides();
        let up = |text: &str| overrides.apply(address(text), Standing::UP);
        assert_eq!(set(&overrides, "seoul-*", Action::Down), 3);
        assert_eq!(set(&overrides, "seoul-kt/2001:*", Action::Up), 1);
        assert_eq!(up("198.51.100.11"), Standing::DOWN);
        assert_eq!(up("2001:db8:a::11"), Standing::UP);
        assert_eq!(up("198.51.100.139"), Standing::UP);
        // Set again, it is the last.
        assert_eq!(set(&overrides, "seoul-*", Action::Drain), 3);
        assert_eq!(up("2001:db8:a::11").share, 0);
        let globs: Vec<String> = overrides.list().into_iter().map(|o| o.glob).collect();
        assert_eq!(globs, ["seoul-kt/2001:*", "seoul-*"]);
        assert_eq!(overrides.of("busan", "198.51.100.139"), None);
        assert_eq!(overrides.clear(Some("seoul-*")).unwrap().len(), 1);
        assert_eq!(up("198.51.100.11"), Standing::UP);
        assert_eq!(overrides.clear(None).unwrap().len(), 1);
        assert!(overrides.list().is_empty());
    }

    #[test]
    fn globs_name_sites_addresses_or_both() {
        let overrides = overrides();
        for (glob, count) in [
            ("busan", 1),
            ("seoul-kt", 2),
            ("seoul", 0),
            ("*", 4),
            ("198.51.100.75", 1),
            ("2001:db8:a::11", 1),
            ("*/198.51.100.*", 3),
            ("{busan,seoul-lg}/*", 2),
            ("s?oul-kt/*", 2),
        ] {
            assert_eq!(set(&overrides, glob, Action::Drain), count, "{glob}");
        }
        for glob in ["", "seoul-[", "vod.example.com:seoul-kt/*"] {
            let error = overrides.set(glob, Action::Up, None, None).unwrap_err();
            assert!(matches!(error, OverrideError::Glob(..)), "{error}");
        }
        assert!(matches!(
            overrides.clear(Some("nowhere")),
            Err(OverrideError::Unknown(_))
        ));
    }

    #[test]
    fn they_outlive_the_process_and_end_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let overrides = Overrides::load(Some(folder.path()));
        let hour = Some(Duration::from_secs(3600));
        let (set, _) = overrides
            .set("busan", Action::Weight(20), hour, Some("works".into()))
            .unwrap();
        assert_eq!(set.until, Some(set.set_at + 3600));
        assert_eq!(set.to_string(), "busan weight 20% (works)");
        overrides.set("gone", Action::Down, None, None).unwrap();
        overrides.inner().list[1].0.until = Some(1);
        assert_eq!(Overrides::load(Some(folder.path())).list().len(), 2);
        assert_eq!(overrides.expire()[0].glob, "gone");
        assert!(overrides.expire().is_empty());
        assert_eq!(Overrides::load(Some(folder.path())).list(), [set]);
        // What cannot be kept is not set.
        drop(folder);
        assert!(matches!(
            overrides.set("busan", Action::Up, None, None),
            Err(OverrideError::Write(..))
        ));
        assert_eq!(overrides.list()[0].action, Action::Weight(20));
    }
}
