//! Snapshots swapped under load: every query is answered, and wholly by one configuration.

use crate::frames::{self, Kind};
use crate::lab::{Lab, example};
use domain::base::iana::Rtype;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first byte of all addresses of a reply, which must be one: that of its configuration.
fn generation(frame: &[u8], records: usize) -> u8 {
    let Kind::Udp(message) = frames::dissect(frame) else {
        panic!()
    };
    let addresses = frames::addresses(&message);
    assert_eq!(addresses.len(), records);
    let first = addresses[0][0];
    assert!(addresses.iter().all(|a| a[0] == first), "{addresses:?}");
    first
}

#[test]
fn a_thousand_swaps_lose_no_query_and_mix_no_answer() {
    const SWAPS: u64 = 1000;
    let mut lab = Lab::new(example(192));
    let pair = [lab.compile(example(10)), lab.compile(example(192))];
    let mut queries = Vec::new();
    let mut records = Vec::new();
    for (name, count) in [
        ("www.example.com.", 2),
        ("alias.example.com.", 2),
        ("vod.example.com.", 2),
        ("tovod.example.com.", 2),
        ("some.wild.example.com.", 1),
        ("big.example.com.", 60),
    ] {
        for v6 in [false, true] {
            queries.push(frames::query(
                v6,
                usize::from(v6),
                &frames::message(name, Rtype::A, Some(1232)),
            ));
            records.push(count);
        }
    }
    let (mut sent, mut seen) = (0u64, [0u64; 2]);
    for swap in 0..SWAPS {
        let mut next = (*pair[swap as usize % 2]).clone();
        next.generation = 1000 + swap;
        lab.send(Arc::new(next));
        // Once in the housekeeping turn before the queries, once between their arrival and the poll, once with
        // queries left for the poll after.
        if swap % 3 == 0 {
            lab.housekeep();
        }
        let before = lab.worker.generation();
        for frame in &queries {
            assert!(lab.wires[0].inject(frame));
        }
        if swap % 3 == 1 {
            lab.housekeep();
        }
        let in_use = lab.worker.generation();
        lab.poll();
        lab.housekeep();
        sent += queries.len() as u64;
        let replies = lab.wires[0].take_all();
        assert_eq!(replies.len(), queries.len(), "swap {swap}");
        let want = if in_use < 1000 {
            192
        } else {
            [10, 192][(in_use - 1000) as usize % 2]
        };
        for (reply, &records) in replies.iter().zip(&records) {
            assert_eq!(generation(reply, records), want, "swap {swap} from {before}");
        }
        seen[usize::from(want == 10)] += 1;
        lab.control.delivery.pump(drop);
    }
    lab.settle();
    lab.check();
    let counters = lab.counters();
    use dataplane::counters::Counter::*;
    assert_eq!((counters.get(Received), counters.get(Replied)), (sent, sent));
    assert!(seen[0] > 300 && seen[1] > 300, "{seen:?}");
    let ledger = lab.control.ledger();
    assert_eq!(ledger.worker.adopted, SWAPS + 1);
    assert_eq!(counters.get(SnapshotsAdopted), SWAPS + 1);
    // The worker holds the last one and nothing else: all others came back and were freed. The compiler keeps what it
    // compiled last, the second of the pair.
    assert_eq!(pair.each_ref().map(|s| Arc::strong_count(&s.names)), [1, 3]);
}

/// Sets the flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn swaps_from_another_thread_while_queries_flow() {
    const QUERIES: u64 = 20_000;
    let mut lab = Lab::new(example(192));
    let pair = [lab.compile(example(10)), lab.compile(example(192))];
    let query = frames::query(false, 0, &frames::message("vod.example.com.", Rtype::A, None));
    let (spare, mut control) = {
        let (link, control) = dataplane::link::connect::<dataplane::tables::Snapshot>(
            dataplane::link::LinkSlots::default(),
            dataplane::link::StopFlag::default(),
        );
        (link, std::mem::replace(&mut lab.control, control))
    };
    let done = AtomicBool::new(false);
    let (mut replies, mut seen) = (0, [0u64; 2]);
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut generation = 1000;
            while !done.load(Ordering::Acquire) {
                let mut next = (*pair[generation as usize % 2]).clone();
                next.generation = generation;
                drop(control.delivery.publish(
                    Arc::new(next),
                    generation,
                    dataplane::arch::Ticks(generation),
                ));
                control.delivery.pump(drop);
                generation += 1;
                std::thread::yield_now();
            }
            control
        });
        // Ends the other thread when this one fails, too.
        let ends = Ends(&done);
        while replies < QUERIES {
            for _ in 0..32 {
                assert!(lab.wires[0].inject(&query));
            }
            // Queries wait in the port while a snapshot is adopted, before the burst or in its midst.
            lab.housekeep();
            while lab.poll() > 0 {
                lab.housekeep();
            }
            let sent = lab.wires[0].take_all();
            assert_eq!(sent.len(), 32);
            for reply in sent {
                seen[usize::from(generation(&reply, 2) == 10)] += 1;
                replies += 1;
            }
        }
        drop(ends);
        lab.control = publisher.join().unwrap();
    });
    drop(spare);
    lab.settle();
    lab.check();
    use dataplane::counters::Counter::*;
    assert_eq!(lab.counters().get(Received), replies);
    assert_eq!(lab.counters().get(Replied), replies);
    assert!(lab.counters().get(SnapshotsAdopted) > 1);
}
