//! The key of the name table: a lower-cased name in wire form, padded to whole blocks, so that hashing and
//! comparing work on blocks and never look at a length byte by byte.

use crate::wire::dns;

/// One 32-byte block of a name.
pub type Block = [u8; 32];

/// A lower-cased name in wire form, zero-padded to whole 32-byte blocks.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// A block more than the longest name has, so that the block from any byte of a name on can be read.
    bytes: [u8; dns::NAME_ROOM + 32],
    len: u16,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            bytes: [0; dns::NAME_ROOM + 32],
            len: 0,
        }
    }
}

/// `MASKS[32 - n..]` keeps the first n of 32 bytes.
static MASKS: [u8; 64] = {
    let mut masks = [0; 64];
    let mut rest: &mut [u8] = &mut masks;
    let mut n = 0;
    while n < 32 {
        match rest.split_first_mut() {
            Some((first, tail)) => {
                *first = 0xff;
                rest = tail;
            }
            None => break,
        }
        n += 1;
    }
    masks
};

/// The words of a block.
#[inline(always)]
pub(super) fn words(block: &Block) -> [u64; 4] {
    let mut out = [0; 4];
    for (word, bytes) in out.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    out
}

/// `block` with everything from byte `len` on zeroed.
#[inline(always)]
fn masked(block: &Block, len: usize) -> Block {
    let keep = MASKS
        .get(32 - len.min(32)..)
        .and_then(|m| m.first_chunk::<32>())
        .unwrap_or(&[0; 32]);
    let mut out = *block;
    for (byte, &mask) in out.iter_mut().zip(keep) {
        *byte &= mask;
    }
    out
}

/// `block`, lower-cased.
#[inline(always)]
fn lower(block: &Block) -> Block {
    let mut out = *block;
    for byte in &mut out {
        *byte = dns::lower(*byte);
    }
    out
}

impl Key {
    /// Sets the key to the first `len` bytes of `name`, at most 255. Bytes of `name` behind them
    /// are not interpreted but may be read.
    #[inline(never)]
    pub fn set(&mut self, name: &[u8], len: usize) {
        let len = len.min(dns::NAME_MAX).min(name.len());
        self.len = len as u16;
        let (from, to) = (name.as_chunks::<32>().0, self.bytes.as_chunks_mut::<32>().0);
        // At most seven whole blocks, then the last one.
        let whole = len / 32;
        for (to, from) in to.iter_mut().zip(from).take(whole) {
            *to = lower(from);
        }
        let mut last = [0; 32];
        for (to, from) in last.iter_mut().zip(name.get(whole * 32..len).unwrap_or(&[])) {
            *to = *from;
        }
        if let Some(to) = to.get_mut(whole) {
            *to = lower(&last);
        }
    }

    /// Sets the key to the first `len` bytes of `name`, at most all. Bytes behind them are not interpreted.
    #[inline(always)]
    pub fn set_short(&mut self, name: &Block, len: usize) {
        self.len = len as u16;
        if let Some(to) = self.bytes.first_chunk_mut::<32>() {
            *to = masked(&lower(name), len);
        }
    }

    /// A key of a name in wire form.
    pub fn new(name: &[u8]) -> Self {
        let mut key = Self::default();
        key.set(name, name.len());
        key
    }

    /// The name's bytes.
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.bytes.get(..self.len as usize).unwrap_or(&[])
    }

    /// Length in bytes, root label included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True before the first [`Key::set`].
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Clears what an earlier name left behind the last block: before `Key::suffix`.
    #[inline(always)]
    pub fn clear_tail(&mut self) {
        let end = (self.len as usize).div_ceil(32) * 32;
        if let Some(tail) = self.bytes.get_mut(end..).and_then(|b| b.first_chunk_mut::<32>()) {
            *tail = [0; 32];
        }
    }

    /// The same for a name of 32 bytes at most.
    #[inline(always)]
    pub fn clear_short_tail(&mut self) {
        let [_, tail, ..] = self.bytes.as_chunks_mut::<32>().0 else {
            return;
        };
        *tail = [0; 32];
    }

    /// The name from byte `at` on as the words of a block, zero-padded, and its length; `None` when it is longer than
    /// a block. Only after [`Key::clear_tail`].
    #[inline(always)]
    pub(super) fn suffix(&self, at: usize) -> Option<([u64; 4], usize)> {
        let len = (self.len as usize).wrapping_sub(at);
        if len > 32 {
            return None;
        }
        let block = self.bytes.get(at..)?.first_chunk::<32>()?;
        Some((words(block), len))
    }

    /// The first block, zero-padded.
    #[inline(always)]
    pub fn first_block(&self) -> &Block {
        // NAME_ROOM is at least one block.
        self.bytes.first_chunk::<32>().unwrap_or(&[0; 32])
    }

    /// The padded bytes from the second block on, up to the last block that holds name bytes.
    #[inline]
    pub(super) fn tail(&self) -> &[u8] {
        let end = (self.len as usize).div_ceil(32) * 32;
        self.bytes.get(32..end).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn key_is_the_lower_cased_name_padded(bytes in proptest::collection::vec(any::<u8>(), 1..400), len in 1usize..=255) {
            let len = len.min(bytes.len());
            // A used key, so that stale bytes of a longer name would show.
            let mut key = Key::new(&[b'Z'; 255]);
            match bytes.first_chunk::<32>() {
                Some(block) if len <= 32 => key.set_short(block, len),
                _ => key.set(&bytes, len),
            }
            let lowered: Vec<u8> = bytes[..len].iter().map(u8::to_ascii_lowercase).collect();
            prop_assert_eq!(key.name(), &lowered[..]);
            let padded = len.div_ceil(32) * 32;
            let mut all = key.first_block().to_vec();
            all.extend_from_slice(key.tail());
            prop_assert_eq!(all.len(), padded);
            prop_assert_eq!(&all[..len], &lowered[..]);
            prop_assert!(all[len..].iter().all(|&b| b == 0));
            key.clear_tail();
            for at in 0..len {
                let mut want = lowered[at..].to_vec();
                want.resize(32.max(len - at), 0);
                let bytes = |words: [u64; 4]| words.map(u64::to_le_bytes).concat();
                let suffix = key.suffix(at).map(|(words, len)| (bytes(words), len));
                prop_assert_eq!(suffix, (len - at <= 32).then_some((want, len - at)));
            }
        }
    }
}
