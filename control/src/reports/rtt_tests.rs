//! The table of RTTs by a clock of its own.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn settings(prefixes: usize, measure: &[&str]) -> Reports {
    Reports {
        listen: ([127, 0, 0, 1], 0).into(),
        certificate: None,
        interval: 5 * SECOND,
        silent_after: 20 * SECOND,
        measure: measure.iter().map(|text| net(text)).collect(),
        rtt_prefixes: prefixes,
        rtt_every: 60 * SECOND,
        rtt_max_age: 600 * SECOND,
        rtt_prefix_v4: 24,
        rtt_prefix_v6: 48,
    }
}

fn rtt(prefix: &str, rtt_us: u64) -> Rtt {
    Rtt {
        prefix: net(prefix),
        rtt_us,
        method: Method::Icmp,
        samples: 3,
        age_ms: 0,
    }
}

/// A table, its clock, and what lost its evidence.
struct Lab {
    table: RttTable,
    now: Instant,
    gone: HashSet<IpNet>,
}

impl Lab {
    fn new(prefixes: usize, measure: &[&str]) -> Self {
        let now = Instant::now();
        Self {
            table: RttTable::new(&settings(prefixes, measure), now),
            now,
            gone: HashSet::new(),
        }
    }

    fn pass(&mut self, seconds: u32) {
        self.now += SECOND * seconds;
    }

    fn ask(&mut self, prefix: &str) {
        self.table.ask(net(prefix), None, self.now, &mut self.gone);
    }

    fn take(&mut self, site: SiteId, prefix: &str, rtt_us: u64) -> bool {
        self.table.take(site, &rtt(prefix, rtt_us), self.now, self.now)
    }

    fn wanted(&mut self, site: SiteId) -> Vec<String> {
        let list = self.table.wanted(site, self.now);
        list.iter().map(|wanted| wanted.prefix.to_string()).collect()
    }

    fn expire(&mut self) -> Vec<IpNet> {
        self.table.expire(self.now, &mut self.gone);
        let mut gone: Vec<IpNet> = std::mem::take(&mut self.gone).into_iter().collect();
        gone.sort();
        gone
    }

    fn known(&self, prefix: &str) -> Vec<(SiteId, u64)> {
        let mut list: Vec<(SiteId, u64)> = self
            .table
            .of(&net(prefix), self.now)
            .into_iter()
            .map(|(site, measured)| (site, measured.value.as_micros() as u64))
            .collect();
        list.sort_unstable();
        list
    }
}

#[test]
fn the_least_recently_used_goes_for_a_new_one_and_the_configured_stay() {
    let mut lab = Lab::new(3, &["192.0.2.53/32"]);
    lab.ask("198.51.100.0/24");
    lab.ask("203.0.113.0/24");
    assert!(lab.take(1, "198.51.100.0/24", 200_000) && lab.take(1, "192.0.2.53/32", 1));
    assert!(lab.take(2, "198.51.100.0/24", 30_000));
    assert_eq!(lab.known("198.51.100.0/24"), [(1, 200_000), (2, 30_000)]);
    // Used again: the other one is older now.
    lab.ask("198.51.100.0/24");
    lab.ask("2001:db8::/48");
    assert_eq!(lab.expire(), [], "203.0.113.0/24 had no evidence to lose");
    lab.pass(1);
    lab.ask("2001:db8:1::/48");
    assert_eq!(lab.expire(), [net("198.51.100.0/24")]);
    assert_eq!(lab.known("198.51.100.0/24"), []);
    assert_eq!(lab.known("192.0.2.53/32"), [(1, 1)]);
    let mut all: Vec<String> = lab.table.prefixes().map(IpNet::to_string).collect();
    all.sort();
    assert_eq!(all, ["192.0.2.53/32", "2001:db8:1::/48", "2001:db8::/48"]);
}

#[test]
fn what_nobody_asked_for_takes_free_room_alone() {
    let mut lab = Lab::new(2, &[]);
    lab.ask("198.51.100.0/24");
    assert!(lab.take(1, "203.0.113.0/24", 5));
    assert!(!lab.take(1, "192.0.2.0/24", 5), "the table is full");
    assert_eq!(lab.known("203.0.113.0/24"), [(1, 5)]);
    assert!(lab.take(1, "198.51.100.0/24", 5), "it was asked for");
}

#[test]
fn what_is_too_old_is_forgotten() {
    let mut lab = Lab::new(4, &["192.0.2.53/32"]);
    lab.ask("198.51.100.0/24");
    assert!(lab.take(1, "198.51.100.0/24", 7) && lab.take(1, "192.0.2.53/32", 7));
    lab.pass(400);
    lab.ask("198.51.100.0/24");
    assert!(lab.take(2, "198.51.100.0/24", 8));
    lab.pass(200);
    assert_eq!(lab.expire(), []);
    assert_eq!(lab.known("198.51.100.0/24"), [(1, 7), (2, 8)]);
    lab.pass(1);
    // Readers do not wait for the sweep.
    assert_eq!(lab.known("198.51.100.0/24"), [(2, 8)]);
    assert_eq!(lab.expire(), [net("192.0.2.53/32"), net("198.51.100.0/24")]);
    // A client of it was not seen for longer than the maximum: it goes; the configured one stays.
    lab.pass(400);
    assert_eq!(lab.expire(), [net("198.51.100.0/24")]);
    assert_eq!(lab.table.prefixes().collect::<Vec<_>>(), [&net("192.0.2.53/32")]);
}

#[test]
fn an_older_measurement_does_not_replace_a_newer_one() {
    let mut lab = Lab::new(4, &[]);
    lab.pass(700);
    lab.ask("198.51.100.0/24");
    assert!(lab.take(1, "198.51.100.0/24", 30));
    let late = |lab: &mut Lab, seconds: u32| {
        let at = lab.now - SECOND * seconds;
        lab.table.take(1, &rtt("198.51.100.0/24", 40), at, lab.now)
    };
    assert!(late(&mut lab, 5));
    assert_eq!(lab.known("198.51.100.0/24"), [(1, 30)]);
    lab.ask("203.0.113.0/24");
    let at = lab.now - SECOND * 601;
    assert!(lab.table.take(1, &rtt("203.0.113.0/24", 1), at, lab.now));
    assert_eq!(
        lab.known("203.0.113.0/24"),
        [],
        "older than the maximum when it came"
    );
}

#[test]
fn each_site_is_asked_once_a_period_what_it_never_measured_first() {
    let mut lab = Lab::new(4, &["192.0.2.53/32"]);
    assert_eq!(lab.wanted(1), ["192.0.2.53/32"]);
    assert_eq!(lab.wanted(1), [""; 0], "it was just asked");
    assert_eq!(lab.wanted(2), ["192.0.2.53/32"], "each site measures");
    lab.pass(30);
    lab.ask("198.51.100.0/24");
    assert_eq!(lab.wanted(1), ["198.51.100.0/24"]);
    lab.pass(5);
    assert!(lab.take(1, "192.0.2.53/32", 5));
    lab.pass(35);
    // Asked for 70 s ago, measured 35 s ago.
    assert_eq!(lab.wanted(1), [""; 0]);
    lab.pass(25);
    lab.ask("203.0.113.0/24");
    assert_eq!(
        lab.wanted(1),
        ["203.0.113.0/24", "198.51.100.0/24", "192.0.2.53/32"]
    );
}

#[test]
fn a_prefix_without_a_reply_is_tried_less_often() {
    let mut lab = Lab::new(4, &[]);
    lab.ask("198.51.100.0/24");
    assert_eq!(lab.wanted(1).len(), 1);
    lab.table.take_silent(1, &net("198.51.100.0/24"), lab.now);
    lab.pass(299);
    assert_eq!(lab.wanted(1), [""; 0]);
    lab.pass(1);
    assert_eq!(lab.wanted(1).len(), 1, "five periods are over");
}

#[test]
fn a_client_is_kept_under_the_longest_configured_prefix_or_one_of_the_usual_length() {
    let lab = Lab::new(9, &["198.51.100.0/22", "198.51.100.7/32", "2001:db8::/32"]);
    let of = |client: &str| {
        lab.table
            .prefix_of(client.parse().expect("an address"))
            .to_string()
    };
    assert_eq!(of("198.51.100.7"), "198.51.100.7/32");
    assert_eq!(of("198.51.101.7"), "198.51.100.0/22");
    assert_eq!(of("198.51.104.7"), "198.51.104.0/24");
    assert_eq!(of("2001:db8:1:2::3"), "2001:db8::/32");
    assert_eq!(of("2001:db9:1:2::3"), "2001:db9:1::/48");
}

#[test]
fn an_answer_asks_for_no_more_than_its_bound_and_goes_on_from_there() {
    let mut lab = Lab::new(WANTED_MAX * 2, &[]);
    for third in 0..200 {
        lab.ask(&format!("10.0.{third}.0/24"));
    }
    let (first, second) = (lab.wanted(1), lab.wanted(1));
    assert_eq!((first.len(), second.len()), (WANTED_MAX, 200 - WANTED_MAX));
    assert!(second.iter().all(|prefix| !first.contains(prefix)));
}

#[test]
fn another_configuration_keeps_what_fits_in_the_order_of_use() {
    let mut lab = Lab::new(3, &["192.0.2.53/32"]);
    lab.ask("198.51.100.0/24");
    lab.ask("203.0.113.0/24");
    for prefix in ["192.0.2.53/32", "198.51.100.0/24", "203.0.113.0/24"] {
        assert!(lab.take(1, prefix, 9) && lab.take(2, prefix, 9));
    }
    // One place less; 203.0.113.0/24 becomes a configured one, and site 2 does not report any more.
    let next = settings(2, &["203.0.113.0/24"]);
    lab.table
        .configure(&next, &HashSet::from([1]), lab.now, &mut lab.gone);
    assert_eq!(lab.known("203.0.113.0/24"), [(1, 9)]);
    assert_eq!(lab.known("192.0.2.53/32"), [(1, 9)], "used last of the others");
    assert_eq!(lab.known("198.51.100.0/24"), []);
    assert_eq!(lab.gone.len(), 3, "each lost some: {:?}", lab.gone);
}
