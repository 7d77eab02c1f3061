//! A worker's side of the link never allocates and never frees, whatever it is sent.
#![allow(unsafe_code)] // A counting allocator.

use dataplane::arch::Ticks;
use dataplane::link::{DeliverySlots, LinkSlots, StopFlag, WordTarget, connect};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts this thread's calls, frees included.
struct Counting;

// SAFETY: passes everything on to the system's allocator; the counter is a plain thread-local cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `act` called the allocator.
fn calls(act: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    act();
    CALLS.get() - before
}

#[test]
fn the_worker_never_calls_the_allocator() {
    assert_eq!(calls(|| drop(Box::new(1))), 2, "the counter counts");
    let delivery = DeliverySlots {
        snapshots: 4,
        words: 64,
        retired: 1,
    };
    let (mut worker, mut control) = connect(
        LinkSlots {
            delivery,
            punts: 4,
            injections: 4,
            samples: 4,
            clients: 4,
        },
        StopFlag::default(),
    );
    let mut held_back = 0;
    for round in 1..=1000_u64 {
        drop(
            control
                .delivery
                .publish(Arc::new(vec![round; 100]), round, Ticks::now()),
        );
        for slot in 0..16 {
            control
                .delivery
                .set_word(WordTarget::Members(slot), [round; 6], Ticks::now());
        }
        control.injections.send(0, b"reply").ok();
        // Collecting only now and then fills the retired ring and with it the holder.
        if round % 5 == 0 {
            while control.punts.receive(|_, _| ()).is_some() {}
        }
        let collected = control.delivery.pump(drop).collected;
        let worker_calls = calls(|| {
            for _ in 0..3 {
                worker.take(32, Ticks::now(), |_, _| ());
            }
            worker.punts.send(0, &[7; 1500]).ok();
            worker.injections.receive(|_, _| ());
        });
        assert_eq!(worker_calls, 0, "in round {round}");
        held_back += u64::from(collected == 0);
    }
    let counts = worker.tables.counts();
    assert!(
        counts.adopted > 500 && counts.retired + 2 >= counts.adopted && held_back > 0,
        "{counts:?}"
    );
}
