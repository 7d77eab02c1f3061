//! Both halves of the link together: any interleaving of their turns, and two real threads.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// True while this thread acts as a worker.
    static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

fn as_worker<R>(act: impl FnOnce() -> R) -> R {
    ON_WORKER.set(true);
    let result = act();
    ON_WORKER.set(false);
    result
}

/// A snapshot that knows who drops it.
struct Probe {
    generation: u64,
    dropped: Arc<AtomicU64>,
    dropped_on_worker: Arc<AtomicU64>,
}

#[derive(Default)]
struct Drops {
    dropped: Arc<AtomicU64>,
    on_worker: Arc<AtomicU64>,
}

impl Drops {
    fn snapshot(&self, generation: u64) -> Arc<Probe> {
        let [dropped, dropped_on_worker] = [&self.dropped, &self.on_worker].map(Arc::clone);
        Arc::new(Probe {
            generation,
            dropped,
            dropped_on_worker,
        })
    }

    fn count(&self) -> (u64, u64) {
        (
            self.dropped.load(Ordering::SeqCst),
            self.on_worker.load(Ordering::SeqCst),
        )
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        self.dropped_on_worker
            .fetch_add(u64::from(ON_WORKER.get()), Ordering::SeqCst);
    }
}

#[test]
fn drop_probe_notices_a_drop_on_the_worker() {
    let drops = Drops::default();
    as_worker(|| drop(drops.snapshot(1)));
    drop(drops.snapshot(2));
    assert_eq!(drops.count(), (2, 1));
}

const MEMBER: WordTarget = WordTarget::Members(7);
const SITE: WordTarget = WordTarget::Site(7);

/// A word value that carries one small number in both halves, and back.
fn wide(value: u8) -> WordValue {
    [value as u64, !(value as u64), 0, 0, 0, value as u64]
}

fn small(value: WordValue) -> u8 {
    assert_eq!(
        (value[1], value[5]),
        (!value[0], value[0]),
        "all parts are of one word"
    );
    value[0] as u8
}

/// Words of one turn, as (target, value).
fn take<S>(adopter: &mut Adopter<S>, words_max: u32) -> (Taken, Vec<(WordTarget, u8)>) {
    let mut words = vec![];
    let taken = as_worker(|| adopter.take(words_max, |word| words.push((word.target, small(word.value)))));
    (taken, words)
}

#[test]
fn a_snapshot_goes_down_and_comes_back() {
    let drops = Drops::default();
    let (mut adopter, mut deliverer) = delivery::delivery(DeliverySlots::default());
    assert_eq!(adopter.current().map(|s: &Probe| s.generation), None);
    assert!(deliverer.publish(drops.snapshot(5), 5, Ticks(100)).is_none());
    assert_eq!(
        take(&mut adopter, 8).0,
        Taken::default(),
        "nothing before the pump"
    );
    assert!(deliverer.pump(drop).snapshot);
    assert_eq!(
        take(&mut adopter, 8).0,
        Taken {
            words: 0,
            adopted: Some(Ticks(100)),
            retired: 0
        }
    );
    assert_eq!(
        (adopter.current().map(|s| s.generation), adopter.generation()),
        (Some(5), 5)
    );
    assert!(deliverer.publish(drops.snapshot(9), 9, Ticks(200)).is_none());
    deliverer.pump(drop);
    assert_eq!(
        take(&mut adopter, 8).0,
        Taken {
            words: 0,
            adopted: Some(Ticks(200)),
            retired: 1
        }
    );
    assert_eq!(adopter.current().map(|s| s.generation), Some(9));
    assert_eq!(drops.count(), (0, 0), "on its way back");
    let mut back = vec![];
    assert_eq!(deliverer.pump(|old| back.push(old.generation)).collected, 1);
    assert_eq!(back, [5]);
    assert_eq!(drops.count(), (1, 0));
}

#[test]
fn newest_wins_among_what_is_not_sent() {
    let drops = Drops::default();
    let (mut adopter, mut deliverer) = delivery::delivery(DeliverySlots {
        snapshots: 1,
        words: 1,
        retired: 1,
    });
    for generation in 1..=4 {
        let _superseded = deliverer.publish(drops.snapshot(generation), generation, Ticks(0));
        deliverer.pump(drop);
    }
    // 1 fills the ring; 2 and 3 gave way to 4.
    assert_eq!(drops.count(), (2, 0));
    take(&mut adopter, 8);
    assert!(deliverer.pump(drop).snapshot);
    take(&mut adopter, 8);
    assert_eq!(adopter.generation(), 4);
    deliverer.pump(drop);
    let ledger = Ledger {
        control: deliverer.counts(),
        worker: adopter.counts(),
    };
    assert_eq!(ledger.check_at_rest(), Ok(()));
    assert_eq!(
        (
            ledger.control.published,
            ledger.worker.adopted,
            ledger.control.superseded
        ),
        (4, 2, 2)
    );
    // An older generation that comes late is superseded at once.
    let late = deliverer.publish(drops.snapshot(3), 3, Ticks(0));
    assert_eq!(late.map(|s| s.generation), Some(3));
    assert!(!deliverer.pump(drop).undelivered);
}

#[test]
fn a_full_retired_ring_holds_back_snapshots_and_no_words() {
    let drops = Drops::default();
    let (mut adopter, mut deliverer) = delivery::delivery(DeliverySlots {
        snapshots: 4,
        words: 4,
        retired: 1,
    });
    for generation in 1..=4 {
        assert!(
            deliverer
                .publish(drops.snapshot(generation), generation, Ticks(0))
                .is_none()
        );
        deliverer.pump(drop);
    }
    deliverer.set_word(MEMBER, wide(1), Ticks(0));
    deliverer.pump(drop);
    for _ in 0..3 {
        take(&mut adopter, 0);
    }
    // 1 fills the ring, 2 is in the holder, 3 in use, 4 must wait.
    assert_eq!(adopter.generation(), 3);
    assert_eq!(adopter.counts().retired, 1);
    assert_eq!(
        take(&mut adopter, 8).1,
        [(MEMBER, 1)],
        "the word does not wait for 4"
    );
    assert_eq!(adopter.generation(), 3);
    deliverer.pump(drop);
    assert_eq!(
        take(&mut adopter, 8).0,
        Taken {
            words: 0,
            adopted: Some(Ticks(0)),
            retired: 1
        }
    );
    assert_eq!((adopter.generation(), drops.count()), (4, (1, 0)));
}

#[test]
fn words_keep_the_newest_value_of_each_target() {
    let (mut adopter, mut deliverer) = delivery::delivery::<u8>(DeliverySlots {
        snapshots: 1,
        words: 2,
        retired: 1,
    });
    for (target, value) in [(MEMBER, 1), (SITE, 2), (MEMBER, 3)] {
        deliverer.set_word(target, wide(value), Ticks(0));
    }
    assert!(!deliverer.pump(drop).undelivered);
    deliverer.set_word(SITE, wide(4), Ticks(0));
    deliverer.set_word(SITE, wide(5), Ticks(0));
    assert!(deliverer.pump(drop).undelivered, "the ring is full");
    assert_eq!(take(&mut adopter, 8).1, [(MEMBER, 3), (SITE, 2)]);
    assert!(!deliverer.pump(drop).undelivered);
    assert_eq!(take(&mut adopter, 8).1, [(SITE, 5)]);
    let ledger = Ledger {
        control: deliverer.counts(),
        worker: adopter.counts(),
    };
    assert_eq!(ledger.check_at_rest(), Ok(()));
    assert_eq!(
        (ledger.control.words_set, ledger.control.words_superseded),
        (5, 2)
    );
}

#[test]
fn words_set_before_a_snapshot_come_before_it() {
    let (mut adopter, mut deliverer) = delivery::delivery(DeliverySlots {
        snapshots: 1,
        words: 2,
        retired: 1,
    });
    for slot in 0..5 {
        deliverer.set_word(WordTarget::Members(slot), wide(1), Ticks(0));
    }
    assert!(deliverer.publish(Arc::new(()), 1, Ticks(0)).is_none());
    let mut seen = 0;
    while adopter.generation() == 0 {
        // Words set later, and newer values, must not hold it up.
        deliverer.set_word(WordTarget::Members(99), wide(2), Ticks(0));
        deliverer.set_word(WordTarget::Members(4), wide(3), Ticks(0));
        deliverer.pump(drop);
        let (taken, words) = take(&mut adopter, 1);
        seen += words
            .iter()
            .filter(|(target, _)| *target != WordTarget::Members(99))
            .count();
        assert_eq!(taken.adopted.is_some(), seen == 5, "after {seen} of 5");
        assert!(seen <= 5);
    }
}

#[test]
fn the_ledger_names_a_broken_law() {
    let control = DelivererCounts {
        published: 5,
        superseded: 2,
        collected: 2,
        generation: 9,
        ..Default::default()
    };
    let worker = AdopterCounts {
        adopted: 3,
        retired: 2,
        words_taken: 0,
        generation: 9,
    };
    let good = Ledger { control, worker };
    assert_eq!(good.check_at_rest(), Ok(()));
    assert!(good.at_rest());
    for broken in [
        Ledger {
            control: DelivererCounts {
                published: 6,
                ..control
            },
            worker,
        },
        Ledger {
            control: DelivererCounts {
                collected: 1,
                ..control
            },
            worker,
        },
        Ledger {
            control: DelivererCounts {
                words_set: 1,
                ..control
            },
            worker,
        },
    ] {
        assert!(broken.check_at_rest().is_err() && !broken.at_rest(), "{broken:?}");
    }
    assert_eq!(
        Ledger {
            control: DelivererCounts {
                published: 6,
                ..control
            },
            worker
        }
        .snapshots_in_flight(),
        1
    );
    let lost = AdopterCounts { retired: 1, ..worker };
    let message = Ledger {
        control,
        worker: lost,
    }
    .check_at_rest()
    .unwrap_err();
    assert!(
        message.starts_with("adopted = retired + 1 does not hold: 3 against 2"),
        "{message}"
    );
}

/// One step of either half.
#[derive(Clone, Debug)]
enum Step {
    Publish,
    SetWord(WordTarget),
    Pump,
    Take { words_max: u32 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let target = prop_oneof![
        (0..3_u32).prop_map(WordTarget::Members),
        (0..2_u32).prop_map(WordTarget::Site)
    ];
    prop_oneof![
        2 => Just(Step::Publish),
        4 => target.prop_map(Step::SetWord),
        3 => Just(Step::Pump),
        3 => (0..4_u32).prop_map(|words_max| Step::Take { words_max }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the order of turns and however small the rings: no snapshot is dropped by the worker or
    /// lost, no word arrives before an older one of its target or after a snapshot that it was to precede,
    /// and in the end the worker has the newest of everything.
    #[test]
    fn any_interleaving_delivers_the_newest(
        snapshots in 1..3_usize, words in 1..5_usize, retired in 1..3_usize,
        steps in prop::collection::vec(any_step(), 0..120),
    ) {
        let drops = Drops::default();
        let (mut adopter, mut deliverer) = delivery::delivery(DeliverySlots { snapshots, words, retired });
        // The plain reference: the time of the last change of each target, and of each snapshot.
        let mut set: HashMap<WordTarget, u64> = HashMap::new();
        let mut published_at = vec![0_u64];
        let mut history: Vec<HashMap<WordTarget, u64>> = vec![HashMap::new()];
        let mut known: HashMap<WordTarget, u64> = HashMap::new();
        let mut generation = 0;
        let mut clock = 0;
        let rest = std::iter::repeat_n([Step::Pump, Step::Take { words_max: 2 }], 200).flatten();
        for step in steps.into_iter().chain(rest) {
            clock += 1;
            match step {
                Step::Publish => {
                    generation += 1;
                    published_at.push(clock);
                    history.push(set.clone());
                    drop(deliverer.publish(drops.snapshot(generation), generation, Ticks(clock)));
                }
                Step::SetWord(target) => {
                    set.insert(target, clock);
                    deliverer.set_word(target, wide(clock as u8), Ticks(clock));
                }
                Step::Pump => {
                    deliverer.pump(drop);
                }
                Step::Take { words_max } => {
                    let before = adopter.generation();
                    let mut arrived = vec![];
                    let taken = as_worker(|| adopter.take(words_max, |word| arrived.push(word)));
                    prop_assert!(arrived.len() <= words_max as usize);
                    for word in arrived {
                        prop_assert_eq!(small(word.value), word.published_at.0 as u8);
                        let older = known.insert(word.target, word.published_at.0);
                        prop_assert!(older.is_none_or(|older| older < word.published_at.0), "went back in time");
                    }
                    if let Some(at) = taken.adopted {
                        prop_assert!(adopter.generation() > before);
                        prop_assert_eq!(at.0, published_at[adopter.generation() as usize]);
                        for (target, at) in &history[adopter.generation() as usize] {
                            prop_assert!(known.get(target) >= Some(at), "{target:?} was to precede the snapshot");
                        }
                    }
                }
            }
            let ledger = Ledger { control: deliverer.counts(), worker: adopter.counts() };
            prop_assert_eq!(adopter.current().map_or(0, |s| s.generation), adopter.generation());
            prop_assert!(ledger.worker.adopted + ledger.control.superseded <= ledger.control.published);
            prop_assert!(ledger.worker.adopted - ledger.worker.retired <= 2, "more than in use and in the holder");
            prop_assert_eq!(drops.count(), (ledger.control.superseded + ledger.control.collected, 0));
        }
        let ledger = Ledger { control: deliverer.counts(), worker: adopter.counts() };
        prop_assert_eq!(ledger.check_at_rest(), Ok(()));
        prop_assert!(ledger.at_rest());
        prop_assert_eq!(adopter.generation(), generation);
        prop_assert_eq!(known, set);
        drop((adopter, deliverer));
        prop_assert_eq!(drops.count(), (generation, 0));
    }
}

/// A worker's thread until it is told to stop. Returns its link and the newest value of each of 16 members.
fn work(mut link: WorkerLink<Probe>) -> (WorkerLink<Probe>, [u8; 16]) {
    let mut values = [0; 16];
    let mut turn = |link: &mut WorkerLink<Probe>| {
        let taken = as_worker(|| {
            link.take(WORDS_PER_TURN, Ticks::now(), |target, value| {
                let WordTarget::Members(slot) = target else {
                    return;
                };
                values[slot as usize] = small(value);
            })
        });
        if let Some(snapshot) = link.tables.current() {
            assert_eq!(snapshot.generation, link.tables.generation());
        }
        if taken == Taken::default() {
            std::thread::yield_now();
        }
    };
    while !link.stop.is_set() {
        turn(&mut link);
    }
    turn(&mut link);
    (link, values)
}

#[test]
fn a_hundred_thousand_swaps_between_two_threads() {
    const SWAPS: u64 = 100_000;
    let drops = Drops::default();
    let stop = StopFlag::default();
    let (worker, mut control) = connect(LinkSlots::default(), stop.clone());
    let thread = std::thread::spawn(|| work(worker));
    let mut generation = 0;
    let mut last = [0; 16];
    while control.pulse.counts().adopted < SWAPS {
        generation += 1;
        let slot = (generation % 16) as usize;
        last[slot] = (generation / 16) as u8;
        control
            .delivery
            .set_word(WordTarget::Members(slot as u32), wide(last[slot]), Ticks::now());
        drop(
            control
                .delivery
                .publish(drops.snapshot(generation), generation, Ticks::now()),
        );
        if control.delivery.pump(drop).undelivered {
            std::thread::yield_now();
        }
    }
    while !control.ledger().at_rest() {
        control.delivery.pump(drop);
        std::thread::yield_now();
    }
    stop.stop();
    let (worker, values) = thread.join().unwrap();
    let ledger = control.ledger();
    assert_eq!(ledger.check_at_rest(), Ok(()));
    assert_eq!(ledger.worker, worker.tables.counts());
    assert_eq!(values, last);
    assert_eq!(
        drops.count(),
        (generation - 1, 0),
        "all but the one in use, none by the worker"
    );
    let delays = control.pulse.delays();
    assert_eq!(delays.count(), ledger.worker.adopted + ledger.worker.words_taken);
    drop(worker);
    assert_eq!(drops.count(), (generation, 0));
}

#[test]
fn packets_cross_between_two_threads() {
    const PACKETS: u32 = 50_000;
    let (mut worker, mut control) = connect::<()>(
        LinkSlots {
            punts: 8,
            ..Default::default()
        },
        StopFlag::default(),
    );
    let thread = std::thread::spawn(move || {
        let mut refused = 0_u32;
        for n in 0..PACKETS {
            let frame: Vec<u8> = n
                .to_be_bytes()
                .into_iter()
                .cycle()
                .take(4 + (n % 1500) as usize)
                .collect();
            while worker.punts.send((n % 250) as u8, &frame).is_err() {
                refused += 1;
                std::thread::yield_now();
            }
        }
        refused
    });
    for n in 0..PACKETS {
        let check = |port: u8, frame: &[u8]| {
            assert_eq!((u32::from(port), frame.len()), (n % 250, 4 + (n % 1500) as usize));
            assert!(
                frame
                    .iter()
                    .zip(n.to_be_bytes().iter().cycle())
                    .all(|(a, b)| a == b),
                "packet {n}"
            );
        };
        while control.punts.receive(check).is_none() {
            std::thread::yield_now();
        }
    }
    thread.join().unwrap();
    assert_eq!(control.punts.receive(|_, _| ()), None);
}
