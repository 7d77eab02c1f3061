//! What the engine tells a tracer. On the packet path the tracer is [`Silent`] and compiles to nothing;
//! `windrose explain` passes one that listens.

use crate::tables::{classes::Class, plans};

/// One step of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The question was read.
    Question {
        /// RR type.
        rtype: u16,
    },
    /// The name was found as a node of this zone.
    Name {
        /// Node index.
        node: u32,
        /// Zone index.
        zone: u32,
    },
    /// The name was not found; this is its closest encloser.
    ClosestEncloser {
        /// Node index.
        node: u32,
    },
    /// The answer comes from this wildcard.
    Wildcard {
        /// Node index.
        node: u32,
    },
    /// A DNAME above the name makes another of it, or a CNAME found behind one does; the answer goes on there.
    Renamed,
    /// A service chooses; the client's address falls into this class.
    Client {
        /// Service index.
        service: u32,
        /// Policy index.
        policy: u32,
        /// Class and depth.
        class: Class,
        /// Whether the address is the client subnet's, not the source address.
        subnet: bool,
        /// Whether the query took the cell of those that explore.
        explores: bool,
    },
    /// The cell that ranks the sites.
    Ranked(plans::Cell),
    /// A site of the tier in turn: which of its members are candidates.
    Candidates {
        /// Tier, from 0.
        tier: u8,
        /// Index in the policy's site list.
        site: u8,
        /// Whether the site may be given.
        site_up: bool,
        /// Bits of the group's members that are up.
        up: u64,
    },
    /// Shares left no candidate, so they do not count: members that have one, or those without.
    SharesIgnored,
    /// No member was up: candidates come from the all-down rule.
    AllDown,
    /// A member was drawn.
    Drawn {
        /// Index in the records of its family.
        member: u32,
    },
    /// A member that is a name was drawn.
    DrawnName {
        /// Index in the A records.
        member: u32,
    },
    /// The scope of the answer, bits, in reply to a client subnet.
    Scope(u8),
}

/// Listens to the engine.
pub trait Trace {
    /// Whether anybody listens: without, the engine may take short cuts that have no steps to tell.
    const LISTENS: bool = true;

    /// Takes a step.
    fn event(&mut self, event: Event);
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Trace for Silent {
    const LISTENS: bool = false;

    #[inline(always)]
    fn event(&mut self, _: Event) {}
}

impl Trace for Vec<Event> {
    fn event(&mut self, event: Event) {
        self.push(event);
    }
}
