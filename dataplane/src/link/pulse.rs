//! The worker's pulse: that it turns, what it has adopted, and how long things took to arrive.
//!
//! Written by the worker in housekeeping, one writer, relaxed; read by control at any time. Beside it the
//! stop flag, which goes the other way, and the judge of stalled workers, which is control's.

use super::delivery::AdopterCounts;
use crate::arch::Ticks;
use crossbeam::utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Four buckets an octave of a 64-bit value.
const BUCKETS: usize = 256;

#[derive(Default)]
struct Beats {
    turns: AtomicU64,
    adopted: AtomicU64,
    retired: AtomicU64,
    words_taken: AtomicU64,
    generation: AtomicU64,
}

struct Shared {
    beats: CachePadded<Beats>,
    delays: CachePadded<[AtomicU64; BUCKETS]>,
}

/// The worker's end.
pub struct PulseWriter(Arc<Shared>);

/// Control's end; clones read the same pulse.
#[derive(Clone)]
pub struct PulseReader(Arc<Shared>);

/// One worker's pulse.
pub fn pulse() -> (PulseWriter, PulseReader) {
    let shared = Arc::new(Shared {
        beats: CachePadded::default(),
        delays: CachePadded::new([const { AtomicU64::new(0) }; BUCKETS]),
    });
    (PulseWriter(Arc::clone(&shared)), PulseReader(shared))
}

impl PulseWriter {
    /// One turn is done, and this is where the worker stands.
    #[inline]
    pub fn beat(&mut self, counts: &AdopterCounts) {
        let beats = &self.0.beats;
        beats.adopted.store(counts.adopted, Relaxed);
        beats.retired.store(counts.retired, Relaxed);
        beats.words_taken.store(counts.words_taken, Relaxed);
        beats.generation.store(counts.generation, Relaxed);
        add_one(&beats.turns);
    }

    /// Notes how long something took from control's decision until now.
    #[inline]
    pub fn arrived(&mut self, published_at: Ticks, now: Ticks) {
        if let Some(bucket) = self.0.delays.get(bucket(now.since(published_at))) {
            add_one(bucket);
        }
    }
}

/// One writer, so a load and a store instead of a locked add.
#[inline]
fn add_one(word: &AtomicU64) {
    word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
}

impl PulseReader {
    /// Housekeeping turns done so far; 0 until the worker runs.
    pub fn turns(&self) -> u64 {
        self.0.beats.turns.load(Relaxed)
    }

    /// Where the worker stood at its last beat. The terms may be of neighbouring turns.
    pub fn counts(&self) -> AdopterCounts {
        let beats = &self.0.beats;
        AdopterCounts {
            adopted: beats.adopted.load(Relaxed),
            retired: beats.retired.load(Relaxed),
            words_taken: beats.words_taken.load(Relaxed),
            generation: beats.generation.load(Relaxed),
        }
    }

    /// Delays of all words and snapshots so far.
    pub fn delays(&self) -> Delays {
        Delays(std::array::from_fn(|n| {
            self.0.delays.get(n).map_or(0, |word| word.load(Relaxed))
        }))
    }
}

/// A histogram of delays in ticks, from control's decision to the worker's taking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays([u64; BUCKETS]);

impl Delays {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The delay that a share of `quantile` (0 to 1) does not exceed, ticks; the true value is at most
    /// a fifth less. `None` when there are none.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        self.0.iter().enumerate().find_map(|(n, &here)| {
            below += here;
            (below >= rank && count > 0).then(|| bucket_end(n))
        })
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Delays) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The bucket of a value: its octave and the two bits below its highest.
#[inline]
fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let octave = value.ilog2() as usize;
    octave * 4 + ((value >> (octave - 2)) & 3) as usize
}

/// The largest value in a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (octave, quarter) = (bucket / 4, bucket as u64 % 4);
    let end = (u128::from(quarter) + 5) << octave.saturating_sub(2);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// The one flag that tells workers to end. Clones are the same flag.
#[derive(Clone, Default)]
pub struct StopFlag(Arc<CachePadded<AtomicBool>>);

impl StopFlag {
    /// Tells all workers to end. Cannot be taken back.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether to end. Relaxed: nothing else is read on the strength of it.
    #[inline(always)]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// No turn seen yet.
    NotStarted,
    /// It turns.
    Running,
    /// It has done no turn since then, for longer than the limit.
    Stalled {
        /// When the last progress was seen.
        since: Instant,
    },
}

/// Tells a stalled worker from a running one by its turns. Reads no clock of its own.
#[derive(Clone, Debug)]
pub struct StallDetector {
    limit: Duration,
    turns: u64,
    /// When `turns` last changed; `None` before the first turn.
    progress: Option<Instant>,
}

impl StallDetector {
    /// A worker counts as stalled when it does no turn for longer than `limit`.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            turns: 0,
            progress: None,
        }
    }

    /// Judges by the worker's turns as read at `now`.
    pub fn observe(&mut self, turns: u64, now: Instant) -> Liveness {
        if turns != self.turns {
            self.turns = turns;
            self.progress = Some(now);
        }
        match self.progress {
            None => Liveness::NotStarted,
            Some(since) if now.saturating_duration_since(since) > self.limit => Liveness::Stalled { since },
            Some(_) => Liveness::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_reads_what_the_worker_wrote() {
        let (mut writer, reader) = pulse();
        assert_eq!((reader.turns(), reader.counts()), (0, AdopterCounts::default()));
        let counts = AdopterCounts {
            adopted: 3,
            retired: 2,
            words_taken: 9,
            generation: 40,
        };
        writer.beat(&counts);
        writer.beat(&counts);
        assert_eq!((reader.turns(), reader.counts()), (2, counts));
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut values: Vec<u64> = (0..2000).collect();
        values
            .extend((0..64).flat_map(|n| [(1_u64 << n) - 1, 1 << n, (1 << n) + 1, (1 << n) | (1 << n) >> 1]));
        values.push(u64::MAX);
        for value in values {
            let end = bucket_end(bucket(value));
            assert!(value <= end, "{value} lies past the end {end} of its bucket");
            assert!(end - value <= value / 4, "{end} is too far from {value}");
            assert!(
                end == u64::MAX || bucket(end + 1) > bucket(value),
                "{value}: {end} is not the end"
            );
        }
    }

    #[test]
    fn quantiles_of_known_delays() {
        let (mut writer, reader) = pulse();
        assert_eq!(reader.delays().quantile(0.5), None);
        // 98 of 100 ticks, one of 10,000, one of 1,000,000.
        for delay in std::iter::repeat_n(100, 98).chain([10_000, 1_000_000]) {
            writer.arrived(Ticks(5_000), Ticks(5_000 + delay));
        }
        let delays = reader.delays();
        assert_eq!(delays.count(), 100);
        // 100 lies in 96..=111, 10,000 in 8192..=10239, 1,000,000 in 917504..=1048575.
        assert_eq!(delays.quantile(0.5), Some(111));
        assert_eq!(delays.quantile(0.98), Some(111));
        assert_eq!(delays.quantile(0.99), Some(10_239));
        assert_eq!(delays.quantile(1.0), Some(1_048_575));
        let mut both = delays.clone();
        both.merge(&delays);
        assert_eq!((both.count(), both.quantile(0.99)), (200, Some(10_239)));
    }

    #[test]
    fn a_worker_that_stops_turning_is_stalled() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut detector = StallDetector::new(Duration::from_millis(100));
        assert_eq!(detector.observe(0, at(0)), Liveness::NotStarted);
        assert_eq!(
            detector.observe(0, at(5000)),
            Liveness::NotStarted,
            "waiting to start is no stall"
        );
        assert_eq!(detector.observe(1, at(5001)), Liveness::Running);
        assert_eq!(
            detector.observe(1, at(5101)),
            Liveness::Running,
            "the limit itself is allowed"
        );
        assert_eq!(
            detector.observe(1, at(5102)),
            Liveness::Stalled { since: at(5001) }
        );
        assert_eq!(
            detector.observe(1, at(9000)),
            Liveness::Stalled { since: at(5001) }
        );
        assert_eq!(detector.observe(2, at(9001)), Liveness::Running);
    }

    #[test]
    fn all_clones_see_the_stop() {
        let flag = StopFlag::default();
        let worker = flag.clone();
        assert!(!worker.is_set());
        flag.stop();
        assert!(worker.is_set());
    }
}
