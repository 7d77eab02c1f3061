//! The short ways beside the long ones: what is read in one look beside what is read step by step, and whole bursts beside frame by
//! frame.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::sight::{self, Reading, Sight};
use super::{FlowLatency, FlowLimits, Tables};
use crate::arch::{TickRate, Ticks};
use crate::counters::{Counter, Counters};
use crate::flow::{Hasher, MomentClock, Span};
use crate::io::memory::{MemoryConfig, MemoryPort};
use crate::io::{BURST_MAX, Buffer, QueuePair};
use crate::link::LatencySample;
use crate::link::samples::sample_ring;
use crate::stages::testkit::{Packet, SERVICE_V4, SERVICE_V6, udp, window_of};
use crate::tables::Classes;
use crate::tables::servers::{Server, Servers, Watching};
use proptest::prelude::*;

const RATE: u64 = 1_000_000_000;

fn tcp(port: u16, sequence: u32, acknowledgment: u32, words: u8, flags: u8, payload: usize) -> Vec<u8> {
    let mut bytes = [port.to_be_bytes(), 443u16.to_be_bytes()].concat();
    bytes.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
    bytes.extend([words << 4, flags, 0x20, 0, 0, 0, 0, 0]);
    bytes.resize(20 + usize::from(words.saturating_sub(5)) * 4 + payload, 0x11);
    bytes
}

fn base(v6: bool) -> Packet {
    if v6 {
        Packet::query_v6()
    } else {
        Packet::query_v4()
    }
}

fn seen(frame: &[u8], short: bool) -> Sight {
    let (window, len) = window_of(frame);
    let by = Reading {
        mirror: None,
        offline: false,
        watching: &Watching::default(),
        hasher: &Hasher::new(11),
    };
    // What is left of the packet before must not show.
    let mut sight = dirty();
    match short {
        true => sight::read(&mut sight, &window, len, by.hasher, &by),
        false => sight = sight::read_step_by_step(&window, len, &by),
    }
    sight
}

#[test]
fn one_look_tells_what_all_steps_tell_with_any_two_bits_changed() {
    let segment = |words| (6, tcp(40_000, 1000, 2000, words, 0x18, 30));
    let quic = (17, udp(40_000, 443, &[0x41; 30]));
    for v6 in [false, true] {
        for (protocol, l4) in [segment(5), segment(8), quic.clone()] {
            let packet = Packet {
                fill_checksum: false,
                ..base(v6).with(protocol, l4)
            };
            let mut frame = packet.build();
            assert_ne!(seen(&frame, true).seen(), sight::Seen::Nothing);
            let bits = 8 * frame.len().min(80);
            for one in 8 * 12..bits {
                frame[one / 8] ^= 1 << (one % 8);
                for other in one + 1..bits {
                    frame[other / 8] ^= 1 << (other % 8);
                    assert_eq!(seen(&frame, true), seen(&frame, false), "bits {one} and {other}");
                    frame[other / 8] ^= 1 << (other % 8);
                }
                assert_eq!(seen(&frame, true), seen(&frame, false), "bit {one}");
                frame[one / 8] ^= 1 << (one % 8);
            }
        }
    }
}

/// The sight of another packet: ESP over IPv6.
fn dirty() -> Sight {
    let (window, len) = window_of(&base(true).with(50, vec![0x77; 60]).build());
    let by = Reading {
        mirror: None,
        offline: false,
        watching: &Watching::default(),
        hasher: &Hasher::new(12),
    };
    sight::read_step_by_step(&window, len, &by)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// TCP and UDP over both families, whole, cut, and with any byte of the headers changed.
    #[test]
    fn one_look_tells_what_all_steps_tell(
        v6: bool,
        is_udp: bool,
        (sequence, acknowledgment) in any::<(u32, u32)>(),
        words in prop_oneof![4 => Just(5u8), 2 => Just(8u8), 1 => 0u8..16],
        flags in prop_oneof![3 => Just(0x10u8), 3 => Just(0x18u8), 1 => any::<u8>()],
        payload in 0usize..120,
        changes in proptest::collection::vec((12usize..80, any::<u8>()), 0..3),
        cut in prop_oneof![3 => Just(2048usize), 1 => 0usize..160],
    ) {
        let l4 = match is_udp {
            true => udp(40_000, 443, &vec![0x41; payload]),
            false => tcp(40_000, sequence, acknowledgment, words, flags, payload),
        };
        let packet = Packet { fill_checksum: false, ..base(v6).with(if is_udp { 17 } else { 6 }, l4) };
        let mut frame = packet.build();
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(cut);
        prop_assert_eq!(seen(&frame, true), seen(&frame, false));
    }
}

/// A step of one of a few flows.
#[derive(Clone, Copy, Debug)]
struct Step {
    flow: u16,
    kind: u8,
    moves: u8,
}

/// The stage over both ways at once.
struct Both {
    bursts: FlowLatency,
    frames: FlowLatency,
    tables: (Classes, Servers),
    counters: Counters,
}

impl Both {
    fn new() -> Self {
        let limits = FlowLimits {
            flows: 1000,
            idle: Span::millis(60_000),
        };
        let stage = || FlowLatency::new(limits, 9, TickRate::from_hz(RATE)).unwrap();
        let server = |address: std::net::IpAddr, len| Server {
            address,
            len,
            site: None,
        };
        let list = vec![server(SERVICE_V4.into(), 32), server(SERVICE_V6.into(), 128)];
        let classes = Classes::build(vec![], vec![], 1).unwrap();
        Self {
            bursts: stage(),
            frames: stage(),
            tables: (classes, Servers::build(list, Watching::default()).unwrap()),
            counters: Counters::default(),
        }
    }

    /// What both tell of a burst, by flow.
    fn burst(&mut self, now: u64, frames: &[Vec<u8>]) -> [Vec<LatencySample>; 2] {
        let tables = Tables {
            classes: &self.tables.0,
            servers: &self.tables.1,
        };
        let (mut port, _wire) = MemoryPort::new(MemoryConfig::default());
        let (mut sender, mut receiver) = sample_ring(4 * BURST_MAX);
        let mut buffers = Vec::new();
        for frame in frames {
            let mut buffer = port.alloc().unwrap();
            buffer.window()[..frame.len()].copy_from_slice(frame);
            buffer.set_len(frame.len());
            buffers.push(buffer);
        }
        let counters = &mut self.counters;
        self.bursts
            .burst(&mut buffers, Ticks(now), tables, None, &mut sender, counters);
        let mut one: Vec<_> = std::iter::from_fn(|| receiver.receive()).collect();
        let (mut other, moment) = (
            Vec::new(),
            MomentClock::new(TickRate::from_hz(RATE)).at(Ticks(now)),
        );
        for frame in frames {
            let (window, len) = window_of(frame);
            self.frames
                .frame(&window, len, moment, tables, |sample| other.push(sample));
        }
        // Packets of flows that are new in the burst come last, so flows are told in another order, each in its own.
        one.sort_by_key(|sample| sample.flow);
        other.sort_by_key(|sample| sample.flow);
        [one, other]
    }
}

/// Frames of steps; sequence numbers go on by flow.
fn frames(steps: &[Step], state: &mut [(u32, u32)]) -> Vec<Vec<u8>> {
    let of = |step: &Step| {
        let Step { flow, kind, moves } = *step;
        let numbers = &mut state[usize::from(flow)];
        let (v6, port) = (flow % 3 == 1, 40_000 + flow);
        let (payload, flags) = match kind {
            0 => (0, 0x02),
            1 => (0, 0x10),
            2 => (0, 0x11),
            3 => (0, 0x04),
            4 => (1300, 0x10),
            5 => (20, 0x19),
            _ => (100, 0x18),
        };
        if flow % 5 == 4 {
            let size = if kind < 4 { 40 } else { 300 };
            return base(v6).with(17, udp(port, 443, &vec![0x41; size])).build();
        }
        // Now and then a repeat.
        let sequence = if moves == 7 {
            numbers.0.wrapping_sub(100)
        } else {
            numbers.0
        };
        if moves != 7 {
            numbers.0 = numbers.0.wrapping_add(payload);
        }
        numbers.1 = numbers.1.wrapping_add(u32::from(moves % 3) * 1500);
        let segment = tcp(port, sequence, numbers.1, 5, flags, payload as usize);
        base(v6).with(6, segment).build()
    };
    steps.iter().map(of).collect()
}

proptest! {
    #[test]
    fn bursts_tell_what_frames_tell(
        turns in proptest::collection::vec(
            (1u64..3_000_000, proptest::collection::vec((0u16..8, 0u8..12, 0u8..8), 1..=BURST_MAX)),
            1..20,
        ),
    ) {
        let mut both = Both::new();
        let mut state = vec![(u32::MAX - 300, u32::MAX - 5000); 8];
        let mut now = RATE;
        for (passed, steps) in turns {
            now += passed;
            let steps: Vec<Step> = steps
                .into_iter()
                .map(|(flow, kind, moves)| Step { flow, kind, moves })
                .collect();
            let [one, other] = both.burst(now, &frames(&steps, &mut state));
            prop_assert_eq!(one, other);
            prop_assert_eq!(both.bursts.table().len(), both.frames.table().len());
        }
        let packets = both.counters.get(Counter::FlowPackets) + both.counters.get(Counter::FlowUnmeasured);
        prop_assert!(packets > 0);
    }
}
