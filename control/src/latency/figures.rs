//! What samples are summed in: a mergeable sketch of times, a count of distinct flows, the newest few as they are.
//!
//! Owned by a cell. Times are microseconds here. All three have a fixed bound, whatever comes.

use sketches_ddsketch::{Config, DDSketch};
use std::time::{Duration, Instant};

/// Relative error of a quantile.
const ERROR: f64 = 0.01;
/// Times below it count as it, microseconds.
const LEAST: f64 = 10.0;
/// Times above it count as it, microseconds: the longest `cutoff`.
const MOST: f64 = 10_000_000.0;
/// ln(MOST / LEAST) / ln(1.01 / 0.99) = 691 bins hold all of it, so that bins are never collapsed.
const BINS: u32 = 768;

/// A sketch of times: any quantile within 1 %, at most 6 KiB, and two of them add up to one.
#[derive(Clone)]
pub(super) struct Sketch(DDSketch);

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(ERROR, BINS, LEAST / 2.0)))
    }
}

impl Sketch {
    pub(super) fn add(&mut self, micros: f64) {
        self.0.add(micros.clamp(LEAST, MOST));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Refused only for sketches of another error.
        let _ = self.0.merge(&other.0);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count() as u64
    }

    /// Bytes on the heap.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.length() * size_of::<u64>()
    }

    /// The time that a share `q` of all are below, 0 to 1; `None` without any.
    pub(super) fn quantile(&self, q: f64) -> Option<Duration> {
        let micros = self.0.quantile(q).ok().flatten()?;
        Some(Duration::from_nanos((micros * 1000.0) as u64))
    }
}

/// Bits of [`Flows`].
const FLOW_BITS: usize = 2048;

/// How many distinct flows there were, by linear counting (Whang et al. 1990): the standard error is below 3 % up to 4,000 flows;
/// more than 15,600 are told as 15,616.
#[derive(Clone)]
pub(super) struct Flows([u64; FLOW_BITS / 64]);

impl Default for Flows {
    fn default() -> Self {
        Self([0; FLOW_BITS / 64])
    }
}

impl Flows {
    /// Takes a flow, by a hash of it.
    pub(super) fn add(&mut self, flow: u32) {
        let bit = flow as usize % FLOW_BITS;
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// About how many.
    pub(super) fn count(&self) -> u64 {
        let bits = FLOW_BITS as f64;
        let set: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        // Where all bits are set, as many as would leave one.
        let clear = (bits - f64::from(set)).max(1.0);
        (-bits * (clear / bits).ln()).round() as u64
    }
}

/// Samples that [`Newest`] keeps.
pub(super) const NEWEST: usize = 16;

/// The newest few samples: what a cell with little traffic is told by.
#[derive(Clone, Default)]
pub(super) struct Newest {
    /// A ring; the next one goes to `at`.
    list: Vec<(f64, u32, Instant)>,
    at: usize,
}

impl Newest {
    pub(super) fn add(&mut self, micros: f64, flow: u32, now: Instant) {
        let sample = (micros, flow, now);
        match self.list.get_mut(self.at) {
            Some(place) => *place = sample,
            None => self.list.push(sample),
        }
        self.at = (self.at + 1) % NEWEST;
    }

    /// Median, number of samples and of flows of those that came at `since` or later; `None` without any.
    pub(super) fn median(&self, since: Option<Instant>) -> Option<(Duration, usize, u64)> {
        let fresh = self
            .list
            .iter()
            .filter(|(_, _, at)| since.is_none_or(|since| *at >= since));
        let (mut times, mut flows): (Vec<f64>, Vec<u32>) = fresh.map(|&(time, flow, _)| (time, flow)).unzip();
        times.sort_unstable_by(f64::total_cmp);
        flows.sort_unstable();
        flows.dedup();
        let median = *times.get(times.len().checked_sub(1)? / 2)?;
        let median = Duration::from_nanos((median * 1000.0) as u64);
        Some((median, times.len(), flows.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within 1 % of `want` microseconds.
    fn close(got: Option<Duration>, want: f64) {
        let got = got.unwrap().as_secs_f64() * 1e6;
        assert!((got / want - 1.0).abs() <= ERROR, "{got} is not {want}");
    }

    #[test]
    fn quantiles_are_those_of_the_list_and_sketches_add_up() {
        let (mut odd, mut even) = (Sketch::default(), Sketch::default());
        for micros in 1..=1000 {
            let half = if micros % 2 == 1 { &mut odd } else { &mut even };
            half.add(f64::from(micros) * 100.0);
        }
        odd.merge(&even);
        assert_eq!(odd.count(), 1000);
        // The values of rank 499, 899 and 989 of 0 to 999.
        close(odd.quantile(0.5), 50_000.0);
        close(odd.quantile(0.9), 90_000.0);
        close(odd.quantile(0.99), 99_000.0);
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    #[test]
    fn the_whole_range_has_room() {
        let mut sketch = Sketch::default();
        for micros in [0.0, 10.0, 1e3, 1e7, 1e9] {
            sketch.add(micros);
        }
        // Rank 1 of 0 to 4 is the second 10 us: nothing was collapsed into one bin.
        close(sketch.quantile(0.3), 10.0);
        close(sketch.quantile(0.5), 1_000.0);
        close(sketch.quantile(0.9), 10_000_000.0);
        assert_eq!(sketch.count(), 5);
    }

    #[test]
    fn flows_are_counted_by_the_bits_that_are_clear() {
        let mut flows = Flows::default();
        assert_eq!(flows.count(), 0);
        for flow in 0..100 {
            flows.add(flow);
            flows.add(flow);
        }
        // -2048 ln(1948 / 2048) = 102.5
        assert_eq!(flows.count(), 103);
        let mut others = Flows::default();
        (50..1024).for_each(|flow| others.add(flow));
        flows.merge(&others);
        // -2048 ln(1/2) = 1419.6
        assert_eq!(flows.count(), 1420);
        (0..2048).for_each(|flow| flows.add(flow));
        // 2048 ln 2048 = 15,615.2
        assert_eq!(flows.count(), 15_615);
    }

    #[test]
    fn the_newest_are_those_that_came_last() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut newest = Newest::default();
        assert_eq!(newest.median(None), None);
        for second in 0..20 {
            newest.add(second as f64 * 1000.0, second as u32 / 4, at(second));
        }
        // Seconds 4 to 19, flows 1 to 4: rank 7 of 0 to 15 is second 11.
        assert_eq!(newest.median(None), Some((Duration::from_millis(11), 16, 4)));
        // 17, 18 and 19.
        assert_eq!(
            newest.median(Some(at(17))),
            Some((Duration::from_millis(18), 3, 1))
        );
        assert_eq!(newest.median(Some(at(20))), None);
    }
}
