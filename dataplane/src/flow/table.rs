//! The table: buckets of one index line and seven entries, in memory of its own, fixed in size.
//!
//! A flow stands in its home bucket or, when that was full, as a guest in one other; a lookup reads one index line,
//! seldom two, and one entry. The index line also knows which flows proved themselves (traffic that answers had
//! caused) and which were seen lately, so ageing and eviction read no entry. Index lines lie apart from entries, side by side:
//! in steps of a bucket they would crowd into an eighth of the sets of every cache.
//!
//! **Flood rule.** When both buckets are full, a new flow takes the place of an idle unproven one; else a flow of its home
//! moves to that one's second bucket, if there is room; else it takes the place of any unproven flow, else of an idle
//! proven one, else it is refused. Busy proven flows outlive any flood of new ones.

use super::{Entry, Key, Moment, Span};
use crate::arch::{self, Base, Line, Vectors, WORD_OF_BIT};
use crate::mmap::{Pages, Shares, Table};
use crate::zeroable;
use std::io;

/// Flows of a bucket: with the index line they make eight cache lines.
pub const WAYS: usize = 7;
/// Slots for each flow that the table is made for, in tenths: with 13 nearly none has to be evicted at that number.
const SLOTS_TENTHS: usize = 13;
/// Bits that stand for all ways.
const ALL: u64 = (1 << WAYS) - 1;

/// Bytes of one bucket.
const BUCKET: usize = size_of::<Index>() + WAYS * size_of::<Entry>();
// All in: a flow takes no more than 96 bytes of a table that is as full as it is made for.
const _: () = assert!(BUCKET == 512 && BUCKET * SLOTS_TENTHS <= 96 * WAYS * 10);

/// Seven tags, in the order that they are compared in ([`WORD_OF_BIT`]), then the marks: bytes of one bit a way, from the
/// lowest on.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Index {
    line: Line,
}

zeroable!(Index { line });

const _: () = assert!(size_of::<Index>() == 64);

/// Holds a flow.
const USED: u32 = 0;
/// Its estimator has seen an answer.
const PROVEN: u32 = 8;
/// Seen since the sweep last came by.
const RECENT: u32 = 16;
/// Seen in the turn of the sweep before.
const BEFORE: u32 = 24;
/// At home in the other bucket.
const GUEST: u32 = 32;
/// A number, not bits: flows at home here that stand elsewhere; stays at 255 once there.
const AWAY: u32 = 40;

/// The marks of way 0.
const EVERY_MARK: u64 = 1 << USED | 1 << PROVEN | 1 << RECENT | 1 << BEFORE | 1 << GUEST;

/// One of the bytes.
#[inline(always)]
const fn marks(word: u64, mark: u32) -> u64 {
    word >> mark & 0xff
}

impl Index {
    #[inline(always)]
    fn marks(&self) -> u64 {
        let Line([.., marks]) = self.line;
        marks
    }

    #[inline(always)]
    fn marks_mut(&mut self) -> &mut u64 {
        let Line([.., marks]) = &mut self.line;
        marks
    }

    /// The tag of a way.
    #[inline(always)]
    fn tag(&mut self, way: u32) -> Option<&mut u64> {
        self.line.0.get_mut(*WORD_OF_BIT.get(way as usize)?)
    }
}

/// Where a flow stands, as found, or nowhere. Good until flows are created or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// No flow was found.
    pub const NOWHERE: Self = Self(u32::MAX);

    /// Of the first entry: a value that is not nowhere.
    pub const FIRST: Self = Self(0);

    /// True when all of them were found.
    #[inline(always)]
    pub fn are_found(places: &[Self]) -> bool {
        // No place of a flow has the highest bit. By or, which is done for several at once.
        places.iter().fold(0, |all, place| all | place.0) >> 31 == 0
    }

    #[inline(always)]
    const fn new(bucket: usize, way: u32) -> Self {
        Self((bucket * WAYS) as u32 + way)
    }

    /// Number of the entry.
    #[inline(always)]
    const fn line(self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    const fn bucket(self) -> usize {
        self.0 as usize / WAYS
    }

    #[inline(always)]
    const fn way(self) -> u32 {
        self.0 % WAYS as u32
    }

    /// True when a flow was found.
    #[inline(always)]
    pub const fn is_found(self) -> bool {
        self.0 != Self::NOWHERE.0
    }
}

/// Buckets at most, so that every place has a number.
const BUCKETS_MAX: usize = 1 << 28;
const _: () = assert!(BUCKETS_MAX * WAYS < 1 << 31 && Place::NOWHERE.0 >> 31 == 1);

/// What the table has counted since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Flows created.
    pub created: u64,
    /// Flows that aged out.
    pub expired: u64,
    /// Flows that gave way to a new one.
    pub evicted: u64,
    /// New flows for which nobody gave way.
    pub refused: u64,
}

/// The second bucket of a flow that has `bucket` as one of its two: the same rule leads back, and the tag, which
/// the index holds, is all that it takes.
#[inline(always)]
fn other(tag: u64, bucket: usize, len: usize) -> usize {
    let sum = (((tag & 0xffff_ffff) * len as u64) >> 32) as usize + len - bucket;
    if sum >= len { sum - len } else { sum }
}

/// The first two steps over a burst. Borrows what it needs, so that it stays in registers.
pub struct Lookup<'a> {
    indexes: Shares<'a, Index>,
    entries: &'a [Entry],
}

impl Lookup<'_> {
    /// First step: asks for the index line of a flow's home.
    #[inline(always)]
    pub fn prefetch(&self, key: &Key) {
        self.indexes.prefetch(key.place);
    }

    /// Second step: where the flow stands, if the table has it. Marks it as seen, and asks for its entry.
    #[inline(always)]
    pub fn find(&mut self, key: &Key, vectors: impl Vectors) -> Place {
        let (home, index) = self.indexes.get(key.place);
        let equal = u64::from(vectors.equal_longs(&index.line, key.tag));
        let word = index.marks();
        const { assert!(WORD_OF_BIT[WAYS] == WAYS && USED == 0) };
        // Used, and seen already: as nearly all are. The eighth word is no tag, and the eighth bit of each mark is never set.
        let matching = equal & word & word >> RECENT;
        if matching == 0 {
            return find_other(self.indexes.all(), self.entries, key, home, equal & word);
        }
        found(self.entries, home, matching)
    }
}

/// Of a flow that was not seen lately, which is at `ways` of its home, or of one that is elsewhere.
#[cold]
#[inline(never)]
fn find_other(indexes: &mut [Index], entries: &[Entry], key: &Key, home: usize, ways: u64) -> Place {
    let Some(index) = indexes.get_mut(home) else {
        return Place::NOWHERE;
    };
    if ways != 0 {
        // Not written when it is set already: a line that is only read need not go back to memory.
        *index.marks_mut() |= ways << RECENT;
        return found(entries, home, ways);
    }
    match marks(index.marks(), AWAY) {
        0 => Place::NOWHERE,
        _ => find_away(indexes, entries, key, home),
    }
}

fn find_away(indexes: &mut [Index], entries: &[Entry], key: &Key, home: usize) -> Place {
    let other = other(key.tag, home, indexes.len());
    let Some(index) = indexes.get_mut(other) else {
        return Place::NOWHERE;
    };
    let equal = u64::from(Base.equal_longs(&index.line, key.tag));
    let matching = equal & index.marks() & marks(index.marks(), GUEST);
    if matching == 0 {
        return Place::NOWHERE;
    }
    *index.marks_mut() |= matching << RECENT;
    found(entries, other, matching)
}

#[inline(always)]
fn found(entries: &[Entry], bucket: usize, matching: u64) -> Place {
    let place = Place::new(bucket, matching.trailing_zeros());
    arch::prefetch_entry(entries, place.line());
    place
}

/// The flows of one worker.
#[derive(Debug)]
pub struct FlowTable {
    /// One a bucket.
    indexes: Table<Index>,
    /// Those of the first bucket, of the second, and so on.
    entries: Table<Entry>,
    flows: u64,
    tallies: Tallies,
    sweep: Sweep,
}

/// The hand that goes round the buckets, once in `period`.
#[derive(Debug)]
struct Sweep {
    period: Span,
    at: usize,
    /// When the buckets that are due were last worked out; none before the first time.
    last: Option<Moment>,
    /// Parts of a bucket that are due: numerator over `period`.
    rest: u64,
}

impl FlowTable {
    /// Idle time that a table takes at most: moments wrap after twice that and some.
    pub const IDLE_MAX: Span = Span::millis(240_000);

    /// A table for `flows` flows, 7 to about 250 million. Flows are forgotten when nothing came for `idle` to one
    /// and a half times that ([`FlowTable::IDLE_MAX`] at most), unproven ones for half of it to all of it.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn new(flows: usize, idle: Span) -> io::Result<Self> {
        let buckets = (flows.saturating_mul(SLOTS_TENTHS) / 10).div_ceil(WAYS);
        let buckets = buckets.clamp(2, BUCKETS_MAX);
        let mut indexes = Table::zeroed(buckets)?;
        let mut entries = Table::zeroed(buckets * WAYS)?;
        indexes.populate();
        entries.populate();
        Ok(Self {
            indexes,
            entries,
            flows: 0,
            tallies: Tallies::default(),
            sweep: Sweep {
                period: Span(idle.min(Self::IDLE_MAX).0 / 2).max(Span(1)),
                at: 0,
                last: None,
                rest: 0,
            },
        })
    }

    /// Flows that it holds.
    pub fn len(&self) -> u64 {
        self.flows
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// Places for flows.
    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.indexes.bytes() + self.entries.bytes()
    }

    /// Whether it got huge pages for its entries.
    pub fn pages(&self) -> Pages {
        self.entries.pages()
    }

    /// What was counted since start.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    #[inline(always)]
    fn other(&self, tag: u64, bucket: usize) -> usize {
        other(tag, bucket, self.indexes.len())
    }

    /// What the first two steps over a burst work with.
    #[inline(always)]
    pub fn lookup(&mut self) -> Option<Lookup<'_>> {
        Some(Lookup {
            indexes: Shares::of(&mut self.indexes)?,
            entries: &self.entries,
        })
    }

    /// Both steps for one flow.
    pub fn find(&mut self, key: Key) -> Place {
        let lookup = self.lookup();
        lookup.map_or(Place::NOWHERE, |mut lookup| lookup.find(&key, Base))
    }

    /// Last step: what is kept of the flow that was found there; none nowhere.
    #[inline(always)]
    pub fn entry(&mut self, place: Place) -> Option<&mut Entry> {
        self.entries.get_mut(place.line())
    }

    /// True while that flow stands there.
    pub fn is_at(&self, place: Place, key: Key) -> bool {
        let Some(mut index) = self.indexes.get(place.bucket()).copied() else {
            return false;
        };
        let is_used = marks(index.marks(), USED) >> place.way() & 1 == 1;
        is_used && index.tag(place.way()).is_some_and(|tag| *tag == key.tag)
    }

    /// The flow that stands there has shown that somebody answers it: no flood can evict it while it is busy.
    #[inline]
    pub fn prove(&mut self, place: Place) {
        if let Some(index) = self.indexes.get_mut(place.bucket()) {
            *index.marks_mut() |= 1 << (place.way() + PROVEN);
        }
    }

    /// The flow that stands there has ended: its place is the first to be taken, and is free at the next sweep if nothing
    /// comes.
    #[inline]
    pub fn close(&mut self, place: Place) {
        if let Some(index) = self.indexes.get_mut(place.bucket()) {
            *index.marks_mut() &= !((1 << PROVEN | 1 << RECENT | 1 << BEFORE) << place.way());
        }
    }

    /// Makes a flow that the table does not have, by the flood rule. None: refused, and counted.
    #[inline(never)]
    pub fn create(&mut self, key: Key, entry: Entry) -> Option<Place> {
        let home = Shares::of(&mut self.indexes)?.index(key.place);
        let other = self.other(key.tag, home);
        let Some((at, way)) = self.room(key, home, other) else {
            self.tallies.refused += 1;
            return None;
        };
        if at != home {
            self.away(home, 1);
        }
        self.flows += 1;
        self.tallies.created += 1;
        let place = Place::new(at, way);
        *self.entries.get_mut(place.line())? = entry;
        let index = self.indexes.get_mut(at)?;
        *index.tag(way)? = key.tag;
        let marks = index.marks_mut();
        *marks &= !(EVERY_MARK << way);
        *marks |= 1 << (way + USED) | 1 << (way + RECENT) | u64::from(at != home) << (way + GUEST);
        Some(place)
    }

    /// A free way in either bucket, made free if need be.
    fn room(&mut self, key: Key, home: usize, other: usize) -> Option<(usize, u32)> {
        let both = [home, other].map(|at| (at, self.indexes.get(at).map_or(0, Index::marks)));
        let first = |ways: fn(u64) -> u64| {
            both.iter()
                .map(|&(at, word)| (at, ways(word) & ALL))
                .find(|&(_, candidates)| candidates != 0)
        };
        if let Some((at, free)) = first(|word| !marks(word, USED)) {
            return Some((at, pick(free, key.tag)));
        }
        let idle_unproven = first(|word| !marks(word, PROVEN) & !marks(word, RECENT));
        if idle_unproven.is_none()
            && let Some(way) = self.make_room(home)
        {
            return Some((home, way));
        }
        let (at, candidates) = idle_unproven
            .or_else(|| first(|word| !marks(word, PROVEN)))
            .or_else(|| first(|word| !marks(word, RECENT) & !marks(word, BEFORE)))?;
        let way = pick(candidates, key.tag);
        self.free(at, way);
        self.tallies.evicted += 1;
        Some((at, way))
    }

    /// Moves a flow of a full bucket to the other one that it may stand in, if there is one with room.
    fn make_room(&mut self, full: usize) -> Option<u32> {
        let mut index = *self.indexes.get(full)?;
        let (way, to, to_way) = (0..WAYS as u32).find_map(|way| {
            let tag = *index.tag(way)?;
            let to = self.other(tag, full);
            let free = !marks(self.indexes.get(to)?.marks(), USED) & ALL;
            (free != 0).then(|| (way, to, free.trailing_zeros()))
        })?;
        let entry = *self.entries.get(Place::new(full, way).line())?;
        *self.entries.get_mut(Place::new(to, to_way).line())? = entry;
        let tag = *index.tag(way)?;
        let marked = index.marks() >> way & EVERY_MARK;
        let was_guest = marked >> GUEST & 1 == 1;
        let there = self.indexes.get_mut(to)?;
        *there.tag(to_way)? = tag;
        *there.marks_mut() |= (marked ^ 1 << GUEST) << to_way;
        *self.indexes.get_mut(full)?.marks_mut() &= !(EVERY_MARK << way);
        // A guest has come home, or one of this home is away.
        match was_guest {
            true => self.away(to, -1),
            false => self.away(full, 1),
        }
        Some(way)
    }

    /// Takes the flow out.
    fn free(&mut self, at: usize, way: u32) {
        let Some(index) = self.indexes.get_mut(at) else {
            return;
        };
        let tag = index.tag(way).map_or(0, |tag| *tag);
        let marks = index.marks_mut();
        let guest = *marks >> (way + GUEST) & 1 == 1;
        *marks &= !(EVERY_MARK << way);
        self.flows = self.flows.saturating_sub(1);
        if guest {
            self.away(self.other(tag, at), -1);
        }
    }

    fn away(&mut self, home: usize, by: i64) {
        let Some(index) = self.indexes.get_mut(home) else {
            return;
        };
        let word = index.marks_mut();
        let count = marks(*word, AWAY);
        // Once at its highest, nobody knows the true number.
        if count < 0xff {
            *word = *word & !(0xff << AWAY) | (count.saturating_add_signed(by) & 0xff) << AWAY;
        }
    }

    /// Forgets flows for which nothing came for long: a few buckets, `most` at most, as many as time asks for.
    pub fn age(&mut self, now: Moment, most: usize) {
        let Some(passed) = self
            .sweep
            .last
            .replace(now)
            .map(|last| now.since(last).unwrap_or_default())
        else {
            return;
        };
        let (len, period) = (self.indexes.len() as u64, u64::from(self.sweep.period.0));
        let due = self.sweep.rest + u64::from(passed.0) * len;
        let turns = (due / period).min(most as u64);
        // What is not done now is still due, up to a whole round.
        self.sweep.rest = (due - turns * period).min(len * period);
        for _ in 0..turns {
            let at = self.sweep.at;
            self.sweep.at = if at + 1 >= self.indexes.len() { 0 } else { at + 1 };
            self.visit(at);
        }
    }

    fn visit(&mut self, at: usize) {
        let Some(index) = self.indexes.get_mut(at) else {
            return;
        };
        let word = index.marks();
        let unseen = marks(word, USED) & !marks(word, RECENT) & ALL;
        let mut stale = unseen & !(marks(word, PROVEN) & marks(word, BEFORE));
        let kept = word & !(0xff << RECENT | 0xff << BEFORE);
        *index.marks_mut() = kept | marks(word, RECENT) << BEFORE;
        while stale != 0 {
            self.free(at, stale.trailing_zeros());
            self.tallies.expired += 1;
            stale &= stale - 1;
        }
    }
}

/// What tests look at.
#[cfg(test)]
impl FlowTable {
    /// The only buckets that a flow may stand in: its home, and the other one.
    pub(super) fn buckets(&mut self, key: Key) -> [usize; 2] {
        let home = Shares::of(&mut self.indexes).map_or(0, |shares| shares.index(key.place));
        [home, self.other(key.tag, home)]
    }

    /// The bucket of a place.
    pub(super) fn bucket(place: Place) -> usize {
        place.bucket()
    }

    /// For each bucket how many flows of it stand elsewhere: by its marks, and by the guests there are.
    pub(super) fn away_and_guests(&self) -> Vec<(u64, u64)> {
        let away = self.indexes.iter().map(|index| (marks(index.marks(), AWAY), 0));
        let mut all: Vec<_> = away.collect();
        for (at, mut index) in self.indexes.iter().copied().enumerate() {
            let guests = marks(index.marks(), USED) & marks(index.marks(), GUEST);
            for way in (0..WAYS as u32).filter(|way| guests >> way & 1 == 1) {
                let tag = index.tag(way).map_or(0, |tag| *tag);
                if let Some((_, guests)) = all.get_mut(self.other(tag, at)) {
                    *guests += 1;
                }
            }
        }
        all
    }
}

/// One of the ways in `candidates`, which is not 0, by bits of the tag.
#[inline]
fn pick(candidates: u64, tag: u64) -> u32 {
    // Rotated, so that the lowest way is not always the first to go.
    let turn = (tag >> 32) as u32 % WAYS as u32;
    let above = candidates >> turn << turn;
    if above != 0 {
        above.trailing_zeros()
    } else {
        candidates.trailing_zeros()
    }
}
