//! Owner names: a hash table from the lower-cased wire name to its node, and the node's record sets.
//!
//! Read by `stages::dns_answer`; built by control through [`NamesBuilder`]. The table holds every
//! name of every zone, the empty non-terminals, and the ancestors of each apex up to the root, so
//! that "exists" is monotone along a name's labels and the closest encloser is a binary search over
//! at most the depth of the deepest name. Names below a zone cut are left out.

use super::NONE;
use super::key::{Block, Key};
use crate::arch;
use crate::mmap::Table;
use crate::wire::dns;
use crate::zeroable;
use std::io;

/// A hash slot. 16 bytes, four a cache line; the service and policy stand here so that what the
/// answer needs can be prefetched one step earlier.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Slot {
    tag: u32,
    /// Node index plus one; 0 is free.
    node: u32,
    /// Index of the service whose A and AAAA answers are chosen here, plus one; 0 is none.
    service: u32,
    /// The service's policy.
    policy: u32,
}

/// One record set of a node, or a way to make it. 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// RR type; [`Entry::DEFAULT`] answers every type that has no entry of its own.
    pub rtype: u16,
    /// RCODE of the answer.
    pub rcode: u8,
    /// [`Entry::REFERRAL`], [`Entry::SERVICE`], [`Entry::DNAME`] and [`Entry::CNAMES`].
    pub flags: u8,
    /// Blob in `Answers`.
    pub blob: u32,
    /// With [`Entry::SERVICE`]: the service whose addresses are appended to the blob's answers.
    pub service: u32,
    /// With [`Entry::SERVICE`]: offset in the blob's data of the owner name of the appended records; of an empty blob
    /// they are the question's.
    pub owner: u16,
    pad: u16,
}

impl Entry {
    /// The type that stands for all others. 0 is reserved and never a type of a zone.
    pub const DEFAULT: u16 = 0;
    /// The answer is a referral: AA clear.
    pub const REFERRAL: u8 = 1;
    /// Addresses of a service follow the blob's answers.
    pub const SERVICE: u8 = 2;
    /// The blob is a DNAME record above the name: the answer goes on at the name that it makes.
    pub const DNAME: u8 = 4;
    /// With [`Entry::SERVICE`]: names are among the service's members, so a CNAME may follow.
    pub const CNAMES: u8 = 8;
    /// Not a type but the answer when a service gives nothing; where there is none, that is [`Entry::DEFAULT`]. The
    /// number is reserved (RFC 6895 section 3.1).
    pub const NOTHING: u16 = u16::MAX;

    /// A static record set.
    pub fn fixed(rtype: u16, rcode: u8, blob: u32) -> Self {
        Self {
            rtype,
            rcode,
            blob,
            service: NONE,
            ..Self::default()
        }
    }

    /// The same with flags set.
    pub fn with_flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    /// The same with a service's addresses appended, owned by the name at `owner` in the blob's data.
    pub fn with_service(self, service: u32, owner: u16) -> Self {
        Self {
            service,
            owner,
            flags: self.flags | Self::SERVICE,
            ..self
        }
    }
}

/// A name. 64 bytes, one cache line: the name's first 32 bytes and its first record set.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Node {
    name: Block,
    /// Start of the blocks behind the first in the arena of long names.
    long: u32,
    /// Index of the second record set.
    entries: u32,
    /// Zone index; meaningless with [`Node::OUTSIDE`].
    pub zone: u32,
    len: u8,
    flags: u8,
    count: u8,
    pad: u8,
    first: Entry,
}

zeroable!(Slot {
    tag,
    node,
    service,
    policy
});
zeroable!(Entry {
    rtype,
    rcode,
    flags,
    blob,
    service,
    owner,
    pad
});
zeroable!(Node {
    name,
    long,
    entries,
    zone,
    len,
    flags,
    count,
    pad,
    first
});

const _: () = assert!(size_of::<Slot>() == 16 && size_of::<Entry>() == 16 && size_of::<Node>() == 64);

impl Node {
    /// An ancestor of an apex: not served.
    pub const OUTSIDE: u8 = 1;
    /// A zone cut (RFC 1034 section 4.2.1): names at and below it are referred.
    pub const CUT: u8 = 2;
    /// A wildcard stands directly below (RFC 4592).
    pub const WILDCARD: u8 = 4;
    /// A DNAME stands here: names below it are renamed (RFC 6672).
    pub const DNAME: u8 = 8;

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Length of the name, bytes.
    #[inline]
    pub fn name_len(&self) -> usize {
        self.len as usize
    }

    /// Number of record sets.
    pub fn entry_count(&self) -> usize {
        self.count as usize
    }
}

/// A seeded hash of names: folded multiplications over 8-byte words. The keys are drawn anew for each
/// table, so that nobody outside can aim at its collisions.
#[derive(Clone, Copy, Debug)]
struct NameHash([u64; 4]);

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl NameHash {
    #[inline(always)]
    fn block(&self, state: u64, block: &Block) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let word = |at: usize| -> u64 {
            match block.get(at..).and_then(|b| b.first_chunk::<8>()) {
                Some(b) => u64::from_le_bytes(*b),
                None => 0,
            }
        };
        fold(word(0) ^ k0 ^ state, word(8) ^ k1) ^ fold(word(16) ^ k2 ^ state.rotate_left(32), word(24) ^ k3)
    }

    /// Hash of a key.
    #[inline(always)]
    fn key(&self, key: &Key) -> u64 {
        let state = self.block(key.len() as u64, key.first_block());
        if key.len() <= 32 {
            state
        } else {
            self.tail(state, key)
        }
    }

    #[inline(never)]
    fn tail(&self, mut state: u64, key: &Key) -> u64 {
        for block in key.tail().as_chunks::<32>().0 {
            state = self.block(state, block);
        }
        state
    }

    /// Hash of a lower-cased name that is not padded, such as a suffix of a key: the same value.
    fn name(&self, name: &[u8]) -> u64 {
        let mut state = name.len() as u64;
        let (blocks, rest) = name.as_chunks::<32>();
        for block in blocks {
            state = self.block(state, block);
        }
        if !rest.is_empty() {
            let mut last = [0; 32];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            state = self.block(state, &last);
        }
        state
    }
}

/// What a name's slot says: enough to prefetch the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The node.
    pub node: u32,
    /// The service whose addresses are chosen here, or [`NONE`].
    pub service: u32,
    /// Its policy.
    pub policy: u32,
}

/// The names of a snapshot.
#[derive(Debug)]
pub struct Names {
    hash: NameHash,
    mask: u32,
    probes_max: u32,
    depth_max: u8,
    slots: Table<Slot>,
    nodes: Table<Node>,
    long: Table<u8>,
    entries: Table<Entry>,
}

impl Names {
    /// Hashes a key and asks for its slot's cache line.
    #[inline(always)]
    pub fn hash(&self, key: &Key) -> u64 {
        let hash = self.hash.key(key);
        if let Some(slot) = self.slots.get((hash as u32 & self.mask) as usize) {
            arch::prefetch_read(slot);
        }
        hash
    }

    /// The slot whose tag fits the hash, its node prefetched. The name itself is compared later, by
    /// [`Names::confirm`], when the node has arrived.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<Found> {
        let found = self.probe(hash, |_| true)?;
        if let Some(node) = self.nodes.get(found.node as usize) {
            arch::prefetch_read(node);
        }
        Some(found)
    }

    /// The node of `key`, starting from its candidate; probes on when the candidate only shares the tag.
    #[inline(always)]
    pub fn confirm(&self, candidate: Found, hash: u64, key: &Key) -> Option<Found> {
        if self.is_name(candidate.node, key) {
            return Some(candidate);
        }
        self.probe(hash, |node| self.is_name(node, key))
    }

    /// The node of `key`.
    pub fn find(&self, key: &Key) -> Option<Found> {
        let hash = self.hash.key(key);
        self.probe(hash, |node| self.is_name(node, key))
    }

    #[inline(always)]
    fn probe(&self, hash: u64, accept: impl Fn(u32) -> bool) -> Option<Found> {
        let tag = (hash >> 32) as u32;
        let mut at = hash as u32;
        for _ in 0..self.probes_max {
            let slot = self.slots.get((at & self.mask) as usize)?;
            if slot.node == 0 {
                return None;
            }
            if slot.tag == tag && accept(slot.node - 1) {
                return Some(Found {
                    node: slot.node - 1,
                    service: slot.service.wrapping_sub(1),
                    policy: slot.policy,
                });
            }
            at = at.wrapping_add(1);
        }
        None
    }

    #[inline(always)]
    fn is_name(&self, node: u32, key: &Key) -> bool {
        let Some(node) = self.nodes.get(node as usize) else {
            return false;
        };
        node.len as usize == key.len()
            && node.name == *key.first_block()
            && (key.len() <= 32 || self.long_tail(node) == Some(key.tail()))
    }

    fn long_tail(&self, node: &Node) -> Option<&[u8]> {
        let blocks = (node.len as usize).div_ceil(32).checked_sub(1)?;
        let start = node.long as usize;
        self.long.get(start..start + blocks * 32)
    }

    /// The node's lower-cased name in wire form, appended to `out`. For status and `explain`: allocates.
    pub fn name_of(&self, node: u32, out: &mut Vec<u8>) {
        let Some(node) = self.node(node) else { return };
        let start = out.len();
        out.extend_from_slice(&node.name);
        if node.len > 32 {
            out.extend_from_slice(self.long_tail(node).unwrap_or(&[]));
        }
        out.truncate(start + node.len as usize);
    }

    /// A node.
    #[inline(always)]
    pub fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    /// The node's answer to `rtype`: its record set, else its default, else none.
    #[inline]
    pub fn entry<'a>(&'a self, node: &'a Node, rtype: u16) -> Option<&'a Entry> {
        if node.count == 0 {
            return None;
        }
        if node.first.rtype == rtype {
            return Some(&node.first);
        }
        let start = node.entries as usize;
        let rest = self.entries.get(start..start + node.count as usize - 1)?;
        let mut default = (node.first.rtype == Entry::DEFAULT).then_some(&node.first);
        for entry in rest {
            if entry.rtype == rtype {
                return Some(entry);
            }
            if entry.rtype == Entry::DEFAULT {
                default = Some(entry);
            }
        }
        default
    }

    /// The closest encloser (RFC 4592 section 3.3.1) of a name that is not in the table: the longest
    /// existing ancestor, and where its name starts in `name`. `offsets` and `labels` are those of
    /// `name`, which is lower-cased. `None` only when no zone is served.
    pub fn closest_encloser(&self, name: &[u8], offsets: &[u8; 128], labels: usize) -> Option<(u32, usize)> {
        let exists = |depth: usize| -> Option<(u32, usize)> {
            // `depth` labels from the right; 0 is the root.
            let at = match labels.checked_sub(depth).and_then(|i| offsets.get(i)) {
                Some(&at) if depth > 0 => at as usize,
                _ => name.len().saturating_sub(1),
            };
            self.find_suffix(name.get(at..)?).map(|found| (found.node, at))
        };
        let mut best = exists(0)?;
        let (mut low, mut high) = (0, labels.saturating_sub(1).min(self.depth_max as usize));
        while low < high {
            let middle = (low + high).div_ceil(2);
            match exists(middle) {
                Some(found) => (best, low) = (found, middle),
                None => high = middle - 1,
            }
        }
        Some(best)
    }

    /// The wildcard directly below the name `suffix` (lower-cased wire form).
    pub fn wildcard(&self, suffix: &[u8]) -> Option<Found> {
        let mut name = [0u8; dns::NAME_ROOM];
        let (head, rest) = name.split_first_chunk_mut::<2>()?;
        *head = [1, b'*'];
        rest.get_mut(..suffix.len())?.copy_from_slice(suffix);
        self.find_suffix(name.get(..suffix.len() + 2)?)
    }

    fn find_suffix(&self, name: &[u8]) -> Option<Found> {
        let (first, tail) = name.split_at_checked(32).unwrap_or((name, &[]));
        self.probe(self.hash.name(name), |node| {
            let Some(node) = self.nodes.get(node as usize) else {
                return false;
            };
            node.len as usize == name.len()
                && node.name.get(..first.len()) == Some(first)
                && (tail.is_empty() || self.long_tail(node).and_then(|t| t.get(..tail.len())) == Some(tail))
        })
    }

    /// Number of names, with empty non-terminals and the apexes' ancestors.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True when no zone is served.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

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
    /// (service, policy) where A and AAAA answers are chosen. The caller adds each name once, and
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
            first: entries.first().copied().unwrap_or_default(),
        });
        self.services.push(match service {
            Some((service, policy)) => (service + 1, policy),
            None => (0, 0),
        });
    }

    /// The table.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn build(self) -> io::Result<Names> {
        // At most half full, so that runs stay short and a miss meets a free slot.
        let capacity = (self.nodes.len() * 2).next_power_of_two().max(4);
        let mut names = Names {
            hash: self.hash,
            mask: capacity as u32 - 1,
            probes_max: 1,
            depth_max: self.depth_max,
            slots: Table::zeroed(capacity)?,
            nodes: Table::from_vec(self.nodes)?,
            long: Table::from_vec(self.long)?,
            entries: Table::from_vec(self.entries)?,
        };
        let mut name = Vec::with_capacity(dns::NAME_ROOM);
        for (index, &(service, policy)) in self.services.iter().enumerate() {
            name.clear();
            names.name_of(index as u32, &mut name);
            let hash = names.hash.name(&name);
            let mut at = hash as u32;
            let mut probes = 1;
            while let Some(slot) = names.slots.get_mut((at & names.mask) as usize) {
                if slot.node == 0 {
                    *slot = Slot {
                        tag: (hash >> 32) as u32,
                        node: index as u32 + 1,
                        service,
                        policy,
                    };
                    break;
                }
                at = at.wrapping_add(1);
                probes += 1;
            }
            names.probes_max = names.probes_max.max(probes);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
