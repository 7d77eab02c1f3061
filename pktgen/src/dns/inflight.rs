//! Queries on their way: a fixed table that pairs replies with queries. Owned by the engine.
//!
//! A query's slot is a running number modulo the table's size, and the message ID and the upper bits
//! of the source port *are* that slot, so that a reply finds its query without a search; the slot's
//! record (random port bits, client) must agree. Slots age in order, so that expiry is a finger that moves.
//! Nothing grows: when the finger is caught up with, the oldest query is given up (`evicted`).

/// Smallest and largest number of slots, as powers of two. The ID takes 16 bits of the slot's
/// number, and six of the port's 15 free bits the rest; nine stay random.
const BITS: core::ops::RangeInclusive<u32> = 16..=22;
/// Source ports are 32768 to 65535.
const PORT_BASE: u16 = 0x8000;
const PORT_BITS: u32 = 15;

/// What a reply is addressed by, all of it chosen by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// DNS message ID.
    pub id: u16,
    /// Source port of the query.
    pub port: u16,
    /// Source address of the query, as an index into the source prefix.
    pub client: u32,
}

/// What is known of a query that waits, or waited, for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds since it was due.
    pub age: u64,
    /// Which template it was made from.
    pub template: u32,
}

/// The state of the query that a reply's key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It waits for this reply. Accept it with [`InFlight::settle`].
    Waiting(Slot, Entry),
    /// It was answered before.
    Answered,
    /// It was given up before.
    GivenUp,
    /// No query of this table's memory has that key.
    Unknown,
}

/// Handle of a slot that waits; only good until the next query is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// States of a record.
const NEVER: u64 = 0;
const WAITING: u64 = 1;
const ANSWERED: u64 = 2;
const GIVEN_UP: u64 = 3;
const STATE: u64 = 3;
/// Where the port's free bits and the time stand in a record's word: two bits of state, 15 of port, and 47
/// of nanoseconds, which come round after 39 hours; ages are shorter than the day that a timeout may be.
const PORT_SHIFT: u32 = 2;
const DUE_SHIFT: u32 = PORT_SHIFT + PORT_BITS;

/// 16 bytes, as flat out the whole table streams through the caches.
#[derive(Clone, Copy, Debug)]
struct Record {
    word: u64,
    client: u32,
    template: u32,
}

const _: () = assert!(size_of::<Record>() == 16);

impl Record {
    #[inline]
    fn state(&self) -> u64 {
        self.word & STATE
    }

    #[inline]
    fn set_state(&mut self, state: u64) {
        self.word = self.word & !STATE | state;
    }

    /// Nanoseconds from when it was due to `now`, which is not before.
    #[inline]
    fn age(&self, now: u64) -> u64 {
        now.wrapping_sub(self.word >> DUE_SHIFT) & (u64::MAX >> DUE_SHIFT)
    }
}

/// The table. See the module's head.
#[derive(Debug)]
pub struct InFlight {
    records: Box<[Record]>,
    /// Bits of the port that stay random.
    random_bits: u32,
    random_mask: u16,
    /// Number of the next query, and of the oldest that may still wait.
    next: u64,
    oldest: u64,
    /// Nanoseconds after which a query is given up.
    timeout: u64,
    /// The ID is the slot's low 16 bits times `factor` plus `offset`: every ID once in 65,536 queries.
    factor: u16,
    inverse: u16,
    offset: u16,
}

impl InFlight {
    /// A table that holds at least `capacity` queries (within 65,536 and 4,194,304), each for
    /// `timeout` nanoseconds. `seed` varies the order of IDs.
    pub fn new(capacity: u64, timeout: u64, seed: u64) -> Self {
        let bits = capacity
            .max(1)
            .next_power_of_two()
            .trailing_zeros()
            .clamp(*BITS.start(), *BITS.end());
        let empty = Record {
            word: NEVER,
            client: 0,
            template: 0,
        };
        let factor = (seed as u16) | 1;
        Self {
            records: vec![empty; 1 << bits].into_boxed_slice(),
            random_bits: PORT_BITS + 16 - bits,
            random_mask: (1 << (PORT_BITS + 16 - bits)) - 1,
            next: 0,
            oldest: 0,
            timeout,
            factor,
            inverse: inverse(factor),
            offset: (seed >> 16) as u16,
        }
    }

    /// Slots.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Queries that may still wait: those since the oldest not given up.
    pub fn span(&self) -> u64 {
        self.next - self.oldest
    }

    /// Enters a query due at `due`; `salt` gives the port its random bits. Returns the ID and port to
    /// send it with, and whether an older query had to be given up for it.
    #[inline]
    pub fn open(&mut self, due: u64, client: u32, template: u32, salt: u16) -> (Key, bool) {
        let evicted = self.span() == self.records.len() as u64 && self.give_up_oldest();
        let slot = self.slot(self.next);
        let high = (slot >> 16) as u16;
        let free = (high << self.random_bits) | (salt & self.random_mask);
        let id = (slot as u16).wrapping_mul(self.factor).wrapping_add(self.offset);
        if let Some(record) = self.records.get_mut(slot) {
            let word = due << DUE_SHIFT | u64::from(free) << PORT_SHIFT | WAITING;
            *record = Record {
                word,
                client,
                template,
            };
        }
        let port = PORT_BASE | free;
        self.next += 1;
        (Key { id, port, client }, evicted)
    }

    /// Takes back the newest query, which never left; true when it had been given up already.
    pub fn retract(&mut self) -> bool {
        let Some(newest) = self.next.checked_sub(1) else {
            return false;
        };
        self.next = newest;
        self.oldest = self.oldest.min(newest);
        let slot = self.slot(newest);
        let Some(record) = self.records.get_mut(slot) else {
            return false;
        };
        let given_up = record.state() == GIVEN_UP;
        record.set_state(NEVER);
        given_up
    }

    /// What a reply with this key, seen at `now`, answers.
    #[inline]
    pub fn find(&self, key: Key, now: u64) -> Found {
        let Some(free) = key.port.checked_sub(PORT_BASE) else {
            return Found::Unknown;
        };
        let low = key.id.wrapping_sub(self.offset).wrapping_mul(self.inverse);
        let slot = (usize::from(free >> self.random_bits) << 16) | usize::from(low);
        let Some(record) = self.records.get(slot) else {
            return Found::Unknown;
        };
        let port = record.word >> PORT_SHIFT & ((1 << PORT_BITS) - 1);
        if record.client != key.client || port != u64::from(free) {
            return Found::Unknown;
        }
        match record.state() {
            WAITING => {
                let age = record.age(now);
                Found::Waiting(
                    Slot(slot),
                    Entry {
                        age,
                        template: record.template,
                    },
                )
            }
            ANSWERED => Found::Answered,
            GIVEN_UP => Found::GivenUp,
            _ => Found::Unknown,
        }
    }

    /// Marks a waiting query as answered.
    #[inline]
    pub fn settle(&mut self, slot: Slot) {
        if let Some(record) = self.records.get_mut(slot.0) {
            record.set_state(ANSWERED);
        }
    }

    /// Gives up queries whose time is over at `now`, `at_most` slots a call; returns how many were lost.
    #[inline]
    pub fn expire(&mut self, now: u64, at_most: usize) -> u64 {
        let mut lost = 0;
        for _ in 0..at_most {
            if self.oldest == self.next {
                break;
            }
            let slot = self.slot(self.oldest);
            let Some(record) = self.records.get_mut(slot) else {
                break;
            };
            if record.state() == WAITING {
                if record.age(now) < self.timeout {
                    break;
                }
                record.set_state(GIVEN_UP);
                lost += 1;
            }
            self.oldest += 1;
        }
        lost
    }

    /// Moves the finger on by one; true when that query still waited.
    fn give_up_oldest(&mut self) -> bool {
        let slot = self.slot(self.oldest);
        self.oldest += 1;
        match self.records.get_mut(slot) {
            Some(record) if record.state() == WAITING => {
                record.set_state(GIVEN_UP);
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.records.len() - 1)
    }
}

/// The inverse of an odd number modulo 65,536, by Newton's iteration (each step doubles the right bits;
/// an odd number is its own inverse in the lowest three).
fn inverse(odd: u16) -> u16 {
    let mut x = odd;
    for _ in 0..3 {
        x = x.wrapping_mul(2u16.wrapping_sub(odd.wrapping_mul(x)));
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn waiting(table: &InFlight, key: Key) -> (Slot, Entry) {
        match table.find(key, 1_000) {
            Found::Waiting(slot, entry) => (slot, entry),
            other => panic!("{key:?}: {other:?}"),
        }
    }

    #[test]
    fn every_key_in_flight_is_different() {
        let mut table = InFlight::new(1 << 17, 1, 0x1234_5678_9abc_def0);
        let keys: HashSet<_> = (0..1 << 17)
            .map(|n| table.open(n, 0, 0, 0).0)
            .map(|k| (k.id, k.port))
            .collect();
        assert_eq!(keys.len(), 1 << 17);
        let ids: HashSet<_> = keys.iter().map(|k| k.0).collect();
        assert_eq!(ids.len(), 1 << 16);
    }

    #[test]
    fn answered_duplicate_late_unknown() {
        let mut table = InFlight::new(1, 100, 7);
        let (a, _) = table.open(10, 3, 5, 77);
        let (b, _) = table.open(20, 4, 6, 78);
        let (slot, entry) = waiting(&table, a);
        assert_eq!(
            entry,
            Entry {
                age: 990,
                template: 5
            }
        );
        table.settle(slot);
        assert_eq!(table.find(a, 1_000), Found::Answered);
        assert_eq!(table.expire(119, usize::MAX), 0);
        assert_eq!(table.expire(120, usize::MAX), 1);
        assert_eq!(table.find(a, 1_000), Found::Answered);
        assert_eq!(table.find(b, 1_000), Found::GivenUp);
        for wrong in [
            Key { id: b.id ^ 1, ..b },
            Key {
                port: b.port ^ 1,
                ..b
            },
            Key { client: 5, ..b },
            Key { port: 53, ..b },
        ] {
            assert_eq!(table.find(wrong, 0), Found::Unknown, "{wrong:?}");
        }
    }

    #[test]
    fn full_table_gives_up_the_oldest() {
        let mut table = InFlight::new(1 << 16, u64::MAX / 2, 1);
        let first = table.open(0, 9, 0, 0).0;
        for n in 1..1 << 16 {
            assert!(!table.open(n, 0, 0, 0).1);
        }
        waiting(&table, first);
        assert!(table.open(1 << 16, 0, 0, 0).1);
        assert_eq!(table.find(first, 1_000), Found::Unknown);
    }

    #[test]
    fn retracted_queries_never_were() {
        let mut table = InFlight::new(1, 5, 1);
        let key = table.open(0, 0, 0, 0).0;
        assert!(!table.retract());
        assert_eq!(table.find(key, 1_000), Found::Unknown);
        assert_eq!((table.expire(1_000, usize::MAX), table.span()), (0, 0));
        assert_eq!(table.open(0, 0, 0, 0).0, key);
        assert_eq!(table.expire(5, usize::MAX), 1);
        assert!(table.retract());
        assert_eq!((table.find(key, 1_000), table.span()), (Found::Unknown, 0));
    }

    #[test]
    fn time_may_come_round() {
        let before = (1 << 47) - 5;
        let mut table = InFlight::new(1, 100, 7);
        let key = table.open(before, 1, 2, 3).0;
        let entry = Entry { age: 30, template: 2 };
        assert!(matches!(table.find(key, before + 30), Found::Waiting(_, e) if e == entry));
        assert_eq!(
            (table.expire(before + 99, 9), table.expire(before + 100, 9)),
            (0, 1)
        );
    }

    proptest! {
        #[test]
        fn inverses(x: u16) {
            prop_assert_eq!((x | 1).wrapping_mul(inverse(x | 1)), 1);
        }

        /// Replies in any order: each finds its own query once, and the unanswered ones are lost.
        #[test]
        fn any_order(seed: u64, order in Just((0..300u32).collect::<Vec<_>>()).prop_shuffle(), answered in 0usize..300) {
            let mut table = InFlight::new(1 << 18, 1_000, seed);
            let keys: Vec<_> =
                (0..300).map(|n| table.open(u64::from(n), n * 3, n, n as u16 * 7).0).collect();
            for &n in &order[..answered] {
                let (slot, entry) = waiting(&table, keys[n as usize]);
                prop_assert_eq!(entry, Entry { age: 1_000 - u64::from(n), template: n });
                table.settle(slot);
                prop_assert_eq!(table.find(keys[n as usize], 1_000), Found::Answered);
            }
            prop_assert_eq!(table.expire(1_300, usize::MAX), 300 - answered as u64);
            prop_assert_eq!(table.span(), 0);
        }
    }
}
