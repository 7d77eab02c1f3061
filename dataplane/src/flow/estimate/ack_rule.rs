//! The estimator for readable TCP: a request that an answer caused acknowledges that answer.
//!
//! Of the client's data segments, those of one burst acknowledge the same byte; the first segment of the next burst
//! acknowledges more. No learning and no histogram. Segments that move no sequence number forward are repeats or late
//! and say nothing of time; segments without data are acknowledgments, whose last one marks the end of an answer.
//!
//! A guard holds for answers that arrive while a burst is still being sent: a burst starts only after a gap of more than
//! four times the mean of the gaps that came without a new acknowledgment.

use super::super::{Moment, Span};
use super::{Doubts, Kind, Rules, Sample};
use crate::wire::tcp;
use crate::zeroable;

/// What is looked at of one segment from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Bytes of payload.
    pub payload: u16,
    /// Flags.
    pub flags: u8,
}

/// State of one flow, 44 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Tcp {
    /// Arrival of the last segment with new data.
    last: u32,
    /// Arrival of the first segment of this burst; before any data, of the SYN.
    start: u32,
    /// One past the highest byte sent.
    front: u32,
    /// What the first segment of this burst acknowledged.
    base: u32,
    /// The highest byte acknowledged by a segment without data, and when it came first.
    acked: u32,
    acked_at: u32,
    /// Mean of the gaps inside bursts, eightfold.
    inside: u32,
    /// Start of the last hole in the sequence; means something with [`HOLE`].
    hole: u32,
    /// Time from SYN to ACK in units of 64 us; 0: not known.
    handshake: u16,
    /// Payload of the segment that started this burst.
    opener: u16,
    flags: u8,
    /// What is known to speak against this burst, as [`Doubts`]: that parts of it were sent again.
    doubts: u8,
    /// Messages of this burst.
    messages: u8,
    /// Messages of the first burst.
    first: u8,
    /// Bursts in a row of one message each.
    ones: u8,
    /// Window updates that seem to have ended a burst of one message, less two for each other end.
    updates: u8,
    /// Segments in a row that the guard held back.
    held: u8,
    /// Window updates passed over in this burst.
    passed: u8,
}

zeroable!(Tcp {
    last,
    start,
    front,
    base,
    acked,
    acked_at,
    inside,
    hole,
    handshake,
    opener,
    flags,
    doubts,
    messages,
    first,
    ones,
    updates,
    held,
    passed
});

const _: () = assert!(size_of::<Tcp>() == 44);

/// A SYN was seen, and nothing since.
const SYN: u8 = 1;
/// The SYN came more than once.
const SYN_AGAIN: u8 = 1 << 1;
/// Data was seen: `last`, `start` and `front` are of data, and [`ACKED`] is set.
const DATA: u8 = 1 << 2;
/// There is a hole.
const HOLE: u8 = 1 << 3;
/// The last acknowledgment without data may have been delayed.
const DELAYED: u8 = 1 << 4;
/// The last segment was a full one: the next goes on with the same message.
const FULL: u8 = 1 << 5;
/// `base` and `acked` are known.
const ACKED: u8 = 1 << 6;
/// The connection was seen from its SYN on.
const WHOLE: u8 = 1 << 7;

/// Flags of segments that are not the usual ones.
const UNUSUAL: u8 = tcp::FLAG_SYN | tcp::FLAG_RST | tcp::FLAG_FIN;

/// Smallest payload of a segment that was cut because it was full: below every path's MSS, above messages of habit.
const FULL_PAYLOAD: u16 = 1200;
/// An acknowledgment for less than this was not sent for the second full segment (RFC 1122 section 4.2.3.2), so it may
/// have been held back.
const TWO_SEGMENTS: u32 = 2 * FULL_PAYLOAD as u32;
/// How long an acknowledgment must have been held back to be taken for a delayed one: below the 40 ms of Linux.
const ACK_DELAY: Span = Span::millis(25);
/// Later than that a segment that fills a hole is a repeat, not one that was overtaken.
const LATE: Span = Span::millis(3);
/// A gap inside a burst counts at most this much more than twice the mean: one wait for retransmission must not blind
/// the guard for long.
const INSIDE_STEP: u32 = 100 * Span::PER_MICRO;
/// Segments held back in a row after which the mean is taken for wrong.
const HELD_MAX: u8 = 16;
/// Payloads of window updates: one or two frames of 13 bytes (RFC 9113 section 6.9), bare, or in a record of TLS 1.3 or 1.2
/// (22 and 29 bytes more).
const UPDATES: u64 = 1 << 13 | 1 << 26 | 1 << 35 | 1 << 48 | 1 << 42 | 1 << 55;
/// Largest of them.
const UPDATE_MAX: u16 = 55;
/// What it acknowledges at least.
const UPDATE_ACKS: u32 = 8 << 10;
/// Bursts of a pattern in a row until it is taken for one.
const PATTERN: u8 = 8;
/// Messages of the first burst from which on single ones afterwards mean a window that slides. Less is how TLS starts.
const WINDOW_MIN: u8 = 3;

/// True when `a` lies ahead of `b` in sequence space.
#[inline(always)]
const fn ahead(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// A segment was sent again.
const AGAIN: Sample = Sample {
    kind: Kind::Retransmitted,
    value: Span(1),
    doubts: Doubts::NONE,
};

/// What is to be done about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing more.
    Quiet,
    /// It is new data, in order, and acknowledges an answer: [`Tcp::answered`].
    Answered,
    /// Every test: [`Tcp::any`].
    Any,
}

/// What the first segment of a burst tells. Plain words, which stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Time since the first segment of the burst before: a response, unless it is as long as a pause.
    pub span: Span,
    /// What speaks against it.
    pub doubts: Doubts,
    /// The second figure, of [`Kind::Answer`].
    pub answer: Option<Span>,
}

impl Answered {
    /// The response.
    #[inline(always)]
    pub const fn response(self) -> Sample {
        Sample {
            kind: Kind::Response,
            value: self.span,
            doubts: self.doubts,
        }
    }

    /// The second figure, of which think time is no part.
    #[inline(always)]
    pub fn answer(self) -> Option<Sample> {
        self.answer.map(|value| Sample {
            kind: Kind::Answer,
            value,
            doubts: self.doubts.without(Doubts::THINK),
        })
    }
}

impl Tcp {
    /// Takes the next segment of the flow, at `now`; what it tells goes to `give`. Returns true when it told of an answer.
    #[inline]
    pub fn segment(
        &mut self,
        now: Moment,
        segment: Segment,
        rules: &Rules,
        give: impl FnMut(Sample),
    ) -> bool {
        self.quiet(now, segment) != Step::Quiet && self.any(now, segment, rules, give)
    }

    /// Takes what most segments are and what tells nothing: acknowledgments without data, and data of the same burst, in order.
    /// Of all others it says what is to be done, and does nothing.
    #[inline(always)]
    pub fn quiet(&mut self, now: Moment, segment: Segment) -> Step {
        if segment.flags & UNUSUAL != 0 || self.flags & DATA == 0 {
            return Step::Any;
        }
        if segment.payload == 0 {
            self.acknowledges(now, segment.acknowledgment);
            return Step::Quiet;
        }
        let end = segment.sequence.wrapping_add(u32::from(segment.payload));
        if !ahead(end, self.front) || ahead(segment.sequence, self.front) {
            return Step::Any;
        }
        if ahead(segment.acknowledgment, self.base) {
            return Step::Answered;
        }
        self.front = end;
        let gap = self.gap(now);
        self.inside(gap);
        if segment.payload >= FULL_PAYLOAD || self.flags & FULL != 0 {
            std::hint::cold_path();
            if self.goes_on(segment) {
                return Step::Quiet;
            }
        }
        self.another_message();
        Step::Quiet
    }

    /// Takes a segment of which [`Tcp::quiet`] said [`Step::Answered`]: the first of a burst. None: it came too early for that,
    /// nothing was done, and it is for [`Tcp::any`].
    #[inline(always)]
    pub fn answered(&mut self, now: Moment, segment: Segment, rules: &Rules) -> Option<Answered> {
        let gap = now.since_or_zero(Moment(self.last)).0;
        if gap <= self.inside >> 1 || self.is_update(segment) {
            return None;
        }
        self.front = segment.sequence.wrapping_add(u32::from(segment.payload));
        self.last = now.0;
        self.goes_on(segment);
        Some(self.burst(now, segment, rules))
    }

    /// As [`Tcp::segment`], for what is not quiet.
    pub fn any(
        &mut self,
        now: Moment,
        segment: Segment,
        rules: &Rules,
        mut give: impl FnMut(Sample),
    ) -> bool {
        if segment.flags & UNUSUAL != 0 || self.flags & DATA == 0 {
            let (told, goes_on) = self.unusual(now, segment, rules);
            told.into_iter().flatten().for_each(&mut give);
            if !goes_on {
                return false;
            }
        }
        let end = segment.sequence.wrapping_add(u32::from(segment.payload));
        if !ahead(end, self.front) {
            if let Some(sample) = self.repeated(now, segment, end) {
                give(sample);
            }
            return false;
        }
        if ahead(segment.sequence, self.front) {
            self.hole = self.front;
            self.flags |= HOLE;
        }
        self.front = end;
        let gap = self.gap(now);
        let goes_on = self.goes_on(segment);
        if !ahead(segment.acknowledgment, self.base) {
            self.inside(gap);
            if !goes_on {
                self.another_message();
            }
            return false;
        }
        if gap <= self.inside >> 1 {
            self.held_back();
            return false;
        }
        if self.is_update(segment) {
            self.passed = 1;
            return false;
        }
        let answered = self.burst(now, segment, rules);
        let told = answered.span < rules.cutoff;
        if told {
            give(answered.response());
        }
        answered.answer().into_iter().for_each(give);
        told
    }

    /// Time since the last segment with new data, whose place this one takes.
    #[inline(always)]
    fn gap(&mut self, now: Moment) -> u32 {
        let last = std::mem::replace(&mut self.last, now.0);
        now.since_or_zero(Moment(last)).0
    }

    /// Whether the segment goes on with the message of the last one, whose place it takes.
    #[inline(always)]
    fn goes_on(&mut self, segment: Segment) -> bool {
        let goes_on = self.flags & FULL != 0;
        if segment.payload >= FULL_PAYLOAD {
            self.flags |= FULL;
        } else if goes_on {
            self.flags &= !FULL;
        }
        goes_on
    }

    /// A segment of the same burst.
    #[inline(always)]
    fn inside(&mut self, gap: u32) {
        // Eightfold, so an eighth of the way is the difference to the mean.
        let gap = gap.min((self.inside >> 2) + INSIDE_STEP);
        self.inside = if self.inside == 0 {
            gap << 3
        } else {
            self.inside + gap - (self.inside >> 3)
        };
    }

    #[inline(always)]
    fn another_message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }

    /// A segment that opens or ends a connection, or comes before any data. Returns what it told, and whether it
    /// is data behind data as well.
    #[inline(never)]
    fn unusual(&mut self, now: Moment, segment: Segment, rules: &Rules) -> ([Option<Sample>; 2], bool) {
        if segment.flags & (tcp::FLAG_SYN | tcp::FLAG_RST) != 0 {
            return ([self.opens_or_breaks(now, segment), None], false);
        }
        let handshake = if self.flags & ACKED == 0 {
            self.begins(now, segment)
        } else {
            None
        };
        if segment.payload == 0 {
            if segment.flags & tcp::FLAG_FIN != 0 {
                return ([handshake, self.ends(segment.acknowledgment, rules)], false);
            }
            self.acknowledges(now, segment.acknowledgment);
            return ([handshake, None], false);
        }
        if self.flags & DATA == 0 {
            self.first_data(now, segment);
            return ([handshake, None], false);
        }
        ([handshake, None], true)
    }

    /// A burst starts, and the last one is answered.
    #[inline(always)]
    fn burst(&mut self, now: Moment, segment: Segment, rules: &Rules) -> Answered {
        let span = now.since_or_zero(Moment(self.start));
        let mut doubts = Doubts(self.doubts).and(self.pattern(segment));
        // Nothing is answered in three quarters of the time of a handshake, in units of 64 us.
        if span.0 < u32::from(self.handshake) * (256 / 4 * 3) {
            std::hint::cold_path();
            doubts = doubts.and(Doubts::PIPELINED);
        }
        let mut answer = None;
        if self.acked == segment.acknowledgment {
            // All was acknowledged, and the client went on after more than a quarter of the time.
            let think = now.since_or_zero(Moment(self.acked_at)).0 > span.0 / 4;
            doubts = doubts.and(Doubts::THINK.when(think));
            // Also when the client then paused for longer than any answer takes.
            answer = self
                .answer(segment.acknowledgment)
                .filter(|&value| value < rules.cutoff);
        }
        self.start = now.0;
        self.base = segment.acknowledgment;
        self.opener = segment.payload;
        (self.doubts, self.messages, self.held, self.passed) = (0, 1, 0, 0);
        Answered { span, doubts, answer }
    }

    /// From the start of this burst to the last acknowledgment of its answer, when the next burst, which acknowledges
    /// `next`, says that it was the last one, and it was not a delayed one.
    #[inline(always)]
    fn answer(&self, next: u32) -> Option<Span> {
        let exact = self.acked == next && self.flags & DELAYED == 0;
        let many = next.wrapping_sub(self.base) >= TWO_SEGMENTS;
        if exact && many {
            Moment(self.acked_at).since(Moment(self.start))
        } else {
            None
        }
    }

    /// The client closes: what it acknowledged last was the end of an answer, if a request waited for one.
    #[cold]
    #[inline(never)]
    fn ends(&mut self, acknowledgment: u32, rules: &Rules) -> Option<Sample> {
        if self.flags & DATA == 0 || !ahead(acknowledgment, self.base) {
            return None;
        }
        let value = self.answer(acknowledgment).filter(|&value| value < rules.cutoff);
        // The FIN may come again.
        self.base = acknowledgment;
        Some(Sample {
            kind: Kind::Answer,
            value: value?,
            doubts: Doubts(self.doubts),
        })
    }

    /// True for a window update in the middle of a long answer: one that is far smaller than the request was, and the first since.
    #[inline(always)]
    fn is_update(&self, next: Segment) -> bool {
        next.payload <= UPDATE_MAX
            && self.passed == 0
            && u32::from(self.opener) > 2 * u32::from(next.payload)
            && self.is_like_update(next)
    }

    #[inline]
    fn is_like_update(&self, next: Segment) -> bool {
        let sizes = UPDATES.checked_shr(next.payload.into()).unwrap_or(0);
        sizes & 1 != 0 && next.acknowledgment.wrapping_sub(self.base) >= UPDATE_ACKS
    }

    /// Notes what the burst that ends was like, and says what the bursts so far speak for.
    #[inline(always)]
    fn pattern(&mut self, next: Segment) -> Doubts {
        if self.first == 0 {
            std::hint::cold_path();
            self.first = self.messages;
        }
        let mut doubts = Doubts::NONE;
        if self.messages != 1 {
            self.ones = 0;
        } else {
            self.ones = self.ones.saturating_add(1);
        }
        if self.first >= WINDOW_MIN && self.ones >= PATTERN {
            std::hint::cold_path();
            doubts = Doubts::PIPELINED;
        }
        let update = next.payload <= UPDATE_MAX && self.messages == 1 && self.is_like_update(next);
        if update || self.updates != 0 {
            std::hint::cold_path();
            doubts = doubts.and(self.count(update));
        }
        doubts
    }

    /// Where window updates start bursts, or did lately.
    #[inline(never)]
    fn count(&mut self, update: bool) -> Doubts {
        self.updates = match update {
            true => (self.updates + 1).min(2 * PATTERN),
            false => self.updates.saturating_sub(2),
        };
        Doubts::FLOW_CONTROL.when(self.updates >= PATTERN)
    }

    fn held_back(&mut self) {
        self.held += 1;
        if self.held >= HELD_MAX {
            (self.held, self.inside) = (0, 0);
        }
    }

    /// A segment without data.
    #[inline(always)]
    fn acknowledges(&mut self, now: Moment, number: u32) {
        let news = number.wrapping_sub(self.acked);
        if (news as i32) <= 0 {
            return;
        }
        let waited = now.since_or_zero(Moment(self.acked_at));
        self.flags &= !DELAYED;
        if waited >= ACK_DELAY && news < TWO_SEGMENTS {
            std::hint::cold_path();
            self.flags |= DELAYED;
        }
        (self.acked, self.acked_at) = (number, now.0);
    }

    #[cold]
    #[inline(never)]
    fn opens_or_breaks(&mut self, now: Moment, segment: Segment) -> Option<Sample> {
        // An acknowledged SYN is what servers send.
        if segment.flags & (tcp::FLAG_SYN | tcp::FLAG_ACK) != tcp::FLAG_SYN {
            return None;
        }
        let front = segment.sequence.wrapping_add(1);
        if self.flags & SYN != 0 && self.front == front {
            self.flags |= SYN_AGAIN;
            return Some(AGAIN);
        }
        // A new connection, also in the place of an old one.
        *self = Self {
            start: now.0,
            front,
            flags: SYN | WHOLE,
            ..Self::default()
        };
        None
    }

    /// The first segment behind a SYN, or the first that was seen.
    #[cold]
    #[inline(never)]
    fn begins(&mut self, now: Moment, segment: Segment) -> Option<Sample> {
        let is_open = self.flags & (SYN | SYN_AGAIN) == SYN;
        let value = now.since(Moment(self.start)).filter(|_| is_open);
        self.flags = (self.flags & !(SYN | SYN_AGAIN)) | ACKED;
        self.base = segment.acknowledgment;
        (self.acked, self.acked_at) = (segment.acknowledgment, now.0);
        let value = value?;
        self.handshake = u16::try_from(value.0 >> 8).unwrap_or(u16::MAX);
        Some(Sample {
            kind: Kind::Handshake,
            value,
            doubts: Doubts::NONE,
        })
    }

    #[cold]
    #[inline(never)]
    fn first_data(&mut self, now: Moment, segment: Segment) {
        let end = segment.sequence.wrapping_add(u32::from(segment.payload));
        (self.last, self.start, self.front) = (now.0, now.0, end);
        (self.base, self.opener, self.messages) = (segment.acknowledgment, segment.payload, 1);
        // Seen from the middle on, the first burst says nothing.
        self.first = u8::from(self.flags & WHOLE == 0);
        self.flags |= DATA;
        if segment.payload >= FULL_PAYLOAD {
            self.flags |= FULL;
        }
    }

    /// A segment that brings nothing new: sent again, overtaken, or a probe.
    #[cold]
    #[inline(never)]
    fn repeated(&mut self, now: Moment, segment: Segment, end: u32) -> Option<Sample> {
        // Keep-alive and window probes (RFC 9293 section 3.8.4, 3.8.6.1) send the byte before the front.
        if segment.payload <= 1 && end == self.front {
            return None;
        }
        if self.flags & HOLE != 0 && segment.sequence == self.hole {
            self.flags &= !HOLE;
            if now.since(Moment(self.last)).is_none_or(|gap| gap < LATE) {
                return None;
            }
        }
        self.doubts = Doubts::RETRANSMITTED.0;
        Some(AGAIN)
    }
}
