//! What speaks against a sample, and how far it may be believed. Set by the estimators, read by whoever sums samples.

/// Reasons to doubt a sample, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doubts(pub u8);

impl Doubts {
    /// None.
    pub const NONE: Self = Self(0);
    /// Told from times and sizes, since headers are hidden.
    pub const TIMING: Self = Self(1);
    /// Several connections seem to share the flow: the gap to any of them is measured.
    pub const SHARED: Self = Self(1 << 1);
    /// Requests seem to be kept in flight at all times, a new one for each answer: the gap is a part of the latency.
    pub const PIPELINED: Self = Self(1 << 2);
    /// The bursts look like window updates in one long answer.
    pub const FLOW_CONTROL: Self = Self(1 << 3);
    /// The client had the whole answer long before its next request: most of the excess is think time.
    pub const THINK: Self = Self(1 << 4);
    /// Packets of the burst were sent again: true latency, with a wait for retransmission in it.
    pub const RETRANSMITTED: Self = Self(1 << 5);
    /// The flow is young: what is typical of it is not known yet.
    pub const YOUNG: Self = Self(1 << 6);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::TIMING, "timing"),
        (Self::SHARED, "shared"),
        (Self::PIPELINED, "pipelined"),
        (Self::FLOW_CONTROL, "flow-control"),
        (Self::THINK, "think"),
        (Self::RETRANSMITTED, "retransmitted"),
        (Self::YOUNG, "young"),
    ];

    /// Both.
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but for `other`.
    #[inline(always)]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These if `yes`, else none.
    #[inline(always)]
    pub const fn when(self, yes: bool) -> Self {
        Self(self.0 * yes as u8)
    }

    /// True when any of `other` is among them.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// How far a sample with these doubts may be believed.
    pub const fn confidence(self) -> Confidence {
        let low = Self::SHARED
            .and(Self::PIPELINED)
            .and(Self::FLOW_CONTROL)
            .and(Self::THINK);
        if self.has(low) {
            Confidence::Low
        } else if self.has(Self::TIMING.and(Self::YOUNG)) {
            Confidence::Fair
        } else {
            Confidence::High
        }
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |&(doubt, _)| self.has(doubt))
            .map(|(_, name)| name)
    }
}

/// How far a sample may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// For display alone: it feeds neither answers nor the balancer.
    Low,
    /// Told from times and sizes.
    Fair,
    /// Told from acknowledgments.
    High,
}

impl Confidence {
    /// Its name, as exported.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Fair => "fair",
            Confidence::High => "high",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_that_of_the_worst_doubt() {
        assert_eq!(Doubts::NONE.confidence(), Confidence::High);
        assert_eq!(Doubts::RETRANSMITTED.confidence(), Confidence::High);
        assert_eq!(Doubts::TIMING.confidence(), Confidence::Fair);
        for low in [
            Doubts::SHARED,
            Doubts::PIPELINED,
            Doubts::FLOW_CONTROL,
            Doubts::THINK,
        ] {
            assert_eq!(low.and(Doubts::TIMING).confidence(), Confidence::Low, "{low:?}");
        }
        let doubts = Doubts::TIMING
            .and(Doubts::SHARED.when(true))
            .and(Doubts::THINK.when(false));
        assert_eq!(doubts.names().collect::<Vec<_>>(), ["timing", "shared"]);
        assert_eq!(doubts.without(Doubts::SHARED.and(Doubts::THINK)), Doubts::TIMING);
    }
}
