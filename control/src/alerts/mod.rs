//! Events: what was seen and what was done about it, told as log lines, as a list that the admin API shows, and to
//! webhooks. Called by whoever sees something; owns the list and the webhooks' queues.
//!
//! Telling never waits and never fails: a full queue drops and counts.
//!
//! * [`event`]: the kinds and what an event says; [`watch`]: from members' health to events of services;
//! * [`webhook`]: the sender.

pub mod event;
pub mod watch;
pub mod webhook;

pub use event::{Event, Kind};
pub use watch::Watch;

use crate::config::model::Alert;
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use webhook::Webhook;

/// Events that are kept for the admin API.
pub const KEPT: usize = 500;

/// What a webhook has done, since it was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookStatus {
    /// Where to, without user, query and what else may be secret.
    pub url: String,
    /// Events delivered.
    pub delivered: u64,
    /// Tries that failed.
    pub failed_tries: u64,
    /// Events given up on: every try failed, or the queue was full.
    pub dropped: u64,
    /// Events waiting.
    pub waiting: u64,
    /// What the last failed try ran into.
    pub last_error: Option<String>,
}

/// The events of an appliance.
#[derive(Debug)]
pub struct Alerts {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    appliance: String,
    kept: VecDeque<Event>,
    last: u64,
    webhooks: Vec<Webhook>,
}

impl Alerts {
    /// Nothing told yet, nobody to tell. `appliance`: the name that events carry.
    pub fn new(appliance: &str) -> Self {
        Self {
            inner: Mutex::new(Inner {
                appliance: appliance.to_owned(),
                kept: VecDeque::new(),
                last: 0,
                webhooks: Vec::new(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No step under the lock leaves it half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells these webhooks from now on; those that stay go on with what waits.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time, if there are any.
    pub fn configure(&self, appliance: &str, alerts: &[Alert]) {
        let mut inner = self.inner();
        appliance.clone_into(&mut inner.appliance);
        let mut old = std::mem::take(&mut inner.webhooks);
        for alert in alerts {
            let same = old.iter().position(|webhook| webhook.alert() == alert);
            inner.webhooks.push(match same {
                Some(at) => old.swap_remove(at),
                None => Webhook::start(alert.clone()),
            });
        }
    }

    /// Tells an event. Its number, time and appliance are filled in here.
    pub fn tell(&self, event: Event) {
        let mut inner = self.inner();
        inner.last += 1;
        let event = Event {
            number: inner.last,
            at: humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + state::now()).to_string(),
            appliance: inner.appliance.clone(),
            ..event
        };
        event.log();
        for webhook in &inner.webhooks {
            webhook.tell(&event);
        }
        if inner.kept.len() == KEPT {
            inner.kept.pop_front();
        }
        inner.kept.push_back(event);
    }

    /// The last events, the newest last.
    pub fn events(&self) -> Vec<Event> {
        self.inner().kept.iter().cloned().collect()
    }

    /// How many events there were since the start.
    pub fn count(&self) -> u64 {
        self.inner().last
    }

    /// What the webhooks have done.
    pub fn webhooks(&self) -> Vec<WebhookStatus> {
        self.inner().webhooks.iter().map(Webhook::status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_and_numbered() {
        let alerts = Alerts::new("edge-1");
        for n in 0..KEPT + 2 {
            alerts.tell(Event::new(
                Kind::Reload,
                &n.to_string(),
                "the file was read",
                "it is live",
            ));
        }
        let events = alerts.events();
        assert_eq!((events.len(), alerts.count()), (KEPT, KEPT as u64 + 2));
        assert_eq!((events[0].number, events[0].subject.as_str()), (3, "2"));
        assert_eq!(events[0].appliance, "edge-1");
        // RFC 3339 in UTC.
        assert!(
            events[0].at.starts_with("20") && events[0].at.ends_with('Z'),
            "{}",
            events[0].at
        );
    }
}
