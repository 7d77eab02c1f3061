//! The prober on a fake clock with scripted checks, and once over real sockets.

use super::*;
use crate::config::model::CheckKind;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::error::TryRecvError;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);

fn target(last_octet: u8) -> TargetKey {
    let check = Check {
        kind: CheckKind::Tcp,
        port: 80,
        interval: SECOND,
        timeout: TIMEOUT,
        rise: 2,
        fall: 3,
        interface: None,
        netns: None,
        grade: crate::config::model::Grade::default(),
    };
    TargetKey {
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, last_octet)),
        check,
    }
}

/// Answers the n-th check (from 0) by `script`.
fn scripted(script: impl Fn(usize) -> CheckFuture + Send + Sync + 'static) -> Box<CheckFn> {
    let calls = AtomicUsize::new(0);
    Box::new(move |_| script(calls.fetch_add(1, Ordering::Relaxed)))
}

/// The next transition; fails the test when none comes.
async fn next(transitions: &mut UnboundedReceiver<Transition>) -> Transition {
    let patience = SECOND * 60;
    tokio::time::timeout(patience, transitions.recv())
        .await
        .expect("no transition came")
        .unwrap()
}

fn now(outcome: Outcome) -> CheckFuture {
    Box::pin(std::future::ready(outcome))
}

fn good() -> CheckFuture {
    now(Outcome::Success("good".into()))
}

fn bad() -> CheckFuture {
    now(Outcome::Failure(Fault::Refused, "bad".into()))
}

#[tokio::test(start_paused = true)]
async fn states_change_when_the_rule_says() {
    let script = "+++---++";
    let check = scripted(move |n| {
        if script.as_bytes().get(n).is_none_or(|c| *c == b'+') {
            good()
        } else {
            bad()
        }
    });
    let (prober, mut transitions) = Prober::with_check(check);
    let start = Instant::now();
    prober.update([target(1)]);
    assert_eq!(prober.get(&target(1)).unwrap().state, State::Unknown);

    // The n-th check starts n to 1.1 n + 0.1 seconds after the update.
    for (state, check_number, successes, failures) in
        [(State::Up, 0, 1, 0), (State::Down, 5, 0, 3), (State::Up, 7, 2, 0)]
    {
        let transition = next(&mut transitions).await;
        assert_eq!((transition.state, transition.stale), (state, false));
        assert_eq!((transition.successes, transition.failures), (successes, failures));
        let earliest = SECOND * check_number;
        let latest = earliest.mul_f64(1.1) + SECOND / 10 + Duration::from_millis(10);
        let at = transition.since - start;
        assert!(
            (earliest..=latest).contains(&at),
            "check {check_number} at {at:?}"
        );
    }
    let row = prober.get(&target(1)).unwrap();
    assert_eq!((row.state, row.checks, row.checks_failed), (State::Up, 8, 3));
    assert_eq!(row.reason, "good");
}

#[tokio::test(start_paused = true)]
async fn a_target_never_sees_two_checks_at_once_nor_more_than_one_an_interval() {
    let log: Arc<Mutex<HashMap<IpAddr, Vec<Instant>>>> = Arc::default();
    let in_flight: Arc<Mutex<HashMap<IpAddr, usize>>> = Arc::default();
    let (log_in, flight_in) = (log.clone(), in_flight.clone());
    let check: Box<CheckFn> = Box::new(move |target| {
        let (log, in_flight) = (log_in.clone(), flight_in.clone());
        Box::pin(async move {
            let start = Instant::now();
            log.lock().unwrap().entry(target.address).or_default().push(start);
            *in_flight.lock().unwrap().entry(target.address).or_default() += 1;
            assert_eq!(
                in_flight.lock().unwrap()[&target.address],
                1,
                "two checks at once"
            );
            // From none to two and a half intervals, longer than a check may take.
            let nth = log.lock().unwrap()[&target.address].len() as u64;
            tokio::time::sleep(Duration::from_millis(nth * 997 % 2500)).await;
            *in_flight.lock().unwrap().get_mut(&target.address).unwrap() -= 1;
            Outcome::Success("good".into())
        })
    });
    let (prober, _transitions) = Prober::with_check(check);
    prober.update((1..=20).map(target));
    for _ in 0..100 {
        tokio::time::sleep(SECOND * 3).await;
        prober.update((1..=20).map(target));
    }
    assert!(prober.table().iter().all(|row| row.restarts == 0), "a check died");
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 20);
    for starts in log.values() {
        assert!(starts.len() > 100, "{} checks in 300 s", starts.len());
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_keeps_starts_and_stops() {
    let seen: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
    let seen_in = seen.clone();
    let check: Box<CheckFn> = Box::new(move |target| {
        seen_in.lock().unwrap().push(target.address);
        good()
    });
    let (prober, mut transitions) = Prober::with_check(check);
    let all = prober.update([target(1), target(2), target(2)]);
    assert_eq!(
        all,
        Updated {
            started: 2,
            stopped: 0,
            kept: 0
        }
    );
    for _ in 0..2 {
        assert_eq!(next(&mut transitions).await.state, State::Up);
    }
    tokio::time::sleep(SECOND * 10).await;
    let before = prober.get(&target(2)).unwrap();

    assert_eq!(
        prober.update([target(2), target(3)]),
        Updated {
            started: 1,
            stopped: 1,
            kept: 1
        }
    );
    let after = prober.get(&target(2)).unwrap();
    assert_eq!(
        (after.state, after.since, after.checks),
        (State::Up, before.since, before.checks)
    );
    assert!(prober.get(&target(1)).is_none());
    seen.lock().unwrap().clear();
    tokio::time::sleep(SECOND * 10).await;
    let seen = seen.lock().unwrap().clone();
    assert!(
        !seen.contains(&target(1).address),
        "a removed target is still checked"
    );
    assert!(seen.contains(&target(2).address) && seen.contains(&target(3).address));
    assert_eq!(next(&mut transitions).await.target.address, target(3).address);
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_of_a_check_whose_target_was_removed() {
    let check = scripted(|_| {
        Box::pin(async {
            tokio::time::sleep(TIMEOUT).await;
            Outcome::Success("late".into())
        })
    });
    let (prober, mut transitions) = Prober::with_check(check);
    prober.update([target(1)]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    prober.update([]);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(transitions.try_recv().unwrap_err(), TryRecvError::Empty);
}

#[tokio::test(start_paused = true)]
async fn another_pace_takes_over_the_state_and_another_check_does_not() {
    let (prober, mut transitions) = Prober::with_check(scripted(|_| good()));
    prober.update([target(1)]);
    assert_eq!(next(&mut transitions).await.state, State::Up);
    let mut slower = target(1);
    slower.check.interval = SECOND * 5;
    prober.update([slower.clone()]);
    assert_eq!(prober.get(&slower).unwrap().state, State::Up);
    let mut elsewhere = slower;
    elsewhere.check.port = 81;
    prober.update([elsewhere.clone()]);
    assert_eq!(prober.get(&elsewhere).unwrap().state, State::Unknown);
}

#[tokio::test(start_paused = true)]
async fn checks_that_cannot_run_leave_the_state_and_make_it_stale() {
    let check = scripted(|n| {
        if (3..20).contains(&n) {
            now(Outcome::NotRun("no socket".into()))
        } else {
            good()
        }
    });
    let (prober, mut transitions) = Prober::with_check(check);
    prober.update([target(1)]);
    let up = next(&mut transitions).await;
    assert_eq!((up.state, up.stale), (State::Up, false));
    let stale = next(&mut transitions).await;
    assert_eq!(
        (stale.state, stale.stale, stale.reason.as_str()),
        (State::Up, true, "no socket")
    );
    let row = prober.get(&target(1)).unwrap();
    assert!(row.stale && row.checks_not_run > 0);
    // Three intervals and a timeout without evidence, seen by the next tick of the watchdog.
    let age = row.last_check_age.unwrap();
    assert!(
        age > SECOND * 3 + TIMEOUT && age <= SECOND * 3 + TIMEOUT + WATCHDOG_TICK * 2,
        "{age:?}"
    );
    let fresh = next(&mut transitions).await;
    assert_eq!((fresh.state, fresh.stale), (State::Up, false));
    assert!(!prober.get(&target(1)).unwrap().stale);
}

#[tokio::test(start_paused = true)]
async fn a_target_never_checked_goes_stale_as_unknown() {
    let (prober, mut transitions) =
        Prober::with_check(scripted(|_| now(Outcome::NotRun("no namespace".into()))));
    prober.update([target(1)]);
    let stale = next(&mut transitions).await;
    assert_eq!((stale.state, stale.stale), (State::Unknown, true));
    assert_eq!(prober.get(&target(1)).unwrap().last_check_age, None);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_check_is_reported_and_replaced() {
    let check = scripted(|n| {
        if n == 1 {
            Box::pin(std::future::pending())
        } else {
            good()
        }
    });
    let (prober, mut transitions) = Prober::with_check(check);
    prober.update([target(1)]);
    assert!(!next(&mut transitions).await.stale);
    assert!(next(&mut transitions).await.stale);
    let fresh = next(&mut transitions).await;
    assert_eq!((fresh.state, fresh.stale), (State::Up, false));
    assert_eq!(prober.get(&target(1)).unwrap().restarts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_is_replaced() {
    let check = scripted(|n| {
        Box::pin(async move {
            assert_ne!(n, 1, "this check dies on purpose");
            Outcome::Success("good".into())
        })
    });
    let (prober, mut transitions) = Prober::with_check(check);
    prober.update([target(1)]);
    tokio::time::sleep(SECOND * 20).await;
    let row = prober.get(&target(1)).unwrap();
    assert_eq!((row.restarts, row.stale), (1, false));
    assert!(row.checks > 10);
    assert_eq!(next(&mut transitions).await.state, State::Up);
    assert_eq!(
        transitions.try_recv().unwrap_err(),
        TryRecvError::Empty,
        "replaced so late that it went stale"
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_the_prober_stops_everything() {
    let calls = Arc::new(AtomicUsize::new(0));
    let calls_in = calls.clone();
    let check: Box<CheckFn> = Box::new(move |_| {
        let calls = calls_in.clone();
        Box::pin(async move {
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
            Outcome::Success("good".into())
        })
    });
    let (prober, mut transitions) = Prober::with_check(check);
    prober.update([target(1)]);
    assert_eq!(next(&mut transitions).await.state, State::Up);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "a check is in flight");
    drop(prober);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&calls), 1, "a check is still in flight");
    assert!(transitions.recv().await.is_none());
}

/// The whole way over sockets: up, gone, back.
#[tokio::test]
async fn a_real_server_that_goes_and_comes_back_is_followed() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut real = target(1);
    real.address = address.ip();
    real.check.port = address.port();
    real.check.interval = Duration::from_millis(50);
    real.check.timeout = Duration::from_millis(50);
    let (prober, mut transitions) = Prober::new();
    prober.update([real]);
    assert_eq!(next(&mut transitions).await.state, State::Up);
    drop(listener);
    let down = next(&mut transitions).await;
    assert_eq!((down.state, down.failures), (State::Down, 3));
    assert!(down.reason.contains("refused"), "{}", down.reason);
    let _listener = std::net::TcpListener::bind(address).unwrap();
    let up = next(&mut transitions).await;
    assert_eq!((up.state, up.successes), (State::Up, 2));
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_ramp_is_told() {
    let check = scripted(|n| if (1..=3).contains(&n) { bad() } else { good() });
    let (prober, mut transitions) = Prober::with_check(check);
    let mut slow = target(1);
    slow.check.grade.slow_start = SECOND * 32;
    prober.update([slow]);
    assert_eq!(next(&mut transitions).await.standing, Standing::UP);
    let down = next(&mut transitions).await;
    assert_eq!(
        (down.standing, down.was.0, down.state),
        (Standing::DOWN, State::Up, State::Down)
    );
    let up = next(&mut transitions).await;
    assert_eq!((up.was.0, up.state), (State::Down, State::Up));
    let start = Instant::now();
    for share in 1..=16 {
        let now = if share == 1 {
            up.clone()
        } else {
            next(&mut transitions).await
        };
        assert_eq!(now.standing, Standing { up: true, share });
        assert_eq!(now.remark.is_some(), share < 16);
    }
    // Fifteen steps of two seconds, each seen at most a tick late.
    let took = start.elapsed();
    assert!(took >= SECOND * 29 && took <= SECOND * 32, "{took:?}");
}

fn known(target: &TargetKey, state: State, age: f64) -> (String, Known) {
    let now = crate::state::now().as_secs_f64();
    let known = Known {
        target: subject(target),
        state,
        since: now - age - 1000.0,
        checked: now - age,
        reason: "HTTP 200".into(),
    };
    (known.target.clone(), known)
}

#[tokio::test(start_paused = true)]
async fn what_was_known_before_the_start_serves_until_a_check_completes() {
    // Checks that never end.
    let (prober, _transitions) = Prober::with_check(scripted(|_| Box::pin(std::future::pending())));
    let memory = [
        known(&target(1), State::Up, 600.0),
        known(&target(2), State::Down, 30.0),
    ];
    prober.remember(memory.into());
    prober.update([target(1), target(2), target(3)]);
    let row = |last| prober.get(&target(last)).unwrap();
    assert_eq!((row(1).state, row(1).remembered), (State::Up, true));
    assert_eq!((row(2).state, row(2).remembered), (State::Down, true));
    assert_eq!(
        (row(3).state, row(3).remembered),
        (State::Unknown, false),
        "never all up"
    );
    tokio::time::sleep(SECOND * 2).await;
    let age = row(1).last_check_age.unwrap().as_secs_f64();
    assert!((601.0..610.0).contains(&age), "{age}");
    assert_eq!(row(1).reason, "before the start: HTTP 200");
    // It is not made younger by being kept.
    let kept = prober.known();
    assert_eq!(kept.len(), 2);
    let age = crate::state::now().as_secs_f64() - kept[0].checked;
    assert!((600.0..610.0).contains(&age), "{age}");
}

#[tokio::test(start_paused = true)]
async fn an_old_memory_is_decided_by_the_first_check_and_a_young_one_by_the_row() {
    for (age, checks) in [(600.0, 1), (5.0, 3)] {
        let (prober, mut transitions) = Prober::with_check(scripted(|_| bad()));
        prober.remember([known(&target(1), State::Up, age)].into());
        prober.update([target(1)]);
        let down = next(&mut transitions).await;
        assert_eq!((down.was.0, down.state), (State::Up, State::Down));
        let row = prober.get(&target(1)).unwrap();
        assert_eq!((row.checks, row.remembered), (checks, false), "{age} s");
    }
}
