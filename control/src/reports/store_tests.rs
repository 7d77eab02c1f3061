//! The store by a clock of its own: ages, averages, silence, what changed.

use super::super::report::{Method, Rtt, Totals};
use super::super::silence::{is_avoided, is_feed_down};
use super::*;
use crate::config::model::OnSilence;
use crate::policy::tests::with_service;

const SECOND: Duration = Duration::from_secs(1);
const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 99));

/// Sites s0 and s1 report, s2 does not; s1 is avoided when silent.
fn config() -> Config {
    with_service(|config| {
        config.reports = Some(Reports {
            silent_after: 20 * SECOND,
            rtt_prefixes: 4,
            ..settings_of(config)
        });
        config.sites[0].tokens = vec![Token("token-of-site-zero".into())];
        config.sites[1].tokens = vec![
            Token("token-of-site-one-".into()),
            Token("its-next-token-is-it".into()),
        ];
        config.sites[1].on_silence = OnSilence::Avoid;
    })
}

struct Lab {
    config: Config,
    store: ReportStore,
    now: Instant,
    sequence: u64,
}

impl Lab {
    fn new() -> Self {
        let (config, now) = (config(), Instant::now());
        let store = ReportStore::new(&config, now);
        Self {
            config,
            store,
            now,
            sequence: 1_800_000_000,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.store.tick(self.now);
    }

    fn report(&mut self, site: &str, change: impl FnOnce(&mut Report)) -> Result<Answer, Refusal> {
        self.sequence += 1;
        let mut report = Report {
            version: 1,
            site: site.into(),
            sequence: self.sequence,
            ..Report::default()
        };
        change(&mut report);
        report.check().expect("a good report");
        self.store.take(report, FROM, self.now)
    }

    fn facts(&self) -> Facts {
        self.store.facts(&self.config, self.now)
    }

    fn changed_sites(&self) -> Vec<String> {
        self.store.take_changes().sites.into_iter().collect()
    }

    fn avoided(&self) -> Vec<usize> {
        let facts = self.facts();
        let service = &self.config.services[0];
        (0..3)
            .filter(|&site| is_avoided(&self.config, &facts, service, site))
            .collect()
    }
}

fn totals(sessions: u64, bandwidth_bps: u64) -> Totals {
    Totals {
        sessions: Some(sessions),
        bandwidth_bps: Some(bandwidth_bps),
        ..Totals::default()
    }
}

#[test]
fn values_come_with_their_age() {
    let mut lab = Lab::new();
    lab.report("s0", |report| {
        report.totals = Totals {
            age_ms: 1500,
            ..totals(900_000, 900_000_000)
        };
    })
    .expect("taken");
    lab.pass(3 * SECOND);
    let facts = lab.facts();
    let age = Duration::from_millis(4500);
    assert_eq!(facts.sites[0].sessions, Some(Reading { value: 900_000, age }));
    assert_eq!(
        facts.sites[0].bandwidth_bps,
        Some(Reading {
            value: 900_000_000,
            age
        })
    );
    assert_eq!(facts.sites[0].connections_per_second, None);
    assert_eq!(
        (&facts.sites[1], &facts.sites[2]),
        (&SiteFacts::default(), &SiteFacts::default())
    );
}

#[test]
fn new_connections_are_averaged_over_five_reports_in_a_row() {
    let mut lab = Lab::new();
    let mut after = |rate: Option<u64>| {
        lab.report("s0", |report| report.totals.connections_per_second = rate)
            .expect("taken");
        lab.pass(SECOND);
        lab.facts().sites[0]
            .connections_per_second
            .map(|reading| reading.value)
    };
    assert_eq!(after(Some(100)), Some(100));
    assert_eq!(after(Some(200)), Some(150));
    for rate in [300, 400, 500] {
        after(Some(rate));
    }
    // (200 + 300 + 400 + 500 + 600) / 5
    assert_eq!(after(Some(600)), Some(400));
    assert_eq!(after(None), None, "a report without is missing data");
    assert_eq!(after(Some(70)), Some(70), "and the average begins anew");
}

#[test]
fn a_site_falls_silent_when_its_time_is_over_and_its_values_are_missing() {
    let mut lab = Lab::new();
    for site in ["s0", "s1"] {
        lab.report(site, |report| report.totals = totals(5, 6))
            .expect("taken");
    }
    assert_eq!(lab.changed_sites(), ["s0", "s1"]);
    lab.pass(20 * SECOND);
    lab.report("s0", |report| report.totals = totals(5, 6))
        .expect("taken");
    assert_eq!(lab.changed_sites(), [""; 0], "equal values are no change");
    assert!(!lab.facts().sites[1].silent);
    lab.pass(Duration::from_millis(1));
    let facts = lab.facts();
    let silent = SiteFacts {
        silent: true,
        ..SiteFacts::default()
    };
    assert_eq!(facts.sites[1], silent);
    assert_eq!(lab.changed_sites(), ["s1"]);
    assert_eq!(lab.avoided(), [1]);
    lab.report("s1", |report| report.totals = totals(7, 8))
        .expect("taken");
    assert_eq!(lab.changed_sites(), ["s1"]);
    assert_eq!(lab.avoided(), [0; 0]);
    assert_eq!(
        lab.facts().sites[1].sessions.map(|reading| reading.value),
        Some(7)
    );
}

#[test]
fn a_site_that_never_reported_has_the_same_time_from_the_start() {
    let mut lab = Lab::new();
    lab.pass(20 * SECOND);
    assert!(lab.facts().sites.iter().all(|site| !site.silent));
    lab.pass(SECOND);
    let silent: Vec<bool> = lab.facts().sites.iter().map(|site| site.silent).collect();
    assert_eq!(silent, [true, true, false], "s2 is not to report");
}

#[test]
fn when_all_are_silent_none_is_avoided() {
    let mut lab = Lab::new();
    lab.report("s0", |_| {}).expect("taken");
    lab.pass(21 * SECOND);
    lab.store.take_changes();
    assert!(is_feed_down(&lab.config, &lab.facts()));
    assert_eq!(lab.avoided(), [0; 0], "the reports fail, not the sites");
    // One is heard again: the other is silent in earnest.
    lab.report("s0", |_| {}).expect("taken");
    assert_eq!(lab.changed_sites(), ["s0", "s1"]);
    assert_eq!(lab.avoided(), [1]);
}

#[test]
fn a_service_has_its_own_rule() {
    let mut lab = Lab::new();
    lab.pass(15 * SECOND);
    lab.report("s0", |_| {}).expect("taken");
    lab.pass(10 * SECOND);
    assert_eq!(lab.avoided(), [1], "the site's rule");
    lab.config.services[0].on_silence = Some(OnSilence::Ignore);
    assert_eq!(lab.avoided(), [0; 0]);
    lab.pass(15 * SECOND);
    lab.report("s1", |_| {}).expect("taken");
    lab.config.services[0].on_silence = Some(OnSilence::Avoid);
    assert_eq!(lab.avoided(), [0]);
}

#[test]
fn reports_follow_each_other_unless_the_site_was_silent() {
    let mut lab = Lab::new();
    lab.report("s0", |report| report.sequence = 10).expect("taken");
    let again = lab
        .report("s0", |report| report.sequence = 10)
        .expect_err("the same");
    assert_eq!(again, Refusal::Old { last: 10, got: 10 });
    assert!(lab.report("s0", |report| report.sequence = 9).is_err());
    lab.report("s0", |report| report.sequence = 11).expect("taken");
    lab.pass(21 * SECOND);
    lab.report("s0", |report| report.sequence = 1)
        .expect("a clock was set back");
    let unknown = lab.report("s2", |_| {}).expect_err("not to report");
    assert_eq!(unknown, Refusal::UnknownSite("s2".into()));
}

#[test]
fn tokens_belong_to_sites() {
    let lab = Lab::new();
    let of = |token: &str| lab.store.site_of(token.as_bytes());
    assert_eq!(of("token-of-site-zero").as_deref(), Some("s0"));
    assert_eq!(of("token-of-site-one-").as_deref(), Some("s1"));
    assert_eq!(of("its-next-token-is-it").as_deref(), Some("s1"));
    for wrong in [
        "",
        "token-of-site-zer",
        "token-of-site-zeroo",
        "Token-of-site-zero",
    ] {
        assert_eq!(of(wrong), None, "{wrong}");
    }
}

#[test]
fn rtts_become_evidence_of_their_prefix_and_changes_name_it() {
    let mut lab = Lab::new();
    let prefix: IpNet = "203.0.113.0/24".parse().expect("a prefix");
    lab.store
        .see("203.0.113.77".parse().expect("an address"), lab.now);
    let answer = lab.report("s1", |_| {}).expect("taken");
    assert_eq!(answer.measure.len(), 1);
    assert_eq!(answer.measure[0].prefix, prefix);
    assert_eq!(
        answer.measure[0].address,
        Some("203.0.113.77".parse().expect("an address"))
    );
    lab.store.take_changes();
    let rtt = Rtt {
        prefix,
        rtt_us: 30_000,
        method: Method::Tcp,
        samples: 3,
        age_ms: 2000,
    };
    lab.pass(10 * SECOND);
    lab.report("s1", |report| report.rtts = vec![rtt]).expect("taken");
    let mut facts = Facts::none(&lab.config);
    let changes = lab.store.take_changes();
    assert_eq!(changes.prefixes, HashSet::from([prefix]));
    lab.pass(SECOND);
    let evidence = Evidence {
        value: Duration::from_millis(30),
        count: 3,
        age: 3 * SECOND,
        source: Source::Agent,
    };
    let key = (Clients::Prefix(prefix), 1);
    assert_eq!(lab.facts().latency, HashMap::from([(key, vec![evidence])]));
    // Only what changed is brought up, and evidence of other sources stays.
    let passive = Evidence {
        source: Source::Passive,
        ..evidence
    };
    facts.latency.insert(key, vec![passive]);
    lab.store.update(&lab.config, lab.now, &changes, &mut facts);
    assert_eq!(facts.latency[&key], [passive, evidence]);
    lab.pass(598 * SECOND);
    let changes = lab.store.take_changes();
    assert!(changes.prefixes.contains(&prefix), "it is too old: {changes:?}");
    lab.store.update(&lab.config, lab.now, &changes, &mut facts);
    assert_eq!(facts.latency[&key], [passive]);
    assert!(lab.facts().latency.is_empty());
}

#[test]
fn what_a_site_says_of_a_member_holds_until_it_is_silent() {
    let mut lab = Lab::new();
    let address: IpAddr = "198.51.100.1".parse().expect("an address");
    let member = MemberReport {
        address,
        up: Some(true),
        error_rate: Some(0.3),
        latency_us: Some(1200),
        sessions: None,
    };
    lab.report("s0", |report| report.members = vec![member.clone()])
        .expect("taken");
    lab.pass(20 * SECOND);
    assert_eq!(
        lab.store.member("s0", address, lab.now),
        Some((member, 20 * SECOND))
    );
    assert_eq!(lab.store.member("s1", address, lab.now), None);
    lab.pass(SECOND);
    assert_eq!(lab.store.member("s0", address, lab.now), None);
}

#[test]
fn a_reload_keeps_what_is_known_of_sites_that_stay() {
    let mut lab = Lab::new();
    for site in ["s0", "s1"] {
        lab.report(site, |report| report.totals = totals(5, 6))
            .expect("taken");
    }
    lab.store.take_changes();
    lab.pass(5 * SECOND);
    lab.config.sites[1].tokens.clear();
    lab.config.sites[2].tokens = vec![Token("token-of-site-two--".into())];
    lab.config.sites.rotate_left(1);
    lab.store.configure(&lab.config, lab.now);
    assert_eq!(lab.changed_sites(), ["s1"]);
    let facts = lab.facts();
    // The order is now s1, s2, s0.
    assert_eq!(facts.sites[2].sessions.map(|reading| reading.value), Some(5));
    assert_eq!(facts.sites[0], SiteFacts::default());
    assert_eq!(lab.store.site_of(b"token-of-site-two--").as_deref(), Some("s2"));
    assert_eq!(lab.store.site_of(b"token-of-site-one-"), None);
    lab.pass(20 * SECOND);
    assert!(!lab.facts().sites[1].silent, "s2 has its time from the reload on");
    lab.pass(SECOND);
    assert!(lab.facts().sites[1].silent);
}

#[tokio::test]
async fn who_waits_for_changes_is_told_once_for_many() {
    let mut lab = Lab::new();
    lab.report("s0", |_| {}).expect("taken");
    lab.report("s1", |_| {}).expect("taken");
    tokio::time::timeout(SECOND, lab.store.changed())
        .await
        .expect("told");
    assert_eq!(lab.changed_sites(), ["s0", "s1"]);
    let waits = tokio::time::timeout(Duration::from_millis(20), lab.store.changed()).await;
    assert!(waits.is_err(), "nothing more has changed");
}
