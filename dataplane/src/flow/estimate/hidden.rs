//! The estimator for flows whose headers are hidden: times and sizes alone.
//!
//! Packets of the smallest size that a flow sends are acknowledgments: encryption and padding keep requests above them.
//! One of them since the last request is evidence that an answer came, and then a gap above the habit of bursts starts
//! a burst; without evidence the gap has to be as long as answers usually take. Habits are two logarithmic means, of gaps
//! inside bursts and of whole bursts. In a flow whose larger packets do not come the small ones are the requests.
//!
//! Sequence numbers that stand in clear (ESP, WireGuard) tell packets that were overtaken, which are passed over.

use super::super::{Moment, Span};
use super::{Doubts, Kind, Rules, Sample, log2, towards};
use crate::zeroable;

/// What is looked at of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes behind the IP or UDP header.
    pub len: u16,
    /// Bytes that an acknowledgment has at most.
    pub ack_max: u16,
    /// Number in clear, if there is one, truncated.
    pub sequence: Option<u32>,
}

impl Datagram {
    /// Bound of an acknowledgment in QUIC, UDP payload bytes.
    pub const ACK_MAX_QUIC: u16 = 64;
    /// Bound of an acknowledgment in a tunnel: WireGuard, ESP.
    pub const ACK_MAX_TUNNEL: u16 = 128;
}

/// State of one flow, 44 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Hidden {
    /// Arrival of the last request.
    last: u32,
    /// Arrival of the first request of this burst.
    start: u32,
    /// Arrival of the last acknowledgment since the last request; means something with `evidence`.
    ack: u32,
    /// Highest number in clear.
    front: u32,
    /// log2 of gaps inside bursts and of whole bursts, times 256; 0: not known yet.
    inside: u16,
    whole: u16,
    /// Acknowledgments for each request, times 4096.
    acks: u16,
    /// Share of gaps that are those of bursts, and of long gaps after long ones, times 32768.
    short: u16,
    long: u16,
    /// Size of the smallest packet.
    smallest: u16,
    /// Size of the last request, and of the largest.
    size: u16,
    largest: u16,
    /// Small packets since the last larger one.
    small_run: u16,
    /// log2 of what was given, times 256, and the share that lies under a quarter of that, times 32768.
    given: u16,
    under: u16,
    /// Larger packets; stays at 255.
    large: u8,
    /// Acknowledgments since the last request.
    evidence: u8,
    /// Requests in this burst.
    requests: u8,
    /// Samples given; stays at 255.
    samples: u8,
    flags: u8,
    spare: u8,
}

zeroable!(Hidden {
    last,
    start,
    ack,
    front,
    inside,
    whole,
    acks,
    short,
    long,
    smallest,
    size,
    largest,
    small_run,
    given,
    under,
    large,
    evidence,
    requests,
    samples,
    flags,
    spare
});

const _: () = assert!(size_of::<Hidden>() == 44);

const SEEN: u8 = 1;
const LAST_WAS_LONG: u8 = 1 << 1;
const SHARED: u8 = 1 << 2;

/// Gaps below this are those of bursts, as long as nothing better is known; and an acknowledgment that soon after the
/// start of a burst belongs to the one before.
const FLOOR: u32 = 100 * Span::PER_MICRO;
/// How far above the smallest packet an acknowledgment may be: bytes.
const ACK_ROOM: u16 = 16;
/// Small packets without a larger one, after which they are taken for requests; the same at the start of a flow.
const SMALL_RUN: u16 = 1024;
const SMALL_START: u16 = 16;
/// A packet of more bytes, as large as any before, is followed by the rest of its message.
const FULL: u16 = 1000;
/// One octave.
const OCTAVE: i32 = 256;
/// Scale of shares.
const SHARE: i32 = 32_768;
/// Scale of the acknowledgments for each request.
const ACKS: i32 = 4096;
/// Share of samples under a quarter of their mean from which on a flow is taken for shared, and below which it no longer
/// is: 5 and 3.2 %.
const UNDER_ON: u16 = 1638;
const UNDER_OFF: u16 = 1049;
/// Samples until a flow's habits are known.
const YOUNG: u8 = 16;

impl Hidden {
    /// State of a flow of which nothing was seen.
    pub const fn new() -> Self {
        Self {
            last: 0,
            start: 0,
            ack: 0,
            front: 0,
            inside: 0,
            whole: 0,
            acks: 2 * ACKS as u16,
            short: SHARE as u16 / 2,
            long: SHARE as u16 / 2,
            smallest: u16::MAX,
            size: 0,
            largest: 0,
            small_run: 0,
            given: 0,
            under: 0,
            large: 0,
            evidence: 0,
            requests: 0,
            samples: 0,
            flags: 0,
            spare: 0,
        }
    }

    /// Takes the next packet of the flow, at `now`; what it tells goes to `give`. Returns true when it told of an answer.
    #[inline(always)]
    pub fn packet(&mut self, now: Moment, packet: Datagram, rules: &Rules, give: impl FnMut(Sample)) -> bool {
        if let Some(number) = packet.sequence {
            let step = number.wrapping_sub(self.front) as i32;
            if step <= 0 && self.flags & SEEN != 0 {
                return false;
            }
            self.front = number;
        }
        self.smallest = self.smallest.min(packet.len);
        if self.is_small(packet) {
            let since = now.since(Moment(self.start)).unwrap_or_default();
            if self.flags & SEEN != 0 && since.0 >= FLOOR {
                self.evidence = self.evidence.saturating_add(1);
                self.ack = now.0;
            }
            return false;
        }
        self.request(now, packet.len, rules, give)
    }

    #[inline(always)]
    fn is_small(&mut self, packet: Datagram) -> bool {
        if packet.len > packet.ack_max.min(self.smallest.saturating_add(ACK_ROOM)) {
            self.small_run = 0;
            self.large = self.large.saturating_add(1);
            return false;
        }
        self.small_run = self.small_run.saturating_add(1);
        let most = if self.large == 0 { SMALL_START } else { SMALL_RUN };
        self.small_run < most
    }

    #[inline(always)]
    fn request(&mut self, now: Moment, len: u16, rules: &Rules, give: impl FnMut(Sample)) -> bool {
        let evidence = std::mem::take(&mut self.evidence);
        let before = std::mem::replace(&mut self.size, len);
        if self.flags & SEEN == 0 {
            self.flags |= SEEN;
            (self.last, self.start, self.requests, self.largest) = (now.0, now.0, 1, len);
            return false;
        }
        let gap = now.since(Moment(self.last));
        self.last = now.0;
        let goes_on = before > FULL && before >= self.largest;
        self.largest = self.largest.max(len);
        if !goes_on {
            let seen = i32::from(evidence.min(4)) * ACKS;
            self.acks = towards(i32::from(self.acks), seen, 5) as u16;
        }
        let Some(gap) = gap.filter(|gap| gap.0 > 0) else {
            return false;
        };
        if gap >= rules.cutoff {
            return self.pause(now, evidence, rules, give);
        }
        let x = log2(gap.0);
        let (inside, whole) = (i32::from(self.inside), i32::from(self.whole));
        let far = if whole != 0 {
            x > whole - 2 * OCTAVE
        } else {
            gap.0 > FLOOR
        };
        let long = if whole != 0 && inside != 0 {
            2 * x > inside + whole
        } else {
            far
        };
        if !goes_on {
            if self.flags & LAST_WAS_LONG != 0 {
                self.long = towards(i32::from(self.long), SHARE * i32::from(far), 5) as u16;
            }
            self.flags = (self.flags & !LAST_WAS_LONG) | (LAST_WAS_LONG * u8::from(far));
        }
        let starts = if evidence > 0 {
            inside == 0 || whole == 0 || x > inside.min(whole - 4 * OCTAVE) + 2 * OCTAVE
        } else if goes_on {
            whole != 0 && x > whole - OCTAVE
        } else {
            self.short = towards(i32::from(self.short), SHARE * i32::from(gap.0 < FLOOR), 5) as u16;
            let rare = i32::from(self.acks) < ACKS / 5;
            let one_by_one = i32::from(self.short) <= SHARE * 15 / 100 && i32::from(self.long) >= SHARE / 10;
            if rare && one_by_one {
                gap.0 > FLOOR
            } else if rare || self.requests == 1 {
                long
            } else {
                far
            }
        };
        if starts {
            return self.burst(now, x, evidence, goes_on, rules, give);
        }
        if !goes_on {
            self.requests = self.requests.saturating_add(1);
            // Where requests come one by one, one right behind another is of somebody else.
            if i32::from(self.long) > SHARE * 6 / 10 {
                self.under = towards(i32::from(self.under), SHARE, 7) as u16;
            }
        }
        if evidence == 0 && !long && (whole == 0 || x < whole - 3 * OCTAVE) {
            self.inside = if inside == 0 { x } else { towards(inside, x, 3) }.max(1) as u16;
        }
        false
    }

    /// The client paused for longer than answers take; what it acknowledged before it had come.
    #[cold]
    #[inline(never)]
    fn pause(&mut self, now: Moment, evidence: u8, rules: &Rules, mut give: impl FnMut(Sample)) -> bool {
        let start = Moment(std::mem::replace(&mut self.start, now.0));
        self.requests = 1;
        if evidence > 0
            && let Some(value) = Moment(self.ack).since(start).filter(|&span| span < rules.cutoff)
        {
            let doubts = self.doubts(value);
            give(Sample {
                kind: Kind::Answer,
                value,
                doubts,
            });
        }
        false
    }

    /// A burst starts, and the last one is answered.
    #[inline(always)]
    fn burst(
        &mut self,
        now: Moment,
        x: i32,
        evidence: u8,
        goes_on: bool,
        rules: &Rules,
        mut give: impl FnMut(Sample),
    ) -> bool {
        let whole = i32::from(self.whole);
        if evidence > 0 || !goes_on || whole == 0 {
            let shift = if evidence > 0 || x > whole - 2 * OCTAVE {
                3
            } else {
                5
            };
            self.whole = if whole == 0 { x } else { towards(whole, x, shift) }.max(1) as u16;
        }
        let start = Moment(std::mem::replace(&mut self.start, now.0));
        self.requests = 1;
        let Some(span) = now.since(start).filter(|&span| span < rules.cutoff) else {
            return false;
        };
        let doubts = self.doubts(span);
        give(Sample {
            kind: Kind::Response,
            value: span,
            doubts,
        });
        if evidence > 0
            && let Some(value) = Moment(self.ack).since(start)
        {
            give(Sample {
                kind: Kind::Answer,
                value,
                doubts,
            });
        }
        true
    }

    #[inline(always)]
    fn doubts(&mut self, span: Span) -> Doubts {
        let (x, given) = (log2(span.0), i32::from(self.given));
        self.given = if given == 0 { x } else { towards(given, x, 4) }.max(1) as u16;
        let under = SHARE * i32::from(x < given - 2 * OCTAVE);
        self.under = towards(i32::from(self.under), under, 7) as u16;
        let bound = if self.flags & SHARED != 0 {
            UNDER_OFF
        } else {
            UNDER_ON
        };
        self.flags = (self.flags & !SHARED) | (SHARED * u8::from(self.under >= bound));
        self.samples = self.samples.saturating_add(1);
        Doubts::TIMING
            .and(Doubts::YOUNG.when(self.samples < YOUNG))
            .and(Doubts::SHARED.when(self.flags & SHARED != 0))
    }
}
