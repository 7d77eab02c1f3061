//! Keeps words and plans at what is known of sites and clients, without a reload.
//!
//! Run by the main loop as a task of its own. What sites report acts at once by site words; plans follow a little
//! later, for all that came together, and only the cells that it touches.

use super::live::{Live, lock};
use crate::config::model::Config;
use crate::policy::cells::Changed;
use crate::policy::chain::facts::Clients;
use crate::policy::chain::{Evidence, Facts, Source};
use crate::policy::{Refreshed, site_shares};
use crate::reports::Changes;
use anyhow::Result;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// How long plans may lag behind the words.
const LAG: Duration = Duration::from_millis(50);
/// How often clients that workers saw are looked at.
const CLIENTS_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether passing traffic tells of other latencies: answers change by that no more often.
const JUDGE_EVERY: Duration = Duration::from_secs(1);
/// How often everything is looked at again, since what is known grows too old by itself, and prefixes with new RTTs become
/// classes.
const EVERYTHING_EVERY: Duration = Duration::from_secs(10);

impl Live {
    /// Brings words and plans up to date whenever something that they go by changes.
    pub(super) async fn keep_fresh(&self) {
        let mut everything = tokio::time::interval(EVERYTHING_EVERY);
        let mut clients = tokio::time::interval(CLIENTS_EVERY);
        let mut judge = tokio::time::interval(JUDGE_EVERY);
        loop {
            let mut all = false;
            let mut passive = HashSet::new();
            tokio::select! {
                () = self.stale.notified() => {}
                () = self.reports.store.changed() => {}
                _ = everything.tick() => all = true,
                _ = clients.tick() => {
                    self.see_clients();
                    continue;
                }
                _ = judge.tick() => {
                    passive = self.judge_latency();
                    if passive.is_empty() {
                        continue;
                    }
                }
            }
            let mut changes = self.reports.store.take_changes();
            changes.everything |= all;
            self.reports_changed();
            tokio::time::sleep(LAG).await;
            let more = self.reports.store.take_changes();
            changes.everything |= more.everything;
            changes.sites.extend(more.sites);
            changes.prefixes.extend(more.prefixes);
            if let Err(error) = self.refresh(&changes, passive).await {
                tracing::error!(error = format!("{error:#}"), "plans are not brought up to date");
            }
        }
    }

    /// Has the prefixes of clients that were seen measured by the sites, where latency counts.
    fn see_clients(&self) {
        let clients = self.publisher.take_clients();
        let measures = match &*self.current() {
            Some(current) => current
                .index
                .policies
                .iter()
                .any(|policy| policy.needs().measured),
            None => false,
        };
        if measures {
            let now = Instant::now();
            clients
                .into_iter()
                .for_each(|client| self.reports.store.see(client, now));
        }
    }

    /// Of whom passing traffic tells other latencies than it did.
    fn judge_latency(&self) -> HashSet<Clients> {
        let config = self
            .current()
            .as_ref()
            .map(|current| current.index.config.clone());
        config.map_or_else(HashSet::new, |config| {
            self.latency.store.judge(&config, Instant::now())
        })
    }

    /// Sends the words of the sites as they stand.
    fn reports_changed(&self) {
        let config = match &*self.current() {
            Some(current) => current.index.config.clone(),
            None => return,
        };
        // Their values alone: there may be much evidence.
        let mut facts = Facts::none(&config);
        let sites = Changes {
            sites: config.sites.iter().map(|site| site.name.clone()).collect(),
            ..Changes::default()
        };
        self.reports
            .store
            .update(&config, Instant::now(), &sites, &mut facts);
        self.set_site_shares(&config, &facts);
        if let Err(error) = self.send_words() {
            tracing::error!(%error, "what sites report does not reach the workers");
        }
    }

    /// Everything that is known now, with its age: for `explain`.
    pub(super) fn facts(&self, config: &Config) -> Facts {
        let now = Instant::now();
        let mut facts = self.reports.store.facts(config, now);
        self.latency.store.update(config, None, now, &mut facts);
        facts
    }

    /// Puts what there is against each site into its words; they go with the next that are sent.
    pub(super) fn set_site_shares(&self, config: &Config, facts: &Facts) {
        let shares = site_shares(config, facts);
        let mut slots = lock(&self.slots);
        for (site, shares) in config.sites.iter().zip(shares) {
            slots.sites.set(&site.name, shares);
        }
    }

    /// Compiles again what `changes`, other latencies of `passive` and the standing of members touch, and publishes it if it came
    /// out otherwise.
    async fn refresh(&self, changes: &Changes, passive: HashSet<Clients>) -> Result<()> {
        let mut compiler = self.compiler.lock().await;
        let Some(config) = self
            .current()
            .as_ref()
            .map(|current| current.index.config.clone())
        else {
            return Ok(());
        };
        let refreshed = tokio::task::block_in_place(|| {
            let facts = Arc::make_mut(&mut compiler.facts);
            let before = clients_of(facts, changes);
            let now = Instant::now();
            self.reports.store.update(&config, now, changes, facts);
            // Ages too, where everything is looked at.
            let touched = (!changes.everything).then_some(&passive);
            if touched.is_none_or(|touched| !touched.is_empty()) {
                self.latency.store.update(&config, touched, now, facts);
            }
            let mut changed = Changed {
                clients: clients_of(facts, changes),
                ..Changed::default()
            };
            changed.clients.extend(before);
            changed.clients.extend(passive);
            let sites = config.sites.iter().enumerate();
            let touched = sites.filter(|(_, site)| changes.everything || changes.sites.contains(&site.name));
            changed.sites = touched.map(|(index, _)| index).collect();
            if changes.everything {
                compiler.measured = measured(&compiler.facts);
            }
            compiler.refresh(&changed)
        })?;
        let Some(Refreshed {
            snapshot,
            classes,
            sizes,
        }) = refreshed
        else {
            return Ok(());
        };
        let generation = snapshot.generation;
        let snapshot = Arc::new(snapshot);
        self.latency.store.learn(&config, &classes, &snapshot.servers);
        self.publisher.publish(snapshot.clone(), generation)?;
        if let Some(current) = &mut *self.current() {
            current.snapshot = snapshot;
            (current.index.classes, current.index.sizes) = (classes, sizes);
        }
        tracing::debug!(generation, "plans brought up to date");
        Ok(())
    }
}

/// Prefixes that RTTs are known of.
pub(super) fn measured(facts: &Facts) -> Vec<IpNet> {
    // What passing traffic tells of a prefix counts as long as the prefix is a class, and does not make it one.
    let by_agent = |list: &[Evidence]| list.iter().any(|evidence| evidence.source == Source::Agent);
    let prefixes = facts
        .latency
        .iter()
        .filter_map(|((clients, _), list)| match clients {
            Clients::Prefix(prefix) if by_agent(list) => Some(*prefix),
            _ => None,
        });
    BTreeSet::from_iter(prefixes).into_iter().collect()
}

/// Of whom there may be other evidence.
fn clients_of(facts: &Facts, changes: &Changes) -> HashSet<Clients> {
    match changes.everything {
        true => facts.latency.keys().map(|(clients, _)| *clients).collect(),
        false => changes
            .prefixes
            .iter()
            .map(|prefix| Clients::Prefix(*prefix))
            .collect(),
    }
}
