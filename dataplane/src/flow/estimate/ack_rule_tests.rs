//! The ACK rule on connections written out by hand. Times in microseconds; expected values are their differences.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::super::{Moment, Span};
use super::{Doubts, Kind, Rules, Sample, Segment, Tcp};
use crate::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_PSH, FLAG_RST, FLAG_SYN};

/// A connection seen from its SYN on, which a test goes on with.
struct Flow {
    tcp: Tcp,
    /// Where time and numbers start, so that both wrap in every test.
    origin: u32,
    got: Vec<Sample>,
}

const ORIGIN: u32 = u32::MAX - 5000;

impl Flow {
    /// Nothing seen yet.
    fn unseen() -> Self {
        Self {
            tcp: Tcp::default(),
            origin: ORIGIN,
            got: Vec::new(),
        }
    }

    /// SYN at 0, its ACK at 400.
    fn open() -> Self {
        let mut flow = Self::unseen();
        flow.segment(0, -1, 0, 0, FLAG_SYN);
        flow.segment(400, 0, 0, 0, FLAG_ACK);
        assert_eq!(flow.take(), [(Kind::Handshake, 400)]);
        flow
    }

    fn segment(&mut self, micros: u32, sequence: i32, acknowledgment: u32, payload: u16, flags: u8) -> bool {
        let segment = Segment {
            sequence: self.origin.wrapping_add_signed(sequence),
            acknowledgment: self.origin.wrapping_add(acknowledgment),
            payload,
            flags,
        };
        let at = Moment(self.origin).plus(Span::micros(micros));
        let got = &mut self.got;
        self.tcp
            .segment(at, segment, &Rules::default(), |sample| got.push(sample))
    }

    /// A request of 100 bytes, the `n`th, that acknowledges that many bytes.
    fn request(&mut self, micros: u32, n: i32, acknowledgment: u32) -> bool {
        self.segment(micros, n * 100, acknowledgment, 100, FLAG_ACK | FLAG_PSH)
    }

    fn ack(&mut self, micros: u32, n: i32, acknowledgment: u32) {
        assert!(!self.segment(micros, n * 100, acknowledgment, 0, FLAG_ACK));
    }

    /// What was told since the last call: kinds and microseconds (or counts).
    fn take(&mut self) -> Vec<(Kind, u32)> {
        let value = |s: Sample| {
            if s.kind == Kind::Retransmitted {
                s.value.0
            } else {
                s.value.0 / Span::PER_MICRO
            }
        };
        self.got.drain(..).map(|s| (s.kind, value(s))).collect()
    }
}

#[test]
fn one_request_at_a_time() {
    let mut flow = Flow::open();
    assert!(!flow.request(500, 0, 0));
    assert!(flow.request(3500, 1, 900));
    assert!(flow.request(4700, 2, 1800));
    assert_eq!(flow.take(), [(Kind::Response, 3000), (Kind::Response, 1200)]);
}

#[test]
fn a_burst_is_one_sample_from_its_first_request() {
    let mut flow = Flow::open();
    for (n, at) in [500, 503, 510, 512].into_iter().enumerate() {
        flow.request(at, n as i32, 0);
    }
    // Answers come one after another, and their acknowledgments pass; the next burst starts behind the last.
    for (n, at) in [2000, 2500, 3100].into_iter().enumerate() {
        flow.ack(at, 4, 900 * (n as u32 + 1));
    }
    for (n, at) in [4000, 4004, 4009, 4011].into_iter().enumerate() {
        flow.request(at, 4 + n as i32, 3600);
    }
    flow.request(9000, 8, 7200);
    assert_eq!(flow.take(), [(Kind::Response, 3500), (Kind::Response, 5000)]);
}

#[test]
fn an_answer_that_arrives_while_a_burst_is_sent_does_not_cut_it() {
    let mut flow = Flow::open();
    // The server has the first two in a cache: their answers are acknowledged by the third and fourth request.
    for (n, (at, ack)) in [(500, 0), (560, 0), (610, 900), (680, 1800)]
        .into_iter()
        .enumerate()
    {
        flow.request(at, n as i32, ack);
    }
    flow.request(4500, 4, 3600);
    assert_eq!(flow.take(), [(Kind::Response, 4000)]);
}

#[test]
fn the_last_pure_acknowledgment_ends_a_long_answer() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    for n in 1..=10 {
        flow.ack(2000 + n * 10, 1, n * 2896);
    }
    // The same number once more is a window update, and no news.
    flow.ack(2300, 1, 28_960);
    flow.request(22_600, 1, 28_960);
    let samples = flow.got.clone();
    assert_eq!(flow.take(), [(Kind::Response, 22_100), (Kind::Answer, 1600)]);
    assert_eq!(samples[0].doubts, Doubts::THINK, "20 ms of think time");
    assert_eq!(samples[1].doubts, Doubts::NONE);
}

#[test]
fn an_answer_whose_end_the_request_acknowledges_has_no_second_figure() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.ack(2000, 1, 2896);
    flow.request(2600, 1, 4344);
    assert_eq!(flow.take(), [(Kind::Response, 2100)]);
    // One segment, acknowledged 40 ms late: no second figure either.
    flow.ack(44_600, 2, 5000);
    flow.request(60_000, 2, 5000);
    assert_eq!(flow.take(), [(Kind::Response, 57_400)]);
}

#[test]
fn repeats_say_nothing_of_time_and_are_counted() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.request(503, 1, 0);
    // The second was lost behind us: it comes again, acknowledging the first answer.
    flow.request(210_000, 1, 900);
    flow.request(212_000, 2, 1800);
    assert_eq!(flow.got.last().unwrap().doubts, Doubts::RETRANSMITTED);
    assert_eq!(flow.take(), [(Kind::Retransmitted, 1), (Kind::Response, 211_500)]);
    // Lost before us: a hole that is filled late. A hole that is filled at once was overtaken.
    flow.request(214_010, 4, 2700);
    assert_eq!(flow.take(), [(Kind::Response, 2010)]);
    flow.request(214_110, 3, 2700);
    assert_eq!(flow.take(), []);
    flow.request(216_000, 6, 3600);
    flow.request(230_000, 5, 3600);
    assert_eq!(flow.take(), [(Kind::Response, 1990), (Kind::Retransmitted, 1)]);
}

#[test]
fn probes_are_no_repeats() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.request(3500, 1, 900);
    flow.take();
    // Keep-alives: the last byte again, or none.
    flow.segment(700_000, 199, 900, 1, FLAG_ACK);
    flow.segment(800_000, 199, 900, 0, FLAG_ACK);
    assert_eq!(flow.take(), []);
}

#[test]
fn a_handshake_with_a_repeated_syn_is_no_measure() {
    let mut flow = Flow::unseen();
    flow.segment(0, -1, 0, 0, FLAG_SYN);
    flow.segment(1_000_000, -1, 0, 0, FLAG_SYN);
    flow.segment(1_020_000, 0, 0, 0, FLAG_ACK);
    assert_eq!(flow.take(), [(Kind::Retransmitted, 1)]);
    // The lost ACK: the first request carries it.
    let mut flow = Flow::unseen();
    flow.segment(0, -1, 0, 0, FLAG_SYN);
    flow.request(21_000, 0, 0);
    assert_eq!(flow.take(), [(Kind::Handshake, 21_000)]);
}

#[test]
fn a_new_connection_on_the_same_ports_starts_anew() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.segment(600, 100, 900, 0, FLAG_ACK | FLAG_FIN);
    flow.segment(650, 101, 900, 0, FLAG_RST);
    flow.origin = 77_000;
    flow.segment(0, -1, 0, 0, FLAG_SYN);
    flow.segment(300, 0, 0, 0, FLAG_ACK);
    flow.request(400, 0, 0);
    flow.request(1400, 1, 50);
    assert_eq!(flow.take(), [(Kind::Handshake, 300), (Kind::Response, 1000)]);
}

#[test]
fn a_connection_of_one_request_is_told_at_its_end() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.ack(7000, 1, 2896);
    flow.ack(7040, 1, 5007);
    for at in [9000, 209_000] {
        flow.segment(at, 100, 5007, 0, FLAG_ACK | FLAG_FIN);
    }
    assert_eq!(flow.take(), [(Kind::Answer, 6540)]);
}

#[test]
fn pauses_and_uploads() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    // Half a second is a slow answer, a second and more a pause; the burst behind it counts again.
    flow.request(500_500, 1, 900);
    flow.request(1_500_600, 2, 1800);
    flow.request(1_503_600, 3, 2700);
    assert_eq!(flow.take(), [(Kind::Response, 500_000), (Kind::Response, 3000)]);
    // An upload of ten full segments is one message; its answer ends it.
    let mut flow = Flow::open();
    for n in 0..10 {
        flow.segment(500 + 40 * n, n as i32 * 1448, 0, 1448, FLAG_ACK);
    }
    flow.segment(5500, 14_480, 200, 1448, FLAG_ACK);
    assert_eq!(flow.take(), [(Kind::Response, 5000)]);
}

#[test]
fn a_long_pause_keeps_the_second_figure() {
    // A video player: 30 segments, and the next request two seconds later.
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    for n in 1..=15 {
        flow.ack(20_000 + n * 100, 1, n * 2896);
    }
    assert!(!flow.request(2_000_500, 1, 43_440));
    assert_eq!(flow.take(), [(Kind::Answer, 21_000)]);
}

#[test]
fn a_flow_that_is_joined_in_the_middle_is_measured_from_the_second_burst_on() {
    let mut flow = Flow::unseen();
    flow.request(0, 0, 0);
    flow.request(5, 1, 0);
    flow.request(3000, 2, 1800);
    assert_eq!(flow.take(), [(Kind::Response, 3000)]);
}

#[test]
fn a_window_that_slides_is_told_by_its_start() {
    // Four requests at once, then one for each answer: the gap is a quarter of the latency.
    let mut flow = Flow::open();
    for n in 0..4 {
        flow.request(500 + n, n as i32, 0);
    }
    for n in 0..20u32 {
        flow.request(3500 + 1000 * n, 4 + n as i32, 900 * (n + 1));
    }
    let doubts: Vec<bool> = flow.got.iter().map(|s| s.doubts.has(Doubts::PIPELINED)).collect();
    assert_eq!(doubts.iter().filter(|&&d| d).count(), 12, "{doubts:?}");
    assert!(!doubts[0] && doubts[19]);
    // Less than the time of a handshake cannot be an answer.
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    flow.request(700, 1, 900);
    assert!(flow.got[0].doubts.has(Doubts::PIPELINED));
}

#[test]
fn window_updates_are_told_by_their_size() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    let mut sequence = 100;
    for n in 0..20u32 {
        flow.segment(3500 + 800 * n, sequence, 32_768 * (n + 1), 26, FLAG_ACK);
        sequence += 26;
    }
    let told = flow
        .got
        .iter()
        .filter(|s| s.doubts.has(Doubts::FLOW_CONTROL))
        .count();
    assert!((11..=13).contains(&told), "{told}");
    // A window of 64 KB: seven updates, for stream and connection together or apart, and then a request again.
    let mut flow = Flow::open();
    let (mut at, mut sequence, mut acknowledged) = (500, 0, 0);
    for n in 0..80u32 {
        let payload = if n % 8 == 0 { 117 } else { [42, 55][n as usize % 2] };
        flow.segment(at, sequence, acknowledged, payload, FLAG_ACK);
        (at, sequence, acknowledged) = (at + 2000, sequence + i32::from(payload), acknowledged + 32_768);
    }
    let late = &flow.got[flow.got.len() - 40..];
    assert!(
        late.iter().all(|s| s.doubts.has(Doubts::FLOW_CONTROL)),
        "{late:?}"
    );
}

#[test]
fn small_requests_for_long_answers_are_no_window_updates() {
    // 47 bytes are a request of HTTP/1.1 with a host and nothing else, or one of HTTP/2.
    let mut flow = Flow::open();
    for n in 0..40u32 {
        flow.segment(500 + 3000 * n, 47 * n as i32, 43_000 * n, 47, FLAG_ACK);
    }
    assert_eq!(flow.got.len(), 39);
    assert!(
        flow.got.iter().all(|s| s.doubts == Doubts::NONE),
        "{:?}",
        flow.got
    );
    // Nor are bursts of them, though each is as long as two updates under TLS 1.3.
    let mut flow = Flow::open();
    for n in 0..160u32 {
        let (burst, place) = (n / 4, n % 4);
        flow.segment(
            500 + 3000 * burst + 10 * place,
            48 * n as i32,
            43_000 * burst,
            48,
            FLAG_ACK,
        );
    }
    assert_eq!(flow.got.len(), 39);
    assert!(
        flow.got.iter().all(|s| s.doubts == Doubts::NONE),
        "{:?}",
        flow.got
    );
}

#[test]
fn a_window_update_inside_an_answer_starts_no_burst() {
    // As the h2 crate behind nginx with TLS 1.2: one frame for each half of the window.
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    assert!(!flow.segment(2500, 100, 40_000, 42, FLAG_ACK));
    flow.segment(8500, 142, 90_000, 100, FLAG_ACK);
    assert_eq!(flow.take(), [(Kind::Response, 8000)]);
    // So small a request behind a short answer, or of another size, is one.
    flow.segment(11_500, 242, 91_000, 42, FLAG_ACK);
    flow.segment(13_500, 284, 92_000, 100, FLAG_ACK);
    flow.segment(15_500, 384, 132_000, 40, FLAG_ACK);
    let told = [3000, 2000, 2000].map(|micros| (Kind::Response, micros));
    assert_eq!(flow.take(), told);
    // A client that has gone over to such requests: the first of them is taken for an update, no more.
    flow.segment(18_500, 424, 133_000, 100, FLAG_ACK);
    for n in 1..=3u32 {
        flow.segment(
            18_500 + 2000 * n,
            524 + 42 * n as i32,
            133_000 + 40_000 * n,
            42,
            FLAG_ACK,
        );
    }
    let told = [3000, 4000, 2000].map(|micros| (Kind::Response, micros));
    assert_eq!(flow.take(), told);
}

#[test]
fn one_long_wait_inside_a_burst_does_not_blind_the_guard() {
    let mut flow = Flow::open();
    flow.request(500, 0, 0);
    // Lost before us, and sent again after 200 ms without news.
    flow.request(200_500, 1, 0);
    flow.request(204_000, 2, 1800);
    let mut at = 204_000;
    for n in 3..40 {
        at += 3000;
        flow.request(at, n, 900 * n as u32);
    }
    let right = flow
        .take()
        .iter()
        .filter(|&&got| got == (Kind::Response, 3000))
        .count();
    assert_eq!(right, 37);
}

/// Whatever comes, in whatever order, nothing overflows and no sample is longer than the cut-off.
#[test]
fn any_segments_are_taken() {
    use proptest::prelude::*;
    let segment = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u8>());
    let near = (0u32..3000, 0u32..3000, 0u16..1500, 0u8..32);
    let steps = proptest::collection::vec(
        (prop_oneof![segment, near], prop_oneof![0u32..1000, any::<u32>()]),
        0..300,
    );
    proptest!(|(steps in steps)| {
        let (mut tcp, mut at, rules) = (Tcp::default(), Moment(0), Rules::default());
        for ((sequence, acknowledgment, payload, flags), step) in steps {
            at = at.plus(Span(step));
            let mut longest = Span(0);
            tcp.segment(at, Segment { sequence, acknowledgment, payload, flags }, &rules, |s| {
                if s.kind == Kind::Response {
                    longest = longest.max(s.value);
                }
            });
            prop_assert!(longest < rules.cutoff);
        }
    });
}
