//! What the run loop tells, and what it does by the clock: changes of health in words, overrides, the memory of health.

use super::live::{Live, lock};
use crate::admin::api::{ChecksStatus, Events, OverrideReport, OverrideRequest};
use crate::alerts::{Event, Kind, Watch};
use crate::config::model::{Config, Service};
use crate::health::{Standing, State, TargetKey, Transition};
use crate::overrides::{Action, Override};
use crate::policy::PolicyKey;
use crate::policy::chain::{self, ClientClass, Facts, Sites};
use crate::policy::slots::Target;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

impl Live {
    /// The watch over the services of a configuration, as they stand.
    pub(super) fn watch(&self, config: &Arc<Config>) -> Watch {
        let facts = Facts::none(config);
        let tiers = |service: &Service, isp: Option<usize>| tiers(config, &facts, service, isp);
        Watch::new(config.clone(), tiers, |service, address| {
            self.is_given(service, address)
        })
    }

    fn is_given(&self, service: &Service, address: IpAddr) -> bool {
        self.is_up(&Target {
            address,
            check: service.check.clone(),
        })
    }

    /// Tells what became of a member, and of the services that have it.
    pub(super) fn tell_transition(&self, transition: &Transition) {
        let target = &transition.target;
        let mut watch = lock(&self.watch);
        let Some(watch) = watch.as_mut() else { return };
        // One that is checked already for a configuration that is not live yet.
        let Some((place, services)) = watch.member(target.address, &target.check) else {
            return;
        };
        let over = place
            .split_once('/')
            .and_then(|(site, address)| self.overrides.of(site, address));
        for (kind, seen, done) in told(transition) {
            let done = match &over {
                Some(over) => format!("nothing: override {over}"),
                None => done,
            };
            self.alerts.tell(
                Event::new(kind, &place, seen, done)
                    .with("services", services.join(", "))
                    .with(
                        "share",
                        format!("{}/{}", transition.standing.share, Standing::WHOLE),
                    ),
            );
        }
        let why = format!("{place} is {}: {}", transition.state, seen(transition));
        let up = |service: &Service, address| self.is_given(service, address);
        for event in watch.changed(target.address, up, &why) {
            self.alerts.tell(event.with("member", place.as_str()));
        }
    }

    /// Has every member judged anew that an override is about.
    fn overridden(&self, over: &Override, kind: Kind, done: &str) {
        let addresses = self.overrides.addresses(&over.glob);
        let event = Event::new(kind, &over.glob, over.to_string(), done);
        self.alerts
            .tell(event.with("members", addresses.len().to_string()));
        let config = self.current().as_ref().map(|c| c.index.config.clone());
        let Some(config) = config else { return };
        for service in &config.services {
            for member in service.members.iter().filter(|m| addresses.contains(&m.address)) {
                self.member_changed(&Target {
                    address: member.address,
                    check: service.check.clone(),
                });
            }
        }
        let why = format!("override {over} {}", kind.name().trim_start_matches("override-"));
        let mut watch = lock(&self.watch);
        let Some(watch) = watch.as_mut() else { return };
        let up = |service: &Service, address| self.is_given(service, address);
        for address in addresses {
            for event in watch.changed(address, up, &why) {
                self.alerts.tell(event);
            }
        }
    }

    /// Sets an override; see `Appliance::set_override`.
    pub(super) fn override_set(&self, request: &OverrideRequest) -> Result<OverrideReport, String> {
        let action = match (request.action.as_str(), request.weight) {
            ("down", None) => Action::Down,
            ("up", None) => Action::Up,
            ("drain", None) => Action::Drain,
            ("weight", Some(percent)) if percent <= 100 => Action::Weight(percent),
            ("weight", _) => return Err("`weight` needs a percentage from 0 to 100".into()),
            ("down" | "up" | "drain", Some(_)) => {
                return Err("a percentage has a meaning for `weight` only".into());
            }
            (other, _) => return Err(format!("\"{other}\" is not down, up, drain or weight")),
        };
        let how_long = request.for_s.map(Duration::from_secs);
        let comment = request.comment.clone();
        let (set, members) = self
            .overrides
            .set(&request.glob, action, how_long, comment)
            .map_err(|e| e.to_string())?;
        self.overridden(&set, Kind::OverrideSet, "it counts from now on");
        Ok(OverrideReport { set, members })
    }

    /// Clears overrides; see `Appliance::clear_overrides`.
    pub(super) fn override_clear(&self, glob: Option<&str>) -> Result<Vec<Override>, String> {
        let cleared = self.overrides.clear(glob).map_err(|e| e.to_string())?;
        for over in &cleared {
            self.overridden(over, Kind::OverrideCleared, "health decides again");
        }
        Ok(cleared)
    }

    /// Ends the overrides whose time is over.
    pub(super) fn expire_overrides(&self) {
        for over in self.overrides.expire() {
            self.overridden(&over, Kind::OverrideExpired, "health decides again");
        }
    }

    /// Takes what sites report: the error rates of their members, and who fell silent or reports again.
    pub(super) fn hear_sites(&self) {
        let now = std::time::Instant::now();
        let config = self.current().as_ref().map(|c| c.index.config.clone());
        let Some(reports) = config.as_ref().and_then(|c| c.reports.as_ref()) else {
            return;
        };
        let mut silent = lock(&self.silent);
        for site in self.reports.store.status(now) {
            if site.silent {
                if silent.insert(site.site.clone()) {
                    let seen = match &site.last {
                        Some((_, age)) => format!("its last report is {} s old", age.as_secs()),
                        None => "no report of it has come yet".into(),
                    };
                    let done = "what it reported counts as missing; local checks decide";
                    self.alerts
                        .tell(Event::new(Kind::SiteSilent, &site.site, seen, done));
                }
                continue;
            }
            if silent.remove(&site.site) {
                let done = "what it reports counts again";
                self.alerts.tell(Event::new(
                    Kind::SiteReporting,
                    &site.site,
                    "a report has come",
                    done,
                ));
            }
            let Some((report, age)) = site.last else { continue };
            for member in &report.members {
                if let Some(rate) = member.error_rate {
                    let good_for = reports.silent_after.saturating_sub(age);
                    // From 0 to 1, or the report would not have been taken.
                    let permille = (rate * 1000.0).round() as u16;
                    self.prober.report_errors(member.address, permille, good_for);
                }
            }
        }
    }

    /// Keeps what is known of health. Writes a file and waits for the disk.
    pub(super) fn keep_health(&self) {
        let Some(memory) = &self.memory else { return };
        if let Err(error) = memory.save(self.prober.known()) {
            tracing::error!(%error, "cannot keep what is known of health");
        }
    }

    /// The events, and the webhooks.
    pub(super) fn told(&self) -> Events {
        Events {
            events: self.alerts.events(),
            webhooks: self.alerts.webhooks(),
        }
    }

    /// What bears on how often a member is given, for `explain`.
    pub(super) fn note(&self, service: &Service, site: &str, member: &str) -> Option<String> {
        // A name is neither checked nor overridden.
        let address = member.parse().ok()?;
        let over = self.overrides.of(site, member);
        let check = service.check.clone();
        let key = check.clone().map(|check| TargetKey { address, check });
        let remark = key.and_then(|key| self.prober.get(&key)?.remark);
        let standing = self.standing(&Target { address, check });
        let share = (standing.up && standing.share < Standing::WHOLE)
            .then(|| format!("share {}/{}", standing.share, Standing::WHOLE));
        let parts = [share, over.map(|over| format!("override {over}")), remark];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The checks as a whole.
    pub(super) fn checks(&self) -> ChecksStatus {
        let table = self.prober.table();
        // Never checked: as old as it is known.
        let age = |row: &crate::health::TargetStatus| row.last_check_age.unwrap_or(row.since);
        ChecksStatus {
            targets: table.len(),
            stale: table.iter().filter(|row| row.stale).count(),
            oldest_age_s: table.iter().map(age).max().map(|age| age.as_secs_f64()),
            restarts: self.prober.restarts(),
        }
    }
}

/// The sites of a service for clients of an ISP, best tier first, by what the configuration alone says.
fn tiers(config: &Config, facts: &Facts, service: &Service, isp: Option<usize>) -> Vec<Vec<usize>> {
    let key = PolicyKey::of(config, service);
    let client = ClientClass {
        isp,
        ..ClientClass::default()
    };
    let site = |i: &u8| key.sites[*i as usize].site;
    chain::rank(&key.chain, &key.sites, &client, facts, Sites::default())
        .iter()
        .map(|tier| tier.iter().map(site).collect())
        .collect()
}

/// What was seen of a member, in words.
fn seen(transition: &Transition) -> String {
    match &transition.remark {
        Some(remark) => format!("{remark}; the last check: {}", transition.reason),
        None => transition.reason.clone(),
    }
}

/// The events that a change of a member is: kind, what was seen, what was done.
fn told(transition: &Transition) -> Vec<(Kind, String, String)> {
    let (state, standing, stale) = (transition.state, transition.standing, transition.stale);
    let (was_state, stood, was_stale) = transition.was;
    let seen = || seen(transition);
    let whole = Standing::WHOLE;
    let mut events = Vec::new();
    if stale && !was_stale {
        let done = format!("it stays {state}, as it was known last");
        events.push((Kind::ChecksStale, format!("no check completes: {}", seen()), done));
    } else if was_stale && !stale {
        events.push((Kind::ChecksFresh, seen(), "its state is known again".into()));
    }
    match (was_state, state) {
        (State::Down, State::Up) => {
            let done = match standing.share {
                share if share == whole => "it is given again".into(),
                share => format!("it is given again, with {share}/{whole} of its share at first"),
            };
            events.push((Kind::MemberUp, seen(), done));
        }
        (_, State::Down) if was_state != State::Down => {
            events.push((Kind::MemberDown, seen(), "it is not given any more".into()));
        }
        (State::Up, State::Up) if stood.share == whole && standing.share < whole => {
            let done = match standing.share {
                0 => "it is given only when no other is left".into(),
                share => format!("it is given {share}/{whole} of its share"),
            };
            events.push((Kind::MemberDegraded, seen(), done));
        }
        (State::Up, State::Up) if stood.share < whole && standing.share == whole => {
            events.push((Kind::MemberWhole, seen(), "it has its whole share".into()));
        }
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{Check, CheckKind, Grade};
    use tokio::time::Instant;

    fn kinds(was: (State, Standing, bool), now: (State, Standing, bool)) -> Vec<Kind> {
        let check = Check {
            kind: CheckKind::Icmp,
            port: 0,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            rise: 1,
            fall: 1,
            interface: None,
            netns: None,
            grade: Grade::default(),
        };
        let target = Arc::new(TargetKey {
            address: IpAddr::from([192, 0, 2, 1]),
            check,
        });
        let transition = Transition {
            target,
            state: now.0,
            standing: now.1,
            was,
            remark: None,
            stale: now.2,
            since: Instant::now(),
            reason: "r".into(),
            successes: 0,
            failures: 0,
        };
        told(&transition).into_iter().map(|(kind, ..)| kind).collect()
    }

    #[test]
    fn each_change_is_told_as_what_it_is() {
        let share = |share| Standing { up: true, share };
        let up = |standing| (State::Up, standing, false);
        let down = (State::Down, Standing::DOWN, false);
        let unknown = (State::Unknown, Standing::DOWN, false);
        let whole = up(Standing::UP);
        for (was, now, kinds_told) in [
            (unknown, whole, vec![]),
            (unknown, down, vec![Kind::MemberDown]),
            (whole, down, vec![Kind::MemberDown]),
            (down, up(share(1)), vec![Kind::MemberUp]),
            (up(share(1)), up(share(2)), vec![]),
            (up(share(15)), whole, vec![Kind::MemberWhole]),
            (whole, up(share(8)), vec![Kind::MemberDegraded]),
            (up(share(8)), down, vec![Kind::MemberDown]),
            (whole, (State::Up, Standing::UP, true), vec![Kind::ChecksStale]),
            ((State::Up, Standing::UP, true), whole, vec![Kind::ChecksFresh]),
            (
                (State::Up, Standing::UP, true),
                down,
                vec![Kind::ChecksFresh, Kind::MemberDown],
            ),
        ] {
            assert_eq!(kinds(was, now), kinds_told, "{was:?} to {now:?}");
        }
    }
}
