//! Response rate limiting: how often a network may get the same answer, so that a flood of queries with forged
//! sources does not become a flood of replies.
//!
//! Called by `stages::dns_answer` once a reply is known, when the snapshot has [`Rules`]. Owned by one worker:
//! a fixed table of token buckets, each for a client's prefix and what it gets. Names of their own count by name;
//! what can be varied without end (names that do not exist, names below a wildcard or a cut, errors) counts by
//! zone, by wildcard, by cut, or all together. The limits of the configuration are divided by the number of workers.

mod bucket;

pub use bucket::{BUCKETS, Buckets};

use crate::arch::{TickRate, Ticks};
use crate::tables::prefixes::Prefixes;
use crate::wire::cookie::Address;

/// What the configuration says of it: in the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Replies of one kind to one prefix a second, over all workers; 1 at least.
    pub per_second: u32,
    /// How many may come at once, over all workers; 1 at least.
    pub burst: u32,
    /// Of so many replies over the limit one is sent empty with TC set, the others are dropped; 0: all are dropped.
    pub slip: u8,
    /// Length of a client's prefix over IPv4, bits.
    pub prefix_v4: u8,
    /// The same over IPv6, bits; 64 at most.
    pub prefix_v6: u8,
    /// Clients that are never limited.
    pub allow: Prefixes,
}

impl Rules {
    /// Whether a client is never limited.
    #[inline]
    pub fn allows(&self, client: Address) -> bool {
        match client {
            Address::V4(address) => self.allow.holds_v4(address),
            Address::V6(address) => self.allow.holds_v6(address),
        }
    }

    /// A client's prefix, as a number that no other prefix has.
    #[inline]
    fn prefix(&self, client: Address) -> u64 {
        match client {
            Address::V4(address) => {
                let spare = u32::MAX.checked_shr(self.prefix_v4.into()).unwrap_or(0);
                u64::from(u32::from_be_bytes(address) & !spare)
            }
            Address::V6(address) => {
                let spare = u64::MAX.checked_shr(self.prefix_v6.into()).unwrap_or(0);
                // Whatever is routed has bits above the lower 32.
                (u128::from_be_bytes(address) >> 64) as u64 & !spare
            }
        }
    }
}

/// What a reply counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Account {
    /// An answer, by the hash of the name asked for, or of the wildcard that gave it.
    Answer = 1,
    /// No such type, by the same.
    Nodata = 2,
    /// No such name, by zone.
    Nxdomain = 3,
    /// A referral, by the cut.
    Referral = 4,
    /// Any error: all together.
    Error = 5,
}

/// What becomes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It is sent.
    Send,
    /// An empty one is sent instead, with TC set: a real client comes back over TCP.
    Slip,
    /// Nothing is sent.
    Drop,
}

/// A worker's side: the buckets, and the rules in the worker's own ticks.
#[derive(Debug)]
pub struct RateLimit {
    buckets: Buckets,
    /// Secret words that keys are hashed with.
    seed: [u64; 2],
    rate: TickRate,
    workers: u32,
}

impl RateLimit {
    /// The state of one of `workers` workers. All memory that it will ever use is allocated here.
    pub fn new(workers: u32, rate: TickRate, seed: [u64; 2]) -> Self {
        Self {
            buckets: Buckets::new(),
            seed,
            rate,
            workers: workers.max(1),
        }
    }

    /// Takes the rules of a snapshot that was just adopted. Buckets stay as they are.
    pub fn adopt(&mut self, rules: Option<&Rules>) {
        let Some(rules) = rules else { return };
        let ticks = self.rate.hz() * f64::from(self.workers) / f64::from(rules.per_second.max(1));
        // Rounded down, so that the rate is reached; a share below one reply still lets one through.
        let burst = (rules.burst / self.workers).max(1);
        self.buckets.set((ticks as u64).max(1), burst, rules.slip);
    }

    /// Decides on a reply to `client`: `name` is what tells accounts of one kind apart.
    #[inline]
    pub fn pass(&mut self, rules: &Rules, client: Address, account: Account, name: u64, now: Ticks) -> Pass {
        let [s0, s1] = self.seed;
        let what = name ^ (account as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Both factors hold a secret, so nobody can choose keys that meet.
        let product = u128::from(rules.prefix(client) ^ s0) * u128::from(what ^ s1);
        let key = product as u64 ^ (product >> 64) as u64;
        self.buckets.take(key, now)
    }
}

#[cfg(test)]
mod tests;
