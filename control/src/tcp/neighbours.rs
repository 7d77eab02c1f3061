//! Where each client was last heard, connection by connection: the port, the worker and the frame's own addresses, so that
//! a packet that the kernel sends finds its way. Owned by the TCP thread; filled from punted frames alone.
//!
//! The TUN interface knows no MAC addresses and asks nobody for any: whatever way a client's packets came, be
//! it on-link or through a router, replies go back that way. A fixed number of places; a flood of
//! spoofed sources cannot push out a client whose connection the kernel knows.

use super::frame::{Flow, Link};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Places in a set: where one flow may lie.
const WAYS: usize = 8;
/// Sets. 32,768 places in all, about 4 MB.
const SETS: usize = 4096;
/// A way that no packet came by for so long is forgotten: longer than any connection may be silent.
const AGE_MAX: Duration = Duration::from_secs(900);

/// Where a client was last heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Index of the worker that its packets reach.
    pub(super) worker: usize,
    /// Index of the port.
    pub(super) port: u8,
    /// What stands before its packets.
    pub(super) link: Link,
}

#[derive(Clone, Copy)]
struct Entry {
    flow: Flow,
    way: Way,
    heard: Instant,
    /// The kernel has a connection with it: the address is no forgery.
    proved: bool,
}

/// The memory.
pub(super) struct Neighbours {
    sets: Box<[[Option<Entry>; WAYS]]>,
    hasher: RandomState,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::with_sets(SETS)
    }
}

impl Neighbours {
    fn with_sets(sets: usize) -> Self {
        Self {
            sets: vec![[None; WAYS]; sets].into(),
            hasher: RandomState::new(),
        }
    }

    fn set(&mut self, flow: &Flow) -> &mut [Option<Entry>; WAYS] {
        let at = self.hasher.hash_one(flow) as usize % self.sets.len();
        &mut self.sets[at]
    }

    /// Notes the way that a packet came by. The newest way counts: a router may have taken over from another.
    pub(super) fn heard(&mut self, flow: Flow, way: Way, now: Instant) {
        let set = self.set(&flow);
        if let Some(entry) = set.iter_mut().flatten().find(|e| e.flow == flow) {
            (entry.way, entry.heard) = (way, now);
            return;
        }
        // A free place, else that of the one longest silent, unproved ones first.
        let place = set.iter_mut().min_by_key(|place| {
            place.map(|e| {
                (
                    e.proved && now.saturating_duration_since(e.heard) < AGE_MAX,
                    e.heard,
                )
            })
        });
        if let Some(place) = place {
            *place = Some(Entry {
                flow,
                way,
                heard: now,
                proved: false,
            });
        }
    }

    /// The way to a client, if it was heard lately. `proved`: the kernel has a connection with it.
    pub(super) fn way(&mut self, flow: Flow, proved: bool, now: Instant) -> Option<Way> {
        let entry = self.set(&flow).iter_mut().flatten().find(|e| e.flow == flow)?;
        if now.saturating_duration_since(entry.heard) >= AGE_MAX {
            return None;
        }
        entry.proved |= proved;
        Some(entry.way)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{OURS, PEER};
    use super::*;
    use etherparse::PacketBuilder;

    fn flow(client: u32) -> Flow {
        Flow {
            client: (client.to_be_bytes(), 40_000).into(),
            service: ([192, 0, 2, 53], 53).into(),
        }
    }

    fn way(port: u8, peer: u8) -> Way {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, peer], OURS)
            .ipv4([198, 51, 100, 7], [192, 0, 2, 53], 64)
            .tcp(40000, 53, 1, 1000)
            .write(&mut frame, &[])
            .unwrap();
        Way {
            worker: usize::from(port),
            port,
            link: super::super::frame::read(&frame).unwrap().link,
        }
    }

    #[test]
    fn the_newest_way_counts_and_old_ones_are_forgotten() {
        let (mut memory, start) = (Neighbours::default(), Instant::now());
        assert_eq!(memory.way(flow(1), true, start), None);
        memory.heard(flow(1), way(0, 7), start);
        let mut other_address = flow(1);
        other_address.service.set_ip([192, 0, 2, 54].into());
        assert_eq!(memory.way(other_address, false, start), None);
        // The same address behind another port or VLAN.
        let mut other_port = flow(1);
        other_port.client.set_port(40_001);
        memory.heard(other_port, way(2, 9), start);
        memory.heard(flow(1), way(1, 8), start);
        assert_eq!(memory.way(flow(1), false, start), Some(way(1, 8)));
        let late = start + AGE_MAX;
        assert_eq!(
            memory.way(flow(1), false, late - Duration::from_secs(1)),
            Some(way(1, 8))
        );
        assert_eq!(memory.way(flow(1), false, late), None);
        assert_eq!(memory.way(other_port, false, start), Some(way(2, 9)));
    }

    #[test]
    fn a_flood_of_sources_takes_no_more_room_and_spares_known_clients() {
        // One set, so that all compete.
        let (mut memory, start) = (Neighbours::with_sets(1), Instant::now());
        let at = |n: u32| start + Duration::from_millis(n.into());
        memory.heard(flow(1), way(0, PEER[5]), at(1));
        assert!(memory.way(flow(1), true, at(1)).is_some());
        for n in 2..1000 {
            memory.heard(flow(n), way(0, PEER[5]), at(n));
            // The newest is always there: its SYN is about to be answered.
            assert!(memory.way(flow(n), false, at(n)).is_some(), "{n}");
        }
        assert!(memory.way(flow(1), false, at(1000)).is_some());
        let known = (1..1000)
            .filter(|&n| memory.way(flow(n), false, at(1000)).is_some())
            .count();
        assert_eq!(known, WAYS);
        // All proved: the one longest silent gives way.
        (993..1000).for_each(|n| assert!(memory.way(flow(n), true, at(1000)).is_some()));
        memory.heard(flow(5000), way(0, PEER[5]), at(1001));
        assert!(memory.way(flow(5000), false, at(1001)).is_some());
        assert_eq!(memory.way(flow(1), false, at(1001)), None);
    }
}
