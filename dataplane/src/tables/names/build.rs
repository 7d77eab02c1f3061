//! Builds [`Names`]. Called by control only: it allocates.

use super::super::key::Key;
use super::{Entry, NameHash, Names, Node, tag};
use crate::mmap::Table;
use crate::wire::dns;
use std::io;

/// Builds [`Names`]. Control only: it allocates.
#[derive(Debug)]
pub struct NamesBuilder {
    hash: NameHash,
    nodes: Vec<Node>,
    services: Vec<(u32, u32)>,
    long: Vec<u8>,
    entries: Vec<Entry>,
    depth_max: u8,
}

impl NamesBuilder {
    /// An empty builder. `seed` must be random and secret in production.
    pub fn new(seed: [u64; 4]) -> Self {
        Self {
            hash: NameHash(seed),
            nodes: Vec::new(),
            services: Vec::new(),
            long: Vec::new(),
            entries: Vec::new(),
            depth_max: 0,
        }
    }

    /// Adds a name with its record sets, the likeliest type first; at most 255 of them. `service` is
    /// (service, place of its policy's cells) where A and AAAA answers are chosen. The caller adds each name once, and
    /// all its ancestors. Names that are not in valid wire form are not added.
    pub fn add(&mut self, name: &[u8], zone: u32, flags: u8, entries: &[Entry], service: Option<(u32, u32)>) {
        if dns::name_len(name) != Ok(name.len()) {
            debug_assert!(false, "not a whole name in wire form: {name:?}");
            return;
        }
        let key = Key::new(name);
        let mut offsets = [0; 128];
        self.depth_max = self.depth_max.max(dns::label_offsets(name, &mut offsets) as u8);
        let long = self.long.len() as u32;
        self.long.extend_from_slice(key.tail());
        let rest = self.entries.len() as u32;
        self.entries.extend_from_slice(entries.get(1..).unwrap_or(&[]));
        self.nodes.push(Node {
            name: *key.first_block(),
            long,
            entries: rest,
            zone,
            len: key.len() as u8,
            flags,
            count: u8::try_from(entries.len()).unwrap_or(u8::MAX),
            pad: 0,
            first: entries
                .first()
                .copied()
                .unwrap_or(Entry::default().with_flags(Entry::OTHER)),
        });
        self.services.push(match service {
            Some((service, place)) => (service + 1, place),
            None => (0, 0),
        });
    }

    /// The table.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn build(self) -> io::Result<Names> {
        // At most two names a bucket, so that few buckets overflow.
        let capacity = self.nodes.len().div_ceil(2).next_power_of_two();
        let mut names = Names {
            hash: self.hash,
            mask: capacity as u32 - 1,
            probes_max: 1,
            depth_max: self.depth_max,
            buckets: Table::zeroed(capacity)?,
            nodes: Table::from_vec(self.nodes)?,
            long: Table::from_vec(self.long)?,
            entries: Table::from_vec(self.entries)?,
        };
        let mut name = Vec::with_capacity(dns::NAME_ROOM);
        for (index, &(service, place)) in self.services.iter().enumerate() {
            name.clear();
            names.name_of(index as u32, &mut name);
            names.place(index as u32, service, place, &name);
        }
        Ok(names)
    }
}

impl Names {
    /// Gives a node its slot. `service` is as in the slot.
    fn place(&mut self, node: u32, service: u32, place: u32, name: &[u8]) {
        let hash = self.hash.name(name);
        let mut at = hash as u32;
        let mut probes = 1;
        while let Some(bucket) = self.buckets.get_mut((at & self.mask) as usize) {
            if let Some(free) = bucket.tags.iter().position(|tag| *tag == 0) {
                let words = [
                    (&mut bucket.tags, tag(hash)),
                    (&mut bucket.nodes, node),
                    (&mut bucket.services, service),
                    (&mut bucket.places, place),
                ];
                for (words, value) in words {
                    if let Some(word) = words.get_mut(free) {
                        *word = value;
                    }
                }
                break;
            }
            at = at.wrapping_add(1);
            probes += 1;
        }
        self.probes_max = self.probes_max.max(probes);
    }
}
