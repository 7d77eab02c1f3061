//! How snapshots and words reach a worker, and how retired snapshots come back.
//!
//! [`Deliverer`] is control's half, [`Adopter`] the worker's; three rings join them: snapshots and words
//! down, retired snapshots up. Separate rings, so that a word never waits behind a snapshot that cannot be
//! adopted yet. Both halves together keep these promises; `dataplane/loom` checks them on this very file.
//!
//! * The worker neither waits nor drops a snapshot: the old one goes up, or into a one-slot holder while
//!   the ring is full, and until the holder is empty no newer one is adopted.
//! * Control loses nothing: it keeps the newest undelivered snapshot and the newest undelivered value of
//!   each word target, and tries again. So published = adopted + superseded, adopted = retired + 1.
//! * Words are absolute values on slot ids that stay through snapshots: among targets their order never
//!   matters, and per target the newest wins and never gives way to an older one.
//! * A word set before a snapshot was published takes effect no later than that snapshot, so a new
//!   member's state is known when its first plan is. (The other way round is not promised: reuse a slot id
//!   only when every worker's generation is past the last snapshot that named it.)

use super::spsc::{Consumer, Producer, ring};
use super::sync::Arc;
use crate::arch::Ticks;
use std::collections::{HashMap, VecDeque, hash_map::Entry};

/// What a word is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WordTarget {
    /// 64 member slots, from `64 * index` on.
    Members(u32),
    /// The site of that index.
    Site(u32),
    /// What time it is, as `clock::clock_word` writes it.
    Clock,
}

/// The value of a word: machine words of bits, whose meaning `tables::words` gives.
pub type WordValue = [u64; 6];

/// A small change that must not wait for a snapshot: the whole new value of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Whose value it is.
    pub target: WordTarget,
    /// The value; what it means is for the tables to say.
    pub value: WordValue,
    /// When control decided it.
    pub published_at: Ticks,
}

/// A snapshot on its way.
struct Snapshot<S> {
    tables: Arc<S>,
    generation: u64,
    published_at: Ticks,
    /// Words, counted from the first one sent, that must be taken before this is adopted.
    words_before: u64,
}

/// Slots of each ring of one link; rounded up to powers of two.
#[derive(Clone, Copy, Debug)]
pub struct DeliverySlots {
    /// Snapshots on their way. 1 is best: a second one would be adopted just to be replaced.
    pub snapshots: usize,
    /// Words on their way. A burst of changes beyond this goes in several turns.
    pub words: usize,
    /// Retired snapshots on their way back. Fewer than 2 fill the holder in ordinary use.
    pub retired: usize,
}

impl Default for DeliverySlots {
    fn default() -> Self {
        Self {
            snapshots: 1,
            words: 1024,
            retired: 8,
        }
    }
}

/// The two halves of one worker's delivery.
pub fn delivery<S>(slots: DeliverySlots) -> (Adopter<S>, Deliverer<S>) {
    let (snapshots_in, snapshots_out) = ring(slots.snapshots);
    let (words_in, words_out) = ring(slots.words);
    let (retired_in, retired_out) = ring(slots.retired);
    let adopter = Adopter {
        current: None,
        snapshots: snapshots_out,
        words: words_out,
        retired: retired_in,
        holder: None,
        counts: AdopterCounts::default(),
    };
    let deliverer = Deliverer {
        snapshots: snapshots_in,
        words: words_in,
        retired: retired_out,
        pending: None,
        dirty: HashMap::new(),
        order: VecDeque::new(),
        counts: DelivererCounts::default(),
    };
    (adopter, deliverer)
}

/// What a worker has done with what it was sent, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdopterCounts {
    /// Snapshots adopted.
    pub adopted: u64,
    /// Snapshots handed back, so no longer in the holder.
    pub retired: u64,
    /// Words taken.
    pub words_taken: u64,
    /// Generation of the snapshot in use; 0 before the first.
    pub generation: u64,
}

/// What one [`Adopter::take`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Words given to the callback.
    pub words: u32,
    /// When the snapshot adopted in this turn was published, if one was.
    pub adopted: Option<Ticks>,
    /// Snapshots handed back, 0 to 2.
    pub retired: u32,
}

/// The worker's half. Never waits, never allocates or frees.
///
/// Let the worker's thread return it and drop it in control: it owns the snapshot in use.
pub struct Adopter<S> {
    current: Option<Snapshot<S>>,
    snapshots: Consumer<Option<Snapshot<S>>>,
    words: Consumer<Option<Word>>,
    retired: Producer<Option<Arc<S>>>,
    /// The one retired snapshot that found the ring full.
    holder: Option<Arc<S>>,
    counts: AdopterCounts,
}

impl<S> Adopter<S> {
    /// The snapshot in use; `None` until the first one came.
    #[inline(always)]
    pub fn current(&self) -> Option<&S> {
        self.current.as_ref().map(|snapshot| &*snapshot.tables)
    }

    /// Its generation; 0 until the first one came.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.counts.generation
    }

    /// What was done so far.
    pub fn counts(&self) -> AdopterCounts {
        self.counts
    }

    /// One housekeeping turn: hands back what it holds, gives up to `words_max` words to `on_word`, oldest
    /// first, and adopts at most one snapshot.
    pub fn take(&mut self, words_max: u32, mut on_word: impl FnMut(Word)) -> Taken {
        let mut taken = Taken::default();
        taken.retired += u32::from(self.hand_back());
        while taken.words < words_max
            && let Some(word) = self.words.pop()
        {
            taken.words += 1;
            on_word(word);
        }
        self.counts.words_taken += u64::from(taken.words);
        if self.holder.is_none()
            && self
                .snapshots
                .peek(|next| words_before(next) <= self.counts.words_taken)
                == Some(true)
            && let Some(next) = self.snapshots.pop()
        {
            taken.adopted = Some(next.published_at);
            self.counts.adopted += 1;
            self.counts.generation = next.generation;
            self.holder = self.current.replace(next).map(|old| old.tables);
            taken.retired += u32::from(self.hand_back());
        }
        taken
    }

    /// Moves the holder's snapshot up; false when there is none or the ring is full.
    #[inline]
    fn hand_back(&mut self) -> bool {
        let Some(old) = self.holder.take() else {
            return false;
        };
        match self.retired.push(old) {
            Ok(()) => {
                self.counts.retired += 1;
                true
            }
            Err(old) => {
                self.holder = Some(old);
                false
            }
        }
    }
}

fn words_before<S>(next: &Option<Snapshot<S>>) -> u64 {
    next.as_ref().map_or(0, |snapshot| snapshot.words_before)
}

/// What control has sent to one worker and got back, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelivererCounts {
    /// Snapshots published.
    pub published: u64,
    /// Snapshots replaced by a newer one before they were sent.
    pub superseded: u64,
    /// Retired snapshots collected.
    pub collected: u64,
    /// Newest generation published.
    pub generation: u64,
    /// Words set.
    pub words_set: u64,
    /// Words replaced by a newer value of their target before they were sent.
    pub words_superseded: u64,
    /// Words sent.
    pub words_sent: u64,
}

/// What one [`Deliverer::pump`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Retired snapshots collected.
    pub collected: u64,
    /// Words sent.
    pub words: u64,
    /// Whether a snapshot was sent.
    pub snapshot: bool,
    /// Whether something is still to be sent: pump again soon.
    pub undelivered: bool,
}

/// Control's half. Never loses a state; drops no snapshot but hands each one out to be freed.
pub struct Deliverer<S> {
    snapshots: Producer<Option<Snapshot<S>>>,
    words: Producer<Option<Word>>,
    retired: Consumer<Option<Arc<S>>>,
    /// The newest snapshot not sent yet.
    pending: Option<Snapshot<S>>,
    /// The newest value not sent yet of each target: as many as there are targets at most.
    dirty: HashMap<WordTarget, Word>,
    /// The targets in `dirty`, in the order in which they became so.
    order: VecDeque<WordTarget>,
    counts: DelivererCounts,
}

impl<S> Deliverer<S> {
    /// Takes in a snapshot for the next [`Deliverer::pump`] that finds room. Gives back the one that it
    /// supersedes, or `tables` itself when `generation` is not above every earlier one.
    #[must_use = "the superseded snapshot, to be freed"]
    pub fn publish(&mut self, tables: Arc<S>, generation: u64, now: Ticks) -> Option<Arc<S>> {
        self.counts.published += 1;
        if generation <= self.counts.generation {
            self.counts.superseded += 1;
            return Some(tables);
        }
        self.counts.generation = generation;
        // Words go in the order of `order`, and a newer value keeps its target's place there: once this
        // many were taken, all that is dirty now has arrived.
        let words_before = self.counts.words_sent + self.order.len() as u64;
        let older = self.pending.replace(Snapshot {
            tables,
            generation,
            published_at: now,
            words_before,
        })?;
        self.counts.superseded += 1;
        Some(older.tables)
    }

    /// Takes in a word for the next [`Deliverer::pump`] that finds room.
    pub fn set_word(&mut self, target: WordTarget, value: WordValue, now: Ticks) {
        self.counts.words_set += 1;
        let word = Word {
            target,
            value,
            published_at: now,
        };
        match self.dirty.entry(target) {
            Entry::Occupied(mut older) => {
                older.insert(word);
                self.counts.words_superseded += 1;
            }
            Entry::Vacant(free) => {
                free.insert(word);
                self.order.push_back(target);
            }
        }
    }

    /// Collects retired snapshots, each to `free`, and sends what there is room for. Never waits.
    pub fn pump(&mut self, mut free: impl FnMut(Arc<S>)) -> Pumped {
        let mut pumped = Pumped::default();
        // Bounded, or a worker that is fast enough could keep us here.
        for _ in 0..self.retired.capacity() {
            let Some(old) = self.retired.pop() else { break };
            pumped.collected += 1;
            free(old);
        }
        for _ in 0..self.words.capacity() {
            if self.order.is_empty() || !self.words.has_room() {
                break;
            }
            let word = self
                .order
                .pop_front()
                .and_then(|target| self.dirty.remove(&target));
            if let Some(word) = word
                && self.words.push(word).is_ok()
            {
                pumped.words += 1;
            }
        }
        if let Some(next) = self.pending.take() {
            match self.snapshots.push(next) {
                Ok(()) => pumped.snapshot = true,
                Err(next) => self.pending = Some(next),
            }
        }
        self.counts.collected += pumped.collected;
        self.counts.words_sent += pumped.words;
        pumped.undelivered = self.pending.is_some() || !self.order.is_empty();
        pumped
    }

    /// What was done so far.
    pub fn counts(&self) -> DelivererCounts {
        self.counts
    }
}

/// Both halves' counts side by side, and the laws between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Control's half.
    pub control: DelivererCounts,
    /// The worker's half.
    pub worker: AdopterCounts,
}

impl Ledger {
    /// Snapshots published and neither adopted nor superseded yet. A worker's counts may be read a turn
    /// late, so while things move this may be too high, never too low.
    pub fn snapshots_in_flight(&self) -> u64 {
        self.control
            .published
            .saturating_sub(self.control.superseded)
            .saturating_sub(self.worker.adopted)
    }

    /// Words set and neither taken nor superseded yet; as exact as the snapshots.
    pub fn words_in_flight(&self) -> u64 {
        self.control
            .words_set
            .saturating_sub(self.control.words_superseded)
            .saturating_sub(self.worker.words_taken)
    }

    /// Nothing is under way in either direction.
    pub fn at_rest(&self) -> bool {
        self.snapshots_in_flight() == 0
            && self.words_in_flight() == 0
            && self.control.collected + u64::from(self.worker.adopted > 0) == self.worker.adopted
    }

    /// The laws that hold at rest: published = adopted + superseded, adopted = retired + 1 (0 before the
    /// first), all retired collected, words set = taken + superseded, and the worker uses the newest
    /// generation. `Err` names the one that does not hold, with its terms.
    pub fn check_at_rest(&self) -> Result<(), String> {
        let Self {
            control: c,
            worker: w,
        } = self;
        let current = u64::from(w.adopted > 0);
        let laws = [
            (
                "published = adopted + superseded",
                c.published,
                w.adopted + c.superseded,
            ),
            ("adopted = retired + 1", w.adopted, w.retired + current),
            ("retired = collected", w.retired, c.collected),
            (
                "words set = taken + superseded",
                c.words_set,
                w.words_taken + c.words_superseded,
            ),
            ("words sent = taken", c.words_sent, w.words_taken),
            ("generation published = in use", c.generation, w.generation),
        ];
        match laws.into_iter().find(|(_, left, right)| left != right) {
            None => Ok(()),
            Some((law, left, right)) => {
                Err(format!("{law} does not hold: {left} against {right} in {self:?}"))
            }
        }
    }
}
