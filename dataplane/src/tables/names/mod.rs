//! Owner names: a hash table from the lower-cased wire name to its node, and the node's record sets.
//!
//! Read by `stages::dns_answer`; built by control through [`NamesBuilder`]. The table holds every
//! name of every zone, the empty non-terminals, and the ancestors of each apex up to the root, so
//! that "exists" is monotone along a name's labels and the closest encloser is a binary search over
//! at most the depth of the deepest name. Names below a zone cut are left out.

mod build;
mod node;

use super::NONE;
use super::key::{self, Block, Key};
use crate::arch;
use crate::mmap::Table;
use crate::wire::dns;
use crate::zeroable;

pub use build::NamesBuilder;
pub use node::{Entry, Node};

/// Names that share the low bits of their hash, four at most: one cache line. The service and the place of its cells
/// stand here so that what the answer needs can be prefetched one step earlier.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// High half of the hash, [`TAGGED`]; 0 is free. Filled from the front.
    tags: [u32; SLOTS],
    /// Node indices.
    nodes: [u32; SLOTS],
    /// Indices of the services whose A and AAAA answers are chosen here, plus one; 0 is none.
    services: [u32; SLOTS],
    /// Where the cells of the services' policies are, as [`Policy::place`](super::plans::Policy::place) says.
    places: [u32; SLOTS],
}

/// Slots of a bucket.
const SLOTS: usize = 4;
/// Set in every tag, so that none is 0.
const TAGGED: u32 = 1;

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | TAGGED
}

impl Bucket {
    #[inline(always)]
    fn found(&self, slot: u32) -> Found {
        let slot = slot as usize % SLOTS;
        let word = |words: &[u32; SLOTS]| words.get(slot).copied().unwrap_or(0);
        Found {
            node: word(&self.nodes),
            service: word(&self.services).wrapping_sub(1),
            place: word(&self.places),
        }
    }

    /// Whether more of its names may stand in the next bucket.
    #[inline(always)]
    fn is_full(&self) -> bool {
        let [.., last] = self.tags;
        last != 0
    }
}

zeroable!(Bucket {
    tags,
    nodes,
    services,
    places
});

const _: () = assert!(size_of::<Bucket>() == 64);

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
        self.words(state, key::words(block))
    }

    #[inline(always)]
    fn words(&self, state: u64, [a, b, c, d]: [u64; 4]) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        // Folded once more: an exclusive or would leave names in a row unevenly spread.
        fold(
            fold(a ^ k0 ^ state, b ^ k1),
            fold(c ^ k2 ^ state.rotate_left(32), d ^ k3),
        )
    }

    /// Hash of a name of one block, zero-padded, and `len` bytes.
    #[inline(always)]
    fn short(&self, name: &Block, len: usize) -> u64 {
        self.block(len as u64, name)
    }

    /// Hash of a key.
    #[inline(always)]
    fn key(&self, key: &Key) -> u64 {
        let state = self.short(key.first_block(), key.len());
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
    /// Where the cells of its policy are.
    pub place: u32,
}

/// The names of a snapshot.
#[derive(Debug)]
pub struct Names {
    hash: NameHash,
    mask: u32,
    probes_max: u32,
    depth_max: u8,
    buckets: Table<Bucket>,
    nodes: Table<Node>,
    long: Table<u8>,
    entries: Table<Entry>,
}

impl Found {
    /// Nothing was found.
    pub const NONE: Self = Self {
        node: NONE,
        service: NONE,
        place: 0,
    };
}

impl Names {
    /// Hashes a key of 32 bytes at most, and asks for its slot's cache line.
    #[inline(always)]
    pub fn hash_short(&self, key: &Key) -> u64 {
        let hash = self.hash.short(key.first_block(), key.len());
        self.prefetch(hash);
        hash
    }

    /// Hashes a key and asks for its slot's cache line.
    #[inline(always)]
    pub fn hash(&self, key: &Key) -> u64 {
        let hash = self.hash.key(key);
        self.prefetch(hash);
        hash
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        arch::prefetch_entry(&self.buckets, (hash as u32 & self.mask) as usize);
    }

    /// Finds the slot whose tag fits the hash and asks for its node's line; [`Found::NONE`] without. The name itself
    /// is compared later, by [`Names::confirm_short`], when the node has arrived.
    #[inline(always)]
    pub fn candidate(&self, hash: u64, found: &mut Found) {
        if let Some(bucket) = self.buckets.get((hash as u32 & self.mask) as usize) {
            let fit = arch::equal_words(&bucket.tags, tag(hash));
            if fit != 0 {
                *found = bucket.found(fit.trailing_zeros());
                arch::prefetch_entry(&self.nodes, found.node as usize);
                return;
            }
            if !bucket.is_full() {
                *found = Found::NONE;
                return;
            }
        }
        *found = self.candidate_on(hash);
    }

    /// As [`Names::candidate`], when the first bucket is full of others: seldom.
    #[inline(never)]
    fn candidate_on(&self, hash: u64) -> Found {
        self.probe(hash, |_| true).unwrap_or(Found::NONE)
    }

    /// The candidate's node, if it is that of `key`, of 32 bytes at most. Without, [`Names::find`] may still find one: a
    /// candidate only shares the tag.
    #[inline(always)]
    pub fn confirm_short(&self, candidate: Found, key: &Key) -> Option<&Node> {
        let node = self.nodes.get(candidate.node as usize)?;
        (node.len as usize == key.len() && node.name == *key.first_block()).then_some(node)
    }

    /// The node of `key`.
    pub fn find(&self, key: &Key) -> Option<Found> {
        let hash = self.hash.key(key);
        self.probe(hash, |node| self.is_name(node, key))
    }

    #[inline(always)]
    fn probe(&self, hash: u64, mut accept: impl FnMut(u32) -> bool) -> Option<Found> {
        let mut at = hash as u32;
        for _ in 0..self.probes_max {
            let bucket = self.buckets.get((at & self.mask) as usize)?;
            let mut fit = arch::equal_words(&bucket.tags, tag(hash));
            while fit != 0 {
                let found = bucket.found(fit.trailing_zeros());
                if accept(found.node) {
                    return Some(found);
                }
                fit &= fit - 1;
            }
            if !bucket.is_full() {
                return None;
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
        if node.first.rtype() == rtype {
            return Some(&node.first);
        }
        let start = node.entries as usize;
        let rest = self.entries.get(start..start + node.count as usize - 1)?;
        let mut default = (node.first.rtype() == Entry::DEFAULT).then_some(&node.first);
        for entry in rest {
            if entry.rtype() == rtype {
                return Some(entry);
            }
            if entry.rtype() == Entry::DEFAULT {
                default = Some(entry);
            }
        }
        default
    }

    /// The second of two entries of one type.
    #[cold]
    pub fn second_entry(&self, node: &Node, rtype: u16) -> Option<&Entry> {
        let start = node.entries as usize;
        let rest = self
            .entries
            .get(start..start + (node.count as usize).checked_sub(1)?)?;
        // The second cannot be the node's first.
        let before = usize::from(node.first.rtype() == rtype);
        rest.iter().filter(|entry| entry.rtype() == rtype).nth(1 - before)
    }

    /// The closest encloser (RFC 4592 section 3.3.1) of a name that is not in the table: the longest
    /// existing ancestor, and where its name starts in the key, whose tail is clear. `labels`: how many the key has;
    /// `start`: where its ancestor of so many labels, at least one, starts. `None` only when no zone is served or a start is not
    /// known.
    #[inline(always)]
    pub fn closest_encloser(
        &self,
        key: &Key,
        labels: usize,
        start: impl Fn(usize) -> Option<usize>,
    ) -> Option<(&Node, usize)> {
        let mut best = None;
        let (mut low, mut high) = (0, labels.saturating_sub(1).min(self.depth_max as usize));
        while low < high {
            let middle = (low + high).div_ceil(2);
            let at = start(middle)?;
            match self.ancestor(key, at) {
                Some(node) => (best, low) = (Some((node, at)), middle),
                None => high = middle - 1,
            }
        }
        match best {
            None => self.root(key),
            _ => best,
        }
    }

    #[cold]
    #[inline(never)]
    fn root(&self, key: &Key) -> Option<(&Node, usize)> {
        let at = key.len().saturating_sub(1);
        Some((self.ancestor(key, at)?, at))
    }

    /// The node of the key's ancestor that starts at its byte `at`.
    #[inline(always)]
    fn ancestor(&self, key: &Key, at: usize) -> Option<&Node> {
        match key.suffix(at) {
            Some((words, len)) => self.node_of_words(words, len),
            None => {
                let found = self.find_suffix(key.name().get(at..)?)?;
                self.nodes.get(found.node as usize)
            }
        }
    }

    /// The index of a node of this table.
    pub fn index_of(&self, node: &Node) -> u32 {
        self.nodes
            .iter()
            .position(|other| std::ptr::eq(other, node))
            .map_or(NONE, |index| index as u32)
    }

    /// The node of a name of one block, by its words, and `len` bytes.
    #[inline(always)]
    fn node_of_words(&self, words: [u64; 4], len: usize) -> Option<&Node> {
        let hash = self.hash.words(len as u64, words);
        let bucket = self.buckets.get((hash as u32 & self.mask) as usize)?;
        let fit = arch::equal_words(&bucket.tags, tag(hash));
        if fit != 0 {
            let node = self.nodes.get(bucket.found(fit.trailing_zeros()).node as usize)?;
            if node.len as usize == len && key::words(&node.name) == words {
                return Some(node);
            }
        } else if !bucket.is_full() {
            return None;
        }
        self.node_of_words_on(hash, words, len)
    }

    #[cold]
    #[inline(never)]
    fn node_of_words_on(&self, hash: u64, words: [u64; 4], len: usize) -> Option<&Node> {
        let node = |index: u32| {
            self.nodes
                .get(index as usize)
                .filter(|node| node.len as usize == len && key::words(&node.name) == words)
        };
        self.probe(hash, |index| node(index).is_some())
            .and_then(|found| node(found.node))
    }

    /// The wildcard directly below the name `suffix` (lower-cased wire form).
    pub fn wildcard(&self, suffix: &[u8]) -> Option<Found> {
        let mut name = [0u8; dns::NAME_ROOM];
        let (head, rest) = name.split_first_chunk_mut::<2>()?;
        *head = [1, b'*'];
        rest.get_mut(..suffix.len())?.copy_from_slice(suffix);
        self.find_suffix(name.get(..suffix.len() + 2)?)
    }

    #[inline(never)]
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

#[cfg(test)]
mod tests;
