//! Client classes: longest prefix match from an address to its class, and how deep the match looked.
//!
//! Read by `stages::dns_answer`; built by control through [`Classes::build`]. A trie with a first step of 16
//! bits and steps of 8 bits behind it: three reads at most for IPv4, 15 for IPv6. A leaf also knows its depth:
//! the length of the widest prefix around the address in which every address has the same class, which
//! is the scope of an answer that depends on the class alone (RFC 7871 section 7.2.1).

use crate::arch;
use crate::mmap::Table;
use crate::zeroable;
use std::io;

/// What an address belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The class; 0 is "no prefix matched".
    pub id: u16,
    /// Length of the widest prefix with this class around the address, bits.
    pub depth: u8,
}

/// One cell of the trie: a leaf (class and depth) or the index of a block of 256 cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
struct Cell {
    word: u32,
}

zeroable!(Cell { word });

impl Cell {
    const BLOCK: u32 = 1 << 31;

    fn leaf(class: Class) -> Self {
        Self {
            word: class.id as u32 | (class.depth as u32) << 16,
        }
    }

    #[inline(always)]
    fn as_block(self) -> Option<usize> {
        (self.word & Self::BLOCK != 0).then_some((self.word & !Self::BLOCK) as usize)
    }

    #[inline(always)]
    fn as_class(self) -> Class {
        Class {
            id: self.word as u16,
            depth: (self.word >> 16) as u8,
        }
    }
}

const ROOT_BITS: u32 = 16;
const ROOT_LEN: usize = 1 << ROOT_BITS;
const BLOCK_LEN: usize = 256;

#[derive(Debug)]
struct Trie {
    cells: Table<Cell>,
}

impl Trie {
    #[inline(always)]
    fn prefetch(&self, address: u128) {
        arch::prefetch_entry(&self.cells, (address >> 112) as usize);
    }

    /// `address` is left-aligned in 128 bits.
    #[inline(always)]
    fn find(&self, address: u128) -> Class {
        let mut cell = self.root((address >> 112) as usize);
        let mut rest = address << 16;
        // Each turn consumes 8 bits; the builder makes no block deeper than the address.
        for _ in 0..14 {
            let Some(block) = cell.as_block() else { break };
            cell = self.step(block, (rest >> 120) as u8);
            rest <<= 8;
        }
        cell.as_class()
    }

    /// The same for the four bytes of an IPv4 address: two steps at most.
    #[inline(always)]
    fn find_4(&self, address: [u8; 4]) -> Class {
        let [a, b, c, d] = address;
        let mut cell = self.root(u16::from_be_bytes([a, b]) as usize);
        if let Some(block) = cell.as_block() {
            cell = self.step(block, c);
            if let Some(block) = cell.as_block() {
                cell = self.step(block, d);
            }
        }
        cell.as_class()
    }

    #[inline(always)]
    fn root(&self, at: usize) -> Cell {
        self.cells.get(at).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn step(&self, block: usize, at: u8) -> Cell {
        self.root(ROOT_LEN + block * BLOCK_LEN + at as usize)
    }
}

/// Client classes of both families.
#[derive(Debug)]
pub struct Classes {
    v4: Trie,
    v6: Trie,
    count: u32,
}

/// A prefix and its class, for the builder: the address is left-aligned in 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// First address, zero beyond the length.
    pub address: u128,
    /// Length, bits.
    pub len: u8,
    /// Its class, from 1.
    pub class: u16,
}

impl Prefix {
    /// An IPv4 prefix.
    pub fn v4(address: [u8; 4], len: u8, class: u16) -> Self {
        Self {
            address: (u32::from_be_bytes(address) as u128) << 96,
            len,
            class,
        }
    }

    /// An IPv6 prefix.
    pub fn v6(address: [u8; 16], len: u8, class: u16) -> Self {
        Self {
            address: u128::from_be_bytes(address),
            len,
            class,
        }
    }
}

impl Classes {
    /// Compiles prefixes; where several match an address the longest wins, of equal ones the last.
    /// `count` is the number of classes with class 0: one more than the highest class.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn build(v4: Vec<Prefix>, v6: Vec<Prefix>, count: u32) -> io::Result<Self> {
        Ok(Self {
            v4: build_trie(v4, 32)?,
            v6: build_trie(v6, 128)?,
            count,
        })
    }

    /// Number of classes, class 0 with it.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Asks for the first cell of an IPv4 address.
    #[inline(always)]
    pub fn prefetch_v4(&self, address: [u8; 4]) {
        self.v4.prefetch((u32::from_be_bytes(address) as u128) << 96);
    }

    /// Asks for the first cell of an IPv6 address.
    #[inline(always)]
    pub fn prefetch_v6(&self, address: [u8; 16]) {
        self.v6.prefetch(u128::from_be_bytes(address));
    }

    /// The class of an IPv4 address.
    #[inline(always)]
    pub fn find_v4(&self, address: [u8; 4]) -> Class {
        self.v4.find_4(address)
    }

    /// The class of an IPv6 address.
    #[inline(always)]
    pub fn find_v6(&self, address: [u8; 16]) -> Class {
        self.v6.find(u128::from_be_bytes(address))
    }
}

/// A binary trie over the prefixes, collapsed where both halves agree, from which the cells are cut.
struct Binary {
    /// Children by bit (0: none) and the class of the prefix that ends here.
    nodes: Vec<([u32; 2], Option<u16>)>,
}

impl Binary {
    fn new(mut prefixes: Vec<Prefix>, bits: u8) -> Self {
        let mut nodes = vec![([0, 0], None)];
        prefixes.retain(|p| p.len <= bits);
        for prefix in prefixes {
            let mut at = 0usize;
            for depth in 0..prefix.len {
                let bit = (prefix.address >> (127 - depth as u32)) as usize & 1;
                let next = nodes.len() as u32;
                let Some(child) = nodes
                    .get_mut(at)
                    .and_then(|n: &mut ([u32; 2], _)| n.0.get_mut(bit))
                else {
                    break;
                };
                if *child == 0 {
                    *child = next;
                    at = next as usize;
                    nodes.push(([0, 0], None));
                } else {
                    at = *child as usize;
                }
            }
            if let Some(node) = nodes.get_mut(at) {
                node.1 = Some(prefix.class);
            }
        }
        let mut trie = Self { nodes };
        trie.collapse(0, 0);
        trie
    }

    /// Pushes classes down, and removes both children of a node whose whole range is one class, so that
    /// leaf depth is the widest uniform prefix. Depth is bounded by the address length. Returns the
    /// class if the range is uniform.
    fn collapse(&mut self, at: usize, inherited: u16) -> Option<u16> {
        let &(children, own) = self.nodes.get(at)?;
        let class = own.unwrap_or(inherited);
        let uniform = if children == [0, 0] {
            Some(class)
        } else {
            let mut side = |child: u32| match child {
                0 => Some(class),
                child => self.collapse(child as usize, class),
            };
            let [left, right] = children;
            let (left, right) = (side(left), side(right));
            if left.is_some() && left == right {
                left
            } else {
                None
            }
        };
        if let Some(node) = self.nodes.get_mut(at) {
            match uniform {
                Some(class) => *node = ([0, 0], Some(class)),
                None => node.1 = Some(class),
            }
        }
        uniform
    }
}

/// Where a walk down the binary trie stands: at a node, or below a leaf.
#[derive(Clone, Copy)]
enum At {
    Node(usize),
    Leaf(Class),
}

impl Binary {
    fn at(&self, index: usize, depth: u8) -> At {
        match self.nodes.get(index) {
            Some((children, _)) if *children != [0, 0] => At::Node(index),
            Some((_, class)) => At::Leaf(Class {
                id: class.unwrap_or(0),
                depth,
            }),
            None => At::Leaf(Class::default()),
        }
    }

    fn child(&self, index: usize, bit: usize, depth: u8) -> At {
        let Some((children, class)) = self.nodes.get(index) else {
            return At::Leaf(Class::default());
        };
        match children.get(bit) {
            Some(&child) if child != 0 => self.at(child as usize, depth),
            // No node on this side: the whole half has the class pushed down.
            _ => At::Leaf(Class {
                id: class.unwrap_or(0),
                depth,
            }),
        }
    }

    /// The `1 << bits` positions `bits` levels below `from`, which is at `depth`.
    fn expand(&self, from: At, depth: u8, bits: u32) -> Vec<At> {
        let mut level = vec![from];
        for step in 0..bits {
            level = level
                .into_iter()
                .flat_map(|at| match at {
                    At::Leaf(class) => [At::Leaf(class); 2],
                    At::Node(index) => {
                        let depth = depth + step as u8 + 1;
                        [self.child(index, 0, depth), self.child(index, 1, depth)]
                    }
                })
                .collect();
        }
        level
    }
}

fn build_trie(prefixes: Vec<Prefix>, bits: u8) -> io::Result<Trie> {
    let binary = Binary::new(prefixes, bits);
    let mut cells: Vec<Cell> = Vec::with_capacity(ROOT_LEN);
    // Positions whose block has not been written: (index of the cell that refers to it, node, depth).
    let mut open: Vec<(usize, usize, u8)> = Vec::new();
    let place = |cells: &mut Vec<Cell>, open: &mut Vec<(usize, usize, u8)>, at: At, depth: u8| match at {
        At::Leaf(class) => cells.push(Cell::leaf(class)),
        At::Node(node) => {
            open.push((cells.len(), node, depth));
            cells.push(Cell::default());
        }
    };
    for at in binary.expand(binary.at(0, 0), 0, ROOT_BITS) {
        place(&mut cells, &mut open, at, ROOT_BITS as u8);
    }
    while let Some((cell, node, depth)) = open.pop() {
        let block = (cells.len() - ROOT_LEN) / BLOCK_LEN;
        if let Some(cell) = cells.get_mut(cell) {
            *cell = Cell {
                word: Cell::BLOCK | block as u32,
            };
        }
        for at in binary.expand(At::Node(node), depth, 8) {
            place(&mut cells, &mut open, at, depth + 8);
        }
    }
    Ok(Trie {
        cells: Table::from_vec(cells)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The plain reference: scan all prefixes for the longest that matches.
    fn slow(prefixes: &[Prefix], address: u128) -> u16 {
        let matches = |p: &Prefix| p.len == 0 || (address ^ p.address) >> (128 - p.len as u32) == 0;
        let mut best: Option<&Prefix> = None;
        for p in prefixes.iter().filter(|p| matches(p)) {
            if best.is_none_or(|b| p.len >= b.len) {
                best = Some(p);
            }
        }
        best.map_or(0, |p| p.class)
    }

    #[test]
    fn boundary_lengths_match() {
        for len in [1u8, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32] {
            let address = (u32::MAX << (32 - len as u32)).to_be_bytes();
            let classes = Classes::build(vec![Prefix::v4(address, len, 7)], vec![], 8).unwrap();
            assert_eq!(classes.find_v4([255; 4]), Class { id: 7, depth: len }, "/{len}");
            assert_eq!(classes.find_v4([0, 0, 0, 1]).id, 0);
            // Zeros differ from the prefix in the first bit already.
            assert_eq!(classes.find_v4([0, 0, 0, 1]).depth, 1);
        }
        let none = Classes::build(vec![], vec![], 1).unwrap();
        assert_eq!(none.find_v4([192, 0, 2, 1]), Class { id: 0, depth: 0 });
        assert_eq!(none.find_v6([0xff; 16]), Class { id: 0, depth: 0 });
    }

    #[test]
    fn halves_of_one_class_are_one_scope() {
        // 10.0.0.0/9 and 10.128.0.0/9 of one class are as wide as 10.0.0.0/8.
        let p = vec![Prefix::v4([10, 0, 0, 0], 9, 3), Prefix::v4([10, 128, 0, 0], 9, 3)];
        assert_eq!(
            Classes::build(p, vec![], 4).unwrap().find_v4([10, 200, 1, 1]),
            Class { id: 3, depth: 8 }
        );
    }

    fn prefixes(bits: u8) -> impl Strategy<Value = Vec<Prefix>> {
        // Few distinct leading bytes, so that prefixes nest.
        let one = (
            proptest::collection::vec(prop_oneof![Just(0u8), Just(10), Just(0xff), any::<u8>()], 16),
            0..=bits,
            1u16..5,
        )
            .prop_map(move |(bytes, len, class)| {
                let address = u128::from_be_bytes(bytes.try_into().unwrap());
                let keep = if len == 0 {
                    0
                } else {
                    u128::MAX << (128 - len as u32)
                };
                Prefix {
                    address: address & keep,
                    len,
                    class,
                }
            });
        proptest::collection::vec(one, 0..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn longest_match_and_true_scope(
            v4 in prefixes(32), v6 in prefixes(128),
            probes in proptest::collection::vec((any::<u128>(), any::<proptest::sample::Index>(), 0u32..128), 40),
        ) {
            let classes = Classes::build(v4.clone(), v6.clone(), 5).unwrap();
            for (random, pick, flip) in probes {
                for (prefixes, bits) in [(&v4, 32u32), (&v6, 128)] {
                    // Random addresses, and addresses one bit away from a prefix.
                    let near = if prefixes.is_empty() { random } else { pick.get(prefixes).address ^ (1 << flip) };
                    for address in [random, near] {
                        let address = if bits == 32 { address >> 96 << 96 } else { address };
                        let class = |a: u128| if bits == 32 {
                            classes.find_v4(((a >> 96) as u32).to_be_bytes())
                        } else {
                            classes.find_v6(a.to_be_bytes())
                        };
                        let found = class(address);
                        prop_assert_eq!(found.id, slow(prefixes, address));
                        // Uniform within the scope: flipping any bit behind it changes nothing...
                        prop_assert!(found.depth as u32 <= bits);
                        let inside = if found.depth == 0 { random } else { address ^ (random >> found.depth.min(127)) };
                        let inside = if found.depth == 128 { address } else if bits == 32 { inside >> 96 << 96 } else { inside };
                        if found.depth < 32 || bits == 128 {
                            prop_assert_eq!(slow(prefixes, inside), found.id);
                            prop_assert_eq!(class(inside), found);
                        }
                        // ...and one bit wider is not uniform: its sibling half holds another class.
                        if found.depth > 0 {
                            let sibling = address ^ (1u128 << (128 - found.depth as u32));
                            let half = sibling >> (128 - found.depth as u32) << (128 - found.depth as u32);
                            let mut differs = slow(prefixes, half) != found.id;
                            for p in prefixes.iter().filter(|p| p.len >= found.depth) {
                                if p.address >> (128 - found.depth as u32) == half >> (128 - found.depth as u32) {
                                    differs |= slow(prefixes, p.address) != found.id;
                                    let last = p.address | if p.len == 128 { 0 } else { u128::MAX >> p.len };
                                    let last = if bits == 32 { last >> 96 << 96 } else { last };
                                    differs |= slow(prefixes, last) != found.id;
                                    // The first address behind the prefix, if still in the half.
                                    let next = last.wrapping_add(if bits == 32 { 1 << 96 } else { 1 });
                                    if next >> (128 - found.depth as u32) == half >> (128 - found.depth as u32) {
                                        differs |= slow(prefixes, next) != found.id;
                                    }
                                }
                            }
                            prop_assert!(differs, "{:?} could be wider", found);
                        }
                    }
                }
            }
        }
    }
}
