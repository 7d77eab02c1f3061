//! What holds whenever the clock and the numbers of a connection begin, and for each class and site by itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::Taken;
use super::tests::{Flows, tcp};
use crate::flow::estimate::{Kind, Sample};
use crate::flow::{Moment, Span};
use crate::link::Cell;
use crate::stages::testkit::{CLIENT_V4, Ip, Packet, SERVICE_V4, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// From a client outside of class 3.
fn stranger(l4: Vec<u8>) -> Packet {
    let ip = Ip::V4 {
        src: [203, 0, 113, CLIENT_V4[3]],
        dst: SERVICE_V4,
        flags_fragment: 0,
        options: vec![],
    };
    Packet {
        ip,
        ..Packet::query_v4().with(6, l4)
    }
}

#[test]
fn what_is_sent_again_is_counted_for_its_class_and_server() {
    let mut flows = Flows::new();
    let of: [fn(Vec<u8>) -> Packet; 3] = [
        |l4| Packet::query_v4().with(6, l4),
        stranger,
        |l4| Packet::query_v6().with(6, l4),
    ];
    let mut now = Moment(5);
    for (packet, again) in of.into_iter().zip([2, 1, 3]) {
        for n in 0..5 {
            let request = packet(tcp(1000 + 100 * n, 5000 + 900 * n, 0x18, 5, 100));
            // The second request is sent again that often, after the wait of a sender that hears nothing.
            let times = if n == 1 { 1 + again } else { 1 };
            for _ in 0..times {
                now = now.plus(Span::millis(200));
                flows.frame_at(now, &request);
            }
        }
    }
    let mut counted = BTreeMap::new();
    for sample in flows.got {
        if sample.sample.kind == Kind::Retransmitted {
            *counted.entry(sample.cell).or_insert(0) += sample.sample.value.0;
        }
    }
    let cell = |class, server| Cell { class, server };
    let expected = [(cell(3, 1), 2), (cell(0, 1), 1), (cell(0, 2), 3)];
    assert_eq!(counted, BTreeMap::from(expected));
}

/// A step of one of a few flows: which, what it sends, how far its numbers move, and after how long.
type Step = (u8, u8, u8, u32);

/// What steps tell when the clock begins at `clock`, and sequence and acknowledgment numbers at `numbers`.
fn told(steps: &[Step], clock: u32, numbers: [u32; 2]) -> (Vec<(u32, Sample)>, Vec<Taken>, u64) {
    let (mut flows, mut state) = (Flows::new(), [numbers; 4]);
    let mut taken = Vec::new();
    let mut now = Moment(clock);
    flows.stage.age(now);
    for &(flow, kind, moves, passed) in steps {
        now = now.plus(Span(passed));
        flows.stage.age(now);
        let [sequence, acknowledgment] = &mut state[usize::from(flow)];
        *acknowledgment = acknowledgment.wrapping_add(u32::from(moves % 3) * 1500);
        let again = moves == 7;
        let (payload, flags) = match kind {
            0 => (0, 0x02),
            1 | 2 => (0, 0x10),
            3 => (0, 0x11),
            4 => (1300, 0x10),
            5 => (40, 0x18),
            _ => (100, 0x18),
        };
        let first = sequence.wrapping_sub(if again { payload } else { 0 });
        let mut l4 = tcp(first, *acknowledgment, flags, 5, payload as usize);
        *sequence = first.wrapping_add(payload);
        l4[1] = flow;
        let packet = match flow {
            3 => Packet::query_v4().with(17, udp(40_000, 443, &vec![0x41; 40 + payload as usize])),
            _ => Packet::query_v4().with(6, l4),
        };
        taken.push(flows.frame_at(now, &packet));
    }
    let got = flows.got.iter();
    let samples = got.map(|s| (s.at.0.wrapping_sub(clock), s.sample)).collect();
    (samples, taken, flows.stage.table().len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Clocks and numbers that wrap under way, or did before, change nothing: neither what is told nor what ages.
    #[test]
    fn beginnings_do_not_matter(
        steps in proptest::collection::vec(
            (0u8..4, 0u8..10, 0u8..8, prop_oneof![
                20 => 0u32..40_000,
                // Up to 90 s: flows age meanwhile.
                1 => 0u32..360_000_000,
            ]),
            1..150,
        ),
        clock: u32,
        numbers: [u32; 2],
    ) {
        // In the middle of either half nothing of it wraps for long, except the clock in runs of many pauses.
        let plain = told(&steps, 1, [1 << 20; 2]);
        prop_assert_eq!(&told(&steps, clock, numbers), &plain);
        // Across the ends at once.
        let near = [u32::MAX - 700, u32::MAX - 2000];
        prop_assert_eq!(&told(&steps, u32::MAX - 60_000, near), &plain);
    }
}
