//! Token buckets in a fixed table: four ways a cache line, chosen by a hash. A new key takes the place of the way
//! that is nearest to being full, which is the one whose loss lets the least through.
//!
//! A bucket is one time by the generic cell rate algorithm (ITU-T I.371): when it will be full again.

use super::Pass;
use crate::arch::Ticks;

/// Buckets of one worker: 2 MiB.
pub const BUCKETS: usize = 1 << 17;
const WAYS: usize = 4;
const SETS: usize = BUCKETS / WAYS;

/// One key's bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// When it will be full again, ticks.
    full_at: u64,
    /// The part of the key that does not say which set.
    tag: u32,
    /// Replies over the limit.
    limited: u32,
}

/// The buckets that a key may be in: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([Bucket; WAYS]);

/// The table, and the rule that all buckets have.
#[derive(Debug)]
pub struct Buckets {
    sets: Box<[Set]>,
    /// Ticks of one reply.
    interval: u64,
    /// Ticks that replies may lie ahead of the clock.
    ahead_max: u64,
    slip: u32,
}

impl Buckets {
    /// A table of full buckets.
    pub fn new() -> Self {
        Self {
            sets: vec![Set::default(); SETS].into(),
            interval: 0,
            ahead_max: 0,
            slip: 0,
        }
    }

    /// One reply every `interval` ticks, `burst` at once, and every `slip`th over that slips.
    pub fn set(&mut self, interval: u64, burst: u32, slip: u8) {
        self.interval = interval;
        self.ahead_max = interval.saturating_mul(burst.saturating_sub(1).into());
        self.slip = slip.into();
    }

    /// Takes one token of `key`, a hash.
    #[inline]
    pub fn take(&mut self, key: u64, now: Ticks) -> Pass {
        let tag = (key >> 32) as u32;
        let Some(Set(ways)) = self.sets.get_mut(key as usize % SETS) else {
            return Pass::Send;
        };
        let mut fullest = (u64::MAX, 0);
        let mut found = None;
        for (at, way) in ways.iter().enumerate() {
            if way.tag == tag {
                found = Some(at);
            }
            if way.full_at < fullest.0 {
                fullest = (way.full_at, at);
            }
        }
        let Some(bucket) = ways.get_mut(found.unwrap_or(fullest.1)) else {
            return Pass::Send;
        };
        if found.is_none() {
            *bucket = Bucket {
                tag,
                ..Bucket::default()
            };
        }
        let from = bucket.full_at.max(now.0);
        if from - now.0 <= self.ahead_max {
            bucket.full_at = from.saturating_add(self.interval);
            return Pass::Send;
        }
        bucket.limited = bucket.limited.wrapping_add(1);
        match bucket.limited.checked_rem(self.slip) {
            Some(0) => Pass::Slip,
            _ => Pass::Drop,
        }
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self::new()
    }
}
