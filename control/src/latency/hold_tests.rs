//! What the chain is told, step by step, by hand.

use super::*;

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

/// A group at work; times are seconds, values milliseconds.
struct Lab {
    group: Group<u8>,
    rules: Rules,
    start: Instant,
}

impl Lab {
    fn new(hold: u64) -> Self {
        Self {
            group: Group::default(),
            rules: Rules {
                hold: Duration::from_secs(hold),
                trial: Duration::from_secs(60),
                tolerances: vec![(100, Duration::from_millis(5))],
            },
            start: Instant::now(),
        }
    }

    fn tell(&mut self, second: u64, sites: &[(u8, u64)]) -> Vec<(u64, Option<Shared>)> {
        let measured: Vec<_> = sites
            .iter()
            .map(|&(site, ms)| (site, Duration::from_millis(ms)))
            .collect();
        let told = self.group.tell(&measured, &self.rules, self.at(second));
        told.iter()
            .map(|told| (told.value.as_millis() as u64, told.shared))
            .collect()
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn shared(&self, until: u64) -> Option<Shared> {
        Some(Shared {
            until: self.at(until),
        })
    }
}

#[test]
fn bad_news_counts_at_once_and_small_ones_move_nobody() {
    let mut lab = Lab::new(120);
    assert_eq!(lab.tell(0, &[(A, 38), (B, 40)]), [(38, None), (40, None)]);
    // 10 % of 40 is less than 5 ms.
    assert_eq!(lab.tell(1, &[(A, 45), (B, 40)]), [(45, None), (40, None)]);
    assert_eq!(lab.group.changes(), 0);
    assert_eq!(lab.tell(2, &[(A, 46), (B, 40)]), [(46, None), (40, None)]);
    assert_eq!((lab.group.changes(), lab.group.leader), (1, Some(B)));
}

#[test]
fn a_leader_that_was_left_is_shared_and_leads_again_when_load_is_not_the_reason() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 20), (B, 40)]);
    assert_eq!(lab.tell(10, &[(A, 50), (B, 40)]), [(50, None), (40, None)]);
    // Left at 10, so until 130; a little better than B, then much.
    for (second, a) in [(20, 36), (30, 20), (79, 20)] {
        assert_eq!(
            lab.tell(second, &[(A, a), (B, 40)]),
            [(40, lab.shared(130)), (40, None)]
        );
    }
    // After a minute of it B is as far behind as ever.
    assert_eq!(lab.tell(80, &[(A, 20), (B, 40)]), [(20, None), (40, None)]);
    // B was left at 80, within twice 120 of the change at 10: it is held for 240.
    assert_eq!(
        lab.tell(91, &[(A, 50), (B, 40)]),
        [(50, None), (50, lab.shared(320))]
    );
    assert_eq!(lab.group.changes(), 2);
}

#[test]
fn clients_are_shared_for_the_whole_hold_where_that_helps() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 40), (B, 28)]);
    assert_eq!(lab.group.leader, Some(B));
    lab.tell(10, &[(A, 20), (B, 48)]);
    assert_eq!((lab.group.leader, lab.group.changes()), (Some(A), 1));
    assert_eq!(
        lab.tell(20, &[(A, 40), (B, 28)]),
        [(40, None), (40, lab.shared(130))]
    );
    // Half of the load on each: whoever is the better one.
    for (second, a, b) in [(60, 30, 38), (100, 37, 32), (129, 30, 38)] {
        assert_eq!(
            lab.tell(second, &[(A, a), (B, b)]),
            [(a, None), (a, lab.shared(130))]
        );
    }
    // The hold is over, and B is worse by more than the tolerance.
    assert_eq!(lab.tell(130, &[(A, 30), (B, 38)]), [(30, None), (38, None)]);
    assert_eq!(lab.group.changes(), 1);
}

#[test]
fn who_comes_in_stays_for_the_hold_unless_it_gets_much_worse() {
    let mut lab = Lab::new(120);
    assert_eq!(lab.tell(0, &[(A, 20), (B, 40)]), [(20, None), (40, None)]);
    // 36 + 5 is 41.
    assert_eq!(
        lab.tell(10, &[(A, 36), (B, 40)]),
        [(36, None), (36, lab.shared(130))]
    );
    // 20 and four times 5.
    assert_eq!(
        lab.tell(11, &[(A, 20), (B, 40)]),
        [(20, None), (20, lab.shared(130))]
    );
    assert_eq!(lab.tell(12, &[(A, 20), (B, 41)]), [(20, None), (41, None)]);
    // The hold is twice as long now.
    assert_eq!(
        lab.tell(13, &[(A, 36), (B, 40)]),
        [(36, None), (36, lab.shared(253))]
    );
    assert_eq!(lab.group.changes(), 0);
}

#[test]
fn who_comes_in_may_lead_at_once_and_that_is_one_change() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 20), (B, 40)]);
    assert_eq!(
        lab.tell(10, &[(A, 40), (B, 40)]),
        [(40, None), (40, lab.shared(130))]
    );
    assert_eq!(lab.tell(14, &[(A, 50), (B, 40)]), [(50, None), (40, None)]);
    // Left at 14, for 120 and not for 240.
    assert_eq!(
        lab.tell(20, &[(A, 30), (B, 40)]),
        [(40, lab.shared(134)), (40, None)]
    );
}

#[test]
fn a_leader_that_was_left_leads_again_when_the_other_gets_much_worse() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 20), (B, 40)]);
    lab.tell(10, &[(A, 50), (B, 40)]);
    assert_eq!(
        lab.tell(20, &[(A, 30), (B, 40)]),
        [(40, lab.shared(130)), (40, None)]
    );
    // 40 and four times 5.
    assert_eq!(
        lab.tell(21, &[(A, 30), (B, 60)]),
        [(60, lab.shared(130)), (60, None)]
    );
    assert_eq!(lab.tell(22, &[(A, 30), (B, 61)]), [(30, None), (61, None)]);
    assert_eq!((lab.group.leader, lab.group.changes()), (Some(A), 2));
}

#[test]
fn holds_double_while_clients_go_back_and_forth_and_begin_anew_after_quiet() {
    let mut lab = Lab::new(100);
    lab.tell(0, &[(A, 20), (B, 40)]);
    let left_until = |lab: &mut Lab, second, a, b, site| {
        lab.tell(second, &[(A, a), (B, b)]);
        let (until, _) = lab.group.followers[&site].left.expect("was left");
        until.duration_since(lab.start).as_secs()
    };
    assert_eq!(left_until(&mut lab, 10, 60, 40, A), 110);
    // Its hold is over, and less than 200 s passed.
    assert_eq!(left_until(&mut lab, 120, 20, 40, B), 320);
    assert_eq!(left_until(&mut lab, 330, 60, 40, A), 730);
    // More than 800 s later.
    assert_eq!(left_until(&mut lab, 1131, 20, 40, B), 1231);
}

#[test]
fn a_third_site_takes_them_when_it_is_better_than_both() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 20), (B, 40), (C, 60)]);
    lab.tell(10, &[(A, 50), (B, 40), (C, 60)]);
    assert_eq!(
        lab.tell(20, &[(A, 50), (B, 70), (C, 60)]),
        [(60, lab.shared(130)), (70, None), (60, None)]
    );
    assert_eq!((lab.group.leader, lab.group.changes()), (Some(C), 2));
}

#[test]
fn nobody_was_left_for_a_site_that_was_never_measured_before() {
    let mut lab = Lab::new(120);
    assert_eq!(lab.tell(0, &[(B, 40)]), [(40, None)]);
    assert_eq!(lab.tell(10, &[(A, 20), (B, 40)]), [(20, None), (40, None)]);
    assert_eq!((lab.group.leader, lab.group.changes()), (Some(A), 0));
    // So it may lead at once.
    assert_eq!(lab.tell(20, &[(A, 60), (B, 40)]), [(60, None), (40, None)]);
    assert_eq!((lab.group.leader, lab.group.changes()), (Some(B), 1));
}

#[test]
fn without_a_hold_what_is_measured_counts() {
    let mut lab = Lab::new(0);
    for (second, a, b) in [(0, 20, 40), (1, 60, 40), (2, 20, 40)] {
        assert_eq!(lab.tell(second, &[(A, a), (B, b)]), [(a, None), (b, None)]);
    }
}

#[test]
fn the_service_that_takes_it_most_exactly_says_what_is_better() {
    let mut rules = Lab::new(1).rules;
    rules.tolerances.push((20, Duration::from_millis(1)));
    let ms = Duration::from_millis;
    // 2 % of 100 is 2 ms, of 10 less than 1 ms.
    assert_eq!(
        [rules.tolerance(ms(100)), rules.tolerance(ms(10))],
        [ms(2), ms(1)]
    );
}

#[test]
fn a_site_of_which_nothing_is_known_any_more_leads_nobody() {
    let mut lab = Lab::new(120);
    lab.tell(0, &[(A, 20), (B, 40)]);
    lab.tell(10, &[(A, 50), (B, 40)]);
    assert_eq!(lab.tell(20, &[(A, 50)]), [(50, None)]);
    assert_eq!(lab.group.leader, Some(A));
    assert_eq!(lab.tell(30, &[]), []);
    assert_eq!(lab.group.leader, None);
}
