//! The hybrid rule on flows written out by hand. Times in microseconds; expected values are their differences.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::super::{Moment, Span};
use super::{Datagram, Doubts, Hidden, Kind, Rules, Sample};

const ACK: u16 = 40;
const REQUEST: u16 = 230;

struct Flow {
    hidden: Hidden,
    got: Vec<Sample>,
    sequence: Option<u32>,
}

impl Flow {
    fn new() -> Self {
        Self {
            hidden: Hidden::new(),
            got: Vec::new(),
            sequence: None,
        }
    }

    /// A packet of `len` bytes, near the end of the clock's range.
    fn packet(&mut self, micros: u32, len: u16) -> bool {
        self.sequence = self.sequence.map(|n| n.wrapping_add(1));
        self.numbered(micros, len, self.sequence)
    }

    fn numbered(&mut self, micros: u32, len: u16, sequence: Option<u32>) -> bool {
        let packet = Datagram {
            len,
            ack_max: Datagram::ACK_MAX_QUIC,
            sequence,
        };
        let at = Moment(u32::MAX - 40_000).plus(Span::micros(micros));
        let got = &mut self.got;
        self.hidden
            .packet(at, packet, &Rules::default(), |sample| got.push(sample))
    }

    fn micros(&self, kind: Kind) -> Vec<u32> {
        self.got
            .iter()
            .filter(|s| s.kind == kind)
            .map(|s| s.value.0 / Span::PER_MICRO)
            .collect()
    }
}

#[test]
fn one_request_at_a_time_without_acknowledgments() {
    let mut flow = Flow::new();
    let (mut at, mut want) = (0, Vec::new());
    for n in 0..50 {
        assert_eq!(flow.packet(at, REQUEST), n > 0);
        want.push(2000 + 37 * n);
        at += 2000 + 37 * n;
    }
    want.pop();
    assert_eq!(flow.micros(Kind::Response), want);
    assert!(flow.micros(Kind::Answer).is_empty(), "nothing acknowledged");
}

#[test]
fn bursts_with_acknowledgments_and_the_second_figure() {
    let mut flow = Flow::new();
    let (mut at, mut bursts, mut answers) = (0, Vec::new(), Vec::new());
    for n in 0..40 {
        for request in 0..4 {
            flow.packet(at + 8 * request, REQUEST);
        }
        // Acknowledgments while the answers come, the last 300 us before the next burst.
        let length = 3000 + 100 * (n % 7);
        for acknowledgment in [1500, 1900, length - 300] {
            flow.packet(at + acknowledgment, ACK);
        }
        bursts.push(length);
        answers.push(length - 300);
        at += length;
    }
    bursts.pop();
    answers.pop();
    assert_eq!(flow.micros(Kind::Response), bursts);
    assert_eq!(flow.micros(Kind::Answer), answers);
    let young = flow
        .got
        .iter()
        .filter(|s| s.kind == Kind::Response && s.doubts.has(Doubts::YOUNG))
        .count();
    assert_eq!(young, 15);
    assert!(
        flow.got
            .iter()
            .all(|s| s.doubts.has(Doubts::TIMING) && !s.doubts.has(Doubts::SHARED))
    );
}

#[test]
fn an_acknowledgment_right_behind_a_burst_is_of_the_one_before() {
    let mut flow = Flow::new();
    for n in 0..30 {
        flow.packet(5000 * n, REQUEST);
        flow.packet(5000 * n + 30, ACK);
        flow.packet(5000 * n + 60, REQUEST);
    }
    let responses = flow.micros(Kind::Response);
    assert!(
        responses.iter().filter(|&&r| r == 5000).count() >= 27,
        "{responses:?}"
    );
}

#[test]
fn small_requests_are_told_once_nothing_larger_comes() {
    let mut flow = Flow::new();
    for n in 0..60 {
        flow.packet(3000 * n, 30);
    }
    let responses = flow.micros(Kind::Response);
    assert_eq!(responses.len(), 60 - 16);
    assert!(responses.iter().all(|&r| r == 3000));
}

#[test]
fn the_parts_of_a_long_message_are_one_request() {
    let mut flow = Flow::new();
    let mut at = 0;
    for _ in 0..40 {
        for part in 0..14 {
            flow.packet(at + 150 * part, 1200);
        }
        flow.packet(at + 150 * 14, 700);
        at += 9000;
        flow.packet(at - 200, ACK);
    }
    let responses = flow.micros(Kind::Response);
    assert!(responses.iter().skip(4).all(|&r| r == 9000), "{responses:?}");
    assert!(responses.len() >= 37);
}

#[test]
fn packets_that_were_overtaken_are_passed_over() {
    let mut flow = Flow::new();
    flow.sequence = Some(u32::MAX - 10);
    for n in 0..40 {
        flow.packet(4000 * n, REQUEST);
    }
    let before = flow.got.len();
    let late = flow.sequence.map(|n| n.wrapping_sub(1));
    assert!(!flow.numbered(4000 * 40 - 10, REQUEST, late));
    flow.packet(4000 * 40, REQUEST);
    assert_eq!(flow.got.len(), before + 1);
    assert!(flow.micros(Kind::Response).iter().all(|&r| r == 4000));
}

#[test]
fn a_pause_is_no_answer() {
    let mut flow = Flow::new();
    for at in [0, 2000, 4000, 1_004_000, 1_006_000] {
        flow.packet(at, REQUEST);
    }
    assert_eq!(flow.micros(Kind::Response), [2000, 2000, 2000]);
    // What was acknowledged before it is.
    flow.packet(1_007_500, ACK);
    flow.packet(3_000_000, REQUEST);
    assert_eq!(
        (flow.micros(Kind::Response).len(), flow.micros(Kind::Answer)),
        (3, vec![1500])
    );
}

#[test]
fn several_connections_behind_one_key_are_marked() {
    // Four clients in a tunnel, one request each at a time, answered in 1 to 5 ms by a plain generator.
    let (mut flow, mut state) = (Flow::new(), 1u32);
    let mut next = [0, 300, 800, 1500];
    for _ in 0..2000 {
        let first = (0..4).min_by_key(|&client| next[client]).unwrap();
        flow.packet(next[first], REQUEST);
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next[first] += 1000 + (state >> 8) % 4000;
    }
    let late = &flow.got[flow.got.len() / 4..];
    let shared = late.iter().filter(|s| s.doubts.has(Doubts::SHARED)).count();
    assert!(shared * 10 > late.len() * 8, "{shared} of {}", late.len());
    // One client whose answers vary by a half is not.
    let mut flow = Flow::new();
    let mut at = 0;
    for n in 0..400 {
        at += 3000 + 1500 * (n * 7 % 11) / 11;
        flow.packet(at, REQUEST);
    }
    assert!(flow.got.iter().all(|s| !s.doubts.has(Doubts::SHARED)));
}

/// Whatever comes, nothing overflows and no sample is longer than the cut-off.
#[test]
fn any_packets_are_taken() {
    use proptest::prelude::*;
    let step = prop_oneof![3 => 0u32..5000, 1 => any::<u32>()];
    let steps = proptest::collection::vec((step, any::<u16>(), any::<Option<u32>>()), 0..400);
    proptest!(|(steps in steps)| {
        let (mut hidden, mut at, rules) = (Hidden::new(), Moment(0), Rules::default());
        for (step, len, sequence) in steps {
            at = at.plus(Span(step));
            let mut longest = Span(0);
            let packet = Datagram { len, ack_max: Datagram::ACK_MAX_TUNNEL, sequence };
            hidden.packet(at, packet, &rules, |s| longest = longest.max(s.value));
            prop_assert!(longest < rules.cutoff);
        }
    });
}
