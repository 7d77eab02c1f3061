//! What the TCP thread counts, a line each: name and meaning. Read by the status and `/metrics`.

use dataplane::counters::{Counters, Published};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A family of counters whose members are told apart by a label.
pub trait Labelled: Copy + 'static {
    /// All members, in order.
    const ALL: &'static [Self];
    /// The label's value.
    fn name(self) -> &'static str;
    /// The meaning, a sentence.
    fn help(self) -> &'static str;
    /// Place in [`Labelled::ALL`].
    fn index(self) -> usize;
}

macro_rules! families {
    ($(
        $(#[doc = $family_help:literal])+
        $family:ident { $( $(#[doc = $help:literal])+ $variant:ident => $name:literal; )+ }
    )+) => { $(
        $(#[doc = $family_help])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $family { $( $(#[doc = $help])+ $variant, )+ }

        impl Labelled for $family {
            const ALL: &'static [Self] = &[ $( Self::$variant, )+ ];
            fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }
            fn help(self) -> &'static str {
                match self { $( Self::$variant => concat!($($help),+).trim_ascii(), )+ }
            }
            fn index(self) -> usize {
                self as usize
            }
        }
    )+ };
}
pub(crate) use families;

families! {
    /// What becomes of connections: accepted = open + all ends; those refused were never accepted.
    Connection {
        /// Let in.
        Accepted => "accepted";
        /// Refused: the client had its number open, and none of them waited.
        RefusedClient => "refused_client";
        /// Refused: all were open, and none of them waited.
        RefusedTotal => "refused_total";
        /// End: the client closed it.
        ClosedByClient => "closed_by_client";
        /// End: no whole query came within the idle timeout.
        Idle => "idle";
        /// End: it waited longest of its client's when that one opened one too many.
        EvictedClient => "evicted_client";
        /// End: it waited longest of all when there was one too many.
        EvictedTotal => "evicted_total";
        /// End: a message shorter than a DNS header was announced.
        BadLength => "bad_length";
        /// End: reset, or the client did not take its replies within the idle timeout.
        Failed => "failed";
    }

    /// What becomes of packets that workers punted.
    Punted {
        /// Given to the kernel.
        Forwarded => "forwarded";
        /// Dropped: neither TCP nor an ICMP error about it.
        NotTcp => "not_tcp";
        /// Dropped: no IP packet could be read.
        Malformed => "malformed";
        /// Dropped: the interface did not take it.
        NotTaken => "not_taken";
    }

    /// What becomes of packets that the kernel sends.
    Sent {
        /// Handed to the worker that the client's packets reach.
        Injected => "injected";
        /// Dropped: the client was not heard lately.
        UnknownNeighbour => "unknown_neighbour";
        /// Dropped: no TCP segment (the kernel's own neighbour discovery and reports).
        NotTcp => "not_tcp";
    }
}

/// The counters of one family.
#[derive(Debug)]
pub struct Family<T> {
    values: Box<[AtomicU64]>,
    of: std::marker::PhantomData<T>,
}

impl<T: Labelled> Default for Family<T> {
    fn default() -> Self {
        Self {
            values: T::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            of: std::marker::PhantomData,
        }
    }
}

impl<T: Labelled> Family<T> {
    /// Adds one.
    pub(crate) fn bump(&self, which: T) {
        if let Some(value) = self.values.get(which.index()) {
            value.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All by name.
    pub fn read(&self) -> BTreeMap<String, u64> {
        let names = T::ALL.iter().map(|which| which.name().to_owned());
        names
            .zip(self.values.iter().map(|value| value.load(Ordering::Relaxed)))
            .collect()
    }
}

/// Everything that the TCP thread counts. One writer, relaxed.
#[derive(Debug, Default)]
pub struct Tally {
    /// What became of connections.
    pub connections: Family<Connection>,
    /// What became of punted packets.
    pub punted: Family<Punted>,
    /// What became of the kernel's packets.
    pub sent: Family<Sent>,
    open: AtomicU64,
    /// The engine's counters, as a worker's; a few milliseconds old.
    answers: Published,
}

impl Tally {
    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn set_open(&self, count: usize) {
        self.open.store(count as u64, Ordering::Relaxed);
    }

    /// The engine's counters.
    pub fn answers(&self) -> Counters {
        self.answers.read()
    }

    pub(super) fn publish(&self, counters: &Counters) {
        self.answers.publish(counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_counts_under_its_own_name() {
        let family = Family::<Connection>::default();
        for (times, &which) in Connection::ALL.iter().enumerate() {
            (0..times).for_each(|_| family.bump(which));
            assert!(!which.help().is_empty());
        }
        let read = family.read();
        assert_eq!(read.len(), Connection::ALL.len());
        for (times, which) in Connection::ALL.iter().enumerate() {
            assert_eq!(read[which.name()], times as u64, "{which:?}");
        }
    }
}
