//! A cell over time. Slots of 5 s, so that a window is 30 s.

use super::*;

struct Lab {
    cell: Cell,
    clock: Clock,
}

fn lab() -> Lab {
    let start = Instant::now();
    Lab {
        cell: Cell::new(start),
        clock: Clock {
            start,
            slot: Duration::from_secs(5),
        },
    }
}

const KEEP: Duration = Duration::from_secs(600);

fn sample(kind: Kind, ms: u32, doubts: Doubts) -> Sample {
    Sample {
        kind,
        value: Span::millis(ms),
        doubts,
    }
}

impl Lab {
    fn at(&self, ms: u64) -> Instant {
        self.clock.start + Duration::from_millis(ms)
    }

    fn add(&mut self, at_ms: u64, sample: Sample, flow: u32) {
        let now = self.at(at_ms);
        self.cell.add(sample, flow, &self.clock, now);
    }

    fn responses(&mut self, at_ms: u64, times: std::ops::RangeInclusive<u32>) {
        for ms in times {
            self.add(at_ms, sample(Kind::Response, ms, Doubts::NONE), ms);
        }
    }

    fn told(&mut self, at_ms: u64) -> Told {
        let now = self.at(at_ms);
        self.cell.told(&self.clock, KEEP, now)
    }

    fn measured(&mut self, at_ms: u64) -> Option<Measured> {
        let now = self.at(at_ms);
        self.cell.measured(&self.clock, KEEP, now)
    }
}

/// Within 1 %.
fn close(got: Option<Duration>, want_ms: f64) {
    let got = got.unwrap().as_secs_f64() * 1e3;
    assert!(
        (got / want_ms - 1.0).abs() <= 0.01,
        "{got} ms is not {want_ms} ms"
    );
}

#[test]
fn a_window_forgets_and_what_was_before_remembers() {
    let mut lab = lab();
    lab.responses(1_000, 1..=100);
    let told = lab.told(29_999);
    assert_eq!((told.window.count, told.before.count), (100, 0));
    close(told.window.median, 50.0);
    close(told.window.p90, 90.0);
    close(told.window.p99, 99.0);
    // 100 of 2,048 bits: -2048 ln(1948 / 2048) = 102.5.
    assert_eq!(told.flows, 103);
    assert_eq!(told.trend(), None, "there is no before");
    // The slot of second 0 to 5 is out of the window at 30.
    let told = lab.told(30_000);
    assert_eq!(
        (told.window, told.before.count, told.flows),
        (Quantiles::default(), 100, 0)
    );
    close(told.before.median, 50.0);
    // 75 against 50: half as much again.
    lab.responses(40_000, 51..=100);
    let told = lab.told(41_000);
    assert_eq!((told.window.count, told.before.count), (50, 100));
    assert!((told.trend().unwrap() - 0.5).abs() < 0.03, "{:?}", told.trend());
    // Generations end at 300 and 600: what was before the first is gone with the second.
    assert_eq!(lab.told(599_999).before.count, 150);
    assert_eq!(lab.told(600_000).before.count, 0);
}

#[test]
fn few_samples_are_told_by_the_newest() {
    let mut lab = lab();
    lab.responses(0, 1..=7);
    assert_eq!(lab.measured(1_000), None, "seven are no evidence");
    lab.responses(100_000, 8..=8);
    // 1 to 8 ms: rank 3 of 0 to 7.
    let measured = lab.measured(200_000).unwrap();
    assert_eq!(
        (measured.value, measured.flows, measured.at),
        (Duration::from_millis(4), 8, lab.at(100_000))
    );
    // The first seven are older than ten minutes now.
    assert_eq!(lab.measured(600_001), None);
}

#[test]
fn a_full_window_is_told_by_itself() {
    let mut lab = lab();
    lab.responses(0, 1..=100);
    // Sixteen in the window are enough, fifteen are not: the newest sixteen then, of which one is of before.
    lab.responses(60_000, 201..=215);
    assert_eq!(lab.measured(61_000).unwrap().value, Duration::from_millis(207));
    lab.responses(62_000, 216..=216);
    close(lab.measured(63_000).map(|m| m.value), 208.0);
    assert_eq!(lab.measured(63_000).unwrap().flows, 16);
}

#[test]
fn low_confidence_is_shown_and_is_in_none_of_the_times() {
    let mut lab = lab();
    for flow in 0..20 {
        lab.add(
            0,
            sample(Kind::Response, 500, Doubts::SHARED.and(Doubts::TIMING)),
            flow,
        );
        lab.add(0, sample(Kind::Answer, 400, Doubts::SHARED), flow);
    }
    let told = lab.told(1_000);
    assert_eq!(
        (told.measured, told.window, told.flows),
        (None, Quantiles::default(), 0)
    );
    assert_eq!(
        (told.low, told.low_median),
        (20, Some(Duration::from_millis(500)))
    );
    assert_eq!(told.answers.count, 0);
    assert_eq!(told.confidence(), Some(Confidence::Low));
    assert_eq!(told.doubts.names().collect::<Vec<_>>(), ["timing", "shared"]);
    // The most decide.
    lab.responses(1_000, 1..=30);
    assert_eq!(lab.told(1_000).confidence(), Some(Confidence::Fair));
    // Rank 28 of 0 to 29.
    close(lab.told(1_000).window.p99, 29.0);
}

#[test]
fn handshakes_answers_and_losses_stand_apart() {
    let mut lab = lab();
    for n in 0..3 {
        lab.add(n, sample(Kind::Handshake, 10, Doubts::NONE), 1);
        lab.add(n, sample(Kind::Answer, 30, Doubts::NONE), 1);
        lab.add(n, sample(Kind::Epoch, 70, Doubts::NONE), 1);
        let again = Sample {
            value: Span(4),
            ..sample(Kind::Retransmitted, 0, Doubts::NONE)
        };
        lab.add(n, again, 1);
    }
    let told = lab.told(40_000);
    assert_eq!(
        (told.handshakes.count, told.answers.count, told.retransmitted),
        (3, 3, 12)
    );
    close(told.handshakes.median, 10.0);
    close(told.answers.median, 30.0);
    assert_eq!(
        (told.window.count, told.before.count, told.measured),
        (0, 0, None)
    );
    assert_eq!(told.confidence(), None);
}

#[test]
fn a_cell_is_bounded_whatever_comes() {
    let mut lab = lab();
    let kinds = [Kind::Response, Kind::Answer, Kind::Handshake];
    for second in 0..900 {
        for kind in kinds {
            // 1 us to 67 s: more than there is room for at both ends.
            for octave in 0..28 {
                let wide = Sample {
                    value: Span(4 << octave),
                    ..sample(kind, 0, Doubts::NONE)
                };
                lab.add(second * 1000, wide, octave);
            }
        }
    }
    let slots = || lab.cell.slots.iter().chain(&lab.cell.before);
    assert_eq!(slots().count(), 8);
    let sketches = slots().flat_map(|slot| [&slot.responses, &slot.answers, &slot.handshakes]);
    let heap: usize = sketches.map(Sketch::bytes).sum();
    let inline = size_of::<Cell>() + 6 * size_of::<Slot>();
    // 24 sketches of 768 bins are what README calls 160 kB, all in.
    assert_eq!(heap, 24 * 768 * 8);
    assert!(heap + inline < 160_000, "{heap} + {inline}");
}
