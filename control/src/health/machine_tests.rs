//! All rules of a check together, on a fake clock.

use super::*;
use crate::config::model::{BrownoutRule, CheckKind, DampeningRule, Grade};
use fastrand::Rng;

const SECOND: Duration = Duration::from_secs(1);
const FAST: Duration = Duration::from_millis(20);

fn check(grade: Grade) -> Check {
    Check {
        kind: CheckKind::Tcp,
        port: 80,
        interval: SECOND,
        timeout: SECOND,
        rise: 2,
        fall: 3,
        interface: None,
        netns: None,
        grade,
    }
}

const BROWNOUT: BrownoutRule = BrownoutRule {
    window: 20,
    shed_above: 100,
    down_above: 500,
    slower_than: Some(Duration::from_millis(300)),
};

fn graded() -> Grade {
    Grade {
        brownout: Some(BROWNOUT),
        slow_start: SECOND * 16,
        dampening: None,
    }
}

fn good() -> Outcome {
    Outcome::Success("HTTP 200".into())
}

fn bad(fault: Fault) -> Outcome {
    Outcome::Failure(fault, "bad".into())
}

/// A machine and its clock: a check a second.
struct Lab {
    machine: Machine,
    now: Instant,
}

impl Lab {
    fn new(grade: Grade) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new(&check(grade), now),
            now,
        }
    }

    fn check(&mut self, outcome: &Outcome) -> Standing {
        self.took(outcome, FAST)
    }

    fn took(&mut self, outcome: &Outcome, took: Duration) -> Standing {
        self.now += SECOND;
        self.machine.record(self.now, outcome, took);
        self.standing()
    }

    fn standing(&mut self) -> Standing {
        self.machine.tick(self.now);
        self.machine.standing(self.now)
    }

    fn checks(&mut self, count: usize, outcome: &Outcome) -> Standing {
        (0..count).for_each(|_| _ = self.check(outcome));
        self.standing()
    }
}

fn share(share: u8) -> Standing {
    Standing { up: true, share }
}

#[test]
fn the_first_result_starts_no_ramp_and_a_recovery_does() {
    let mut lab = Lab::new(graded());
    assert_eq!(lab.standing(), Standing::DOWN, "nothing is known yet");
    assert_eq!(lab.check(&good()), Standing::UP);
    assert_eq!(lab.checks(3, &bad(Fault::Refused)), Standing::DOWN);
    assert_eq!(lab.checks(2, &good()), share(1));
    assert_eq!(lab.machine.remark(lab.now).as_deref(), Some("slow start"));
    // Sixteen steps of a second.
    for sixteenths in 2..=15 {
        assert_eq!(lab.check(&good()), share(sixteenths));
    }
    assert_eq!(lab.check(&good()), Standing::UP);
    assert_eq!(lab.machine.remark(lab.now), None);
    // Down at the very first result: coming up is a recovery.
    let mut lab = Lab::new(graded());
    assert_eq!(lab.check(&bad(Fault::Refused)), Standing::DOWN);
    assert_eq!(lab.checks(2, &good()), share(1));
}

#[test]
fn refusals_fall_in_a_row_and_answered_errors_by_the_window() {
    for (fault, down_after) in [
        (Fault::Refused, 3),
        (Fault::Wrong, 3),
        (Fault::Error, 14),
        (Fault::Timeout, 14),
    ] {
        let mut lab = Lab::new(graded());
        lab.checks(30, &good());
        let after = (1..30).find(|_| !lab.check(&bad(fault)).up);
        assert_eq!(after, Some(down_after), "{fault:?}");
    }
    // Without the rule they are all the same.
    for fault in [Fault::Refused, Fault::Error, Fault::Timeout] {
        let mut lab = Lab::new(Grade::default());
        lab.checks(30, &good());
        assert_eq!((1..30).find(|_| !lab.check(&bad(fault)).up), Some(3));
    }
}

#[test]
fn slow_answers_are_shed_like_failures() {
    let mut lab = Lab::new(graded());
    lab.checks(30, &good());
    for _ in 0..60 {
        // One in three takes longer than 300 ms.
        lab.check(&good());
        lab.check(&good());
        lab.took(&good(), Duration::from_millis(301));
    }
    let standing = lab.standing();
    // 30 or 35 % of 20: 8 or 6 sixteenths.
    assert!(standing.up && (6..=8).contains(&standing.share), "{standing:?}");
    let remark = lab.machine.remark(lab.now).expect("a remark");
    assert!(remark.starts_with("brown-out: 3"), "{remark}");
}

#[test]
fn a_site_that_reports_errors_is_believed_while_the_report_is_fresh() {
    let mut lab = Lab::new(graded());
    lab.checks(30, &good());
    lab.machine.report(300, lab.now + SECOND * 60);
    assert_eq!(lab.checks(40, &good()), share(8));
    assert_eq!(lab.checks(40, &good()), Standing::UP, "the report is old");
}

#[test]
fn ten_minutes_of_random_noise_never_flap() {
    // Thousandths of refusals and of errors: none is an outage.
    for (refused, errors) in [(0, 0), (20, 0), (0, 100), (20, 100), (0, 300)] {
        for seed in 0..25 {
            let (mut lab, mut rng) = (Lab::new(graded()), Rng::with_seed(seed));
            lab.check(&good());
            for second in 0..600 {
                let outcome = match rng.u32(0..1000) {
                    n if n < refused => bad(Fault::Refused),
                    n if n < refused + errors => bad([Fault::Error, Fault::Timeout][rng.usize(..2)]),
                    _ => good(),
                };
                let standing = lab.check(&outcome);
                assert!(
                    standing.up,
                    "{refused} {errors} seed {seed}: down after {second} s"
                );
                assert!(standing.share > 0);
            }
        }
    }
}

#[test]
fn a_brown_out_ends_by_the_ramp() {
    let mut lab = Lab::new(graded());
    lab.checks(30, &good());
    assert_eq!(lab.checks(20, &bad(Fault::Error)), Standing::DOWN);
    assert_eq!(lab.machine.state(), State::Down);
    let mut shares = vec![];
    for _ in 0..60 {
        let standing = lab.check(&good());
        shares.push(if standing.up { standing.share } else { 0 });
    }
    assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]), "{shares:?}");
    let first = shares.iter().find(|share| **share > 0);
    assert_eq!((first, shares.last()), (Some(&1), Some(&16)), "{shares:?}");
}

#[test]
fn who_flaps_too_much_has_no_share_until_the_penalty_is_gone() {
    let dampening = DampeningRule {
        half_life: SECOND * 60,
        suppress: 2000,
        reuse: 750,
        max: SECOND * 240,
    };
    let mut lab = Lab::new(Grade {
        dampening: Some(dampening),
        ..Grade::default()
    });
    lab.check(&good());
    for falls in 1..=3 {
        lab.checks(3, &bad(Fault::Refused));
        let back = lab.checks(2, &good());
        // 1000 a fall, 5 s apart: 1944 after the second.
        assert_eq!(back, share(if falls < 3 { 16 } else { 0 }), "fall {falls}");
    }
    let remark = lab.machine.remark(lab.now).expect("a remark");
    assert!(remark.starts_with("flapped: penalty 2"), "{remark}");
    // 60 s * log2(2835 / 750) = 115 s from the last fall, 2 s ago.
    let back = (1..300).find(|_| lab.check(&good()).share > 0);
    assert!(matches!(back, Some(110..=118)), "{back:?}");
}

#[test]
fn checks_that_could_not_run_say_nothing() {
    let mut lab = Lab::new(graded());
    lab.check(&good());
    assert_eq!(lab.checks(50, &Outcome::NotRun("no socket".into())), Standing::UP);
}

#[test]
fn what_is_doubted_is_decided_by_the_next_result() {
    for (remembered, outcome, state) in [
        (State::Up, bad(Fault::Refused), State::Down),
        (State::Up, good(), State::Up),
        (State::Down, good(), State::Up),
    ] {
        let now = Instant::now();
        let mut machine = Machine::resume(&check(graded()), remembered, now);
        machine.doubt();
        assert_eq!(machine.state(), remembered);
        machine.record(now, &outcome, FAST);
        assert_eq!(machine.state(), state);
    }
    let now = Instant::now();
    let mut machine = Machine::resume(&check(graded()), State::Up, now);
    machine.record(now, &bad(Fault::Refused), FAST);
    assert_eq!(
        machine.state(),
        State::Up,
        "a fresh memory is continued: fall is 3"
    );
}
