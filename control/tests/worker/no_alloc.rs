//! The worker never calls the allocator: not for a packet of any kind, not in housekeeping, not when it adopts
//! a snapshot, takes words or injects.

use crate::frames;
use crate::lab::{Lab, example};
use allocation_counter::measure;
use dataplane::arch::Ticks;
use dataplane::counters::Counter;
use dataplane::io::Shape;
use dataplane::link::WordTarget;
use dataplane::tables::words::site_word;
use domain::base::iana::Rtype;

/// One frame of each kind, for each number of tags and each family.
pub(crate) fn every_kind() -> Vec<Vec<u8>> {
    let mut all = vec![vec![0; 9], frames::query(false, 3, &[0; 12])];
    for tags in 0..=2 {
        all.push(frames::arp(tags, frames::SERVICE_V4));
        all.push(frames::arp(tags, [192, 0, 2, 77]));
        all.push(frames::solicitation(tags));
        for v6 in [false, true] {
            all.push(frames::echo(v6, tags));
            all.push(frames::syn(v6, tags));
            for name in [
                "www.example.com.",
                "vod.example.com.",
                "tovod.example.com.",
                "alias.example.com.",
                "big.example.com.",
                "a.wild.example.com.",
                "none.example.com.",
                "deep.below.none.example.com.",
                "x.child.example.com.",
                "www.old.example.com.",
                "vod.old.old.example.com.",
                "a.wild.old.example.com.",
                "x.child.old.example.com.",
                "none.old.example.com.",
                "a.names.example.com.",
                "example.net.",
                "a-long-label-that-makes-the-name-longer-than.one-block-of-it.example.com.",
            ] {
                for rtype in [Rtype::A, Rtype::AAAA, Rtype::ANY, Rtype::TXT, Rtype::AXFR] {
                    let query = frames::message(name, rtype, Some(1232));
                    all.push(frames::query(v6, tags, &query));
                }
                all.push(frames::query(v6, tags, &frames::message(name, Rtype::A, None)));
            }
            all.push(frames::query(v6, tags, &[0; 7]));
            all.push(frames::query(v6, tags, &[0x5a; 40]));
            all.push(frames::query(v6, tags, &[0; 12]));
        }
    }
    all
}

#[test]
fn the_worker_never_calls_the_allocator() {
    let mut lab = Lab::new(example(192));
    let kinds = every_kind();
    let snapshots = [lab.compile(example(192)), lab.compile(example(10))];
    let (mut kinds_seen, mut adopted) = (0, 0);
    // Generations only rise, so each round hands over a copy with a number of its own.
    for round in 0..6u64 {
        let mut next = (*snapshots[round as usize % 2]).clone();
        next.generation = 100 + round;
        lab.control.delivery.set_word(
            WordTarget::Site(0),
            site_word(256 - round as u16 % 2),
            Ticks(round),
        );
        lab.send(std::sync::Arc::new(next));
        lab.control.injections.send(0, b"injected").unwrap();
        for chunk in kinds.chunks(40) {
            for frame in chunk {
                assert!(lab.wires[0].inject(frame));
            }
            assert!(lab.wires[0].inject_shaped(&[0; 3000], Shape::Oversized));
            let spent = measure(|| {
                while lab.poll() > 0 {
                    lab.housekeep();
                }
                lab.housekeep();
            });
            assert_eq!(
                (spent.count_total, spent.count_current),
                (0, 0),
                "round {round}: {spent:?}"
            );
            kinds_seen += lab.wires[0].take_all().len();
            while lab.control.punts.receive(|_, _| ()).is_some() {}
        }
        adopted += lab.worker.generation().saturating_sub(99 + round);
        lab.control.delivery.pump(drop);
    }
    lab.check();
    let counters = lab.counters();
    for counter in [
        Counter::DnsAnswer,
        Counter::DnsReferral,
        Counter::DnsNodata,
        Counter::DnsNxdomain,
        Counter::DnsRefused,
        Counter::DnsFormerr,
        Counter::DnsTruncated,
        Counter::Punted,
        Counter::Injected,
        Counter::WordsTaken,
        Counter::DropOversized,
        Counter::DropVlanDepth,
    ] {
        assert!(counters.get(counter) > 0, "no {counter:?} in the mix");
    }
    assert!(kinds_seen > kinds.len() && adopted == 6, "{kinds_seen} {adopted}");
    // The measure sees what it should.
    assert_eq!(measure(|| drop(vec![0u8; 100])).count_total, 1);
}
