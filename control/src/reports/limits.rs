//! How often something may happen: requests by source and by site, lines in the log. Owned by the receiver; time is
//! handed in.

use lru::LruCache;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Buckets that are kept; the least recently used goes for a new one, and a flood of sources gets fresh ones: the
/// limit on all connections holds then.
const BUCKETS: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// Token buckets by key.
pub(super) struct Buckets<K> {
    by_key: LruCache<K, (f64, Instant)>,
    per_second: f64,
    burst: f64,
}

impl<K: Hash + Eq> Buckets<K> {
    pub(super) fn new(per_second: f64, burst: f64) -> Self {
        Self {
            by_key: LruCache::new(BUCKETS),
            per_second,
            burst,
        }
    }

    /// Takes one from the bucket of `key`; false if it is empty.
    pub(super) fn take(&mut self, key: K, now: Instant) -> bool {
        let burst = self.burst;
        let (level, at) = self.by_key.get_or_insert_mut(key, || (burst, now));
        let passed = now.saturating_duration_since(*at).as_secs_f64();
        *level = (*level + passed * self.per_second).min(burst);
        *at = now;
        let enough = *level >= 1.0;
        if enough {
            *level -= 1.0;
        }
        enough
    }
}

/// Whose limit an address counts against: itself, or its IPv6 /64.
pub(super) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Lets a line into the log once in a while, and knows how many it held back.
pub(super) struct Quiet {
    every: Duration,
    last: Option<Instant>,
    held: u64,
}

impl Quiet {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            last: None,
            held: 0,
        }
    }

    /// How many lines were held back since the last one, if one may be written now.
    pub(super) fn may(&mut self, now: Instant) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < self.every)
        {
            self.held += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_its_burst_and_then_its_rate_through() {
        let mut buckets = Buckets::new(2.0, 3.0);
        let start = Instant::now();
        let passed = |buckets: &mut Buckets<u8>, key, at| (0..10).filter(|_| buckets.take(key, at)).count();
        assert_eq!(passed(&mut buckets, 1, start), 3);
        assert_eq!(passed(&mut buckets, 2, start), 3, "each key has its own");
        assert_eq!(passed(&mut buckets, 1, start + Duration::from_secs(1)), 2);
        assert_eq!(passed(&mut buckets, 1, start + Duration::from_secs(100)), 3);
    }

    #[test]
    fn hosts_of_one_ipv6_network_are_one_source() {
        let source = |text: &str| source_of(text.parse().expect("an address"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    }

    #[test]
    fn a_quiet_line_says_how_many_it_stands_for() {
        let mut quiet = Quiet::new(Duration::from_secs(10));
        let start = Instant::now();
        assert_eq!(quiet.may(start), Some(0));
        assert!((1..=4).all(|s| quiet.may(start + Duration::from_secs(s)).is_none()));
        assert_eq!(quiet.may(start + Duration::from_secs(10)), Some(4));
    }
}
