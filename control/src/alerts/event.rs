//! What an event says. Made by whoever sees something, told by [`super::Alerts`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A member is not given any more.
    MemberDown,
    /// A member is given again.
    MemberUp,
    /// A member is given less: it fails too often, or flapped.
    MemberDegraded,
    /// A member that was degraded or came back has its whole share.
    MemberWhole,
    /// Checks of a member do not complete: its state is old.
    ChecksStale,
    /// They do again.
    ChecksFresh,
    /// A service has no member up: its all-down rule answers.
    ServiceDown,
    /// It has one again.
    ServiceUp,
    /// Clients of a service are sent to other sites than before, since those have no member up.
    Failover,
    /// Clients of a service are sent to the sites that its policy prefers again.
    Failback,
    /// A site that is to report has not for too long.
    SiteSilent,
    /// It reports again.
    SiteReporting,
    /// A person set an override.
    OverrideSet,
    /// A person cleared one.
    OverrideCleared,
    /// The time of one was over.
    OverrideExpired,
    /// A configuration was loaded anew.
    Reload,
    /// A configuration was refused; the old one stays.
    ReloadRefused,
}

impl Kind {
    /// Every kind, with its name in configurations.
    pub const NAMES: [(&'static str, Kind); 17] = [
        ("member-down", Kind::MemberDown),
        ("member-up", Kind::MemberUp),
        ("member-degraded", Kind::MemberDegraded),
        ("member-whole", Kind::MemberWhole),
        ("checks-stale", Kind::ChecksStale),
        ("checks-fresh", Kind::ChecksFresh),
        ("service-down", Kind::ServiceDown),
        ("service-up", Kind::ServiceUp),
        ("failover", Kind::Failover),
        ("failback", Kind::Failback),
        ("site-silent", Kind::SiteSilent),
        ("site-reporting", Kind::SiteReporting),
        ("override-set", Kind::OverrideSet),
        ("override-cleared", Kind::OverrideCleared),
        ("override-expired", Kind::OverrideExpired),
        ("reload", Kind::Reload),
        ("reload-refused", Kind::ReloadRefused),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }

    /// It is bad news.
    pub fn is_trouble(self) -> bool {
        use Kind::*;
        matches!(
            self,
            MemberDown | MemberDegraded | ChecksStale | ServiceDown | Failover | SiteSilent | ReloadRefused
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An event; its JSON is what webhooks send and the admin API shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from 1 at the start of the appliance.
    pub number: u64,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// The appliance's name.
    pub appliance: String,
    /// What happened.
    pub event: Kind,
    /// To whom: `SITE/ADDRESS`, a service, a glob, a file.
    pub subject: String,
    /// What was seen.
    pub seen: String,
    /// What was done about it.
    pub done: String,
    /// More, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

impl Event {
    /// An event that is not told yet.
    pub fn new(event: Kind, subject: &str, seen: impl Into<String>, done: impl Into<String>) -> Self {
        Self {
            number: 0,
            at: String::new(),
            appliance: String::new(),
            event,
            subject: subject.to_owned(),
            seen: seen.into(),
            done: done.into(),
            details: BTreeMap::new(),
        }
    }

    /// The same with one more detail.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// A log line of its level.
    pub(super) fn log(&self) {
        let Self {
            event,
            subject,
            seen,
            done,
            number,
            ..
        } = self;
        if event.is_trouble() {
            tracing::warn!(%event, subject, number, "{seen}: {done}");
        } else {
            tracing::info!(%event, subject, number, "{seen}: {done}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for (name, kind) in Kind::NAMES {
            assert_eq!(kind.name(), name);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{name}\""));
        }
    }
}
