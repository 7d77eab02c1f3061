//! One cell: what is known of the response latency of some clients at a site or at one of its members.
//!
//! Owned by the store. The window is a ring of slots; what leaves it goes into two generations of five minutes, which are
//! what was before. Samples of low confidence are counted and shown, and are in none of the times.

use super::figures::{Flows, NEWEST, Newest, Sketch};
use dataplane::flow::Span;
use dataplane::flow::estimate::{Confidence, Doubts, Kind, Sample};
use std::time::{Duration, Instant};

/// Slots of a window.
pub(super) const SLOTS: u32 = 6;
/// Length of a generation: what is before the window is kept for one to two of them.
const GENERATION: Duration = Duration::from_secs(300);
/// Samples that are enough for the window to be told by itself; with fewer, the newest are.
const ENOUGH: u64 = NEWEST as u64;
/// Fewer samples than these are no evidence.
const SAMPLES_MIN: usize = 8;

/// What time it is for cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When slot 0 began.
    pub(super) start: Instant,
    /// Length of a slot.
    pub(super) slot: Duration,
}

impl Clock {
    fn number(&self, now: Instant, length: Duration) -> u64 {
        let since = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since / length.as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

/// A stretch of time.
#[derive(Clone, Default)]
struct Slot {
    number: u64,
    responses: Sketch,
    answers: Sketch,
    handshakes: Sketch,
    flows: Flows,
    retransmitted: u64,
    low: u64,
}

impl Slot {
    fn of(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    fn merge(&mut self, other: &Self) {
        self.responses.merge(&other.responses);
        self.answers.merge(&other.answers);
        self.handshakes.merge(&other.handshakes);
        self.flows.merge(&other.flows);
        self.retransmitted += other.retransmitted;
        self.low += other.low;
    }
}

/// Median and tail of some times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// How many.
    pub count: u64,
    /// Half are below.
    pub median: Option<Duration>,
    /// Nine in ten are below.
    pub p90: Option<Duration>,
    /// 99 in a hundred are below.
    pub p99: Option<Duration>,
}

impl Quantiles {
    fn of(sketch: &Sketch) -> Self {
        Self {
            count: sketch.count(),
            median: sketch.quantile(0.5),
            p90: sketch.quantile(0.9),
            p99: sketch.quantile(0.99),
        }
    }
}

/// What evidence is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Median of the responses.
    pub value: Duration,
    /// Distinct flows among them.
    pub flows: u64,
    /// Distinct flows of the last five to ten minutes.
    pub flows_seen: u64,
    /// When the newest came.
    pub at: Instant,
}

/// Everything of a cell, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// What evidence is made of, if it is enough for that.
    pub measured: Option<Measured>,
    /// Responses in the window.
    pub window: Quantiles,
    /// Distinct flows in the window, about.
    pub flows: u64,
    /// Responses before the window, five to ten minutes of them.
    pub before: Quantiles,
    /// Without think time, where that can be told: window and before.
    pub answers: Quantiles,
    /// Handshakes: window and before.
    pub handshakes: Quantiles,
    /// Packets that clients sent again: window and before.
    pub retransmitted: u64,
    /// Responses of low confidence, which are in none of the above: window and before.
    pub low: u64,
    /// Median of the newest of them.
    pub low_median: Option<Duration>,
    /// What speaks against samples, those of low confidence among them.
    pub doubts: Doubts,
    /// When the newest sample of any kind came.
    pub last: Instant,
}

/// One cell.
#[derive(Clone)]
pub(super) struct Cell {
    slots: Vec<Slot>,
    /// The generation that grows, and the one before it.
    before: [Slot; 2],
    newest: Newest,
    low: Newest,
    doubts: Doubts,
    /// When the newest sample came that counts.
    measured: Option<Instant>,
    last: Instant,
}

/// A span in microseconds.
pub(super) fn micros(value: Span) -> f64 {
    f64::from(value.0) / f64::from(Span::PER_MICRO)
}

impl Cell {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            slots: Vec::new(),
            before: Default::default(),
            newest: Newest::default(),
            low: Newest::default(),
            doubts: Doubts::NONE,
            measured: None,
            last: now,
        }
    }

    /// When its newest sample came.
    pub(super) fn last(&self) -> Instant {
        self.last
    }

    pub(super) fn add(&mut self, sample: Sample, flow: u32, clock: &Clock, now: Instant) {
        self.turn(clock, now);
        self.last = now;
        let number = clock.number(now, clock.slot);
        if self.slots.last().is_none_or(|slot| slot.number < number) {
            self.slots.push(Slot::of(number));
        }
        let Some(slot) = self.slots.last_mut() else { return };
        let time = micros(sample.value);
        match sample.kind {
            Kind::Response => {
                self.doubts = self.doubts.and(sample.doubts);
                if sample.doubts.confidence() == Confidence::Low {
                    slot.low += 1;
                    self.low.add(time, flow, now);
                    return;
                }
                slot.responses.add(time);
                slot.flows.add(flow);
                self.newest.add(time, flow, now);
                self.measured = Some(now);
            }
            Kind::Answer if sample.doubts.confidence() != Confidence::Low => slot.answers.add(time),
            Kind::Handshake => slot.handshakes.add(time),
            Kind::Retransmitted => slot.retransmitted += u64::from(sample.value.0),
            // A mean of responses, each of which was counted; an answer that is not to be believed.
            Kind::Epoch | Kind::Answer => {}
        }
    }

    /// Moves what left the window to what was before, and forgets what is older than that.
    fn turn(&mut self, clock: &Clock, now: Instant) {
        let generation = clock.number(now, GENERATION);
        let age = generation.saturating_sub(self.before[0].number);
        if age > 0 {
            let grown = std::mem::replace(&mut self.before[0], Slot::of(generation));
            self.before[1] = if age == 1 { grown } else { Slot::of(generation - 1) };
        }
        let number = clock.number(now, clock.slot);
        let gone = self
            .slots
            .iter()
            .take_while(|slot| slot.number + u64::from(SLOTS) <= number)
            .count();
        for slot in self.slots.drain(..gone) {
            let ended = clock.start + clock.slot * u32::try_from(slot.number + 1).unwrap_or(u32::MAX);
            match generation.saturating_sub(clock.number(ended, GENERATION)) {
                0 => self.before[0].merge(&slot),
                1 => self.before[1].merge(&slot),
                _ => {}
            }
        }
    }

    /// What evidence is made of: the window if there is enough in it, else the newest samples within `keep`.
    pub(super) fn measured(&mut self, clock: &Clock, keep: Duration, now: Instant) -> Option<Measured> {
        self.turn(clock, now);
        let at = self.measured?;
        if now.saturating_duration_since(at) > keep {
            return None;
        }
        let (mut responses, mut all) = (Sketch::default(), Flows::default());
        for slot in &self.slots {
            responses.merge(&slot.responses);
            all.merge(&slot.flows);
        }
        let of_window = all.count();
        self.before.iter().for_each(|before| all.merge(&before.flows));
        let flows_seen = all.count();
        let (value, flows) = if responses.count() >= ENOUGH {
            (responses.quantile(0.5)?, of_window)
        } else {
            let (value, samples, flows) = self.newest.median(now.checked_sub(keep))?;
            if samples < SAMPLES_MIN {
                return None;
            }
            (value, flows)
        };
        Some(Measured {
            value,
            flows,
            flows_seen: flows_seen.max(flows),
            at,
        })
    }

    fn window(&self) -> Slot {
        let mut all = Slot::default();
        self.slots.iter().for_each(|slot| all.merge(slot));
        all
    }

    /// Everything, for people.
    pub(super) fn told(&mut self, clock: &Clock, keep: Duration, now: Instant) -> Told {
        let measured = self.measured(clock, keep, now);
        let window = self.window();
        let mut before = self.before[0].clone();
        before.merge(&self.before[1]);
        let (responses, flows) = (Quantiles::of(&window.responses), window.flows.count());
        let earlier = Quantiles::of(&before.responses);
        before.merge(&window);
        Told {
            measured,
            window: responses,
            flows,
            before: earlier,
            answers: Quantiles::of(&before.answers),
            handshakes: Quantiles::of(&before.handshakes),
            retransmitted: before.retransmitted,
            low: before.low,
            low_median: self
                .low
                .median(now.checked_sub(keep))
                .map(|(median, _, _)| median),
            doubts: self.doubts,
            last: self.last,
        }
    }
}

impl Told {
    /// By how much the median of the window is over that of before, as a share of the latter; `None` where either rests on less
    /// than 16 responses.
    pub fn trend(&self) -> Option<f64> {
        let [now, before] = [self.window, self.before].map(|q| q.median.filter(|_| q.count >= ENOUGH));
        Some(now?.as_secs_f64() / before?.as_secs_f64() - 1.0)
    }

    /// How far the figures may be believed: as the worst of most responses.
    pub fn confidence(&self) -> Option<Confidence> {
        let high = self.window.count + self.before.count;
        match () {
            () if high + self.low == 0 => None,
            () if self.low > high => Some(Confidence::Low),
            () if self.doubts.has(Doubts::TIMING) => Some(Confidence::Fair),
            () => Some(Confidence::High),
        }
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
