//! Every interleaving, up to a bound on preemptions, of a worker and control on one link.
//!
//! `cargo test -p link-model --release`: seconds once built. The tests that should panic seed a fault each and
//! show that the model finds it.

use link_model::arch::Ticks;
use link_model::link::delivery::{Adopter, Deliverer, DeliverySlots, Ledger, WordTarget, delivery};
use link_model::{careless_consumer, careless_producer, link};
use loom::sync::Arc;
use loom::thread::{self, ThreadId};
use std::sync::atomic::Ordering::SeqCst;

/// Explores `model` with at most `preemptions` forced switches in one run.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Three values through a ring of two slots, in order, each seen by one end at a time.
macro_rules! ring_model {
    ($module:path) => {{
        use $module as the;
        explore(5, || {
            let (mut producer, mut consumer) = the::ring::<Option<Box<u32>>>(2);
            let thread = thread::spawn(move || {
                for n in 1..=3 {
                    let mut value = Box::new(n);
                    while let Err(back) = producer.push(value) {
                        value = back;
                        thread::yield_now();
                    }
                }
            });
            let mut expected = 1;
            while expected <= 3 {
                let seen = consumer.peek(|slot| slot.as_deref().copied());
                match consumer.pop() {
                    Some(value) => {
                        assert_eq!(*value, expected);
                        assert!(seen.is_none_or(|seen| seen == Some(expected)));
                        expected += 1;
                    }
                    None => thread::yield_now(),
                }
            }
            thread.join().unwrap();
            assert!(consumer.pop().is_none());
        });
    }};
}

#[test]
fn the_ring_hands_over_in_order() {
    ring_model!(link::spsc);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_hand_over_is_found() {
    ring_model!(careless_producer::spsc);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_take_over_is_found() {
    ring_model!(careless_consumer::spsc);
}

/// A snapshot that notes when another thread than its maker's drops it.
struct Snapshot {
    generation: u64,
    owner: ThreadId,
    strays: Strays,
}

/// Drops by a thread that must not. Noted, not asserted on the spot: a panic in a drop aborts.
type Strays = std::sync::Arc<std::sync::atomic::AtomicU64>;

fn check_no_strays(strays: &Strays) {
    assert_eq!(strays.load(SeqCst), 0, "snapshots dropped by the worker");
}

impl Snapshot {
    fn new(generation: u64, strays: &Strays) -> Arc<Self> {
        Arc::new(Self {
            generation,
            owner: thread::current().id(),
            strays: strays.clone(),
        })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !std::thread::panicking() && thread::current().id() != self.owner {
            self.strays.fetch_add(1, SeqCst);
        }
    }
}

const MEMBER: WordTarget = WordTarget::Members(3);
const SMALLEST: DeliverySlots = DeliverySlots {
    snapshots: 1,
    words: 1,
    retired: 1,
};

fn publish(deliverer: &mut Deliverer<Snapshot>, generation: u64, strays: &Strays) {
    drop(deliverer.publish(Snapshot::new(generation, strays), generation, Ticks(generation)));
}

/// Turns of the worker; the value of [`MEMBER`] after them.
fn work(adopter: &mut Adopter<Snapshot>, turns: usize, mut known: u64) -> u64 {
    for _ in 0..turns {
        let before = adopter.generation();
        adopter.take(1, |word| {
            assert!(word.value[0] > known, "{} after {known}", word.value[0]);
            known = word.value[0];
        });
        let generation = adopter.current().map_or(0, |snapshot| snapshot.generation);
        assert_eq!(generation, adopter.generation());
        assert!(generation >= before);
        assert!(
            known >= generation.min(2),
            "snapshot {generation} before its word"
        );
        thread::yield_now();
    }
    known
}

/// Control publishes `snapshots` while the worker does `turns`. Word n is
/// set before snapshot n, for n = 1 and 2. Then both come to rest, one after the other.
fn delivery_model(preemptions: usize, slots: DeliverySlots, snapshots: u64, turns: usize) {
    explore(preemptions, move || {
        let strays = Strays::default();
        let (mut adopter, mut deliverer) = delivery::<Snapshot>(slots);
        let worker = thread::spawn(move || {
            let known = work(&mut adopter, turns, 0);
            (adopter, known)
        });
        for generation in 1..=snapshots {
            if generation <= 2 {
                deliverer.set_word(MEMBER, [generation; 6], Ticks(generation));
            }
            publish(&mut deliverer, generation, &strays);
            deliverer.pump(drop);
        }
        let (mut adopter, mut known) = worker.join().unwrap();
        for _ in 0..=snapshots {
            deliverer.pump(drop);
            known = work(&mut adopter, 2, known);
        }
        deliverer.pump(drop);
        let ledger = Ledger {
            control: deliverer.counts(),
            worker: adopter.counts(),
        };
        assert_eq!(ledger.check_at_rest(), Ok(()));
        assert_eq!((adopter.generation(), known), (snapshots, snapshots.min(2)));
        check_no_strays(&strays);
    });
}

#[test]
fn snapshots_come_back_and_words_keep_their_place() {
    delivery_model(4, SMALLEST, 3, 3);
}

#[test]
fn snapshots_wait_while_the_holder_is_full() {
    // More on their way than can come back: 1 retired, 2 held, 3 in use, 4 waits.
    delivery_model(
        4,
        DeliverySlots {
            snapshots: 4,
            ..SMALLEST
        },
        4,
        4,
    );
}

/// As [`Adopter::take`], with one fault: it adopts although the holder may be full, and so drops what is in it.
fn careless_take(ends: &mut CarelessAdopter) {
    if let Some(old) = ends.holder.take() {
        ends.holder = ends.up.push(old).err();
    }
    if let Some(next) = ends.down.pop()
        && let Some(old) = ends.current.replace(next)
        && let Err(old) = ends.up.push(old)
    {
        ends.holder = Some(old);
    }
}

struct CarelessAdopter {
    current: Option<Arc<Snapshot>>,
    holder: Option<Arc<Snapshot>>,
    down: link::spsc::Consumer<Option<Arc<Snapshot>>>,
    up: link::spsc::Producer<Option<Arc<Snapshot>>>,
}

#[test]
#[should_panic(expected = "dropped by the worker")]
fn a_broken_holder_rule_is_found() {
    explore(2, || {
        let strays = Strays::default();
        let (mut down_in, down) = link::spsc::ring(4);
        let (up, mut up_out) = link::spsc::ring(1);
        let worker = thread::spawn(move || {
            let mut ends = CarelessAdopter {
                current: None,
                holder: None,
                down,
                up,
            };
            for _ in 0..4 {
                careless_take(&mut ends);
                thread::yield_now();
            }
            ends
        });
        for generation in 1..=4 {
            assert!(down_in.push(Snapshot::new(generation, &strays)).is_ok());
            drop(up_out.pop());
        }
        drop(worker.join().unwrap());
        check_no_strays(&strays);
    });
}

/// The model would prove nothing if it never came where it matters: a snapshot in the holder, a newer one
/// behind it, and snapshots and words superseded.
#[test]
fn the_model_reaches_the_states_that_matter() {
    static SEEN: std::sync::Mutex<[u64; 3]> = std::sync::Mutex::new([0; 3]);
    explore(2, || {
        let strays = Strays::default();
        let (mut adopter, mut deliverer) = delivery::<Snapshot>(SMALLEST);
        let worker = thread::spawn(move || {
            let mut held_back = false;
            for _ in 0..4 {
                adopter.take(1, |_| ());
                let counts = adopter.counts();
                held_back |= counts.adopted == counts.retired + 2;
                thread::yield_now();
            }
            (adopter, held_back)
        });
        for generation in 1..=4 {
            deliverer.set_word(MEMBER, [generation; 6], Ticks(0));
            publish(&mut deliverer, generation, &strays);
            // A snapshot that is superseded at once leaves the worker time for the others.
            deliverer.pump(drop);
        }
        let (_adopter, held_back) = worker.join().unwrap();
        let counts = deliverer.counts();
        let here = [u64::from(held_back), counts.superseded, counts.words_superseded];
        SEEN.lock()
            .unwrap()
            .iter_mut()
            .zip(here)
            .for_each(|(sum, n)| *sum += n);
    });
    let seen = *SEEN.lock().unwrap();
    assert!(
        seen.iter().all(|&n| n > 0),
        "held back, superseded, words superseded: {seen:?}"
    );
}
