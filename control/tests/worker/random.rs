//! Random mixes of everything: good frames of each kind, damaged ones, random bytes, in bursts of any size on two
//! ports, with transmit limits, snapshot swaps, words and injections in between. The laws hold at every
//! step, what is sent is well formed, and nothing leaks.

use crate::frames;
use crate::lab::{Lab, example};
use crate::no_alloc::every_kind;
use dataplane::arch::Ticks;
use dataplane::counters::Counter;
use dataplane::io::Shape;
use dataplane::io::memory::MemoryConfig;
use dataplane::link::{DeliverySlots, LinkSlots, WordTarget};
use dataplane::tables::words::site_word;
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

static KINDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(every_kind);

#[derive(Clone, Debug)]
enum Step {
    /// A frame of the list, its bytes changed at these places.
    Frame(usize, Vec<(usize, u8)>, bool),
    /// Any bytes behind an Ethernet header for us.
    Bytes(Vec<u8>, bool),
    Shaped(bool),
    Limit(Option<usize>),
    Publish(bool),
    Collect,
    Word(u32, u64),
    Inject(u8, usize),
    Punts,
    Poll,
    Housekeep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(i, port)| Step::Frame(i.index(KINDS.len()), vec![], port)),
        6 => (any::<prop::sample::Index>(), prop::collection::vec((0usize..120, any::<u8>()), 1..4), any::<bool>())
            .prop_map(|(i, damage, port)| Step::Frame(i.index(KINDS.len()), damage, port)),
        2 => (prop::collection::vec(any::<u8>(), 0..200), any::<bool>()).prop_map(|(b, p)| Step::Bytes(b, p)),
        1 => any::<bool>().prop_map(Step::Shaped),
        1 => prop::option::of(0usize..8).prop_map(Step::Limit),
        1 => any::<bool>().prop_map(Step::Publish),
        1 => Just(Step::Collect),
        1 => (0u32..3, any::<u64>()).prop_map(|(at, bits)| Step::Word(at, bits)),
        1 => (0u8..3, 0usize..300).prop_map(|(port, len)| Step::Inject(port, len)),
        1 => Just(Step::Punts),
        4 => Just(Step::Poll),
        3 => Just(Step::Housekeep),
    ]
}

/// Takes what was sent. Frames of the list that were not damaged in their link layer come back to the client.
fn check_sent(lab: &Lab) {
    for wire in &lab.wires {
        for frame in wire.take_all() {
            if frame.first() == Some(&0xee) {
                continue;
            }
            // Damage may have changed who asked; the rest must be as if nobody had.
            let mut frame = frame;
            frame[..6].copy_from_slice(&frames::CLIENT_MAC);
            if let frames::Kind::Udp(message) = frames::dissect(&frame) {
                assert!(message.len() <= 1232);
                frames::addresses(&message);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn laws_hold_whatever_comes(steps in prop::collection::vec(step(), 1..400), seed: u8) {
        let memory = MemoryConfig {
            buffers: 64,
            frames: 64,
            stale: Some(seed),
            checksum_offload: seed & 1 == 1,
            ..MemoryConfig::default()
        };
        let slots = LinkSlots {
            delivery: DeliverySlots { snapshots: 1, words: 4, retired: 1 },
            punts: 4,
            injections: 4,
            samples: 4,
            clients: 4,
        };
        let mut lab = Lab::empty(2, memory, slots);
        let pair = [lab.compile(example(192)), lab.compile(example(10))];
        let (mut generation, mut injected) = (1000, 0);
        let mut taken_in = 0u64;
        for step in steps {
            match step {
                Step::Frame(at, damage, port) => {
                    let mut frame = KINDS[at].clone();
                    for (at, value) in damage {
                        if let Some(byte) = frame.get_mut(at) {
                            *byte = value;
                        }
                    }
                    taken_in += u64::from(lab.wires[usize::from(port)].inject(&frame));
                }
                Step::Bytes(bytes, port) => {
                    let frame = [&frames::OUR_MAC[..], &frames::CLIENT_MAC, &bytes].concat();
                    taken_in += u64::from(lab.wires[usize::from(port)].inject(&frame));
                }
                Step::Shaped(split) => {
                    let shape = if split { Shape::MultiSegment } else { Shape::Oversized };
                    taken_in += u64::from(lab.wires[0].inject_shaped(&[1; 2500], shape));
                }
                Step::Limit(limit) => lab.wires[usize::from(seed & 2 != 0)].limit_tx(limit),
                Step::Publish(second) => {
                    generation += 1;
                    let mut next = (*pair[usize::from(second)]).clone();
                    next.generation = generation;
                    lab.send(Arc::new(next));
                }
                Step::Collect => {
                    lab.control.delivery.pump(drop);
                }
                Step::Word(0, bits) => {
                    lab.control.delivery.set_word(WordTarget::Site(0), site_word(bits as u16 % 257), Ticks(generation));
                }
                Step::Word(at, bits) => {
                    let target = WordTarget::Members(at - 1);
                    // Any shares, also of members that are down.
                    let value = [bits, bits >> 3, bits ^ bits >> 1, bits >> 7, !bits, bits << 2];
                    lab.control.delivery.set_word(target, value, Ticks(generation));
                }
                Step::Inject(port, len) => {
                    injected += u64::from(lab.control.injections.send(port, &vec![0xee; len.max(1)]).is_ok());
                }
                Step::Punts => while lab.control.punts.receive(|_, _| ()).is_some() {},
                Step::Poll => {
                    lab.poll();
                    lab.check_laws();
                    check_sent(&lab);
                }
                Step::Housekeep => {
                    lab.housekeep();
                    lab.published.read().check_laws().unwrap();
                }
            }
            let ledger = lab.control.ledger();
            prop_assert!(ledger.control.published >= ledger.worker.adopted + ledger.control.superseded);
            prop_assert!(ledger.worker.adopted <= ledger.worker.retired + 2);
        }
        for wire in &lab.wires {
            wire.limit_tx(None);
        }
        while lab.poll() > 0 {
            check_sent(&lab);
        }
        // Published = adopted + superseded, adopted = retired + 1: checked by the ledger, at rest.
        lab.settle();
        check_sent(&lab);
        lab.check();
        let counters = lab.counters();
        prop_assert_eq!(counters.get(Counter::Received), taken_in);
        prop_assert_eq!(counters.get(Counter::Injected) + counters.get(Counter::InjectionsDropped), injected);
        let worker = lab.control.ledger().worker;
        prop_assert_eq!(counters.get(Counter::SnapshotsAdopted), worker.adopted);
        prop_assert_eq!(counters.get(Counter::SnapshotsRetired), worker.retired);
        prop_assert_eq!(counters.get(Counter::WordsTaken), worker.words_taken);
        drop(pair);
    }
}
